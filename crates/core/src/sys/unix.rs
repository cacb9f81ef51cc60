//! Calls that Linux and macOS share.
#![expect(
    unsafe_code,
    reason = "clocks by number, signal masks, localtime_r and fork have no safe wrapper here"
)]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};

use super::Ending;

/// Now: nanoseconds since 1970, and by the clock that never goes back.
#[must_use]
pub fn now_ns() -> (u64, u64) {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |clock| {
        let time = clock_gettime(clock);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    (ns(ClockId::Realtime), ns(ClockId::Monotonic))
}

/// The same, but not in the place of a standard stream: a host may have closed those, and write to them all the same.
///
/// # Errors
/// Where there is no other descriptor left.
pub fn above_stdio<F: From<OwnedFd> + Into<OwnedFd>>(opened: F) -> io::Result<F> {
    let fd: OwnedFd = opened.into();
    let is_above = fd.as_raw_fd() > libc::STDERR_FILENO;
    let fd = if is_above { fd } else { rustix::io::fcntl_dupfd_cloexec(&fd, libc::STDERR_FILENO + 1)? };
    Ok(fd.into())
}

/// CPU time in nanoseconds of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time in nanoseconds of this process.
#[must_use]
pub fn own_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

pub(super) fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel writes one timespec into memory of that size.
    let failed = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0;
    if failed {
        return None;
    }
    // SAFETY: the call succeeded, so it has filled the timespec.
    let time = unsafe { time.assume_init() };
    u64::try_from(time.tv_sec)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(u64::try_from(time.tv_nsec).ok()?)
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(pub(super) libc::sigset_t);

impl SignalSet {
    /// The set of these signals.
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset fills the set it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: filled by the line above.
        let mut set = unsafe { set.assume_init() };
        for signal in signals {
            // SAFETY: a valid set and an integer; a number that is no signal is refused, not undefined.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        Self(set)
    }

    /// All signals there are.
    #[must_use]
    pub fn every() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset fills the set it is given.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        // SAFETY: filled by the line above.
        Self(unsafe { set.assume_init() })
    }

    /// Makes this the mask of the calling thread again.
    pub fn restore(&self) {
        // SAFETY: a valid set; the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Lets these signals through to the calling thread.
    pub fn unblock(&self) {
        // SAFETY: a valid set; the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Blocks these signals for the calling thread (and threads it starts); gives back the mask before.
    #[must_use]
    pub fn block(&self) -> Self {
        let mut before = Self::of(&[]);
        // SAFETY: two valid sets; the old mask is written to the second.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, &raw mut before.0) };
        before
    }
}

/// Does what no signal interrupts. Threads that it starts take none: a host's signals are for the host's own threads,
/// whose sleep they interrupt.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mask = SignalSet::every().block();
    let done = work();
    mask.restore();
    done
}

/// The time zone of this machine at a moment: seconds east of Greenwich, and the zone's abbreviation.
#[must_use]
pub fn local_zone(unix_s: i64) -> Option<(i32, String)> {
    let mut time = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: reads one integer of ours and fills one structure of ours; reads `TZ`, which nothing of ours changes.
    let found = unsafe { libc::localtime_r(&raw const unix_s, time.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: filled above; all zeroes is a valid `tm` too.
    let time = unsafe { time.assume_init() };
    let abbreviation = if time.tm_zone.is_null() {
        String::new()
    } else {
        // SAFETY: the C library keeps the abbreviations of zones for as long as the process lives.
        unsafe { std::ffi::CStr::from_ptr(time.tm_zone) }.to_string_lossy().into_owned()
    };
    Some((i32::try_from(time.tm_gmtoff).ok()?, abbreviation))
}

/// Gives a signal its default action in this process.
pub fn reset(signal: i32) {
    // SAFETY: SIG_DFL is a valid disposition for every signal; where it is not allowed the call fails.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// How a process ended, by its status as `waitpid(2)` gives it.
#[must_use]
pub fn ending_of_status(status: i32) -> Ending {
    match status & 0x7f {
        0 => Ending::Code((status >> 8) & 0xff),
        signal => Ending::Signal(signal),
    }
}

/// Leaves whoever started us: a session of our own, and no child of anybody's who could wait for us.
///
/// # Errors
/// What `fork(2)` says; we then still are who we were.
pub fn leave_parent() -> io::Result<()> {
    // SAFETY: called by a program with one thread, so that the copy is as whole as the original.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // A group leader may not start a session; the child of a fork never is one.
            let _ = rustix::process::setsid();
            Ok(())
        }
        // SAFETY: ends this process at once; the copy goes on.
        _ => unsafe { libc::_exit(0) },
    }
}

/// Another descriptor of the same open file, above the standard ones and closed on exec.
///
/// # Errors
/// What the kernel says: there may be no such descriptor.
pub fn duplicate(descriptor: i32) -> io::Result<File> {
    // SAFETY: takes integers by value; a number that is no descriptor is refused.
    let fd = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this descriptor is open and nobody else's.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// A file that only its owner may read.
pub fn for_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// A folder that only its owner may enter.
#[must_use]
pub fn folder_for_owner() -> DirBuilder {
    let mut folder = DirBuilder::new();
    folder.mode(0o700);
    folder
}

/// A file that is opened under its own name, not where a link leads.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(libc::O_NOFOLLOW)
}

/// Whether it is a FIFO.
#[must_use]
pub fn is_fifo(found: &Metadata) -> bool {
    found.file_type().is_fifo()
}

/// Whether a file is ours, or the administrator's.
#[must_use]
pub fn is_own_file(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0
}

/// Whether a file that is open has no name any more.
#[must_use]
pub fn is_removed(found: &Metadata) -> bool {
    found.nlink() == 0
}

/// As the system says that links lead in a circle.
#[must_use]
pub fn too_many_links() -> io::Error {
    rustix::io::Errno::LOOP.into()
}

/// A stream that was closed when we started must not become the number of a file that we open, where text meant for a
/// terminal would then go. Close-on-exec: the job finds it closed, as it would have without us.
pub fn fill_standard_streams() {
    use rustix::fs::{Mode, OFlags};
    loop {
        let Ok(fd) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            return;
        };
        if fd.as_raw_fd() > 2 {
            return;
        }
        std::mem::forget(fd);
    }
}

/// Who started us.
#[must_use]
pub fn parent_id() -> Option<u32> {
    Some(std::os::unix::process::parent_id())
}

/// Bytes in a page of memory.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// From here on a reader that goes away is an error to be handled, not our end.
pub fn ignore_broken_pipes() {
    super::ignore(libc::SIGPIPE);
}

/// The name of this machine.
#[must_use]
pub fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

/// Whether a stream takes a few bytes within this time; one that a reader has left alone does not.
#[must_use]
pub fn takes_text_within(stream: impl std::os::fd::AsFd, time: std::time::Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    let mut fds = [PollFd::new(&stream, PollFlags::OUT)];
    // An error of the stream is for the write itself to tell.
    poll(&mut fds, Some(&timeout)) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_code_or_a_signal() {
        assert_eq!(ending_of_status(0), Ending::Code(0));
        assert_eq!(ending_of_status(3 << 8), Ending::Code(3));
        assert_eq!(ending_of_status(9), Ending::Signal(9));
        assert_eq!(ending_of_status(0x80 + 11), Ending::Signal(11), "with a core dump");
    }
}
