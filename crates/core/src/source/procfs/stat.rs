//! `/proc/stat`: CPU time of the whole machine, and how many processes were ever started.
//!
//! In:  the file's text. Out: [`Stat`] in clock ticks. Field order: `proc_stat(5)`.

use super::text::{decimal, fields, labelled, lines, number};
use crate::error::ParseError;
use crate::snapshot::{MachineCpu, SingleCpu};

/// CPU ticks since boot, all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// User mode; the kernel counts guests here too.
    pub user_ticks: u64,
    /// User mode at a nice value.
    pub nice_ticks: u64,
    /// System mode.
    pub system_ticks: u64,
    /// Given to other machines by the hypervisor.
    pub steal_ticks: u64,
    /// Forks since boot, threads included.
    pub forks: u64,
    /// CPUs that are on line.
    pub cpus: u32,
}

impl Stat {
    /// In nanoseconds; nice time is user time.
    #[must_use]
    pub fn machine_cpu(&self) -> MachineCpu {
        let ns = |ticks: u64| ticks.saturating_mul(tick_ns());
        MachineCpu {
            user_ns: ns(self.user_ticks.saturating_add(self.nice_ticks)),
            system_ns: ns(self.system_ticks),
            steal_ns: Some(ns(self.steal_ticks)),
            forks: Some(self.forks),
            cpus: self.cpus,
        }
    }
}

/// How long a tick is.
fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Parses `/proc/stat`.
///
/// # Errors
/// Where the `cpu` line or the fork counter is missing or holds no numbers.
pub fn parse_stat(text: &[u8]) -> Result<Stat, ParseError> {
    let all = lines(text).next().and_then(|line| line.strip_prefix(b"cpu "));
    let mut all = all.map(fields).ok_or(ParseError::Missing { field: "cpu" })?;
    let user_ticks = number("user", all.next())?;
    let nice_ticks = number("nice", all.next())?;
    let system_ticks = number("system", all.next())?;
    // idle, iowait, irq, softirq, then steal.
    let steal_ticks = all.nth(4).map_or(Ok(0), |steal| number("steal", Some(steal)))?;
    // The lines of single CPUs follow the first; the long `intr` line behind them is not walked.
    let single = lines(text).skip(1).take_while(|line| line.starts_with(b"cpu")).count();
    Ok(Stat {
        user_ticks,
        nice_ticks,
        system_ticks,
        steal_ticks,
        forks: labelled("processes", text)?.ok_or(ParseError::Missing { field: "processes" })?,
        cpus: u32::try_from(single).unwrap_or(u32::MAX),
    })
}

/// The single CPUs of `/proc/stat`; one whose line is no such line is left out.
#[must_use]
pub fn parse_single_cpus(text: &[u8]) -> Vec<SingleCpu> {
    lines(text).skip(1).map_while(|line| line.strip_prefix(b"cpu")).filter_map(single_cpu).collect()
}

/// Number, user, nice, system, idle, iowait, irq, softirq, steal.
fn single_cpu(line: &[u8]) -> Option<SingleCpu> {
    let mut numbers = [0; 9];
    let mut found = fields(line).map(decimal);
    for number in &mut numbers {
        *number = found.next()??;
    }
    let [number, user, nice, system, idle, iowait, irq, softirq, steal] = numbers;
    let ns = |parts: &[u64]| {
        parts.iter().fold(0_u64, |sum, ticks| sum.saturating_add(ticks.saturating_mul(tick_ns())))
    };
    Some(SingleCpu {
        number,
        work_ns: ns(&[user, nice, system, irq, softirq]),
        idle_ns: ns(&[idle, iowait]),
        stolen_ns: ns(&[steal]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_cpus_are_known_by_their_number_and_a_broken_line_is_none() {
        let text = b"cpu  1 1 1 1 1 1 1 1\ncpu0 1 2 3 4 5 6 7 8 9 9\ncpu2 1 1 1\ncpu3 1 1 1 1 1 1 1 99999999999999999999\n\
                     cpu7 0 0 0 0 0 0 0 1\nintr 5\ncpu8 1 1 1 1 1 1 1 1\n";
        let tick = tick_ns();
        let first = SingleCpu { number: 0, work_ns: 19 * tick, idle_ns: 9 * tick, stolen_ns: 8 * tick };
        let last = SingleCpu { number: 7, stolen_ns: tick, ..SingleCpu::default() };
        assert_eq!(parse_single_cpus(text), [first, last]);
        assert_eq!(parse_single_cpus(b""), []);
    }

    #[test]
    fn ticks_forks_and_cpus_are_found() {
        let text = b"cpu  10 2 30 400 5 6 7 8 9 10\ncpu0 5 1 15 200 0 0 0 0 0 0\ncpu1 5 1 15 200 0 0 0 0 0 0\nintr 1 2 3\nprocesses 77\n";
        let stat =
            Stat { user_ticks: 10, nice_ticks: 2, system_ticks: 30, steal_ticks: 8, forks: 77, cpus: 2 };
        assert_eq!(parse_stat(text), Ok(stat));
    }

    #[test]
    fn a_kernel_without_steal_has_none() {
        assert_eq!(
            parse_stat(b"cpu  1 2 3 4\ncpu0 1 2 3 4\nprocesses 5\n").map(|stat| stat.steal_ticks),
            Ok(0)
        );
    }

    #[test]
    fn a_cut_file_is_named_by_what_it_lacks() {
        assert_eq!(parse_stat(b""), Err(ParseError::Missing { field: "cpu" }));
        assert_eq!(parse_stat(b"cpu  1 2"), Err(ParseError::Missing { field: "system" }));
    }
}
