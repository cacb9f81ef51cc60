//! `run`, `attach`, `process` and `system`: the commands that sample.

use std::io::Write as _;
use std::path::PathBuf;
use std::thread::JoinHandle;

use resource_tracker::{
    Catalog, CloudInfo, Config, FinishedJob, Hooks, Inputs, Plan, RowFormat, RowSink, Sink, Table, WrapError,
    parent_id, run_command, watch_machine, with_causes,
};

use crate::args::{AttachArgs, PrintArgs, ProcessArgs, RecordArgs, RunArgs};
use crate::failure::Failure;
use crate::fleet::Storing;
use crate::live::Live;
use crate::load::{context, embedded_only};
use crate::save::{Saved, Saver};
use crate::show;
use crate::summary::RunSummary;
use crate::trend::TrendSink;

/// Returns the exit status of the job, of its last attempt if it is run again after out-of-memory kills.
pub fn run(args: &RunArgs, ignored_at_start: &[i32]) -> Result<u8, Failure> {
    let mut attempt = 1;
    let status = loop {
        let done = run_once(args, ignored_at_start, attempt)?;
        if !runs_again(args, &done, attempt) {
            break done.exit_status();
        }
        attempt += 1;
    };
    // Exit codes of Windows have 32 bits and may not fit into a `u8`. All output is written, so it is safe to exit.
    Ok(u8::try_from(status).unwrap_or_else(|_| std::process::exit(status)))
}

/// Whether the command is run again, and a line that says so.
fn runs_again(args: &RunArgs, done: &FinishedJob, attempt: u32) -> bool {
    let may_retry = if args.retry_oom == 0 { None } else { done.may_retry_oom(&args.record.config()) };
    let is_last = attempt > args.retry_oom;
    let note = match may_retry {
        None => return false,
        Some(true) if is_last => format!("out of memory in {attempt} attempts: the command is not run again"),
        Some(true) => format!(
            "out of memory: attempt {} of at most {} starts",
            attempt + 1,
            u64::from(args.retry_oom) + 1
        ),
        Some(false) => {
            "out of memory at the limit of the scheduler or container: the command is not run again; \
                        request the memory that the summary shows for the next run"
                .to_owned()
        }
    };
    if !args.record.quiet {
        show::warning(&note);
    }
    may_retry == Some(true) && !is_last
}

fn run_once(args: &RunArgs, ignored_at_start: &[i32], attempt: u32) -> Result<FinishedJob, Failure> {
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let attempt = (args.retry_oom > 0).then_some(attempt);
    let (saver, mut sinks) = Saver::open(&args.record, Some(words), attempt)?;
    let mut hooks = JobHooks::start(&args.record, &mut sinks);
    hooks.run_id = Some(saver.run_id());
    hooks.attempt = attempt;
    hooks.journal = Some(saver.journal());
    let done = match run_command(&args.command, args.record.config(), sinks, ignored_at_start, &mut hooks) {
        Err(error) if error.is_of_tracker() => {
            drop((saver, hooks));
            show::warning(&format!("{}; the command runs without tracking", with_causes(&error)));
            return Err(WrapError::run_untracked(&args.command, ignored_at_start).into());
        }
        done => done?,
    };
    hooks.finish(saver, &done);
    Ok(done)
}

pub fn attach(args: &AttachArgs) -> Result<u8, Failure> {
    let (saver, mut sinks) = Saver::open(&args.record, Plan::command_of(args.pid), None)?;
    let mut hooks = JobHooks::start(&args.record, &mut sinks);
    let done = resource_tracker::attach(args.pid, args.record.config(), sinks, &mut hooks)
        .map_err(Failure::without_a_job)?;
    hooks.finish(saver, &done);
    Ok(0)
}

/// The status line, cloud detection and reading of the catalogue while the job runs, and the summary at its end.
struct JobHooks<'a> {
    args: &'a RecordArgs,
    live: Option<Live>,
    trends: TrendSink,
    /// Reads the servers for the summary.
    catalog: Option<JoinHandle<()>>,
    inputs: Option<Inputs>,
    run_id: Option<String>,
    attempt: Option<u32>,
    journal: Option<PathBuf>,
}

impl<'a> JobHooks<'a> {
    fn start(args: &'a RecordArgs, sinks: &mut Vec<Box<dyn Sink>>) -> Self {
        let trends = TrendSink::default();
        if !args.quiet {
            sinks.push(Box::new(trends.clone()));
        }
        let live = if args.live && !args.quiet { Live::start() } else { None };
        let live = live.map(|(live, sink)| {
            sinks.push(sink);
            live
        });
        Self { args, live, trends, catalog: None, inputs: None, run_id: None, attempt: None, journal: None }
    }

    /// Saves the recording and prints the summary.
    fn finish(mut self, saver: Saver, done: &FinishedJob) {
        let args = self.args;
        // Removes the status line before anything is printed.
        self.live = None;
        // A short job ends before `job_started`.
        let inputs = self.inputs.take().or_else(|| Inputs::measure(&self.args.inputs));
        let Some(mut saved) = saver.finish(done, inputs) else { return };
        let storing = match (&args.store, &saved.id) {
            (Some(store), Some(id)) => Some(Storing::start(store, id, args.offline)),
            (Some(store), None) if !args.no_save => {
                saved.notes.push(format!(
                    "the run is not in the store `{}`, because it is not in the history",
                    store.url()
                ));
                None
            }
            _ => None,
        };
        if needs_servers(args) {
            self.summarize(saved, done);
        }
        if let Some(warning) = storing.and_then(Storing::finish).filter(|_| !args.quiet) {
            show::warning(&warning);
        }
    }

    /// Prints the summary and writes the JSON of the run.
    fn summarize(mut self, mut saved: Saved, done: &FinishedJob) {
        if let Some(thread) = self.catalog.take() {
            // The thread cannot panic.
            let _ = thread.join();
        }
        let context = context(
            &saved.head,
            done.tracker.summary(),
            &self.args.advice_options(),
            &mut Catalog::new(embedded_only()),
        );
        let json = saved.json.take();
        let summary = RunSummary {
            head: &saved.head,
            context: &context,
            trends: &self.trends.trends(),
            recording: saved.recording.as_deref(),
            report: saved.report.as_deref(),
            notes: &saved.notes,
            shows_evidence: false,
        };
        let failed = json.and_then(|(mut output, path)| {
            let text = show::json_text(&summary.json());
            let written = output.write_all(text.as_bytes()).and_then(|()| output.commit());
            written.err().map(|error| format!("cannot write `{}`: {error}", path.display()))
        });
        if !self.args.quiet {
            show::summary(&summary.text(show::can_draw_bars(&std::io::stderr())));
            if let Some(failed) = failed {
                show::warning(&failed);
            }
        }
    }
}

fn needs_servers(args: &RecordArgs) -> bool {
    !args.quiet || args.json.is_some()
}

impl Hooks for JobHooks<'_> {
    fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    fn journal(&self) -> Option<PathBuf> {
        self.journal.clone()
    }

    fn job_started(&mut self) {
        CloudInfo::discover_in_background(self.args.offline);
        self.inputs = Inputs::measure(&self.args.inputs);
        if needs_servers(self.args) {
            self.catalog = Catalog::load_in_background();
        }
    }

    fn minds_stops(&self) -> bool {
        self.live.is_some()
    }

    fn stopping(&mut self) {
        if let Some(live) = &self.live {
            live.pause();
        }
    }

    fn continued(&mut self) {
        if let Some(live) = &self.live {
            live.resume();
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the parent process has ended")]
struct NoParent;

pub fn process(args: &ProcessArgs) -> Result<u8, Failure> {
    let config = Config { children: !args.scope.no_children, track_system: false, ..args.print.config() };
    let no_parent = || Failure::new(NoParent, Some("select a process with --pid"));
    let pid = args.pid.or_else(parent_id).ok_or_else(no_parent)?;
    resource_tracker::attach(pid, config, printer(&args.print, Table::Process)?, &mut ())
        .map_err(Failure::without_a_job)?;
    Ok(0)
}

pub fn system(args: &PrintArgs) -> Result<u8, Failure> {
    let config = Config { track_processes: false, ..args.config() };
    watch_machine(config, printer(args, Table::System)?).map_err(Failure::without_a_job)?;
    Ok(0)
}

fn printer(args: &PrintArgs, table: Table) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let format = if args.json { RowFormat::JsonLines(table) } else { RowFormat::Csv(table) };
    let sink = RowSink::to_stdout(format, args.samples).map_err(|error| Failure::new(error, None))?;
    Ok(vec![Box::new(sink)])
}
