//! What a receiver gets after a row: levels as in the row, and the sums of deltas since the start of the run.
//!
//! In:  rows, and the facts about the run. Out: a [`Point`] for each row; job, status and identity as all receivers get them.
//!
//! Counters are cumulative, so that a lost point does not falsify later ones.

use serde_json::{Map, Value};

use crate::metric::{Kind, Metric, Row, Unit};
use crate::store::recording::{Run, Status};

/// The values at the end of a row.
#[derive(Clone, Debug)]
pub struct Point {
    /// Deltas are summed up.
    pub row: Row,
    /// Start of the run, in Unix seconds.
    pub start_s: f64,
    /// End of the row, in Unix seconds.
    pub time_s: f64,
}

#[derive(Debug, Default)]
pub struct Totals {
    sums: Row,
    start_s: Option<f64>,
}

impl Totals {
    pub fn add(&mut self, row: &Row) -> Point {
        let time_s = row.get(Metric::Timestamp).unwrap_or(0.0);
        let start_s = *self.start_s.get_or_insert(time_s - row.get(Metric::Elapsed).unwrap_or(0.0));
        let sum = |metric: Metric| {
            let cell = row.get(metric);
            match (metric.kind(), self.sums.get(metric), cell) {
                (Kind::Delta, Some(sum), Some(cell)) => Some(sum + cell),
                (Kind::Delta, Some(sum), None) => Some(sum),
                _ => cell,
            }
        };
        self.sums = Row::of(sum);
        Point { row: self.sums.clone().with_gpus(row.gpus.clone()), start_s, time_s }
    }
}

/// A value in the base unit: seconds, bytes, watts, degrees Celsius or hertz.
pub fn in_base_unit(metric: Metric, value: f64) -> f64 {
    let factor = match metric.unit() {
        Unit::Megahertz => 1e6,
        unit => unit.byte_factor().unwrap_or(1.0),
    };
    value * factor
}

/// The name of the job, else of the program.
pub fn job_name(run: &Run) -> &str {
    let program = || run.command.as_ref()?.first()?.rsplit(['/', '\\']).next();
    run.job.as_deref().or_else(program).filter(|name| !name.is_empty()).unwrap_or("resource-tracker")
}

pub fn status(run: &Run) -> &str {
    run.status.as_ref().unwrap_or(&Status::Running).as_str()
}

/// The known facts about where the run belongs, by their names in a recording.
pub fn identity(run: &Run) -> Map<String, Value> {
    match serde_json::to_value(&run.identity) {
        Ok(Value::Object(known)) => known,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up_and_levels_do_not() {
        let mut totals = Totals::default();
        let row = |time, cpu: Option<f64>, memory| {
            Row::of(|metric| match metric {
                Metric::Timestamp => Some(time),
                Metric::Elapsed => Some(1.0),
                Metric::ProcessUtime => cpu,
                Metric::ProcessMemory => memory,
                _ => None,
            })
        };
        totals.add(&row(11.0, Some(0.5), Some(7.0)));
        let unknown = totals.add(&row(12.0, None, None)).row;
        assert_eq!(
            (unknown.get(Metric::ProcessUtime), unknown.get(Metric::ProcessMemory)),
            (Some(0.5), None)
        );
        let last = totals.add(&row(13.0, Some(0.25), Some(9.0)));
        assert_eq!((last.start_s, last.time_s), (10.0, 13.0));
        assert_eq!(last.row.get(Metric::ProcessUtime), Some(0.75));
        assert_eq!(last.row.get(Metric::ProcessMemory), Some(9.0));
        assert_eq!(last.row.get(Metric::ProcessRead), None, "never measured");
        assert_eq!(in_base_unit(Metric::ProcessMemory, 9.0), 9216.0);
    }
}
