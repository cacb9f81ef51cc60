//! Words for exit codes and signals, as in `bash(1)`, `timeout(1)` and `signal(7)`.

use crate::human;
use crate::store::recording::Run;

/// Exit codes above this are 128 plus the number of a signal, if a shell ran the command.
const SIGNAL_BASE: i32 = 128;

/// `SIGTERM`, or `signal 40` if it has no name.
pub(super) fn signal_name(signal: i32) -> String {
    human::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// The signal that ended the job, or the last command of a shell.
pub(super) fn signal_of(run: &Run) -> Option<i32> {
    let by_shell = run.exit_code.and_then(|code| code.checked_sub(SIGNAL_BASE));
    run.signal.or_else(|| by_shell.filter(|signal| human::signal_name(*signal).is_some()))
}

/// `exit code 1` or `signal 9 (SIGKILL)`; `None` if the end is unknown.
pub(super) fn ending(run: &Run) -> Option<String> {
    match (run.signal, run.exit_code) {
        (Some(signal), _) => Some(match human::signal_name(signal) {
            Some(name) => format!("signal {signal} ({name})"),
            None => format!("signal {signal}"),
        }),
        (None, Some(code)) => Some(match signal_of(run) {
            Some(signal) => format!("exit code {code}, which is 128 + {signal} ({})", signal_name(signal)),
            None => format!("exit code {code}"),
        }),
        (None, None) => None,
    }
}

/// What a signal means.
pub(super) const fn meaning_of_signal(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "the terminal or the session was closed",
        2 => "somebody pressed Ctrl-C, or a program asked for the same",
        3 => "somebody pressed Ctrl-\\, or a program asked for the same",
        4 => "an instruction that this CPU does not know",
        6 => "the program aborted itself, for instance after a failed assertion",
        7 => "access to memory that has no page, for instance in a truncated file or a full tmpfs",
        8 => "an arithmetic error, such as a division by zero",
        9 => "a process or the kernel killed the job",
        11 => "access to invalid memory, a defect in the program or in a library",
        13 => "the program wrote to a pipe whose reader had ended",
        14 => "a timer of the program expired",
        15 => "this signal asks a program to end",
        25 => "a file reached the limit of file sizes (`ulimit -f`)",
        31 => "a system call that is not allowed here",
        _ => return None,
    })
}

/// What an exit code means, where many programs agree.
pub(super) const fn meaning_of_code(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "it reported a failure",
        2 => "it reported a failure; many programs and shells use 2 for wrong usage",
        125 => "a program that starts another one, such as `timeout` or `docker run`, failed itself",
        255 => "it reported a failure; `ssh` uses 255 for a failed connection",
        _ => return None,
    })
}
