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

/// Reads the list of pids in `/proc`.
///
/// Listing `/proc` is the most expensive read on an idle machine (27 µs for 80 processes). The last list is still valid
/// if the fork counter has not changed (no process started) and the link count of `/proc` has not changed either (no
/// process ended: the kernel adds the number of processes to it).
#[derive(Debug, Default)]
pub struct ProcessesSource {
    listed: Option<(ChangeCounters, Vec<u32>)>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChangeCounters {
    forks: u64,
    links: u64,
}

impl Source for ProcessesSource {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        // The counters are read before the list, so a change during the listing gives a new list in the next sample.
        let counters = snapshot
            .cpu
            .and_then(|cpu| Some(ChangeCounters { forks: cpu.forks?, links: root.proc_links()? }));
        let mut pids = snapshot.pids.take().unwrap_or_default();
        match (&self.listed, counters) {
            (Some((then, list)), Some(now)) if *then == now => pids.clone_from(list),
            _ => {
                root.pids(&mut pids, &mut self.buffer)?;
                self.listed = counters.map(|counters| (counters, pids.clone()));
            }
        }
        snapshot.pids = Some(pids);
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
                    // A running kernel does not gain PSI later, so the next ticks do not try again.
                    self.missing = true;
                    return Err(error);
                }
            }
        }
        let [cpu_us, memory_us, io_us] = totals;
        snapshot.pressure = Pressure { cpu_us, memory_us, io_us };
        Ok(())
    }
}
