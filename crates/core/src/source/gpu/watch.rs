//! GPUs beside the rows: when to ask for them, which answer belongs to which row, and what comes of all answers.
//!
//! In:  the moments of ticks and looks, and the job's processes. Out: a [`GpuState`] a row and the cells of every GPU,
//! figures over all rows, notes. Never waits, but for looks by hand.

use std::time::Duration;

use super::{Figures, GpuFigures, GpuState, Gpus, Question};
use crate::grid::Tick;
use crate::metric::GpuCells;

/// So long before a tick GPUs are asked: a driver with many of them takes tens of milliseconds.
const ASK_BEFORE_NS: u64 = 50_000_000;

/// At shorter intervals they are asked at each tick, for the next ones.
const ASK_BEFORE_FROM_NS: u64 = 200_000_000;

/// Whoever looks by hand waits as long for a driver.
const BY_HAND: Duration = Duration::from_millis(250);

/// A driver that takes longer is late.
const LATE_NS: u64 = 250_000_000;

/// The GPUs of a recording.
#[derive(Debug)]
pub struct Watch {
    gpus: Gpus,
    interval_ns: u64,
    figures: Figures,
    /// The tick for which they were asked last.
    asked_for: Option<u64>,
}

impl Watch {
    /// Of rows that are so long.
    #[must_use]
    pub fn new(gpus: Gpus, interval_ns: u64) -> Self {
        Self { gpus, interval_ns, figures: Figures::default(), asked_for: None }
    }

    /// Wants to know, and does not wait for it.
    pub fn ask(&self, question: Question) {
        self.gpus.ask(question);
    }

    /// For looks by hand: asks, and waits a little. The row that follows takes the answer, if it came.
    pub fn wait(&self, question: Question) {
        let _ = self.gpus.ask_and_wait(question, BY_HAND);
    }

    /// When to ask so that the answer is there at this tick; `None` once that is done, or where each tick asks.
    #[must_use]
    pub fn ask_at_ns(&self, tick: &Tick) -> Option<u64> {
        let is_due = self.asked_for != Some(tick.number) && !self.asks_at_ticks();
        is_due.then(|| tick.at_ns.saturating_sub(ASK_BEFORE_NS))
    }

    /// The question for this tick was asked.
    pub const fn asked_for(&mut self, tick: &Tick) {
        self.asked_for = Some(tick.number);
    }

    /// Whether rows are too short to ask before each.
    #[must_use]
    pub const fn asks_at_ticks(&self) -> bool {
        self.interval_ns < ASK_BEFORE_FROM_NS
    }

    /// CPU time of the thread that asks.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.gpus.cpu_ns()
    }

    /// What is known for a row between two moments; adds to `notes` what there is to say about it.
    pub fn read(
        &mut self,
        since_ns: u64,
        now_ns: u64,
        is_end: bool,
        notes: &mut Vec<String>,
    ) -> (GpuState, Vec<GpuCells>) {
        let state = if is_end {
            self.gpus.last(self.interval_ns, now_ns)
        } else {
            self.gpus.latest(since_ns, now_ns)
        };
        let cells = match &state {
            GpuState::Read(reading) => {
                let row_s = Duration::from_nanos(now_ns.saturating_sub(since_ns)).as_secs_f64();
                notes.extend(reading.notes.iter().cloned());
                self.figures.add(reading, row_s)
            }
            GpuState::Silent if self.gpus.waiting_ns(now_ns).is_some_and(|ns| ns >= LATE_NS) => {
                notes.push(
                    "GPU: the driver did not answer in time, so that the GPU cells of some rows are empty"
                        .to_owned(),
                );
                self.figures.unread()
            }
            GpuState::Silent | GpuState::Absent => self.figures.unread(),
        };
        (state, cells)
    }

    /// What each GPU did so far.
    #[must_use]
    pub fn figures(&self) -> Vec<GpuFigures> {
        self.figures.all()
    }
}
