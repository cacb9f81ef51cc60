//! The thread that sends, and the bounded queue before it.
//!
//! In:  points, and the end of the run. Out: requests and a file; what did not arrive.
//! Not here: the content (`otlp`, `prometheus`).
//!
//! A request that fails is repeated with the next row, after a pause that doubles. OTLP gets all points of the queue in one
//! request, the other receivers the newest point. A full queue loses its oldest point.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::address::Address;
use super::otlp::Endpoint;
use super::prometheus;
use super::values::Point;
use crate::human;
use crate::market::cloud::{self, Cloud};
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
pub struct Receivers {
    pub otlp: Option<Endpoint>,
    pub pushgateway: Option<Address>,
    /// With whether a file of another program is replaced.
    pub file: Option<(PathBuf, bool)>,
}

/// What the tracker and the thread share.
#[derive(Debug)]
pub struct Shared {
    receivers: Receivers,
    is_offline: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the file has its last content. Held while the file is written.
    file: Mutex<bool>,
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
    run: Run,
    /// Whether the run has ended, so that the next round is the last.
    is_ended: bool,
    /// Whether the thread has ended, or should without another request.
    is_closed: bool,
    otlp: Outcome,
    pushgateway: Outcome,
    file_error: Option<String>,
}

/// The last result of a receiver.
#[derive(Debug, Default)]
struct Outcome {
    has_end: bool,
    error: Option<String>,
}

impl Shared {
    pub fn new(receivers: Receivers, run: Run, is_offline: bool) -> Self {
        let state = Mutex::new(State { run, ..State::default() });
        Self { receivers, is_offline, state, changed: Condvar::new(), file: Mutex::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a point. Called by the sampling thread: never waits for a receiver.
    pub fn push(&self, point: Point) {
        let mut state = self.state();
        state.made += 1;
        if self.receivers.otlp.is_some() {
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

    /// Sends the end of the run and waits for it until `ends`. Returns a note for each receiver that lacks something.
    pub fn finish(&self, run: &Run, ends: Instant) -> Vec<String> {
        let mut state = self.state();
        state.run = run.clone();
        state.is_ended = true;
        let newest = state.newest.clone();
        drop(state);
        self.changed.notify_all();
        // Not by the thread, which may wait for a receiver.
        self.write_file(newest.as_ref(), run, true);
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
        let lacks = |outcome: &Outcome, what: String, url: &str| {
            let why = outcome.error.as_deref().unwrap_or("no answer in time");
            (!outcome.has_end).then(|| format!("{what} did not reach `{url}`: {why}"))
        };
        let missing = state.lost + state.points.len() as u64;
        let of_otlp = self.receivers.otlp.as_ref().and_then(|otlp| {
            let what = match missing {
                0 => "the end of the run".to_owned(),
                missing => format!("{missing} of {} rows", state.made),
            };
            let url = &otlp.address.url;
            let late = || format!("{missing} of {} rows did not reach `{url}`", state.made);
            lacks(&state.otlp, what, url).or_else(|| (missing > 0).then(late))
        });
        let of_pushgateway = self.receivers.pushgateway.as_ref();
        let of_pushgateway = of_pushgateway
            .and_then(|address| lacks(&state.pushgateway, "the last row".to_owned(), &address.url));
        of_otlp.into_iter().chain(of_pushgateway).chain(state.file_error.clone()).collect()
    }

    /// The thread: a round for new points, and one for the end of the run.
    pub fn work(&self) {
        let (mut otlp, mut pushgateway) = (Link::default(), Link::default());
        let mut cloud = None;
        let mut seen = 0;
        loop {
            let mut state = self.state();
            while state.made == seen && !state.is_ended && !state.is_closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closed {
                return;
            }
            seen = state.made;
            let (newest, run, is_last) = (state.newest.clone(), state.run.clone(), state.is_ended);
            drop(state);
            self.write_file(newest.as_ref(), &run, is_last);
            self.push_to_gateway(&mut pushgateway, newest.as_ref(), &run, is_last);
            // The cloud is known after a second at most, and then stays the same for all requests.
            let cloud = cloud.get_or_insert_with(|| self.cloud(is_last));
            self.send_points(&mut otlp, &run, cloud.as_ref(), is_last);
            if is_last {
                self.close();
            }
        }
    }

    fn cloud(&self, is_last: bool) -> Option<Cloud> {
        self.receivers.otlp.as_ref()?;
        if is_last {
            cloud::discovered(self.is_offline)?.cloud
        } else {
            cloud::discover(self.is_offline).cloud
        }
    }

    fn write_file(&self, newest: Option<&Point>, run: &Run, is_last: bool) {
        let Some((path, force)) = &self.receivers.file else { return };
        let mut has_last = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_last {
            return;
        }
        *has_last = is_last;
        let text = prometheus::text(newest, run, is_last.then(|| Moment::now().wall_s()));
        let written = Output::open_argument(path, *force).and_then(|mut output| {
            output.write_all(text.as_bytes())?;
            output.commit()
        });
        self.state().file_error =
            written.err().map(|error| format!("cannot write `{}`: {error}", path.display()));
    }

    fn push_to_gateway(&self, link: &mut Link, newest: Option<&Point>, run: &Run, is_last: bool) {
        let Some(address) = &self.receivers.pushgateway else { return };
        if !link.is_due(is_last) {
            return;
        }
        let text = prometheus::text(newest, run, is_last.then(|| Moment::now().wall_s()));
        let headers = [("Content-Type", prometheus::CONTENT_TYPE)];
        let sent = link.send("PUT", address, &headers, text.as_bytes(), PUSHGATEWAY_TIMEOUT);
        self.state().pushgateway =
            Outcome { has_end: is_last && sent.is_ok(), error: sent.err().map(|refusal| refusal.why) };
    }

    fn send_points(&self, link: &mut Link, run: &Run, cloud: Option<&Cloud>, is_last: bool) {
        let Some(otlp) = &self.receivers.otlp else { return };
        if !link.is_due(is_last) {
            return;
        }
        let (points, newest, last) = {
            let state = self.state();
            (Vec::from(state.points.clone()), state.newest.clone(), state.made)
        };
        let body = otlp.request(&points, newest.as_ref(), run, cloud);
        let own = [("Content-Type", "application/x-protobuf")];
        let of_user = otlp.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = own.into_iter().chain(of_user).collect();
        let sent = link.send("POST", &otlp.address, &headers, &body, otlp.timeout);
        let mut state = self.state();
        if sent.as_ref().err().is_none_or(|refusal| !refusal.may_be_repeated) {
            // Points that came meanwhile stay, also if the queue was full.
            let newer = usize::try_from(state.made - last).unwrap_or(usize::MAX);
            let answered = state.points.len().saturating_sub(newer);
            state.points.drain(..answered);
            if sent.is_err() {
                state.lost += answered as u64;
            }
        }
        state.otlp =
            Outcome { has_end: is_last && sent.is_ok(), error: sent.err().map(|refusal| refusal.why) };
    }
}

/// Why a request was not accepted.
struct Refusal {
    why: String,
    may_be_repeated: bool,
}

/// The connection to a receiver, kept between requests.
#[derive(Default)]
struct Link {
    client: Option<Client>,
    pause: Duration,
    paused_until: Option<Instant>,
}

impl Link {
    /// False during the pause after a failed request. The end of a run does not wait.
    fn is_due(&self, is_last: bool) -> bool {
        is_last || self.paused_until.is_none_or(|until| until <= Instant::now())
    }

    fn send(
        &mut self,
        method: &str,
        address: &Address,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let client = self.client.get_or_insert_with(|| Client::service(timeout, MOST_BYTES_OF_ANSWER));
        let agent = format!("resource-tracker/{}", crate::PROGRAM_VERSION);
        let authorization = address.authorization.as_deref().map(|value| ("Authorization", value));
        let more = [("User-Agent", agent.as_str())].into_iter().chain(authorization);
        let headers: Vec<_> = more.chain(headers.iter().copied()).collect();
        let answer = client.send(method, &address.url, &headers, body);
        let refusal = match answer {
            Ok((200..=299, _)) => {
                (self.pause, self.paused_until) = (Duration::ZERO, None);
                return Ok(());
            }
            Ok((status, body)) => {
                let body = String::from_utf8_lossy(&body);
                let first: String = body.lines().next().unwrap_or_default().chars().take(120).collect();
                let why = format!("status {status} {}", human::printable(&first)).trim_end().to_owned();
                // The specification of OTLP lists these.
                Refusal { why, may_be_repeated: matches!(status, 429 | 502 | 503 | 504) }
            }
            Err(HttpError::Timeout) => {
                Refusal { why: format!("no answer in {} s", timeout.as_secs_f64()), may_be_repeated: true }
            }
            Err(HttpError::Transport(error)) => Refusal { why: error.to_string(), may_be_repeated: true },
        };
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.paused_until = Some(Instant::now() + self.pause);
        Err(refusal)
    }
}
