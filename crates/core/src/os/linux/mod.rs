//! System calls of Linux: CPU clocks, ended children before they are reaped, signalfd, eventfd and pidfd.
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

/// CPU time of all threads of a process or zombie, including ended threads; `None` if the process does not exist.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    /// Scheduler time of a whole process, `include/linux/posix-timers.h`.
    const CPUCLOCK_SCHED: i32 = 2;
    clock_ns((!pid.cast_signed() << 3) | CPUCLOCK_SCHED)
}

/// Id of the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Time since boot in clock ticks, the unit of start times in `/proc/[pid]/stat`.
pub fn ticks_since_boot() -> Option<u64> {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    let ticks = u64::try_from(since.tv_nsec).ok()?.checked_mul(ticks_per_s)? / 1_000_000_000;
    u64::try_from(since.tv_sec).ok()?.checked_mul(ticks_per_s)?.checked_add(ticks)
}

/// Lowers the high-water mark of this process to its resident size (`proc_pid_clear_refs(5)`). Not all kernels can.
pub fn reset_peak_rss() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Largest peak resident size of any reaped child or descendant (`ru_maxrss` of `getrusage(2)`).
pub fn waited_peak_rss_kib() -> Option<u64> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills one rusage, or fails.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded.
    u64::try_from(unsafe { usage.assume_init() }.ru_maxrss).ok()
}

/// A child that has ended; `None` if no child has ended. It is not reaped, so that its `/proc` files stay readable.
pub fn find_ended_child() -> io::Result<Option<Ended>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // The waitid of the C library lacks the fifth argument of the system call.
    // SAFETY: the kernel writes one siginfo_t and one rusage, or nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, info.as_mut_ptr(), options, usage.as_mut_ptr())
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    // SAFETY: both are zeroed above, which is a valid value, and the kernel fills them if a child was found.
    let (info, usage) = unsafe { (info.assume_init(), usage.assume_init()) };
    // SAFETY: waitid fills the SIGCHLD part of the union. This part is zero if no child has ended.
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

/// Whether a file is on a file system that one machine at a time uses: its locks are known here, and whoever wrote the file
/// before the last boot has ended. Network file systems, FUSE and unknown ones are not.
pub fn is_on_local_disk(file: &std::fs::File) -> bool {
    /// Magic numbers of `statfs(2)`: ext2 to ext4, XFS, Btrfs, tmpfs, overlay, F2FS, ZFS, bcachefs, ramfs.
    const LOCAL: [u32; 9] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
        0x8584_58f6,
    ];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the type has 32 bits, in a field whose width and sign depend on the architecture"
    )]
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u32)))
}

/// Whether two processes share one address space (`kcmp(2)`); false if the kernel refuses the question.
pub fn share_memory(pid: u32, other_pid: u32) -> bool {
    /// `include/uapi/linux/kcmp.h`.
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: takes five integers and writes no memory.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, KCMP_VM, 0, 0) == 0 }
}

/// Soft limits of a process (`prlimit(2)`). A limit is `None` without a limit or without permission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    pub open_files: Option<u64>,
    pub processes: Option<u64>,
}

impl ProcessLimits {
    pub fn of(pid: u32) -> Self {
        let read = |resource| {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a null pointer as the new limit changes nothing, and the kernel writes one `rlimit`.
            let done =
                unsafe { libc::prlimit(pid.cast_signed(), resource, std::ptr::null(), &raw mut limit) } == 0;
            (done && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
        };
        Self { open_files: read(libc::RLIMIT_NOFILE), processes: read(libc::RLIMIT_NPROC) }
    }
}

impl SignalSet {
    /// A signalfd, which is readable when one of these signals is pending. The signals must be blocked.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: a valid set; -1 requests a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so the descriptor is open and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// A signal read from a signalfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    pub signal: i32,
    /// Pid of the sender; `None` for the kernel. 0 if the sender is in another PID namespace.
    pub sender: Option<u32>,
}

/// The next pending signal; `None` if no signal is pending.
pub fn next_signal(fd: BorrowedFd<'_>) -> Option<ReceivedSignal> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = mem::size_of::<libc::signalfd_siginfo>();
    // SAFETY: read(2) writes at most `size` bytes to memory of that size.
    let got = unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if usize::try_from(got).ok()? != size {
        return None;
    }
    // SAFETY: all bytes are written, and every bit pattern is valid.
    let info = unsafe { info.assume_init() };
    // Codes above 0 are the kernel's.
    let sender = (info.ssi_code <= 0).then_some(info.ssi_pid);
    Some(ReceivedSignal { signal: info.ssi_signo.cast_signed(), sender })
}

/// Every signal that can be caught, but for two that the C library uses itself.
pub fn catchable_signals() -> impl Iterator<Item = i32> {
    (1..=libc::SIGRTMAX()).filter(|signal| !matches!(*signal, libc::SIGKILL | libc::SIGSTOP | 32 | 33))
}

/// An `eventfd(2)`, to wake a thread that polls it together with other descriptors.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<Option<Self>> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Some(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes the waiting thread.
    pub fn notify(&self) {
        // The write fails if the counter is full. Then the eventfd is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the next wait block again.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // The read does not block. It fails if the counter is 0 already.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A pidfd, to wait for the end of a process that is not a child.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// `None` if the process does not exist, or before Linux 5.3.
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

/// An inotify descriptor, to wait until a file is written to.
#[derive(Debug)]
pub struct FileWatch(OwnedFd);

impl FileWatch {
    /// `None` if the file does not exist, or the user has too many inotify descriptors.
    pub fn open(path: &std::path::Path) -> Option<Self> {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        add_watch(&inotify, path, WatchFlags::MODIFY).ok()?;
        Some(Self(inotify))
    }

    /// Makes the next wait block again.
    fn clear(&self) {
        let mut events = [0; 4096];
        // The read does not block.
        while rustix::io::read(&self.0, &mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}

/// Waits for a notification, the end of the process, a write to the file or the timeout; returns whether the process has
/// ended.
pub fn wait_for_eventfd(
    eventfd: &EventFd,
    watched: Option<&Watch>,
    file: Option<&FileWatch>,
    timeout: Duration,
) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let mut fds = vec![PollFd::new(eventfd, PollFlags::IN)];
    fds.extend(file.map(|file| PollFd::new(&file.0, PollFlags::IN)));
    fds.extend(watched.map(|watched| PollFd::new(watched, PollFlags::IN)));
    // A signal may end the wait early: the caller checks the clock.
    let _ = poll(&mut fds, Some(&timeout));
    let has_ended = watched.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty());
    if let Some(file) = file {
        file.clear();
    }
    has_ended
}

/// Limits malloc to one arena: an arena for each thread would be the largest part of the tracker's memory.
pub fn share_one_heap() {
    // SAFETY: takes integers by value and refuses an unknown setting.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Closes all inherited descriptors except the standard streams. The program must not have opened a descriptor yet.
pub fn close_inherited() {
    // SAFETY: takes integers by value. By the rule above, no open descriptor has an owner in this program.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // Before Linux 5.9. The numbers are collected first: the descriptor of the folder is in the list too.
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: as above; an invalid number is refused.
        unsafe { libc::close(number) };
    }
}

/// Gives the calling thread, and threads that it starts, a descriptor table of its own. The table has only the standard
/// streams, which are `/dev/null`. Returns false before Linux 5.9: the thread then keeps the table of the process.
pub fn leave_descriptors() -> bool {
    use rustix::fs::{Mode, OFlags};
    // SAFETY: takes integers by value. The emptied table is a new one, so no descriptor of another thread is closed.
    if unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) } != 0 {
        return false;
    }
    for _ in 0..3 {
        // Otherwise a panic message would go to a file that the thread opens later, and that gets number 2.
        if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            mem::forget(null);
        }
    }
    true
}

/// `struct sigaction` of the kernel. The C library uses signals 32 and 33 itself and refuses them in its own calls, but
/// the parent process may have ignored them.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: [u64; 2],
}

const SIGNAL_SET_BYTES: usize = 8;

pub fn is_ignored(signal: i32) -> bool {
    let mut action = Action::default();
    let none = std::ptr::null::<Action>();
    // SAFETY: without a new action, the call only writes the old action, to a struct with the kernel's layout.
    let failed =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, none, &raw mut action, SIGNAL_SET_BYTES) }
            != 0;
    !failed && action.handler == libc::SIG_IGN
}

pub fn ignore(signal: i32) {
    let action = Action { handler: libc::SIG_IGN, ..Action::default() };
    let none = std::ptr::null_mut::<Action>();
    // SAFETY: SIG_IGN is a valid disposition; the call fails for signals that cannot be ignored.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, none, SIGNAL_SET_BYTES) };
}

/// Ignored signals whose action the tracker or the C library (signals 32 and 33) changes later. Call this function before
/// the change; the job starts with these signals ignored.
pub fn ignored_at_start() -> Vec<i32> {
    [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGCHLD, 32, 33]
        .into_iter()
        .filter(|signal| is_ignored(*signal))
        .collect()
}

/// Runs `write` so that a write past the limit of file sizes (`RLIMIT_FSIZE`) returns an error, as on a full disk, and
/// does not end the host process. The kernel sends SIGXFSZ to the thread that writes; there it is blocked, and discarded
/// after the write.
pub fn without_size_signal<T>(write: impl FnOnce() -> T) -> T {
    let signal = SignalSet::of(&[libc::SIGXFSZ]);
    let mut pending = SignalSet::of(&[]);
    // SAFETY: the call writes one set.
    unsafe { libc::sigpending(&raw mut pending.0) };
    // SAFETY: a valid set and a valid signal.
    let is_of_the_host = unsafe { libc::sigismember(&raw const pending.0, libc::SIGXFSZ) } == 1;
    let mask = signal.block();
    let written = write();
    if !is_of_the_host {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid set and time; no details of the signal are written.
        unsafe { libc::sigtimedwait(&raw const signal.0, std::ptr::null_mut(), &raw const at_once) };
    }
    mask.restore();
    written
}

/// How a process that is not a child ended, from its pidfd; `None` until the process is reaped, and before Linux 6.15.
pub fn ending_of(pidfd: BorrowedFd<'_>) -> Option<Ending> {
    /// The first version of `struct pidfd_info`, `include/uapi/linux/pidfd.h`.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const WITH_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: libc::Ioctl = libc::_IOWR::<Info>(0xff, 11);
    debug_assert_eq!(mem::size_of::<Info>(), 64);
    let mut info = Info { mask: WITH_EXIT, ..Info::default() };
    // SAFETY: the request encodes the size of 64 bytes, which the kernel reads and fills.
    let failed = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) } != 0;
    (!failed && info.mask & WITH_EXIT != 0).then(|| ending_of_status(info.exit_code))
}

/// Always `None`: on Linux, the resident memory of this process is read from `/proc/self/statm` instead.
pub const fn own_rss_kib() -> Option<u64> {
    None
}

/// Descriptors that are kept free for [`spawn`] until this is dropped, if the limit of open files is low.
pub fn reserve_descriptors() -> Vec<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    (0..4).map_while(|_| rustix::fs::open("/", flags, Mode::empty()).ok()).collect()
}

/// Starts a command with the given signal mask and ignored signals, in the cgroup of `cgroup_procs`.
pub fn spawn(
    command: &mut Command,
    mask: SignalSet,
    ignored: Vec<i32>,
    cgroup_procs: Option<OwnedFd>,
) -> io::Result<Child> {
    before_exec(command, Some(mask), ignored, cgroup_procs);
    command.spawn()
}

/// Replaces this program by a command, with the given ignored signals. Returns only if this fails.
pub fn exec(command: &mut Command, ignored: Vec<i32>) -> io::Error {
    before_exec(command, None, ignored, None);
    command.exec()
}

fn before_exec(
    command: &mut Command,
    mask: Option<SignalSet>,
    ignored: Vec<i32>,
    cgroup_procs: Option<OwnedFd>,
) {
    let before_exec = move || {
        if let Some(procs) = &cgroup_procs {
            // SAFETY: an open descriptor and one byte. "0" moves this process; after an error, only the counter is
            // missing.
            unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        }
        // The standard library resets SIGPIPE itself.
        super::unix::reset(libc::SIGXFSZ);
        for signal in &ignored {
            ignore(*signal);
        }
        mask.inspect(SignalSet::restore);
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls write, signal, rt_sigaction and pthread_sigmask only, which are
    // async-signal-safe, and does not allocate.
    unsafe { command.pre_exec(before_exec) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_clock_advances_and_is_none_without_a_process() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let mut x = 1_u64;
        for i in 0..5_000_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        assert!(process_cpu_ns(std::process::id()).unwrap() > before);
        assert_eq!(process_cpu_ns(u32::MAX >> 4), None);
    }
}
