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

    /// Makes the last row; nothing more when it was made. A forked copy does nothing.
    pub fn stop(&self) {
        if self.in_parent().is_none() {
            self.with(Session::stop);
        }
    }

    /// Stops, and removes temporary files. A forked copy does nothing.
    pub fn remove_files(&self) {
        if self.in_parent().is_none() {
            self.with(Session::remove_files);
        }
    }

    /// What was started by another process than this one.
    fn in_parent(&self) -> Option<&Started> {
        self.started.get().filter(|started| started.by_pid != std::process::id())
    }

    /// Works on the session; a forked copy works on what its parent has written so far.
    pub fn with<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        match self.in_parent() {
            Some(Started { journal, start_time, .. }) => {
                let journal = journal.clone().unwrap_or_default();
                work(&mut Session::from_journal(&self.plan, &journal, *start_time))
            }
            None => work(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Interval};

    fn shared() -> Shared {
        let config = Config { interval: Interval::from_seconds(0.02).unwrap(), ..Config::default() };
        Shared::new(Session::new(Plan {
            config,
            pid: std::process::id(),
            method: None,
            autostart: false,
            discover_server: false,
            discover_cloud: false,
            companion: None,
        }))
    }

    #[test]
    fn every_thread_sees_one_session() {
        let shared = shared();
        shared.start().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| shared.stop());
        });
        assert!(!shared.with(|session| session.is_running()));
        assert!(matches!(shared.start(), Err(SessionError::Stopped)));
    }

    #[test]
    fn a_copy_in_another_process_reads_and_does_nothing_else() {
        let mut shared = shared();
        shared.start().unwrap();
        while shared.with(|session| session.rows()) < 2 {
            std::thread::yield_now();
        }
        // As after a fork: whoever started it is not who asks.
        let mut started = shared.started.take().unwrap();
        let journal = started.journal.clone().unwrap();
        started.by_pid += 1;
        assert!(shared.started.set(started).is_ok());
        assert!(shared.with(|session| session.rows()) >= 2);
        assert!(!shared.with(|session| session.is_running()));
        shared.stop();
        shared.remove_files();
        assert!(matches!(shared.start(), Err(SessionError::Stopped)));
        assert!(journal.exists());
        // The owner's own session has gone on all the while.
        let owner = shared.session.get_mut().unwrap();
        assert!(owner.is_running());
        owner.remove_files();
        assert!(!journal.exists());
    }
}
