//! Live telemetry: the rows of a run as metrics, for collectors that run already.
//!
//! In:  rows, and the facts about the run. Out: OTLP/HTTP requests, a file for the textfile collector of Prometheus, and
//! requests to a Pushgateway; one note for each receiver that did not get everything.
//! Not here: the columns (`metric`), which options switch it on (the command).
//!
//! A row is put into a bounded queue for each receiver, which takes microseconds; a thread for each (`sender`) does the rest.
//! At the end the tracker waits at most [`LAST_WAIT`] for all of them.

pub mod address;
mod endpoint;
pub mod names;
pub mod otlp;
pub mod prometheus;
pub mod protobuf;
mod sender;
pub mod values;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use address::Address;
use endpoint::Endpoint;
use sender::{Receiver, Sender};
use values::Totals;

use crate::market::cloud::DiscoveryResult;
use crate::metric::Row;
use crate::os;
use crate::os::output::Output;
use crate::sampler::Sink;
use crate::store::recording::Run;

/// The tracker waits this long for the last values to arrive.
const LAST_WAIT: Duration = Duration::from_millis(900);
/// Enough for a TLS session in a build without optimisation.
const STACK_BYTES: usize = 1 << 20;

/// Sends the rows of a run to the receivers that the user named.
#[derive(Debug)]
pub struct Telemetry {
    senders: Vec<Arc<Sender>>,
    /// Receivers that are switched off, and settings that are not supported.
    notes: Vec<String>,
}

impl Telemetry {
    /// The value of `otlp` that leaves the address to the variables of OpenTelemetry.
    pub const BY_VARIABLES: &str = "env";

    /// Checks the address of a receiver; `None` if it is not an `http://` or `https://` URL.
    pub fn address(text: &str) -> Option<String> {
        Address::parse(text).map(|_| text.to_owned())
    }

    /// Starts the threads. The file is opened first, with `force` also if another program wrote it: what cannot be written
    /// is an error before the job starts. `None` if no receiver is named, or none is left with `offline`.
    pub fn start(
        (otlp, pushgateway): (Option<&str>, Option<&str>),
        file: Option<(&Path, bool)>,
        run: &Run,
        offline: bool,
    ) -> io::Result<Option<(Self, Box<dyn Sink>)>> {
        if otlp.is_none() && pushgateway.is_none() && file.is_none() {
            return Ok(None);
        }
        if let Some((path, force)) = file {
            Output::open_argument(path, force)?;
        }
        let mut notes = Vec::new();
        let mut unless_offline = |receiver: &str, address: Option<&str>| {
            let address = address?;
            if offline {
                notes.push(format!("nothing is sent by {receiver}: the network is switched off (--offline)"));
            }
            (!offline).then(|| address.to_owned())
        };
        let otlp = unless_offline("OTLP", otlp);
        let pushgateway = unless_offline("Pushgateway", pushgateway);
        let otlp = otlp.and_then(|given| Endpoint::of_environment(&given, &mut notes));
        let pushgateway = pushgateway.and_then(|url| prometheus::pushgateway_address(&url, run));
        let file = file.map(|(path, force)| Receiver::File { path: path.to_owned(), force });
        let receivers =
            file.into_iter().chain(pushgateway.map(Receiver::Pushgateway)).chain(otlp.map(Receiver::Otlp));
        let senders: Vec<_> =
            receivers.map(|receiver| Arc::new(Sender::new(receiver, run.clone()))).collect();
        for sender in &senders {
            if let Err(error) = start_threads(sender) {
                notes.push(format!("cannot start a thread for telemetry: {error}"));
                sender.close();
            }
        }
        let sink = TelemetrySink { senders: senders.clone(), totals: Totals::default() };
        Ok(Some((Self { senders, notes }, Box::new(sink))))
    }

    /// Sends the end of the run. Returns what did not arrive.
    pub fn finish(mut self, run: &Run) -> Vec<String> {
        let ends = Instant::now() + LAST_WAIT;
        let mut notes = std::mem::take(&mut self.notes);
        // All of them at the same time.
        self.senders.iter().for_each(|sender| sender.end(run));
        notes.extend(self.senders.iter().flat_map(|sender| sender.wait(ends)));
        notes
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.senders.iter().for_each(|sender| sender.close());
    }
}

fn start_threads(sender: &Arc<Sender>) -> io::Result<()> {
    let start = |name: &str, work: fn(&Sender)| {
        let sender = Arc::clone(sender);
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        os::without_signals(|| thread.spawn(move || work(&sender))).map(|_| ())
    };
    start("rt-telemetry", Sender::work)?;
    if sender.needs_cloud() && start("rt-cloud-wait", Sender::find_cloud).is_err() {
        sender.set_cloud(DiscoveryResult { cloud: None, discovery_time_s: 0.0 });
    }
    Ok(())
}

struct TelemetrySink {
    senders: Vec<Arc<Sender>>,
    totals: Totals,
}

impl Sink for TelemetrySink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        let point = self.totals.add(row);
        self.senders.iter().for_each(|sender| sender.push(point.clone()));
        Ok(ControlFlow::Continue(()))
    }

    fn name(&self) -> String {
        "telemetry".to_owned()
    }
}
