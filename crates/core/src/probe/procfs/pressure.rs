//! `/proc/pressure/{cpu,memory,io}`: pressure stall information (`Documentation/accounting/psi.rst`).
//!
//! In:  the text of the file. Out: time since boot in which at least one task waited for the resource, in µs.

use super::text::{decimal, fields, printable};
use crate::error::ParseError;

pub fn parse_some_us(text: &[u8]) -> Result<u64, ParseError> {
    let some = text.strip_prefix(b"some ").ok_or(ParseError::Missing { field: "some" })?;
    let total = fields(some)
        .find_map(|field| field.strip_prefix(b"total="))
        .ok_or(ParseError::Missing { field: "total" })?;
    decimal(total).ok_or_else(|| ParseError::NotANumber { field: "total", text: printable(total) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_of_the_line_some_is_used() {
        let text = b"some avg10=0.25 avg60=1.47 avg300=0.59 total=2435066\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(parse_some_us(text), Ok(2_435_066));
        assert_eq!(parse_some_us(b"some avg10=0"), Err(ParseError::Missing { field: "total" }));
    }
}
