//! `/proc/diskstats`: sectors read and written, one line per block device.
//!
//! In:  the text of the file. Out: [`Disk`]s in sectors of 512 bytes, the kernel's unit for all disks
//! (`Documentation/admin-guide/iostats.rst`).
//! Not here: the choice of whole disks (`disks`).

use super::text::{fields, lines, number};
use crate::error::ParseError;

pub const SECTOR_BYTES: u64 = 512;

/// One line of the file. Sectors are counted since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk<'t> {
    pub name: &'t [u8],
    pub read_sectors: u64,
    pub written_sectors: u64,
}

/// Parses one disk per line. A damaged line is an error; the lines after it are still parsed.
pub fn parse_diskstats(text: &[u8]) -> impl Iterator<Item = Result<Disk<'_>, ParseError>> {
    lines(text).filter(|line| !line.is_empty()).map(|line| {
        let mut columns = fields(line);
        let name = columns.nth(2).ok_or(ParseError::Missing { field: "device name" })?;
        // Fields after the name: reads, merged reads, sectors read, ms, writes, merged writes, sectors written.
        let read_sectors = number("sectors read", columns.nth(2))?;
        let written_sectors = number("sectors written", columns.nth(3))?;
        Ok(Disk { name, read_sectors, written_sectors })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_parsed_and_a_truncated_line_is_an_error() {
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
