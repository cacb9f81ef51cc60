//! The one facade: start, follow, stop, and what is known so far.
//!
//! In:  a [`Config`], whom to follow, who takes the rows. Out: a running summary that costs the same after a second
//! and after a week. Every front stands on this; none holds logic of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::config::Config;
use crate::error::SourceError;
use crate::metric::Row;
use crate::root::Root;
use crate::sampler::{self, Engine, Order, Sink, Target};
use crate::snapshot::Moment;
use crate::source::gpu::GpuFigures;
use crate::summary::{Scope, Summary};
use crate::sys::{self, Bell};

/// Where a tracker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Rows are made.
    Running,
    /// The process that was followed has ended by itself.
    Exited,
    /// We were told to stop.
    Stopped,
}

impl State {
    /// As the contract and the fronts name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Stopped => "stopped",
        }
    }
}

/// Why a tracker does not start.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// The process is not there, has ended, or cannot be read.
    #[error("cannot follow process {pid}")]
    Target {
        /// Whom to follow.
        pid: u32,
        /// Why not.
        source: SourceError,
    },
    /// This host gives nothing at all.
    #[error("cannot read this host")]
    Host(#[source] SourceError),
    /// The system refused a thread or a descriptor.
    #[error("cannot start the sampler")]
    Resources(#[source] std::io::Error),
}

impl TrackerError {
    /// What can be done about it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Target { source: SourceError::Foreign, .. } => SourceError::Foreign.hint(),
            Self::Target { .. } if cfg!(windows) => Some("`tasklist` lists the processes that run"),
            Self::Target { .. } => Some("`ps -e` lists the processes that run"),
            Self::Host(_) if cfg!(target_os = "linux") => Some("is /proc mounted?"),
            Self::Host(_) | Self::Resources(_) => None,
        }
    }
}

/// What the sampling thread and its owner share.
#[derive(Debug)]
pub struct Progress {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// An order was given, where there is no bell to ring.
    ordered: Condvar,
    /// `None` for a guest, who keeps no descriptor in its host, and where the system has no such thing.
    bells: Option<Bells>,
}

#[derive(Debug)]
struct Bells {
    /// An order was given.
    order: Bell,
    /// Rings once the sampling thread has made its last row.
    ended: Bell,
}

impl Bells {
    fn new() -> Result<Option<Self>, TrackerError> {
        let bell = || Bell::new().map_err(TrackerError::Resources);
        Ok(bell()?.zip(bell()?).map(|(order, ended)| Self { order, ended }))
    }
}

#[derive(Debug)]
struct Inner {
    orders: Vec<Order>,
    summary: Summary,
    last_row: Option<Row>,
    notes: Vec<String>,
    state: State,
    cpu_source: &'static str,
    gpus: Vec<GpuFigures>,
}

impl Progress {
    fn new(scope: Scope, bells: Option<Bells>) -> Self {
        let inner = Inner {
            orders: Vec::new(),
            summary: Summary::new(scope),
            last_row: None,
            notes: Vec::new(),
            state: State::Running,
            cpu_source: "procfs",
            gpus: Vec::new(),
        };
        Self { inner: Mutex::new(inner), changed: Condvar::new(), ordered: Condvar::new(), bells }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves whole values behind: every change is one assignment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bell(&self) -> Option<&Bell> {
        self.bells.as_ref().map(|bells| &bells.order)
    }

    /// Waits without a descriptor, for an order or until the time is up.
    pub(crate) fn wait_for_order(&self, timeout: Duration) {
        let inner = self.lock();
        let quiet = |inner: &mut Inner| inner.orders.is_empty();
        drop(self.ordered.wait_timeout_while(inner, timeout, quiet));
    }

    pub(crate) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.lock().orders)
    }

    pub(crate) fn note(&self, note: String) {
        self.lock().notes.push(note);
    }

    pub(crate) fn note_once(&self, note: String) {
        let mut inner = self.lock();
        if !inner.notes.contains(&note) {
            inner.notes.push(note);
        }
    }

    pub(crate) fn set_cpu_source(&self, name: &'static str) {
        self.lock().cpu_source = name;
    }

    pub(crate) fn set_gpus(&self, gpus: Vec<GpuFigures>) {
        self.lock().gpus = gpus;
    }

    pub(crate) fn set_state(&self, state: State) {
        self.lock().state = state;
        self.changed.notify_all();
        if let Some(bells) = &self.bells {
            bells.ended.ring();
        }
    }

    pub(crate) fn add(&self, row: &Row) {
        let mut inner = self.lock();
        inner.summary.add(row);
        inner.last_row = Some(row.clone());
        drop(inner);
        self.changed.notify_all();
    }
}

/// A recording in progress, or just ended.
#[derive(Debug)]
pub struct Tracker {
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
    started: Moment,
    owner_pid: u32,
}

impl Tracker {
    /// Starts the sampling thread and waits for its baseline.
    ///
    /// # Errors
    /// [`TrackerError`]; nothing runs then.
    pub fn start(config: Config, target: Target, sinks: Vec<Box<dyn Sink>>) -> Result<Self, TrackerError> {
        let root = if config.as_guest { Root::host_as_guest() } else { Root::host() };
        let root = root.map_err(TrackerError::Host)?;
        let bells = if config.as_guest { None } else { Bells::new()? };
        let scope = Scope {
            process: config.track_processes && target != Target::None,
            system: config.track_system,
            start_time: None,
            interval_s: config.interval.seconds(),
        };
        let progress = Arc::new(Progress::new(scope, bells));
        let (ready, baseline) = std::sync::mpsc::sync_channel(1);
        let shared = Arc::clone(&progress);
        // The baseline is read by the sampling thread itself: what it spends must not be inherited into the job's counters.
        let sample = move || match Engine::start(Arc::new(root), config, target) {
            Ok(mut engine) => {
                let started = engine.started_at();
                // Whoever waits may ask at once.
                shared.lock().summary = Summary::new(Scope { start_time: Some(started.wall_s()), ..scope });
                shared.set_cpu_source(engine.cpu_source());
                engine.tell_notes(&shared);
                let _ = ready.send(Ok(started));
                sampler::run(engine, target, &shared, sinks);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("resource-tracker".to_owned()).stack_size(256 << 10);
        let thread = sys::without_signals(|| thread.spawn(sample)).map_err(TrackerError::Resources)?;
        let started = match (baseline.recv(), target) {
            (Ok(Ok(started)), _) => started,
            (Ok(Err(source)), Target::Running(pid)) => return Err(TrackerError::Target { pid, source }),
            (Ok(Err(source)), _) => return Err(TrackerError::Host(source)),
            (Err(_), _) => {
                return Err(TrackerError::Resources(std::io::Error::other(
                    "the sampling thread ended at once",
                )));
            }
        };
        Ok(Self { progress, thread: Some(thread), started, owner_pid: std::process::id() })
    }

    /// Gives the sampling thread an order.
    pub fn order(&self, order: Order) {
        self.progress.lock().orders.push(order);
        match self.progress.bell() {
            Some(bell) => bell.ring(),
            None => self.progress.ordered.notify_all(),
        }
    }

    /// Makes the last row and ends the thread. Once more does nothing.
    pub fn stop(&mut self) {
        self.finish(Order::Stop);
    }

    /// Gives the last order and waits for the last row.
    pub fn finish(&mut self, order: Order) {
        let Some(thread) = self.thread.take() else { return };
        if self.is_forked_copy() {
            // The parent's thread goes on; there is nobody here to join.
            std::mem::forget(thread);
            return;
        }
        self.order(order);
        self.join(thread);
    }

    /// Rings when the last row was made; a guest has no such bell.
    #[must_use]
    pub fn ended(&self) -> Option<&Bell> {
        self.progress.bells.as_ref().map(|bells| &bells.ended)
    }

    /// Whether this is the copy that a fork left in a child, where no sampling thread runs. What the thread held at
    /// that moment stays locked for ever, so a copy can be dropped and asked nothing.
    #[must_use]
    pub fn is_forked_copy(&self) -> bool {
        self.owner_pid != std::process::id()
    }

    /// Waits for the end that comes by itself: the process that was followed ends.
    pub fn wait_for_end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.join(thread);
        }
    }

    fn join(&self, thread: JoinHandle<()>) {
        if thread.join().is_err() {
            self.progress.note("the sampling thread failed; rows after that are missing".to_owned());
            self.progress.set_state(State::Stopped);
        }
    }

    /// When the baseline was read.
    #[must_use]
    pub const fn started(&self) -> Moment {
        self.started
    }

    /// Where the tracker is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        self.progress.lock().state
    }

    /// Running figures over all rows so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.progress.lock().summary.clone()
    }

    /// The last row, if there is one.
    #[must_use]
    pub fn last_row(&self) -> Option<Row> {
        self.progress.lock().last_row.clone()
    }

    /// What did not go as it should, in words.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.progress.lock().notes.clone()
    }

    /// Adds to what is noted.
    pub fn note(&self, note: String) {
        self.progress.note(note);
    }

    /// How CPU time is counted: `perf`, `cgroup` or `procfs`.
    #[must_use]
    pub fn cpu_source(&self) -> &'static str {
        self.progress.lock().cpu_source
    }

    /// What each GPU did so far; none where the machine has none.
    #[must_use]
    pub fn gpus(&self) -> Vec<GpuFigures> {
        self.progress.lock().gpus.clone()
    }

    /// Waits until there are `rows` rows, the tracker has ended, or the time is up; says how many there are.
    #[must_use]
    pub fn wait_for_rows(&self, rows: u64, timeout: Duration) -> u64 {
        let deadline = Instant::now() + timeout;
        let mut inner = self.progress.lock();
        while inner.summary.rows() < rows && inner.state == State::Running {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.progress.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.summary.rows()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_a_tracker_is_asked_at_once_is_known() {
        // A process of one thread: this one has as many as the machine has CPUs, and not all of so many are counted.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for _ in 0..100 {
            let tracker = Tracker::start(Config::default(), Target::Running(child.id()), Vec::new()).unwrap();
            assert_eq!(tracker.cpu_source(), "perf");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
