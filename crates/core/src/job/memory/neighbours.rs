//! Anonymous pages of the machine without those of other large processes.
//!
//! In:  `AnonPages` of the machine; the list of processes, if the counter is disturbed. Out: the counter without the
//! processes outside the job that were largest so far. The machine's counter then moves with the job alone, even if one
//! of these processes allocates and frees memory all the time. Processes of other containers cannot be seen.

use crate::os::pid_path;
use crate::os::root::Root;
use crate::probe::procfs::{parse_statm_anon_pages, read_status};

/// Number of processes outside the job that are followed.
const FOLLOWED: usize = 8;
/// Smaller processes cannot disturb the counter much.
const LARGE_KIB: u64 = 32 * 1024;

/// Large processes outside the job.
#[derive(Debug, Default)]
pub struct Neighbours {
    pids: Vec<u32>,
}

impl Neighbours {
    /// Chooses the processes with the highest high-water marks. Costs one reading of `status` per process of the machine.
    pub fn find(&mut self, root: &Root, is_member: impl Fn(u32) -> bool, buffer: &mut Vec<u8>) {
        let mut pids = Vec::new();
        if root.pids(&mut pids, buffer).is_err() {
            return;
        }
        let mut large: Vec<(u64, u32)> = Vec::new();
        for pid in pids.into_iter().filter(|pid| !is_member(*pid)) {
            let peak_kib = read_status(root, pid, buffer).ok().and_then(|status| status.peak_rss_kib);
            large.extend(peak_kib.filter(|kib| *kib > LARGE_KIB).map(|kib| (kib, pid)));
        }
        large.sort_unstable_by(|one, other| other.cmp(one));
        self.pids = large.into_iter().take(FOLLOWED).map(|(_, pid)| pid).collect();
    }

    /// Anonymous pages of the followed processes now.
    pub fn anon_kib(&self, root: &Root, buffer: &mut Vec<u8>) -> i64 {
        let pages = |pid: &u32| {
            let text = root.read(pid_path(*pid, "statm").as_str(), buffer).ok()?;
            parse_statm_anon_pages(text)
        };
        let pages: u64 = self.pids.iter().filter_map(pages).sum();
        super::signed(pages).saturating_mul(super::page_kib())
    }
}
