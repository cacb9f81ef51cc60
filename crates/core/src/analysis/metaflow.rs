//! Statistics in the artifact of a Metaflow task.
//!
//! In:  [`Stats`] of a task; artifacts of earlier runs, with the names of the artifact or of [`Stats`].
//! Out: the artifact of a task, its statistics read back, and one summary of all earlier runs.
//! Not here: storage of artifacts (Metaflow), aggregation of runs (`store::stats`).

use serde_json::{Map, Value, json};

use crate::store::decimal;
use crate::store::stats::{Stats, StatsError};

/// Group and name in the artifact; column and aggregate in [`Stats`]. The duration has no group, so it is not listed.
const FIGURES: [(&str, &str, &str, &str); 13] = [
    ("cpu_usage", "mean", "process_cpu_usage", "mean"),
    ("cpu_usage", "max", "process_cpu_usage", "max"),
    ("memory_usage", "mean", "process_memory", "mean"),
    ("memory_usage", "max", "process_memory", "max"),
    ("gpu_usage", "mean", "process_gpu_usage", "mean"),
    ("gpu_usage", "max", "process_gpu_usage", "max"),
    ("gpu_vram", "mean", "process_gpu_vram", "mean"),
    ("gpu_vram", "max", "process_gpu_vram", "max"),
    ("gpu_utilized", "mean", "process_gpu_utilized", "mean"),
    ("gpu_utilized", "max", "process_gpu_utilized", "max"),
    ("disk_usage", "max", "system_disk_space_used_gb", "max"),
    ("traffic", "inbound", "system_net_recv_bytes", "sum"),
    ("traffic", "outbound", "system_net_sent_bytes", "sum"),
];

const DURATION: &str = "duration";

/// Name in the summary of earlier runs; column and aggregate in [`Stats`].
const HISTORY: [(&str, &str, &str); 6] = [
    ("avg_cpu_mean", "process_cpu_usage", "mean"),
    ("max_memory_max", "process_memory", "max"),
    ("avg_gpu_mean", "process_gpu_usage", "mean"),
    ("max_vram_max", "process_gpu_vram", "max"),
    ("max_gpu_count", "process_gpu_utilized", "max"),
    ("avg_duration", "timestamp", DURATION),
];

/// More runs than any summary has. A damaged summary must not take all memory.
const MAX_RUNS: usize = 10_000;

impl Stats {
    /// The statistics under the names of the artifact; an unmeasured statistic is `null`.
    pub fn to_metaflow(&self) -> Map<String, Value> {
        let mut figures = Map::new();
        for (group, name, column, aggregate) in FIGURES {
            let group = figures.entry(group).or_insert_with(|| json!({}));
            if let Value::Object(group) = group {
                group.insert(name.to_owned(), json!(self.get(column, aggregate)));
            }
        }
        figures.insert(DURATION.to_owned(), json!(rounded(self.get("timestamp", DURATION))));
        figures
    }

    /// Reads the statistics of an artifact, under the names of the artifact or of [`Stats`]; `None` if the artifact has
    /// neither CPU nor memory.
    pub fn from_metaflow(figures: &Value) -> Option<Self> {
        let mut stats = Self::default();
        for (group, name, column, aggregate) in FIGURES {
            let either = [(group, name), (column, aggregate)];
            let found = either.into_iter().find_map(|(group, name)| figures.get(group)?.get(name));
            if let Some(value) = found {
                stats.set(column, aggregate, value.as_f64());
            }
        }
        let duration = figures.get(DURATION).or_else(|| figures.get("timestamp")?.get(DURATION));
        if let Some(duration) = duration {
            stats.set("timestamp", DURATION, duration.as_f64());
        }
        (stats.has("process_cpu_usage") || stats.has("process_memory")).then_some(stats)
    }

    /// The summary of earlier runs: average of means and durations, largest peak.
    pub fn metaflow_history(runs: &[Self]) -> Result<Map<String, Value>, StatsError> {
        let mut history = Map::new();
        history.insert("available".to_owned(), json!(!runs.is_empty()));
        history.insert("runs_analyzed".to_owned(), json!(runs.len()));
        if runs.is_empty() {
            return Ok(history);
        }
        let all = Self::combine(runs)?;
        for (name, column, aggregate) in HISTORY {
            history.insert(name.to_owned(), json!(rounded(all.get(column, aggregate))));
        }
        Ok(history)
    }

    /// Reads the summary of earlier runs as that many equal runs, so that they keep their weight; `None` if it is no
    /// summary.
    pub fn from_metaflow_history(history: &Value) -> Option<Vec<Self>> {
        let runs = usize::try_from(history.get("runs_analyzed")?.as_u64()?).ok()?;
        let mut stats = Self::default();
        for (name, column, aggregate) in HISTORY {
            if let Some(value) = history.get(name).and_then(Value::as_f64) {
                stats.set(column, aggregate, Some(value));
            }
        }
        (runs <= MAX_RUNS).then(|| vec![stats; runs])
    }
}

fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| decimal::round(value, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stats(json: &str) -> Stats {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn both_kinds_of_names_give_the_same_statistics() {
        let documented = json!({
            "cpu_usage": {"mean": 1.42, "max": 6.11},
            "memory_usage": {"mean": 342_509.0, "max": 591_621.0},
            "disk_usage": {"max": 3405.11},
            "traffic": {"inbound": 77_383.0, "outbound": 58_481.0},
            "duration": 9.89
        });
        let own = json!({
            "process_cpu_usage": {"mean": 1.42, "max": 6.11},
            "process_memory": {"mean": 342_509.0, "max": 591_621.0},
            "system_disk_space_used_gb": {"max": 3405.11},
            "system_net_recv_bytes": {"sum": 77_383.0},
            "system_net_sent_bytes": {"sum": 58_481.0},
            "timestamp": {"duration": 9.89}
        });
        let read = Stats::from_metaflow(&documented).unwrap();
        assert_eq!(Some(&read), Stats::from_metaflow(&own).as_ref());
        assert_eq!(
            (read.get("process_memory", "max"), read.get("timestamp", "duration")),
            (Some(591_621.0), Some(9.89))
        );
        for other in [json!(null), json!({}), json!({"error": {}}), json!([1]), json!({"duration": 3})] {
            assert_eq!(Stats::from_metaflow(&other), None, "{other}");
        }
    }

    #[test]
    fn history_has_the_average_mean_and_the_largest_peak() {
        let runs = [
            stats(
                r#"{"process_cpu_usage":{"mean":1},"process_memory":{"max":100},"timestamp":{"duration":4}}"#,
            ),
            stats(
                r#"{"process_cpu_usage":{"mean":2},"process_memory":{"max":300},"timestamp":{"duration":5}}"#,
            ),
        ];
        assert_eq!(
            Value::Object(Stats::metaflow_history(&runs).unwrap()),
            json!({
                "available": true, "runs_analyzed": 2, "avg_cpu_mean": 1.5, "max_memory_max": 300.0,
                "avg_gpu_mean": null, "max_vram_max": null, "max_gpu_count": null, "avg_duration": 4.5
            })
        );
        assert_eq!(
            Value::Object(Stats::metaflow_history(&[]).unwrap()),
            json!({"available": false, "runs_analyzed": 0})
        );
    }

    #[test]
    fn history_is_read_back_with_the_weight_of_its_runs() {
        let run = |mean: f64| {
            let text =
                format!(r#"{{"process_cpu_usage":{{"mean":{mean}}},"process_memory":{{"max":{mean}}}}}"#);
            stats(&text)
        };
        let history = Value::Object(Stats::metaflow_history(&[run(1.0), run(2.0), run(3.0)]).unwrap());
        let mut runs = Stats::from_metaflow_history(&history).unwrap();
        assert_eq!(runs.len(), 3);
        runs.push(run(6.0));
        let all = Stats::combine(&runs).unwrap();
        assert_eq!(
            (all.get("process_cpu_usage", "mean"), all.get("process_memory", "max")),
            (Some(3.0), Some(6.0))
        );
        let none = json!({"available": false, "runs_analyzed": 0});
        assert_eq!(Stats::from_metaflow_history(&none), Some(Vec::new()));
        for other in [json!({}), json!([]), json!({"x": {"mean": 1}}), json!({"runs_analyzed": 1e300})] {
            assert_eq!(Stats::from_metaflow_history(&other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn artifact_preserves_every_statistic(values in proptest::collection::vec(proptest::option::of(0_u32..1 << 30), 14)) {
            let mut stats = Stats::default();
            for ((_, _, column, aggregate), value) in FIGURES.into_iter().zip(&values) {
                stats.set(column, aggregate, value.map(f64::from));
            }
            stats.set("timestamp", DURATION, values[13].map(f64::from));
            prop_assert_eq!(Stats::from_metaflow(&Value::Object(stats.to_metaflow())), Some(stats));
        }
    }
}
