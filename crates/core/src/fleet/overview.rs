//! What the page of a fleet shows: jobs with their trend and advice, totals, and how runs use what they request.
//!
//! In:  a [`Dataset`], read once. Out: [`Overview`].
//! Not here: the sums by job (`summary`), HTML (`page`).

use std::collections::{BTreeMap, HashMap};

use jiff::civil::Date;

use super::dataset::{Dataset, DatasetError};
use super::summary::{By, Groups, Line};
use super::table::Table;

/// Shares of a request in use: 0 to 10 %, …, 90 to 100 %, and more.
pub const SHARES: usize = 11;
/// Days of use below which a month is not extrapolated.
const LEAST_DAYS: f64 = 7.0;
const MONTH_DAYS: f64 = 30.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Columns of the runs beside those of the sums.
const COLUMNS: [&str; 6] =
    ["asked_cpus", "asked_memory_bytes", "asked_gpus", "advice_cpus", "advice_memory_bytes", "advice_gpus"];

#[derive(Debug, Default)]
pub struct Overview {
    /// Sums by job, the most savings first.
    pub lines: Vec<Line>,
    pub jobs: HashMap<Option<String>, Job>,
    /// The first and last day with runs.
    pub days: Option<(Date, Date)>,
    /// Runs by the share of their CPU hours, and of their GiB hours, that they used.
    pub cpu_shares: [u64; SHARES],
    pub memory_shares: [u64; SHARES],
}

#[derive(Debug, Default)]
pub struct Job {
    /// CPU hours requested and used, by days since the first day of the overview.
    pub days: BTreeMap<usize, [f64; 2]>,
    /// Of the newest run.
    pub asked: Size,
    pub advice: Size,
}

/// The size of a request, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    pub cpus: Option<f64>,
    pub gib: Option<f64>,
    pub gpus: Option<f64>,
}

impl Dataset {
    /// Reads all runs that started at `since_s` or later, in Unix seconds.
    pub fn overview(&self, since_s: Option<f64>) -> Result<Overview, DatasetError> {
        let mut groups = Groups::new(&By::Job);
        let columns = [&groups.columns()[..], &COLUMNS[..]].concat();
        let mut overview = Overview::default();
        self.each_run(&columns, since_s, |table, row, day| {
            groups.add(table, row, day);
            overview.add(table, row, day.parse().ok());
        })?;
        overview.lines = groups.lines();
        Ok(overview)
    }
}

impl Overview {
    fn add(&mut self, table: &Table, row: usize, day: Option<Date>) {
        let number = |column: &str| table.number(column, row);
        let (asked, used) = (number("cpu_hours_asked"), number("cpu_hours_used"));
        count(&mut self.cpu_shares, asked, used);
        count(&mut self.memory_shares, number("gib_hours_asked"), number("gib_hours_used"));
        let job = self.jobs.entry(table.text("job", row).map(str::to_owned)).or_default();
        let size = |of: &str| Size {
            cpus: number(&format!("{of}_cpus")),
            gib: number(&format!("{of}_memory_bytes")).map(|bytes| bytes / GIB),
            gpus: number(&format!("{of}_gpus")),
        };
        let advice = size("advice");
        if advice != Size::default() {
            (job.asked, job.advice) = (size("asked"), advice);
        }
        let Some(day) = day else { return };
        // Runs come in order of time.
        let (first, _) = self.days.unwrap_or((day, day));
        self.days = Some((first, day));
        let sums = job.days.entry(days_between(first, day)).or_default();
        sums[0] += asked.unwrap_or(0.0);
        sums[1] += used.unwrap_or(0.0);
    }

    /// Number of days from the first to the last day with runs.
    pub fn length_days(&self) -> usize {
        self.days.map_or(0, |(first, last)| days_between(first, last) + 1)
    }

    /// The factor from these days to a month; `None` if they are too few.
    #[expect(clippy::cast_precision_loss, reason = "a number of days")]
    pub fn month(&self) -> Option<f64> {
        let days = self.length_days() as f64;
        (days >= LEAST_DAYS).then_some(MONTH_DAYS / days)
    }
}

fn days_between(first: Date, day: Date) -> usize {
    usize::try_from(day.duration_since(first).as_hours() / 24).unwrap_or(0)
}

/// Counts a run by the share that it used.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is not negative, and `min` follows"
)]
fn count(shares: &mut [u64; SHARES], asked: Option<f64>, used: Option<f64>) {
    if let (Some(asked), Some(used)) = (asked.filter(|asked| *asked > 0.0), used) {
        let share = used.max(0.0) / asked;
        // Exactly 100 % is no more than was requested.
        let at = if share <= 1.0 { ((share * 10.0) as usize).min(SHARES - 2) } else { SHARES - 1 };
        shares[at] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted_by_tenths() {
        let mut shares = [0; SHARES];
        for used in [0.0, 0.99, 1.0, 5.5, 10.0, 10.1] {
            count(&mut shares, Some(10.0), Some(used));
        }
        count(&mut shares, None, Some(1.0));
        count(&mut shares, Some(0.0), Some(1.0));
        assert_eq!(shares, [2, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_month_is_extrapolated_from_a_week_or_more() {
        let day = |text: &str| text.parse().ok();
        let of = |last: &str| Overview { days: day("2026-02-27").zip(day(last)), ..Overview::default() };
        assert_eq!((of("2026-03-01").length_days(), of("2026-03-01").month()), (3, None));
        assert_eq!(of("2026-03-13").month(), Some(2.0));
    }
}
