//! Numbers as people read them: units that fit, durations, money, moments.
//!
//! In:  values in base units (bytes, seconds, USD). Out: short text, plain ASCII but for the minus sign.
//! `page.js` has the same rules for values under the cursor; the browser test holds both against each other.

/// How the values of a chart or a figure are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// CPUs or GPUs kept busy.
    Cores,
    /// Things.
    Count,
    /// Bytes, in powers of 1024.
    Bytes,
    /// Bytes a second, in powers of 1000.
    Rate,
}

const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const RATES: [&str; 6] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"];

impl Scale {
    /// Name of this scale in `page.js`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Rate => "rate",
        }
    }

    /// The unit in which a value of this size is best shown: its size in base units, and its name.
    #[must_use]
    pub fn unit(self, value: f64) -> (f64, &'static str) {
        let (base, names) = match self {
            Self::Cores | Self::Count => return (1.0, ""),
            Self::Bytes => (1024.0, BYTES),
            Self::Rate => (1000.0, RATES),
        };
        let mut factor = 1.0;
        for name in names {
            // What would round up to a whole next unit is shown in that one.
            if value.abs() < factor * base * 0.9995 {
                return (factor, name);
            }
            factor *= base;
        }
        (factor / base, names[names.len() - 1])
    }

    /// A value with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let (factor, unit) = self.unit(value);
        let scaled = value / factor;
        let decimals = match self {
            Self::Count if scaled.fract() == 0.0 => 0,
            Self::Bytes | Self::Rate if factor == 1.0 => 0,
            _ => decimals(scaled),
        };
        let number = format!("{scaled:.decimals$}");
        if unit.is_empty() { number } else { format!("{number} {unit}") }
    }
}

/// Decimals that give about three digits that count.
fn decimals(value: f64) -> usize {
    match value.abs() {
        0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    }
}

/// A length of time in its two largest units.
#[must_use]
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

/// USD with at least two digits that count.
#[must_use]
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

/// MB (1024² bytes) as the recommendation counts them.
#[must_use]
pub fn megabytes(mb: f64) -> String {
    Scale::Bytes.show(mb * 1_048_576.0)
}

/// A share of 1.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.95 { "under 1 %".to_owned() } else { format!("{percent:.0} %") }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked or clamped by the callers; `as` stops at the ends"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Signals that end jobs, by `signal(7)`; the numbers are the same on all Linux machines we run on.
#[must_use]
pub fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
    ];
    names.into_iter().find(|(number, _)| *number == signal).map(|(_, name)| name)
}

/// Where the clock on the wall stands: one offset for the whole page, which is named beside every moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// East of Greenwich.
    pub offset_s: i32,
    /// Such as `CET`; empty when it has none.
    pub abbreviation: String,
}

impl Zone {
    /// Greenwich.
    #[must_use]
    pub fn utc() -> Self {
        Self { offset_s: 0, abbreviation: "UTC".to_owned() }
    }

    /// That of this machine at a moment; Greenwich where it cannot be told.
    #[must_use]
    pub fn local_at(unix_s: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "`as` stops at the ends, which no clock shows")]
        let found = crate::sys::local_zone(unix_s as i64);
        found.map_or_else(Self::utc, |(offset_s, abbreviation)| Self { offset_s, abbreviation })
    }

    /// `CET (UTC+01:00)`, or as much of it as says something.
    #[must_use]
    pub fn name(&self) -> String {
        let (sign, size) = (if self.offset_s < 0 { '-' } else { '+' }, self.offset_s.unsigned_abs() / 60);
        let offset = match size {
            0 => "UTC".to_owned(),
            size => format!("UTC{sign}{:02}:{:02}", size / 60, size % 60),
        };
        // Zones without letters of their own are called `+03` and the like, which the offset says too.
        let says_nothing = self.abbreviation == offset || !self.abbreviation.starts_with(char::is_alphabetic);
        if says_nothing { offset } else { format!("{} ({offset})", self.abbreviation) }
    }

    /// Date and time at a moment.
    #[must_use]
    pub fn at(&self, unix_s: f64) -> Option<Civil> {
        let local_s = unix_s + f64::from(self.offset_s);
        // Years 1970 to 9999; what lies outside is no date of a run.
        (0.0..253_402_300_800.0).contains(&local_s).then(|| Civil::new(local_s))
    }
}

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Civil {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
    milliseconds: u64,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Civil {
    fn new(local_s: f64) -> Self {
        let milliseconds = whole(local_s * 1000.0);
        let (seconds, milliseconds) = (milliseconds / 1000, milliseconds % 1000);
        // Days in eras of 400 years that start on 1 March, so that the leap day comes last.
        let days = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted + 2) / 5 + 1,
            second_of_day: seconds % 86_400,
            milliseconds,
        }
    }

    /// `2025-03-12 14:21:25`
    #[must_use]
    pub fn date_time(&self) -> String {
        format!("{} {}", self.date(), self.clock())
    }

    /// `2025-03-12`
    #[must_use]
    pub fn date(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// `14:21:25`
    #[must_use]
    pub fn clock(&self) -> String {
        format!("{}:{:02}", self.minutes(), self.second_of_day % 60)
    }

    /// `14:21`
    #[must_use]
    pub fn minutes(&self) -> String {
        format!("{:02}:{:02}", self.second_of_day / 3600, self.second_of_day / 60 % 60)
    }

    /// `14:21:25.250`
    #[must_use]
    pub fn fine(&self) -> String {
        format!("{}.{:03}", self.clock(), self.milliseconds)
    }

    /// `12 Mar`
    #[must_use]
    pub fn day(&self) -> String {
        let month = usize::try_from(self.month - 1).ok().and_then(|month| MONTHS.get(month));
        format!("{} {}", self.day, month.unwrap_or(&""))
    }

    /// The first moment of a day.
    #[must_use]
    pub fn is_midnight(&self) -> bool {
        self.second_of_day == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_get_the_unit_that_fits() {
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
    fn durations_show_their_two_largest_units() {
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
    fn money_never_rounds_to_nothing() {
        assert_eq!(
            [usd(12.345), usd(0.0052), usd(0.000_012), usd(0.0)],
            ["$12.35", "$0.00520", "$0.0000120", "$0.00"]
        );
        assert_eq!([usd(-0.5), usd(1e-12)], ["-$0.500", "under $0.0000001"]);
    }

    #[test]
    fn moments_have_a_date_a_time_and_a_zone() {
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

    proptest! {
        /// Counting days by hand gives the same date.
        #[test]
        fn dates_follow_the_calendar(day in 0_u64..150_000) {
            let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            let (mut year, mut rest) = (1970, day);
            while rest >= 365 + u64::from(leap(year)) {
                rest -= 365 + u64::from(leap(year));
                year += 1;
            }
            let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let mut month = 0;
            while rest >= lengths[month] {
                rest -= lengths[month];
                month += 1;
            }
            let expected = format!("{year:04}-{:02}-{:02} 00:00:00", month + 1, rest + 1);
            #[expect(clippy::cast_precision_loss, reason = "a few thousand days")]
            let moment = Zone::utc().at(day as f64 * 86_400.0).unwrap();
            prop_assert_eq!(moment.date_time(), expected);
        }
    }
}
