//! System calls that Linux and macOS share.
#![expect(unsafe_code, reason = "clocks by number, signal masks and fork have no safe wrapper here")]

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use super::Ending;

/// Nanoseconds of the wall clock (since 1970) and of the monotonic clock.
pub fn now_ns() -> (u64, u64) {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |clock| {
        let time = clock_gettime(clock);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    (ns(ClockId::Realtime), ns(ClockId::Monotonic))
}

/// Moves a descriptor to a number above 2: a host process with closed standard streams may still write to 0, 1 and 2.
pub fn above_stdio<F: From<OwnedFd> + Into<OwnedFd>>(opened: F) -> io::Result<F> {
    let fd: OwnedFd = opened.into();
    let is_above = fd.as_raw_fd() > libc::STDERR_FILENO;
    let fd = if is_above { fd } else { rustix::io::fcntl_dupfd_cloexec(&fd, libc::STDERR_FILENO + 1)? };
    Ok(fd.into())
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process.
pub fn own_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

pub(super) fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel writes one timespec, or fails.
    let failed = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0;
    if failed {
        return None;
    }
    // SAFETY: the call succeeded, so the timespec is filled.
    let time = unsafe { time.assume_init() };
    u64::try_from(time.tv_sec)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(u64::try_from(time.tv_nsec).ok()?)
}

#[derive(Clone, Copy)]
pub struct SignalSet(pub(super) libc::sigset_t);

impl SignalSet {
    pub fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised by the line above.
        let mut set = unsafe { set.assume_init() };
        for signal in signals {
            // SAFETY: a valid set; an invalid signal number is refused.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        Self(set)
    }

    pub fn every() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the set.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        // SAFETY: initialised by the line above.
        Self(unsafe { set.assume_init() })
    }

    /// Makes this set the signal mask of the calling thread.
    pub fn restore(&self) {
        // SAFETY: a valid set; the old mask is not written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Unblocks these signals in the calling thread.
    pub fn unblock(&self) {
        // SAFETY: a valid set; the old mask is not written.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Blocks these signals in the calling thread and in threads that it starts later; returns the old mask.
    pub fn block(&self) -> Self {
        let mut before = Self::of(&[]);
        // SAFETY: two valid sets; the call writes the old mask to the second.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, &raw mut before.0) };
        before
    }
}

/// Runs `work` with all signals blocked. Threads that start in `work` never receive a signal, so that signals of the
/// host process interrupt only threads of the host program.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mask = SignalSet::every().block();
    let done = work();
    mask.restore();
    done
}

/// Restores the default action of a signal.
pub fn reset(signal: i32) {
    // SAFETY: SIG_DFL is a valid disposition; the call fails for an invalid signal.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Sends a signal to a process. Without permission, or if the process has ended, this has no effect.
pub fn send_signal(pid: u32, signal: i32) {
    // Pid 0 would be the whole process group.
    if pid != 0 {
        // SAFETY: takes integers by value; an invalid signal is refused.
        unsafe { libc::kill(pid.cast_signed(), signal) };
    }
}

/// Ends this process by a signal, without a core file. Returns only if the signal does not end a process.
pub fn end_by_signal(signal: i32) {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads one rlimit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) };
    reset(signal);
    SignalSet::of(&[signal]).unblock();
    send_signal(std::process::id(), signal);
}

/// Decodes a status of `waitpid(2)`.
pub fn ending_of_status(status: i32) -> Ending {
    match status & 0x7f {
        0 => Ending::Code((status >> 8) & 0xff),
        signal => Ending::Signal(signal),
    }
}

/// Detaches from the parent process: forks, exits in the original process, and starts a new session in the child.
pub fn leave_parent() -> io::Result<()> {
    // SAFETY: the calling process has one thread, so the child may use locks and the allocator.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // This cannot fail: a forked child is never a process group leader.
            let _ = rustix::process::setsid();
            Ok(())
        }
        // SAFETY: ends the original process at once.
        _ => unsafe { libc::_exit(0) },
    }
}

/// Duplicates a descriptor. The new number is above 2, and the duplicate is closed on exec.
pub fn duplicate(descriptor: i32) -> io::Result<File> {
    // SAFETY: takes integers by value; an invalid descriptor is refused.
    let fd = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the descriptor is open and has no other owner.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Makes a new file readable and writable only by its owner (mode 0600).
pub fn for_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// A builder of folders that only their owner can use (mode 0700).
pub fn folder_for_owner() -> DirBuilder {
    let mut folder = DirBuilder::new();
    folder.mode(0o700);
    folder
}

/// Makes `open` fail if the path is a symbolic link.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(libc::O_NOFOLLOW)
}

/// Lets those read a file who can read its folder, whatever the umask is.
pub fn share_with_folder(file: &File, folder: &Metadata) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o600 | folder.mode() & 0o444))
}

pub fn is_fifo(found: &Metadata) -> bool {
    found.file_type().is_fifo()
}

/// Opens a regular file for reading. Opening a FIFO or a device would block or have side effects: it is an error.
pub fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?)
}

/// Opens a regular file for reading and writing, without following a link.
pub fn open_regular_to_lock(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    check_regular(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?)
}

/// Opens a regular file to append to it, for its owner only if it is created.
pub fn open_regular_to_append(path: &Path, creates: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    check_regular(options.append(true).create(creates).mode(0o600).custom_flags(flags).open(path)?)
}

fn check_regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Takes the lock of an open file (`flock(2)`), which lasts until all duplicates of the descriptor are closed. False if
/// another process has the lock; an error if the file system has no locks.
pub fn try_lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives up the lock of a file.
pub fn unlock(file: &File) {
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
}

pub fn have_same_owner(one: &Metadata, other: &Metadata) -> bool {
    one.uid() == other.uid()
}

/// Whether the current user owns a file.
pub fn is_mine(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

/// Whether the current user or root owns a file.
pub fn is_own_file(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0
}

/// Whether an open file has been deleted.
pub fn is_removed(found: &Metadata) -> bool {
    found.nlink() == 0
}

/// Opens `/dev/null` for every closed standard stream. Otherwise a file of the tracker would get the number of the
/// stream, and messages would go to that file. Close-on-exec keeps the stream closed for the job.
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

/// Process id of the parent.
pub fn parent_id() -> Option<u32> {
    Some(std::os::unix::process::parent_id())
}

pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Ignores `SIGPIPE` and `SIGXFSZ`, so that a write to a closed pipe or past the limit of file sizes returns an error and
/// does not end the process.
pub fn ignore_signals_of_writes() {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_IGN is a valid disposition for both.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

pub fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

/// Name of the user of this process in `/etc/passwd`, else its number. Directory services may take long to answer, and are
/// not asked.
pub fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    let named = String::from_utf8_lossy(&users).lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid {uid}"))
}

/// Whether a stream accepts a few bytes within `time`; a full pipe without an active reader does not.
pub fn takes_text_within(stream: impl std::os::fd::AsFd, time: std::time::Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    let mut fds = [PollFd::new(&stream, PollFlags::OUT)];
    // A stream with an error counts as ready: the write returns the error.
    poll(&mut fds, Some(&timeout)) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_is_a_code_or_a_signal() {
        assert_eq!(ending_of_status(0), Ending::Code(0));
        assert_eq!(ending_of_status(3 << 8), Ending::Code(3));
        assert_eq!(ending_of_status(9), Ending::Signal(9));
        assert_eq!(ending_of_status(0x80 + 11), Ending::Signal(11), "with a core dump");
    }
}
