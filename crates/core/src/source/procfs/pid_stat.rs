//! `/proc/[pid]/stat`: identity, CPU ticks and resident pages of one process.
//!
//! In:  the file's text, read once and whole, since the kernel rewrites it at every read.
//! Out: [`PidStat`] in the kernel's own units; `diff` turns ticks into cores.
//! Not here: which processes belong to the job (`tree`), opening files (`root`).
//!
//! Field numbers are those of `proc_pid_stat(5)`: the man page is the map of this file.

use super::text::{decimal, fields, number};
use crate::error::ParseError;

/// One process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidStat {
    /// `R`, `S`, `D`, `Z`, …
    pub state: u8,
    /// Its parent now: the one that forked it, or whoever adopted it.
    pub ppid: u32,
    /// It is a copy of its parent: forked, and no other program since.
    pub is_copy: bool,
    /// Page faults that had to read from storage, of it and of the children that it waited for.
    pub major_faults: u64,
    /// User CPU time.
    pub utime_ticks: u64,
    /// System CPU time.
    pub stime_ticks: u64,
    /// User CPU time of children that it waited for, and of theirs.
    pub cutime_ticks: u64,
    /// System CPU time of children that it waited for, and of theirs.
    pub cstime_ticks: u64,
    /// Threads.
    pub threads: u64,
    /// Start, in ticks since boot; with the pid it is the identity of a process.
    pub start_ticks: u64,
    /// Bytes of its address space.
    pub size_bytes: u64,
    /// Resident pages.
    pub rss_pages: u64,
    /// Where its stack and its heap start: the kernel lays out every program at random, and its copies alike. `None`
    /// for others' processes.
    pub image: Option<(u64, u64)>,
    /// It ignores SIGCHLD: what its children spend is told to nobody when they end.
    pub ignores_children: bool,
}

/// `PF_FORKNOEXEC` of `include/linux/sched.h`.
const FORKED_WITHOUT_EXEC: u64 = 0x40;

/// Two looks at the same memory may be so far apart.
const MOVED_PAGES: u64 = 16;

/// SIGCHLD in a mask of signals.
const SIGCHLD: u64 = 1 << (libc::SIGCHLD - 1);

impl PidStat {
    /// Ended, and not waited for yet or just now.
    #[must_use]
    pub const fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z') || self.is_dead()
    }

    /// It runs in its parent's memory, as one that was started by `vfork` or `posix_spawn` does until it runs its own
    /// program: all of that would count twice.
    ///
    /// Known by its size, whatever it does by now: a forked copy has another one, since it gets no pages of files. Where
    /// the parent changed its own between the two looks, `shares_memory` asks the kernel.
    #[must_use]
    pub fn borrows_from(&self, parent: &Self, shares_memory: impl FnOnce() -> bool) -> bool {
        let has_its_size = || {
            self.size_bytes == parent.size_bytes && self.rss_pages.abs_diff(parent.rss_pages) <= MOVED_PAGES
        };
        self.is_copy
            && self.size_bytes > 0
            && self.image == parent.image
            && (has_its_size() || shares_memory())
    }

    /// Being reaped at this moment.
    #[must_use]
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'X' | b'x')
    }
}

/// Parses `/proc/[pid]/stat`.
///
/// The command name may hold blanks, `)` and line ends, so fields are counted from the *last* `)`.
///
/// # Errors
/// Where a field is missing or holds no number.
pub fn parse_pid_stat(text: &[u8]) -> Result<PidStat, ParseError> {
    let end = memchr::memrchr(b')', text).ok_or(ParseError::Missing { field: "comm" })?;
    let mut field = fields(text.get(end + 1..).unwrap_or_default());
    // `nth(n)` skips n fields; the numbers in the comments are the man page's.
    let state = field
        .next()
        .and_then(|state| state.first().copied())
        .ok_or(ParseError::Missing { field: "state" })?; // 3
    let ppid = number("ppid", field.next())?; // 4
    let flags = number("flags", field.nth(4))?; // 9
    let faults = number("majflt", field.nth(2))?; // 12
    let child_faults = number("cmajflt", field.next())?; // 13
    let utime_ticks = number("utime", field.next())?; // 14
    let stime_ticks = number("stime", field.next())?; // 15
    let cutime_ticks = number("cutime", field.next())?; // 16
    let cstime_ticks = number("cstime", field.next())?; // 17
    let threads = number("num_threads", field.nth(2))?; // 20
    let start_ticks = number("starttime", field.nth(1))?; // 22
    let size_bytes = number("vsize", field.next())?; // 23
    let rss_pages = number("rss", field.next())?; // 24
    let start_stack = field.nth(3).and_then(decimal); // 28
    let ignored = field.nth(4).and_then(decimal); // 33
    let start_brk = field.nth(13).and_then(decimal); // 47
    Ok(PidStat {
        state,
        ppid: u32::try_from(ppid)
            .map_err(|_| ParseError::NotANumber { field: "ppid", text: ppid.to_string() })?,
        is_copy: flags & FORKED_WITHOUT_EXEC != 0,
        major_faults: faults.saturating_add(child_faults),
        utime_ticks,
        stime_ticks,
        cutime_ticks,
        cstime_ticks,
        threads,
        start_ticks,
        size_bytes,
        rss_pages,
        image: start_stack.zip(start_brk).filter(|(stack, heap)| *stack > 0 && *heap > 0),
        ignores_children: ignored.is_some_and(|signals| signals & SIGCHLD != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn command_name_that_looks_like_fields_does_not_shift_them() {
        let text = include_bytes!("../../../../../fixtures/hostile/pid-stat-comm-looks-like-fields.txt");
        let stat = parse_pid_stat(text).unwrap();
        assert_eq!((stat.ppid, stat.utime_ticks, stat.start_ticks, stat.rss_pages), (17, 250, 9_000, 2_048));
    }

    #[test]
    fn a_process_of_this_machine_is_understood() {
        let text = std::fs::read("/proc/self/stat").unwrap();
        let stat = parse_pid_stat(&text).unwrap();
        assert_eq!(stat.ppid, std::os::unix::process::parent_id());
        assert!(stat.rss_pages > 0 && stat.threads > 0 && stat.start_ticks > 0);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &str, address: u64| {
            let bounds = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
            let [start, end] = [bounds.0, bounds.1].map(|bound| u64::from_str_radix(bound, 16).unwrap());
            (start..=end).contains(&address)
        };
        let (stack, heap) = stat.image.unwrap();
        assert!(
            maps.lines().any(|line| line.ends_with("[stack]") && holds(line, stack)),
            "{stack:x}\n{maps}"
        );
        assert!(maps.lines().any(|line| line.ends_with("[heap]") && holds(line, heap)), "{heap:x}\n{maps}");
    }

    #[test]
    fn who_ignores_its_children_is_known() {
        let ignores = |command: &str| {
            let output = std::process::Command::new("python3").args(["-c", command]).output().unwrap();
            parse_pid_stat(&output.stdout).unwrap().ignores_children
        };
        let show = "import signal; print(open('/proc/self/stat').read())";
        assert!(!ignores(show));
        assert!(ignores(&show.replace(';', "; signal.signal(signal.SIGCHLD, signal.SIG_IGN);")));
    }

    proptest! {
        /// A process chooses its name; it must not thereby choose its numbers, nor stop us.
        #[test]
        fn command_name_never_changes_the_numbers(comm in proptest::collection::vec(any::<u8>(), 0..16)) {
            let line = |comm: &[u8]| {
                let tail = b") S 1 7 7 0 -1 0 0 0 4 2 9 9 8 7 20 0 1 0 500 0 88 1 1";
                [b"7 (", comm, tail].concat()
            };
            prop_assert_eq!(parse_pid_stat(&line(&comm)), parse_pid_stat(&line(b"sh")));
        }
    }
}
