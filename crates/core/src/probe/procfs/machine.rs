//! Sources that read `/proc/stat`, the process list, `/proc/meminfo` and `/proc/pressure`.

use super::{KeptFile, parse_meminfo, parse_single_cpus, parse_some_us, parse_stat, unparsed};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::Source;
use crate::probe::snapshot::{Pressure, Snapshot};

#[derive(Debug, Default)]
pub struct CpuSource(KeptFile);

impl Source for CpuSource {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/stat";
        let text = self.0.text(root, PATH)?;
        let stat = parse_stat(text).map_err(unparsed(PATH))?;
        // Skip per-CPU counters on machines without steal time.
        if stat.steal_ticks > 0 {
            snapshot.single_cpus = parse_single_cpus(text);
        }
        snapshot.cpu = Some(stat.machine_cpu());
        Ok(())
    }
}

/// Counts the processes in `/proc`.
///
/// Listing `/proc` is an expensive read (27 µs for 80 processes). The kernel adds the number of all processes to the link
/// count of `/proc`, which has one link per folder, so that the list is needed only once. In a PID namespace of a
/// container, the link count includes processes that are not in `/proc`.
#[derive(Debug, Default)]
pub struct ProcessesSource {
    /// Links of `/proc` that are not processes.
    other_links: Option<u64>,
}

/// `/proc/self/ns/pid` outside containers (`PROC_PID_INIT_INO` of the kernel).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

impl Source for ProcessesSource {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        let links = root.proc_links();
        snapshot.processes =
            links.zip(self.other_links).and_then(|(links, others)| links.checked_sub(others));
        if snapshot.processes.is_some() {
            return Ok(());
        }
        let mut pids = Vec::new();
        root.pids(&mut pids, &mut Vec::new())?;
        let processes = pids.len() as u64;
        snapshot.processes = Some(processes);
        let namespace = root.link("/proc/self/ns/pid");
        let is_initial = namespace.is_some_and(|namespace| namespace.as_os_str() == INITIAL_PID_NAMESPACE);
        // Not if a process started or ended during the listing.
        if is_initial && links == root.proc_links() {
            self.other_links = links.and_then(|links| links.checked_sub(processes));
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct MemorySource(KeptFile);

impl Source for MemorySource {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/meminfo";
        let text = self.0.text(root, PATH)?;
        snapshot.memory = Some(parse_meminfo(text).map_err(unparsed(PATH))?.machine_memory());
        Ok(())
    }
}

/// Reads `/proc/pressure`, which kernels without PSI do not have.
#[derive(Debug, Default)]
pub struct PressureSource {
    files: [KeptFile; 3],
    missing: bool,
}

impl Source for PressureSource {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATHS: [&str; 3] = ["/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"];
        if self.missing {
            return Err(SourceError::Unsupported { path: "/proc/pressure".into() });
        }
        let mut totals = [None; 3];
        for ((file, path), total) in self.files.iter_mut().zip(PATHS).zip(&mut totals) {
            match file.text(root, path) {
                Ok(text) => *total = Some(parse_some_us(text).map_err(unparsed(path))?),
                Err(error) => {
                    // A running kernel does not gain PSI later, so the next ticks do not try again. Not so if the
                    // tracker has no free descriptor.
                    self.missing = !matches!(error, SourceError::Io { .. });
                    return Err(error);
                }
            }
        }
        let [cpu_us, memory_us, io_us] = totals;
        snapshot.pressure = Pressure { cpu_us, memory_us, io_us };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pressure_that_could_not_be_read_once_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let pressure = folder.path().join("proc/pressure");
        // A folder can be opened, but reading it fails.
        fs::create_dir_all(pressure.join("cpu")).unwrap();
        for name in ["memory", "io"] {
            fs::write(pressure.join(name), "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n").unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        let mut source = PressureSource::default();
        let error = source.read(&root, &mut Snapshot::default()).unwrap_err();
        let no_descriptor = SourceError::from_errno("/proc/pressure/cpu", rustix::io::Errno::MFILE);
        assert!([error, no_descriptor].iter().all(|error| matches!(error, SourceError::Io { .. })));
        fs::remove_dir(pressure.join("cpu")).unwrap();
        fs::copy(pressure.join("io"), pressure.join("cpu")).unwrap();
        let mut snapshot = Snapshot::default();
        source.read(&root, &mut snapshot).unwrap();
        assert_eq!(snapshot.pressure.cpu_us, Some(7));
    }
}
