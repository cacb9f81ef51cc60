//! Stolen time that was taken from CPUs at work.
//!
//! In:  the text of `/proc/stat`, each time it is read. Out: nanoseconds since the first time.
//!
//! The kernel also calls stolen what a CPU waits for the hypervisor when it is to wake up, which no task of this machine
//! had to do without. So a CPU's stolen time counts by the share of time in which that CPU was not idle: all of it on
//! one that never is. An estimate.

use super::text::{decimal, fields, lines};

/// A share of a CPU's time is made of so many ticks at least.
const STEADY_TICKS: u64 = 20;

/// The running sum.
#[derive(Debug, Default)]
pub(super) struct Taken {
    then: Vec<Ticks>,
    ticks: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    work: u64,
    idle: u64,
    stolen: u64,
}

impl Ticks {
    /// Of the line of one CPU, behind its name: user, nice, system, idle, iowait, irq, softirq, steal.
    fn of(line: &[u8]) -> Self {
        let mut ticks = [0_u64; 8];
        for (ticks, field) in ticks.iter_mut().zip(fields(line).skip(1)) {
            *ticks = decimal(field).unwrap_or(0);
        }
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks;
        let sum = |parts: &[u64]| parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
        Self { work: sum(&[user, nice, system, irq, softirq]), idle: sum(&[idle, iowait]), stolen }
    }

    fn since(self, then: Self) -> Self {
        Self {
            work: self.work.saturating_sub(then.work),
            idle: self.idle.saturating_sub(then.idle),
            stolen: self.stolen.saturating_sub(then.stolen),
        }
    }
}

impl Taken {
    /// Counts what was added since the last time.
    pub(super) fn add(&mut self, text: &[u8]) {
        let cpus = lines(text).skip(1).take_while(|line| line.starts_with(b"cpu")).map(Ticks::of);
        let now: Vec<Ticks> = cpus.collect();
        if now.len() != self.then.len() {
            self.then = now;
            return;
        }
        for (then, now) in self.then.iter_mut().zip(now) {
            let Ticks { work, idle, stolen } = now.since(*then);
            let wanted = work.saturating_add(stolen);
            let all = wanted.saturating_add(idle);
            if all >= STEADY_TICKS {
                self.ticks += count(stolen) * count(wanted) / count(all);
                *then = now;
            }
        }
    }

    /// The sum so far.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ticks that only grow, from 0"
    )]
    pub(super) fn ns(&self, tick_ns: u64) -> u64 {
        (self.ticks * count(tick_ns)) as u64
    }
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a machine's life are below 2^53")]
fn count(ticks: u64) -> f64 {
    ticks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cpus: &[[u64; 3]]) -> Vec<u8> {
        let line = |[work, idle, stolen]: &[u64; 3]| format!("cpu0 {work} 0 0 {idle} 0 0 0 {stolen} 0 0\n");
        let lines: String = cpus.iter().map(line).collect();
        format!("cpu  1 1 1 1 1 1 1 1 0 0\n{lines}intr 5\n").into_bytes()
    }

    #[test]
    fn a_cpu_at_work_loses_all_that_is_stolen_and_an_idle_one_little() {
        let mut taken = Taken::default();
        taken.add(&text(&[[100, 0, 900], [0, 5000, 7]]));
        assert_eq!(taken.ns(10), 0, "what was before is nobody's");
        taken.add(&text(&[[120, 0, 980], [0, 5090, 17]]));
        // 80 of 100 ticks of the one; of the other 10, in a tenth of the time.
        assert_eq!(taken.ns(10), 810);
    }

    #[test]
    fn short_looks_wait_until_a_share_can_be_made() {
        let mut taken = Taken::default();
        for tick in 0..=100 {
            taken.add(&text(&[[tick / 4, tick / 2, tick / 4]]));
        }
        assert!((115..=130).contains(&taken.ns(10)), "{}", taken.ns(10));
    }

    #[test]
    fn cpus_that_come_and_go_and_garbage_take_nothing() {
        let mut taken = Taken::default();
        for cpus in [&[[0, 0, 0]; 2][..], &[[90, 0, 90]], &[[1, 0, 1]; 3], &[[0, 0, 0]; 3]] {
            taken.add(&text(cpus));
        }
        taken.add(b"cpu  x\ncpu0 99999999999999999999 -1\n");
        taken.add(b"");
        assert_eq!(taken.ns(10_000_000), 0);
    }
}
