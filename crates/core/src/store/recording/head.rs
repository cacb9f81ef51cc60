//! The head of a recording: metadata, and facts about server, cloud and run.
//!
//! In:  JSON objects of a recording of resource-tracker or of the original package.
//! Out: [`Head`]. Unknown keys are preserved when a recording is read and written again.
//! Not here: rows (`read`, `write`), detection of server and cloud (`host`, `cloud`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::Config;
use crate::human;
use crate::job::programs::ProgramFigures;
use crate::os::{self, Ending};
use crate::probe::cgroup::OomKills;
use crate::probe::gpu::GpuFigures;
use crate::sampler::evidence::Evidence;
use crate::sampler::marks::mark_run;
use crate::sampler::phases::{PhaseFigures, PlacedMark};
use crate::store::recording::command_line;
use crate::store::recording::identity::Identity;

/// Version of the file format.
pub const VERSION: u64 = 1;

const SIGKILL: i32 = 9;

/// The variable that tells a job its run and where that is, such as `3f9c1a7b2d40@n17/42/0`.
pub(crate) const PARENT_VARIABLE: &str = "RESOURCE_TRACKER_RUN";

/// Where a tracker measures processes: on its host, and in its job and step of Slurm.
fn place() -> Option<String> {
    let of_slurm = ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(std::env::var).into_iter().flatten();
    Some([os::host_name()?].into_iter().chain(of_slurm).collect::<Vec<_>>().join("/"))
}

/// The value of [`PARENT_VARIABLE`] for the job of a run.
pub(crate) fn announcement(id: &str) -> String {
    place().map_or_else(|| id.to_owned(), |place| format!("{id}@{place}"))
}

/// The run that a process is part of, by [`PARENT_VARIABLE`]. Schedulers pass the variable on to jobs in other places, which
/// that run does not measure.
fn parent_of(announcement: &str, place: Option<&str>) -> Option<String> {
    let (id, of) = announcement.split_once('@').map_or((announcement, place), |(id, of)| (id, Some(of)));
    (!id.is_empty() && of == place).then(|| id.to_owned())
}

/// The head of a recording: everything except the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    pub metadata: Metadata,
    /// The result of `get_server_info`; `None` if it was not requested.
    pub server_info: Option<Map<String, Value>>,
    /// The result of `get_cloud_info`; `None` if it was not requested.
    pub cloud_info: Option<Map<String, Value>>,
    /// `None` for files of the original package, which do not have the key `run`.
    pub run: Option<Run>,
    /// Top-level keys that only later versions know.
    pub other: Map<String, Value>,
}

impl Head {
    /// The head of a new recording. `start_time` is in Unix seconds.
    pub fn new(config: &Config, pid: u32, start_time: f64, run: Run) -> Self {
        Self {
            metadata: Metadata {
                version: VERSION,
                resource_tracker: Software {
                    version: crate::PROGRAM_VERSION.to_owned(),
                    implementation: config.backend.name().to_owned(),
                    ..Software::default()
                },
                pid,
                children: config.children,
                interval: config.interval.seconds(),
                method: None,
                autostart: true,
                track_processes: config.track_processes,
                track_system: config.track_system,
                discover_server: true,
                discover_cloud: true,
                start_time: Some(start_time),
                stop_time: None,
                duration: None,
                other: Map::new(),
            },
            server_info: None,
            cloud_info: None,
            run: Some(run),
            other: Map::new(),
        }
    }
}

impl Head {
    /// The lowest of container limit, affinity and CPUs of the machine.
    pub fn cpu_limit_cores(&self) -> Option<f64> {
        self.lowest("cpu_limit", "vcpus")
    }

    /// The lower of container limit and memory of the machine.
    pub fn memory_limit_mib(&self) -> Option<f64> {
        self.lowest("memory_limit_mb", "memory_mb")
    }

    pub fn identity(&self) -> Option<&Identity> {
        self.run.as_ref()?.identity.as_ref()
    }

    fn lowest(&self, limit: &str, machine: &str) -> Option<f64> {
        let number = |key| server_number(self.server_info.as_ref(), key);
        number(limit).into_iter().chain(number(machine)).reduce(f64::min)
    }
}

/// A number of `server_info`; `None` if it is missing or not positive.
pub(crate) fn server_number(server_info: Option<&Map<String, Value>>, key: &str) -> Option<f64> {
    server_info?.get(key)?.as_f64().filter(|value| value.is_finite() && *value > 0.0)
}

/// Key `metadata`. Its keys have the names of the original package.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the file format")]
pub struct Metadata {
    /// Always [`VERSION`].
    pub version: u64,
    #[serde(default)]
    pub resource_tracker: Software,
    pub pid: u32,
    /// Whether descendants of the process are included.
    pub children: bool,
    /// Nominal length of a row in seconds.
    pub interval: f64,
    /// Start method of the original package; `None` for a thread.
    pub method: Option<String>,
    #[serde(default)]
    pub autostart: bool,
    pub track_processes: bool,
    pub track_system: bool,
    pub discover_server: bool,
    pub discover_cloud: bool,
    /// Time of the baseline sample in Unix seconds.
    pub start_time: Option<f64>,
    /// Time of the stop, or of the snapshot of a running tracker; Unix seconds.
    pub stop_time: Option<f64>,
    /// `stop_time` minus `start_time`, without steps of the wall clock.
    pub duration: Option<f64>,
    /// Keys that only later versions know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Metadata {
    /// Sets the stop time, and the duration without `clock_step_s`, by which the wall clock was set forward.
    pub fn set_stop_time(&mut self, stop_time: f64, clock_step_s: f64) {
        self.stop_time = Some(stop_time);
        self.duration = self.start_time.map(|start_time| stop_time - start_time - clock_step_s);
    }
}

/// Key `metadata.resource_tracker`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Software {
    pub version: String,
    /// Name of the backend: `procfs` or `sysinfo`, and `psutil` in files of the original package.
    pub implementation: String,
    /// Keys that only later versions know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Key `run`: facts about the run that files of the original package do not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The command and its arguments, without secrets. The environment is never recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Where the run belongs: user, scheduler, rank, and what was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Id of the tracked run that this run is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Type and text of the error that ended a function or block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Total size of the inputs that the user named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Processes that the kernel killed for lack of memory during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<OomKills>,
    /// Facts about the end of a run that did not end with status 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Source of the job's CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_source: Option<String>,
    /// Share of the job's CPU time that was seen in its processes, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    /// Warnings about the measurement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuFigures>,
    /// Usage by program, the most CPU time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramFigures>,
    /// Usage by phase; empty without marks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseFigures>,
    /// The first marks of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<PlacedMark>,
    /// Keys that only later versions know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Run {
    /// A run on this host. Secrets in the command line are not stored.
    pub fn new(id: &str, command: Option<Vec<String>>) -> Self {
        let command = command.map(|words| command_line::stored(&words));
        let parent = std::env::var(PARENT_VARIABLE).ok();
        let parent = parent.and_then(|parent| parent_of(&parent, place().as_deref()));
        let identity = Some(Identity::of_environment()).filter(|identity| *identity != Identity::default());
        Self { id: Some(id.to_owned()), command, host: os::host_name(), identity, parent, ..Self::default() }
    }

    /// Sets the status, and the exit code or signal.
    pub fn set_ending(&mut self, ending: Ending) {
        match ending {
            Ending::Code(code) => {
                self.status = Some(if code == 0 { Status::Finished } else { Status::Failed });
                self.exit_code = Some(code);
            }
            Ending::Signal(signal) => {
                self.status = Some(Status::Killed);
                self.signal = Some(signal);
            }
        }
    }

    /// Whether `SIGKILL` ended the job, or the last command of a shell.
    pub(crate) fn ended_by_kill(&self) -> bool {
        self.signal == Some(SIGKILL) || self.exit_code == Some(128 + SIGKILL)
    }

    /// The usage by program as text: headings, then a row for each program. Empty if it is unknown.
    pub fn program_table(&self) -> Vec<Vec<String>> {
        let total_s = self.programs.iter().map(|program| program.cpu_seconds).sum();
        let rows: Vec<_> = self.programs.iter().map(|program| program.cells(total_s).to_vec()).collect();
        let headings = ProgramFigures::COLUMNS.map(str::to_owned).to_vec();
        if rows.is_empty() { rows } else { [vec![headings], rows].concat() }
    }

    /// The usage by phase as text: headings, then a row for each phase. Empty without marks.
    pub fn phase_table(&self) -> Vec<Vec<String>> {
        PhaseFigures::table(&self.phases)
    }

    /// Which phases decide how large the machine has to be; `None` without marks.
    pub fn phase_sentence(&self) -> Option<String> {
        PhaseFigures::sentence(&self.phases)
    }

    /// Starts a phase of the run that this process is part of. Has no effect outside of a run.
    pub fn mark(name: &str) {
        mark_run(name);
    }

    /// Name of the signal that ended the job.
    pub fn signal_name(&self) -> Option<&'static str> {
        human::signal_name(self.signal?)
    }

    /// Whether the kernel killed the job for lack of memory: it counted an OOM kill, and the job ended as if killed.
    pub fn was_killed_for_memory(&self) -> bool {
        self.oom_kills.is_some() && (self.ended_by_kill() || self.status == Some(Status::Ended))
    }

    /// Whether the job was killed for lack of memory, or has failed and a process in its cgroups was.
    pub fn failed_for_memory(&self) -> bool {
        let is_own = self.oom_kills.is_some_and(|kills| kills.certain || kills.limit_bytes.is_some());
        self.was_killed_for_memory() || is_own && self.status == Some(Status::Failed)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Status {
    Running,
    /// Exit code 0.
    Finished,
    /// An exit code other than 0.
    Failed,
    /// Ended by a signal.
    Killed,
    /// Ended with an unknown exit status, for example if the tracker was attached to a running process.
    Ended,
    /// The tracker stopped before the job ended.
    Detached,
    /// The tracker died; the recording was recovered from its journal.
    TrackerDied,
    /// A status of a later version.
    Other(String),
}

impl Status {
    /// The text in recordings and entries.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Ended => "ended",
            Self::Detached => "detached",
            Self::TrackerDied => "tracker_died",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Status {
    fn from(word: String) -> Self {
        let known = [
            Self::Running,
            Self::Finished,
            Self::Failed,
            Self::Killed,
            Self::Ended,
            Self::Detached,
            Self::TrackerDied,
        ];
        known.into_iter().find(|status| status.as_str() == word).unwrap_or(Self::Other(word))
    }
}

impl From<Status> for String {
    fn from(status: Status) -> Self {
        status.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_in_another_place_is_not_part_of_the_run_around_it() {
        let parent = |announcement| parent_of(announcement, Some("n17/42/0"));
        assert_eq!(parent("feed@n17/42/0").as_deref(), Some("feed"));
        for elsewhere in
            ["feed@n18/42/0", "feed@n17/43/0", "feed@n17/42", "feed@n17/42/1", "feed@n17", "@n17/42/0", ""]
        {
            assert_eq!(parent(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(parent("feed").as_deref(), Some("feed"), "of an older tracker");
        let here = announcement("feed");
        assert_eq!(parent_of(&here, place().as_deref()).as_deref(), Some("feed"));
    }
}
