//! macOS' own calls: signals and ends of children by a kernel queue, and accounts of processes and of the machine.
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

/// What a process has spent, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessAccount {
    /// User time.
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
    /// User time of children that it waited for.
    pub waited_user_ns: u64,
    /// System time of children that it waited for.
    pub waited_system_ns: u64,
    /// Page-ins.
    pub page_ins: u64,
    /// Memory that is charged to it alone.
    pub footprint_kib: u64,
}

/// The account of a process; `None` where it is not there, or not ours to ask.
#[must_use]
pub fn account_of(pid: u32) -> Option<ProcessAccount> {
    let mut usage = MaybeUninit::<libc::rusage_info_v2>::zeroed();
    // SAFETY: the second version of the structure is asked for, and memory of that size given. The declared type of
    // the pointer is that of the header, which is a pointer to any of the versions.
    let failed =
        unsafe { libc::proc_pid_rusage(pid.cast_signed(), libc::RUSAGE_INFO_V2, usage.as_mut_ptr().cast()) }
            != 0;
    if failed {
        return None;
    }
    // SAFETY: filled by the call above; all zeroes is valid too.
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

/// Mach counts time in units of its own: one nanosecond on Intel, 125/3 on Apple's processors.
#[expect(deprecated, reason = "the crate that it moved to would be one more for this call alone")]
fn ns_of_mach_time() -> Option<impl Fn(u64) -> u64> {
    let mut base = libc::mach_timebase_info { numer: 0, denom: 0 };
    // SAFETY: fills one structure of ours.
    let failed = unsafe { libc::mach_timebase_info(&raw mut base) } != 0;
    (!failed && base.denom > 0).then_some(())?;
    Some(move |units: u64| {
        let ns = u128::from(units) * u128::from(base.numer) / u128::from(base.denom);
        u64::try_from(ns).unwrap_or(u64::MAX)
    })
}

/// Ticks of all CPUs since the machine was started: user, system, nice.
///
/// # Errors
/// What Mach says.
pub fn machine_ticks() -> io::Result<[u64; 3]> {
    let load: libc::host_cpu_load_info = host_statistics(libc::HOST_CPU_LOAD_INFO)?;
    // The order of `mach/machine.h`: user, system, idle, nice.
    let [user, system, _idle, nice] = load.cpu_ticks;
    Ok([user, system, nice].map(u64::from))
}

/// Pages of the machine's memory.
///
/// # Errors
/// What Mach says.
pub fn machine_pages() -> io::Result<libc::vm_statistics64> {
    host_statistics(libc::HOST_VM_INFO64)
}

/// One of the structures of `host_statistics64`, all of which are made of integers.
#[expect(deprecated, reason = "the crate that they moved to would be one more for these calls alone")]
fn host_statistics<T: Copy>(flavour: libc::host_flavor_t) -> io::Result<T> {
    let mut found = MaybeUninit::<T>::zeroed();
    let words = mem::size_of::<T>() / mem::size_of::<libc::integer_t>();
    let mut count = libc::mach_msg_type_number_t::try_from(words).map_err(io::Error::other)?;
    // SAFETY: the host's own port, and memory of as many words as are named.
    let result = unsafe {
        libc::host_statistics64(libc::mach_host_self(), flavour, found.as_mut_ptr().cast(), &raw mut count)
    };
    if result != 0 {
        return Err(io::Error::other(format!("host_statistics64 gave {result}")));
    }
    // SAFETY: zeroed above, and filled as far as this system knows the structure; integers have no invalid bits.
    Ok(unsafe { found.assume_init() })
}

/// All memory of the machine.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    let mut bytes = 0_u64;
    let mut size = mem::size_of::<u64>();
    // SAFETY: a name that ends with zero, and eight bytes of ours to fill.
    let failed = unsafe {
        libc::sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut bytes).cast(), &raw mut size, ptr::null_mut(), 0)
    } != 0;
    (!failed).then_some(bytes)
}

/// Our resident memory.
#[must_use]
pub fn own_rss_kib() -> Option<u64> {
    account_of(std::process::id()).map(|account| account.footprint_kib)
}

/// A job object, of which this system has none.
#[derive(Debug)]
pub enum JobObject {}

impl JobObject {
    /// None.
    ///
    /// # Errors
    /// Always.
    pub fn create() -> io::Result<Self> {
        Err(io::Error::other("this system counts no whole trees"))
    }

    /// Never called.
    #[must_use]
    pub const fn cpu_ns(&self) -> Option<u64> {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub const fn transferred_bytes(&self) -> Option<(u64, u64)> {
        match *self {}
    }
}

/// Where signals arrive, and word of a child's end.
#[derive(Debug)]
pub struct Queue(OwnedFd);

impl Queue {
    /// A queue that tells of these signals, which are blocked or ignored, and so do nothing else.
    ///
    /// # Errors
    /// What `kqueue(2)` says.
    pub fn of_signals(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: takes nothing.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so this descriptor is open and nobody else's.
        let queue = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        for signal in signals {
            let ident = usize::try_from(*signal).map_err(io::Error::other)?;
            queue.add(ident, libc::EVFILT_SIGNAL, 0)?;
        }
        Ok(queue)
    }

    /// Tells of this process's end too.
    ///
    /// # Errors
    /// Where it has ended already.
    pub fn watch(&self, pid: u32) -> io::Result<()> {
        self.add(pid as usize, libc::EVFILT_PROC, libc::NOTE_EXIT)
    }

    fn add(&self, ident: usize, filter: i16, fflags: u32) -> io::Result<()> {
        let change =
            libc::kevent { ident, filter, flags: libc::EV_ADD, fflags, data: 0, udata: ptr::null_mut() };
        // SAFETY: one change of ours is read, and no event asked for.
        let result = unsafe {
            libc::kevent(self.0.as_raw_fd(), &raw const change, 1, ptr::null_mut(), 0, ptr::null())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The signals that came within the time; empty where none did, or where a process has ended.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Vec<i32> {
        let mut events = [const { MaybeUninit::<libc::kevent>::zeroed() }; 16];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: room for sixteen events of ours, and a time of ours or none.
        let got =
            unsafe { libc::kevent(self.0.as_raw_fd(), ptr::null(), 0, events.as_mut_ptr().cast(), 16, time) };
        let got = usize::try_from(got).unwrap_or(0);
        // SAFETY: as many as the call has filled; all zeroes is valid too.
        let events = events.iter().take(got).map(|event| unsafe { event.assume_init() });
        let signals = events.filter(|event| event.filter == libc::EVFILT_SIGNAL);
        signals.filter_map(|event| i32::try_from(event.ident).ok()).collect()
    }
}

/// A child's last account, once it has ended; it is reaped then.
///
/// # Errors
/// What `wait4(2)` says.
pub fn reap(pid: u32) -> io::Result<Option<Ended>> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: fills one integer and one structure of ours, or nothing.
    let got = unsafe { libc::wait4(pid.cast_signed(), &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match got {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Ok(None),
        _ => {}
    }
    // SAFETY: filled by the call above; all zeroes is valid too.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Ok(Some(Ended {
        pid,
        how: ending_of_status(status),
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        // In bytes here.
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0) / 1024,
        major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
    }))
}

/// Whether a signal is ignored in this process.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action this only reads the old one into memory of ours.
    let failed = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0;
    // SAFETY: zeroed, and filled by the call above; all zeroes is valid too.
    !failed && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores a signal in this process.
pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN is a valid disposition for every signal; where it is not allowed the call fails.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Signals whose action we change for ourselves and that were ignored when we started. `SIGPIPE` is not among them:
/// before `main` the runtime ignores it for itself, and a command starts with its default action.
#[must_use]
pub fn ignored_at_start() -> Vec<i32> {
    [libc::SIGCHLD].into_iter().filter(|signal| is_ignored(*signal)).collect()
}

/// There is one heap.
pub const fn share_one_heap() {}

/// Starts a command with the signal mask that we were given, with `ignored` signals ignored.
///
/// # Errors
/// What the fork or the exec says; the command then does not run.
pub fn spawn(command: &mut Command, mask: SignalSet, ignored: Vec<i32>) -> io::Result<Child> {
    let before_exec = move || {
        for signal in &ignored {
            ignore(*signal);
        }
        mask.restore();
        Ok(())
    };
    // SAFETY: between fork and exec the closure only calls signal and pthread_sigmask, which are async-signal-safe, and
    // allocates nothing.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}
