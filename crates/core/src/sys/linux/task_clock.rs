//! A counter of CPU time that children inherit, by `perf_event_open(2)`.
#![expect(unsafe_code, reason = "perf_event_open has no safe wrapper here")]

use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::super::{Tally, above_stdio};

/// How many counters are open.
static OPEN: Tally = Tally::zero();

/// Whom a task-clock counter follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// A thread that runs already, and all that it starts from now on.
    Thread(u32),
    /// What the calling thread will fork, from the moment that execs; never the caller itself.
    FutureChildren,
}

/// The software counter task-clock with inheritance (`perf_event_open(2)`).
///
/// The one descriptor that must stay open in a host's process: the host may have closed it and given its number to
/// something of its own. So it is neither read nor closed without asking whether it still is what we opened.
#[derive(Debug)]
pub struct TaskClock {
    fd: ManuallyDrop<OwnedFd>,
    id: Option<u64>,
}

impl TaskClock {
    /// Starts counting.
    ///
    /// # Errors
    /// What the kernel says: `EACCES` where `perf_event_paranoid` or a container forbids it.
    pub fn open(follow: Follow) -> io::Result<Self> {
        let fd = open_task_clock(follow)?;
        OPEN.change(|open| open.saturating_add(1));
        Ok(Self { id: perf_event_id(fd.as_fd()), fd: ManuallyDrop::new(fd) })
    }

    /// How many are open in this process.
    #[must_use]
    pub fn open_count() -> usize {
        usize::try_from(OPEN.get()).unwrap_or(usize::MAX)
    }

    /// CPU time so far; `None` where the descriptor is not ours any more.
    #[must_use]
    pub fn read_ns(&self) -> Option<u64> {
        if !self.is_ours() {
            return None;
        }
        let mut value = [0; 8];
        let length = rustix::io::read(&*self.fd, &mut value).ok()?;
        (length == value.len()).then(|| u64::from_ne_bytes(value))
    }

    fn is_ours(&self) -> bool {
        self.id.is_some() && self.id == perf_event_id(self.fd.as_fd())
    }
}

impl Drop for TaskClock {
    fn drop(&mut self) {
        OPEN.change(|open| open.saturating_sub(1));
        if self.is_ours() {
            // SAFETY: dropped here and nowhere else, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// The kernel's own number of a counter, which no two have; `None` for a descriptor that is none.
fn perf_event_id(fd: BorrowedFd<'_>) -> Option<u64> {
    /// `PERF_EVENT_IOC_ID` of `include/uapi/linux/perf_event.h`.
    const PERF_EVENT_IOC_ID: libc::c_ulong = 0x8008_2407;
    let mut id = 0_u64;
    // SAFETY: the kernel writes eight bytes to the address that is given, or refuses.
    let failed = unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_ID, &raw mut id) } != 0;
    (!failed).then_some(id)
}

fn open_task_clock(follow: Follow) -> io::Result<OwnedFd> {
    /// `struct perf_event_attr` as of `PERF_ATTR_SIZE_VER0` (64 bytes), the size every kernel takes.
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup_events: u32,
        bp_type: u32,
        bp_addr: u64,
    }
    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: u64 = 1;
    const DISABLED: u64 = 1;
    const INHERIT: u64 = 1 << 1;
    /// Needed for a plain user at paranoid 2; task-clock ignores both and counts all the time.
    const EXCLUDE_KERNEL_AND_HV: u64 = 1 << 5 | 1 << 6;
    const ENABLE_ON_EXEC: u64 = 1 << 12;
    const FD_CLOEXEC: libc::c_ulong = 1 << 3;

    let (tid, start) = match follow {
        Follow::Thread(tid) => (tid.cast_signed(), 0),
        Follow::FutureChildren => (0, DISABLED | ENABLE_ON_EXEC),
    };
    let attr = Attr {
        kind: SOFTWARE,
        size: 64,
        config: TASK_CLOCK,
        flags: INHERIT | EXCLUDE_KERNEL_AND_HV | start,
        ..Attr::default()
    };
    debug_assert_eq!(mem::size_of::<Attr>(), 64);
    // SAFETY: `attr` is a live struct of the size it names; the kernel only reads it.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, -1_i32, -1_i32, FD_CLOEXEC) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this descriptor is open and nobody else's.
    above_stdio(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_whose_number_is_somebody_elses_is_neither_read_nor_closed() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        // Where the kernel gives no counter there is nothing to confuse.
        let Ok(counter) = TaskClock::open(Follow::Thread(tid)) else { return };
        assert!(counter.read_ns().is_some());
        let number = counter.fd.as_raw_fd();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        // SAFETY: both are open; the number becomes the file's, as a host's `dup2` would have it.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        assert_eq!(counter.read_ns(), None);
        drop(counter);
        // SAFETY: only asks, and closes what the line above opened.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "closed though it is not ours");
        // SAFETY: still open, by the line above, and ours to close.
        unsafe { libc::close(number) };
    }
}
