//! Numbers as text: how one cell is written to CSV and JSON, and read back.
//!
//! In:  a double, or bytes that start with a JSON number.
//! Out: the shortest decimal that reads back as the same double; the double itself.
//! Not here: empty cells (`frame`), separators and quotes (`csv`, `recording`).
//!
//! A recording holds millions of cells, nearly all with few digits. Those take an exact path in
//! integers; the rest goes through the standard library, which is exact as well.

use std::io::Write as _;

/// Whole numbers below this have an exact `i64`, and are written without an exponent.
const WHOLE_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// A double holds every decimal of up to 15 digits apart, so the shortest text of such a value is
/// the one without trailing zeros.
const EXACT_LIMIT: f64 = 1e15;

/// Is the text of `value` in a column of whole numbers a plain integer?
#[must_use]
pub fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() < WHOLE_LIMIT
}

/// Appends a finite `value`; in a column of whole numbers as an integer, else with a point.
///
/// A point in every cell of a float column keeps the column's type the same for readers that guess
/// it from the first rows.
pub fn write(out: &mut Vec<u8>, value: f64, whole: bool) {
    if whole && is_whole(value) {
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
        write_integer(out, value as i64);
    } else {
        write_float(out, value);
    }
}

fn write_integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    write_digits(out, value.unsigned_abs(), 1);
}

/// Appends `value` in decimal, padded with zeros to at least `width` digits.
fn write_digits(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut text = [b'0'; 20];
    let mut start = text.len();
    while value > 0 {
        start -= 1;
        let digit = (value % 10) as u8;
        text[start] = b'0' + digit;
        value /= 10;
    }
    out.extend_from_slice(&text[start.min(text.len() - width)..]);
}

fn write_float(out: &mut Vec<u8>, value: f64) {
    // No column keeps more than 6 decimals; timestamps are the large ones, and keep 3.
    let (decimals, scale, scale_integer) =
        if value.abs() < 1e8 { (6, 1e6, 1_000_000) } else { (3, 1e3, 1_000) };
    let scaled = (value * scale).round();
    #[expect(clippy::float_cmp, reason = "the short text is right only if it is the same double")]
    let exact = scaled.abs() < EXACT_LIMIT && scaled / scale == value;
    if !exact {
        // Writing to a vector cannot fail. `{:?}` is the shortest text, with an exponent where long.
        let _ = write!(out, "{value:?}");
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number below 10^15 by the check above"
    )]
    let scaled = scaled.abs() as u64;
    write_digits(out, scaled / scale_integer, 1);
    out.push(b'.');
    write_digits(out, scaled % scale_integer, decimals);
    let kept = out.iter().rev().take(decimals - 1).take_while(|digit| **digit == b'0').count();
    out.truncate(out.len() - kept);
}

/// Powers of ten that a double holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Takes the digits from `at` on into `value`, which wraps only where there are more than the exact
/// path uses; gives the new value and where they end.
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

/// The JSON number that `bytes` start with, and how many bytes it takes.
///
/// `None` where there is none, or where it is too large for a double.
#[must_use]
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

    // Both operands exact and one operation: the result is the nearest double (Clinger, 1990).
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

/// The number that `bytes` are from end to end, blanks around it aside.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<f64> {
    let bytes = bytes.trim_ascii();
    match parse_prefix(bytes) {
        Some((value, used)) if used == bytes.len() => Some(value),
        // `.5`, `+1` and `01` are no JSON, but people and other programs write them to CSV. Letters
        // other than an exponent are words like `inf`, which are no measurement.
        _ if bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) => {
            std::str::from_utf8(bytes).ok()?.parse().ok().filter(|value: &f64| value.is_finite())
        }
        _ => None,
    }
}

/// `value` to `decimals` places, as Python's `round(value, decimals)`.
///
/// Both round the double's exact decimal expansion, a tie to the even digit.
#[must_use]
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
    fn a_cell_is_as_short_as_it_can_be_and_keeps_its_type() {
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
    fn what_json_does_not_call_a_number_is_none() {
        let bad =
            ["", "-", "01", ".5", "1.", "1.e3", "1e", "1e+", "NaN", "Infinity", "+1", "1e999", "-1e999"];
        for bytes in bad {
            assert_eq!(parse_prefix(bytes.as_bytes()), None, "{bytes}");
        }
        assert_eq!(parse_prefix(b"40,31"), Some((40.0, 2)));
        assert_eq!(parse_prefix(b"-1.5e2}"), Some((-150.0, 6)));
    }

    #[test]
    fn csv_cells_may_be_written_by_hand_but_words_are_not_numbers() {
        for (cell, value) in [(" 1.5 ", 1.5), (".5", 0.5), ("+2", 2.0), ("007", 7.0)] {
            assert_eq!(parse(cell.as_bytes()), Some(value), "{cell}");
        }
        for cell in ["inf", "nan", "NA", "1,5", "0x10", "--1", "", "1e400"] {
            assert_eq!(parse(cell.as_bytes()), None, "{cell}");
        }
    }

    #[test]
    fn rounding_is_pythons() {
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
        /// Whatever is written is read back as the same double, in either kind of column.
        #[test]
        fn every_finite_double_survives(bits in any::<u64>(), whole in any::<bool>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let written = text(value, whole);
            prop_assert_eq!(parse_prefix(written.as_bytes()), Some((value, written.len())), "{}", written);
        }

        /// The exact path writes what the standard library calls the shortest decimal.
        #[test]
        fn the_short_path_gives_the_shortest_text(units in any::<i32>(), places in 0..7) {
            let value = f64::from(units) / 10_f64.powi(places);
            prop_assert_eq!(text(value, false), format!("{value:?}"));
        }

        #[test]
        fn any_digits_are_read_as_the_standard_library_reads_them(number in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,25})?(e-?[0-9]{1,2})?") {
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
