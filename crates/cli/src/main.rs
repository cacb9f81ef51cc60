//! The `resource-tracker` command: parses the arguments, calls the core, and prints the result.
//!
//! Each subcommand has a file of its own name; `list`, `show` and `rm` are in `history`, `attach`, `process` and `system`
//! in `run`, `catalog` in `servers`, `config` in `settings`, `completions` and `man` in `manual`, `mark` here.
//!
//! On Linux the program has its own entry point. Rust's entry point ignores `SIGPIPE` before `main`, which hides
//! whether the caller had ignored it, and the job must inherit the caller's setting.
#![cfg_attr(all(target_os = "linux", not(test)), no_main)]

mod args;
mod check;
mod compare;
mod export;
mod failure;
mod fleet;
mod history;
mod info;
mod live;
mod load;
mod manual;
mod recommend;
mod report;
mod run;
mod save;
mod servers;
mod settings;
mod show;
mod stats;
mod summary;
mod trend;

use std::ffi::{OsStr, OsString};
#[cfg(all(target_os = "linux", not(test)))]
use std::os::unix::ffi::OsStringExt as _;

use clap::{CommandFactory as _, FromArgMatches as _};
use resource_tracker::{Run, serve_sidecar, start_up};

use args::{Cli, Command};
use failure::Failure;
use settings::Settings;

#[cfg(all(target_os = "linux", not(test)))]
#[expect(unsafe_code, reason = "no_main requires an exported `main`, which the C library calls once")]
#[unsafe(no_mangle)]
extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    let count = usize::try_from(argc).unwrap_or(0);
    // The standard library knows the arguments by itself only with glibc.
    let argument = |at| {
        // SAFETY: `argv` has `argc` pointers to strings that end with a zero byte and live as long as the process.
        let bytes = unsafe { std::ffi::CStr::from_ptr(*argv.add(at)) }.to_bytes();
        OsString::from_vec(bytes.to_vec())
    };
    libc::c_int::from(command(&(0..count).map(argument).collect::<Vec<_>>()))
}

#[cfg(not(all(target_os = "linux", not(test))))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(command(&std::env::args_os().collect::<Vec<_>>()))
}

/// Starts a phase of the run around this process, if there is one.
fn mark(name: &OsStr) -> u8 {
    Run::mark(&name.to_string_lossy());
    0
}

/// Returns the exit status.
fn command(arguments: &[OsString]) -> u8 {
    // A mark is made in the middle of a job, so it must be fast: no settings are read.
    if let [_, command, name] = arguments
        && command == "mark"
        && !name.as_encoded_bytes().starts_with(b"-")
    {
        return mark(name);
    }
    let ignored_at_start = start_up();
    let settings = match Settings::read(&Cli::command(), arguments) {
        Ok(settings) => settings,
        Err(failure) => return show::failure(&failure),
    };
    let parser = settings::with_variables(args::parser(), arguments);
    let parsed = settings.apply(parser.clone(), arguments).try_get_matches_from(arguments);
    let checked = parsed.and_then(|matches| args::check_store(&matches).map(|()| matches));
    let mut cli = match checked.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return show::usage(&error, &settings::from_variables(parser, arguments)),
    };
    let record = match &mut cli.command {
        Command::Run(args) => Some(&mut args.record),
        Command::Attach(args) => Some(&mut args.record),
        _ => None,
    };
    let is_quiet = record.is_some_and(|record| {
        record.filters = settings.filters.clone();
        record.quiet
    });
    settings.warnings.iter().filter(|_| !is_quiet).for_each(|warning| show::warning(warning));
    let done = match cli.command {
        Command::Run(args) => run::run(&args, &ignored_at_start),
        Command::Attach(args) => run::attach(&args),
        Command::Process(args) => run::process(&args),
        Command::System(args) => run::system(&args),
        Command::Stats(args) => stats::stats(&args),
        Command::Recommend(args) => recommend::recommend(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Check(args) => check::check(&args),
        Command::Show(args) => history::show(&args, &settings.filters),
        Command::Rm(args) => history::rm(&args),
        Command::Config(args) => settings::config(&settings, Cli::command(), args.json),
        Command::Completions { shell } => manual::completions(&Cli::command(), shell),
        Command::Man { command } => manual::man(Cli::command(), command.as_deref()),
        Command::Export(args) => export::export(&args),
        Command::List(args) => history::list(&args),
        Command::Servers(args) => servers::servers(&args),
        Command::Fleet(command) => fleet::fleet(&command),
        Command::Info(args) => info::info(&args),
        Command::Catalog(command) => servers::catalog(&command),
        Command::Report(args) => report::report(&args),
        Command::Mark { name } => Ok(mark(&name)),
        Command::Sidecar { request } => {
            serve_sidecar(&request).map(|()| 0).map_err(|error| Failure::new(error, None))
        }
    };
    match done {
        Ok(code) => code,
        Err(failure) => show::failure(&failure),
    }
}
