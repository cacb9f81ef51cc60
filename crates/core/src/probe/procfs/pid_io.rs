//! `/proc/[pid]/io`: bytes that a process read from and wrote to storage.
//!
//! In:  the text of the file. Out: [`PidIo`]. The kernel adds the bytes of a reaped child to those of its parent.

use super::text::labelled;
use crate::error::ParseError;

/// Storage bytes of one process, including its reaped children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidIo {
    pub read_bytes: u64,
    pub write_bytes: u64,
}

pub fn parse_pid_io(text: &[u8]) -> Result<PidIo, ParseError> {
    Ok(PidIo {
        read_bytes: labelled("read_bytes:", text)?.ok_or(ParseError::Missing { field: "read_bytes" })?,
        write_bytes: labelled("write_bytes:", text)?.ok_or(ParseError::Missing { field: "write_bytes" })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rchar_wchar_and_cancelled_writes_are_ignored() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(parse_pid_io(text), Ok(PidIo { read_bytes: 5, write_bytes: 6 }));
    }
}
