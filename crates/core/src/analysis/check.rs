//! Budgets of a run: limits for its figures, given by the user or by other runs.
//!
//! In:  a run, budgets such as `memory=4GiB`, other runs and a tolerance. Out: [`Check`], an outcome per budget.
//! Not here: its display and its exit status (the command).
//!
//! A budget on a figure that was not measured counts as broken.

use std::str::FromStr;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::analysis::compare::{Reader, Selection, Side};
use crate::analysis::figures::{FIGURES, Figure, Unit};
use crate::market::catalog::Catalog;
use crate::store::history::History;

const SECONDS: [(&str, f64); 8] = [
    ("", 1.0),
    ("ms", 0.001),
    ("s", 1.0),
    ("sec", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];
const BYTES: [(&str, f64); 9] = [
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
];
const COUNT: [(&str, f64); 1] = [("", 1.0)];
const USD: [(&str, f64); 2] = [("", 1.0), ("usd", 1.0)];

/// The highest value that a figure may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Position in [`FIGURES`].
    figure: usize,
    /// Highest value, in the base unit of the figure: bytes, seconds, US dollars.
    pub limit: f64,
}

/// Why a budget is not valid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BudgetError {
    #[error("expected NAME=LIMIT, for example memory=4GiB")]
    NoLimit,
    #[error("unknown budget `{name}`; known are {known}")]
    Name { name: String, known: String },
    #[error("`{limit}` is not {expected}")]
    Limit { limit: String, expected: &'static str },
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let (name, limit) = text.split_once('=').ok_or(BudgetError::NoLimit)?;
        let named = |name: &str| FIGURES.iter().position(|figure| figure.budget == name);
        let mut figure = named(name.trim()).ok_or_else(|| BudgetError::Name {
            name: name.trim().to_owned(),
            known: FIGURES.map(|figure| figure.budget).join(", "),
        })?;
        // CPUs have no unit: `cpu=10min` is a limit of the CPU time.
        if name.trim() == "cpu" && limit.trim().ends_with(char::is_alphabetic) {
            figure = named("cpu-time").unwrap_or(figure);
        }
        let unit = FIGURES[figure].unit;
        let expected = || BudgetError::Limit { limit: limit.trim().to_owned(), expected: unit.expected() };
        Ok(Self { figure, limit: unit.parse(limit).ok_or_else(expected)? })
    }
}

impl Unit {
    fn expected(self) -> &'static str {
        match self {
            Self::Seconds => "a duration, for example 90s, 10min or 1h30min",
            Self::Count => "a number, for example 1.5",
            Self::Bytes => "a size with a unit, for example 512MiB, 4GiB or 4GB",
            Self::Usd => "an amount in US dollars, for example 0.50",
        }
    }

    /// The sum of the numbers with their units, as in `1h30min`; `None` if the text is not valid.
    fn parse(self, text: &str) -> Option<f64> {
        let units: &[(&str, f64)] = match self {
            Self::Seconds => &SECONDS,
            Self::Count => &COUNT,
            Self::Bytes => &BYTES,
            Self::Usd => &USD,
        };
        let text = text.to_ascii_lowercase();
        let mut rest = text.trim().trim_start_matches(if self == Self::Usd { "$" } else { "" });
        let mut sum = 0.0;
        loop {
            let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
            let (number, tail) = rest.split_at(rest.find(|letter| !is_number(letter)).unwrap_or(rest.len()));
            let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
            let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
            sum += number.parse::<f64>().ok().filter(|number| number.is_finite())? * factor;
            // Only durations have several parts.
            match (tail, self) {
                ("", _) => return Some(sum),
                (_, Self::Seconds) => rest = tail,
                _ => return None,
            }
        }
    }
}

/// Whether a figure keeps a budget.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub figure: &'static Figure,
    /// `None` if the figure was not measured.
    pub value: Option<f64>,
    pub limit: f64,
    /// The other runs that the limit comes from: their mean, and how to name them.
    reference: Option<(f64, String)>,
    tolerance_percent: f64,
}

impl Outcome {
    pub fn is_kept(&self) -> bool {
        self.value.is_some_and(|value| value <= self.limit)
    }

    /// What the figure is and what it may be, in words.
    pub fn message(&self) -> String {
        let name = self.figure.name;
        let limit = match &self.reference {
            None => format!("the budget of {}", self.figure.show(self.limit)),
            Some((mean, _)) => format!("{} of {}", self.figure.show(*mean), self.origin()),
        };
        match self.value.map(|value| self.figure.show(value)) {
            None => format!("{name} is unknown and cannot be held against {limit}"),
            Some(value) if self.is_kept() => format!("{name} {value} is within {limit}"),
            Some(value) => format!("{name} {value} exceeds {limit}{}", self.excess()),
        }
    }

    /// By how much a budget is exceeded; empty for a limit that other runs give, which has its tolerance.
    fn excess(&self) -> String {
        let value = self.value.filter(|_| self.reference.is_none());
        value.map(|value| format!(" by {}", self.figure.show(value - self.limit))).unwrap_or_default()
    }

    /// Where the limit comes from: the tolerance and the other runs; empty for a budget.
    pub fn origin(&self) -> String {
        let shown = |(_, runs): &(f64, String)| format!("{runs} + {} %", self.tolerance_percent);
        self.reference.as_ref().map(shown).unwrap_or_default()
    }

    /// Values are in the unit that the name of the figure has.
    fn json(&self) -> Value {
        json!({
            "figure": self.figure.key,
            "value": self.value,
            "limit": self.limit,
            "reference": self.reference.as_ref().map(|(mean, _)| mean),
            "is_kept": self.is_kept(),
            "message": self.message(),
        })
    }
}

/// The budgets of a run.
#[derive(Debug)]
pub struct Check {
    pub run: Side,
    /// The runs that the run is checked against.
    pub against: Option<Side>,
    pub outcomes: Vec<Outcome>,
    /// Ids of runs of the history that cannot be read.
    pub unreadable: Vec<String>,
}

impl Check {
    /// Checks a run against budgets, and against other runs: with a tolerance of 10 %, duration, CPU time, memory, VRAM and
    /// cost may exceed their means by 10 %. Of a job, the `latest` runs count, without the run itself.
    pub fn of(
        run: &Selection,
        budgets: &[Budget],
        against: Option<(&Selection, f64)>,
        history: Option<&History>,
        latest: usize,
        catalog: &mut Catalog,
    ) -> Self {
        let mut reader = Reader::new(history, latest, catalog, &[run]);
        let side = reader.side(run);
        let mut outcomes: Vec<_> = budgets
            .iter()
            .map(|budget| Outcome {
                figure: &FIGURES[budget.figure],
                value: side.mean(budget.figure),
                limit: budget.limit,
                reference: None,
                tolerance_percent: 0.0,
            })
            .collect();
        let against = against.map(|(selection, tolerance)| (reader.side(selection), tolerance));
        if let Some((others, tolerance)) = &against {
            let name = match others.count() {
                1 => others.name.clone(),
                runs => format!("{} ({runs} runs)", others.name),
            };
            for (number, figure) in FIGURES.iter().enumerate().filter(|(_, figure)| figure.is_burden()) {
                // Not every machine has a GPU or a price.
                let is_used = |both: &(f64, f64)| !figure.is_optional() || *both != (0.0, 0.0);
                let both = side.mean(number).zip(others.mean(number)).filter(is_used);
                if let Some((value, mean)) = both {
                    outcomes.push(Outcome {
                        figure,
                        value: Some(value),
                        limit: mean * (1.0 + tolerance / 100.0),
                        reference: Some((mean, name.clone())),
                        tolerance_percent: *tolerance,
                    });
                }
            }
        }
        let against = against.map(|(side, _)| side);
        Self { run: side, against, outcomes, unreadable: reader.unreadable }
    }

    /// All figures of the run by their keys, also those without a budget; null if not measured.
    pub fn figures(&self) -> Map<String, Value> {
        let value =
            |(number, figure): (usize, &Figure)| (figure.key.to_owned(), json!(self.run.mean(number)));
        FIGURES.iter().enumerate().map(value).collect()
    }

    pub fn json(&self) -> Value {
        json!({
            "run": self.run.runs.first(),
            "against": self.against,
            "is_passed": self.is_passed(),
            "checks": self.outcomes.iter().map(Outcome::json).collect::<Vec<_>>(),
        })
    }

    /// Why figures of the run may be too low: it did not reach its end.
    pub fn warning(&self) -> Option<String> {
        let how = match self.run.runs.first()?.get("status")?.as_str()? {
            "failed" => "the run failed",
            "killed" => "the run was killed",
            "tracker_died" => "the tracker was killed before the end of the run",
            _ => return None,
        };
        Some(format!("{how}: a complete run may need more time and memory"))
    }

    /// Whether all budgets are kept.
    pub fn is_passed(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Option<(&'static str, f64)> {
        let budget: Budget = text.parse().ok()?;
        Some((FIGURES[budget.figure].key, budget.limit))
    }

    #[test]
    fn budgets_have_names_and_units() {
        for (text, key, expected) in [
            ("memory=4GiB", "memory_peak_bytes", 4.0 * 1_073_741_824.0),
            ("memory=1.5 gb", "memory_peak_bytes", 1.5e9),
            ("duration=10min", "duration_seconds", 600.0),
            ("duration=1h30min", "duration_seconds", 5400.0),
            ("duration=1 h 30 min", "duration_seconds", 5400.0),
            ("duration=90", "duration_seconds", 90.0),
            ("duration=250ms", "duration_seconds", 0.25),
            ("cpu=2.5", "cpu_mean_cores", 2.5),
            ("cpu=10min", "cpu_seconds", 600.0),
            ("cpu-time=10", "cpu_seconds", 10.0),
            ("gpu=0", "gpu_mean_gpus", 0.0),
            ("vram=512MiB", "vram_peak_bytes", 536_870_912.0),
            ("cost=$0.50", "cost_usd", 0.5),
            ("cost=0.5USD", "cost_usd", 0.5),
        ] {
            assert_eq!(limit(text), Some((key, expected)), "{text}");
        }
    }

    #[test]
    fn wrong_budgets_are_errors() {
        for text in [
            "memory",
            "=4GiB",
            "memory=",
            "memory=4",
            "memory=GiB",
            "memory=-4GiB",
            "memory=4 apples",
            "memory=1GiB2MiB",
            "memory=nan",
            "memory=infGiB",
            "memory=1..5GiB",
            "duration=10 parsecs",
            "duration=min",
            "cpu=2x",
            "cpu=-1",
            "cost=5EUR",
            "cost=$",
            "Memory=4GiB",
            "memory=10s",
        ] {
            assert_eq!(limit(text), None, "{text}");
        }
        assert_eq!(
            "speed=1".parse::<Budget>().unwrap_err().to_string(),
            "unknown budget `speed`; known are duration, cpu-time, cpu, memory, disk-read, disk-written, \
             net-received, net-sent, gpu, vram, cost"
        );
        assert_eq!(
            "memory=4".parse::<Budget>().unwrap_err().to_string(),
            "`4` is not a size with a unit, for example 512MiB, 4GiB or 4GB"
        );
    }

    #[test]
    fn figure_that_is_unknown_or_above_the_limit_breaks_its_budget() {
        let outcome = |value| Outcome {
            figure: &FIGURES[3],
            value,
            limit: 1024.0,
            reference: None,
            tolerance_percent: 0.0,
        };
        assert!(outcome(Some(1024.0)).is_kept() && !outcome(Some(1025.0)).is_kept());
        assert!(!outcome(None).is_kept());
        assert_eq!(
            outcome(None).message(),
            "memory peak is unknown and cannot be held against the budget of 1.00 KiB"
        );
        assert_eq!(
            outcome(Some(1536.0)).message(),
            "memory peak 1.50 KiB exceeds the budget of 1.00 KiB by 512 B"
        );
    }
}
