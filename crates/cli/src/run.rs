//! `run`, `attach`, `process` and `system`.

use resource_tracker::cloud;
use resource_tracker::config::Config;
use resource_tracker::export::JsonLines;
use resource_tracker::metric::Table;
use resource_tracker::sampler::Sink;
use resource_tracker::sys;
use resource_tracker::wrap::{self, Beside, Done};

use crate::account::Account;
use crate::args::{AttachArgs, PrintArgs, ProcessArgs, RecordArgs, RunArgs};
use crate::failure::Failure;
use crate::keep::Keeper;
use crate::live::Live;
use crate::past;
use crate::show;
use crate::sinks::{RowFormat, RowSink};
use crate::terminal::Style;
use crate::trend::TrendSink;

/// Runs a command; its exit status.
pub fn run(args: &RunArgs, ignored_at_start: &[i32]) -> Result<u8, Failure> {
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // What read the arguments is not needed beside what opens the outputs.
    sys::release_start_up_code();
    let (keeper, mut sinks) = Keeper::open(&args.record, Some(words))?;
    let mut beside = Company::start(&args.record, &mut sinks);
    let done = wrap::run(&args.command, args.record.config(), sinks, ignored_at_start, &mut beside)?;
    beside.tell(keeper, &done);
    let status = wrap::exit_status(done.ending);
    // Where a program may leave more than eight bits behind, so did the job; everything of ours is done here.
    Ok(u8::try_from(status).unwrap_or_else(|_| std::process::exit(status)))
}

/// Follows a process.
pub fn attach(args: &AttachArgs) -> Result<u8, Failure> {
    let (keeper, mut sinks) = Keeper::open(&args.record, wrap::command_of(args.pid))?;
    let mut beside = Company::start(&args.record, &mut sinks);
    let done =
        wrap::attach(args.pid, args.record.config(), sinks, &mut beside).map_err(Failure::without_a_job)?;
    beside.tell(keeper, &done);
    Ok(0)
}

/// What of ours goes on while a job runs, and what is said at its end.
struct Company<'a> {
    args: &'a RecordArgs,
    live: Option<Live>,
    trends: TrendSink,
}

impl<'a> Company<'a> {
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
        Self { args, live, trends }
    }

    /// Keeps the recording, and prints the summary.
    fn tell(mut self, keeper: Keeper, done: &Done) {
        // The line goes before anything else is said.
        self.live = None;
        let Some(kept) = keeper.finish(done) else { return };
        if self.args.quiet {
            return;
        }
        // What wrote the recording is not needed beside the catalogue.
        sys::release_start_up_code();
        let context = past::context(&kept.head, done.tracker.summary(), self.args.history, past::nobody());
        // Nor what searched the catalogue beside what writes the text.
        sys::release_start_up_code();
        let account = Account {
            head: &kept.head,
            context: &context,
            trends: &self.trends.trends(),
            recording: kept.recording.as_deref(),
            report: kept.report.as_deref(),
            notes: &kept.notes,
        };
        show::summary(&if self.args.json {
            format!("{}\n", account.json())
        } else {
            account.text(Style::of_stderr())
        });
    }
}

impl Beside for Company<'_> {
    fn settled(&mut self) {
        cloud::discover_in_background(self.args.offline);
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

/// Nobody to follow.
#[derive(Debug, thiserror::Error)]
#[error("whoever started this command has ended")]
struct Nobody;

/// Prints rows of a process.
pub fn process(args: &ProcessArgs) -> Result<u8, Failure> {
    let config = Config { children: !args.scope.no_children, track_system: false, ..args.print.config() };
    let nobody = || Failure::new(Nobody, Some("name a process with --pid"));
    let pid = args.pid.or_else(sys::parent_id).ok_or_else(nobody)?;
    wrap::attach(pid, config, printer(&args.print, Table::Process)?, &mut ())
        .map_err(Failure::without_a_job)?;
    Ok(0)
}

/// Prints rows of the machine.
pub fn system(args: &PrintArgs) -> Result<u8, Failure> {
    let config = Config { track_processes: false, ..args.config() };
    wrap::watch_machine(config, printer(args, Table::System)?).map_err(Failure::without_a_job)?;
    Ok(0)
}

fn printer(args: &PrintArgs, table: Table) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let opened = sys::duplicate(1);
    let format = if args.json { RowFormat::Json(JsonLines::new(table)) } else { RowFormat::Csv(table) };
    let sink = opened
        .and_then(|stdout| RowSink::new(stdout, "standard output".to_owned(), format))
        .map_err(|error| Failure::new(error, None))?;
    Ok(vec![Box::new(sink.until(args.samples))])
}
