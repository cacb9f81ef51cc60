//! Linux's half of the wrapper: signals and ends of children arrive on descriptors, orphans come to us, and the job is
//! looked at once more between its end and its burial.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::unix::{self, is_stop, pass_on, stop_here};
use super::{Beside, Ours, SETTLED, WrapError};
use crate::config::{Backend, Config};
use crate::counter::TreeCounter;
use crate::ledger::{Reaped, Totals};
use crate::root::Root;
use crate::sampler::Order;
use crate::source::gpu;
use crate::source::procfs::{parse_pid_io, parse_pid_status};
use crate::sys::{self, Ended, SignalSet, Watch};
use crate::tracker::Tracker;
use crate::tree::pid_path;

/// Our signals while a job runs: received on a descriptor instead of interrupting us.
pub(crate) struct Signals {
    descriptor: OwnedFd,
    /// The mask that we were given, for the job.
    mask: SignalSet,
    /// What was ignored when we started and that we must not ignore ourselves, for the job.
    ignored: Vec<i32>,
}

impl Signals {
    /// `ignored_at_start` is for the job; `stops` asks for those of the terminal too.
    pub(crate) fn receive(ignored_at_start: &[i32], stops: bool) -> Result<Self, WrapError> {
        let mut wanted = unix::wanted(&[libc::SIGPWR], stops);
        wanted.push(libc::SIGCHLD);
        let set = SignalSet::of(&wanted);
        let mask = set.block();
        let descriptor = set.descriptor().map_err(WrapError::Signals)?;
        Ok(Self { descriptor, mask, ignored: ignored_at_start.to_vec() })
    }
}

/// The job, from its start to its burial.
pub(super) struct Job {
    pub(super) pid: u32,
    /// Our own size when we forked it.
    pub(super) own_rss_kib: u64,
}

impl Job {
    /// Starts the command, counted if that can be had.
    pub(super) fn start(
        mut command: Command,
        ours: &Ours<'_>,
    ) -> Result<(Self, Option<TreeCounter>), WrapError> {
        let Ours { config, signals, root, tracker } = *ours;
        if config.children {
            // Orphans of the job come to us then; a kernel that refuses leaves them to init.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
        let (counter, door) = if config.children && config.backend == Backend::Procfs {
            count_job(root, config, tracker)
        } else {
            (None, None)
        };
        let own_rss_kib = own_peak_rss_kib(root);
        let child = sys::spawn(&mut command, signals.mask, signals.ignored.clone(), door)
            .map_err(|source| WrapError::not_started(&command, source))?;
        Ok((Self { pid: child.id(), own_rss_kib }, counter))
    }

    /// Passes signals on and reaps orphans, until the job's root has ended; leaves the root for the last look.
    pub(super) fn wait(&mut self, ours: &Ours<'_>, beside: &mut dyn Beside) -> Ended {
        let signals = &ours.signals.descriptor;
        let settled =
            Timespec { tv_sec: SETTLED.as_secs().cast_signed(), tv_nsec: SETTLED.subsec_nanos().into() };
        let mut is_settled = false;
        loop {
            let mut fds = [PollFd::new(signals, PollFlags::IN)];
            let timeout = (!is_settled).then_some(&settled);
            if poll(&mut fds, timeout) == Ok(0) {
                is_settled = true;
                beside.settled();
                sys::release_start_up_code();
            }
            while let Some(arrived) = sys::next_signal(signals.as_fd()) {
                match arrived.signal {
                    libc::SIGTSTP => stop_here(beside),
                    libc::SIGCHLD => {}
                    // The job has it already; less, for one, drops the next key after a second SIGWINCH.
                    _ if arrived.to_group => {}
                    signal => pass_on(self.pid, signal),
                }
            }
            // Several ends may hide behind one SIGCHLD. An error here means that there is nothing to wait for.
            while let Ok(Some(ended)) = sys::peek_ended_child() {
                if ended.pid == self.pid {
                    return ended;
                }
                if !gpu::is_helper(ended.pid) {
                    ours.tracker.order(Order::Reaped(last_account(ours.root, &ended)));
                }
                reap(ended.pid);
            }
        }
    }

    /// Lets it go.
    pub(super) fn bury(self) {
        reap(self.pid);
    }
}

/// The counter for the job that is about to start, and what it must write to in order to be counted.
fn count_job(root: &Root, config: Config, tracker: &Tracker) -> (Option<TreeCounter>, Option<OwnedFd>) {
    let (counter, notes) = TreeCounter::for_future_child(root, config.cpu_source);
    for note in notes {
        tracker.note(note);
    }
    match counter.as_ref().map(TreeCounter::door) {
        Some(Ok(door)) => (counter, door),
        // A group that the job cannot enter counts nobody.
        Some(Err(why)) => {
            tracker.note(why);
            (None, None)
        }
        None => (None, None),
    }
}

/// What an orphan spent; its files are readable until it is reaped.
fn last_account(root: &Root, ended: &Ended) -> Reaped {
    let mut buffer = Vec::new();
    let io = root
        .read(pid_path(ended.pid, "io").as_str(), &mut buffer)
        .ok()
        .and_then(|text| parse_pid_io(text).ok());
    let io = io.unwrap_or_default();
    let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Reaped {
        pid: ended.pid,
        spent: Totals {
            cpu_ns: ended.user_us.saturating_add(ended.system_us).saturating_mul(1_000),
            user_ticks: ended.user_us / us_per_tick,
            system_ticks: ended.system_us / us_per_tick,
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
            major_faults: ended.major_faults,
        },
    }
}

fn reap(pid: u32) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn own_peak_rss_kib(root: &Root) -> u64 {
    let mut buffer = Vec::new();
    let text = root.read("/proc/self/status", &mut buffer).ok();
    // Not known: then nothing can be proved by a child's mark.
    text.and_then(|text| parse_pid_status(text).ok()?.peak_rss_kib).unwrap_or(u64::MAX)
}

/// Until the tracker ends, we are told to stop by a signal, or `other` ends.
pub(crate) fn wait_for_stop(
    signals: &Signals,
    tracker: &mut Tracker,
    other: Option<&Watch>,
    beside: &mut dyn Beside,
) {
    let signals = &signals.descriptor;
    loop {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(tracker.ended().map(|bell| PollFd::new(bell, PollFlags::IN)));
        fds.extend(other.map(|process| PollFd::new(process, PollFlags::IN)));
        let _ = poll(&mut fds, None);
        if fds.get(1).is_some_and(|ended| !ended.revents().is_empty()) {
            return tracker.wait_for_end();
        }
        if fds.get(2).is_some_and(|other| !other.revents().is_empty()) {
            return tracker.stop();
        }
        while let Some(arrived) = sys::next_signal(signals.as_fd()) {
            match arrived.signal {
                libc::SIGTSTP => stop_here(beside),
                signal if is_stop(signal) && beside.obeys(arrived.sender_pid) => return tracker.stop(),
                _ => {}
            }
        }
    }
}
