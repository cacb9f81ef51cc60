//! `/proc/net/dev`: bytes received and sent, a line an interface.
//!
//! In:  the file's text. Out: [`Interface`]s. Not here: which of them count (`network`).

use super::text::{fields, lines, number};
use crate::error::ParseError;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'t> {
    /// Its name; may hold any byte but `/`, blanks and `:`… of which older kernels allow the last.
    pub name: &'t [u8],
    /// Bytes received since it came up.
    pub received_bytes: u64,
    /// Bytes sent since it came up.
    pub sent_bytes: u64,
}

/// Parses `/proc/net/dev`; the two header lines are passed over.
pub fn parse_net_dev(text: &[u8]) -> impl Iterator<Item = Result<Interface<'_>, ParseError>> {
    lines(text).filter(|line| !line.is_empty() && !line.contains(&b'|')).map(|line| {
        // An alias has a colon in its name (`eth0:1`), and old kernels set no blank behind the last one.
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
    fn bytes_are_found_even_without_a_blank_behind_the_name() {
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
