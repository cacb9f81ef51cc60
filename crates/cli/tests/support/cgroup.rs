//! Cgroups of the tests: the kernel's account of CPU time, and limits. Each hierarchy is of version 1 if it is mounted in
//! the usual place, otherwise of version 2. Both need root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A new group of a version 1 hierarchy, or of version 2.
fn create(hierarchy: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let root = Path::new("/sys/fs/cgroup");
    let v1 = root.join(hierarchy);
    let folder =
        if v1.exists() { v1 } else { root.into() }.join(format!("test-{}-{number}", std::process::id()));
    fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}

/// A cgroup that holds only the job: the kernel's own account of its CPU time.
pub struct Truth {
    outer: PathBuf,
    inner: PathBuf,
}

impl Truth {
    /// A cgroup that `user` may enter. Panics if none can be created.
    pub fn new(user: u32) -> Self {
        let outer = create("cpuacct");
        let inner = outer.join("job");
        fs::create_dir(&inner).unwrap();
        for group in [&outer, &inner] {
            std::os::unix::fs::chown(group.join("cgroup.procs"), Some(user), None).unwrap();
        }
        // The mark by which a tracker in the group knows that it may create groups of version 2.
        let _ = rustix::fs::setxattr(&inner, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
        Self { outer, inner }
    }

    /// Starts the command as `user` beside the cgroup: in version 2, a plain user may only move a process that is already
    /// below a group of this user.
    pub fn beside(&self, command: &Command, user: u32) -> Command {
        let line = format!(
            "echo $$ > {}/cgroup.procs && exec setpriv --reuid={user} --regid={user} --clear-groups \"$@\"",
            self.outer.display()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, "sh"]).arg(command.get_program()).args(command.get_args());
        shell.current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell
    }

    /// A shell line that enters the cgroup and becomes `command`.
    pub fn wrap(&self, command: &[&str]) -> Vec<String> {
        let line = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.inner.display());
        let mut words = vec!["sh".to_owned(), "-c".to_owned(), line, "sh".to_owned()];
        words.extend(command.iter().map(ToString::to_string));
        words
    }

    pub fn cpu_s(&self) -> f64 {
        let (file, before, unit) = match self.inner.join("cpuacct.usage") {
            v1 if v1.exists() => (v1, "", 1e9),
            _ => (self.inner.join("cpu.stat"), "usage_usec ", 1e6),
        };
        let text = fs::read_to_string(file).unwrap();
        text.lines().find_map(|line| line.strip_prefix(before)).unwrap().parse::<f64>().unwrap() / unit
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.inner);
        let _ = fs::remove_dir(&self.outer);
    }
}

/// Files of a group and what is written to them.
type Settings = Vec<(&'static str, String)>;

pub enum Limit {
    Memory {
        bytes: u64,
    },
    /// 20 % of a CPU.
    Cpu,
    Processes {
        count: u32,
    },
}

impl Limit {
    /// The hierarchy, and settings of version 1 and version 2.
    fn settings(&self) -> (&'static str, Settings, Settings) {
        match self {
            Self::Memory { bytes } => {
                let v1 = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
                let v2 = vec![("memory.max", bytes.to_string()), ("memory.swap.max", "0".to_owned())];
                ("memory", v1.map(|file| (file, bytes.to_string())).into(), v2)
            }
            Self::Cpu => {
                let v1 = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")];
                let v2 = vec![("cpu.max", "20000 100000".to_owned())];
                ("cpu", v1.map(|(file, value)| (file, value.to_owned())).into(), v2)
            }
            Self::Processes { count } => {
                let both = vec![("pids.max", count.to_string())];
                ("pids", both.clone(), both)
            }
        }
    }
}

/// Cgroups with limits, removed when dropped: one for each hierarchy.
pub struct Group(Vec<PathBuf>);

impl Group {
    pub fn new(limits: &[Limit]) -> Self {
        let mut group = Self(Vec::new());
        for limit in limits {
            let (hierarchy, v1, v2) = limit.settings();
            let is_v1 = Path::new("/sys/fs/cgroup").join(hierarchy).exists();
            if !is_v1 {
                let control = "/sys/fs/cgroup/cgroup.subtree_control";
                fs::write(control, format!("+{hierarchy}"))
                    .unwrap_or_else(|error| panic!("{control}: {error}"));
            }
            if is_v1 || group.0.is_empty() {
                group.0.push(create(hierarchy));
            }
            for (file, value) in if is_v1 { v1 } else { v2 } {
                let written = fs::write(group.0.last().unwrap().join(file), value);
                // Kernels without swap accounting have no file for swap.
                assert!(written.is_ok() || file.contains("sw"), "{file}: {written:?}");
            }
        }
        group
    }

    pub fn with_memory(bytes: u64) -> Self {
        Self::new(&[Limit::Memory { bytes }])
    }

    /// A shell command that moves the shell into these groups.
    pub fn enter(&self) -> String {
        let lines: Vec<_> =
            self.0.iter().map(|folder| format!("echo $$ > {}/cgroup.procs", folder.display())).collect();
        lines.join(" && ")
    }

    /// How long processes of the group that is limited last could not run.
    pub fn throttled(&self) -> Duration {
        let stat = fs::read_to_string(self.0.last().unwrap().join("cpu.stat")).unwrap();
        let of = |name| stat.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        let v1 = of("throttled_time ").map(Duration::from_nanos);
        v1.or_else(|| of("throttled_usec ").map(Duration::from_micros)).unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group is busy until its last process is reaped.
        let deadline = Instant::now() + Duration::from_secs(20);
        for folder in &self.0 {
            while fs::remove_dir(folder).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
