//! `/proc/loadavg`: the pid that was given to the newest process or thread.
//!
//! In:  the text of the file. Out: the last pid in the PID namespace of the reader (`proc_loadavg(5)`).

use super::text::{fields, number};
use crate::error::ParseError;

pub fn parse_last_pid(text: &[u8]) -> Result<u32, ParseError> {
    let pid = number("last pid", fields(text).nth(4))?;
    u32::try_from(pid).map_err(|_| ParseError::NotANumber { field: "last pid", text: pid.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_pid_is_the_fifth_field() {
        assert_eq!(parse_last_pid(b"0.00 0.17 0.21 2/78 9329\n"), Ok(9329));
        assert!(parse_last_pid(b"0.00 0.17 0.21 2/78\n").is_err());
    }
}
