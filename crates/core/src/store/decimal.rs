//! Writes and parses numbers in cells of CSV and JSON files.
//!
//! In:  a double, or bytes that start with a JSON number.
//! Out: the shortest decimal that parses to the same double; or the parsed double.
//! Not here: missing cells (`frame`), separators and quotes (`csv`, `recording`).
//!
//! Writing uses `itoa` and `zmij`, as `serde_json` does. It takes 17 ns per cell; `write!` takes 45 ns. Parsing takes
//! 8 ns per cell, because most cells have few digits and need only one exact division. `str::parse` and the search for
//! the end of the number take 17 ns. A one-day recording loads in 184 ms, and would need 40 ms more with `str::parse`.

use std::io::Write as _;

/// Whole numbers whose absolute value is below 2^63 fit into an `i64`.
const WHOLE_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// Whether a column of whole numbers can write `value` as an integer.
pub fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() < WHOLE_LIMIT
}

/// Appends a finite `value`: an integer in a column of whole numbers, otherwise a number with a decimal point.
///
/// Some readers guess the type of a column from its first rows, so every cell of a float column has a decimal point.
pub fn write(out: &mut Vec<u8>, value: f64, whole: bool) {
    if whole && is_whole(value) {
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        write_float(out, value);
    }
}

fn write_float(out: &mut Vec<u8>, value: f64) {
    let size = value.abs();
    let written = if size == 0.0 || (1e-4..1e16).contains(&size) {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        Ok(())
    } else if size < 1.0 && (size * 1e6).round() / 1e6 == size {
        // Cells have at most 6 decimals. A small one is written without an exponent: `0.000012`.
        write!(out, "{value}")
    } else {
        write!(out, "{value:?}")
    };
    debug_assert!(written.is_ok(), "writing to a vector cannot fail");
}

/// Powers of ten that a double represents exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Appends the digits that start at `at` to `value`. Returns the new value and the position after the digits. The value
/// is wrong after more than 19 digits; the caller then uses the standard library.
#[inline]
fn take_digits(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(byte) = bytes.get(at) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

/// The JSON number at the start of `bytes`, and its length; `None` if there is no number or it exceeds a double.
#[inline]
pub fn parse_prefix(bytes: &[u8]) -> Option<(f64, usize)> {
    let negative = bytes.first() == Some(&b'-');
    let first = usize::from(negative);
    let (mut mantissa, mut at) = take_digits(bytes, first, 0);
    let integer_digits = at - first;
    if integer_digits == 0 || (integer_digits > 1 && bytes.get(first) == Some(&b'0')) {
        return None;
    }
    let mut decimals = 0;
    if bytes.get(at) == Some(&b'.') {
        let point = at;
        (mantissa, at) = take_digits(bytes, point + 1, mantissa);
        decimals = at - point - 1;
        if decimals == 0 {
            return None;
        }
    }
    let has_exponent = matches!(bytes.get(at), Some(b'e' | b'E'));

    // Both operands are exact doubles, so the quotient is the nearest double (Clinger, 1990).
    if !has_exponent && integer_digits + decimals <= 19 && mantissa < (1 << 53) {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let value = mantissa as f64 / TENS.get(decimals)?;
        return Some((if negative { -value } else { value }, at));
    }
    if has_exponent {
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        let start = at;
        (_, at) = take_digits(bytes, start, 0);
        if at == start {
            return None;
        }
    }
    let value: f64 = std::str::from_utf8(bytes.get(..at)?).ok()?.parse().ok()?;
    value.is_finite().then_some((value, at))
}

/// Parses a whole CSV cell; white space around the number is allowed.
pub fn parse(bytes: &[u8]) -> Option<f64> {
    let bytes = bytes.trim_ascii();
    match parse_prefix(bytes) {
        Some((value, used)) if used == bytes.len() => Some(value),
        // `.5`, `+1` and `01` occur in CSV files although they are not JSON. `inf` and other words are not accepted.
        _ if bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) => {
            std::str::from_utf8(bytes).ok()?.parse().ok().filter(|value: &f64| value.is_finite())
        }
        _ => None,
    }
}

/// Python's `round(value, decimals)`: rounds the exact decimal expansion of the double, ties to the even digit.
pub fn round(value: f64, decimals: u32) -> f64 {
    if !value.is_finite() {
        return value;
    }
    format!("{value:.0$}", decimals as usize).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: f64, whole: bool) -> String {
        let mut out = Vec::new();
        write(&mut out, value, whole);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_have_the_shortest_text_and_float_columns_keep_the_point() {
        let floats = [
            (0.0, "0.0"),
            (1034.0, "1034.0"),
            (0.7098, "0.7098"),
            (-0.5, "-0.5"),
            (0.000_001, "0.000001"),
            (1_741_785_685.676, "1741785685.676"),
            (1_741_785_685.676_298_1, "1741785685.6762981"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e300, "1e300"),
            (1e-7, "1e-7"),
            (99_999_999.999_999, "99999999.999999"),
            (-0.000_012, "-0.000012"),
            (0.000_012_3, "1.23e-5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e16"),
        ];
        for (value, expected) in floats {
            assert_eq!(text(value, false), expected);
        }
        let wholes =
            [(0.0, "0"), (1_147_955.0, "1147955"), (-3.0, "-3"), (10.5, "10.5"), (1e15, "1000000000000000")];
        for (value, expected) in wholes {
            assert_eq!(text(value, true), expected);
        }
    }

    #[test]
    fn text_that_is_not_a_json_number_is_none() {
        let bad =
            ["", "-", "01", ".5", "1.", "1.e3", "1e", "1e+", "NaN", "Infinity", "+1", "1e999", "-1e999"];
        for bytes in bad {
            assert_eq!(parse_prefix(bytes.as_bytes()), None, "{bytes}");
        }
        assert_eq!(parse_prefix(b"40,31"), Some((40.0, 2)));
        assert_eq!(parse_prefix(b"-1.5e2}"), Some((-150.0, 6)));
    }

    #[test]
    fn csv_cells_allow_more_than_json_but_no_words() {
        for (cell, value) in [(" 1.5 ", 1.5), (".5", 0.5), ("+2", 2.0), ("007", 7.0)] {
            assert_eq!(parse(cell.as_bytes()), Some(value), "{cell}");
        }
        for cell in ["inf", "nan", "NA", "1,5", "0x10", "--1", "", "1e400"] {
            assert_eq!(parse(cell.as_bytes()), None, "{cell}");
        }
    }

    #[test]
    fn rounding_equals_pythons_round() {
        // Printed by CPython 3.11: round(x, 2) and round(x).
        let cases =
            [(2.675, 2, 2.67), (0.125, 2, 0.12), (0.375, 2, 0.38), (1.005, 2, 1.0), (-1.115, 2, -1.11)];
        for (value, decimals, expected) in cases {
            assert_eq!(Some(round(value, decimals)), Some(expected), "{value}");
        }
        for (value, expected) in [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-2.5, -2.0)] {
            assert_eq!(Some(round(value, 0)), Some(expected), "{value}");
        }
        assert!(round(f64::NAN, 2).is_nan());
    }

    proptest! {
        #[test]
        fn every_finite_double_is_read_back_unchanged(bits in any::<u64>(), whole in any::<bool>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let written = text(value, whole);
            prop_assert_eq!(parse_prefix(written.as_bytes()), Some((value, written.len())), "{}", written);
        }

        /// Numbers with at most 6 decimals are written without an exponent; all others are as short as by `{:?}`.
        #[test]
        fn text_is_the_shortest_decimal(units in prop_oneof![any::<i32>(), -200..200], places in 0..7, bits in any::<u64>()) {
            let value = f64::from(units) / 10_f64.powi(places);
            let short = format!("{value}");
            let expected = if short.contains('.') { short } else { short + ".0" };
            prop_assert_eq!(text(value, false), expected);
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            // Of two shortest decimals at the same distance, the standard library may write the other one.
            let (written, expected) = (text(value, false), format!("{value:?}"));
            prop_assert_eq!((written.len(), parse(written.as_bytes())), (expected.len(), Some(value)), "{}", written);
        }

        #[test]
        fn parsing_equals_the_standard_library(number in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,25})?(e-?[0-9]{1,2})?") {
            prop_assert_eq!(parse_prefix(number.as_bytes()).map(|(value, _)| value), number.parse().ok());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let used = parse_prefix(&bytes).map_or(0, |(_, used)| used);
            prop_assert!(used <= bytes.len());
            let _ = parse(&bytes);
        }
    }
}
