//! `run`, `attach`, `process` and `system`.

use std::fs::File;

use resource_tracker::cloud;
use resource_tracker::config::Config;
use resource_tracker::metric::Table;
use resource_tracker::record;
use resource_tracker::recording::Status;
use resource_tracker::sampler::Sink;
use resource_tracker::sys::Ending;
use resource_tracker::tracker::State;
use resource_tracker::wrap;

use crate::args::{AttachArgs, PrintArgs, ProcessArgs, RunArgs, SystemArgs};
use crate::failure::Failure;
use crate::keep::Keeper;
use crate::show;
use crate::sinks::{CsvSink, CsvTables};

/// Runs a command; its exit status.
pub fn run(args: &RunArgs, ignored_at_start: &[i32]) -> Result<u8, Failure> {
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (keeper, sinks) = Keeper::open(&args.record, Some(words))?;
    let discover = || cloud::discover_in_background(args.record.offline);
    let done = wrap::run(&args.command, args.record.config(), sinks, ignored_at_start, discover)?;
    let (recording, warnings) =
        keeper.finish(&done.tracker, done.pid, |run| record::set_ending(run, done.ending));
    if !args.record.quiet {
        show::summary(Some(done.ending), &done.tracker, &warnings, recording.as_deref());
    }
    Ok(match done.ending {
        Ending::Code(code) => u8::try_from(code & 0xff).unwrap_or(1),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
    })
}

/// Follows a process.
pub fn attach(args: &AttachArgs) -> Result<u8, Failure> {
    let (keeper, sinks) = Keeper::open(&args.record, wrap::command_of(args.pid))?;
    cloud::discover_in_background(args.record.offline);
    let tracker = wrap::attach(args.pid, args.record.config(), sinks).map_err(Failure::without_a_job)?;
    let (recording, warnings) = keeper.finish(&tracker, args.pid, |run| {
        run.status = Some(if tracker.state() == State::Exited { Status::Ended } else { Status::Detached });
    });
    if !args.record.quiet {
        show::summary(None, &tracker, &warnings, recording.as_deref());
    }
    Ok(0)
}

/// Prints rows of a process.
pub fn process(args: &ProcessArgs) -> Result<u8, Failure> {
    let config = Config {
        children: !args.no_children,
        track_system: false,
        interval: args.print.interval,
        ..Config::default()
    };
    let pid = args.pid.unwrap_or_else(std::os::unix::process::parent_id);
    wrap::attach(pid, config, printer(&args.print, Table::Process)?).map_err(Failure::without_a_job)?;
    Ok(0)
}

/// Prints rows of the machine.
pub fn system(args: &SystemArgs) -> Result<u8, Failure> {
    let config = Config { track_processes: false, interval: args.print.interval, ..Config::default() };
    wrap::watch_machine(config, printer(&args.print, Table::System)?).map_err(Failure::without_a_job)?;
    Ok(0)
}

fn printer(args: &PrintArgs, table: Table) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let opened = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(std::io::Error::from);
    let sink = opened
        .and_then(|stdout| {
            CsvSink::new(File::from(stdout), "standard output".to_owned(), CsvTables::One(table))
        })
        .map_err(|error| Failure::new(error, None))?;
    Ok(vec![Box::new(sink.until(args.samples))])
}
