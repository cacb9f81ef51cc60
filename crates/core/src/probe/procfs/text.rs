//! Parses decimal numbers in text files of the kernel, in fields between blanks or after a label.
//!
//! The functions take bytes because process names may contain any byte.

use memchr::memmem;

use crate::error::ParseError;

/// Fields of a text, separated by blanks, tabs or line ends.
pub(super) fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b' ' | b'\t' | b'\n')).filter(|field| !field.is_empty())
}

/// Lines of a text, without the line ends.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let (line, tail) = rest.split_at(end);
        rest = tail.get(1..).unwrap_or_default();
        Some(line)
    })
}

/// Parses `text` as a decimal number; `None` if it contains anything but digits, or on overflow.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let (first, rest) = text.split_first()?;
    std::iter::once(first).chain(rest).try_fold(0_u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

pub(super) fn number(field: &'static str, text: Option<&[u8]>) -> Result<u64, ParseError> {
    let text = text.ok_or(ParseError::Missing { field })?;
    decimal(text).ok_or_else(|| ParseError::NotANumber { field, text: printable(text) })
}

/// The number after a label at the start of a line, such as `VmHWM:`; `None` if no line starts with the label.
///
/// The kernel escapes line ends in process names, so a process name cannot forge a label.
pub(super) fn labelled(field: &'static str, text: &[u8]) -> Result<Option<u64>, ParseError> {
    let at_start = text.starts_with(field.as_bytes()).then_some(0);
    let start = at_start.or_else(|| {
        memmem::find_iter(text, field.as_bytes())
            .find(|at| at.checked_sub(1).and_then(|at| text.get(at)) == Some(&b'\n'))
    });
    let Some(start) = start else { return Ok(None) };
    let behind = text.get(start + field.len()..).unwrap_or_default();
    let line = behind.split(|byte| *byte == b'\n').next().unwrap_or_default();
    number(field, fields(line).next()).map(Some)
}

/// Text for an error message: at most 40 bytes, in one line, without control characters.
pub(super) fn printable(text: &[u8]) -> String {
    text.iter().take(40).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_digits_only_and_fits_64_bits() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"-1", b"+1", b"1 ", b"18446744073709551616", b"0x1", b"\xff"] {
            assert_eq!(decimal(wrong), None, "{}", printable(wrong));
        }
    }

    #[test]
    fn label_is_found_only_at_the_start_of_a_line() {
        assert_eq!(labelled("VmHWM:", b"Name:\tVmHWM: 7\nVmHWM:\t  12 kB\n"), Ok(Some(12)));
        assert_eq!(labelled("VmHWM:", b"Name:\tVmHWM: 7\n"), Ok(None));
        assert!(labelled("VmHWM:", b"VmHWM:").is_err());
    }
}
