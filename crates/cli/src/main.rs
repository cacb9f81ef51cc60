//! The `resource-tracker` command: arguments in, the core's work, text out.
//!
//! On Linux the program has its own entry point: Rust's ignores `SIGPIPE` before `main`, and then nobody can
//! tell any more what the job must inherit.
#![cfg_attr(all(target_os = "linux", not(test)), no_main)]

mod account;
mod args;
mod companion;
mod compare;
mod export;
mod failure;
mod figures;
mod info;
mod keep;
#[cfg_attr(windows, path = "live_windows.rs")]
mod live;
mod manual;
mod past;
mod report;
mod run;
mod servers;
mod settings;
mod show;
mod sinks;
mod terminal;
mod trend;

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _};
use resource_tracker::sys;

use args::{Cli, Command};
use settings::Settings;

#[cfg(all(target_os = "linux", not(test)))]
#[expect(unsafe_code, reason = "an exported `main` is what no_main asks for; the C library calls it once")]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    libc::c_int::from(command())
}

#[cfg(not(all(target_os = "linux", not(test))))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(command())
}

/// Does what the arguments say; the exit status.
fn command() -> u8 {
    let ignored_at_start = sys::ignored_at_start();
    sys::fill_standard_streams();
    sys::share_one_heap();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let parser = Cli::command();
    let settings = match Settings::read(&parser, &arguments) {
        Ok(settings) => settings,
        Err(failure) => return show::failure(&failure),
    };
    let parsed = settings.apply(parser, &arguments).try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return show::usage(&error),
    };
    // From here on a reader that goes away is an error to be handled, not our end: a job may depend on us.
    sys::ignore_broken_pipes();
    let done = match cli.command {
        Command::Run(args) => run::run(&args, &ignored_at_start),
        Command::Attach(args) => run::attach(&args),
        Command::Process(args) => run::process(&args),
        Command::System(args) => run::system(&args),
        Command::Stats(args) => figures::stats(&args),
        Command::Recommend(args) => figures::recommend(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Show(args) => past::show(&args),
        Command::Rm(args) => past::rm(&args),
        Command::Config(args) => settings::config(&settings, Cli::command(), args.json),
        Command::Completions { shell } => manual::completions(Cli::command(), shell),
        Command::Man { command } => manual::man(Cli::command(), command.as_deref()),
        Command::Export(args) => export::export(&args),
        Command::List(args) => past::list(&args),
        Command::Servers(args) => servers::servers(&args),
        Command::Info(args) => info::info(&args),
        Command::Catalog(command) => servers::catalog(&command),
        Command::Report(args) => report::report(&args),
        Command::Companion { orders } => companion::serve(&orders),
    };
    match done {
        Ok(code) => code,
        Err(failure) => show::failure(&failure),
    }
}
