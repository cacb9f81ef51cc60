//! `/proc/diskstats`: sectors read and written, a line a block device.
//!
//! In:  the file's text. Out: [`Disk`]s in 512-byte sectors, the kernel's unit whatever the disk's own
//! sector size (`Documentation/admin-guide/iostats.rst`).
//! Not here: which of them are whole disks (`disks`).

use super::text::{fields, lines, number};
use crate::error::ParseError;

/// The kernel's sector, for all disks.
pub const SECTOR_BYTES: u64 = 512;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk<'t> {
    /// As in `/dev`.
    pub name: &'t [u8],
    /// Sectors read since boot.
    pub read_sectors: u64,
    /// Sectors written since boot.
    pub written_sectors: u64,
}

/// Parses `/proc/diskstats` line by line; a line that is cut or damaged is an error of its own.
pub fn parse_diskstats(text: &[u8]) -> impl Iterator<Item = Result<Disk<'_>, ParseError>> {
    lines(text).filter(|line| !line.is_empty()).map(|line| {
        let mut columns = fields(line);
        let name = columns.nth(2).ok_or(ParseError::Missing { field: "device name" })?;
        // reads completed, reads merged, sectors read, ms reading, writes completed, merged, sectors written.
        let read_sectors = number("sectors read", columns.nth(2))?;
        let written_sectors = number("sectors written", columns.nth(3))?;
        Ok(Disk { name, read_sectors, written_sectors })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_found_behind_the_name() {
        let text =
            b" 254       0 vda 4434 2253 806242 17641 402 3114 79744 571 0 10212 18394\n 254 1 vda1 1 2 3\n";
        let disks: Vec<_> = parse_diskstats(text).collect();
        assert_eq!(
            disks.first(),
            Some(&Ok(Disk { name: b"vda", read_sectors: 806_242, written_sectors: 79_744 }))
        );
        assert_eq!(disks.get(1), Some(&Err(ParseError::Missing { field: "sectors written" })));
    }
}
