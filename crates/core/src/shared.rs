//! A [`Session`] in a program that has threads and forks: one lock, and a copy in a forked child that does no harm.
//!
//! In:  a session. Out: the same session for every thread of its process; in a forked child, what the parent has
//! written so far.
//! Not here: what a session does (`session`), languages (the fronts convert).
//!
//! After a fork the child has a copy of everything but the threads. The lock may be held there for ever by a thread
//! that is not, so the copy is never asked: the child reads the parent's journal instead, and starts, stops and removes
//! nothing.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::session::{Plan, Session, SessionError};

/// A session that all threads of a program share.
#[derive(Debug)]
pub struct Shared {
    session: Mutex<Session>,
    plan: Plan,
    started: OnceLock<Started>,
}

/// What the copy in a forked child may know.
#[derive(Debug)]
struct Started {
    by_pid: u32,
    journal: Option<PathBuf>,
    start_time: f64,
}

impl Shared {
    /// Takes a session.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self { plan: session.plan().clone(), session: Mutex::new(session), started: OnceLock::new() }
    }

    /// What was planned.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Starts the sampler and waits for its baseline.
    ///
    /// # Errors
    /// Those of [`Session::start`].
    pub fn start(&self) -> Result<(), SessionError> {
        self.with(|session| {
            session.start()?;
            let _ = self.started.set(Started {
                by_pid: std::process::id(),
                journal: session.journal().map(PathBuf::from),
                start_time: session.start_time().unwrap_or_default(),
            });
            Ok(())
        })
    }

    /// Works on the session; a forked copy works on what its parent has written so far.
    pub fn with<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        match self.started.get().filter(|started| started.by_pid != std::process::id()) {
            Some(Started { journal, start_time, .. }) => {
                let journal = journal.clone().unwrap_or_default();
                work(&mut Session::from_journal(&self.plan, &journal, *start_time))
            }
            None => work(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
