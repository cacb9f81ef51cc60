//! State shared by the sampling thread and its owner.
//!
//! In and out: commands from the owner for the thread; number of rows, notes and state from the thread for the owner.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::SamplerCommand;
use super::evidence::{Evidence, SignalReceived};
use super::marks::Mark;
use super::phases::Phases;
use crate::job::programs::ProgramFigures;
use crate::os::EventFd;
use crate::probe::cgroup::{Limits, OomCounts};
use crate::probe::evidence::LimitReached;
use crate::probe::gpu::GpuFigures;

/// State of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// The tracked process has ended.
    Exited,
    /// The tracker was stopped.
    Stopped,
}

impl State {
    /// The name of the state in summaries and in the fronts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Stopped => "stopped",
        }
    }
}

#[derive(Debug)]
pub struct Progress {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Signalled when a command was sent, if there are no eventfds.
    commanded: Condvar,
    /// `None` in in-process mode, which keeps no descriptor open, and on systems without eventfds.
    eventfds: Option<EventFds>,
    phases: Mutex<Phases>,
}

#[derive(Debug)]
pub(crate) struct EventFds {
    command: EventFd,
    /// Signalled after the last row.
    ended: EventFd,
}

impl EventFds {
    pub(crate) fn new() -> io::Result<Option<Self>> {
        Ok(EventFd::new()?.zip(EventFd::new()?).map(|(command, ended)| Self { command, ended }))
    }
}

#[derive(Debug)]
struct Inner {
    commands: Vec<SamplerCommand>,
    rows: u64,
    notes: Vec<String>,
    state: State,
    cpu_source: &'static str,
    gpus: Vec<GpuFigures>,
    programs: Vec<ProgramFigures>,
    limits: Limits,
    oom_counts: OomCounts,
    evidence: Evidence,
}

impl Progress {
    pub(crate) fn new(eventfds: Option<EventFds>) -> Self {
        let inner = Inner {
            commands: Vec::new(),
            rows: 0,
            notes: Vec::new(),
            state: State::Running,
            cpu_source: "procfs",
            gpus: Vec::new(),
            programs: Vec::new(),
            limits: Limits::default(),
            oom_counts: OomCounts::default(),
            evidence: Evidence::default(),
        };
        Self {
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            commanded: Condvar::new(),
            eventfds,
            phases: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The values are consistent even after a panic, since every change is one assignment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phases of the job so far.
    pub(crate) fn phases(&self) -> MutexGuard<'_, Phases> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a phase of the job. The sampling thread is woken by the first mark since the last row, and makes a row.
    pub(crate) fn mark(&self, mark: &Mark) {
        if self.state() == State::Running && self.phases().mark(mark) {
            self.send(SamplerCommand::Marked);
        }
    }

    pub(crate) fn eventfd(&self) -> Option<&EventFd> {
        self.eventfds.as_ref().map(|eventfds| &eventfds.command)
    }

    /// Waits for a command or the timeout, if there are no eventfds.
    pub(crate) fn wait_for_command(&self, timeout: Duration) {
        let inner = self.lock();
        let has_none = |inner: &mut Inner| inner.commands.is_empty();
        drop(self.commanded.wait_timeout_while(inner, timeout, has_none));
    }

    pub(crate) fn take_commands(&self) -> Vec<SamplerCommand> {
        std::mem::take(&mut self.lock().commands)
    }

    /// Adds a note, unless it was added before.
    pub(crate) fn note(&self, note: String) {
        let mut inner = self.lock();
        if !inner.notes.contains(&note) {
            inner.notes.push(note);
        }
    }

    pub(crate) fn set_cpu_source(&self, name: &'static str) {
        self.lock().cpu_source = name;
    }

    pub(crate) fn set_programs(&self, programs: Vec<ProgramFigures>) {
        self.lock().programs = programs;
    }

    pub(crate) fn set_gpus(&self, gpus: Vec<GpuFigures>) {
        self.lock().gpus = gpus;
    }

    pub(crate) fn set_cgroups(&self, limits: Limits, oom_counts: OomCounts) {
        let mut inner = self.lock();
        (inner.limits, inner.oom_counts) = (limits, oom_counts);
    }

    pub(crate) fn add_signal(&self, received: SignalReceived) {
        self.lock().evidence.add_signal(received);
    }

    pub(crate) fn set_limits_reached(&self, limits: Vec<LimitReached>) {
        self.lock().evidence.limits_reached = limits;
    }

    /// Signals and limits so far.
    pub(crate) fn evidence(&self) -> Evidence {
        self.lock().evidence.clone()
    }

    pub(crate) fn set_state(&self, state: State) {
        self.lock().state = state;
        self.changed.notify_all();
        if let Some(eventfds) = &self.eventfds {
            eventfds.ended.notify();
        }
    }

    pub(crate) fn add_row(&self) {
        self.lock().rows += 1;
        self.changed.notify_all();
    }

    pub(crate) fn send(&self, command: SamplerCommand) {
        self.lock().commands.push(command);
        match self.eventfd() {
            Some(eventfd) => eventfd.notify(),
            None => self.commanded.notify_all(),
        }
    }

    pub(crate) fn ended(&self) -> Option<&EventFd> {
        self.eventfds.as_ref().map(|eventfds| &eventfds.ended)
    }

    pub(crate) fn state(&self) -> State {
        self.lock().state
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.lock().notes.clone()
    }

    pub(crate) fn cpu_source(&self) -> &'static str {
        self.lock().cpu_source
    }

    pub fn programs(&self) -> Vec<ProgramFigures> {
        self.lock().programs.clone()
    }

    pub(crate) fn gpus(&self) -> Vec<GpuFigures> {
        self.lock().gpus.clone()
    }

    /// The limits of the job, and OOM kills.
    pub(crate) fn cgroups(&self) -> (Limits, OomCounts) {
        let inner = self.lock();
        (inner.limits, inner.oom_counts)
    }

    /// Waits for `rows` rows, the end of the sampling thread or the timeout; returns the number of rows.
    pub(crate) fn wait_for_rows(&self, rows: u64, timeout: Duration) -> u64 {
        let deadline = Instant::now() + timeout;
        let mut inner = self.lock();
        while inner.rows < rows && inner.state == State::Running {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.rows
    }
}
