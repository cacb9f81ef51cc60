//! `/proc/[pid]/stat`: identity, CPU ticks and resident pages of one process.
//!
//! In:  the text of the file. It is read with one call, because the kernel generates new text for every call.
//! Out: [`PidStat`] in the kernel's units.
//! Not here: the members of the job (`job/tree`), opening files (`os/root`).
//!
//! Field numbers are those of `proc_pid_stat(5)`.

use super::text::{decimal, fields, number};
use crate::error::ParseError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidStat {
    /// State letter: `R` running, `S` sleeping, `D` uninterruptible, `Z` zombie, …
    pub state: u8,
    /// Pid of the parent. If the parent has ended, pid of the process that reaps orphans.
    pub ppid: u32,
    /// Process group and session. Orphans keep both.
    pub group: u64,
    pub session: u64,
    /// True if the process has not called `exec` since its fork: it shares pages copy-on-write with its parent.
    pub is_forked_child: bool,
    /// Minor page faults of the process. Every copy-on-write break is one.
    pub minor_faults: u64,
    /// Major page faults of the process and its reaped children.
    pub major_faults: u64,
    pub utime_ticks: u64,
    pub stime_ticks: u64,
    /// User time of reaped children and their reaped descendants.
    pub cutime_ticks: u64,
    pub cstime_ticks: u64,
    pub threads: u64,
    /// Start of the process in ticks since boot. Pid and start together identify a process.
    pub start_ticks: u64,
    /// Size of the address space.
    pub size_bytes: u64,
    pub rss_pages: u64,
    /// Address-space fingerprint: start of stack and heap. `exec` chooses both at random, and a fork keeps them. `None`
    /// for processes of other users.
    pub fingerprint: Option<(u64, u64)>,
    /// True if this is a thread of a process, not a process: `/proc` has threads too, but does not list them.
    pub is_thread: bool,
    /// True if the process ignores SIGCHLD. The kernel then reaps its children and drops their CPU time.
    pub ignores_children: bool,
}

/// Flags `PF_EXITING` and `PF_FORKNOEXEC` of `include/linux/sched.h`.
const EXITING: u64 = 0x4;
const FORKED_WITHOUT_EXEC: u64 = 0x40;

const SIGCHLD: u64 = 1 << (libc::SIGCHLD - 1);

impl PidStat {
    /// True if the process has ended, whether or not its parent reaps it at this moment.
    pub const fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z') || self.is_dead()
    }

    /// True if the process has ended and is being reaped.
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'X' | b'x')
    }
}

/// Fields are counted from the last `)`, because the command name may contain blanks, `)` and line ends.
pub fn parse_pid_stat(text: &[u8]) -> Result<PidStat, ParseError> {
    let end = memchr::memrchr(b')', text).ok_or(ParseError::Missing { field: "comm" })?;
    let mut field = fields(text.get(end + 1..).unwrap_or_default());
    // `nth(n)` skips n fields. The comments give the field numbers of the man page.
    let state = field
        .next()
        .and_then(|state| state.first().copied())
        .ok_or(ParseError::Missing { field: "state" })?; // 3
    let ppid = number("ppid", field.next())?; // 4
    let group = field.next().and_then(decimal).unwrap_or(0); // 5
    let session = field.next().and_then(decimal).unwrap_or(0); // 6
    let flags = number("flags", field.nth(2))?; // 9
    let minor_faults = number("minflt", field.next())?; // 10
    let faults = number("majflt", field.nth(1))?; // 12
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
    let exit_signal = field.nth(4); // 38
    let start_brk = field.nth(8).and_then(decimal); // 47
    Ok(PidStat {
        state,
        ppid: u32::try_from(ppid)
            .map_err(|_| ParseError::NotANumber { field: "ppid", text: ppid.to_string() })?,
        group,
        session,
        is_forked_child: flags & FORKED_WITHOUT_EXEC != 0,
        minor_faults,
        major_faults: faults.saturating_add(child_faults),
        utime_ticks,
        stime_ticks,
        cutime_ticks,
        cstime_ticks,
        threads,
        start_ticks,
        size_bytes,
        rss_pages,
        fingerprint: start_stack.zip(start_brk).filter(|(stack, heap)| *stack > 0 && *heap > 0),
        // Only processes send a signal to their parent when they end.
        is_thread: exit_signal == Some(b"-1"),
        ignores_children: ignored.is_some_and(|signals| signals & SIGCHLD != 0),
    })
}

/// Whether the process is exiting or has ended, from the text of its `stat`.
pub fn parse_is_exiting(text: &[u8]) -> Option<bool> {
    let end = memchr::memrchr(b')', text)?;
    let flags = fields(text.get(end + 1..)?).nth(6).and_then(decimal)?; // 9
    Some(flags & EXITING != 0)
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
    fn stat_of_this_process_is_parsed() {
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
        let (stack, heap) = stat.fingerprint.unwrap();
        assert!(
            maps.lines().any(|line| line.ends_with("[stack]") && holds(line, stack)),
            "{stack:x}\n{maps}"
        );
        assert!(maps.lines().any(|line| line.ends_with("[heap]") && holds(line, heap)), "{heap:x}\n{maps}");
    }

    #[test]
    fn exiting_process_is_recognised() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let is_exiting = |pid: u32| parse_is_exiting(&std::fs::read(format!("/proc/{pid}/stat")).unwrap());
        while is_exiting(child.id()) == Some(false) {
            std::thread::yield_now();
        }
        assert_eq!((is_exiting(child.id()), is_exiting(std::process::id())), (Some(true), Some(false)));
        child.wait().unwrap();
        assert_eq!(parse_is_exiting(b"7 (a) S 1 2"), None);
    }

    #[test]
    fn ignored_sigchld_is_recognised() {
        let ignores = |command: &str| {
            let output = std::process::Command::new("python3").args(["-c", command]).output().unwrap();
            parse_pid_stat(&output.stdout).unwrap().ignores_children
        };
        let show = "import signal; print(open('/proc/self/stat').read())";
        assert!(!ignores(show));
        assert!(ignores(&show.replace(';', "; signal.signal(signal.SIGCHLD, signal.SIG_IGN);")));
    }

    proptest! {
        /// A process can set its name to any bytes. The name must not change the parsed numbers.
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
