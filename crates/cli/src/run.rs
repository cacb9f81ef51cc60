//! `run`, `attach`, `process` and `system`.

use std::fs::File;
use std::path::Path;

use resource_tracker::config::Config;
use resource_tracker::metric::Table;
use resource_tracker::output;
use resource_tracker::sampler::Sink;
use resource_tracker::sys::Ending;
use resource_tracker::wrap::{self, WrapError};

use crate::args::{AttachArgs, PrintArgs, ProcessArgs, RecordArgs, RunArgs, SystemArgs};
use crate::show::{self, Failure};
use crate::sinks::{CsvSink, CsvTables};

/// Runs a command; its exit status.
pub fn run(args: RunArgs, ignored_at_start: &[i32]) -> Result<u8, Failure> {
    let config = args.record.config();
    let sinks = sinks(&args.record)?;
    let (ending, tracker) =
        wrap::run(&args.command, config, sinks, ignored_at_start).map_err(wrap_failure)?;
    if !args.record.quiet {
        show::summary(Some(ending), &tracker.summary(), tracker.cpu_source(), &tracker.notes(), None);
    }
    Ok(match ending {
        Ending::Code(code) => u8::try_from(code & 0xff).unwrap_or(1),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
    })
}

/// Follows a process.
pub fn attach(args: AttachArgs) -> Result<u8, Failure> {
    let sinks = sinks(&args.record)?;
    let tracker = wrap::attach(args.pid, args.record.config(), sinks).map_err(wrap_failure)?;
    if !args.record.quiet {
        show::summary(None, &tracker.summary(), tracker.cpu_source(), &tracker.notes(), None);
    }
    Ok(0)
}

/// Prints rows of a process.
pub fn process(args: ProcessArgs) -> Result<u8, Failure> {
    let config = Config {
        children: !args.no_children,
        track_system: false,
        interval: args.print.interval,
        ..Config::default()
    };
    let pid = args.pid.unwrap_or_else(std::os::unix::process::parent_id);
    let sinks = printer(&args.print, Table::Process)?;
    wrap::attach(pid, config, sinks).map_err(wrap_failure)?;
    Ok(0)
}

/// Prints rows of the machine.
pub fn system(args: SystemArgs) -> Result<u8, Failure> {
    let config = Config { track_processes: false, interval: args.print.interval, ..Config::default() };
    let sinks = printer(&args.print, Table::System)?;
    wrap::watch_machine(config, sinks).map_err(wrap_failure)?;
    Ok(0)
}

fn printer(_args: &PrintArgs, table: Table) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(|errno| Failure {
        error: Box::new(std::io::Error::from(errno)),
        hint: None,
        code: 125,
    })?;
    let sink = CsvSink::new(File::from(stdout), "standard output".to_owned(), CsvTables::One(table));
    Ok(vec![Box::new(sink.map_err(|error| Failure { error: Box::new(error), hint: None, code: 1 })?)])
}

fn sinks(args: &RecordArgs) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(path) = &args.csv {
        let tables: &'static [Table] =
            if args.no_system { &[Table::Process] } else { &[Table::System, Table::Process] };
        let file = if path == Path::new("-") {
            rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).map(File::from).map_err(Into::into)
        } else {
            output::open_stream(path)
        };
        let sink = file.and_then(|file| {
            CsvSink::new(file, format!("`{}`", path.display()), CsvTables::Combined(tables))
        });
        sinks.push(Box::new(sink.map_err(|error| Failure {
            error: Box::new(error),
            hint: None,
            code: 125,
        })?));
    }
    Ok(sinks)
}

fn wrap_failure(error: WrapError) -> Failure {
    Failure { hint: error.hint(), code: error.exit_code(), error: Box::new(error) }
}
