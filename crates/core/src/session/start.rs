//! How a session begins: a thread of the host's own or a companion, and a file for the rows.
//!
//! In:  the plan. Out: a [`Session`] that records.
//! Not here: the sampling (`tracker`), the other process (`companion`).

use std::cell::RefCell;

use super::{Followed, Life, Session, SessionError};
use crate::cloud;
use crate::companion::{self, Companion};
use crate::config::Config;
use crate::error::with_causes;
use crate::history::History;
use crate::paths;
use crate::record::{self, Rows};
use crate::recording::Run;
use crate::recover::temporary_name;
use crate::sampler::{Order, Sink, Target};
use crate::snapshot::Moment;
use crate::summary::Summary;
use crate::sys;
use crate::tracker::Tracker;
use crate::wrap::command_of;

impl Session {
    /// Starts the sampler, and looks for the cloud beside it.
    ///
    /// # Errors
    /// [`SessionError`]; nothing runs then.
    pub fn start(&mut self) -> Result<(), SessionError> {
        if self.is_running() {
            return Err(SessionError::Running);
        }
        if self.stop_time.is_some() || !matches!(self.life, Life::New) {
            return Err(SessionError::Stopped);
        }
        let companion = self.plan.companion.as_ref();
        if companion.is_some() && !companion::IS_AVAILABLE {
            self.warnings
                .push("no sampler in a process of its own on this system: it is a thread".to_owned());
        }
        let program = companion.filter(|_| companion::IS_AVAILABLE);
        match program.map(|program| Companion::start(program, &self.plan)) {
            Some(Ok((companion, rows))) => {
                self.start_time = Some(companion.start_time);
                let followed =
                    Box::new(RefCell::new(Followed { summary: Summary::new(self.scope()), offset: 0 }));
                self.life = Life::Companion { companion: Box::new(companion), rows: Some(rows), followed };
            }
            Some(Err(error)) if error.is_shortage() => {
                self.warnings.push(format!(
                    "{}: the sampler is a thread, and ends with this program when that is killed",
                    with_causes(&error)
                ));
                self.start_thread()?;
            }
            Some(Err(error)) => return Err(error.into()),
            None => self.start_thread()?,
        }
        if self.plan.discover_cloud {
            self.discover_cloud();
        }
        Ok(())
    }

    fn discover_cloud(&self) {
        if let Life::Thread { tracker, .. } = &self.life {
            return tracker.order(Order::Start(|| cloud::discover_in_background(false)));
        }
        sys::without_signals(|| cloud::discover_in_background(false));
    }

    fn start_thread(&mut self) -> Result<(), SessionError> {
        let target =
            if self.plan.config.track_processes { Target::Running(self.plan.pid) } else { Target::None };
        let (rows, sink) = self.start_rows().unzip();
        let config = Config { as_guest: true, ..self.plan.config };
        let tracker = Tracker::start(config, target, sink.into_iter().collect())?;
        self.start_time = Some(tracker.started().wall_s());
        self.life = Life::Thread { tracker: Box::new(tracker), rows };
        Ok(())
    }

    /// A host that cannot have a file gets its statistics all the same.
    fn start_rows(&mut self) -> Option<(Rows, Box<dyn Sink>)> {
        let id = History::new_id();
        let folder = self.rows_folder.clone().unwrap_or_else(paths::temporary);
        let path = folder.join(temporary_name(std::process::id(), &id));
        // For whoever finds it when this program was killed.
        let run = Run {
            id: Some(id),
            command: command_of(self.plan.pid),
            host: sys::host_name(),
            ..Run::default()
        };
        let head = record::head(&self.plan.config, self.plan.pid, Moment::now().wall_s(), Run::default());
        match Rows::start(&path, &Rows::about(&head.metadata, &run), true) {
            Ok(started) => Some(started),
            Err(error) => {
                self.warnings.push(format!(
                    "cannot write `{}`: {error}; there are statistics, but no tables",
                    path.display()
                ));
                None
            }
        }
    }
}
