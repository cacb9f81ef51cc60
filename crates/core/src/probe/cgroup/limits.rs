//! Limits of a process: CPU quota, CPU set, CPU affinity and memory. A limit of cgroups is the smallest limit of a group
//! and its ancestors.

use super::Limits;
use super::groups::{Group, groups_of};
use crate::os::root::Root;

/// A larger memory limit means "no limit": version 1 then shows a number near 2^63.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// The limits of process `pid` (a number or `self`).
pub fn read_limits(root: &Root, pid: &str) -> Limits {
    Limits { affinity_cpus: affinity_cpus(root, pid), ..group_limits(root, &groups_of(root, pid)) }
}

/// The limits of these groups.
pub(super) fn group_limits(root: &Root, groups: &[Group]) -> Limits {
    let mut found = Limits::default();
    for group in groups {
        for folder in group.upwards() {
            if group.unified || group.has("cpu") {
                found.cpu_cores = tighter(found.cpu_cores, cpu_limit(root, group.unified, folder));
            }
            if group.counts_memory() {
                let file = if group.unified { "memory.max" } else { "memory.limit_in_bytes" };
                let limit = root.text(&format!("{folder}/{file}")).and_then(|text| text.parse().ok());
                found.memory_bytes =
                    tighter(found.memory_bytes, limit.filter(|bytes| *bytes < UNLIMITED_BYTES));
            }
            if group.unified || group.has("cpuset") {
                let file = if group.unified { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
                let cpus = root.text(&format!("{folder}/{file}")).and_then(|text| count_cpus(&text));
                found.cpuset_cpus = tighter(found.cpuset_cpus, cpus);
            }
        }
    }
    found
}

/// Number of CPUs that a process may run on, from `Cpus_allowed_list`, which recorded hosts contain too.
pub(super) fn affinity_cpus(root: &Root, pid: &str) -> Option<u64> {
    let status = root.text(&format!("/proc/{pid}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    count_cpus(list.trim())
}

fn tighter<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// The CPU quota of one group, as a number of CPUs.
pub(super) fn cpu_limit(root: &Root, unified: bool, folder: &str) -> Option<f64> {
    let (quota, period) = if unified {
        let text = root.text(&format!("{folder}/cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        (quota.to_owned(), period.to_owned())
    } else {
        (
            root.text(&format!("{folder}/cpu.cfs_quota_us"))?,
            root.text(&format!("{folder}/cpu.cfs_period_us"))?,
        )
    };
    // `max` (version 2) and `-1` (version 1) mean no limit. Both do not parse as `u32`.
    let (quota, period) = (quota.parse::<u32>().ok()?, period.parse::<u32>().ok()?);
    (quota > 0 && period > 0).then(|| f64::from(quota) / f64::from(period))
}

/// The number of CPUs in a list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u64> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').try_fold(0_u64, |sum, cpus| sum.checked_add(part(cpus)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_a_cpu_list_are_counted() {
        assert_eq!(count_cpus("0-3,8"), Some(5));
        assert_eq!(count_cpus("0"), Some(1));
        for wrong in ["", "3-1", "a", "0-18446744073709551615", "1-18446744073709551615,0"] {
            assert_eq!(count_cpus(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn smaller_limit_wins_and_none_is_no_limit() {
        assert_eq!(tighter(Some(2.0), Some(0.5)), Some(0.5));
        assert_eq!(tighter(None, Some(3)), Some(3));
        assert_eq!(tighter::<u64>(None, None), None);
    }
}
