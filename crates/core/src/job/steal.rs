//! CPU time of a job without steal time.
//!
//! In:  the task-clock counter, the ledger and the counters of each CPU, at every sample.
//! Out: the counter without steal, which never grows by more than the counter.
//!
//! The task-clock counter of a task also runs while the hypervisor has given the task's CPU to another machine; utime
//! and stime exclude that time. The kernel counts steal per CPU, not per task. Its steal includes the time that an idle
//! CPU waits for its wake-up, which no task loses. So the more a CPU was idle, the less of its steal counts.

use crate::probe::snapshot::SingleCpu;

/// Minimum length of a window: the kernel's counters have steps of 10 ms. The next sample replaces shorter windows.
const WINDOW_NS: u64 = 200_000_000;

/// Delay with which steal appears in the kernel's counters.
const DELAY_NS: u64 = 20_000_000;

#[derive(Debug, Default)]
pub struct Steal {
    /// The sample at the start of the window.
    since: Option<Sample>,
    /// CPU time without steal up to `since`.
    own_ns: u64,
}

/// CPU time of the job so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// CPU time in the task-clock counter.
    pub counted_ns: u64,
    /// CPU time in the ledger.
    pub seen_ns: u64,
    /// The part of `seen_ns` that no parent reaped. Unreaped processes that were never sampled are not included.
    pub unreaped_ns: u64,
    /// Whether a process of the job ignores SIGCHLD: then the kernel drops the time of its children.
    pub ignores_children: bool,
}

#[derive(Debug)]
struct Sample {
    spent: Spent,
    cpus: Vec<SingleCpu>,
}

/// Growth of the counters of all CPUs between two samples.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "names end in their unit")]
struct CpuGrowth {
    work_ns: u64,
    idle_ns: u64,
    steal_ns: u64,
    /// Estimate of the part of `steal_ns` that tasks lost.
    work_steal_ns: u64,
    /// Upper bound of `work_steal_ns`.
    work_steal_max_ns: u64,
}

impl Steal {
    /// The counter without steal, from the start of the recording to this sample.
    pub fn without_steal(&mut self, spent: Spent, cpus: &[SingleCpu]) -> u64 {
        let now = || Sample { spent, cpus: cpus.to_vec() };
        let Some(then) = &self.since else {
            (self.since, self.own_ns) = (Some(now()), spent.counted_ns);
            return spent.counted_ns;
        };
        let machine = CpuGrowth::between(&then.cpus, cpus);
        let growth = spent.since(&then.spent);
        // If the CPUs are unknown or have changed, a longer window would not help.
        let ends_window =
            machine.as_ref().is_none_or(|machine| machine.all_ns() >= WINDOW_NS * cpus.len() as u64);
        let delay_ns = if ends_window { DELAY_NS } else { 0 };
        let steal_ns = machine.map_or(0, |machine| machine.steal_of(growth, delay_ns));
        let own_ns = self.own_ns.saturating_add(growth.counted_ns - steal_ns);
        if ends_window {
            (self.since, self.own_ns) = (Some(now()), own_ns);
        }
        own_ns
    }
}

impl Spent {
    fn since(self, then: &Self) -> Self {
        Self {
            counted_ns: self.counted_ns.saturating_sub(then.counted_ns),
            seen_ns: self.seen_ns.saturating_sub(then.seen_ns),
            unreaped_ns: self.unreaped_ns.saturating_sub(then.unreaped_ns),
            ignores_children: self.ignores_children || then.ignores_children,
        }
    }

    /// Whether the ledger is known to miss processes.
    const fn misses_processes(self) -> bool {
        self.ignores_children || self.unreaped_ns > 0
    }
}

impl CpuGrowth {
    /// The growth between two samples; `None` if the CPUs are unknown, or are not the same at both samples.
    fn between(then: &[SingleCpu], now: &[SingleCpu]) -> Option<Self> {
        if then.len() != now.len() || now.is_empty() {
            return None;
        }
        let mut machine = Self::default();
        for (then, now) in then.iter().zip(now) {
            let work_ns = now.work_ns.checked_sub(then.work_ns)?;
            // Idle time may go back a little, since the kernel derives it from two clocks.
            let idle_ns = now.idle_ns.saturating_sub(then.idle_ns);
            let steal_ns = now.steal_ns.checked_sub(then.steal_ns)?;
            if now.number != then.number {
                return None;
            }
            let demand_ns = work_ns.saturating_add(steal_ns);
            let all_ns = demand_ns.saturating_add(idle_ns);
            // All steal of a CPU that is never idle; a third of the steal of a CPU that is idle half of the time, where
            // a fifth to a half was measured. A job that moves between CPUs leaves each CPU idle for some time.
            let work_steal_ns = part(steal_ns, demand_ns, all_ns.saturating_add(idle_ns));
            let max_ns = part(steal_ns, demand_ns.saturating_mul(2), all_ns).min(steal_ns);
            machine.work_ns = machine.work_ns.saturating_add(work_ns);
            machine.idle_ns = machine.idle_ns.saturating_add(idle_ns);
            machine.steal_ns = machine.steal_ns.saturating_add(steal_ns);
            machine.work_steal_ns = machine.work_steal_ns.saturating_add(work_steal_ns);
            machine.work_steal_max_ns = machine.work_steal_max_ns.saturating_add(max_ns);
        }
        Some(machine)
    }

    fn all_ns(&self) -> u64 {
        self.work_ns.saturating_add(self.idle_ns).saturating_add(self.steal_ns)
    }

    /// The steal in the counter of the job: all time that is not in the ledger, if the machine had so much steal.
    /// Otherwise, or if the ledger misses processes, an estimate from the job's share of the machine's work.
    fn steal_of(&self, job: Spent, delay_ns: u64) -> u64 {
        if self.steal_ns == 0 {
            return 0;
        }
        let unseen_ns = job.counted_ns.saturating_sub(job.seen_ns);
        if !job.misses_processes() && unseen_ns <= self.work_steal_max_ns.saturating_add(delay_ns) {
            return unseen_ns;
        }
        let part_ns =
            part(self.work_steal_ns, job.counted_ns, self.work_ns.saturating_add(self.work_steal_ns));
        part_ns.min(self.work_steal_ns).min(unseen_ns)
    }
}

/// `amount` × `of` / `all`.
fn part(amount: u64, of: u64, all: u64) -> u64 {
    let part = u128::from(amount) * u128::from(of) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Work, idle and steal time of CPUs, in seconds.
    fn cpus(of: &[[u64; 3]]) -> Vec<SingleCpu> {
        let cpu = |(number, [work, idle, steal]): (usize, &[u64; 3])| SingleCpu {
            number: number as u64,
            work_ns: work * SECOND,
            idle_ns: idle * SECOND,
            steal_ns: steal * SECOND,
        };
        of.iter().enumerate().map(cpu).collect()
    }

    /// CPU seconds without steal after each sample of (counted, seen, CPUs).
    fn own_s(samples: &[(u64, u64, &[[u64; 3]])]) -> Vec<u64> {
        let mut steal = Steal::default();
        let sample = |(counted, seen, of): &(u64, u64, &[[u64; 3]])| {
            let (counted_ns, seen_ns) = (counted * SECOND, seen * SECOND);
            steal.without_steal(Spent { counted_ns, seen_ns, ..Spent::default() }, &cpus(of)) / SECOND
        };
        samples.iter().map(sample).collect()
    }

    #[test]
    fn all_time_beyond_the_ledger_is_steal_if_the_machine_had_so_much() {
        let samples: [(u64, u64, &[[u64; 3]]); 3] = [
            (0, 0, &[[9, 9, 9], [9, 9, 9]]),
            (10, 2, &[[11, 9, 17], [9, 19, 9]]),
            (20, 4, &[[13, 9, 25], [9, 29, 9]]),
        ];
        assert_eq!(own_s(&samples), [0, 2, 4]);
    }

    #[test]
    fn steal_of_unseen_processes_is_estimated_by_their_part_of_the_work() {
        // The unseen processes did all work of the machine: 2 of 10 s on one CPU.
        assert_eq!(own_s(&[(0, 0, &[[0, 0, 0], [0, 0, 0]]), (10, 0, &[[2, 0, 8], [0, 10, 0]])]), [0, 2]);
        // The unseen processes did half of the work, on a machine with 4 of 20 s steal.
        assert_eq!(own_s(&[(0, 0, &[[0; 3]; 2]), (10, 1, &[[8, 0, 2], [8, 0, 2]])]), [0, 8]);
    }

    #[test]
    fn with_dropped_children_not_all_unseen_time_is_steal() {
        // The job did all work of the machine, 4 s. The ledger has 1 s of it.
        let (then, now) = (cpus(&[[0, 0, 0]; 2]), cpus(&[[2, 2, 3]; 2]));
        let own_s = |spent: Spent| {
            let mut steal = Steal::default();
            steal.without_steal(Spent::default(), &then);
            steal.without_steal(Spent { counted_ns: 6 * SECOND, seen_ns: SECOND, ..spent }, &now) / SECOND
        };
        assert_eq!(own_s(Spent::default()), 1);
        assert_eq!(own_s(Spent { ignores_children: true, ..Spent::default() }), 3);
        assert_eq!(own_s(Spent { unreaped_ns: SECOND / 10, ..Spent::default() }), 3);
    }

    #[test]
    fn steal_of_an_idle_cpu_counts_less_than_a_second() {
        let (then, now): ([[u64; 3]; 2], _) = ([[0; 3]; 2], [[100, 0, 0], [1, 860, 39]]);
        // The idle CPU had 39 s of steal.
        assert_eq!(own_s(&[(0, 0, &then), (100, 70, &now)]), [0, 99]);
    }

    #[test]
    fn steal_of_one_window_does_not_affect_another_window() {
        // One minute of steal, one minute of work that the ledger misses, one minute of steal.
        let samples: [(u64, u64, &[[u64; 3]]); 4] = [
            (0, 0, &[[0, 0, 0]]),
            (60, 1, &[[1, 0, 59]]),
            (120, 1, &[[61, 0, 59]]),
            (180, 2, &[[62, 0, 118]]),
        ];
        assert_eq!(own_s(&samples), [0, 1, 61, 62]);
    }

    #[test]
    fn nothing_is_subtracted_without_per_cpu_counters_or_after_a_change_of_cpus() {
        let samples: [(u64, u64, &[[u64; 3]]); 5] = [
            (0, 0, &[]),
            (10, 1, &[]),
            (20, 1, &[[9, 9, 9]]),
            (30, 1, &[[1, 1, 1]]),
            (40, 1, &[[1, 1, 90]; 2]),
        ];
        assert_eq!(own_s(&samples), [0, 10, 20, 30, 40]);
    }

    #[test]
    fn short_samples_give_the_same_result_as_a_long_one() {
        let mut steal = Steal::default();
        let mut own_ns = 0;
        for ms in 0..=3000_u64 {
            // A fifth is steal. The kernel's counters have steps of 10 ms; the task-clock counter has no steps.
            let stepped = |ns: u64| ns / 10_000_000 * 10_000_000;
            let (counted_ns, steal_ns) = (ms * 1_000_000, stepped(ms * 200_000));
            let work_ns = stepped(ms * 1_000_000).saturating_sub(steal_ns);
            let spent = Spent { counted_ns, seen_ns: ms * 800_000, ..Spent::default() };
            own_ns = steal.without_steal(spent, &[SingleCpu { work_ns, steal_ns, ..SingleCpu::default() }]);
        }
        assert!((2_390_000_000..=2_430_000_000).contains(&own_ns), "{own_ns}");
    }

    proptest! {
        /// The result grows by at most the growth of the counter and by at least the growth of the ledger.
        #[test]
        fn growth_is_between_ledger_and_counter(
            steps in proptest::collection::vec(
                (0_u64..1 << 40, 0_u64..1 << 40, any::<[u32; 3]>(), any::<bool>()), 1..20)
        ) {
            let mut steal = Steal::default();
            let (mut spent, mut cpu) = (Spent::default(), SingleCpu::default());
            let mut settled_ns = steal.without_steal(spent, &[cpu]);
            for (counted, seen, [work, idle, steal_time], ignores_children) in steps {
                spent.counted_ns += counted;
                spent.seen_ns += seen;
                spent.ignores_children = ignores_children;
                cpu.work_ns += u64::from(work) + WINDOW_NS;
                cpu.idle_ns += u64::from(idle);
                cpu.steal_ns += u64::from(steal_time);
                let own_ns = steal.without_steal(spent, &[cpu]);
                prop_assert!(own_ns >= settled_ns + seen.min(counted), "{own_ns}");
                prop_assert!(own_ns <= settled_ns + counted, "{own_ns}");
                settled_ns = own_ns;
            }
        }
    }
}
