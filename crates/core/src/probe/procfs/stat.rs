//! `/proc/stat`: CPU time of the machine.
//!
//! In:  the text of the file. Out: [`Stat`] in clock ticks. Field order: `proc_stat(5)`.

use super::text::{decimal, fields, lines, number};
use crate::error::ParseError;
use crate::probe::snapshot::{MachineCpu, SingleCpu};

/// Counters since boot, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// User time, including that of virtual machines that this machine runs.
    pub user_ticks: u64,
    pub nice_ticks: u64,
    pub system_ticks: u64,
    /// Time in interrupt handlers, and in the work that they defer; neither is part of system time.
    pub irq_ticks: u64,
    pub softirq_ticks: u64,
    pub steal_ticks: u64,
    /// Number of online CPUs.
    pub cpus: u32,
}

impl Stat {
    /// Converts ticks to nanoseconds. Nice time is added to user time.
    pub fn machine_cpu(&self) -> MachineCpu {
        let ns = |ticks: u64| ticks.saturating_mul(tick_ns());
        MachineCpu {
            user_ns: ns(self.user_ticks.saturating_add(self.nice_ticks)),
            system_ns: ns(self.system_ticks),
            irq_ns: Some(ns(self.irq_ticks)),
            softirq_ns: Some(ns(self.softirq_ticks)),
            steal_ns: Some(ns(self.steal_ticks)),
            cpus: self.cpus,
        }
    }
}

fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

pub fn parse_stat(text: &[u8]) -> Result<Stat, ParseError> {
    let all = lines(text).next().and_then(|line| line.strip_prefix(b"cpu "));
    let mut all = all.map(fields).ok_or(ParseError::Missing { field: "cpu" })?;
    let user_ticks = number("user", all.next())?;
    let nice_ticks = number("nice", all.next())?;
    let system_ticks = number("system", all.next())?;
    // Skips idle and iowait.
    let irq_ticks = all.nth(2).map_or(Ok(0), |irq| number("irq", Some(irq)))?;
    let softirq_ticks = all.next().map_or(Ok(0), |softirq| number("softirq", Some(softirq)))?;
    let steal_ticks = all.next().map_or(Ok(0), |steal| number("steal", Some(steal)))?;
    // The first line is the sum of all CPUs; one line per CPU follows.
    let single = lines(text).skip(1).take_while(|line| line.starts_with(b"cpu")).count();
    if single == 0 {
        return Err(ParseError::Missing { field: "cpu0" });
    }
    Ok(Stat {
        user_ticks,
        nice_ticks,
        system_ticks,
        irq_ticks,
        softirq_ticks,
        steal_ticks,
        cpus: u32::try_from(single).unwrap_or(u32::MAX),
    })
}

/// Parses the line of each CPU. Damaged lines are left out.
pub fn parse_single_cpus(text: &[u8]) -> Vec<SingleCpu> {
    lines(text).skip(1).map_while(|line| line.strip_prefix(b"cpu")).filter_map(single_cpu).collect()
}

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
        steal_ns: ns(&[steal]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_cpus_have_their_number_and_damaged_lines_are_left_out() {
        let text = b"cpu  1 1 1 1 1 1 1 1\ncpu0 1 2 3 4 5 6 7 8 9 9\ncpu2 1 1 1\ncpu3 1 1 1 1 1 1 1 99999999999999999999\n\
                     cpu7 0 0 0 0 0 0 0 1\nintr 5\ncpu8 1 1 1 1 1 1 1 1\n";
        let tick = tick_ns();
        let first = SingleCpu { number: 0, work_ns: 19 * tick, idle_ns: 9 * tick, steal_ns: 8 * tick };
        let last = SingleCpu { number: 7, steal_ns: tick, ..SingleCpu::default() };
        assert_eq!(parse_single_cpus(text), [first, last]);
        assert_eq!(parse_single_cpus(b""), []);
    }

    #[test]
    fn ticks_and_cpus_are_parsed() {
        let text = b"cpu  10 2 30 400 5 6 7 8 9 10\ncpu0 5 1 15 200 0 0 0 0 0 0\ncpu1 5 1 15 200 0 0 0 0 0 0\nintr 1 2 3\nprocesses 77\n";
        let stat = Stat {
            user_ticks: 10,
            nice_ticks: 2,
            system_ticks: 30,
            irq_ticks: 6,
            softirq_ticks: 7,
            steal_ticks: 8,
            cpus: 2,
        };
        assert_eq!(parse_stat(text), Ok(stat));
    }

    #[test]
    fn kernel_without_steal_column_has_no_steal() {
        assert_eq!(
            parse_stat(b"cpu  1 2 3 4\ncpu0 1 2 3 4\nprocesses 5\n").map(|stat| stat.steal_ticks),
            Ok(0)
        );
    }

    #[test]
    fn error_of_a_truncated_file_names_the_missing_field() {
        assert_eq!(parse_stat(b""), Err(ParseError::Missing { field: "cpu" }));
        assert_eq!(parse_stat(b"cpu  1 2"), Err(ParseError::Missing { field: "system" }));
    }
}
