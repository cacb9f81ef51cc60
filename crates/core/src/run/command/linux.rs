//! Running a job on Linux: signals arrive on a signalfd, and the tracker is the subreaper of the job's orphans.
//!
//! The job stays a zombie until the last sample is taken, so that its `/proc` files stay readable.
//!
//! What happens to a signal that the tracker receives while the job runs:
//!
//! | sent by | signals | the job |
//! |---|---|---|
//! | the kernel for a terminal (keys, hang-up, background access, resize) | HUP, INT, QUIT, TSTP, TTIN, TTOU, CONT, WINCH | has it already |
//! | the kernel for an alarm that was set before the tracker started | ALRM | gets it |
//! | the kernel, about the tracker itself | CHLD, PIPE, XCPU, XFSZ, VTALRM, PROF | does not get it |
//! | a process of the job, to its process group | all | has it already |
//! | any other process | all | gets it |
//!
//! A signal that another process sends to the whole process group (`kill -- -PGID`) cannot be told from a signal to the
//! tracker, so the job receives it twice; but not CONT after a stop of the whole group, as a shell sends it. TSTP, TTIN and TTOU stop the tracker too, as the shell expects. Signals that
//! were ignored when the tracker started stay ignored. KILL and STOP cannot be received, and leave the job running. After
//! the end of the job, HUP, INT, QUIT and TERM end the tracker at once.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::unix::{self, forward, is_stop, stop_self};
use super::{Hooks, START_DELAY, Setup, WrapError};
use crate::config::{Backend, Config};
use crate::job::counter::TreeCounter;
use crate::job::ledger::{Reaped, Totals};
use crate::os::root::Root;
use crate::os::{self, Ended, Moment, ReceivedSignal, SignalSet, pid_path};
use crate::probe::procfs::{parse_pid_io, parse_pid_status, read_stat};
use crate::run::tracker::Tracker;
use crate::sampler::SamplerCommand;
use crate::sampler::evidence::SignalReceived;

/// The signals of the tracker, blocked and received on a signalfd.
pub(crate) struct Signals {
    signalfd: OwnedFd,
    /// The inherited signal mask, for the job.
    mask: SignalSet,
    /// Signals that the job starts with ignored.
    ignored: Vec<i32>,
}

impl Signals {
    /// The signals of a tracker that follows a process. With `stops`, `SIGTSTP` is received too.
    pub(crate) fn receive(stops: bool) -> Result<Self, WrapError> {
        Self::open(&unix::signals_to_receive(&[libc::SIGPWR], stops), &[])
    }

    /// The signals of a tracker that runs a job: all that were not ignored at its start.
    pub(super) fn receive_for_job(ignored_at_start: &[i32]) -> Result<Self, WrapError> {
        // With SIGCHLD ignored the kernel would reap the job, and its exit status would be lost.
        os::reset(libc::SIGCHLD);
        let is_received = |signal: &i32| match *signal {
            libc::SIGCHLD => true,
            // The tracker ignores both itself.
            libc::SIGPIPE | libc::SIGXFSZ => !ignored_at_start.contains(signal),
            _ => !os::is_ignored(*signal),
        };
        Self::open(&os::catchable_signals().filter(is_received).collect::<Vec<_>>(), ignored_at_start)
    }

    fn open(signals: &[i32], ignored_at_start: &[i32]) -> Result<Self, WrapError> {
        let set = SignalSet::of(signals);
        let mask = unix::inherited_mask(set.block());
        let signalfd = set.descriptor().inspect_err(|_| mask.restore()).map_err(WrapError::Signals)?;
        Ok(Self { signalfd, mask, ignored: ignored_at_start.to_vec() })
    }

    /// Called if no job was started.
    pub(super) fn restore(&self) {
        self.mask.restore();
    }

    /// Called when the job has ended: from now on, a request to end ends the tracker at once. Requests from before were
    /// for the job.
    pub(super) fn end_at_once(&self) {
        while os::next_signal(self.signalfd.as_fd()).is_some() {}
        SignalSet::of(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]).unblock();
    }
}

/// A job from its start until it is reaped.
pub(super) struct Job {
    pub(super) pid: u32,
    /// Peak resident size of the tracker at the fork, which the job inherits as its high-water mark.
    pub(super) own_rss_kib: u64,
}

impl Job {
    /// Starts the command, with a CPU counter of the whole tree if the system offers one.
    pub(super) fn start(
        mut command: Command,
        setup: &Setup<'_>,
    ) -> Result<(Self, Option<TreeCounter>), WrapError> {
        let Setup { config, signals, root, tracker } = *setup;
        if config.children {
            // If this fails, init adopts the orphans of the job, and not the tracker.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
        let (counter, cgroup_procs) = if config.children && config.backend == Backend::Procfs {
            count_job(root, config, tracker)
        } else {
            (None, None)
        };
        let own_rss_kib = own_peak_rss_kib(root);
        let child = os::spawn(&mut command, signals.mask, signals.ignored.clone(), cgroup_procs)
            .map_err(|source| WrapError::not_started(&command, source))?;
        Ok((Self { pid: child.id(), own_rss_kib }, counter))
    }

    /// Forwards signals and reaps orphans until the job ends. The job itself is not reaped here.
    pub(super) fn wait(&mut self, setup: &Setup<'_>, hooks: &mut dyn Hooks) -> Ended {
        let signals = &setup.signals.signalfd;
        let start_delay = Timespec {
            tv_sec: START_DELAY.as_secs().cast_signed(),
            tv_nsec: START_DELAY.subsec_nanos().into(),
        };
        let mut is_started = false;
        // Whether the whole process group was stopped. A shell then continues the whole group, too.
        let mut is_group_stopped = false;
        loop {
            let mut fds = [PollFd::new(signals, PollFlags::IN)];
            let timeout = (!is_started).then_some(&start_delay);
            if poll(&mut fds, timeout) == Ok(0) {
                is_started = true;
                hooks.job_started();
            }
            while let Some(received) = os::next_signal(signals.as_fd()) {
                let signal = received.signal;
                let has_reached_job = has_reached_job(received, setup.root);
                if !is_routine(signal) {
                    setup.tracker.add_signal(with_sender(received, setup.root));
                }
                let is_continued = signal == libc::SIGCONT && std::mem::take(&mut is_group_stopped);
                if !has_reached_job && !is_continued {
                    forward(self.pid, signal);
                }
                if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
                    is_group_stopped = has_reached_job;
                    stop_self(signal, hooks);
                }
            }
            // One SIGCHLD can stand for several ended children. `find_ended_child` fails if there is no child.
            while let Ok(Some(ended)) = os::find_ended_child() {
                if ended.pid == self.pid {
                    return ended;
                }
                setup.tracker.send(SamplerCommand::Reaped(usage_of_orphan(setup.root, &ended)));
                reap(ended.pid);
            }
        }
    }

    pub(super) fn reap(self) {
        reap(self.pid);
    }
}

/// Whether a signal has reached the job without the tracker, or is not meant for the job.
fn has_reached_job(received: ReceivedSignal, root: &Root) -> bool {
    let own_pid = std::process::id();
    let Some(sender) = received.sender else { return received.signal != libc::SIGALRM };
    let mut buffer = Vec::new();
    let mut parents =
        std::iter::successors(Some(sender), |pid| Some(read_stat(root, *pid, &mut buffer).ok()?.ppid));
    // All descendants of the tracker are processes of the job.
    parents.find(|pid| *pid <= 1 || *pid == own_pid) == Some(own_pid)
}

/// Whether a signal cannot be why a job ends.
const fn is_routine(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGCHLD
            | libc::SIGCONT
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
            | libc::SIGURG
            | libc::SIGWINCH
    )
}

/// Reads the name of the sender at once, since it may end soon.
fn with_sender(received: ReceivedSignal, root: &Root) -> SignalReceived {
    let sender = received.sender.filter(|pid| *pid > 0);
    SignalReceived {
        signal: received.signal,
        at: Moment::now().wall_s(),
        sender_pid: received.sender,
        sender: sender.and_then(|pid| root.text(pid_path(pid, "comm").as_str())),
    }
}

/// The CPU counter of the next child, and for a cgroup, the `cgroup.procs` descriptor that the child writes to.
fn count_job(root: &Root, config: Config, tracker: &Tracker) -> (Option<TreeCounter>, Option<OwnedFd>) {
    let (counter, notes) = TreeCounter::for_future_child(root, config.cpu_source);
    for note in notes {
        tracker.note(note);
    }
    match counter.as_ref().map(TreeCounter::cgroup_procs) {
        Some(Ok(cgroup_procs)) => (counter, cgroup_procs),
        // A cgroup that the job cannot enter counts nothing.
        Some(Err(why)) => {
            tracker.note(why);
            (None, None)
        }
        None => (None, None),
    }
}

/// Usage of an ended orphan. Its `/proc` files are readable until it is reaped.
fn usage_of_orphan(root: &Root, ended: &Ended) -> Reaped {
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
    // If the peak is unknown, the largest value makes the sampler ignore the high-water mark that the job inherits.
    text.and_then(|text| parse_pid_status(text).ok()?.peak_rss_kib).unwrap_or(u64::MAX)
}

/// Waits until the tracker ends or a signal stops it.
pub(crate) fn wait_for_stop(signals: &Signals, tracker: &mut Tracker, hooks: &mut dyn Hooks) {
    let signals = &signals.signalfd;
    loop {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(tracker.ended().map(|eventfd| PollFd::new(eventfd, PollFlags::IN)));
        let _ = poll(&mut fds, None);
        if fds.get(1).is_some_and(|ended| !ended.revents().is_empty()) {
            return tracker.wait_for_end();
        }
        while let Some(received) = os::next_signal(signals.as_fd()) {
            match received.signal {
                libc::SIGTSTP => stop_self(libc::SIGTSTP, hooks),
                signal if is_stop(signal) => return tracker.stop(),
                _ => {}
            }
        }
    }
}
