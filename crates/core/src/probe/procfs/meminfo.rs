//! `/proc/meminfo`: memory of the machine.
//!
//! In:  the text of the file. Out: [`Meminfo`] in KiB. Meaning of the lines: `proc_meminfo(5)`.

use super::text::{fields, lines, number};
use crate::error::ParseError;
use crate::probe::snapshot::MachineMemory;

/// Values of the file. A field is `None` if this kernel does not write its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meminfo {
    pub total_kib: Option<u64>,
    pub free_kib: Option<u64>,
    pub buffers_kib: Option<u64>,
    /// Line `Cached`.
    pub page_cache_kib: Option<u64>,
    /// Line `SReclaimable`.
    pub reclaimable_kib: Option<u64>,
    pub active_kib: Option<u64>,
    pub inactive_kib: Option<u64>,
    /// Line `AnonPages`: anonymous pages of all processes, each page once.
    pub anon_kib: Option<u64>,
    /// Line `Mapped`: pages of files and of shared memory that a process maps, each page once.
    pub mapped_kib: Option<u64>,
}

impl Meminfo {
    /// Page cache and reclaimable kernel memory.
    pub fn cached_kib(&self) -> Option<u64> {
        // Kernels before 2.6.19 have no SReclaimable.
        self.page_cache_kib?.checked_add(self.reclaimable_kib.unwrap_or(0))
    }

    pub fn machine_memory(&self) -> MachineMemory {
        MachineMemory {
            free_kib: self.free_kib,
            used_kib: self.used_kib(),
            buffers_kib: self.buffers_kib,
            cached_kib: self.cached_kib(),
            active_kib: self.active_kib,
            inactive_kib: self.inactive_kib,
        }
    }

    /// Total minus free, buffers and cached; `None` if the lines contradict each other.
    pub fn used_kib(&self) -> Option<u64> {
        self.total_kib?
            .checked_sub(self.free_kib?)?
            .checked_sub(self.buffers_kib?)?
            .checked_sub(self.cached_kib()?)
    }
}

pub fn parse_meminfo(text: &[u8]) -> Result<Meminfo, ParseError> {
    let mut found = Meminfo::default();
    for line in lines(text) {
        let slot = match line.split(|byte| *byte == b':').next().unwrap_or_default() {
            b"MemTotal" => &mut found.total_kib,
            b"MemFree" => &mut found.free_kib,
            b"Buffers" => &mut found.buffers_kib,
            b"Cached" => &mut found.page_cache_kib,
            b"SReclaimable" => &mut found.reclaimable_kib,
            b"Active" => &mut found.active_kib,
            b"Inactive" => &mut found.inactive_kib,
            b"AnonPages" => &mut found.anon_kib,
            b"Mapped" => &mut found.mapped_kib,
            _ => continue,
        };
        *slot = Some(number("meminfo", fields(line).nth(1))?);
        // The kernel writes `SReclaimable` after all other lines that are read here.
        if found.reclaimable_kib.is_some() {
            break;
        }
    }
    if found == Meminfo::default() { Err(ParseError::Missing { field: "MemTotal" }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"MemTotal:  1000 kB\nMemFree:  400 kB\nBuffers: 50 kB\nCached: 100 kB\nSwapCached: 9 kB\nActive: 70 kB\nInactive: 80 kB\nActive(anon): 1 kB\nSReclaimable: 25 kB\n";

    #[test]
    fn used_is_total_minus_free_buffers_and_cached() {
        let found = parse_meminfo(TEXT).unwrap();
        assert_eq!(
            (found.cached_kib(), found.used_kib(), found.active_kib),
            (Some(125), Some(425), Some(70))
        );
    }

    #[test]
    fn contradicting_lines_give_no_used_memory() {
        let text = String::from_utf8(TEXT.to_vec())
            .unwrap()
            .replace("MemFree:  400", "MemFree: 18446744073709551615");
        assert_eq!(parse_meminfo(text.as_bytes()).unwrap().used_kib(), None);
    }
}
