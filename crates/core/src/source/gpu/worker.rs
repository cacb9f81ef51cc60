//! The thread that waits for drivers, so that nobody else does.
//!
//! In:  a [`Question`] now and then. Out: the last answer, if it is young enough for the row that wants it.
//!
//! Nobody ever waits for the thread to end: a driver may hold it for ever. It ends by itself once its owner is gone
//! and the driver lets go of it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{GpuReading, GpuState, Question, Reader, remember};
use crate::root::Root;
use crate::snapshot::Moment;
use crate::sys;

/// An answer of this age still says how the GPUs are now; the drivers' own averages are over as long.
const FRESH_NS: u64 = 250_000_000;

/// Drivers are not asked more often than this.
const REST_NS: u64 = 20_000_000;

/// The GPUs of this host, and the thread that reads them.
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
    /// Questions so far.
    number: u64,
    asked_ns: u64,
    /// The thread is at work on a question, or has one before it.
    is_busy: bool,
    answer: Option<Answer>,
    /// Questions whose askers wait, and their answers once there are any.
    awaited: Vec<(u64, Option<Arc<GpuReading>>)>,
    /// CPU time that the thread had spent by its last answer.
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
        // Every change is one assignment, so what a panic leaves is whole.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpus {
    /// Starts the thread where this host has a GPU; `None`, and nothing at all happens, where it has none.
    ///
    /// `may_start_processes`: a guest starts none, for they would be its host's children.
    #[must_use]
    pub fn open(root: &Arc<Root>, may_start_processes: bool) -> Option<Self> {
        let reader = Reader::open(root, may_start_processes)?;
        let shared = Arc::new(Shared { slot: Mutex::new(Slot::default()), changed: Condvar::new() });
        let (of_thread, root) = (Arc::clone(&shared), Arc::clone(root));
        let thread = std::thread::Builder::new().name("resource-tracker-gpu".to_owned());
        // Without a thread nobody answers: every reading is silent, which is the truth.
        let _ = sys::without_signals(|| thread.spawn(move || serve(&of_thread, reader, &root)));
        Some(Self { shared })
    }

    /// Wants the GPUs read now. A thread that is still at work, or just was, is left alone.
    pub fn ask(&self, question: Question) {
        let now_ns = Moment::now().monotonic_ns;
        let mut slot = self.shared.lock();
        if slot.is_busy || now_ns.saturating_sub(slot.asked_ns) < REST_NS {
            return;
        }
        slot.put(question, now_ns);
        drop(slot);
        self.shared.changed.notify_all();
    }

    /// The answer for a row from `since_ns` to `now_ns`: one that came in that time, or just before it.
    #[must_use]
    pub fn latest(&self, since_ns: u64, now_ns: u64) -> GpuState {
        let slot = self.shared.lock();
        let oldest_ns = since_ns.min(now_ns.saturating_sub(FRESH_NS));
        match &slot.answer {
            Some(answer) if answer.at_ns >= oldest_ns => GpuState::Read(Arc::clone(&answer.reading)),
            _ => GpuState::Silent,
        }
    }

    /// The answer for the last row: however short it is, the GPUs were what they were at the last look, unless the
    /// driver is stuck since then.
    #[must_use]
    pub fn last(&self, longest_ns: u64, now_ns: u64) -> GpuState {
        let is_stuck = {
            let slot = self.shared.lock();
            slot.is_busy && now_ns.saturating_sub(slot.asked_ns) > FRESH_NS
        };
        if is_stuck {
            return self.latest(now_ns, now_ns);
        }
        self.latest(now_ns.saturating_sub(longest_ns.saturating_add(FRESH_NS)), now_ns)
    }

    /// For how long the thread has been at work on its question, if it is.
    #[must_use]
    pub fn waiting_ns(&self, now_ns: u64) -> Option<u64> {
        let slot = self.shared.lock();
        slot.is_busy.then(|| now_ns.saturating_sub(slot.asked_ns))
    }

    /// CPU time of the thread so far, as of its last answer.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.shared.lock().cpu_ns
    }

    /// Asks, and waits for the answer to this very question as long as that.
    #[must_use]
    pub fn ask_and_wait(&self, question: Question, most: Duration) -> GpuState {
        let deadline = Instant::now() + most;
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
        slot.cpu_ns = sys::thread_cpu_ns().unwrap_or(0);
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
    fn an_answer_belongs_to_the_row_it_came_in_or_to_one_that_follows_at_once() {
        assert!(is_read(&gpus(15 * S / 10, false).latest(S, 2 * S)));
        assert!(!is_read(&gpus(9 * S / 10, true).latest(S, 2 * S)), "older than the row");
        assert!(is_read(&gpus(9 * S / 10, true).latest(S, S + S / 100)), "a row of 10 ms");
    }

    #[test]
    fn the_last_row_takes_the_last_look_but_not_from_before_a_driver_got_stuck() {
        assert!(is_read(&gpus(S, false).last(S, 19 * S / 10)));
        assert!(!is_read(&gpus(S, true).last(S, 19 * S / 10)));
        assert!(!is_read(&gpus(S, false).last(S, 9 * S)));
    }
}
