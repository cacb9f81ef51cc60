//! Stores the runs of a session in a store of many machines.
//!
//! In:  the plan and a run of the history. Out: its files in the store, or a warning.
//! Not here: how a run is stored (`push`), when it is saved in the history (`save`).
//!
//! A thread stores the run, since the host process may mind a child. It goes on if it takes longer than a moment; if the
//! host ends before, the run is in the history only.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::{Session, Source};
use crate::error::with_causes;
use crate::fleet::Fleet;
use crate::os;
use crate::run::push::push_to;
use crate::store::history::{Entry, History};

/// A session waits this long for its run to be stored.
const MOST_WAIT: Duration = Duration::from_secs(1);

impl Session {
    /// Adds a warning about a store, which [`Self::take_notes`] returns.
    pub fn add_warning(&mut self, warning: Option<String>) {
        self.warnings.extend(warning);
    }

    /// Stores a run that has ended. A session of a loaded recording, and the view of a forked child, store nothing.
    pub(super) fn store(&mut self, history: History, entry: Entry) {
        let is_own = matches!(self.source, Source::Thread { .. } | Source::Sidecar { .. });
        let Some(url) = self.plan.store.clone().filter(|_| is_own && !self.is_running()) else { return };
        let (sender, receiver) = channel();
        let address = url.clone();
        let push = move || {
            let stored = push_to(&address, &history, &entry).map_err(|error| with_causes(&error));
            // Fails if the session no longer waits.
            let _ = sender.send(stored);
        };
        let started = os::without_signals(|| thread::Builder::new().name("rt-store".to_owned()).spawn(push));
        let why = match started.map(|_| receiver.recv_timeout(MOST_WAIT)) {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => "it takes longer than a second".to_owned(),
            Err(error) => error.to_string(),
        };
        self.warnings.push(Fleet::not_stored(&url, &why));
    }
}
