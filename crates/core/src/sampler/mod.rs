//! The sampling thread: has rows made on the time grid, and hands them on.
//!
//! In:  orders (a job to follow, a child that was reaped, the end). Out: rows to the sinks and the running summary.
//! Not here: how a row is made (`engine`), who gives the orders (`tracker`, `wrap`).

mod engine;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::counter::TreeCounter;
use crate::diff;
use crate::grid::{Grid, Tick};
use crate::ledger::Reaped;
use crate::metric::Row;
use crate::snapshot::Moment;
use crate::sys::{self, Ended, Watch};
use crate::tracker::{Progress, State};

pub use engine::Engine;

/// What the sampling thread can be told.
#[derive(Debug)]
pub enum Order {
    /// The job runs from now on.
    Adopt {
        /// Its root, a child of ours.
        pid: u32,
        /// What counts its CPU time.
        counter: Option<TreeCounter>,
    },
    /// An orphan of the job, which we adopted, has ended.
    Reaped(Reaped),
    /// The job's root has ended and waits to be reaped: make the last row.
    Ended {
        /// Its last account.
        ended: Ended,
        /// Our own size when we forked it.
        own_rss_kib: u64,
    },
    /// Start something that is not the job's: what this thread starts is in none of its counters.
    Start(fn()),
    /// Make the last row.
    Stop,
}

/// Somebody who takes rows as they come.
pub trait Sink: Send {
    /// Takes one; may say that it wants no more, which ends the recording.
    ///
    /// # Errors
    /// What went wrong; said once, and the recording goes on.
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>>;
    /// What it is, for the message about it.
    fn name(&self) -> String;
}

/// Whom to follow from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A job that is about to be started; an [`Order::Adopt`] follows.
    Future,
    /// A process that runs already.
    Running(u32),
    /// Nobody: only the machine.
    None,
}

/// For a long interval the job is looked at now and then, so that its memory and its processes are not missed.
const PEEK_AT_LEAST_EVERY_NS: u64 = 10_000_000_000;
const FIRST_PEEK_NS: u64 = 1_000_000;

/// The thread's loop: ends with the last row.
pub(crate) fn run(
    mut engine: Engine,
    target: Target,
    progress: &Arc<Progress>,
    mut sinks: Vec<Box<dyn Sink>>,
) {
    let start = engine.started_at();
    let mut grid = Grid::new(start.wall_ns, start.monotonic_ns, engine.config.interval.ns());
    let by_looking = Watched::ByLooking { since_ns: start.monotonic_ns };
    let watched = match target {
        Target::Running(pid) if pid == std::process::id() => Watched::Nobody,
        Target::Running(_) if engine.config.as_guest => by_looking,
        Target::Running(pid) => Watch::open(pid).map_or(by_looking, Watched::ByDescriptor),
        Target::Future | Target::None => Watched::Nobody,
    };
    let mut peek_ns = FIRST_PEEK_NS;
    let mut peek_at_ns = start.monotonic_ns + peek_ns;
    // A job that is shorter than an interval has one row, also where a grid line falls into it: the row of that line
    // is held back for so long.
    let release_at_ns = start.monotonic_ns + engine.interval_ns();
    let mut held_back: Option<Row> = None;
    loop {
        let awaits_job = target == Target::Future && engine.job.is_none() && engine.config.track_processes;
        let mut tick = grid.next();
        if awaits_job {
            tick.at_ns = u64::MAX;
        }
        let ask_gpus_at_ns = engine.gpus.as_ref().and_then(|gpus| gpus.ask_at_ns(&tick));
        let wake_ns = next_wake_ns(&engine, &tick, peek_at_ns).min(ask_gpus_at_ns.unwrap_or(u64::MAX));
        let wake_ns = if held_back.is_some() { wake_ns.min(release_at_ns) } else { wake_ns };
        let wake = wait(&engine, progress, &watched, wake_ns);
        for order in progress.take_orders() {
            match order {
                Order::Adopt { pid, counter } => {
                    engine.adopt(pid, counter);
                    if awaits_job {
                        grid.begin(Moment::now().monotonic_ns);
                    }
                    progress.set_cpu_source(engine.cpu_source());
                }
                Order::Reaped(reaped) => engine.reaped.push(reaped),
                Order::Ended { ended, own_rss_kib } => {
                    if let Some(job) = &mut engine.job {
                        job.end(ended, own_rss_kib);
                    }
                    return finish(engine, held_back.as_ref(), State::Exited, progress, &mut sinks);
                }
                Order::Start(start) => start(),
                Order::Stop => {
                    return finish(engine, held_back.as_ref(), State::Stopped, progress, &mut sinks);
                }
            }
        }
        if wake == Wake::TargetEnded {
            return finish(engine, held_back.as_ref(), State::Exited, progress, &mut sinks);
        }
        let now_ns = Moment::now().monotonic_ns;
        if let Some(row) = held_back.take_if(|_| now_ns >= release_at_ns)
            && hand_on(&row, progress, &mut sinks).is_break()
        {
            return progress.set_state(State::Stopped);
        }
        if now_ns >= tick.at_ns {
            let row = engine.tick(Moment::now(), grid.take(now_ns), false);
            if now_ns < release_at_ns {
                held_back = Some(row);
            } else if hand_on(&row, progress, &mut sinks).is_break() {
                return progress.set_state(State::Stopped);
            }
            engine.tell_notes(progress);
            grid.rest(Moment::now().monotonic_ns);
            peek_at_ns = now_ns + PEEK_AT_LEAST_EVERY_NS;
        } else if let Some(gpus) =
            engine.gpus.as_mut().filter(|_| ask_gpus_at_ns.is_some_and(|at| now_ns >= at))
        {
            gpus.asked_for(&tick);
            // Processes that came since the last look belong to the question, which is asked with it.
            engine.peek();
        } else if now_ns >= peek_at_ns {
            engine.peek();
            peek_ns = (peek_ns * 2).min(PEEK_AT_LEAST_EVERY_NS);
            peek_at_ns = now_ns + peek_ns;
        }
    }
}

/// The tick, or a look before it: in the first interval soon and then ever more rarely, later only now and then.
fn next_wake_ns(engine: &Engine, tick: &Tick, peek_at_ns: u64) -> u64 {
    let may_peek =
        engine.job.is_some() && (engine.rows == 0 || engine.interval_ns() > PEEK_AT_LEAST_EVERY_NS);
    if may_peek { tick.at_ns.min(peek_at_ns) } else { tick.at_ns }
}

fn finish(
    mut engine: Engine,
    held_back: Option<&Row>,
    state: State,
    progress: &Arc<Progress>,
    sinks: &mut [Box<dyn Sink>],
) {
    let row = engine.tick(Moment::now(), 0, true);
    let row = match held_back {
        Some(first) => diff::join(first, &row),
        None => row,
    };
    engine.tell_notes(progress);
    engine.coverage_notes(progress);
    let _ = hand_on(&row, progress, sinks);
    progress.set_state(state);
}

fn hand_on(row: &Row, progress: &Progress, sinks: &mut [Box<dyn Sink>]) -> ControlFlow<()> {
    let mut flow = ControlFlow::Continue(());
    for sink in sinks.iter_mut() {
        match sink.take(row) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => flow = ControlFlow::Break(()),
            Err(error) => progress.note_once(format!("cannot write {}: {error}", sink.name())),
        }
    }
    progress.add(row);
    flow
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    TimeOrOrder,
    TargetEnded,
}

/// How we learn that the process we follow has ended.
#[derive(Debug)]
enum Watched {
    /// It is our own host, or there is none.
    Nobody,
    /// The kernel tells us.
    ByDescriptor(Watch),
    /// A guest keeps no descriptor, and other systems have none: we look now and then.
    ByLooking { since_ns: u64 },
}

/// How often we look whether the process that we follow is still there: at a fiftieth of the time since the start, so
/// that the end of a short job is not late by more than that, and within these bounds.
const LOOKS: u64 = 50;
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(1);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);

fn between_looks(followed_ns: u64) -> Duration {
    Duration::from_nanos(followed_ns / LOOKS).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY)
}

fn wait(engine: &Engine, progress: &Progress, watched: &Watched, until_ns: u64) -> Wake {
    let now_ns = Moment::now().monotonic_ns;
    let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
    let left = match watched {
        Watched::ByLooking { since_ns } => left.min(between_looks(now_ns.saturating_sub(*since_ns))),
        Watched::Nobody | Watched::ByDescriptor(_) => left,
    };
    let mut ended = false;
    if let Some(bell) = progress.bell() {
        let descriptor = match watched {
            Watched::ByDescriptor(process) => Some(process),
            Watched::Nobody | Watched::ByLooking { .. } => None,
        };
        ended = sys::wait_for_bell(bell, descriptor, left);
        bell.quiet();
    } else {
        progress.wait_for_order(left);
    }
    ended |= matches!(watched, Watched::ByLooking { .. }) && !engine.is_target_alive();
    if ended { Wake::TargetEnded } else { Wake::TimeOrOrder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_job_is_late_by_a_fiftieth_of_it() {
        let after = |ms: u64| between_looks(ms * 1_000_000).as_millis();
        assert_eq!([0, 20, 200, 1_000, 60_000].map(after), [1, 1, 4, 20, 100]);
    }
}
