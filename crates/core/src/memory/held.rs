//! What one process holds, and what several hold together.
//!
//! In:  RSS at a look, and the last walk over its pages. Out: KiB, each page counted once.
//!
//! A program and the copies that were forked from it share pages. Their shares add up where all were taken while the same
//! of them were there. A pool that replaces its workers changes faster than its pages may be walked: then a parent counts
//! all its pages that are of no file, whoever else has them, and each of its copies only what it shares with nobody.

use std::collections::BTreeMap;

use crate::source::procfs::AnonPages;

/// Whose lock was held for a walk is left alone for this many times as long.
const REST: u64 = 10;
/// A process alone whose RSS stays the same is walked this often, since others may come to share its libraries.
const SETTLED_NS: u64 = 10_000_000_000;
/// One that refuses is asked again after this time: in the middle of an exec a process refuses everybody.
const REFUSED_NS: u64 = 1_000_000_000;

/// One process at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub pid: u32,
    pub ppid: u32,
    pub start_ticks: u64,
    pub rss_kib: u64,
    /// RSS by `stat`, which counts a little differently than a walk does: only its growth is used.
    pub counted_rss_kib: u64,
    pub peak_rss_kib: Option<u64>,
    /// The most RSS that this look saw, before the walk or in it: up to there the mark did not rise later.
    pub most_rss_kib: u64,
    pub swap_kib: Option<u64>,
    pub walk: Option<Walk>,
    /// It runs its parent's program still.
    pub is_copy: bool,
    /// What it may have from its parent: pages, and a part of its mark.
    pub inherited_kib: u64,
    /// Where its program lies: the same for all its copies.
    pub image: Option<(u64, u64)>,
    /// Of a copy whose parent is not the job's: the most that it may share with that one. `None` where it cannot be told.
    pub strange_kib: Option<u64>,
    /// Others came or went since the walk, with whom it may share.
    pub is_stale: bool,
    /// Copies came or went since the walk.
    pub is_apart: bool,
    /// When a walk was refused: another user's process, or a kernel without `smaps_rollup`.
    pub refused_at_ns: Option<u64>,
}

/// A walk over a process's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    pub at_ns: u64,
    pub cost_ns: u64,
    pub pss_kib: u64,
    pub anon: Option<AnonPages>,
    /// RSS by `stat` at that moment.
    pub counted_rss_kib: u64,
}

impl Walk {
    /// Its part of files and of shared memory.
    fn rest_kib(&self, anon: AnonPages) -> u64 {
        self.pss_kib.saturating_sub(anon.pss_kib)
    }
}

impl Held {
    /// The last PSS and the growth of RSS since; where there was no walk, the RSS that is its own.
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

    /// Pages of no file that others had too at the last walk.
    fn shared_kib(&self) -> u64 {
        let anon = self.walk.and_then(|walk| walk.anon);
        anon.map_or(0, |anon| anon.rss_kib.saturating_sub(anon.own_kib))
    }

    fn anon(&self) -> Option<(Walk, AnonPages)> {
        self.walk.and_then(|walk| Some((walk, walk.anon?)))
    }

    /// Pages of no file, and at most all.
    fn anon_kib(&self) -> u64 {
        self.anon().map_or(self.rss_kib, |(walk, anon)| self.grown_since(walk, anon.rss_kib))
    }

    /// What a copy holds that its parent does not.
    fn beside_parent_kib(&self) -> u64 {
        let own = |(walk, anon): (Walk, AnonPages)| {
            self.grown_since(walk, walk.rest_kib(anon).saturating_add(anon.own_kib))
        };
        self.anon().map_or_else(|| self.memory_kib(), own)
    }

    /// What a parent holds, what its copies share with it included.
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
        // Of a process that shares with no other one here, only a change of RSS changes the share.
        let is_settled = is_alone && self.counted_rss_kib == walk.counted_rss_kib;
        if self.is_stale {
            return true;
        }
        let rest_ns = if is_settled { SETTLED_NS } else { 0 }.max(walk.cost_ns.saturating_mul(REST));
        now_ns.saturating_sub(walk.at_ns) >= rest_ns
    }

    /// Those never walked first, then the oldest walk: what RSS shows of a change is counted meanwhile, what others
    /// came to share is not.
    pub(super) fn walked_at_ns(&self) -> Option<u64> {
        self.walk.map(|walk| walk.at_ns)
    }
}

/// Where a process of that number stands among others, which are in ascending order.
pub(super) fn find(held: &[Held], pid: u32) -> Option<usize> {
    held.binary_search_by_key(&pid, |held| held.pid).ok()
}

/// What all of them hold together.
pub(super) fn together_kib(held: &[Held]) -> u64 {
    let mut by_image: Vec<&Held> = held.iter().collect();
    by_image.sort_by_key(|held| held.image);
    let families = by_image.chunk_by(|one, other| one.image.is_some() && one.image == other.image);
    families.map(family_kib).fold(0, u64::saturating_add)
}

/// What a program and its copies hold; they are in ascending order.
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

/// What a family holds when every page is its first owner's, in KiB.
#[derive(Default)]
struct ByOwners {
    least: u64,
    most: u64,
    likely: u64,
}

impl ByOwners {
    fn of(family: &[&Held]) -> Self {
        let find = |pid: u32| family.get(family.binary_search_by_key(&pid, |held| held.pid).ok()?);
        // Of one that has left its parent, the program itself stands for it.
        let original = family.iter().find(|held| !held.is_copy);
        let parent = |held: &Held| if held.is_copy { find(held.ppid).or(original) } else { None };
        let mut parents: Vec<u32> = family.iter().filter_map(|held| Some(parent(held)?.pid)).collect();
        parents.sort_unstable();
        let mut owned = Self::default();
        // What copies of one parent share without it, they share with each other: the most of it, for each parent.
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
                // It shares that with copies of its own.
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

    /// One that has its pages from nobody here.
    fn add_first(&mut self, held: &Held, is_parent: bool) {
        let (part_kib, all_kib) = (held.memory_kib(), held.with_copies_kib());
        let strange_kib = if held.is_copy { held.strange_kib } else { Some(0) };
        let with_strangers_kib = strange_kib.unwrap_or(u64::MAX).min(held.shared_kib());
        // It had copies of its own at the walk, seen or not.
        let has_shared = held.shared_kib() - with_strangers_kib > slack_kib(held.rss_kib);
        if !is_parent && !has_shared {
            return self.add(part_kib, part_kib, part_kib);
        }
        let without_kib = |kib: u64| all_kib.saturating_sub(kib).max(part_kib);
        // Of what it shares with one stranger, half is its own.
        let likely_kib = if strange_kib.is_some() { without_kib(with_strangers_kib / 2) } else { all_kib };
        self.add(without_kib(with_strangers_kib), all_kib, likely_kib);
    }

    const fn add(&mut self, least: u64, most: u64, likely: u64) {
        self.least = self.least.saturating_add(least);
        self.most = self.most.saturating_add(most);
        self.likely = self.likely.saturating_add(likely);
    }
}

/// Whether all were walked while the same copies were there, as far as the walks themselves tell: what one shares,
/// others must have.
fn shares_add_up(family: &[&Held]) -> bool {
    let all_kib = family.iter().map(|held| held.shared_kib()).fold(0, u64::saturating_add);
    family.iter().all(|held| {
        let own_kib = held.shared_kib();
        let others_kib = all_kib.saturating_sub(own_kib);
        held.walk.is_some() && !held.is_apart && own_kib <= others_kib.saturating_add(slack_kib(own_kib))
    })
}

/// What moments between two walks may make of a difference.
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
    fn shares_of_one_moment_are_summed() {
        let family = [
            walked(1, pages(400, 100, 0)),
            walked(2, pages(400, 100, 0)),
            walked(3, pages(400, 100, 0)),
            walked(4, pages(410, 110, 10)),
        ];
        assert_eq!(together_kib(&family), (410 + 4 * 5) * MIB);
        // Pages that only copies have left.
        let orphaned =
            [walked(1, pages(10, 10, 10)), walked(2, pages(400, 200, 0)), walked(3, pages(400, 200, 0))];
        assert_eq!(together_kib(&orphaned), (410 + 3 * 5) * MIB);
    }

    #[test]
    fn a_parent_counts_what_its_copies_share_where_walks_are_of_other_moments() {
        let parent = walked(1, pages(400, 50, 0));
        // Seven copies have gone; one that has 20 MiB of its own was walked long ago, one not at all.
        let new = Held { walk: None, rss_kib: 403 * MIB, ..walked(3, pages(403, 0, 0)) };
        let family = [apart(parent), apart(walked(2, pages(420, 70, 20))), new];
        assert_eq!(together_kib(&family), (400 + 5 + 20 + 5 + 3) * MIB);
        assert_eq!(together_kib(&[apart(parent)]), 405 * MIB, "alone again, and not walked since");
        assert_eq!(together_kib(&[parent]), 405 * MIB, "a copy came and went unseen");
        let grown = Held { counted_rss_kib: 450 * MIB, ..apart(parent) };
        assert_eq!(together_kib(&[grown]), 455 * MIB, "whatever it grew by");
    }

    #[test]
    fn a_copy_that_came_between_two_walks_is_not_counted_twice() {
        // The parent was walked before the fork, its copy after it.
        let family = [walked(1, pages(400, 400, 400)), walked(2, pages(400, 200, 0))];
        assert_eq!(together_kib(&family), (400 + 2 * 5) * MIB);
        // One more was there, or one less, when the parent was walked.
        for pss_mib in [100, 200] {
            let parent = walked(1, pages(400, pss_mib, 0));
            let family = [parent, walked(2, pages(400, 133, 0)), walked(3, pages(400, 133, 0))];
            assert_eq!(together_kib(&family), (400 + 3 * 5) * MIB);
        }
    }

    #[test]
    fn a_worker_of_a_stranger_has_what_it_shares_with_its_own_copies() {
        let first = Held { is_copy: true, ppid: 99, ..walked(1, pages(900, 100, 0)) };
        let workers: Vec<Held> = (2..10).map(|pid| walked(pid, pages(900, 100, 0))).collect();
        let family = [&[first][..], &workers].concat();
        assert_eq!(together_kib(&family), (900 + 9 * 5) * MIB);
        let family: Vec<Held> = family.into_iter().map(apart).collect();
        assert_eq!(together_kib(&family), (900 + 9 * 5) * MIB);
        assert_eq!(together_kib(&[first]), 105 * MIB, "alone, with whom it shares is not known");
        // Its own parent, who is no part of the job, has 20 MiB: the rest was shared with copies that are gone or not
        // seen yet.
        let first = Held { strange_kib: Some(20 * MIB), ..first };
        assert_eq!(together_kib(&[first]), 895 * MIB);
        let family = [first, walked(2, pages(900, 300, 0))];
        assert_eq!(together_kib(&family), (880 + 2 * 5) * MIB, "walked while they came");
    }

    #[test]
    fn one_that_left_its_parent_shares_with_the_program_that_it_is_a_copy_of() {
        let orphan = Held { ppid: 99, ..walked(2, pages(400, 200, 0)) };
        let family = [walked(1, pages(400, 200, 0)), orphan];
        assert_eq!(together_kib(&family), (400 + 2 * 5) * MIB);
        assert_eq!(together_kib(&family.map(apart)), (400 + 2 * 5) * MIB);
    }

    #[test]
    fn copies_of_copies_share_what_their_own_parent_has() {
        // The first holds 400 MiB; its copy 1,000 more, which it shares with two workers.
        let middle = walked(2, pages(1_400, 433, 0));
        let worker = |pid| Held { ppid: 2, ..walked(pid, pages(1_400, 433, 0)) };
        let family = [walked(1, pages(400, 100, 0)), middle, worker(3), worker(4)];
        assert_eq!(together_kib(&family), (100 + 3 * 433 + 4 * 5) * MIB);
        assert_eq!(together_kib(&family.map(apart)), (400 + 1_000 + 4 * 5) * MIB);
    }

    #[test]
    fn what_only_copies_have_left_counts_once_while_they_change() {
        let copy = |pid| apart(walked(pid, pages(1_000, 250, 0)));
        let family = [apart(walked(1, pages(10, 10, 10))), copy(2), copy(3), copy(4)];
        assert_eq!(together_kib(&family), (10 + 990 + 4 * 5) * MIB);
    }

    #[test]
    fn other_programs_are_other_families() {
        let other = Held { image: Some((2, 2)), is_copy: false, ppid: 9, ..walked(8, pages(50, 50, 50)) };
        let family = [walked(1, pages(400, 200, 0)), walked(2, pages(400, 200, 0)), apart(other)];
        assert_eq!(together_kib(&family), (450 + 3 * 5) * MIB);
    }

    #[test]
    fn who_shared_with_others_is_walked_again_when_they_go() {
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
    fn a_costly_walk_is_not_repeated_for_ten_times_its_cost() {
        let walk = Walk { at_ns: 1_000, cost_ns: 7_000_000, pss_kib: 1, counted_rss_kib: 1, anon: None };
        let held = Held { walk: Some(walk), ..Held::default() };
        assert!(!held.is_due(60_000_000, false));
        assert!(held.is_due(70_001_000, false));
    }
}
