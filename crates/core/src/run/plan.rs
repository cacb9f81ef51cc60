//! What a session records.

use std::collections::BTreeMap;
#[cfg(feature = "parquet")]
use std::io::Read as _;
use std::path::PathBuf;

use thiserror::Error;

use crate::config::{Backend, Config, Interval};
#[cfg(feature = "parquet")]
use crate::os::{self, paths::config_folder};
use crate::probe::command_of;
use crate::store::recording::{Head, Metadata, Run};

/// A variable with tags that is not a list of KEY=VALUE.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{word}` in `RESOURCE_TRACKER_TAGS` is not KEY=VALUE")]
pub struct TagsError {
    word: String,
}

impl Plan {
    /// The tags in `RESOURCE_TRACKER_TAGS`, such as `team=vision,stage=test`.
    pub fn tags_of_environment() -> Result<BTreeMap<String, String>, TagsError> {
        let text = std::env::var("RESOURCE_TRACKER_TAGS").unwrap_or_default();
        let tag = |word: &str| match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(TagsError { word: word.to_owned() }),
        };
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(tag).collect()
    }
}

/// The user's settings file is not TOML.
#[cfg(feature = "parquet")]
#[derive(Debug, Error)]
#[error("invalid TOML in `{path}`")]
pub struct SettingsError {
    path: PathBuf,
    source: Box<toml::de::Error>,
}

/// The text of a setting in the user's `config.toml`, if the file can be read. The command checks the whole file.
#[cfg(feature = "parquet")]
fn user_setting(name: &str) -> Result<Option<String>, SettingsError> {
    let path = config_folder(|name| std::env::var_os(name)).map(|folder| folder.join("config.toml"));
    let Some(path) = path else { return Ok(None) };
    let mut text = String::new();
    let read = os::open_regular(&path).and_then(|file| file.take(64 << 10).read_to_string(&mut text));
    if read.is_err() {
        return Ok(None);
    }
    let table = text.parse::<toml::Table>();
    let table = table.map_err(|source| SettingsError { path, source: Box::new(source) })?;
    Ok(table.get(name).and_then(toml::Value::as_str).map(str::to_owned))
}

/// What a session records, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub config: Config,
    /// The process to follow.
    pub pid: u32,
    /// The sampling method that the user chose, such as `spawn`; only stored in the recording. `sidecar` decides.
    pub method: Option<String>,
    /// Whether the recording starts when the front's tracker object is created.
    pub autostart: bool,
    /// Whether the recording describes the machine.
    pub discover_server: bool,
    /// Whether the recording describes the cloud.
    pub discover_cloud: bool,
    /// Path of the command `resource-tracker`, which samples as a sidecar; `None` samples in a thread.
    pub sidecar: Option<PathBuf>,
    /// Name of the job. A session with a name is saved in the history.
    pub job: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Files and folders that the job reads.
    pub inputs: Vec<PathBuf>,
    /// Address of the store of many machines that gets the run when it is saved in the history. An empty address is none,
    /// whatever the environment and the user's settings say.
    pub store: Option<String>,
    /// CPUs, bytes of memory and GPUs that were requested. For what is missing, the environment says it.
    pub asked: [Option<f64>; 3],
}

impl Plan {
    /// Follows process `pid` from a thread of this process, without a description of the machine or the cloud.
    pub const fn new(config: Config, pid: u32) -> Self {
        Self {
            config,
            pid,
            method: None,
            autostart: false,
            discover_server: false,
            discover_cloud: false,
            sidecar: None,
            job: None,
            tags: BTreeMap::new(),
            inputs: Vec::new(),
            store: None,
            asked: [None; 3],
        }
    }

    /// The command line of a process; `None` if it cannot be read.
    pub fn command_of(pid: u32) -> Option<Vec<String>> {
        command_of(pid)
    }

    /// Takes the store from `RESOURCE_TRACKER_STORE` or the user's settings if it is not set.
    #[cfg(feature = "parquet")]
    pub(crate) fn take_store(&mut self) -> Result<(), SettingsError> {
        let variable = || std::env::var("RESOURCE_TRACKER_STORE").ok().filter(|url| !url.is_empty());
        self.store = match self.store.take().or_else(variable) {
            Some(url) => Some(url).filter(|url| !url.is_empty()),
            None => user_setting("store")?,
        };
        Ok(())
    }

    /// Takes the name of the job and tags from `RESOURCE_TRACKER_JOB` and `RESOURCE_TRACKER_TAGS` where they are not set.
    pub(crate) fn take_environment(&mut self) -> Result<(), TagsError> {
        let named = self.job.take().or_else(|| std::env::var("RESOURCE_TRACKER_JOB").ok());
        self.job = named.filter(|job| !job.is_empty());
        for (key, value) in Self::tags_of_environment()? {
            self.tags.entry(key).or_insert(value);
        }
        Ok(())
    }

    /// The plan that a recording was made with.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let backend = Backend::from_name(&metadata.resource_tracker.implementation);
        Self {
            config: Config {
                // A recording of the original package may have an interval that this package does not allow. A
                // recording of another system may have a backend that this system lacks.
                interval: Interval::from_seconds(metadata.interval).unwrap_or(Interval::DEFAULT),
                backend: backend.unwrap_or(Backend::BEST),
                children: metadata.children,
                track_processes: metadata.track_processes,
                track_system: metadata.track_system,
                ..Config::default()
            },
            pid: metadata.pid,
            method: metadata.method.clone(),
            autostart: metadata.autostart,
            discover_server: metadata.discover_server,
            discover_cloud: metadata.discover_cloud,
            sidecar: None,
            job: None,
            tags: BTreeMap::new(),
            inputs: Vec::new(),
            store: None,
            asked: [None; 3],
        }
    }

    /// The facts about the run that are known when it starts.
    pub(crate) fn run(&self, id: &str) -> Run {
        let mut run = Run::new(id, command_of(self.pid));
        let identity = run.identity.get_or_insert_default();
        let asked = [&mut identity.asked_cpus, &mut identity.asked_memory_bytes, &mut identity.asked_gpus];
        for (known, planned) in asked.into_iter().zip(self.asked) {
            *known = planned.or(*known);
        }
        Run { job: self.job.clone(), tags: self.tags.clone(), ..run }
    }

    /// The head of a recording that is made with this plan; `start_time` is in Unix seconds.
    pub(crate) fn head(&self, start_time: f64, run: Run) -> Head {
        let mut head = Head::new(&self.config, self.pid, start_time, run);
        head.metadata.method.clone_from(&self.method);
        head.metadata.autostart = self.autostart;
        head.metadata.discover_server = self.discover_server;
        head.metadata.discover_cloud = self.discover_cloud;
        head
    }
}
