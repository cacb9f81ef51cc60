//! A step of a workflow: its figures as its artifact keeps them, and those of its earlier runs summed up.
//!
//! In:  [`Stats`] of a task; what artifacts of earlier runs hold, in this shape or as [`Stats`].
//! Out: the shape of the artifact, back and forth; one line of history for all runs.
//! Not here: where artifacts are kept (the workflow system's own business), how runs combine (`stats`).

use serde_json::{Map, Value, json};

use crate::decimal;
use crate::stats::{Stats, StatsError, aggregate_stats};

/// Where a figure stands in the artifact, and where in the default statistics. The duration stands alone.
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

/// The figures under the names that the artifact has for them; `null` for what was not measured.
#[must_use]
pub fn to_artifact(stats: &Stats) -> Map<String, Value> {
    let mut figures = Map::new();
    for (group, name, column, aggregate) in FIGURES {
        let group = figures.entry(group).or_insert_with(|| json!({}));
        if let Value::Object(group) = group {
            group.insert(name.to_owned(), json!(stats.get(column, aggregate)));
        }
    }
    figures.insert(DURATION.to_owned(), json!(rounded(stats.get("timestamp", DURATION))));
    figures
}

/// The statistics that an artifact holds, under either kind of names; `None` where it holds none that we know.
#[must_use]
pub fn from_artifact(figures: &Value) -> Option<Stats> {
    let mut stats = Stats::default();
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

/// What earlier runs say together: means and durations on average, peaks at their largest.
///
/// # Errors
/// When they hold what cannot be combined.
pub fn history(runs: &[Stats]) -> Result<Map<String, Value>, StatsError> {
    let mut history = Map::new();
    history.insert("available".to_owned(), json!(!runs.is_empty()));
    history.insert("runs_analyzed".to_owned(), json!(runs.len()));
    if runs.is_empty() {
        return Ok(history);
    }
    let all = aggregate_stats(runs)?;
    for (name, column, aggregate) in [
        ("avg_cpu_mean", "process_cpu_usage", "mean"),
        ("max_memory_max", "process_memory", "max"),
        ("avg_gpu_mean", "process_gpu_usage", "mean"),
        ("max_vram_max", "process_gpu_vram", "max"),
        ("max_gpu_count", "process_gpu_utilized", "max"),
        ("avg_duration", "timestamp", DURATION),
    ] {
        history.insert(name.to_owned(), json!(rounded(all.get(column, aggregate))));
    }
    Ok(history)
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
    fn an_artifact_of_either_kind_gives_the_same_statistics() {
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
        let read = from_artifact(&documented).unwrap();
        assert_eq!(Some(&read), from_artifact(&own).as_ref());
        assert_eq!(
            (read.get("process_memory", "max"), read.get("timestamp", "duration")),
            (Some(591_621.0), Some(9.89))
        );
        for other in [json!(null), json!({}), json!({"error": {}}), json!([1]), json!({"duration": 3})] {
            assert_eq!(from_artifact(&other), None, "{other}");
        }
    }

    #[test]
    fn history_is_the_average_of_means_and_the_largest_of_peaks() {
        let runs = [
            stats(
                r#"{"process_cpu_usage":{"mean":1},"process_memory":{"max":100},"timestamp":{"duration":4}}"#,
            ),
            stats(
                r#"{"process_cpu_usage":{"mean":2},"process_memory":{"max":300},"timestamp":{"duration":5}}"#,
            ),
        ];
        assert_eq!(
            Value::Object(history(&runs).unwrap()),
            json!({
                "available": true, "runs_analyzed": 2, "avg_cpu_mean": 1.5, "max_memory_max": 300.0,
                "avg_gpu_mean": null, "max_vram_max": null, "max_gpu_count": null, "avg_duration": 4.5
            })
        );
        assert_eq!(Value::Object(history(&[]).unwrap()), json!({"available": false, "runs_analyzed": 0}));
    }

    proptest! {
        /// What is kept in an artifact comes back as it was.
        #[test]
        fn an_artifact_keeps_every_figure(values in proptest::collection::vec(proptest::option::of(0_u32..1 << 30), 14)) {
            let mut stats = Stats::default();
            for ((_, _, column, aggregate), value) in FIGURES.into_iter().zip(&values) {
                stats.set(column, aggregate, value.map(f64::from));
            }
            stats.set("timestamp", DURATION, values[13].map(f64::from));
            prop_assert_eq!(from_artifact(&Value::Object(to_artifact(&stats))), Some(stats));
        }
    }
}
