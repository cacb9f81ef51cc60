//! The summary of a run, as text and as JSON: printed by `run`, `attach` and `show`.

use std::fmt::Write as _;
use std::path::Path;

use resource_tracker::human::{self, Scale};
use resource_tracker::{Advice, Head, Metric, ReportContext, Run, Server, Status, Warning};
use serde_json::{Value, json};

use crate::show::{self, BAD, GOOD, LABEL};
use crate::trend::{Trend, Trends};

/// Width of the bars that show the course of a run.
const BARS: usize = 16;
const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;

pub struct RunSummary<'a> {
    pub head: &'a Head,
    pub context: &'a ReportContext,
    pub trends: &'a Trends,
    pub recording: Option<&'a Path>,
    pub report: Option<&'a Path>,
    /// Problems to warn about.
    pub notes: &'a [String],
    /// Whether the text lists the evidence of why the run failed.
    pub shows_evidence: bool,
}

struct Usage {
    mean: Option<f64>,
    peak: Option<f64>,
    limit: Option<f64>,
}

impl RunSummary<'_> {
    fn run(&self) -> Option<&Run> {
        self.head.run.as_ref()
    }

    fn wall_s(&self) -> Option<f64> {
        self.context.summary.duration_s()
    }

    fn cpu_cores(&self) -> Usage {
        let cpu = self.context.summary.of(Metric::ProcessCpu);
        Usage { mean: cpu.mean(), peak: cpu.max(), limit: self.head.limits().cpu_cores }
    }

    fn memory_bytes(&self) -> Usage {
        Usage {
            mean: self.context.summary.memory_mean_kib().map(|kib| kib * KIB),
            peak: self.context.summary.memory_peak_kib().map(|kib| kib * KIB),
            limit: self.head.limits().memory_mb.map(|mib| mib * MIB),
        }
    }

    fn has_gpu(&self) -> bool {
        let gpus = self.head.server_info.as_ref().and_then(|info| info.get("gpu_count")?.as_u64());
        gpus.is_some_and(|gpus| gpus > 0)
            || self.context.summary.of(Metric::ProcessGpu).max().is_some_and(|max| max > 0.0)
    }

    fn advice(&self) -> Option<&Advice> {
        self.context.advice.as_ref().ok()
    }

    fn coverage(&self) -> Option<f64> {
        self.context.summary.coverage().or_else(|| self.run()?.coverage)
    }

    /// The keys are described in `docs/json.md`.
    pub fn json(&self) -> Value {
        let shown = |path: Option<&Path>| path.map(|path| path.display().to_string());
        let mut run = self.context.run_json(self.head);
        run["recording"] = json!(shown(self.recording));
        run["report"] = json!(shown(self.report));
        run["notes"] = json!(self.notes);
        run
    }

    /// Styled text, with the course of CPU and memory drawn as bars if `draws_bars` is set.
    pub fn text(&self, draws_bars: bool) -> String {
        let mut text = format!("resource-tracker: {}\n", self.headline());
        let mut line = |label: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = writeln!(text, "  {}{value}", show::styled(LABEL, format_args!("{label:<11}")));
            }
        };
        for (label, text) in self.why_lines() {
            line(label, Some(text));
        }
        line("CPU", self.cpu_line(draws_bars));
        line("memory", self.memory_line(draws_bars));
        let transfer = |read, written, words: [&str; 2]| {
            let sum = |metric| self.context.summary.sum_without_tracker(metric);
            let (read, written) = (sum(read)?, sum(written)?);
            Some(format!(
                "{} {}, {} {}",
                Scale::Bytes.show(read),
                words[0],
                Scale::Bytes.show(written),
                words[1]
            ))
        };
        line("disk", transfer(Metric::ProcessRead, Metric::ProcessWrite, ["read", "written"]));
        let network = transfer(Metric::NetRecv, Metric::NetSent, ["received", "sent"]);
        line("network", network.map(|bytes| format!("{bytes} (whole machine)")));
        line("GPU", self.has_gpu().then(|| self.gpu_line()).flatten());
        line("time", self.context.waits(self.head).map(|waits| waits.sentence));
        line("phases", self.run().and_then(Run::phase_sentence).map(|text| show::one_line(&text, 200)));
        line("requested", self.context.requested.clone());
        line("next run", self.advice().map(request));
        let servers = &self.context.servers;
        let offer = |server: &Server| self.server_line(server);
        let first = servers.first();
        line("server", first.map(|found| offer(found.1)).or_else(|| show::no_server(self.context)));
        line("", first.map(show::about_server));
        let elsewhere = servers.cheaper_elsewhere();
        line("anywhere", elsewhere.map(|found| offer(found.1)));
        line("", elsewhere.map(show::about_server));
        line("cost", show::cost_here(self.context));
        line("tracker", self.tracker_line());
        let shown = |path: &Path| show::one_line(&path.display().to_string(), 500);
        line("recording", self.recording.map(shown));
        line("report", self.report.map(shown));
        let warnings = self.advice().map(|advice| advice.warnings.as_slice()).unwrap_or_default();
        // The first line shows how the run ended and how long it took.
        let is_in_headline =
            |warning: &Warning| matches!(warning, Warning::ShortRun { .. } | Warning::Incomplete { .. });
        let warnings = warnings.iter().filter(|warning| !is_in_headline(warning));
        let killed = self.run().filter(|run| !run.was_killed_for_memory()).and_then(|run| run.oom_kills);
        let killed = killed.map(|kills| {
            let processes = if kills.processes == 1 { "process" } else { "processes" };
            let probably = if kills.certain { "" } else { "probably " };
            format!("the OOM killer {probably}ended {} {processes} of the job", kills.processes)
        });
        let notes = self.notes.iter().map(|note| show::one_line(note, 500)).chain(killed);
        for note in notes.chain(warnings.map(ToString::to_string)) {
            let _ = writeln!(text, "resource-tracker: {} {note}", show::styled(BAD, "warning:"));
        }
        for note in servers.notes() {
            let _ = writeln!(text, "resource-tracker: note: {}", show::one_line(note, 200));
        }
        for finding in self.advice().into_iter().flat_map(|advice| &advice.findings) {
            let _ = writeln!(text, "resource-tracker: {finding}");
        }
        text
    }

    /// Why the run failed: the sentence and what to do next, or all evidence.
    fn why_lines(&self) -> Vec<(&'static str, String)> {
        let Some(verdict) = &self.context.verdict else { return Vec::new() };
        let evidence = verdict.evidence.iter().filter(|_| self.shows_evidence);
        let next = verdict.next.iter().map(|next| format!("next: {next}"));
        let below = evidence.cloned().chain(next).map(|text| ("", text));
        let lines = std::iter::once(("why", verdict.message.clone())).chain(below);
        lines.map(|(label, text)| (label, show::one_line(&text, 500))).collect()
    }

    fn was_killed_for_memory(&self) -> bool {
        self.run().is_some_and(Run::was_killed_for_memory)
    }

    /// How the run ended, and its duration.
    fn headline(&self) -> String {
        let run = self.run();
        let ended = match run.and_then(|run| run.status.as_ref()) {
            _ if self.was_killed_for_memory() => {
                let certain = run.and_then(|run| run.oom_kills).is_some_and(|kills| kills.certain);
                let probably = if certain { "" } else { "probably " };
                show::styled(BAD, format_args!("killed ({probably}out of memory)"))
            }
            Some(Status::Finished) => show::styled(GOOD, "finished"),
            Some(Status::Failed) => {
                let code = || format!("exit code {}", run.and_then(|run| run.exit_code).unwrap_or_default());
                let error = run.and_then(|run| run.error.as_ref()).map(|error| show::one_line(error, 100));
                show::styled(BAD, format_args!("failed with {}", error.unwrap_or_else(code)))
            }
            Some(Status::Killed) => {
                let signal = run.and_then(|run| run.signal).unwrap_or_default();
                let name =
                    run.and_then(Run::signal_name).map_or_else(String::new, |name| format!(" ({name})"));
                show::styled(BAD, format_args!("killed by signal {signal}{name}"))
            }
            Some(Status::Ended) => "process ended".to_owned(),
            Some(Status::Detached) => "stopped tracking".to_owned(),
            Some(Status::TrackerDied) => show::styled(BAD, "tracker was killed"),
            Some(Status::Running) => "running".to_owned(),
            Some(Status::Other(word)) => show::one_line(word, 40),
            None => "recording ended".to_owned(),
        };
        let after =
            self.wall_s().map_or_else(String::new, |wall_s| format!(" after {}", human::duration(wall_s)));
        format!("{ended}{after}")
    }

    fn cpu_line(&self, draws_bars: bool) -> Option<String> {
        let used = self.cpu_cores();
        let (mean, peak) = (used.mean?, used.peak?);
        let share = used.limit.map_or_else(String::new, |limit| {
            format!(", {} of {}", human::percent(mean / limit), show::cpus(limit))
        });
        let spent = self.context.summary.cpu_seconds();
        let spent = spent.map_or_else(String::new, |cpu_s| format!(", {cpu_s:.2} s CPU time"));
        Some(with_course(
            format!("{mean:.2} mean, {peak:.2} peak{share}{spent}"),
            &self.trends.cpu,
            draws_bars,
        ))
    }

    fn memory_line(&self, draws_bars: bool) -> Option<String> {
        let used = self.memory_bytes();
        let (mean, peak) = (used.mean?, used.peak?);
        let share = used.limit.map_or_else(String::new, |limit| {
            format!(", {} of {}", human::percent(peak / limit), Scale::Bytes.show(limit))
        });
        let text = format!("{} mean, {} peak{share}", Scale::Bytes.show(mean), Scale::Bytes.show(peak));
        Some(with_course(text, &self.trends.memory, draws_bars))
    }

    fn gpu_line(&self) -> Option<String> {
        let (use_, vram) =
            (self.context.summary.of(Metric::ProcessGpu), self.context.summary.of(Metric::ProcessVram));
        let vram =
            vram.max().map_or_else(String::new, |mib| format!(", {} peak VRAM", human::megabytes(mib)));
        Some(format!("{:.2} mean, {:.2} peak{vram}", use_.mean()?, use_.max()?))
    }

    fn server_line(&self, server: &Server) -> String {
        let run = self.context.cost(Some(server)).recommended;
        let run = run.map_or_else(String::new, |cost| format!(", {} per run", human::usd(cost.usd)));
        format!("{}{run}", show::server(server))
    }

    fn tracker_line(&self) -> Option<String> {
        let source = self.run().and_then(|run| run.cpu_source.as_deref()).unwrap_or("source unknown");
        let source = show::one_line(source, 20);
        let coverage = match self.coverage() {
            Some(coverage) => format!("CPU time coverage {:.1} % ({source})", coverage * 100.0),
            None => format!("CPU time coverage unknown ({source})"),
        };
        let own_s = self.context.summary.of(Metric::TrackerCpu).sum()?;
        let own = self.context.summary.of(Metric::TrackerMemory).max();
        let own = own.map_or_else(String::new, |kib| format!(", {} memory", Scale::Bytes.show(kib * KIB)));
        Some(format!("{:.1} ms CPU{own}; {coverage}", own_s * 1e3))
    }
}

/// The resources to request for the next run.
fn request(advice: &Advice) -> String {
    let request = advice.request;
    let gpu = if request.gpu > 0 { format!(", {} GPU", request.gpu) } else { String::new() };
    let has_vram = request.gpu > 0 && request.vram_mb > 0;
    let vram = if has_vram { format!(", {} MiB VRAM", request.vram_mb) } else { String::new() };
    let runs = advice.memory.as_ref().map_or(1, |memory| memory.runs).max(advice.runs);
    let runs = if runs > 1 { format!(" (from {runs} runs)") } else { String::new() };
    let cpus = show::cpus(f64::from(request.cpu));
    format!("{cpus}, {} MiB memory{gpu}{vram}{runs}", request.memory_mb)
}

fn with_course(text: String, trend: &Trend, draws_bars: bool) -> String {
    let bars = if draws_bars { trend.bars(BARS) } else { String::new() };
    if bars.is_empty() { text } else { format!("{text:<58} {bars}") }
}
