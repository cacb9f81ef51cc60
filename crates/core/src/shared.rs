//! A [`Session`] in a program that has threads and forks: one lock, and a copy in a forked child that does no harm.
//!
//! In:  a session. Out: the same session for every thread of its process; in a forked child, what the parent has
//! written so far.
//! Not here: what a session does (`session`), languages (the fronts convert).
//!
//! After a fork the child has a copy of everything but the threads. A session that was started is never asked there: the
//! child reads the parent's journal instead, and starts, stops and removes nothing. One that was not started is the
//! child's as well, unless its lock was held at the fork by a thread that is not in the child: then it stays as it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use crate::session::{Plan, Session, SessionError};

/// A session that all threads of a program share.
#[derive(Debug)]
pub struct Shared {
    session: Mutex<Session>,
    /// The process whose thread holds the lock; 0 when nobody does.
    held_by_pid: AtomicU32,
    made_by_pid: u32,
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
        Self {
            plan: session.plan().clone(),
            session: Mutex::new(session),
            held_by_pid: AtomicU32::new(0),
            made_by_pid: std::process::id(),
            started: OnceLock::new(),
        }
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
        let left = match self.in_parent() {
            Some(started) => Some((started.journal.as_deref(), started.start_time)),
            None => match self.lock() {
                Some(mut session) => {
                    self.held_by_pid.store(std::process::id(), Ordering::Relaxed);
                    let done = work(&mut session);
                    self.held_by_pid.store(0, Ordering::Relaxed);
                    return done;
                }
                None => None,
            },
        };
        let (journal, start_time) = left.unwrap_or_default();
        work(&mut Session::from_journal(&self.plan, journal.unwrap_or(Path::new("")), start_time))
    }

    /// `None` where it is held by a thread that no fork has brought here.
    fn lock(&self) -> Option<MutexGuard<'_, Session>> {
        let own = std::process::id();
        if self.made_by_pid == own {
            return Some(self.session.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // Whoever has just taken it has not written its number yet, or never will.
        let mut looks_left = 100;
        loop {
            match self.session.try_lock() {
                Ok(session) => return Some(session),
                Err(TryLockError::Poisoned(session)) => return Some(session.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            if self.held_by_pid.load(Ordering::Relaxed) != own {
                looks_left -= 1;
            }
            if looks_left == 0 {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
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

    #[test]
    fn a_lock_that_a_fork_found_held_is_not_waited_for() {
        let mut shared = shared();
        // As in a forked child: neither who made it nor who holds it is here.
        shared.made_by_pid += 1;
        assert_eq!(shared.with(|session| session.rows()), 0, "free: as any other");
        shared.held_by_pid.store(shared.made_by_pid, Ordering::Relaxed);
        let held = shared.session.lock().unwrap();
        assert!(!shared.with(|session| session.is_running()));
        shared.stop();
        shared.remove_files();
        drop(held);
    }
}
