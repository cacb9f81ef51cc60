//! The sampling thread: a loop that waits for the next event, and makes rows on the time grid.
//!
//! In:  an [`Engine`] with its baseline, commands from [`Progress`]. Out: rows to the sinks, until the last row.
//! Not here: how a row is made (`engine`).

use std::ops::ControlFlow;
use std::time::Duration;

use super::engine::Engine;
use super::grid::{Grid, Tick};
use super::marks::MarksReader;
use super::phases::{MOST_MARKS, Phases};
use super::progress::{Progress, State};
use super::{SamplerCommand, Sink, Target, diff};
use crate::job::MemoryActivity;
use crate::metric::Row;
use crate::os::{self, Moment, Watch};

/// Pauses between two samples of the job. The first pause is the shortest; pauses double while memory is steady.
const FIRST_PAUSE_NS: u64 = 1_000_000;
/// The pause while memory changes near its highest level, and while it changes below.
const NEAR_PEAK_PAUSE_NS: u64 = 5_000_000;
const CHANGING_PAUSE_NS: u64 = 20_000_000;
/// The longest pause while memory is followed between rows.
const STEADY_PAUSE_NS: u64 = 250_000_000;
/// The longest pause while no process of the job runs.
const IDLE_PAUSE_NS: u64 = 2_000_000_000;
/// The longest pause if memory is not followed between rows. Then samples between rows are taken only before the first
/// row, and in intervals longer than this.
const LONGEST_PAUSE_NS: u64 = 10_000_000_000;
/// A pause is at least this many times the CPU time of a sample, the cheaper of the last two. Near the highest level, a
/// sample may show a new peak, and is worth more.
const PAUSE_PER_COST: u64 = 300;
const NEAR_PEAK_PAUSE_PER_COST: u64 = 80;

/// Rows at marks are this far apart, and this many times the CPU time of the last one. Between them, a row has the marks of
/// several phases.
const MARK_PAUSE_NS: u64 = 20_000_000;
const MARK_PAUSE_PER_COST: u64 = 20;

/// Runs until the last row.
pub(crate) fn run(engine: Engine, target: Target, progress: &Progress, sinks: Vec<Box<dyn Sink>>) {
    let _ended = EndOnPanic(progress);
    let mut sampler = SamplingThread::new(engine, target, progress, sinks);
    let state = loop {
        if let ControlFlow::Break(state) = sampler.step() {
            break state;
        }
    };
    progress.set_state(state);
}

/// Ends the recording if the sampling thread panics, so that nothing waits for it for ever.
struct EndOnPanic<'p>(&'p Progress);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note("the sampling thread failed; rows after that are missing".to_owned());
            self.0.set_state(State::Stopped);
        }
    }
}

struct SamplingThread<'p> {
    engine: Engine,
    target: Target,
    progress: &'p Progress,
    sinks: Vec<Box<dyn Sink>>,
    grid: Grid,
    end_watch: EndWatch,
    pace: Pace,
    /// The row of a grid point in the first interval. It is held back until the end of the first interval: if the job
    /// ends before, this row is joined with the last row, so that a job shorter than one interval has a single row.
    held_back: Option<Row>,
    first_interval_end_ns: u64,
    /// The file to which other processes write marks.
    marks: Option<MarksReader>,
    mark_rows: usize,
    /// No row is made at a mark before this time.
    next_mark_row_ns: u64,
    /// Whether the peak of the last row may be from any moment of the run.
    has_late_peak: bool,
}

/// When to sample the job between rows.
struct Pace {
    pause_ns: u64,
    next_ns: u64,
    is_memory_followed: bool,
    last_cost_ns: u64,
}

impl Pace {
    /// Chooses the next pause after a sample that took `cost_ns` of CPU time.
    fn pause_after(&mut self, activity: MemoryActivity, cost_ns: u64, now_ns: u64) {
        self.is_memory_followed = activity != MemoryActivity::NotFollowed;
        let (longest_ns, per_cost) = match activity {
            MemoryActivity::NearPeak => (NEAR_PEAK_PAUSE_NS, NEAR_PEAK_PAUSE_PER_COST),
            MemoryActivity::Changing => (CHANGING_PAUSE_NS, PAUSE_PER_COST),
            MemoryActivity::Steady => (STEADY_PAUSE_NS, PAUSE_PER_COST),
            MemoryActivity::Idle => (IDLE_PAUSE_NS, PAUSE_PER_COST),
            MemoryActivity::NotFollowed => (LONGEST_PAUSE_NS, PAUSE_PER_COST),
        };
        self.pause_ns = self.pause_ns.saturating_mul(2).min(longest_ns);
        let usual_cost_ns = cost_ns.min(std::mem::replace(&mut self.last_cost_ns, cost_ns));
        self.next_ns = now_ns + self.pause_ns.max(usual_cost_ns.saturating_mul(per_cost));
    }
}

/// The times of the next events, by the monotonic clock.
struct Schedule {
    /// At `u64::MAX` until the job starts.
    tick: Tick,
    /// When to ask the GPUs, so that they have answered at the tick; `None` without a question before the tick.
    gpu_question_ns: Option<u64>,
    wake_ns: u64,
}

impl<'p> SamplingThread<'p> {
    fn new(engine: Engine, target: Target, progress: &'p Progress, sinks: Vec<Box<dyn Sink>>) -> Self {
        let start = engine.started_at();
        Self {
            target,
            progress,
            sinks,
            grid: Grid::new(start.wall_ns, start.monotonic_ns, engine.config.interval.ns()),
            end_watch: EndWatch::new(target, &engine),
            pace: Pace {
                pause_ns: FIRST_PAUSE_NS,
                next_ns: start.monotonic_ns + FIRST_PAUSE_NS,
                is_memory_followed: engine.config.memory_between_rows,
                last_cost_ns: 0,
            },
            held_back: None,
            first_interval_end_ns: start.monotonic_ns + engine.interval_ns(),
            marks: None,
            mark_rows: 0,
            next_mark_row_ns: 0,
            has_late_peak: false,
            engine,
        }
    }

    /// Waits for the next event and handles it; `Break` after the last row.
    fn step(&mut self) -> ControlFlow<State> {
        let schedule = self.schedule();
        let has_target_ended = self.wait(schedule.wake_ns);
        for command in self.progress.take_commands() {
            self.obey(command)?;
        }
        if has_target_ended {
            return self.finish(State::Exited);
        }
        self.read_marks();
        let now_ns = Moment::now().monotonic_ns;
        if let Some(row) = self.held_back.take_if(|_| now_ns >= self.first_interval_end_ns) {
            self.hand_on(&row)?;
        }
        if now_ns >= schedule.tick.at_ns {
            self.make_row(now_ns)?;
        } else if self.is_mark_row_pending() && now_ns >= self.next_mark_row_ns {
            self.make_mark_row(now_ns)?;
        } else if schedule.gpu_question_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.ask_gpus(&schedule.tick);
        } else if now_ns >= self.pace.next_ns {
            self.sample_between_rows(now_ns);
        }
        ControlFlow::Continue(())
    }

    fn schedule(&self) -> Schedule {
        let mut tick = self.grid.next();
        if self.awaits_job() {
            tick.at_ns = u64::MAX;
        }
        let gpu_question_ns = self.engine.gpus.as_ref().and_then(|gpus| gpus.ask_at_ns(&tick));
        let mut wake_ns = tick.at_ns.min(gpu_question_ns.unwrap_or(u64::MAX));
        if self.samples_between_rows() {
            wake_ns = wake_ns.min(self.pace.next_ns);
        }
        if self.is_mark_row_pending() {
            wake_ns = wake_ns.min(self.next_mark_row_ns);
        }
        if self.held_back.is_some() {
            wake_ns = wake_ns.min(self.first_interval_end_ns);
        }
        Schedule { tick, gpu_question_ns, wake_ns }
    }

    /// Whether the job has not started yet. The first row is made after its start.
    fn awaits_job(&self) -> bool {
        self.target == Target::Future && self.engine.job.is_none() && self.engine.config.track_processes
    }

    fn samples_between_rows(&self) -> bool {
        let is_before_first_row = self.engine.rows == 0;
        self.engine.job.is_some()
            && (is_before_first_row
                || self.pace.is_memory_followed
                || self.engine.interval_ns() > LONGEST_PAUSE_NS)
    }

    fn obey(&mut self, command: SamplerCommand) -> ControlFlow<State> {
        match command {
            SamplerCommand::Adopt { pid, counter } => {
                let awaited_job = self.awaits_job();
                self.engine.adopt(pid, counter);
                if awaited_job {
                    self.grid.begin(Moment::now().monotonic_ns);
                }
                self.progress.set_cpu_source(self.engine.cpu_source());
            }
            SamplerCommand::Reaped(reaped) => self.engine.reaped.push(reaped),
            SamplerCommand::Ended { ended, own_rss_kib } => {
                let job = self.engine.job.as_mut();
                self.has_late_peak = job.is_some_and(|job| job.end(ended, own_rss_kib));
                return self.finish(State::Exited);
            }
            SamplerCommand::ReadMarks(path) => {
                self.marks = Some(MarksReader::new(path, !self.engine.config.in_process));
            }
            SamplerCommand::Marked => {}
            SamplerCommand::Start(start) => start(),
            SamplerCommand::Stop => return self.finish(State::Stopped),
        }
        ControlFlow::Continue(())
    }

    /// Makes the row from the last row to now, and adds it to the phases.
    fn tick(&mut self, missed: u64, is_end: bool) -> Row {
        self.read_marks();
        let now = Moment::now();
        let row = self.engine.tick(now, missed, is_end);
        let mut phases = self.progress.phases();
        let add = if self.has_late_peak { Phases::add_row_with_late_peak } else { Phases::add_row };
        add(&mut phases, &row, now.monotonic_ns);
        row
    }

    fn read_marks(&mut self) {
        for mut mark in self.marks.iter_mut().flat_map(MarksReader::read) {
            mark.at_ns = mark.at_ns.min(Moment::now().monotonic_ns);
            self.progress.phases().mark(&mark);
        }
    }

    /// Whether a row is to be made at a mark. After many marks, rows are made on the grid only.
    fn is_mark_row_pending(&self) -> bool {
        self.mark_rows < MOST_MARKS && !self.awaits_job() && self.progress.phases().is_marked()
    }

    /// Makes a row for what was used before a mark.
    fn make_mark_row(&mut self, now_ns: u64) -> ControlFlow<State> {
        let before_ns = os::thread_cpu_ns().unwrap_or(0);
        let row = self.tick(0, false);
        self.mark_rows += 1;
        self.engine.publish_notes(self.progress);
        if let Some(first) = self.held_back.take() {
            self.hand_on(&first)?;
        }
        let cost_ns = os::thread_cpu_ns().unwrap_or(0).saturating_sub(before_ns);
        self.next_mark_row_ns = now_ns + MARK_PAUSE_NS.max(cost_ns.saturating_mul(MARK_PAUSE_PER_COST));
        self.hand_on(&row)
    }

    fn make_row(&mut self, now_ns: u64) -> ControlFlow<State> {
        let missed = self.grid.take(now_ns);
        let row = self.tick(missed, false);
        // Before the row is handed on: a sink may end the recording.
        self.engine.publish_notes(self.progress);
        if now_ns < self.first_interval_end_ns {
            self.held_back = Some(row);
        } else {
            self.hand_on(&row)?;
        }
        self.grid.rest(Moment::now().monotonic_ns);
        self.pace.next_ns =
            now_ns + if self.pace.is_memory_followed { self.pace.pause_ns } else { LONGEST_PAUSE_NS };
        ControlFlow::Continue(())
    }

    /// Samples the job and asks the GPUs about its processes, new processes included.
    fn ask_gpus(&mut self, tick: &Tick) {
        if let Some(gpus) = &mut self.engine.gpus {
            gpus.asked_for(tick);
        }
        self.engine.sample_job();
        self.engine.ask_gpus();
    }

    fn sample_between_rows(&mut self, now_ns: u64) {
        let before_ns = os::thread_cpu_ns().unwrap_or(0);
        let Some(found) = self.engine.sample_job() else { return };
        let cost_ns = os::thread_cpu_ns().unwrap_or(0).saturating_sub(before_ns + found.pass_cost_ns);
        if self.engine.rows == 0 || found.memory == MemoryActivity::NotFollowed {
            self.engine.ask_gpus();
        }
        self.pace.pause_after(found.memory, cost_ns, now_ns);
    }

    /// Makes the last row.
    fn finish(&mut self, state: State) -> ControlFlow<State> {
        let mut row = self.tick(0, true);
        if let Some(first) = self.held_back.take() {
            row = diff::join(&first, &row);
        }
        self.engine.publish_notes(self.progress);
        self.engine.note_incomplete_figures(self.progress);
        let _ = self.hand_on(&row);
        ControlFlow::Break(state)
    }

    /// Gives a row to all sinks; `Break` if a sink ends the recording.
    fn hand_on(&mut self, row: &Row) -> ControlFlow<State> {
        let mut flow = ControlFlow::Continue(());
        for sink in &mut self.sinks {
            match sink.take(row) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => flow = ControlFlow::Break(State::Stopped),
                Err(error) => self.progress.note(format!("cannot write {}: {error}", sink.name())),
            }
        }
        self.progress.add_row();
        flow
    }

    /// Waits for a command or until `until_ns`; returns whether the tracked process has ended.
    fn wait(&self, until_ns: u64) -> bool {
        let now_ns = Moment::now().monotonic_ns;
        let mut timeout = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        if let EndWatch::Poll { since_ns } = &self.end_watch {
            timeout = timeout.min(poll_interval(now_ns.saturating_sub(*since_ns)));
        }
        let mut has_ended = false;
        if let Some(eventfd) = self.progress.eventfd() {
            let process = match &self.end_watch {
                EndWatch::Descriptor(process) => Some(process),
                EndWatch::None | EndWatch::Poll { .. } => None,
            };
            let marks = self.marks.as_ref().and_then(|marks| marks.watch.as_ref());
            // A flood of marks must not wake the thread before the next row is due.
            let marks = marks.filter(|_| self.mark_rows < MOST_MARKS && !self.progress.phases().is_marked());
            has_ended = os::wait_for_eventfd(eventfd, process, marks, timeout);
            eventfd.clear();
        } else {
            self.progress.wait_for_command(timeout);
        }
        has_ended || (matches!(self.end_watch, EndWatch::Poll { .. }) && !self.engine.is_target_alive())
    }
}

/// How the end of the tracked process is noticed.
#[derive(Debug)]
enum EndWatch {
    /// Not at all: there is no process, or it is the host process, or a child ([`SamplerCommand::Ended`]).
    None,
    /// By a pidfd.
    Descriptor(Watch),
    /// By polling: in in-process mode, which keeps no descriptor open, and on systems without pidfds.
    Poll { since_ns: u64 },
}

impl EndWatch {
    fn new(target: Target, engine: &Engine) -> Self {
        let poll = Self::Poll { since_ns: engine.started_at().monotonic_ns };
        match target {
            Target::Running(pid) if pid == std::process::id() => Self::None,
            Target::Running(_) if engine.config.in_process => poll,
            Target::Running(pid) => Watch::open(pid).map_or(poll, Self::Descriptor),
            Target::Future | Target::None => Self::None,
        }
    }
}

const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(100);

/// A fiftieth of the time since the start, so that the end of a short job is noticed with at most 2 % delay.
fn poll_interval(since_start_ns: u64) -> Duration {
    Duration::from_nanos(since_start_ns / 50).clamp(POLL_MIN, POLL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_job_is_noticed_within_a_fiftieth_of_its_duration() {
        let after = |ms: u64| poll_interval(ms * 1_000_000).as_millis();
        assert_eq!([0, 20, 200, 1_000, 60_000].map(after), [1, 1, 4, 20, 100]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn panic_in_the_sampling_thread_ends_the_recording() {
        use crate::sampler::progress::EventFds;

        /// A sink that panics at its first row.
        struct Broken;

        impl Sink for Broken {
            fn take(&mut self, _row: &Row) -> std::io::Result<ControlFlow<()>> {
                panic!("a sink that fails on purpose");
            }

            fn name(&self) -> String {
                "broken".to_owned()
            }
        }

        let root = std::sync::Arc::new(crate::os::root::Root::host().unwrap());
        let engine = Engine::start(root, crate::config::Config::default(), Target::None).unwrap();
        let progress = Progress::new(EventFds::new().unwrap());
        progress.send(SamplerCommand::Stop);
        std::thread::scope(|scope| {
            scope.spawn(|| run(engine, Target::None, &progress, vec![Box::new(Broken)])).join().unwrap_err()
        });
        assert_eq!(progress.state(), State::Stopped);
        assert_eq!(progress.notes(), ["the sampling thread failed; rows after that are missing"]);
        // `attach` and the sidecar wait for this event.
        let ended = progress.ended().unwrap();
        let mut polled = [rustix::event::PollFd::new(ended, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap(), 1);
    }
}
