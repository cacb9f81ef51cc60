//! Memory of one process, and of several processes that share pages.
//!
//! In:  RSS at a sample, and the last walk (a read of `smaps_rollup`). Out: KiB, each page counted once.
//!
//! A process and its forked children (its copies) share pages. The sum of their PSS is right if the same processes were
//! alive at all walks. A pool that replaces its workers changes faster than its pages may be walked. For such a pool,
//! all anonymous pages of the parent are counted, and of each copy only the pages that it shares with no process.

use std::collections::BTreeMap;

use crate::probe::procfs::AnonPages;

/// A process is not walked again for this many times the duration of its last walk, which held a lock of the process.
const REST: u64 = 10;
/// A single process with constant RSS is walked this often: processes outside the job may start to share its libraries.
const SETTLED_NS: u64 = 10_000_000_000;
/// After a denied walk, the next walk is tried after this time: during `exec`, the kernel denies every walk.
const REFUSED_NS: u64 = 1_000_000_000;

/// Memory of one process at the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub pid: u32,
    pub ppid: u32,
    pub start_ticks: u64,
    pub rss_kib: u64,
    /// RSS from `stat`. It differs a little from the RSS of a walk, so only its growth is used.
    pub counted_rss_kib: u64,
    pub peak_rss_kib: Option<u64>,
    /// The larger RSS of this sample, from `stat` or the walk: a high-water mark up to this value is not newer.
    pub most_rss_kib: u64,
    pub swap_kib: Option<u64>,
    pub walk: Option<Walk>,
    /// True until the process calls `exec` after its fork.
    pub is_copy: bool,
    /// Memory that a forked child may share with its parent. Its high-water mark may start at this value.
    pub inherited_kib: u64,
    /// The address-space fingerprint, which is the same for a process and its copies.
    pub image: Option<(u64, u64)>,
    /// If the parent of a copy is not part of the job: upper limit of the memory that both share; `None` if unknown.
    pub strange_kib: Option<u64>,
    /// Whether a process of the job has started or ended since the walk, so that the PSS may be wrong.
    pub is_stale: bool,
    /// Whether a process with the same fingerprint started, ended or shrank since the walk, so that PSS does not add up.
    pub is_apart: bool,
    /// When a walk was denied: a process of another user, or a kernel without `smaps_rollup`.
    pub refused_at_ns: Option<u64>,
}

/// The result of a walk over the pages of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    pub at_ns: u64,
    pub cost_ns: u64,
    pub pss_kib: u64,
    pub anon: Option<AnonPages>,
    /// RSS from `stat` at the time of the walk.
    pub counted_rss_kib: u64,
}

impl Walk {
    /// PSS of pages of files and of shared memory.
    fn rest_kib(&self, anon: AnonPages) -> u64 {
        self.pss_kib.saturating_sub(anon.pss_kib)
    }
}

impl Held {
    /// The last PSS plus the growth of RSS since the walk; before the first walk, RSS without the inherited memory.
    pub(super) fn memory_kib(&self) -> u64 {
        match self.walk {
            Some(walk) => self.grown_since(walk, walk.pss_kib),
            None => self.rss_kib.saturating_sub(self.inherited_kib),
        }
    }

    fn grown_since(&self, walk: Walk, kib: u64) -> u64 {
        let (then_kib, now_kib) = (walk.counted_rss_kib, self.counted_rss_kib);
        kib.saturating_add(now_kib.saturating_sub(then_kib)).saturating_sub(then_kib.saturating_sub(now_kib))
    }

    /// Anonymous pages that the process shared with other processes at the last walk.
    fn shared_kib(&self) -> u64 {
        let anon = self.walk.and_then(|walk| walk.anon);
        anon.map_or(0, |anon| anon.rss_kib.saturating_sub(anon.own_kib))
    }

    fn anon(&self) -> Option<(Walk, AnonPages)> {
        self.walk.and_then(|walk| Some((walk, walk.anon?)))
    }

    /// All anonymous pages; RSS if they are unknown.
    fn anon_kib(&self) -> u64 {
        self.anon().map_or(self.rss_kib, |(walk, anon)| self.grown_since(walk, anon.rss_kib))
    }

    /// Memory of a copy that its parent does not have.
    fn beside_parent_kib(&self) -> u64 {
        let own = |(walk, anon): (Walk, AnonPages)| {
            self.grown_since(walk, walk.rest_kib(anon).saturating_add(anon.own_kib))
        };
        self.anon().map_or_else(|| self.memory_kib(), own)
    }

    /// Memory of a parent, including all pages that it shares with its copies.
    fn with_copies_kib(&self) -> u64 {
        let all = |(walk, anon): (Walk, AnonPages)| {
            self.grown_since(walk, walk.rest_kib(anon).saturating_add(anon.rss_kib))
        };
        self.anon().map_or_else(|| self.memory_kib(), all)
    }

    pub(super) fn is_due(&self, now_ns: u64, is_alone: bool) -> bool {
        if self.refused_at_ns.is_some_and(|then_ns| now_ns.saturating_sub(then_ns) < REFUSED_NS) {
            return false;
        }
        let Some(walk) = self.walk else { return true };
        // If the job has no other process, the PSS changes only if the RSS changes.
        let is_settled = is_alone && self.counted_rss_kib == walk.counted_rss_kib;
        if self.is_stale {
            return true;
        }
        let rest_ns = if is_settled { SETTLED_NS } else { 0 }.max(walk.cost_ns.saturating_mul(REST));
        now_ns.saturating_sub(walk.at_ns) >= rest_ns
    }

    /// Order of walks: processes without a walk come first, then the process with the oldest walk. Between walks,
    /// growth of RSS is counted, but newly shared pages are not known.
    pub(super) fn walked_at_ns(&self) -> Option<u64> {
        self.walk.map(|walk| walk.at_ns)
    }
}

/// Index of the process with this pid. `held` is in ascending order of pid.
pub(super) fn find(held: &[Held], pid: u32) -> Option<usize> {
    held.binary_search_by_key(&pid, |held| held.pid).ok()
}

/// Memory of all processes together.
pub(super) fn together_kib(held: &[Held]) -> u64 {
    let mut by_image: Vec<&Held> = held.iter().collect();
    by_image.sort_by_key(|held| held.image);
    let families = by_image.chunk_by(|one, other| one.image.is_some() && one.image == other.image);
    families.map(family_kib).fold(0, u64::saturating_add)
}

/// Memory of a process and its copies, which are in ascending order of pid.
fn family_kib(family: &[&Held]) -> u64 {
    let by_owners = ByOwners::of(family);
    if !shares_add_up(family) {
        return by_owners.likely;
    }
    let by_shares_kib = family.iter().map(|held| held.memory_kib()).fold(0, u64::saturating_add);
    let ByOwners { least, most, likely } = by_owners;
    let slack_kib = slack_kib(likely);
    let near = least.saturating_sub(slack_kib)..=most.saturating_add(slack_kib);
    if near.contains(&by_shares_kib) { by_shares_kib } else { by_shares_kib.clamp(least, most) }
}

/// Memory of a family in KiB, if every shared page is counted for the process that had it first.
#[derive(Default)]
struct ByOwners {
    least: u64,
    most: u64,
    likely: u64,
}

impl ByOwners {
    fn of(family: &[&Held]) -> Self {
        let find = |pid: u32| family.get(family.binary_search_by_key(&pid, |held| held.pid).ok()?);
        // If the parent is not in the family, the process that is not a copy takes its place.
        let original = family.iter().find(|held| !held.is_copy);
        let parent = |held: &Held| if held.is_copy { find(held.ppid).or(original) } else { None };
        let mut parents: Vec<u32> = family.iter().filter_map(|held| Some(parent(held)?.pid)).collect();
        parents.sort_unstable();
        let mut owned = Self::default();
        // Pages that a copy shares, but that its parent does not have, are shared among the copies of that parent. They
        // are counted once per parent: the largest amount of any copy.
        let mut alone_kib = BTreeMap::new();
        for held in family {
            let is_parent = parents.binary_search(&held.pid).is_ok();
            let Some(parent) = parent(held) else {
                owned.add_first(held, is_parent);
                continue;
            };
            let own_kib = held.beside_parent_kib();
            let beyond_kib = held.shared_kib().saturating_sub(parent.anon_kib());
            if is_parent {
                // This copy shares these pages with its own copies.
                owned.likely = owned.likely.saturating_add(beyond_kib);
            } else {
                let most_kib = alone_kib.entry(parent.pid).or_insert(0);
                *most_kib = beyond_kib.max(*most_kib);
            }
            owned.add(
                own_kib,
                own_kib.saturating_add(held.shared_kib().saturating_sub(parent.shared_kib())),
                own_kib,
            );
        }
        owned.likely = alone_kib.into_values().fold(owned.likely, u64::saturating_add);
        owned
    }

    /// Adds a process that has no parent in the family.
    fn add_first(&mut self, held: &Held, is_parent: bool) {
        let (part_kib, all_kib) = (held.memory_kib(), held.with_copies_kib());
        let strange_kib = if held.is_copy { held.strange_kib } else { Some(0) };
        let with_strangers_kib = strange_kib.unwrap_or(u64::MAX).min(held.shared_kib());
        // The process had copies at the time of the walk, even if no sample found them.
        let has_shared = held.shared_kib() - with_strangers_kib > slack_kib(held.rss_kib);
        if !is_parent && !has_shared {
            return self.add(part_kib, part_kib, part_kib);
        }
        let without_kib = |kib: u64| all_kib.saturating_sub(kib).max(part_kib);
        // Pages that are shared with one process outside the job count half.
        let likely_kib = if strange_kib.is_some() { without_kib(with_strangers_kib / 2) } else { all_kib };
        self.add(without_kib(with_strangers_kib), all_kib, likely_kib);
    }

    const fn add(&mut self, least: u64, most: u64, likely: u64) {
        self.least = self.least.saturating_add(least);
        self.most = self.most.saturating_add(most);
        self.likely = self.likely.saturating_add(likely);
    }
}

/// Whether the same copies were alive at all walks, so that the sum of PSS is right. The walks show this: pages that
/// one process shares must also be shared pages of other processes.
fn shares_add_up(family: &[&Held]) -> bool {
    let all_kib = family.iter().map(|held| held.shared_kib()).fold(0, u64::saturating_add);
    family.iter().all(|held| {
        let own_kib = held.shared_kib();
        let others_kib = all_kib.saturating_sub(own_kib);
        held.walk.is_some() && !held.is_apart && own_kib <= others_kib.saturating_add(slack_kib(own_kib))
    })
}

/// Largest difference that can come from the time between two walks: 5 % plus 1 MiB.
pub(super) const fn slack_kib(kib: u64) -> u64 {
    kib / 20 + 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024;

    fn walked(pid: u32, anon: AnonPages) -> Held {
        let walk = Walk {
            pss_kib: anon.pss_kib + 5 * MIB,
            anon: Some(anon),
            counted_rss_kib: anon.rss_kib,
            ..Walk::default()
        };
        let rss_kib = anon.rss_kib;
        let held =
            Held { pid, ppid: 1, rss_kib, counted_rss_kib: rss_kib, image: Some((1, 1)), ..Held::default() };
        Held { walk: Some(walk), is_copy: pid > 1, inherited_kib: 400 * MIB, ..held }
    }

    fn apart(held: Held) -> Held {
        Held { is_apart: true, ..held }
    }

    fn pages(rss_mib: u64, pss_mib: u64, own_mib: u64) -> AnonPages {
        AnonPages { rss_kib: rss_mib * MIB, pss_kib: pss_mib * MIB, own_kib: own_mib * MIB }
    }

    #[test]
    fn pss_of_the_same_moment_is_summed() {
        let family = [
            walked(1, pages(400, 100, 0)),
            walked(2, pages(400, 100, 0)),
            walked(3, pages(400, 100, 0)),
            walked(4, pages(410, 110, 10)),
        ];
        assert_eq!(together_kib(&family), (410 + 4 * 5) * MIB);
        // Pages that the parent has freed, and that only its copies still have.
        let orphaned =
            [walked(1, pages(10, 10, 10)), walked(2, pages(400, 200, 0)), walked(3, pages(400, 200, 0))];
        assert_eq!(together_kib(&orphaned), (410 + 3 * 5) * MIB);
    }

    #[test]
    fn parent_counts_pages_shared_with_copies_if_walks_are_of_different_moments() {
        let parent = walked(1, pages(400, 50, 0));
        // Seven copies have ended. One copy with 20 MiB of its own was walked long ago, and one copy was never walked.
        let new = Held { walk: None, rss_kib: 403 * MIB, ..walked(3, pages(403, 0, 0)) };
        let family = [apart(parent), apart(walked(2, pages(420, 70, 20))), new];
        assert_eq!(together_kib(&family), (400 + 5 + 20 + 5 + 3) * MIB);
        assert_eq!(together_kib(&[apart(parent)]), 405 * MIB, "alone again, and not walked since then");
        assert_eq!(together_kib(&[parent]), 405 * MIB, "a copy started and ended between two samples");
        let grown = Held { counted_rss_kib: 450 * MIB, ..apart(parent) };
        assert_eq!(together_kib(&[grown]), 455 * MIB, "with its growth since the walk");
    }

    #[test]
    fn copy_that_started_between_two_walks_is_not_counted_twice() {
        // The parent was walked before the fork, and its copy after the fork.
        let family = [walked(1, pages(400, 400, 400)), walked(2, pages(400, 200, 0))];
        assert_eq!(together_kib(&family), (400 + 2 * 5) * MIB);
        // There was one more copy, or one less, when the parent was walked.
        for pss_mib in [100, 200] {
            let parent = walked(1, pages(400, pss_mib, 0));
            let family = [parent, walked(2, pages(400, 133, 0)), walked(3, pages(400, 133, 0))];
            assert_eq!(together_kib(&family), (400 + 3 * 5) * MIB);
        }
    }

    #[test]
    fn copy_of_a_process_outside_the_job_counts_pages_shared_with_its_own_copies() {
        let first = Held { is_copy: true, ppid: 99, ..walked(1, pages(900, 100, 0)) };
        let workers: Vec<Held> = (2..10).map(|pid| walked(pid, pages(900, 100, 0))).collect();
        let family = [&[first][..], &workers].concat();
        assert_eq!(together_kib(&family), (900 + 9 * 5) * MIB);
        let family: Vec<Held> = family.into_iter().map(apart).collect();
        assert_eq!(together_kib(&family), (900 + 9 * 5) * MIB);
        assert_eq!(
            together_kib(&[first]),
            105 * MIB,
            "alone: it is unknown which process it shares pages with"
        );
        // Its parent, which is not part of the job, has 20 MiB. The rest was shared with copies that have ended or were
        // not sampled yet.
        let first = Held { strange_kib: Some(20 * MIB), ..first };
        assert_eq!(together_kib(&[first]), 895 * MIB);
        let family = [first, walked(2, pages(900, 300, 0))];
        assert_eq!(together_kib(&family), (880 + 2 * 5) * MIB, "walked while the copies started");
    }

    #[test]
    fn copy_without_its_parent_shares_pages_with_the_process_that_is_not_a_copy() {
        let orphan = Held { ppid: 99, ..walked(2, pages(400, 200, 0)) };
        let family = [walked(1, pages(400, 200, 0)), orphan];
        assert_eq!(together_kib(&family), (400 + 2 * 5) * MIB);
        assert_eq!(together_kib(&family.map(apart)), (400 + 2 * 5) * MIB);
    }

    #[test]
    fn copies_of_a_copy_share_the_pages_of_their_own_parent() {
        // The first process has 400 MiB. Its copy has 1,000 MiB more, which it shares with two copies of its own.
        let middle = walked(2, pages(1_400, 433, 0));
        let worker = |pid| Held { ppid: 2, ..walked(pid, pages(1_400, 433, 0)) };
        let family = [walked(1, pages(400, 100, 0)), middle, worker(3), worker(4)];
        assert_eq!(together_kib(&family), (100 + 3 * 433 + 4 * 5) * MIB);
        assert_eq!(together_kib(&family.map(apart)), (400 + 1_000 + 4 * 5) * MIB);
    }

    #[test]
    fn pages_that_only_copies_still_have_count_once() {
        let copy = |pid| apart(walked(pid, pages(1_000, 250, 0)));
        let family = [apart(walked(1, pages(10, 10, 10))), copy(2), copy(3), copy(4)];
        assert_eq!(together_kib(&family), (10 + 990 + 4 * 5) * MIB);
    }

    #[test]
    fn processes_with_other_fingerprints_are_another_family() {
        let other = Held { image: Some((2, 2)), is_copy: false, ppid: 9, ..walked(8, pages(50, 50, 50)) };
        let family = [walked(1, pages(400, 200, 0)), walked(2, pages(400, 200, 0)), apart(other)];
        assert_eq!(together_kib(&family), (450 + 3 * 5) * MIB);
    }

    #[test]
    fn process_that_shared_pages_is_walked_again_when_others_end() {
        let walk = Walk { cost_ns: 1_000_000, pss_kib: 100, counted_rss_kib: 400, ..Walk::default() };
        let held = Held { counted_rss_kib: 400, walk: Some(walk), ..Held::default() };
        assert!(!held.is_due(2_000_000, true));
        assert!(Held { is_stale: true, ..held }.is_due(2_000_000, true));
    }

    #[test]
    fn between_walks_memory_follows_rss() {
        let walk = Walk { cost_ns: 1_000, pss_kib: 60, counted_rss_kib: 100, ..Walk::default() };
        let at = |counted_rss_kib| Held { counted_rss_kib, walk: Some(walk), ..Held::default() }.memory_kib();
        assert_eq!((at(100), at(130), at(50), at(10)), (60, 90, 10, 0));
    }

    #[test]
    fn walk_is_not_repeated_for_ten_times_its_cost() {
        let walk = Walk { at_ns: 1_000, cost_ns: 7_000_000, pss_kib: 1, counted_rss_kib: 1, anon: None };
        let held = Held { walk: Some(walk), ..Held::default() };
        assert!(!held.is_due(60_000_000, false));
        assert!(held.is_due(70_001_000, false));
    }
}
