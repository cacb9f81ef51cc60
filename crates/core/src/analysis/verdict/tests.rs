//! Each rule over hand-made facts; real endings are in `crates/cli/tests/why.rs`.

use super::*;
use crate::config::Config;
use crate::metric::{Metric, Row};
use crate::probe::cgroup::OomKills;
use crate::probe::evidence::{FullFileSystem, LimitReached};
use crate::sampler::evidence::{Evidence, SignalReceived};
use crate::store::summary::Scope;

const START: f64 = 1_700_000_000.0;
const END: f64 = START + 100.0;

fn failed(exit_code: i32) -> Run {
    Run { status: Some(Status::Failed), exit_code: Some(exit_code), ..Run::default() }
}

fn killed(signal: i32) -> Run {
    Run { status: Some(Status::Killed), signal: Some(signal), ..Run::default() }
}

fn received(signal: i32, sender: &str) -> SignalReceived {
    SignalReceived { signal, at: END - 0.5, sender_pid: Some(42), sender: Some(sender.to_owned()) }
}

fn verdict(run: Run, evidence: Evidence) -> Option<Verdict> {
    let run = Run { evidence: Some(evidence).filter(|facts| !facts.is_empty()), ..run };
    let mut head = Head::new(&Config::default(), 1, START, run);
    head.metadata.set_stop_time(END, 0.0);
    let scope = Scope { process: true, system: false, start_time: Some(START), interval_s: 1.0 };
    let mut summary = Summary::new(scope);
    for (second, kib) in [400.0, 900.0, 1900.0].into_iter().enumerate() {
        let mut row = Row::default();
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        row.set(Metric::Timestamp, Some(START + 98.0 + second as f64));
        row.set(Metric::Elapsed, Some(1.0));
        row.set(Metric::ProcessMemory, Some(kib * 1024.0));
        summary.add(&row);
    }
    Verdict::of(&head, &summary, Some(3072))
}

fn cause(run: Run, evidence: Evidence) -> (&'static str, Certainty) {
    let verdict = verdict(run, evidence).unwrap();
    (verdict.cause.name(), verdict.certainty)
}

#[test]
fn run_that_succeeded_or_goes_on_has_no_verdict() {
    let ends = [Status::Finished, Status::Running, Status::Detached, Status::TrackerDied, Status::Ended];
    for status in ends {
        let run = Run { status: Some(status), exit_code: Some(0), ..Run::default() };
        assert_eq!(verdict(run, Evidence::default()), None);
    }
}

#[test]
fn exit_codes_and_signals_have_their_known_meaning() {
    use Certainty::{Certain, Likely};
    let none = Evidence::default;
    assert_eq!(cause(failed(1), none()), ("exit_code", Certain));
    assert_eq!(cause(failed(2), none()), ("exit_code", Certain));
    assert_eq!(cause(failed(125), none()), ("exit_code", Certain));
    assert_eq!(cause(failed(126), none()), ("not_executable", Likely));
    assert_eq!(cause(failed(127), none()), ("not_found", Likely));
    assert_eq!(cause(failed(139), none()), ("signal", Certain));
    assert_eq!(cause(failed(200), none()), ("exit_code", Certain), "128 + 72 is no signal");
    assert_eq!(cause(killed(11), none()), ("signal", Certain));
    assert_eq!(cause(killed(24), none()), ("time_limit", Likely));
    let unknown = Run { status: Some(Status::Failed), ..Run::default() };
    assert_eq!(verdict(unknown, none()), None);
}

#[test]
fn oom_kill_shows_the_memory_of_the_last_seconds_and_the_next_request() {
    let kills = OomKills { processes: 1, certain: true, limit_bytes: Some(2 << 30) };
    let found = verdict(Run { oom_kills: Some(kills), ..killed(9) }, Evidence::default()).unwrap();
    assert_eq!((found.cause, found.certainty), (Cause::OutOfMemory, Certainty::Certain));
    let course = "memory grew from 400 MiB to 1.86 GiB in the last 2 s, limit 2.00 GiB";
    assert_eq!(found.evidence.last().unwrap(), course, "{found:?}");
    assert_eq!(found.next.as_deref(), Some("request 3072 MiB of memory"));
    // A worker was killed, and the job then gave up.
    assert_eq!(
        cause(Run { oom_kills: Some(kills), ..failed(1) }, Evidence::default()),
        ("out_of_memory", Certainty::Likely)
    );
}

#[test]
fn time_limits_of_timeout_and_slurm_are_told_from_other_signals() {
    use Certainty::{Certain, Likely};
    let by = |sender| Evidence { signals: vec![received(15, sender)], ..Evidence::default() };
    assert_eq!(cause(killed(15), by("timeout")), ("time_limit", Certain));
    assert_eq!(cause(failed(3), by("timeout")), ("time_limit", Likely), "the job handles SIGTERM");
    assert_eq!(cause(failed(124), Evidence::default()), ("time_limit", Likely));
    let wrapped = |code| Run { command: Some(vec!["/usr/bin/timeout".to_owned()]), ..failed(code) };
    assert_eq!(cause(wrapped(124), Evidence::default()), ("time_limit", Certain));
    assert_eq!(cause(wrapped(137), Evidence::default()), ("time_limit", Likely));
    assert_eq!(cause(wrapped(1), Evidence::default()), ("exit_code", Certain));
    let itself = |signal| Run { command: Some(vec!["timeout".to_owned()]), ..killed(signal) };
    assert_eq!(cause(itself(9), Evidence::default()), ("time_limit", Likely), "`timeout -s KILL`");
    assert_eq!(cause(itself(11), Evidence::default()), ("signal", Certain));
    let slurm = |sender, limit_at| Evidence { time_limit_at: Some(limit_at), ..by(sender) };
    assert_eq!(cause(killed(15), slurm("slurmstepd", END - 2.0)), ("time_limit", Certain));
    assert_eq!(cause(killed(9), slurm("slurmstepd", END - 32.0)), ("time_limit", Certain), "TERM, then KILL");
    assert_eq!(cause(killed(15), slurm("bash", END + 3.0)), ("time_limit", Likely));
    assert_eq!(cause(killed(15), slurm("slurmstepd", END + 3600.0)), ("signal", Certain), "scancel");
    assert_eq!(
        cause(killed(15), slurm("sh", END - 3600.0)),
        ("signal", Certain),
        "a variable of another job"
    );
    assert_eq!(
        cause(killed(2), Evidence { time_limit_at: Some(END), ..Evidence::default() }),
        ("signal", Certain)
    );
    assert_eq!(cause(failed(1), slurm("x", END - 2.0)), ("time_limit", Likely), "the job handles SIGTERM");
    let verdict = verdict(killed(15), by("systemd")).unwrap();
    assert_eq!(verdict.message, "SIGTERM from `systemd` ended the job: this signal asks a program to end.");
}

#[test]
fn full_file_systems_and_limits_explain_failures_but_no_kills() {
    let disk = |role: Option<&str>| FullFileSystem {
        mount_point: "/data".to_owned(),
        role: role.map(str::to_owned),
        ..FullFileSystem::default()
    };
    let full = |role| Evidence { full_file_systems: vec![disk(role)], ..Evidence::default() };
    assert_eq!(cause(failed(1), full(Some("working directory"))), ("disk_full", Certainty::Likely));
    assert_eq!(cause(killed(7), full(Some("working directory"))), ("disk_full", Certainty::Likely));
    assert_eq!(cause(killed(9), full(Some("working directory"))).0, "signal");
    let unrelated = verdict(failed(1), full(None)).unwrap();
    assert_eq!(unrelated.cause, Cause::ExitCode);
    assert_eq!(unrelated.evidence, ["the file system `/data` had no space left at the end"]);
    for (limit, name) in [("open_files", "too_many_files"), ("processes", "too_many_processes")] {
        let reached = LimitReached::new(limit, 60, 64).unwrap();
        let evidence = Evidence { limits_reached: vec![reached], ..Evidence::default() };
        assert_eq!(cause(failed(1), evidence.clone()), (name, Certainty::Likely));
        assert_eq!(cause(killed(15), evidence).0, "signal");
    }
    assert_eq!(LimitReached::new("open_files", 57, 64), None);
}

#[test]
fn error_of_a_block_names_the_cause() {
    let run =
        |error: &str| Run { status: Some(Status::Failed), error: Some(error.to_owned()), ..Run::default() };
    let of = |error: &str| cause(run(error), Evidence::default()).0;
    assert_eq!(of("ValueError: no data"), "exception");
    assert_eq!(of("MemoryError: Unable to allocate 8 GiB"), "out_of_memory");
    assert_eq!(of("OSError: [Errno 28] No space left on device: 'x'"), "disk_full");
    assert_eq!(of("OSError: [Errno 24] Too many open files"), "too_many_files");
}
