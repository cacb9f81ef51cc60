//! Numbers as text: units, durations, money, dates.
//!
//! In:  values in base units (bytes, seconds, USD). Out: short ASCII text.
//! `page.js` formats the values at the cursor with the same tables; a browser test compares the two.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use serde::Serialize;

/// The kind of a value, which determines its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Busy CPUs or GPUs.
    Cores,
    Count,
    /// CPU hours or GiB hours.
    Hours,
    /// Bytes, in powers of 1024.
    Bytes,
    /// Bytes per second, in powers of 1000.
    Rate,
}

const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const RATES: [&str; 6] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"];

/// Smallest value and number of decimals. A number has the decimals of the first entry whose value it reaches, which
/// gives about three significant digits.
pub(crate) const DECIMALS: [(f64, usize); 3] = [(99.95, 0), (9.995, 1), (0.0, 2)];

impl Scale {
    /// Each unit, smallest first: the value from which the next unit is used and its size, in base units, and its name.
    pub fn units(self) -> impl Iterator<Item = (f64, f64, &'static str)> {
        let (base, names): (f64, &[&str]) = match self {
            Self::Cores | Self::Count | Self::Hours => (1.0, &[""]),
            Self::Bytes => (1024.0, &BYTES),
            Self::Rate => (1000.0, &RATES),
        };
        let mut next = 1.0;
        names.iter().enumerate().map(move |(number, name)| {
            let factor = next;
            next *= base;
            // A value that would round up to the next unit is shown in the next unit.
            let below = if number + 1 < names.len() { next * 0.9995 } else { f64::INFINITY };
            (below, factor, *name)
        })
    }

    /// The unit for a value: the size of the unit in base units, and its name.
    pub fn unit(self, value: f64) -> (f64, &'static str) {
        let unit = self.units().find(|(below, ..)| value.abs() < *below);
        unit.map_or((1.0, ""), |(_, factor, name)| (factor, name))
    }

    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        if self == Self::Hours && value > 0.0 && value < 0.005 {
            return "<0.01".to_owned();
        }
        let (factor, unit) = self.unit(value);
        let scaled = value / factor;
        let decimals = match self {
            Self::Count if scaled.fract() == 0.0 => 0,
            Self::Bytes | Self::Rate if factor == 1.0 => 0,
            _ if scaled == 0.0 => 0,
            _ => DECIMALS
                .into_iter()
                .find(|(size, _)| scaled.abs() >= *size)
                .map_or(0, |(_, decimals)| decimals),
        };
        let number = format!("{scaled:.decimals$}");
        if unit.is_empty() { number } else { format!("{number} {unit}") }
    }
}

/// Formats a duration with its two largest units.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_owned();
    }
    if seconds > 0.0 && seconds < 0.1 {
        return format!("{:.1} ms", seconds * 1000.0);
    }
    if seconds < 60.0 {
        let decimals = match seconds {
            whole if whole.fract() == 0.0 => 0,
            seconds => usize::from(seconds < 9.95) + usize::from(seconds < 1.0),
        };
        return format!("{seconds:.decimals$} s");
    }
    let whole = whole(seconds);
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {rest} s"),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats an amount in USD with at least two significant digits.
pub fn usd(amount: f64) -> String {
    let sign = if amount < 0.0 { "-" } else { "" };
    let size = amount.abs();
    let decimals = match size {
        0.0 => 2,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        size if size >= 0.01 => 4,
        size if size >= 0.001 => 5,
        size if size >= 0.0001 => 6,
        _ => 7,
    };
    if size > 0.0 && size < 0.000_000_1 {
        return "under $0.0000001".to_owned();
    }
    format!("{sign}${size:.decimals$}")
}

/// Formats a size that is given in MiB.
pub fn megabytes(mb: f64) -> String {
    Scale::Bytes.show(mb * 1_048_576.0)
}

/// Formats a share as a percentage; 1 is 100 %.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.95 { "under 1 %".to_owned() } else { format!("{percent:.0} %") }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked by the caller; `as` saturates"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Whether a character can change a terminal, or hide or reorder text: control characters (C0, C1), line separators, and
/// invisible and directional format characters. Joiners stay, because scripts and emoji need them.
pub(crate) fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Text that is safe to print, with unprintable characters replaced; line breaks and tabs stay.
pub fn printable(text: &str) -> String {
    let shown = |letter| match letter {
        '\n' | '\t' => letter,
        letter if is_unprintable(letter) => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(shown).collect()
}

/// The name of a signal that can end a job. The numbers are those of `signal(7)` on all supported Linux machines.
pub(crate) fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    names.into_iter().find(|(number, _)| *number == signal).map(|(_, name)| name)
}

/// A time zone as a fixed offset, the same for all times of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Seconds east of UTC.
    pub offset_s: i32,
    /// For example `CET`; empty if unknown.
    pub abbreviation: String,
}

impl Zone {
    pub fn utc() -> Self {
        Self { offset_s: 0, abbreviation: "UTC".to_owned() }
    }

    /// The time zone of this machine at a moment; UTC if unknown.
    pub fn local_at(unix_s: f64) -> Self {
        let Some(moment) = timestamp(unix_s) else { return Self::utc() };
        let system = TimeZone::system();
        let local = system.to_offset_info(moment);
        Self { offset_s: local.offset().seconds(), abbreviation: local.abbreviation().to_owned() }
    }

    /// `CET (UTC+01:00)`, or only the offset if there is no abbreviation.
    pub fn name(&self) -> String {
        let (sign, size) = (if self.offset_s < 0 { '-' } else { '+' }, self.offset_s.unsigned_abs() / 60);
        let offset = match size {
            0 => "UTC".to_owned(),
            size => format!("UTC{sign}{:02}:{:02}", size / 60, size % 60),
        };
        // Zones without an abbreviation are called `+03`, which repeats the offset.
        let is_redundant = self.abbreviation == offset || !self.abbreviation.starts_with(char::is_alphabetic);
        if is_redundant { offset } else { format!("{} ({offset})", self.abbreviation) }
    }

    /// Local date and time; `None` outside of the years 1970 to 9999.
    pub fn at(&self, unix_s: f64) -> Option<Civil> {
        let offset = Offset::from_seconds(self.offset_s).ok()?;
        let local = offset.to_datetime(timestamp(unix_s)?);
        (local.year() >= 1970).then_some(Civil(local))
    }
}

/// Converts Unix seconds, rounded to milliseconds, the precision of recordings.
fn timestamp(unix_s: f64) -> Option<Timestamp> {
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and jiff rejects the ends")]
    let milliseconds = (unix_s * 1000.0).round() as i64;
    unix_s.is_finite().then(|| Timestamp::from_millisecond(milliseconds).ok()).flatten()
}

/// A local date and time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Civil(DateTime);

impl Civil {
    /// `2025-03-12 14:21:25`
    pub fn date_time(&self) -> String {
        self.0.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// `2025-03-12`
    pub fn date(&self) -> String {
        self.0.strftime("%Y-%m-%d").to_string()
    }

    /// `14:21:25`
    pub fn clock(&self) -> String {
        self.0.strftime("%H:%M:%S").to_string()
    }

    /// `14:21`
    pub fn minutes(&self) -> String {
        self.0.strftime("%H:%M").to_string()
    }

    /// `14:21:25.250`
    pub fn fine(&self) -> String {
        self.0.strftime("%H:%M:%S%.3f").to_string()
    }

    /// `12 Mar`
    pub fn day(&self) -> String {
        self.0.strftime("%-d %b").to_string()
    }

    pub fn is_midnight(&self) -> bool {
        (self.0.hour(), self.0.minute(), self.0.second()) == (0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_unit_of_their_size() {
        let bytes = |value| Scale::Bytes.show(value);
        assert_eq!([bytes(0.0), bytes(1023.0), bytes(1024.0)], ["0 B", "1023 B", "1.00 KiB"]);
        assert_eq!(
            [bytes(798_130.0 * 1024.0), bytes(5e12), bytes(2e20)],
            ["779 MiB", "4.55 TiB", "177636 PiB"]
        );
        assert_eq!([Scale::Rate.show(1_500_000.0), Scale::Rate.show(999_999.0)], ["1.50 MB/s", "1.00 MB/s"]);
        assert_eq!(
            [Scale::Cores.show(1.1234), Scale::Cores.show(12.34), Scale::Cores.show(0.0)],
            ["1.12", "12.3", "0"]
        );
        assert_eq!([Scale::Count.show(3.0), Scale::Count.show(2.5)], ["3", "2.50"]);
    }

    #[test]
    fn durations_have_two_units() {
        let cases = [
            (0.0, "0 s"),
            (0.0032, "3.2 ms"),
            (0.25, "0.25 s"),
            (3.21, "3.2 s"),
            (3.0, "3 s"),
            (42.4, "42 s"),
            (62.0, "1 min 2 s"),
            (3600.0 * 5.0 + 120.0, "5 h 2 min"),
            (86_400.0 * 7.0 + 3600.0, "7 d 1 h"),
            (f64::NAN, "unknown"),
            (-1.0, "unknown"),
        ];
        for (seconds, shown) in cases {
            assert_eq!(duration(seconds), shown);
        }
    }

    #[test]
    fn small_amounts_do_not_round_to_zero() {
        assert_eq!(
            [usd(12.345), usd(0.0052), usd(0.000_012), usd(0.0)],
            ["$12.35", "$0.00520", "$0.0000120", "$0.00"]
        );
        assert_eq!([usd(-0.5), usd(1e-12)], ["-$0.500", "under $0.0000001"]);
    }

    #[test]
    fn text_that_changes_a_terminal_is_replaced() {
        assert_eq!(printable("a\u{1b}[31m\r\u{9b}2J\u{202e}b\u{7f}\u{2066}"), "a�[31m��2J�b��");
        assert_eq!(printable("tab\tline\nnaïve 日本 👩‍🚀 می‌خواهم"), "tab\tline\nnaïve 日本 👩‍🚀 می‌خواهم");
    }

    #[test]
    fn moments_have_date_time_and_zone() {
        let zone = Zone { offset_s: 3600, abbreviation: "CET".into() };
        let moment = zone.at(1_741_785_685.25).unwrap();
        assert_eq!(
            (moment.date_time(), zone.name()),
            ("2025-03-12 14:21:25".into(), "CET (UTC+01:00)".into())
        );
        assert_eq!((moment.fine(), moment.day()), ("14:21:25.250".into(), "12 Mar".into()));
        assert_eq!(Zone::utc().name(), "UTC");
        assert_eq!(Zone { offset_s: -12_600, abbreviation: "-0330".into() }.name(), "UTC-03:30");
        assert_eq!(Zone::utc().at(1_709_164_800.0).unwrap().date_time(), "2024-02-29 00:00:00");
        assert_eq!(
            (Zone::utc().at(f64::NAN), Zone::utc().at(-1.0), Zone::utc().at(1e300)),
            (None, None, None)
        );
    }
}
