//! `run`, `attach`, `process` and `system`: the commands that sample.

use std::thread::JoinHandle;

use resource_tracker::{
    Catalog, CloudInfo, Config, FinishedJob, Hooks, RowFormat, RowSink, Sink, Table, WrapError, command_of,
    parent_id, run_command, watch_machine, with_causes,
};

use crate::args::{AttachArgs, PrintArgs, ProcessArgs, RecordArgs, RunArgs};
use crate::failure::Failure;
use crate::live::Live;
use crate::load::{context, embedded_only};
use crate::save::Saver;
use crate::show;
use crate::summary::RunSummary;
use crate::trend::TrendSink;

/// Returns the exit status of the job.
pub fn run(args: &RunArgs, ignored_at_start: &[i32]) -> Result<u8, Failure> {
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (saver, mut sinks) = Saver::open(&args.record, Some(words))?;
    let mut hooks = JobHooks::start(&args.record, &mut sinks);
    let done = match run_command(&args.command, args.record.config(), sinks, ignored_at_start, &mut hooks) {
        Err(error) if error.is_of_tracker() => {
            drop((saver, hooks));
            show::warning(&format!("{}; the command runs without tracking", with_causes(&error)));
            return Err(WrapError::run_untracked(&args.command, ignored_at_start).into());
        }
        done => done?,
    };
    hooks.finish(saver, &done);
    let status = done.exit_status();
    // Exit codes of Windows have 32 bits and may not fit into a `u8`. All output is written, so it is safe to exit.
    Ok(u8::try_from(status).unwrap_or_else(|_| std::process::exit(status)))
}

pub fn attach(args: &AttachArgs) -> Result<u8, Failure> {
    let (saver, mut sinks) = Saver::open(&args.record, command_of(args.pid))?;
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
}

impl<'a> JobHooks<'a> {
    fn start(args: &'a RecordArgs, sinks: &mut Vec<Box<dyn Sink>>) -> Self {
        let trends = TrendSink::default();
        if !args.quiet && !args.json {
            sinks.push(Box::new(trends.clone()));
        }
        let live = if args.live && !args.quiet { Live::start() } else { None };
        let live = live.map(|(live, sink)| {
            sinks.push(sink);
            live
        });
        Self { args, live, trends, catalog: None }
    }

    /// Saves the recording and prints the summary.
    fn finish(mut self, saver: Saver, done: &FinishedJob) {
        // Removes the status line before anything is printed.
        self.live = None;
        let Some(saved) = saver.finish(done) else { return };
        if self.args.quiet {
            return;
        }
        if let Some(thread) = self.catalog.take() {
            // The thread cannot panic.
            let _ = thread.join();
        }
        let context = context(&saved.head, done.tracker.summary(), self.args.history, embedded_only());
        let summary = RunSummary {
            head: &saved.head,
            context: &context,
            trends: &self.trends.trends(),
            recording: saved.recording.as_deref(),
            report: saved.report.as_deref(),
            notes: &saved.notes,
        };
        if self.args.json {
            show::json_summary(&summary.json());
        } else {
            show::summary(&summary.text(show::can_draw_bars(&std::io::stderr())));
        }
    }
}

impl Hooks for JobHooks<'_> {
    fn job_started(&mut self) {
        CloudInfo::discover_in_background(self.args.offline);
        if !self.args.quiet {
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
