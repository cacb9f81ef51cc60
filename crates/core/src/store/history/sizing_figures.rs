//! The figures of a run that sizing needs and the default statistics do not have.
//!
//! In:  the head and the summary of a run. Out: [`SizingFigures`], the key `sizing` of an entry.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::metric::MIB;
use crate::store::cpu_profile::CpuProfile;
use crate::store::recording::Head;
use crate::store::summary::Summary;

const KIB: f64 = 1024.0;

/// Figures of a run; `None` where unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizingFigures {
    pub peak_memory_bytes: Option<f64>,
    pub mean_memory_bytes: Option<f64>,
    /// The limit of the job or the memory of its machine; for a job that was killed for memory only a limit that it
    /// has exceeded.
    pub memory_limit_bytes: Option<f64>,
    pub cpu_limit_cores: Option<f64>,
    /// Pairs of busy CPUs and seconds.
    pub cpu_profile: CpuProfile,
    /// Total size of the inputs that the user named.
    pub input_bytes: Option<u64>,
    /// Whether the kernel killed the job for lack of memory, or a process of it and the job failed.
    pub out_of_memory: bool,
}

impl SizingFigures {
    pub fn of(head: &Head, summary: &Summary) -> Self {
        let run = head.run.as_ref();
        let killed = run.filter(|run| run.failed_for_memory()).and_then(|run| run.oom_kills);
        #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53 bytes")]
        let killed_at = killed.and_then(|kills| kills.limit_bytes).map(|bytes| bytes as f64);
        let limit = head.memory_limit_mib().map(|mib| mib * MIB);
        Self {
            peak_memory_bytes: summary.memory_peak_kib().map(|kib| kib * KIB),
            mean_memory_bytes: summary.memory_mean_kib().map(|kib| kib * KIB),
            memory_limit_bytes: if killed.is_some() { killed_at } else { limit },
            cpu_limit_cores: head.cpu_limit_cores(),
            cpu_profile: summary.cpu_profile().clone(),
            input_bytes: run.and_then(|run| run.input_bytes),
            out_of_memory: killed.is_some(),
        }
    }
}

/// Figures in the format of another version count as missing: they must not make the run unreadable.
pub(super) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(input)?).ok())
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::*;
    use crate::config::Config;
    use crate::metric::{Metric, Row};
    use crate::probe::cgroup::OomKills;
    use crate::store::recording::{Recording, Run, Status};
    use serde_json::json;

    fn recording() -> Recording {
        let run = Run { input_bytes: Some(5_000_000_000), ..Run::default() };
        let mut head = Head::new(&Config::default(), 1, 100.0, run);
        let info = json!({"vcpus": 8, "cpu_limit": 2.5, "memory_mb": 16384.0, "memory_limit_mb": null});
        head.server_info = info.as_object().cloned();
        let mut recording = Recording::new(head);
        let mut row = Row::default();
        for (metric, value) in [
            (Metric::Timestamp, 110.0),
            (Metric::ProcessCpu, 2.0),
            (Metric::ProcessMemory, 1024.0),
            (Metric::MemoryPeak, 2048.0),
        ] {
            row.set(metric, Some(value));
        }
        recording.push(&row);
        recording
    }

    #[test]
    fn entry_has_what_sizing_needs() {
        let recording = recording();
        let entry = Entry::new("a", &recording.head, &recording.summary());
        let stored: Entry = serde_json::from_str(&serde_json::to_string(&entry).unwrap()).unwrap();
        assert_eq!(stored, entry);
        assert_eq!(
            serde_json::to_value(stored.sizing.unwrap()).unwrap(),
            json!({
                "peak_memory_bytes": 2_097_152.0,
                "mean_memory_bytes": 1_048_576.0,
                "memory_limit_bytes": 16.0 * 1024.0 * MIB,
                "cpu_limit_cores": 2.5,
                "cpu_profile": [[2.0, 10.0]],
                "input_bytes": 5_000_000_000_u64,
                "out_of_memory": false,
            })
        );
    }

    #[test]
    fn job_that_failed_with_a_process_killed_for_memory_is_out_of_memory() {
        let is_out_of_memory = |status, limit_bytes| {
            let mut recording = recording();
            let kills = OomKills { processes: 1, certain: false, limit_bytes };
            let run =
                Run { status: Some(status), exit_code: Some(1), oom_kills: Some(kills), ..Run::default() };
            recording.head.run = Some(run);
            SizingFigures::of(&recording.head, &recording.summary()).out_of_memory
        };
        assert!(is_out_of_memory(Status::Failed, Some(1 << 30)));
        assert!(!is_out_of_memory(Status::Failed, None), "a process somewhere on the machine");
        assert!(!is_out_of_memory(Status::Finished, Some(1 << 30)), "the job did without the process");
    }

    #[test]
    fn figures_of_another_version_do_not_make_an_entry_unreadable() {
        for other in [json!("none"), json!({"cpu_profile": {"bins": 3}}), json!(null)] {
            let entry =
                serde_json::from_value::<Entry>(json!({"id": "a", "job": "b", "sizing": other})).unwrap();
            assert_eq!((entry.job.as_deref(), entry.sizing), (Some("b"), None));
        }
        let without = serde_json::from_value::<Entry>(json!({"id": "a"})).unwrap();
        assert_eq!(without.sizing, None);
        let newer = json!({"id": "a", "sizing": {"peak_memory_bytes": 5.0, "new": true}});
        let newer = serde_json::from_value::<Entry>(newer).unwrap().sizing.unwrap();
        assert_eq!(newer.peak_memory_bytes, Some(5.0));
    }
}
