//! Linux's own calls: counters that are inherited (`task_clock`), children that are looked at before they are reaped,
//! signals and processes as descriptors.
#![expect(unsafe_code, reason = "waitid with rusage, signalfd and pre_exec have no safe wrapper here")]

mod task_clock;

pub use task_clock::{Follow, TaskClock};

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use super::unix::clock_ns;
use super::{Ended, Ending, SignalSet, ending_of_status};

/// CPU time in nanoseconds that all threads of a process have spent, those that ended included.
///
/// One call and no file; works for zombies too. `None` where there is no such process.
#[must_use]
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    /// `CPUCLOCK_SCHED` of `include/linux/posix-timers.h`: scheduler time of a whole process.
    const CPUCLOCK_SCHED: i32 = 2;
    clock_ns((!pid.cast_signed() << 3) | CPUCLOCK_SCHED)
}

/// The most that any child of this process ever held, of those that were waited for and of theirs (`getrusage(2)`).
#[must_use]
pub fn waited_peak_rss_kib() -> Option<u64> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills the structure that it is given, and says where it did not.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded.
    u64::try_from(unsafe { usage.assume_init() }.ru_maxrss).ok()
}

/// Looks at the next child that has ended, without reaping it: its `/proc` files stay readable.
///
/// `None` when no child of ours has ended (or there is none at all).
///
/// # Errors
/// What `waitid(2)` says, other than `ECHILD`.
pub fn peek_ended_child() -> io::Result<Option<Ended>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes one siginfo_t and one rusage, or nothing. The raw call is needed for its fifth
    // argument, which the C library's waitid leaves out.
    let result = unsafe {
        libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, info.as_mut_ptr(), options, usage.as_mut_ptr())
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    // SAFETY: zeroed above, and filled by the kernel where a child was found; all zeroes is valid for both.
    let (info, usage) = unsafe { (info.assume_init(), usage.assume_init()) };
    // SAFETY: for waitid the kernel fills the SIGCHLD part of the union; zeroes where there was no child.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid != 0) else { return Ok(None) };
    let how = if info.si_code == libc::CLD_EXITED { Ending::Code(status) } else { Ending::Signal(status) };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Ok(Some(Ended {
        pid,
        how,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
    }))
}

/// Whether two processes surely have one memory (`kcmp(2)`): not where the kernel does not say.
#[must_use]
pub fn share_memory(pid: u32, other_pid: u32) -> bool {
    /// `KCMP_VM` of `include/uapi/linux/kcmp.h`.
    const MEMORY: libc::c_int = 1;
    // SAFETY: takes five numbers, and writes nothing of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, MEMORY, 0, 0) == 0 }
}

impl SignalSet {
    /// A descriptor that becomes readable when one of these (blocked) signals arrives.
    ///
    /// # Errors
    /// What `signalfd(2)` says.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: a valid set, and flags; a new descriptor is asked for with -1.
        let fd = unsafe { libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so this descriptor is open and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// A signal as a signalfd gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// It went to the whole process group: the kernel sent it (a key on the terminal), or we did ourselves.
    pub to_group: bool,
    /// Who sent it.
    pub sender_pid: u32,
}

/// The next signal that has arrived, if any.
#[must_use]
pub fn next_signal(fd: BorrowedFd<'_>) -> Option<Arrived> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = mem::size_of::<libc::signalfd_siginfo>();
    // SAFETY: read(2) writes at most `size` bytes into memory of that size.
    let got = unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if usize::try_from(got).ok()? != size {
        return None;
    }
    // SAFETY: all bytes were written, and the struct has no invalid bit patterns.
    let info = unsafe { info.assume_init() };
    let is_own = info.ssi_code == libc::SI_USER && info.ssi_pid == std::process::id();
    let to_group = is_own || info.ssi_code == libc::SI_KERNEL;
    Some(Arrived { signal: info.ssi_signo.cast_signed(), to_group, sender_pid: info.ssi_pid })
}

/// A bell that can be waited for by its descriptor, beside others.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A quiet one.
    ///
    /// # Errors
    /// Where the kernel gives no descriptor.
    pub fn new() -> io::Result<Option<Self>> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Some(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Whoever waits for it goes on.
    pub fn ring(&self) {
        // A counter that is full rings already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// The next wait waits again.
    pub fn quiet(&self) {
        let mut count = [0; 8];
        // Non-blocking: an error only says that the bell was quiet already.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A process that is no child of ours, whose end the kernel tells.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// `None` where it is not there, or the kernel is older than 5.3.
    #[must_use]
    pub fn open(pid: u32) -> Option<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok().map(Self)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until the bell rings, the process ends, or the time is up; whether the process has ended.
#[must_use]
pub fn wait_for_bell(bell: &Bell, watched: Option<&Watch>, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let mut fds = vec![PollFd::new(bell, PollFlags::IN)];
    fds.extend(watched.map(|watched| PollFd::new(watched, PollFlags::IN)));
    // An interrupted wait is a short one: the caller looks at the clock again.
    let _ = poll(&mut fds, Some(&timeout));
    fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
}

/// One heap for all threads: ours allocate little, and a heap of its own for each would be most of the tracker's memory.
pub fn share_one_heap() {
    // SAFETY: takes integers by value; a C library without the setting ignores it.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Gives back the pages of code that starting up has touched (arguments, help, set-up): what goes on running needs few
/// of them, and gets those from the page cache again when it comes to them.
pub fn release_start_up_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let code = maps.lines().filter(|line| line.contains(" r-xp ") && line.contains(" /"));
    for range in code.filter_map(|line| line.split(' ').next()?.split_once('-')) {
        let address = |text: &str| usize::from_str_radix(text, 16).ok();
        if let (Some(start), Some(end)) = (address(range.0), address(range.1)) {
            // SAFETY: the range is a mapping of a file that is executable and not writable, so that nothing in it
            // differs from the file: dropping its pages only makes the kernel map them again at the next touch.
            unsafe {
                libc::madvise(start as *mut libc::c_void, end.saturating_sub(start), libc::MADV_DONTNEED)
            };
        }
    }
}

/// Closes every descriptor but the standard ones: whoever started us may have left theirs open.
///
/// Only for a program that has opened nothing yet.
pub fn close_inherited() {
    // SAFETY: takes integers by value, and nothing of ours is open by what is said above.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // Before Linux 5.9. All are listed before the first is closed, the list's own one too, which is closed by then.
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: as above; a number that is no descriptor is refused.
        unsafe { libc::close(number) };
    }
}

/// Gives the calling thread descriptors of its own, which no other thread of this process sees: none but the standard
/// ones, which lead nowhere. What it starts from now on shares them. False where the kernel does not do this (before
/// Linux 5.9): then the thread has everybody's, as before.
#[must_use]
pub fn leave_descriptors() -> bool {
    use rustix::fs::{Mode, OFlags};
    // SAFETY: takes integers by value. The table that is emptied is a new one, so that nobody's descriptor is closed.
    if unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) } != 0 {
        return false;
    }
    for _ in 0..3 {
        // What is said by a thread that panics would else go into the first file that it opens.
        if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            mem::forget(null);
        }
    }
    true
}

/// A signal's action as the kernel keeps it. The C library's own calls refuse the two signals that it uses itself,
/// and those too may have been ignored by whoever started us.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: [u64; 2],
}

/// The size of the kernel's signal set in bytes.
const SIGNAL_SET_BYTES: usize = 8;

/// Whether a signal is ignored in this process.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut action = Action::default();
    let none = std::ptr::null::<Action>();
    // SAFETY: with no new action this only reads the old one into our memory, which is large enough for it.
    let failed =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, none, &raw mut action, SIGNAL_SET_BYTES) }
            != 0;
    !failed && action.handler == libc::SIG_IGN
}

/// Ignores a signal in this process.
pub fn ignore(signal: i32) {
    let action = Action { handler: libc::SIG_IGN, ..Action::default() };
    let none = std::ptr::null_mut::<Action>();
    // SAFETY: SIG_IGN is a valid disposition for every signal; where it is not allowed the call fails.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, none, SIGNAL_SET_BYTES) };
}

/// Signals whose action we change for ourselves, or the C library for its threads (32 and 33), and that were ignored
/// when we started: the job must find them so.
#[must_use]
pub fn ignored_at_start() -> Vec<i32> {
    [libc::SIGPIPE, libc::SIGCHLD, 32, 33].into_iter().filter(|signal| is_ignored(*signal)).collect()
}

/// How a process ended that is no child of ours, by its pidfd; `None` until it is reaped, and before Linux 6.15.
#[must_use]
pub fn ending_of(pidfd: BorrowedFd<'_>) -> Option<Ending> {
    /// `struct pidfd_info` of `include/uapi/linux/pidfd.h`, its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const WITH_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
    debug_assert_eq!(mem::size_of::<Info>(), 64);
    let mut info = Info { mask: WITH_EXIT, ..Info::default() };
    // SAFETY: the request names a struct of 64 bytes, which is what the kernel reads and fills.
    let failed = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) } != 0;
    (!failed && info.mask & WITH_EXIT != 0).then(|| ending_of_status(info.exit_code))
}

/// Our resident memory, where it is not read from `/proc/self/statm` anyway.
#[must_use]
pub const fn own_rss_kib() -> Option<u64> {
    None
}

/// Starts a command with the signal mask that we were given, with `ignored` signals ignored, in the given cgroup.
///
/// # Errors
/// What the fork or the exec says; the command then does not run.
pub fn spawn(
    command: &mut Command,
    mask: SignalSet,
    ignored: Vec<i32>,
    cgroup_procs: Option<OwnedFd>,
) -> io::Result<Child> {
    let before_exec = move || {
        if let Some(procs) = &cgroup_procs {
            // SAFETY: a live descriptor and one byte; "0" moves the writer itself. A refusal costs the counter only.
            unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        }
        for signal in &ignored {
            ignore(*signal);
        }
        // SAFETY: a valid mask, copied into this closure before the fork.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure only calls write, signal and pthread_sigmask, which are
    // async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_clock_of_this_process_runs_and_that_of_no_process_does_not() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let mut x = 1_u64;
        for i in 0..5_000_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        assert!(process_cpu_ns(std::process::id()).unwrap() > before);
        assert_eq!(process_cpu_ns(u32::MAX >> 4), None);
    }
}
