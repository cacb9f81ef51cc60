//! [`Root`] on Linux: kernel files, the list of processes, and recorded trees.
//!
//! There are two modes. In a process of its own, the tracker keeps descriptors open and reads them with `pread`. In
//! in-process mode, no descriptor stays open: the host process may close any descriptor, or reuse its number for
//! another file. Opening every file at every tick costs 150 µs instead of 77 µs per tick for a job of one process, and
//! 8.0 ms instead of 7.9 ms for 100 processes (`cargo bench --bench tick`). So the first mode keeps its descriptors.
//!
//! A recorded tree is a folder with `proc/…` and `sys/…` as plain files. Its file `statvfs` replaces the system call,
//! with lines of `<mount point> <block size> <blocks> <free> <available>`.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use once_cell::race::OnceBox;
use rustix::fs::{Mode, OFlags, RawDir};

use crate::error::SourceError;
use crate::os;

/// Sizes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    /// Free bytes, including blocks that are reserved for root.
    pub unused_bytes: u64,
    /// Free bytes, without blocks that are reserved for root.
    pub available_bytes: u64,
}

/// What a file system has left for this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    pub total_bytes: u64,
    pub bytes: u64,
    /// `None` if the file system has no fixed number of inodes.
    pub inodes: Option<u64>,
}

/// The files of this host, or of a recorded tree.
#[derive(Debug)]
pub struct Root {
    /// Folder of the recorded tree; `None` for the host.
    tree: Option<PathBuf>,
    /// `/proc`, kept open; `None` in in-process mode.
    proc: Option<OwnedFd>,
    /// Whether `/proc` belongs to another PID namespace: then its pids are not the pids of system calls.
    is_foreign: bool,
}

/// A file that is read at every tick. `fd` is `None` in in-process mode.
#[derive(Debug)]
pub struct Kept {
    fd: Option<OwnedFd>,
    path: String,
}

/// The kernel returns a file of records in pieces: whole records, at most one page. Only records of `mountinfo` may be
/// longer than half a page, so a piece shorter than half a page is the last one.
const HALF_PAGE: usize = 2048;

impl Root {
    /// This host, read from the tracker's own process.
    pub fn host() -> Result<Self, SourceError> {
        Ok(Self { tree: None, proc: Some(open_directory("/proc".as_ref())?), is_foreign: is_foreign() })
    }

    /// This host, read in in-process mode: no descriptor stays open.
    pub fn host_in_process() -> Result<Self, SourceError> {
        Ok(Self { proc: None, ..Self::host()? })
    }

    /// [`Root::host_in_process`] for the whole process: it keeps no file open, so all callers can share one.
    pub fn shared() -> Result<&'static Self, SourceError> {
        static HOST: OnceBox<Root> = OnceBox::new();
        HOST.get_or_try_init(|| Self::host_in_process().map(Box::new))
    }

    /// A recorded tree.
    pub fn recorded(tree: &Path) -> Result<Self, SourceError> {
        let proc = Some(open_directory(&tree.join("proc"))?);
        Ok(Self { tree: Some(tree.to_owned()), proc, is_foreign: false })
    }

    /// Fails if `/proc` belongs to another PID namespace.
    pub const fn check_processes(&self) -> Result<(), SourceError> {
        if self.is_foreign { Err(SourceError::Foreign) } else { Ok(()) }
    }

    /// Whether this is a recorded tree, for which there are no clocks, counters or system calls.
    pub const fn is_recorded(&self) -> bool {
        self.tree.is_some()
    }

    fn open(&self, path: &str) -> Result<OwnedFd, SourceError> {
        const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
        let below_proc = path.strip_prefix("/proc/");
        if below_proc.is_some_and(|below| below.starts_with(|first: char| first.is_ascii_digit())) {
            self.check_processes()?;
        }
        let opened = match (&self.proc, below_proc, &self.tree) {
            (Some(proc), Some(below), _) => rustix::fs::openat(proc, below, FLAGS, Mode::empty()),
            (_, _, Some(_)) => rustix::fs::open(self.on_disk(path), FLAGS, Mode::empty()),
            (_, _, None) => rustix::fs::open(path, FLAGS, Mode::empty()),
        };
        opened.map_err(|errno| SourceError::from_errno(path, errno))
    }

    /// Opens, reads and closes a file. Its content replaces the content of `buffer`.
    pub fn read<'b>(&self, path: &str, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], SourceError> {
        let fd = self.open(path)?;
        read_whole(path, buffer, |space, _| rustix::io::read(&fd, space))
    }

    /// Opens a file for [`Self::reread`].
    pub fn keep(&self, path: &str) -> Result<Kept, SourceError> {
        let fd = self.open(path)?;
        Ok(Kept { fd: self.proc.is_some().then_some(fd), path: path.to_owned() })
    }

    /// The current text of a kept file.
    pub fn reread<'b>(&self, kept: &Kept, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], SourceError> {
        match &kept.fd {
            Some(fd) => read_whole(&kept.path, buffer, |space, from| rustix::io::pread(fd, space, from)),
            None => self.read(&kept.path, buffer),
        }
    }

    /// Whether `mountinfo` has changed since the last call (`POLLERR | POLLPRI`, `proc(5)`).
    ///
    /// Always true for a recorded file and in in-process mode, where there is nothing to poll.
    pub fn has_changed(&self, kept: &Kept) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some(fd) = kept.fd.as_ref().filter(|_| !self.is_recorded()) else { return true };
        let mut fds = [PollFd::new(fd, PollFlags::PRI)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// All process ids in `/proc`, in ascending order.
    pub fn pids(&self, pids: &mut Vec<u32>, buffer: &mut Vec<u8>) -> Result<(), SourceError> {
        self.check_processes()?;
        let fail = |errno| SourceError::from_errno("/proc", errno);
        pids.clear();
        let opened;
        let proc = if let Some(proc) = &self.proc {
            rustix::fs::seek(proc, rustix::fs::SeekFrom::Start(0)).map_err(fail)?;
            proc
        } else {
            opened = open_directory("/proc".as_ref())?;
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
        // The kernel lists `/proc` in order; the file system of a recorded tree does not.
        if !pids.is_sorted() {
            pids.sort_unstable();
        }
        Ok(())
    }

    /// The link count of `/proc`, which includes the number of processes; `None` for a recorded tree.
    pub fn proc_links(&self) -> Option<u64> {
        let found = match (&self.proc, &self.tree) {
            (_, Some(_)) => return None,
            (Some(proc), None) => rustix::fs::fstat(proc),
            (None, None) => rustix::fs::stat("/proc"),
        };
        found.ok().map(|found| found.st_nlink)
    }

    /// Whether a file of `/proc` is the kernel's: LXC mounts files of its own over some of them.
    pub fn is_genuine(&self, path: &str) -> bool {
        let device = |path: &str| rustix::fs::stat(path).ok().map(|found| found.st_dev);
        self.is_recorded() || device(path) == device("/proc")
    }

    /// Whether two processes share one address space; false if the kernel refuses the question.
    pub fn share_memory(&self, pid: u32, other_pid: u32) -> bool {
        !self.is_recorded() && os::share_memory(pid, other_pid)
    }

    /// `st_size`; `None` for a recorded tree. For `/proc/PID/fd`, it is the number of descriptors since Linux 6.2.
    pub fn size(&self, path: &str) -> Option<u64> {
        (!self.is_recorded()).then(|| fs::metadata(path).ok()).flatten().map(|found| found.len())
    }

    /// Where a file of the host lies here: below the recorded tree, if there is one.
    pub fn on_disk(&self, path: &str) -> PathBuf {
        match &self.tree {
            Some(tree) => tree.join(path.trim_start_matches('/')),
            None => PathBuf::from(path),
        }
    }

    /// Sizes of the file system that is mounted at `mount_point`.
    pub fn space(&self, mount_point: &str) -> Result<Space, SourceError> {
        if self.is_recorded() {
            return self.recorded_space(mount_point);
        }
        let found =
            rustix::fs::statvfs(mount_point).map_err(|errno| SourceError::from_errno(mount_point, errno))?;
        space_of(mount_point, found.f_frsize, [found.f_blocks, found.f_bfree, found.f_bavail])
    }

    /// What the file system at `mount_point` has left for this user; `None` for a recorded tree.
    pub fn free_space(&self, mount_point: &str) -> Option<FreeSpace> {
        let found = (!self.is_recorded()).then(|| rustix::fs::statvfs(mount_point).ok()).flatten()?;
        let is_root = rustix::process::geteuid().is_root();
        let (blocks, inodes) =
            if is_root { (found.f_bfree, found.f_ffree) } else { (found.f_bavail, found.f_favail) };
        Some(FreeSpace {
            total_bytes: found.f_blocks.checked_mul(found.f_frsize)?,
            bytes: blocks.checked_mul(found.f_frsize)?,
            inodes: (found.f_files > 0).then_some(inodes),
        })
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
                space_of(mount_point, *block_size, [*blocks, *free, *available])
            }
            _ => Err(unsupported()),
        }
    }

    /// CPU time of a process; `None` for a recorded tree.
    pub fn process_cpu_ns(&self, pid: u32) -> Option<u64> {
        (!self.is_recorded()).then(|| os::process_cpu_ns(pid)).flatten()
    }

    /// The soft limits of a process; unknown for a recorded tree.
    pub fn limits_of(&self, pid: u32) -> os::ProcessLimits {
        let is_known = !self.is_recorded() && !self.is_foreign;
        if is_known { os::ProcessLimits::of(pid) } else { os::ProcessLimits::default() }
    }

    /// The target of a symbolic link.
    pub fn link(&self, path: &str) -> Option<PathBuf> {
        fs::read_link(self.on_disk(path)).ok()
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, SourceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| SourceError::from_errno(&path.to_string_lossy(), errno))
}

/// Whether `/proc` has this process under another pid, or not at all. False if `/proc/self` cannot be read.
fn is_foreign() -> bool {
    match fs::read_link("/proc/self") {
        Ok(own) => own.to_str() != Some(&std::process::id().to_string()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The sizes in bytes. `blocks` are the numbers of all, free and available blocks.
fn space_of(mount_point: &str, block_bytes: u64, blocks: [u64; 3]) -> Result<Space, SourceError> {
    let [total, unused, available] = blocks.map(|blocks| blocks.checked_mul(block_bytes));
    match (total, unused, available) {
        (Some(total_bytes), Some(unused_bytes), Some(available_bytes)) => {
            Ok(Space { total_bytes, unused_bytes, available_bytes })
        }
        _ => Err(SourceError::Io {
            path: mount_point.into(),
            source: io::Error::other("sizes beyond 2^64 bytes"),
        }),
    }
}

/// Reads a file to its end with `read(space, offset)`. The capacity of `buffer` never shrinks.
fn read_whole<'b>(
    path: &str,
    buffer: &'b mut Vec<u8>,
    mut read: impl FnMut(&mut [u8], u64) -> rustix::io::Result<usize>,
) -> Result<&'b [u8], SourceError> {
    let has_long_records = path.ends_with("/mountinfo");
    let mut filled = 0;
    buffer.resize(buffer.capacity().max(2 * HALF_PAGE), 0);
    loop {
        let got = match read(buffer.get_mut(filled..).unwrap_or_default(), filled as u64) {
            Ok(got) => got,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(SourceError::from_errno(path, errno)),
        };
        filled += got;
        if got == 0 || (got < HALF_PAGE && !has_long_records) {
            return Ok(buffer.get(..filled).unwrap_or_default());
        }
        // Without space for half a page the next read could be short before the end of the file.
        if buffer.len() < filled + HALF_PAGE {
            buffer.resize(2 * buffer.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_process_mode_reads_the_same_text_and_keeps_no_descriptor() {
        let (host, in_process) = (Root::host().unwrap(), Root::host_in_process().unwrap());
        assert!(in_process.proc.is_none());
        let (kept, anew) = (host.keep("/proc/version").unwrap(), in_process.keep("/proc/version").unwrap());
        assert!(kept.fd.is_some() && anew.fd.is_none());
        let text = |root: &Root, kept: &Kept| root.reread(kept, &mut Vec::new()).map(<[u8]>::to_vec).unwrap();
        assert_eq!(text(&host, &kept), text(&in_process, &anew));
        assert!(in_process.has_changed(&anew), "nothing to poll");
        assert!(in_process.keep("/proc/no-such-file").is_err());
        let mut pids = Vec::new();
        in_process.pids(&mut pids, &mut Vec::new()).unwrap();
        assert!(pids.contains(&std::process::id()));
    }

    /// Reads `text` as the kernel returns records: whole records, at most a page, and cut if the space is too small.
    fn pieces(text: &[u8]) -> impl FnMut(&mut [u8], u64) -> rustix::io::Result<usize> {
        |space, from| {
            let rest = text.get(usize::try_from(from).unwrap()..).unwrap();
            let page = rest.get(..2 * HALF_PAGE).unwrap_or(rest);
            let records = page.iter().rposition(|byte| *byte == b'\n').map_or(page.len(), |at| at + 1);
            let piece = if page.len() < rest.len() { records } else { rest.len() }.min(space.len());
            space[..piece].copy_from_slice(&rest[..piece]);
            Ok(piece)
        }
    }

    #[test]
    fn file_is_read_to_its_end_for_any_buffer_size() {
        let text: Vec<u8> = (0..20_000).map(|at| if at % 61 == 0 { b'\n' } else { b'x' }).collect();
        for room in (0..4 * HALF_PAGE).step_by(37) {
            let mut buffer = Vec::with_capacity(room);
            assert!(
                read_whole("/proc/diskstats", &mut buffer, pieces(&text)).unwrap() == text,
                "room {room}"
            );
        }
    }

    #[test]
    fn mountinfo_with_long_records_is_read_to_its_end() {
        let mut text = vec![b'x'; 300];
        text.push(b'\n');
        text.extend([b'y'; 3_900]);
        text.push(b'\n');
        let path = "/proc/self/mountinfo";
        assert!(read_whole(path, &mut Vec::new(), pieces(&text)).unwrap() == text);
    }

    #[test]
    fn file_of_many_records_is_read_to_its_end() {
        let (host, in_process) = (Root::host().unwrap(), Root::host_in_process().unwrap());
        let path = "/proc/kallsyms";
        let whole = fs::read(path).unwrap();
        assert!(whole.len() > 100 * HALF_PAGE, "{}", whole.len());
        assert!(host.read(path, &mut Vec::new()).unwrap() == whole);
        for root in [&host, &in_process] {
            let kept = root.keep(path).unwrap();
            assert!(root.reread(&kept, &mut Vec::new()).unwrap() == whole);
        }
    }
}
