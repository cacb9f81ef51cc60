//! The thread that sends to a receiver, and the bounded queue before it.
//!
//! In:  points, and the end of the run. Out: requests or a file; what did not arrive.
//! Not here: the content (`otlp`, `prometheus`).
//!
//! Each receiver has a thread and a queue of its own, so that none waits for another. A request that fails is repeated with the
//! next row, after a pause that doubles. OTLP gets all points of the queue in one request, the other receivers the newest
//! point. A full queue loses its oldest point.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::address::Address;
use super::endpoint::Endpoint;
use super::values::Point;
use super::{otlp, prometheus};
use crate::human;
use crate::market::cloud::{self, DiscoveryResult};
use crate::os::Moment;
use crate::os::http::{Client, HttpError};
use crate::os::output::Output;
use crate::store::recording::Run;

/// Five minutes at one row a second.
const MOST_POINTS: usize = 300;
const PUSHGATEWAY_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
const MOST_BYTES_OF_ANSWER: u64 = 64 << 10;

#[derive(Debug)]
pub enum Receiver {
    Otlp(Endpoint),
    Pushgateway(Address),
    /// `force` replaces a file of another program.
    File {
        path: PathBuf,
        force: bool,
    },
}

/// What the tracker and the threads of a receiver share.
#[derive(Debug)]
pub struct Sender {
    receiver: Receiver,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Points that OTLP has not received, oldest first.
    points: VecDeque<Point>,
    newest: Option<Point>,
    /// Number of points so far.
    made: u64,
    /// Number of points that OTLP never receives.
    lost: u64,
    /// Data points that OTLP refused, and why.
    rejected: u64,
    rejected_why: String,
    run: Run,
    /// `None` while it is not known.
    cloud: Option<DiscoveryResult>,
    /// Whether the run has ended, so that the next round is the last.
    is_ended: bool,
    /// Whether the thread has ended, or should without another request.
    is_closed: bool,
    has_end: bool,
    /// Why the last request failed.
    error: Option<String>,
}

impl State {
    fn finish_round(&mut self, is_last: bool, error: Option<String>) {
        self.has_end = is_last && error.is_none();
        self.error = error;
    }
}

impl Sender {
    pub fn new(receiver: Receiver, run: Run) -> Self {
        let state = Mutex::new(State { run, ..State::default() });
        Self { receiver, state, changed: Condvar::new() }
    }

    pub const fn needs_cloud(&self) -> bool {
        matches!(self.receiver, Receiver::Otlp(_))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a point. Called by the sampling thread: never waits for a receiver.
    pub fn push(&self, point: Point) {
        let mut state = self.state();
        state.made += 1;
        if self.needs_cloud() {
            if state.points.len() == MOST_POINTS {
                state.points.pop_front();
                state.lost += 1;
            }
            state.points.push_back(point.clone());
        }
        state.newest = Some(point);
        drop(state);
        self.changed.notify_all();
    }

    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Lets the thread send the end of the run.
    pub fn end(&self, run: &Run) {
        let mut state = self.state();
        state.run = run.clone();
        state.is_ended = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the end of the run to arrive until `ends`. Returns notes about what the receiver lacks.
    pub fn wait(&self, ends: Instant) -> Vec<String> {
        let mut state = self.state();
        while !state.is_closed {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.notes(&state)
    }

    fn notes(&self, state: &State) -> Vec<String> {
        let why = state.error.as_deref().unwrap_or("no answer in time");
        let lacks = |what: &str, url: &str| format!("{what} did not reach `{url}`: {why}");
        match &self.receiver {
            Receiver::Otlp(endpoint) => {
                let url = endpoint.address.shown();
                let missing = state.lost + state.points.len() as u64;
                let rows = format!("{missing} of {} rows", state.made);
                let of_rows = match missing {
                    0 => (!state.has_end).then(|| lacks("the end of the run", url)),
                    _ if !state.has_end => Some(lacks(&rows, url)),
                    _ => Some(format!("{rows} did not reach `{url}`")),
                };
                let why = &state.rejected_why;
                let of_points = (state.rejected > 0)
                    .then(|| format!("{} data points were refused by `{url}`: {why}", state.rejected));
                of_rows.into_iter().chain(of_points).collect()
            }
            Receiver::Pushgateway(address) if !state.has_end => vec![lacks("the last row", address.shown())],
            Receiver::File { path, .. } if !state.has_end => {
                let why = state.error.as_deref().unwrap_or("not done in time");
                vec![format!("cannot write `{}`: {why}", path.display())]
            }
            Receiver::Pushgateway(_) | Receiver::File { .. } => Vec::new(),
        }
    }

    /// Finds the cloud, which takes a second at most. A thread of its own, so that the end of a run does not wait for it.
    pub fn find_cloud(&self) {
        self.set_cloud(cloud::discover(false));
    }

    pub fn set_cloud(&self, cloud: DiscoveryResult) {
        self.state().cloud = Some(cloud);
        self.changed.notify_all();
    }

    /// The thread: a round for new points, and one for the end of the run.
    pub fn work(&self) {
        let mut link = Link::default();
        let mut seen = 0;
        loop {
            let mut state = self.state();
            // All requests have the same facts about the cloud, but for a run that ends before they are known.
            while (state.made == seen || self.needs_cloud() && state.cloud.is_none())
                && !state.is_ended
                && !state.is_closed
            {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closed {
                return;
            }
            seen = state.made;
            let is_last = state.is_ended;
            if is_last || link.is_due() {
                match &self.receiver {
                    Receiver::Otlp(endpoint) => self.send_points(state, endpoint, &mut link),
                    Receiver::Pushgateway(address) => self.push_to_gateway(state, address, &mut link),
                    Receiver::File { path, force } => self.write_file(state, path, *force),
                }
            } else {
                drop(state);
            }
            if is_last {
                self.close();
            }
        }
    }

    fn write_file(&self, state: MutexGuard<'_, State>, path: &std::path::Path, force: bool) {
        let (text, is_last) = (text(&state), state.is_ended);
        drop(state);
        let written = Output::open_argument(path, force).and_then(|mut output| {
            output.write_all(text.as_bytes())?;
            output.commit()
        });
        self.state().finish_round(is_last, written.err().map(|error| error.to_string()));
    }

    fn push_to_gateway(&self, state: MutexGuard<'_, State>, address: &Address, link: &mut Link) {
        let (text, is_last) = (text(&state), state.is_ended);
        drop(state);
        let headers = [("Content-Type", prometheus::CONTENT_TYPE)];
        let client = || Client::service(PUSHGATEWAY_TIMEOUT, MOST_BYTES_OF_ANSWER);
        let sent = link.send(client, "PUT", address, &headers, text.as_bytes());
        self.state().finish_round(is_last, sent.err().map(|refusal| refusal.why));
    }

    fn send_points(&self, state: MutexGuard<'_, State>, endpoint: &Endpoint, link: &mut Link) {
        let points = Vec::from(state.points.clone());
        let (newest, run) = (state.newest.clone(), state.run.clone());
        let cloud = state.cloud.as_ref().and_then(|found| found.cloud.clone());
        let (last, is_last) = (state.made, state.is_ended);
        drop(state);
        let body = otlp::request(&endpoint.attributes, &points, newest.as_ref(), &run, cloud.as_ref());
        let compressed = endpoint.is_compressed.then(|| gzip(&body)).transpose();
        let (body, encoding) = match compressed {
            Ok(Some(compressed)) => (compressed, Some(("Content-Encoding", "gzip"))),
            _ => (body, None),
        };
        let own = [("Content-Type", "application/x-protobuf")].into_iter().chain(encoding);
        let of_user = endpoint.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = own.chain(of_user).collect();
        let client =
            || Client::service_with_roots(endpoint.timeout, MOST_BYTES_OF_ANSWER, endpoint.roots.as_deref());
        let sent = link.send(client, "POST", &endpoint.address, &headers, &body);
        let is_done = sent.as_ref().err().is_none_or(|refusal| !refusal.may_be_repeated);
        let rejected = sent.as_ref().ok().and_then(|answer| otlp::rejected(answer));
        let is_lost = sent.is_err();
        let mut state = self.state();
        state.finish_round(is_last, sent.err().map(|refusal| refusal.why));
        if is_done {
            // Points that came meanwhile stay, also if the queue was full.
            let newer = usize::try_from(state.made - last).unwrap_or(usize::MAX);
            let answered = state.points.len().saturating_sub(newer);
            state.points.drain(..answered);
            if is_lost {
                state.lost += answered as u64;
            }
        }
        if let Some((points, why)) = rejected {
            state.rejected = state.rejected.saturating_add(points);
            state.rejected_why = first_line(why.as_bytes());
        }
    }
}

/// The newest point in the format of Prometheus.
fn text(state: &State) -> String {
    let end_s = state.is_ended.then(|| Moment::now().wall_s());
    prometheus::text(state.newest.as_ref(), &state.run, end_s)
}

/// The start of a text of a receiver, for a message.
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let first: String = text.lines().next().unwrap_or_default().chars().take(120).collect();
    human::printable(&first)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(2));
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Why a request was not accepted.
struct Refusal {
    why: String,
    may_be_repeated: bool,
    /// The receiver asks for a pause.
    pause: Option<Duration>,
}

/// The connection to a receiver, kept between requests.
#[derive(Default)]
struct Link {
    client: Option<Client>,
    pause: Duration,
    paused_until: Option<Instant>,
}

impl Link {
    /// False during the pause after a failed request.
    fn is_due(&self) -> bool {
        self.paused_until.is_none_or(|until| until <= Instant::now())
    }

    /// Sends a request, and returns the content of the answer.
    fn send(
        &mut self,
        client: impl FnOnce() -> Client,
        method: &str,
        address: &Address,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let client = self.client.get_or_insert_with(client);
        let began = Instant::now();
        let agent = format!("resource-tracker/{}", crate::PROGRAM_VERSION);
        let authorization = address.authorization.as_deref().map(|value| ("Authorization", value));
        let more = [("User-Agent", agent.as_str())].into_iter().chain(authorization);
        let headers: Vec<_> = more.chain(headers.iter().copied()).collect();
        let refusal = match client.exchange(method, &address.url, &headers, body) {
            Ok(answer) if (200..=299).contains(&answer.status) => {
                (self.pause, self.paused_until) = (Duration::ZERO, None);
                return Ok(answer.body);
            }
            Ok(answer) => {
                let status = answer.status;
                let why = format!("status {status} {}", first_line(&answer.body)).trim_end().to_owned();
                // The specification of OTLP lists these.
                let may_be_repeated = matches!(status, 429 | 502 | 503 | 504);
                let pause = answer.retry_after.filter(|_| matches!(status, 429 | 503));
                Refusal { why, may_be_repeated, pause }
            }
            Err(HttpError::Timeout) => {
                let seconds = began.elapsed().as_secs_f64();
                Refusal { why: format!("no answer in {seconds:.0} s"), may_be_repeated: true, pause: None }
            }
            Err(HttpError::Transport(error)) => {
                Refusal { why: error.to_string(), may_be_repeated: true, pause: None }
            }
        };
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let pause = refusal.pause.map_or(self.pause, |asked| asked.clamp(self.pause, LONGEST_PAUSE));
        self.paused_until = Some(Instant::now() + pause);
        Err(refusal)
    }
}
