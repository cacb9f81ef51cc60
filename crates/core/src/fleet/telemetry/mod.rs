//! Live telemetry: the rows of a run as metrics, for collectors that run already.
//!
//! In:  rows, and the facts about the run. Out: OTLP/HTTP requests, a file for the textfile collector of Prometheus, and
//! requests to a Pushgateway; one note for each receiver that did not get everything.
//! Not here: the columns (`metric`), which options switch it on (the command).
//!
//! A row is put into a bounded queue, which takes microseconds; a thread of its own (`sender`) does the rest. At the end the
//! tracker waits at most [`LAST_WAIT`] for it.

pub mod address;
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
use std::time::{Duration, Instant};

use address::Address;
use sender::{Receivers, Shared};
use values::Totals;

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
    shared: Arc<Shared>,
    /// Receivers that are switched off.
    notes: Vec<String>,
}

impl Telemetry {
    /// The value of `otlp` that leaves the address to the variables of OpenTelemetry.
    pub const BY_VARIABLES: &str = "env";

    /// Checks the address of a receiver; `None` if it is not an `http://` or `https://` URL.
    pub fn address(text: &str) -> Option<String> {
        Address::parse(text).map(|_| text.to_owned())
    }

    /// Starts the thread. The file is opened first, with `force` also if another program wrote it: what cannot be written
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
        let otlp =
            otlp.and_then(|given| otlp::Endpoint::of_environment(&given).map_err(|why| notes.push(why)).ok());
        let pushgateway = pushgateway.and_then(|url| prometheus::pushgateway_address(&url, run));
        let receivers =
            Receivers { otlp, pushgateway, file: file.map(|(path, force)| (path.to_owned(), force)) };
        let shared = Arc::new(Shared::new(receivers, run.clone(), offline));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("rt-telemetry".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = os::without_signals(|| thread.spawn(move || of_thread.work())) {
            notes.push(format!("cannot start the thread for telemetry: {error}"));
            shared.close();
        }
        let sink = TelemetrySink { shared: Arc::clone(&shared), totals: Totals::default() };
        Ok(Some((Self { shared, notes }, Box::new(sink))))
    }

    /// Sends the end of the run. Returns what did not arrive.
    pub fn finish(mut self, run: &Run) -> Vec<String> {
        let ends = Instant::now() + LAST_WAIT;
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.shared.finish(run, ends));
        notes
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.shared.close();
    }
}

struct TelemetrySink {
    shared: Arc<Shared>,
    totals: Totals,
}

impl Sink for TelemetrySink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.shared.push(self.totals.add(row));
        Ok(ControlFlow::Continue(()))
    }

    fn name(&self) -> String {
        "telemetry".to_owned()
    }
}
