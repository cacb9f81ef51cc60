//! GPUs of a recording: when the driver is asked, and which answer belongs to which row.
//!
//! In:  the moments of ticks, and the job's processes. Out: per row a [`GpuState`] and the cells of every GPU; figures
//! over all rows; notes. The sampling thread never waits for the driver; only rows that the user requests wait.

use std::time::Duration;

use crate::metric::GpuCells;
use crate::probe::gpu::{Figures, GpuFigures, GpuState, Gpus, Question};
use crate::sampler::grid::Tick;

/// GPUs are asked this long before a tick: a driver with many GPUs takes tens of milliseconds.
const ASK_BEFORE_NS: u64 = 50_000_000;

/// At intervals shorter than this, the GPUs are asked at each tick, and the next row has the answer.
const ASK_BEFORE_FROM_NS: u64 = 200_000_000;

/// How long a row that the user requests waits for the driver.
const WAIT: Duration = Duration::from_millis(250);

/// A driver that does not answer for this long is noted.
const LATE_NS: u64 = 250_000_000;

#[derive(Debug)]
pub struct GpuWatch {
    gpus: Gpus,
    interval_ns: u64,
    figures: Figures,
    /// The number of the tick for which the GPUs were asked last.
    asked_for: Option<u64>,
}

impl GpuWatch {
    pub fn new(gpus: Gpus, interval_ns: u64) -> Self {
        Self { gpus, interval_ns, figures: Figures::default(), asked_for: None }
    }

    /// Asks the driver without waiting for the answer.
    pub fn ask(&self, question: Question) {
        self.gpus.ask(question);
    }

    /// Asks the driver, and waits a short time for the answer, which the next row uses.
    pub fn wait(&self, question: Question) {
        let _ = self.gpus.ask_and_wait(question, WAIT);
    }

    /// When to ask the driver, so that it answers before this tick; `None` if it was asked, or is asked at each tick.
    pub fn ask_at_ns(&self, tick: &Tick) -> Option<u64> {
        let is_due = self.asked_for != Some(tick.number) && !self.asks_at_ticks();
        is_due.then(|| tick.at_ns.saturating_sub(ASK_BEFORE_NS))
    }

    pub const fn asked_for(&mut self, tick: &Tick) {
        self.asked_for = Some(tick.number);
    }

    /// Whether the interval is too short to ask before each tick.
    pub const fn asks_at_ticks(&self) -> bool {
        self.interval_ns < ASK_BEFORE_FROM_NS
    }

    /// CPU time of the thread that reads the GPUs.
    pub fn cpu_ns(&self) -> u64 {
        self.gpus.cpu_ns()
    }

    /// The state and the cells of the GPUs for the row from `since_ns` to `now_ns`; adds notes.
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
                    "GPU: the driver did not answer in time; the GPU cells of some rows are empty".to_owned(),
                );
                self.figures.unread()
            }
            GpuState::Silent | GpuState::Absent => self.figures.unread(),
        };
        (state, cells)
    }

    /// Figures of each GPU so far.
    pub fn figures(&self) -> Vec<GpuFigures> {
        self.figures.all()
    }
}
