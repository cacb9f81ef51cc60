//! Linux's door: descriptors that stay open, the list of processes, and a recorded tree in place of a host.
//!
//! A guest in somebody else's process keeps no descriptor: its host may close any, or give its number to a file of
//! its own, from which we would then read.
//!
//! A recorded tree holds `proc/…` and `sys/…` as plain files, and `statvfs` with lines of
//! `<mount point> <block size> <blocks> <free> <available>` for what is a system call on a host.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, RawDir};

use crate::error::SourceError;
use crate::sys;

/// Sizes of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// Not taken by files, reserved blocks included.
    pub unused_bytes: u64,
    /// What a plain user can still write.
    pub available_bytes: u64,
}

/// One reading as it was made, for the bench that measures us against the bare readings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// open, read, close.
    Read(String),
    /// pread of a descriptor that is kept.
    Pread(String),
    /// Seek to the start of a kept directory, and list it.
    List(String),
    /// fstat of a kept directory.
    Links(String),
    /// statvfs of a mount point.
    Statvfs(String),
    /// A poll for changes of a kept file.
    Poll(String),
    /// `clock_gettime` of a process's CPU clock.
    CpuClock(u32),
    /// `clock_gettime` of one of our own clocks.
    OwnClock,
    /// read of an inherited counter.
    Counter,
}

/// Where the files are: this host, or a recorded tree.
#[derive(Debug)]
pub struct Root {
    /// `None` for the host itself.
    tree: Option<PathBuf>,
    /// `None` for a guest.
    doors: Option<Doors>,
    /// Whether a number in `/proc` is another process than ours of that number.
    is_foreign: bool,
    logging: AtomicBool,
    log: Mutex<Vec<Access>>,
}

/// Folders that stay open.
#[derive(Debug)]
struct Doors {
    base: OwnedFd,
    proc: OwnedFd,
}

/// A file that is read anew from its start at each tick, and stays open where we may keep descriptors.
#[derive(Debug)]
pub struct Kept {
    fd: Option<OwnedFd>,
    path: String,
}

/// How a kernel file comes out of `read(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The kernel makes the whole text at once: one call gets it all.
    Whole,
    /// The kernel makes it record by record and hands out a page or less at a time.
    Records,
    /// The same with records of any length: only an empty read is the end.
    LongRecords,
}

/// A short read of a file of records is its end when less than this came: no record is that long.
const HALF_PAGE: usize = 2048;

impl Root {
    /// This host.
    ///
    /// # Errors
    /// When there is no `/proc`.
    pub fn host() -> Result<Self, SourceError> {
        Self::open_at(None, Path::new("/"))
    }

    /// This host, seen from inside of somebody else's process: no descriptor stays open.
    ///
    /// # Errors
    /// When there is no `/proc`.
    pub fn host_as_guest() -> Result<Self, SourceError> {
        let root = Self {
            tree: None,
            doors: None,
            is_foreign: is_foreign(),
            logging: AtomicBool::new(false),
            log: Mutex::new(Vec::new()),
        };
        root.open_folder("/proc")?;
        Ok(root)
    }

    /// A recorded tree.
    ///
    /// # Errors
    /// When it is no folder, or has no `proc` in it.
    pub fn recorded(tree: &Path) -> Result<Self, SourceError> {
        Self::open_at(Some(tree.to_owned()), tree)
    }

    fn open_at(tree: Option<PathBuf>, base: &Path) -> Result<Self, SourceError> {
        let open = |path: &Path, flags: OFlags| {
            rustix::fs::open(path, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| SourceError::from_errno(&path.to_string_lossy(), errno))
        };
        Ok(Self {
            doors: Some(Doors {
                base: open(base, OFlags::PATH)?,
                proc: open(&base.join("proc"), OFlags::RDONLY)?,
            }),
            is_foreign: tree.is_none() && is_foreign(),
            tree,
            logging: AtomicBool::new(false),
            log: Mutex::new(Vec::new()),
        })
    }

    /// Whether the processes in `/proc` are those that we and the kernel mean by their numbers.
    ///
    /// # Errors
    /// [`SourceError::Foreign`] where they are not.
    pub const fn check_processes(&self) -> Result<(), SourceError> {
        if self.is_foreign { Err(SourceError::Foreign) } else { Ok(()) }
    }

    /// Whether this is a recorded tree, where live interfaces (clocks, counters) do not exist.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.tree.is_some()
    }

    /// From now on, writes down every access; gives what was written so far.
    pub fn log_accesses(&self, on: bool) -> Vec<Access> {
        self.logging.store(on, Ordering::Relaxed);
        self.log.lock().map(|mut log| std::mem::take(&mut *log)).unwrap_or_default()
    }

    pub(crate) fn note(&self, access: impl FnOnce() -> Access) {
        if self.logging.load(Ordering::Relaxed)
            && let Ok(mut log) = self.log.lock()
        {
            log.push(access());
        }
    }

    fn open(&self, path: &str) -> Result<OwnedFd, SourceError> {
        const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
        let below_proc = path.strip_prefix("/proc/");
        if below_proc.is_some_and(|below| below.starts_with(|first: char| first.is_ascii_digit())) {
            self.check_processes()?;
        }
        let opened = match (&self.doors, below_proc) {
            (Some(doors), Some(below)) => rustix::fs::openat(&doors.proc, below, FLAGS, Mode::empty()),
            (Some(doors), None) => {
                rustix::fs::openat(&doors.base, path.trim_start_matches('/'), FLAGS, Mode::empty())
            }
            (None, _) => rustix::fs::open(path, FLAGS, Mode::empty()),
        };
        opened.map_err(|errno| SourceError::from_errno(path, errno))
    }

    fn open_folder(&self, path: &str) -> Result<OwnedFd, SourceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(self.on_disk(path), flags, Mode::empty())
            .map_err(|errno| SourceError::from_errno(path, errno))
    }

    /// Opens, reads whole and closes a file. `buffer` is emptied first and only ever grows.
    ///
    /// # Errors
    /// [`SourceError`] by what the kernel says.
    pub fn read<'b>(&self, path: &str, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], SourceError> {
        self.note(|| Access::Read(path.to_owned()));
        let fd = self.open(path)?;
        read_whole(buffer, Shape::Records, |space, _| rustix::io::read(&fd, space))
            .map_err(|errno| SourceError::from_errno(path, errno))
    }

    /// Opens a file to be read again and again.
    ///
    /// # Errors
    /// [`SourceError`] by what the kernel says.
    pub fn keep(&self, path: &str) -> Result<Kept, SourceError> {
        let fd = self.open(path)?;
        Ok(Kept { fd: self.doors.is_some().then_some(fd), path: path.to_owned() })
    }

    /// The text of a kept file as it is now.
    ///
    /// # Errors
    /// [`SourceError`] by what the kernel says.
    pub fn reread<'b>(
        &self,
        kept: &Kept,
        shape: Shape,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], SourceError> {
        let opened;
        let fd = if let Some(fd) = &kept.fd {
            self.note(|| Access::Pread(kept.path.clone()));
            fd
        } else {
            self.note(|| Access::Read(kept.path.clone()));
            opened = self.open(&kept.path)?;
            &opened
        };
        read_whole(buffer, shape, |space, from| rustix::io::pread(fd, space, from))
            .map_err(|errno| SourceError::from_errno(&kept.path, errno))
    }

    /// Whether a kept file such as `mountinfo` says that it has changed (`POLLERR | POLLPRI`, `proc(5)`).
    ///
    /// A recorded file never changes, and a file that is not kept cannot tell: both are read as if they had.
    #[must_use]
    pub fn has_changed(&self, kept: &Kept) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some(fd) = kept.fd.as_ref().filter(|_| !self.is_recorded()) else { return true };
        self.note(|| Access::Poll(kept.path.clone()));
        let mut fds = [PollFd::new(fd, PollFlags::PRI)];
        // Where poll fails we cannot know, and reading again is the safe answer.
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// All process ids in `/proc`, in ascending order.
    ///
    /// # Errors
    /// [`SourceError`] by what the kernel says.
    pub fn pids(&self, pids: &mut Vec<u32>, buffer: &mut Vec<u8>) -> Result<(), SourceError> {
        self.check_processes()?;
        self.note(|| Access::List("/proc".to_owned()));
        let fail = |errno| SourceError::from_errno("/proc", errno);
        pids.clear();
        let opened;
        let proc = if let Some(doors) = &self.doors {
            rustix::fs::seek(&doors.proc, rustix::fs::SeekFrom::Start(0)).map_err(fail)?;
            &doors.proc
        } else {
            opened = self.open_folder("/proc")?;
            &opened
        };
        buffer.clear();
        buffer.reserve(16 * HALF_PAGE);
        let mut entries = RawDir::new(proc, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(fail)?;
            let digits = entry.file_name().to_bytes().iter();
            pids.extend(digits.copied().try_fold(0_u32, |pid, byte| match byte {
                b'0'..=b'9' => pid.checked_mul(10)?.checked_add(u32::from(byte - b'0')),
                _ => None,
            }));
        }
        // The kernel lists in order; a folder on a disk does not.
        if !pids.is_sorted() {
            pids.sort_unstable();
        }
        Ok(())
    }

    /// Links to `/proc`, among which the kernel counts its processes; a recorded tree has no such count.
    #[must_use]
    pub fn proc_links(&self) -> Option<u64> {
        if self.is_recorded() {
            return None;
        }
        self.note(|| Access::Links("/proc".to_owned()));
        let found = match &self.doors {
            Some(doors) => rustix::fs::fstat(&doors.proc),
            None => rustix::fs::stat("/proc"),
        };
        found.ok().map(|found| found.st_nlink)
    }

    /// Whether two processes surely have one memory; recorded ones have none.
    #[must_use]
    pub fn share_memory(&self, pid: u32, other_pid: u32) -> bool {
        !self.is_recorded() && sys::share_memory(pid, other_pid)
    }

    /// Size that the file system gives for a path; since Linux 6.2 that of `/proc/[pid]/fd` is the number of
    /// descriptors.
    #[must_use]
    pub fn size(&self, path: &str) -> Option<u64> {
        // A folder on a disk has a size that says nothing.
        (!self.is_recorded()).then(|| fs::metadata(path).ok()).flatten().map(|found| found.len())
    }

    /// The path on this machine's disk.
    #[must_use]
    pub fn on_disk(&self, path: &str) -> PathBuf {
        match &self.tree {
            Some(tree) => tree.join(path.trim_start_matches('/')),
            None => PathBuf::from(path),
        }
    }

    /// Sizes of the file system that is mounted at `mount_point`.
    ///
    /// # Errors
    /// [`SourceError`] by what the kernel says.
    pub fn space(&self, mount_point: &str) -> Result<Space, SourceError> {
        if self.is_recorded() {
            return self.recorded_space(mount_point);
        }
        self.note(|| Access::Statvfs(mount_point.to_owned()));
        let found =
            rustix::fs::statvfs(mount_point).map_err(|errno| SourceError::from_errno(mount_point, errno))?;
        space_of(found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail)
            .ok_or_else(|| overflow(mount_point))
    }

    fn recorded_space(&self, mount_point: &str) -> Result<Space, SourceError> {
        let unsupported = || SourceError::Unsupported { path: mount_point.into() };
        let table = fs::read_to_string(self.on_disk("/statvfs")).map_err(|_| unsupported())?;
        let line = table.lines().find_map(|line| line.strip_prefix(mount_point)?.strip_prefix(' '));
        let numbers: Option<Vec<u64>> = line
            .ok_or_else(unsupported)?
            .split_ascii_whitespace()
            .map(|number| number.parse().ok())
            .collect();
        match numbers.as_deref() {
            Some([block_size, blocks, free, available]) => {
                space_of(*block_size, *blocks, *free, *available).ok_or_else(|| overflow(mount_point))
            }
            _ => Err(unsupported()),
        }
    }

    /// CPU time of a process in nanoseconds; a recorded tree has none, `stat` has ticks there.
    #[must_use]
    pub fn process_cpu_ns(&self, pid: u32) -> Option<u64> {
        if self.is_recorded() {
            return None;
        }
        self.note(|| Access::CpuClock(pid));
        sys::process_cpu_ns(pid)
    }

    /// Where a symbolic link leads.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<PathBuf> {
        fs::read_link(self.on_disk(path)).ok()
    }
}

/// `/proc` of another PID namespace has us under another number, or not at all. Where it may not be asked, it is ours.
fn is_foreign() -> bool {
    match fs::read_link("/proc/self") {
        Ok(own) => own.to_str() != Some(&std::process::id().to_string()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn space_of(block_size: u64, blocks: u64, free: u64, available: u64) -> Option<Space> {
    Some(Space {
        total_bytes: blocks.checked_mul(block_size)?,
        unused_bytes: free.checked_mul(block_size)?,
        available_bytes: available.checked_mul(block_size)?,
    })
}

fn overflow(mount_point: &str) -> SourceError {
    let source = io::Error::other("sizes beyond 2^64 bytes");
    SourceError::Io { path: mount_point.into(), source }
}

/// Reads a file to its end, as its shape tells it. `buffer` only ever grows.
fn read_whole(
    buffer: &mut Vec<u8>,
    shape: Shape,
    mut read: impl FnMut(&mut [u8], u64) -> rustix::io::Result<usize>,
) -> rustix::io::Result<&[u8]> {
    let mut filled = 0;
    buffer.resize(buffer.capacity().max(2 * HALF_PAGE), 0);
    loop {
        let got = retry(|| read(buffer.get_mut(filled..).unwrap_or_default(), filled as u64))?;
        filled += got;
        let ended = match shape {
            Shape::Whole => filled < buffer.len(),
            Shape::Records => got < HALF_PAGE,
            Shape::LongRecords => false,
        };
        if got == 0 || ended {
            return Ok(buffer.get(..filled).unwrap_or_default());
        }
        // A read into little room is short, and would look like the end.
        if buffer.len() < filled + HALF_PAGE {
            buffer.resize(2 * buffer.len(), 0);
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_reads_the_same_and_keeps_nothing_open() {
        let (host, guest) = (Root::host().unwrap(), Root::host_as_guest().unwrap());
        assert!(guest.doors.is_none());
        let (kept, anew) = (host.keep("/proc/version").unwrap(), guest.keep("/proc/version").unwrap());
        assert!(kept.fd.is_some() && anew.fd.is_none());
        let text = |root: &Root, kept: &Kept| {
            root.reread(kept, Shape::Whole, &mut Vec::new()).map(<[u8]>::to_vec).unwrap()
        };
        assert_eq!(text(&host, &kept), text(&guest, &anew));
        assert!(guest.has_changed(&anew), "what is not kept cannot tell");
        assert!(guest.keep("/proc/no-such-file").is_err());
        let mut pids = Vec::new();
        guest.pids(&mut pids, &mut Vec::new()).unwrap();
        assert!(pids.contains(&std::process::id()));
    }

    #[test]
    fn how_much_room_is_left_where_a_piece_ends_does_not_matter() {
        let text: Vec<u8> = (0..20_000).map(|at| if at % 61 == 0 { b'\n' } else { b'x' }).collect();
        for room in (0..4 * HALF_PAGE).step_by(37) {
            // As the kernel does: whole records of at most a page, cut where there is no room for them.
            let read = |space: &mut [u8], from: u64| {
                let rest = text.get(usize::try_from(from).unwrap()..).unwrap();
                let page = rest.get(..2 * HALF_PAGE).unwrap_or(rest);
                let records = page.iter().rposition(|byte| *byte == b'\n').map_or(page.len(), |at| at + 1);
                let piece = if page.len() < rest.len() { records } else { rest.len() }.min(space.len());
                space[..piece].copy_from_slice(&rest[..piece]);
                Ok(piece)
            };
            let mut buffer = Vec::with_capacity(room);
            assert!(read_whole(&mut buffer, Shape::Records, read).unwrap() == text, "room {room}");
        }
    }

    #[test]
    fn a_file_of_many_records_is_read_to_its_end() {
        let (host, guest) = (Root::host().unwrap(), Root::host_as_guest().unwrap());
        let path = "/proc/kallsyms";
        let whole = fs::read(path).unwrap();
        assert!(whole.len() > 100 * HALF_PAGE, "{}", whole.len());
        assert!(host.read(path, &mut Vec::new()).unwrap() == whole);
        for root in [&host, &guest] {
            let kept = root.keep(path).unwrap();
            assert!(root.reread(&kept, Shape::Records, &mut Vec::new()).unwrap() == whole);
        }
    }
}
