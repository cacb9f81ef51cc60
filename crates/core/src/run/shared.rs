//! A [`Session`] for all threads of a program that may fork: one lock, and a read-only view in a forked child.
//!
//! In:  a session. Out: the same session for every thread of its process; in a forked child, the rows that the parent
//! has written so far.
//! Not here: what a session does (`session`), conversions for Python and R (the fronts).
//!
//! A forked child has a copy of the memory but not of the threads. If the session was started before the fork, the
//! child never touches the session or its lock: the child reads the parent's journal, and starts, stops and removes
//! nothing. If the session was not started, the child may use its own copy. If another thread held the lock at the
//! fork, the copy stays locked for ever, and the child sees an empty session.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use crate::run::plan::Plan;
use crate::run::session::{Session, SessionError};
use crate::sampler::marks::{Mark, START, marks_beside};
use crate::sampler::progress::Progress;

/// A forked child tries the lock this often, 1 ms apart. A lock that is still held was held by the parent at the fork.
const LOCK_TRIES: u32 = 100;

/// A session that several threads may use, and that is read-only in a forked child.
#[derive(Debug)]
pub struct Shared {
    session: Mutex<Session>,
    /// Pid of the process whose threads use the lock. A forked child that takes the free lock writes its own pid here.
    holder_pid: AtomicU32,
    plan: Plan,
    started: OnceLock<Started>,
    /// The phase that this process has marked last.
    phase: Mutex<String>,
}

/// What a forked child needs to read the parent's journal.
#[derive(Debug)]
struct Started {
    by_pid: u32,
    journal: Option<PathBuf>,
    start_time: f64,
    /// The sampling thread; `None` if a sidecar samples.
    progress: Option<Arc<Progress>>,
}

impl Shared {
    pub fn new(session: Session) -> Self {
        Self {
            plan: session.plan().clone(),
            session: Mutex::new(session),
            holder_pid: AtomicU32::new(std::process::id()),
            started: OnceLock::new(),
            phase: Mutex::new(START.to_owned()),
        }
    }

    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Starts the sampler and waits for its baseline.
    pub fn start(&self) -> Result<(), SessionError> {
        self.with(|session| {
            session.start()?;
            if session.state().is_none() {
                return Ok(());
            }
            let _ = self.started.set(Started {
                by_pid: std::process::id(),
                journal: session.journal().map(PathBuf::from),
                start_time: session.start_time().unwrap_or_default(),
                progress: session.progress(),
            });
            Ok(())
        })
    }

    /// Makes the last row. Has no effect if it is called again, or in a forked child.
    pub fn stop(&self) {
        if self.started_by_parent().is_none() {
            self.with(Session::stop);
        }
    }

    /// Starts a phase of the job, and returns the phase that this process marked before. Never waits, and has no effect
    /// before the start and after the end. A forked child, and a program with a sidecar, write the mark to a file.
    pub fn mark(&self, name: &str) -> String {
        let mark = Mark::now(name);
        match self.started.get() {
            Some(Started { by_pid, progress: Some(progress), .. }) if *by_pid == std::process::id() => {
                progress.mark(&mark);
            }
            Some(Started { journal: Some(journal), .. }) => {
                // A mark must not disturb the job: the run may have ended.
                let _ = mark.append(&marks_beside(journal), journal.exists());
            }
            _ => {}
        }
        // Another thread may have held the lock at a fork.
        let before = self.phase.try_lock().map(|mut phase| std::mem::replace(&mut *phase, mark.name));
        before.unwrap_or_else(|_| START.to_owned())
    }

    /// Stops, and removes temporary files. Has no effect in a forked child.
    pub fn remove_files(&self) {
        if self.started_by_parent().is_none() {
            self.with(Session::remove_files);
        }
    }

    /// Calls `work` with the session; in a child forked after the start, with a read-only view of what the parent has
    /// written so far.
    pub fn with<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        let view = |journal: &Path, start_time| Session::from_journal(&self.plan, journal, start_time);
        if let Some(started) = self.started_by_parent() {
            let journal = started.journal.as_deref().unwrap_or(Path::new(""));
            return work(&mut view(journal, started.start_time));
        }
        match self.lock() {
            Some(mut session) => work(&mut session),
            None => work(&mut view(Path::new(""), 0.0)),
        }
    }

    fn started_by_parent(&self) -> Option<&Started> {
        self.started.get().filter(|started| started.by_pid != std::process::id())
    }

    /// `None` in a forked child if a thread of the parent held the lock at the fork.
    fn lock(&self) -> Option<MutexGuard<'_, Session>> {
        let own_pid = std::process::id();
        for _ in 0..LOCK_TRIES {
            if self.holder_pid.load(Ordering::Relaxed) == own_pid {
                return Some(self.session.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let guard = match self.session.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // Another thread of this process may have taken the lock just now.
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            self.holder_pid.store(own_pid, Ordering::Relaxed);
            return Some(guard);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Interval};

    fn shared() -> Shared {
        let config = Config { interval: Interval::from_seconds(0.02).unwrap(), ..Config::default() };
        Shared::new(Session::new(Plan::new(config, std::process::id())))
    }

    #[test]
    fn all_threads_use_one_session() {
        let shared = shared();
        shared.start().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| shared.stop());
        });
        assert!(!shared.with(|session| session.is_running()));
        assert!(matches!(shared.start(), Err(SessionError::Stopped)));
    }

    #[test]
    fn forked_child_of_a_started_session_only_reads() {
        let mut shared = shared();
        shared.start().unwrap();
        while shared.with(|session| session.rows()) < 2 {
            std::thread::yield_now();
        }
        // As after a fork: another process started the session, and a thread of that process may hold the lock.
        let mut started = shared.started.take().unwrap();
        let journal = started.journal.clone().unwrap();
        started.by_pid += 1;
        assert!(shared.started.set(started).is_ok());
        let held = shared.session.lock().unwrap();
        assert!(shared.with(|session| session.rows()) >= 2);
        assert!(!shared.with(|session| session.is_running()));
        shared.stop();
        shared.remove_files();
        assert!(matches!(shared.start(), Err(SessionError::Stopped)));
        assert!(journal.exists());
        drop(held);
        // The parent's session still runs.
        let parents = shared.session.get_mut().unwrap();
        assert!(parents.is_running());
        parents.remove_files();
        assert!(!journal.exists());
    }

    #[test]
    fn lock_that_was_held_at_a_fork_is_given_up() {
        let shared = shared();
        let parents_pid = std::process::id() + 1;
        shared.holder_pid.store(parents_pid, Ordering::Relaxed);
        assert_eq!(shared.with(|session| session.rows()), 0, "a free lock is taken");
        assert_eq!(shared.holder_pid.load(Ordering::Relaxed), std::process::id());
        shared.holder_pid.store(parents_pid, Ordering::Relaxed);
        let held = shared.session.lock().unwrap();
        assert!(!shared.with(|session| session.is_running()));
        shared.stop();
        shared.remove_files();
        drop(held);
    }
}
