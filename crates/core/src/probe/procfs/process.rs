//! Reads and parses the files of one process, and derives facts from them.
//!
//! In:  a [`Root`], a pid and a buffer. Out: the parsed file.
//! `job/` and `sampler/reading` share these functions, so that both get the same figures for a process.

use super::{
    PidIo, PidStat, PidStatus, SmapsRollup, parse_pid_io, parse_pid_stat, parse_pid_status,
    parse_smaps_rollup, unparsed,
};
use crate::error::{ParseError, SourceError};
use crate::os::pid_path;
use crate::os::root::Root;

fn read<T>(
    root: &Root,
    pid: u32,
    file: &str,
    buffer: &mut Vec<u8>,
    parse: fn(&[u8]) -> Result<T, ParseError>,
) -> Result<T, SourceError> {
    let path = pid_path(pid, file);
    parse(root.read(path.as_str(), buffer)?).map_err(unparsed(path.as_str()))
}

pub(crate) fn read_stat(root: &Root, pid: u32, buffer: &mut Vec<u8>) -> Result<PidStat, SourceError> {
    read(root, pid, "stat", buffer, parse_pid_stat)
}

pub(crate) fn read_status(root: &Root, pid: u32, buffer: &mut Vec<u8>) -> Result<PidStatus, SourceError> {
    read(root, pid, "status", buffer, parse_pid_status)
}

/// Fails with `EACCES` for processes of other users.
pub(crate) fn read_io(root: &Root, pid: u32, buffer: &mut Vec<u8>) -> Result<PidIo, SourceError> {
    read(root, pid, "io", buffer, parse_pid_io)
}

/// `None` for a process without an address space. The call is slow because the kernel visits every page: 18 µs for a
/// small process, and 3.3 µs per MiB of 4 KiB pages.
pub(crate) fn read_smaps_rollup(
    root: &Root,
    pid: u32,
    buffer: &mut Vec<u8>,
) -> Result<Option<SmapsRollup>, SourceError> {
    read(root, pid, "smaps_rollup", buffer, parse_smaps_rollup)
}

/// A process and its parent that share an address space may differ in RSS by this much: it may grow between two reads.
const RSS_DRIFT_PAGES: u64 = 16;

/// Whether a process still uses the address space of its parent: after `vfork` or `posix_spawn` and before `exec`. The
/// memory of this process must not be counted a second time.
///
/// In this state child and parent have the same size. After a plain fork their RSS differs, because the child has no
/// pages of files yet. If the parent changed its size between the two reads, `kcmp` decides.
pub(crate) fn borrows_memory(
    root: &Root,
    (pid, stat): (u32, &PidStat),
    (parent_pid, parent): (u32, &PidStat),
) -> bool {
    let has_same_size =
        stat.size_bytes == parent.size_bytes && stat.rss_pages.abs_diff(parent.rss_pages) <= RSS_DRIFT_PAGES;
    stat.is_forked_child
        && stat.size_bytes > 0
        && stat.fingerprint == parent.fingerprint
        && (has_same_size || root.share_memory(pid, parent_pid))
}

/// Identifies the PID namespace of the tracker among all containers and machines that share a folder.
///
/// The text contains the boot id, because the initial namespace has the same name on all machines.
pub(crate) fn pid_namespace() -> Option<String> {
    let root = Root::host_in_process().ok()?;
    let link = root.link("/proc/self/ns/pid")?;
    let boot_id = root.text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{} {boot_id}", link.display()).trim_end().to_owned())
}

/// Start of a process in clock ticks since boot; `None` if the process does not exist. Pid and start identify it.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    Some(read_stat(&Root::host().ok()?, pid, &mut Vec::new()).ok()?.start_ticks)
}

/// Whether the process with this pid and start has ended. A zombie counts as ended, because some containers never reap
/// zombies. A process whose main thread alone has ended does not: its other threads may still write.
pub(crate) fn is_gone(pid: u32, start_ticks: u64) -> bool {
    let Ok(root) = Root::host_in_process() else { return false };
    match read_stat(&root, pid, &mut Vec::new()) {
        Ok(stat) => stat.start_ticks != start_ticks || (stat.is_zombie() && stat.threads <= 1),
        Err(error) => matches!(error, SourceError::Gone { .. } | SourceError::Unsupported { .. }),
    }
}

/// Whether a process exists and is not a zombie. `start_ticks` excludes a later process with the same pid.
pub(crate) fn is_alive(root: &Root, pid: u32, start_ticks: Option<u64>) -> bool {
    match read_stat(root, pid, &mut Vec::new()) {
        Ok(stat) => !stat.is_zombie() && start_ticks.is_none_or(|start| start == stat.start_ticks),
        // The tracker has no free descriptor or memory. The process may still run.
        Err(error) => matches!(error, SourceError::Io { .. }),
    }
}

/// The command line of a process; `None` if it cannot be read.
pub(crate) fn command_of(pid: u32) -> Option<Vec<String>> {
    let mut buffer = Vec::new();
    let root = Root::host().ok()?;
    let text = root.read(pid_path(pid, "cmdline").as_str(), &mut buffer).ok()?;
    parse_cmdline(text)
}

/// A process that sets its own title (`setproctitle`) fills the rest of the file with zeros.
pub fn parse_cmdline(text: &[u8]) -> Option<Vec<String>> {
    let words = text.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let mut words: Vec<_> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    if words.iter().skip(1).all(String::is_empty) {
        words.truncate(1);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_of_a_process_has_no_empty_arguments_behind_it() {
        assert_eq!(
            parse_cmdline(b"airflow worker -- 7\0\0\0\0"),
            Some(vec!["airflow worker -- 7".to_owned()])
        );
        assert_eq!(parse_cmdline(b"sh\0-c\0\0").map(|words| words.len()), Some(3), "an empty argument");
        assert_eq!(parse_cmdline(b""), None);
    }

    #[test]
    fn zombie_counts_as_gone() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, root) = (child.id(), Root::host_in_process().unwrap());
        let start = process_start(pid).unwrap();
        assert!(!is_gone(pid, start) && is_gone(pid, start + 1));
        drop(child.stdin.take());
        while !read_stat(&root, pid, &mut Vec::new()).unwrap().is_zombie() {
            std::thread::yield_now();
        }
        assert!(is_gone(pid, start));
        child.wait().unwrap();
    }
}
