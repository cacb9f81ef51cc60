//! The thread that queries GPU drivers. A driver may block for seconds, and the sampler never waits for this thread.
//!
//! In:  [`Question`]s. Out: the last answer, if it is recent enough for a row.
//!
//! The thread is never joined. It ends when its handle ([`Gpus`]) is dropped and the driver returns.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{GpuReading, GpuState, Question, Reader, remember};
use crate::os::root::Root;
use crate::os::{self, Moment};

/// An answer up to this age counts as current. Drivers average usage over about the same time.
const FRESH_NS: u64 = 250_000_000;

/// Minimum time between two queries, which limits the load on the drivers.
const MIN_PERIOD_NS: u64 = 20_000_000;

/// Handle of the thread.
#[derive(Debug)]
pub struct Gpus {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Slot {
    question: Option<Question>,
    /// Number of questions so far, which is also the number of the last question.
    number: u64,
    asked_ns: u64,
    /// True while a question waits for the thread or the thread works on it.
    is_busy: bool,
    answer: Option<Answer>,
    /// Questions for which a caller waits: number of the question, and its answer.
    awaited: Vec<(u64, Option<Arc<GpuReading>>)>,
    /// CPU time of the thread up to its last answer.
    cpu_ns: u64,
    is_closed: bool,
}

impl Slot {
    fn put(&mut self, question: Question, now_ns: u64) {
        self.question = Some(question);
        self.number += 1;
        self.asked_ns = now_ns;
        self.is_busy = true;
    }
}

#[derive(Clone, Debug)]
struct Answer {
    at_ns: u64,
    reading: Arc<GpuReading>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Values are consistent after a panic of another thread, because every change is a single assignment.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpus {
    /// Starts the thread; `None` on a host without a GPU.
    pub fn open(root: &Arc<Root>) -> Option<Self> {
        let reader = Reader::open(root)?;
        let shared = Arc::new(Shared { slot: Mutex::new(Slot::default()), changed: Condvar::new() });
        let (of_thread, root) = (Arc::clone(&shared), Arc::clone(root));
        let thread = std::thread::Builder::new().name("resource-tracker-gpu".to_owned());
        // If the thread cannot be started, all readings are `Silent`.
        let _ = os::without_signals(|| thread.spawn(move || serve(&of_thread, reader, &root)));
        Some(Self { shared })
    }

    /// Requests a reading. Has no effect while the thread is busy or has just answered.
    pub fn ask(&self, question: Question) {
        let now_ns = Moment::now().monotonic_ns;
        let mut slot = self.shared.lock();
        if slot.is_busy || now_ns.saturating_sub(slot.asked_ns) < MIN_PERIOD_NS {
            return;
        }
        slot.put(question, now_ns);
        drop(slot);
        self.shared.changed.notify_all();
    }

    /// The answer for a row from `since_ns` to `now_ns`. It must have arrived within the row or shortly before it.
    pub fn latest(&self, since_ns: u64, now_ns: u64) -> GpuState {
        let slot = self.shared.lock();
        let oldest_ns = since_ns.min(now_ns.saturating_sub(FRESH_NS));
        match &slot.answer {
            Some(answer) if answer.at_ns >= oldest_ns => GpuState::Read(Arc::clone(&answer.reading)),
            _ => GpuState::Silent,
        }
    }

    /// The answer for the last row of a run, which may be very short: the last answer within a whole interval, unless
    /// the driver hangs.
    pub fn last(&self, interval_ns: u64, now_ns: u64) -> GpuState {
        let is_stuck = {
            let slot = self.shared.lock();
            slot.is_busy && now_ns.saturating_sub(slot.asked_ns) > FRESH_NS
        };
        if is_stuck {
            return self.latest(now_ns, now_ns);
        }
        self.latest(now_ns.saturating_sub(interval_ns.saturating_add(FRESH_NS)), now_ns)
    }

    /// Time since the pending question was asked; `None` if no question is pending.
    pub fn waiting_ns(&self, now_ns: u64) -> Option<u64> {
        let slot = self.shared.lock();
        slot.is_busy.then(|| now_ns.saturating_sub(slot.asked_ns))
    }

    /// CPU time of the thread up to its last answer.
    pub fn cpu_ns(&self) -> u64 {
        self.shared.lock().cpu_ns
    }

    /// Asks a question and waits for its answer.
    pub fn ask_and_wait(&self, question: Question, timeout: Duration) -> GpuState {
        let deadline = Instant::now() + timeout;
        let mut slot = self.shared.lock();
        let mut question = Some(question);
        let mut number = None;
        loop {
            if !slot.is_busy
                && let Some(question) = question.take()
            {
                slot.put(question, Moment::now().monotonic_ns);
                let asked = slot.number;
                slot.awaited.push((asked, None));
                number = Some(asked);
                self.shared.changed.notify_all();
            }
            let place = slot.awaited.iter().position(|(asked, _)| Some(*asked) == number);
            let is_answered = place.is_some_and(|place| slot.awaited[place].1.is_some());
            let left = deadline.saturating_duration_since(Instant::now());
            if is_answered || left.is_zero() {
                let answer = place.and_then(|place| slot.awaited.swap_remove(place).1);
                return answer.map_or(GpuState::Silent, GpuState::Read);
            }
            slot = self.shared.changed.wait_timeout(slot, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

fn serve(shared: &Shared, mut reader: Reader, root: &Root) {
    loop {
        let mut slot = shared.lock();
        let question = loop {
            if slot.is_closed {
                return;
            }
            if let Some(question) = slot.question.take() {
                break question;
            }
            slot = shared.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        };
        drop(slot);
        let reading = Arc::new(reader.read(root, &question, Moment::now()));
        if !reading.gpus.is_empty() {
            remember(&reading);
        }
        let mut slot = shared.lock();
        let number = slot.number;
        for (_, answer) in slot.awaited.iter_mut().filter(|(asked, _)| *asked == number) {
            *answer = Some(Arc::clone(&reading));
        }
        slot.answer = Some(Answer { at_ns: Moment::now().monotonic_ns, reading });
        slot.cpu_ns = os::thread_cpu_ns().unwrap_or(0);
        slot.is_busy = false;
        drop(slot);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(answered_ns: u64, is_busy: bool) -> Gpus {
        let answer = Answer { at_ns: answered_ns, reading: Arc::new(GpuReading::default()) };
        let slot = Slot { answer: Some(answer), is_busy, asked_ns: answered_ns, ..Slot::default() };
        Gpus { shared: Arc::new(Shared { slot: Mutex::new(slot), changed: Condvar::new() }) }
    }

    fn is_read(state: &GpuState) -> bool {
        matches!(state, GpuState::Read(_))
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn answer_is_used_for_its_row_or_for_a_short_row_after_it() {
        assert!(is_read(&gpus(15 * S / 10, false).latest(S, 2 * S)));
        assert!(!is_read(&gpus(9 * S / 10, true).latest(S, 2 * S)), "older than the row");
        assert!(is_read(&gpus(9 * S / 10, true).latest(S, S + S / 100)), "a row of 10 ms");
    }

    #[test]
    fn last_row_takes_the_last_answer_unless_the_driver_hangs() {
        assert!(is_read(&gpus(S, false).last(S, 19 * S / 10)));
        assert!(!is_read(&gpus(S, true).last(S, 19 * S / 10)));
        assert!(!is_read(&gpus(S, false).last(S, 9 * S)));
    }
}
