//! Options of `list`, `show` and `rm`.

use std::time::SystemTime;

use clap::Args;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::record::tag;
use super::{AdviceArgs, JsonArgs, RecordingArgs};

/// The values of `--status`.
const STATUSES: [&str; 7] =
    ["finished", "failed", "killed", OUT_OF_MEMORY, "ended", "detached", "tracker_died"];
/// Matches runs that were killed for lack of memory, whatever their status.
pub const OUT_OF_MEMORY: &str = "out_of_memory";

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only the runs of this job
    #[arg(short, long, value_name = "NAME")]
    pub job: Option<String>,
    /// List only runs with this tag; repeatable
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,
    /// List only runs that ended this way
    #[arg(long, value_name = "STATUS", value_parser = STATUSES)]
    pub status: Option<String>,
    /// List only runs that started since then: a date, a date and time, or an age, for example 2026-03-12 or 7d
    #[arg(long, value_name = "DATE|AGE", value_parser = since)]
    pub since: Option<f64>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Show what each program of the job used
    #[arg(long, conflicts_with = "json")]
    pub programs: bool,
    /// Show what each phase of the job used
    #[arg(long, conflicts_with_all = ["json", "programs"])]
    pub phases: bool,
    #[command(flatten)]
    pub advice: AdviceArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub struct RmArgs {
    /// `last`, or job names or ids from the history
    #[arg(group = "which", value_name = "RUN", conflicts_with_all = ["job", "older_than"])]
    pub runs: Vec<String>,
    /// Delete all runs of this job
    #[arg(short, long, group = "which", value_name = "NAME")]
    pub job: Option<String>,
    /// Delete all runs that started more than DAYS days ago
    #[arg(long, group = "which", value_name = "DAYS", value_parser = days, allow_negative_numbers = true)]
    pub older_than: Option<f64>,
    #[command(flatten)]
    pub format: JsonArgs,
}

fn days(text: &str) -> Result<f64, String> {
    let days = text.parse().ok().filter(|days: &f64| days.is_finite() && *days >= 0.0);
    days.ok_or_else(|| "expected a number of days, 0 or more".to_owned())
}

/// Unix seconds of a local date or time, or of an age such as `12h` or `2 weeks`.
pub fn since(text: &str) -> Result<f64, String> {
    moment(text.trim(), SystemTime::now())
        .ok_or_else(|| "expected a date or an age, for example 2026-03-12, 2026-03-12T14:21 or 7d".to_owned())
}

fn moment(text: &str, now: SystemTime) -> Option<f64> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_duration().as_secs_f64());
    }
    if let Ok(local) = text.parse::<DateTime>() {
        return Some(local.to_zoned(TimeZone::system()).ok()?.timestamp().as_duration().as_secs_f64());
    }
    let age = text.parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let now = Timestamp::try_from(now).ok()?;
    (age >= SignedDuration::ZERO).then_some(now.as_duration().as_secs_f64() - age.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_dates_and_ages() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (text, expected) in [
            ("7d", 1_000_000.0 - 7.0 * 86_400.0),
            ("2 weeks", 1_000_000.0 - 14.0 * 86_400.0),
            ("12h", 1_000_000.0 - 43_200.0),
            ("1h 30min", 1_000_000.0 - 5400.0),
            ("1970-01-02T00:00Z", 86_400.0),
        ] {
            assert_eq!(moment(text, now), Some(expected), "{text}");
        }
        let local = moment("2025-03-12", now).unwrap();
        assert!((local - 1_741_737_600.0).abs() <= 86_400.0, "{local}");
        assert_eq!(moment("2025-03-12 06:00", now).unwrap() - local, 21_600.0);
        for text in ["", "yesterday", "7", "-7d", "2025-13-01", "7 apples"] {
            assert_eq!(moment(text, now), None, "{text}");
        }
    }
}
