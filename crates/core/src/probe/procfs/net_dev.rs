//! `/proc/net/dev`: bytes received and sent, one line per interface.
//!
//! In:  the text of the file. Out: [`Interface`]s. Not here: the choice of interfaces (`network`).

use super::text::{fields, lines, number};
use crate::error::ParseError;

/// One line of the file. Bytes are counted since the interface was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'t> {
    /// The name may contain any bytes except `/` and blanks. Newer kernels also reject `:`.
    pub name: &'t [u8],
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// Parses one interface per line, after two header lines.
pub fn parse_net_dev(text: &[u8]) -> impl Iterator<Item = Result<Interface<'_>, ParseError>> {
    lines(text).filter(|line| !line.is_empty() && !line.contains(&b'|')).map(|line| {
        // The name ends at the last colon: an alias contains a colon (`eth0:1`). Old kernels write no blank after it.
        let colon = memchr::memrchr(b':', line).ok_or(ParseError::Missing { field: "interface" })?;
        let (name, numbers) = line.split_at(colon);
        let mut columns = fields(numbers.get(1..).unwrap_or_default());
        Ok(Interface {
            name: name.trim_ascii(),
            received_bytes: number("received bytes", columns.next())?,
            sent_bytes: number("sent bytes", columns.nth(7))?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_after_the_name_is_optional() {
        let text = b"Inter-|   Receive  |  Transmit\n face |bytes    packets |bytes\n  eth0:9005506 287 0 0 0 0 0 0 13247 149 0 0 0 0 0 0\neth0:1: 5 0 0 0 0 0 0 0 6 0 0 0 0 0 0 0\n";
        let found: Vec<_> = parse_net_dev(text).map(Result::unwrap).collect();
        assert_eq!(
            found,
            [
                Interface { name: b"eth0", received_bytes: 9_005_506, sent_bytes: 13_247 },
                Interface { name: b"eth0:1", received_bytes: 5, sent_bytes: 6 },
            ]
        );
    }
}
