//! The perf software event task-clock: a CPU time counter that children inherit (`perf_event_open(2)`).
#![expect(unsafe_code, reason = "perf_event_open has no safe wrapper here")]

use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::super::{ProcessCounter, above_stdio};

static OPEN: ProcessCounter = ProcessCounter::zero();

/// The threads and processes that a counter covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// A running thread, and all threads and processes that it starts from now on.
    Thread(u32),
    /// Children that the calling thread forks later, from their exec on; never the caller itself.
    FutureChildren,
}

/// An open task-clock counter with inheritance.
///
/// Its descriptor stays open even in in-process mode, where the host process may close the descriptor and reuse its
/// number for another file. So the kernel's id of the perf event is compared before every read and before the close.
#[derive(Debug)]
pub struct TaskClock {
    fd: ManuallyDrop<OwnedFd>,
    id: Option<u64>,
}

impl TaskClock {
    pub fn open(follow: Follow) -> io::Result<Self> {
        let fd = open_task_clock(follow)?;
        OPEN.change(|open| open.saturating_add(1));
        Ok(Self { id: perf_event_id(fd.as_fd()), fd: ManuallyDrop::new(fd) })
    }

    /// Number of open counters in this process.
    pub fn open_count() -> usize {
        usize::try_from(OPEN.get()).unwrap_or(usize::MAX)
    }

    /// CPU time so far; `None` if the descriptor now belongs to another file.
    pub fn read_ns(&self) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        let mut value = [0; 8];
        let length = rustix::io::read(&*self.fd, &mut value).ok()?;
        (length == value.len()).then(|| u64::from_ne_bytes(value))
    }

    fn is_open(&self) -> bool {
        self.id.is_some() && self.id == perf_event_id(self.fd.as_fd())
    }
}

impl Drop for TaskClock {
    fn drop(&mut self) {
        OPEN.change(|open| open.saturating_sub(1));
        if self.is_open() {
            // SAFETY: dropped only here and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// The kernel's unique id of a perf event; `None` for any other descriptor.
fn perf_event_id(fd: BorrowedFd<'_>) -> Option<u64> {
    /// `include/uapi/linux/perf_event.h`.
    const PERF_EVENT_IOC_ID: libc::Ioctl = libc::_IOR::<*mut u64>(0x24, 7);
    let mut id = 0_u64;
    // SAFETY: the kernel writes eight bytes to the address, or refuses.
    let failed = unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_ID, &raw mut id) } != 0;
    (!failed).then_some(id)
}

fn open_task_clock(follow: Follow) -> io::Result<OwnedFd> {
    /// `struct perf_event_attr` of `PERF_ATTR_SIZE_VER0` (64 bytes), which every kernel accepts.
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
    /// Required without privileges if `perf_event_paranoid` is 2. Task-clock ignores both and counts all CPU time.
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
    // SAFETY: `attr` has the size that it names, and the kernel only reads it.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, -1_i32, -1_i32, FD_CLOEXEC) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the descriptor is open and has no other owner.
    above_stdio(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_descriptor_number_is_neither_read_nor_closed() {
        let tid = crate::os::thread_id();
        let counter = match TaskClock::open(Follow::Thread(tid)) {
            Ok(counter) => counter,
            Err(error) => {
                // A system that forbids perf events, for example with seccomp, leaves nothing to test.
                let is_forbidden = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
                assert!(is_forbidden, "cannot open a perf event: {error}");
                return;
            }
        };
        assert!(counter.read_ns().is_some());
        let number = counter.fd.as_raw_fd();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        // SAFETY: both are open. The number now belongs to the file, as after a `dup2` of the host process.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        assert_eq!(counter.read_ns(), None);
        drop(counter);
        // SAFETY: takes integers by value and only queries.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "closed the descriptor of another owner");
        // SAFETY: open, by the line above, and owned by this test.
        unsafe { libc::close(number) };
    }
}
