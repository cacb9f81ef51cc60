//! What one process holds, and what several hold together.
//!
//! In:  RSS at a look, and the last walk over its pages. Out: KiB, each page counted once.
//!
//! Shares add up only where all were taken while the same processes were there. A pool that replaces its workers
//! changes faster than its pages may be walked: there a parent counts all its pages that are of no file, whoever else
//! has them, and each of its copies only what it shares with nobody.

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
    /// What of it is of no file.
    pub anon_kib: Option<u64>,
    pub peak_rss_kib: Option<u64>,
    /// The most RSS that this look saw, before the walk or in it: up to there the mark did not rise later.
    pub most_rss_kib: u64,
    pub swap_kib: Option<u64>,
    pub walk: Option<Walk>,
    /// It runs its parent's program still.
    pub is_copy: bool,
    /// What it may have from its parent: pages, and a part of its mark.
    pub inherited_kib: u64,
    /// Others came or went since the walk, with whom it may share.
    pub is_stale: bool,
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

    /// What a copy holds that its parent does not.
    fn beside_parent_kib(&self) -> u64 {
        let parts = self.walk.and_then(|walk| Some((walk, walk.anon?)));
        parts.map_or_else(
            || self.memory_kib(),
            |(walk, anon)| self.grown_since(walk, walk.rest_kib(anon).saturating_add(anon.own_kib)),
        )
    }

    /// What a parent holds, what its copies share with it included.
    fn with_copies_kib(&self) -> u64 {
        let parts = self.walk.and_then(|walk| Some((walk, walk.anon?, self.anon_kib?)));
        parts.map_or_else(
            || self.memory_kib(),
            |(walk, anon, anon_kib)| walk.rest_kib(anon).saturating_add(anon_kib),
        )
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
    let parent = |one: &Held| if one.is_copy { held.get(find(held, one.ppid)?) } else { None };
    let mut parents: Vec<u32> = held.iter().filter_map(parent).map(|parent| parent.pid).collect();
    parents.sort_unstable();
    let (mut by_shares_kib, mut by_owners_kib, mut of_copies_alone_kib) = (0_u64, 0_u64, 0_u64);
    for one in held {
        let has_shared = one.shared_kib() > slack_kib(one.rss_kib);
        let kib = if let Some(parent) = parent(one) {
            let beyond_parent_kib = one.shared_kib().saturating_sub(parent.shared_kib());
            of_copies_alone_kib = of_copies_alone_kib.saturating_add(beyond_parent_kib);
            one.beside_parent_kib()
        } else if !one.is_copy && (has_shared || parents.binary_search(&one.pid).is_ok()) {
            one.with_copies_kib()
        } else {
            one.memory_kib()
        };
        by_owners_kib = by_owners_kib.saturating_add(kib);
        by_shares_kib = by_shares_kib.saturating_add(one.memory_kib());
    }
    // Only pages that copies share without their parent can make the shares more.
    let bounds_kib = (by_owners_kib, by_owners_kib.saturating_add(of_copies_alone_kib));
    let slack_kib = slack_kib(by_owners_kib);
    let is_within = (bounds_kib.0.saturating_sub(slack_kib)..=bounds_kib.1.saturating_add(slack_kib))
        .contains(&by_shares_kib);
    match shares_add_up(held) {
        true if is_within => by_shares_kib,
        true => by_shares_kib.clamp(bounds_kib.0, bounds_kib.1),
        false => by_owners_kib,
    }
}

/// Whether all were walked while the same processes were there, as far as the walks themselves tell: what one shares,
/// others must have.
fn shares_add_up(held: &[Held]) -> bool {
    let all_kib = held.iter().map(Held::shared_kib).fold(0, u64::saturating_add);
    held.iter().all(|held| {
        let own_kib = held.shared_kib();
        let others_kib = all_kib.saturating_sub(own_kib);
        held.walk.is_some() && !held.is_stale && own_kib <= others_kib.saturating_add(slack_kib(own_kib))
    })
}

/// What moments between two walks may make of a difference.
const fn slack_kib(kib: u64) -> u64 {
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
        let (rss_kib, anon_kib) = (anon.rss_kib, Some(anon.rss_kib));
        let held = Held { pid, ppid: 1, rss_kib, counted_rss_kib: rss_kib, anon_kib, ..Held::default() };
        Held { walk: Some(walk), is_copy: pid > 1, inherited_kib: 400 * MIB, ..held }
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
        let stale = |held: Held| Held { is_stale: true, ..held };
        // Seven copies have gone; one that has 20 MiB of its own was walked long ago, one not at all.
        let new = Held { walk: None, rss_kib: 403 * MIB, ..walked(3, pages(403, 0, 0)) };
        let family = [stale(parent), stale(walked(2, pages(420, 70, 20))), new];
        assert_eq!(together_kib(&family), (400 + 5 + 20 + 5 + 3) * MIB);
        assert_eq!(together_kib(&[stale(parent)]), 405 * MIB, "alone again, and not walked since");
        assert_eq!(together_kib(&[parent]), 405 * MIB, "a copy came and went unseen");
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
