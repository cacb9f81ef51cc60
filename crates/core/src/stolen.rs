//! Stolen time in a counter of the job's CPU time, and what is left without it.
//!
//! In:  the counter, what is known of the job's processes, and the machine's CPUs, at each look.
//! Out: the job's own part of the counter; it grows by no more than the counter does.
//!
//! A task's clock runs while the task has a CPU, also while the hypervisor has given that CPU to another machine; the
//! kernel's own accounts leave that time out. How much was taken from each CPU is known, from whom is not. The kernel
//! also calls stolen what a CPU waits for when it is to wake up, which no task had to do without: so the more a CPU was
//! idle, the less of its stolen time counts.

use crate::snapshot::SingleCpu;

/// Over a shorter time nothing is settled: the accounts step by 10 ms.
const WINDOW_NS: u64 = 200_000_000;

/// So late may stolen time be in the accounts.
const LATE_NS: u64 = 20_000_000;

/// The job's own part of a counter.
#[derive(Debug, Default)]
pub struct Stolen {
    since: Option<Look>,
    /// Up to that look.
    own_ns: u64,
}

/// What a job has spent by a moment, by all that is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// By the counter.
    pub counted_ns: u64,
    /// By the accounts of its processes.
    pub seen_ns: u64,
    /// Of that, by processes that ended and were not waited for: more of them may not have been seen.
    pub unreceived_ns: u64,
    /// There is a process whose children are never waited for.
    pub ignores_children: bool,
}

#[derive(Debug)]
struct Look {
    spent: Spent,
    cpus: Vec<SingleCpu>,
}

/// What all CPUs did between two looks.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "a unit is part of its name")]
struct Machine {
    work_ns: u64,
    idle_ns: u64,
    stolen_ns: u64,
    /// Stolen from work, as far as one can tell.
    taken_ns: u64,
    /// The most that it can have been.
    taken_at_most_ns: u64,
}

impl Stolen {
    /// What of the counter was the job's own.
    pub fn take_off(&mut self, spent: Spent, cpus: &[SingleCpu]) -> u64 {
        let now = || Look { spent, cpus: cpus.to_vec() };
        let Some(then) = &self.since else {
            (self.since, self.own_ns) = (Some(now()), spent.counted_ns);
            return spent.counted_ns;
        };
        let machine = Machine::between(&then.cpus, cpus);
        let grown = spent.since(&then.spent);
        // Where the CPUs are not known, or not the same, there is nothing to wait for.
        let is_settled =
            machine.as_ref().is_none_or(|machine| machine.all_ns() >= WINDOW_NS * cpus.len() as u64);
        let late_ns = if is_settled { LATE_NS } else { 0 };
        let lost_ns = machine.map_or(0, |machine| machine.taken_from(grown, late_ns));
        let own_ns = self.own_ns.saturating_add(grown.counted_ns - lost_ns);
        if is_settled {
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
            unreceived_ns: self.unreceived_ns.saturating_sub(then.unreceived_ns),
            ignores_children: self.ignores_children || then.ignores_children,
        }
    }

    /// Whether processes are known to have ended unseen.
    const fn misses_some(self) -> bool {
        self.ignores_children || self.unreceived_ns > 0
    }
}

impl Machine {
    /// `None` where these are not the same CPUs at two moments.
    fn between(then: &[SingleCpu], now: &[SingleCpu]) -> Option<Self> {
        if then.len() != now.len() || now.is_empty() {
            return None;
        }
        let mut machine = Self::default();
        for (then, now) in then.iter().zip(now) {
            let work_ns = now.work_ns.checked_sub(then.work_ns)?;
            // The kernel lets idle time go back a little where two of its clocks differ.
            let idle_ns = now.idle_ns.saturating_sub(then.idle_ns);
            let stolen_ns = now.stolen_ns.checked_sub(then.stolen_ns)?;
            if now.number != then.number {
                return None;
            }
            let wanted_ns = work_ns.saturating_add(stolen_ns);
            let all_ns = wanted_ns.saturating_add(idle_ns);
            // All of a CPU that is never idle, a third of one that is idle half of the time: the middle of what was
            // measured, which goes from a fifth to a half. A job that goes from CPU to CPU leaves each idle for a part
            // of the time.
            let taken_ns = part(stolen_ns, wanted_ns, all_ns.saturating_add(idle_ns));
            let at_most_ns = part(stolen_ns, wanted_ns.saturating_mul(2), all_ns).min(stolen_ns);
            machine.work_ns = machine.work_ns.saturating_add(work_ns);
            machine.idle_ns = machine.idle_ns.saturating_add(idle_ns);
            machine.stolen_ns = machine.stolen_ns.saturating_add(stolen_ns);
            machine.taken_ns = machine.taken_ns.saturating_add(taken_ns);
            machine.taken_at_most_ns = machine.taken_at_most_ns.saturating_add(at_most_ns);
        }
        Some(machine)
    }

    fn all_ns(&self) -> u64 {
        self.work_ns.saturating_add(self.idle_ns).saturating_add(self.stolen_ns)
    }

    /// Of what was counted and not seen, that which was stolen. All of it where that can be. Where there are processes
    /// that nobody saw, the job lost by its part of the machine's work: an estimate.
    fn taken_from(&self, job: Spent, late_ns: u64) -> u64 {
        if self.stolen_ns == 0 {
            return 0;
        }
        let unseen_ns = job.counted_ns.saturating_sub(job.seen_ns);
        if !job.misses_some() && unseen_ns <= self.taken_at_most_ns.saturating_add(late_ns) {
            return unseen_ns;
        }
        let part_ns = part(self.taken_ns, job.counted_ns, self.work_ns.saturating_add(self.taken_ns));
        part_ns.min(self.taken_ns).min(unseen_ns)
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

    /// Work, idle and stolen time of CPUs, in seconds.
    fn cpus(of: &[[u64; 3]]) -> Vec<SingleCpu> {
        let cpu = |(number, [work, idle, stolen]): (usize, &[u64; 3])| SingleCpu {
            number: number as u64,
            work_ns: work * SECOND,
            idle_ns: idle * SECOND,
            stolen_ns: stolen * SECOND,
        };
        of.iter().enumerate().map(cpu).collect()
    }

    /// Seconds of the job's own after looks at (counted, seen, CPUs).
    fn own_s(looks: &[(u64, u64, &[[u64; 3]])]) -> Vec<u64> {
        let mut stolen = Stolen::default();
        let look = |(counted, seen, of): &(u64, u64, &[[u64; 3]])| {
            let (counted_ns, seen_ns) = (counted * SECOND, seen * SECOND);
            stolen.take_off(Spent { counted_ns, seen_ns, ..Spent::default() }, &cpus(of)) / SECOND
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_job_that_its_host_throttles_spent_what_was_seen() {
        let looks: [(u64, u64, &[[u64; 3]]); 3] = [
            (0, 0, &[[9, 9, 9], [9, 9, 9]]),
            (10, 2, &[[11, 9, 17], [9, 19, 9]]),
            (20, 4, &[[13, 9, 25], [9, 29, 9]]),
        ];
        assert_eq!(own_s(&looks), [0, 2, 4]);
    }

    #[test]
    fn processes_that_nobody_saw_lost_their_part() {
        // All of the machine's work is theirs: 2 s of 10 on the CPU that they had.
        assert_eq!(own_s(&[(0, 0, &[[0, 0, 0], [0, 0, 0]]), (10, 0, &[[2, 0, 8], [0, 10, 0]])]), [0, 2]);
        // Half of it, of a machine from which 4 of 20 s were taken.
        assert_eq!(own_s(&[(0, 0, &[[0; 3]; 2]), (10, 1, &[[8, 0, 2], [8, 0, 2]])]), [0, 8]);
    }

    #[test]
    fn where_children_are_known_to_be_dropped_not_all_that_was_unseen_was_stolen() {
        // The job had all of the machine's work, 4 s, of which 1 s was seen.
        let (then, now) = (cpus(&[[0, 0, 0]; 2]), cpus(&[[2, 2, 3]; 2]));
        let own_s = |spent: Spent| {
            let mut stolen = Stolen::default();
            stolen.take_off(Spent::default(), &then);
            stolen.take_off(Spent { counted_ns: 6 * SECOND, seen_ns: SECOND, ..spent }, &now) / SECOND
        };
        assert_eq!(own_s(Spent::default()), 1);
        assert_eq!(own_s(Spent { ignores_children: true, ..Spent::default() }), 3);
        assert_eq!(own_s(Spent { unreceived_ns: SECOND / 10, ..Spent::default() }), 3);
    }

    #[test]
    fn what_an_idle_cpu_waits_for_explains_next_to_nothing() {
        let (then, now): ([[u64; 3]; 2], _) = ([[0; 3]; 2], [[100, 0, 0], [1, 860, 39]]);
        // Not a second of 39.
        assert_eq!(own_s(&[(0, 0, &then), (100, 70, &now)]), [0, 99]);
    }

    #[test]
    fn stolen_time_of_before_hides_no_work_of_now_and_that_of_now_no_work_of_before() {
        // A minute is stolen from work that is seen, then nobody sees a minute of work, then a minute is stolen again.
        let looks: [(u64, u64, &[[u64; 3]]); 4] = [
            (0, 0, &[[0, 0, 0]]),
            (60, 1, &[[1, 0, 59]]),
            (120, 1, &[[61, 0, 59]]),
            (180, 2, &[[62, 0, 118]]),
        ];
        assert_eq!(own_s(&looks), [0, 1, 61, 62]);
    }

    #[test]
    fn without_a_hypervisor_or_with_other_cpus_all_that_is_counted_is_the_jobs() {
        let looks: [(u64, u64, &[[u64; 3]]); 5] = [
            (0, 0, &[]),
            (10, 1, &[]),
            (20, 1, &[[9, 9, 9]]),
            (30, 1, &[[1, 1, 1]]),
            (40, 1, &[[1, 1, 90]; 2]),
        ];
        assert_eq!(own_s(&looks), [0, 10, 20, 30, 40]);
    }

    #[test]
    fn short_looks_come_to_the_same_as_a_long_one() {
        let mut stolen = Stolen::default();
        let mut own_ns = 0;
        for ms in 0..=3000_u64 {
            // A fifth is stolen; the accounts step by 10 ms, the counter does not.
            let stepped = |ns: u64| ns / 10_000_000 * 10_000_000;
            let (counted_ns, stolen_ns) = (ms * 1_000_000, stepped(ms * 200_000));
            let work_ns = stepped(ms * 1_000_000).saturating_sub(stolen_ns);
            let spent = Spent { counted_ns, seen_ns: ms * 800_000, ..Spent::default() };
            own_ns = stolen.take_off(spent, &[SingleCpu { work_ns, stolen_ns, ..SingleCpu::default() }]);
        }
        assert!((2_390_000_000..=2_430_000_000).contains(&own_ns), "{own_ns}");
    }

    proptest! {
        /// Whatever the accounts say, the figure grows by no more than the counter and by no less than what was seen.
        #[test]
        fn growth_stays_between_what_was_seen_and_what_was_counted(
            steps in proptest::collection::vec(
                (0_u64..1 << 40, 0_u64..1 << 40, any::<[u32; 3]>(), any::<bool>()), 1..20)
        ) {
            let mut stolen = Stolen::default();
            let (mut spent, mut cpu) = (Spent::default(), SingleCpu::default());
            let mut settled_ns = stolen.take_off(spent, &[cpu]);
            for (counted, seen, [work, idle, taken], ignores_children) in steps {
                spent.counted_ns += counted;
                spent.seen_ns += seen;
                spent.ignores_children = ignores_children;
                cpu.work_ns += u64::from(work) + WINDOW_NS;
                cpu.idle_ns += u64::from(idle);
                cpu.stolen_ns += u64::from(taken);
                let own_ns = stolen.take_off(spent, &[cpu]);
                prop_assert!(own_ns >= settled_ns + seen.min(counted), "{own_ns}");
                prop_assert!(own_ns <= settled_ns + counted, "{own_ns}");
                settled_ns = own_ns;
            }
        }
    }
}
