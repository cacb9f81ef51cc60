//! `/proc/[pid]/task/[tid]/schedstat`: what the scheduler gave one thread.
//!
//! In:  the text of the file. Out: nanoseconds. Field order: `Documentation/scheduler/sched-stats.rst` of Linux.

use super::text::{decimal, fields};

/// Time that a thread ran, and time that it was ready to run; `None` if the text is damaged.
pub fn parse_schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut fields = fields(text).map(decimal);
    Some((fields.next()??, fields.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_two_numbers_is_unknown() {
        assert_eq!(parse_schedstat(b"120 34 5\n"), Some((120, 34)));
        for text in [&b""[..], b"12", b"a b c", b"-1 2 3", &[0xff, 0xfe]] {
            assert_eq!(parse_schedstat(text), None);
        }
    }
}
