//! System calls of macOS: kqueue for signals and child exits, and usage of processes and of the machine.
#![expect(
    unsafe_code,
    reason = "kevent, wait4, pre_exec, proc_pid_rusage and the Mach calls have no safe wrapper here"
)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::ptr;
use std::time::Duration;

use super::{Ended, SignalSet, ending_of_status};

/// Resource usage of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessAccount {
    pub user_ns: u64,
    pub system_ns: u64,
    /// User time of reaped children.
    pub waited_user_ns: u64,
    /// System time of reaped children.
    pub waited_system_ns: u64,
    pub page_ins: u64,
    /// Memory that is charged to this process alone.
    pub footprint_kib: u64,
}

/// Resource usage of a process; `None` if the process does not exist, or without permission.
pub fn account_of(pid: u32) -> Option<ProcessAccount> {
    let mut usage = MaybeUninit::<libc::rusage_info_v2>::zeroed();
    // The C header declares the last argument as a pointer that fits the structures of all versions.
    // SAFETY: the call fills a structure of the requested version.
    let failed =
        unsafe { libc::proc_pid_rusage(pid.cast_signed(), libc::RUSAGE_INFO_V2, usage.as_mut_ptr().cast()) }
            != 0;
    if failed {
        return None;
    }
    // SAFETY: filled by the call above; all zeroes are valid too.
    let usage = unsafe { usage.assume_init() };
    let ns = ns_of_mach_time()?;
    Some(ProcessAccount {
        user_ns: ns(usage.ri_user_time),
        system_ns: ns(usage.ri_system_time),
        waited_user_ns: ns(usage.ri_child_user_time),
        waited_system_ns: ns(usage.ri_child_system_time),
        page_ins: usage.ri_pageins,
        footprint_kib: usage.ri_phys_footprint / 1024,
    })
}

/// Converts Mach time units: 1 ns on Intel, 125/3 ns on Apple processors.
#[expect(deprecated, reason = "the replacement is a crate of its own, for this one call")]
fn ns_of_mach_time() -> Option<impl Fn(u64) -> u64> {
    let mut base = libc::mach_timebase_info { numer: 0, denom: 0 };
    // SAFETY: the call fills one structure.
    let failed = unsafe { libc::mach_timebase_info(&raw mut base) } != 0;
    (!failed && base.denom > 0).then_some(())?;
    Some(move |units: u64| {
        let ns = u128::from(units) * u128::from(base.numer) / u128::from(base.denom);
        u64::try_from(ns).unwrap_or(u64::MAX)
    })
}

/// Ticks of all CPUs since boot: user, system, nice.
pub fn machine_ticks() -> io::Result<[u64; 3]> {
    let load: libc::host_cpu_load_info = host_statistics(libc::HOST_CPU_LOAD_INFO)?;
    // The order of `mach/machine.h`: user, system, idle, nice.
    let [user, system, _idle, nice] = load.cpu_ticks;
    Ok([user, system, nice].map(u64::from))
}

/// Memory pages of the machine by use.
pub fn machine_pages() -> io::Result<libc::vm_statistics64> {
    host_statistics(libc::HOST_VM_INFO64)
}

/// Reads one of the structures of `host_statistics64`, which consist of integers only.
#[expect(deprecated, reason = "the replacement is a crate of its own, for these two calls")]
fn host_statistics<T: Copy>(flavour: libc::host_flavor_t) -> io::Result<T> {
    let mut found = MaybeUninit::<T>::zeroed();
    let words = mem::size_of::<T>() / mem::size_of::<libc::integer_t>();
    let mut count = libc::mach_msg_type_number_t::try_from(words).map_err(io::Error::other)?;
    // SAFETY: the port of this host, and memory of `count` words.
    let result = unsafe {
        libc::host_statistics64(libc::mach_host_self(), flavour, found.as_mut_ptr().cast(), &raw mut count)
    };
    if result != 0 {
        return Err(io::Error::other(format!("host_statistics64 gave {result}")));
    }
    // SAFETY: zeroed above, and filled as far as this system knows the structure. All integers are valid.
    Ok(unsafe { found.assume_init() })
}

/// Physical memory of the machine.
pub fn memory_bytes() -> Option<u64> {
    let mut bytes = 0_u64;
    let mut size = mem::size_of::<u64>();
    // SAFETY: a zero-terminated name, and eight bytes to fill.
    let failed = unsafe {
        libc::sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut bytes).cast(), &raw mut size, ptr::null_mut(), 0)
    } != 0;
    (!failed).then_some(bytes)
}

/// Memory of this process.
pub fn own_rss_kib() -> Option<u64> {
    account_of(std::process::id()).map(|account| account.footprint_kib)
}

/// Stub of the Windows job object.
#[derive(Debug)]
pub enum JobObject {}

impl JobObject {
    pub fn create() -> io::Result<Self> {
        Err(io::Error::other("macOS does not count process trees"))
    }

    pub const fn cpu_ns(&self) -> Option<u64> {
        match *self {}
    }

    pub const fn transferred_bytes(&self) -> Option<(u64, u64)> {
        match *self {}
    }
}

/// A kqueue for signals and process exits.
#[derive(Debug)]
pub struct Queue(OwnedFd);

impl Queue {
    /// A kqueue that receives these signals, which must be blocked or ignored.
    pub fn of_signals(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: takes no argument.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so the descriptor is open and has no other owner.
        let queue = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        for signal in signals {
            let ident = usize::try_from(*signal).map_err(io::Error::other)?;
            queue.add(ident, libc::EVFILT_SIGNAL, 0)?;
        }
        Ok(queue)
    }

    /// Adds the exit of a process as an event.
    pub fn watch(&self, pid: u32) -> io::Result<()> {
        self.add(pid as usize, libc::EVFILT_PROC, libc::NOTE_EXIT)
    }

    fn add(&self, ident: usize, filter: i16, fflags: u32) -> io::Result<()> {
        let change =
            libc::kevent { ident, filter, flags: libc::EV_ADD, fflags, data: 0, udata: ptr::null_mut() };
        // SAFETY: the call reads one change and returns no event.
        let result = unsafe {
            libc::kevent(self.0.as_raw_fd(), &raw const change, 1, ptr::null_mut(), 0, ptr::null())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Signals that arrived within the timeout; empty after the timeout or a process exit.
    pub fn wait(&self, timeout: Option<Duration>) -> Vec<i32> {
        let mut events = [const { MaybeUninit::<libc::kevent>::zeroed() }; 16];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: space for sixteen events, and a valid timespec or null.
        let got =
            unsafe { libc::kevent(self.0.as_raw_fd(), ptr::null(), 0, events.as_mut_ptr().cast(), 16, time) };
        let got = usize::try_from(got).unwrap_or(0);
        // SAFETY: filled by the call above; all zeroes are valid too.
        let events = events.iter().take(got).map(|event| unsafe { event.assume_init() });
        let signals = events.filter(|event| event.filter == libc::EVFILT_SIGNAL);
        signals.filter_map(|event| i32::try_from(event.ident).ok()).collect()
    }
}

/// Reaps a child that has ended; `None` while it runs.
pub fn reap(pid: u32) -> io::Result<Option<Ended>> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the call fills one integer and one structure, or nothing.
    let got = unsafe { libc::wait4(pid.cast_signed(), &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match got {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Ok(None),
        _ => {}
    }
    // SAFETY: filled by the call above; all zeroes are valid too.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Ok(Some(Ended {
        pid,
        how: ending_of_status(status),
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        // `ru_maxrss` is in bytes on macOS, and in KiB on Linux.
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0) / 1024,
        major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
    }))
}

pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the call only writes the old action.
    let failed = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0;
    // SAFETY: filled by the call above; all zeroes are valid too.
    !failed && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN is a valid disposition; the call fails for signals that cannot be ignored.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// The signals that are ignored, of those whose action the tracker changes. The job must start with these signals
/// ignored. `SIGPIPE` is not included: the Rust runtime ignores it before `main`, and resets it for a command.
pub fn ignored_at_start() -> Vec<i32> {
    [libc::SIGCHLD, libc::SIGXFSZ].into_iter().filter(|signal| is_ignored(*signal)).collect()
}

pub const fn share_one_heap() {}

/// Nothing is reserved: the limit of open files is high.
pub const fn reserve_descriptors() {}

/// Starts a command with the given signal mask and ignored signals.
pub fn spawn(command: &mut Command, mask: SignalSet, ignored: Vec<i32>) -> io::Result<Child> {
    before_exec(command, Some(mask), ignored);
    command.spawn()
}

/// Replaces this program by a command, with the given ignored signals. Returns only if this fails.
pub fn exec(command: &mut Command, ignored: Vec<i32>) -> io::Error {
    before_exec(command, None, ignored);
    command.exec()
}

fn before_exec(command: &mut Command, mask: Option<SignalSet>, ignored: Vec<i32>) {
    let before_exec = move || {
        super::unix::reset(libc::SIGXFSZ);
        for signal in &ignored {
            ignore(*signal);
        }
        mask.inspect(SignalSet::restore);
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls signal and pthread_sigmask only, which are async-signal-safe, and
    // does not allocate.
    unsafe { command.pre_exec(before_exec) };
}
