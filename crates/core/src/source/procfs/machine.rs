//! The machine as `/proc/stat`, the list of processes, `/proc/meminfo` and `/proc/pressure` show it.

use super::{KeptFile, parse_meminfo, parse_single_cpus, parse_some_us, parse_stat, unparsed};
use crate::error::SourceError;
use crate::root::{Root, Shape};
use crate::snapshot::Snapshot;
use crate::source::Source;

/// `/proc/stat`.
#[derive(Debug, Default)]
pub struct CpuSource(KeptFile);

impl Source for CpuSource {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/stat";
        let text = self.0.text(root, PATH, Shape::Whole)?;
        let stat = parse_stat(text).map_err(unparsed(PATH))?;
        // Who is nobody's guest does without the single CPUs.
        if stat.steal_ticks > 0 {
            snapshot.single_cpus = parse_single_cpus(text);
        }
        snapshot.cpu = Some(stat.machine_cpu());
        Ok(())
    }
}

/// The numbers in `/proc`.
///
/// Listing them is the dearest reading of a quiet machine. Nothing was started while the fork counter stands still,
/// and nothing has ended while `/proc` has the same number of links (the kernel counts its processes there): then
/// the last list is still true, and is not made again.
#[derive(Debug, Default)]
pub struct ProcessesSource {
    listed: Option<(Signs, Vec<u32>)>,
    buffer: Vec<u8>,
}

/// What changes whenever the list does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    forks: u64,
    links: u64,
}

impl Source for ProcessesSource {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        // Both are read before the list: what starts or ends meanwhile changes them once more.
        let signs = snapshot.cpu.and_then(|cpu| Some(Signs { forks: cpu.forks?, links: root.proc_links()? }));
        let mut pids = snapshot.pids.take().unwrap_or_default();
        match (&self.listed, signs) {
            (Some((then, list)), Some(now)) if *then == now => pids.clone_from(list),
            _ => {
                root.pids(&mut pids, &mut self.buffer)?;
                self.listed = signs.map(|signs| (signs, pids.clone()));
            }
        }
        snapshot.pids = Some(pids);
        Ok(())
    }
}

/// `/proc/meminfo`.
#[derive(Debug, Default)]
pub struct MemorySource(KeptFile);

impl Source for MemorySource {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/meminfo";
        let text = self.0.text(root, PATH, Shape::Whole)?;
        snapshot.memory = Some(parse_meminfo(text).map_err(unparsed(PATH))?.machine_memory());
        Ok(())
    }
}

/// `/proc/pressure`; kernels without PSI simply have no such figures.
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
            match file.text(root, path, Shape::Whole) {
                Ok(text) => *total = Some(parse_some_us(text).map_err(unparsed(path))?),
                Err(error) => {
                    // Not asked for again at each tick: PSI does not appear on a running kernel.
                    self.missing = true;
                    return Err(error);
                }
            }
        }
        let [cpu_us, memory_us, io_us] = totals;
        snapshot.pressure = crate::snapshot::Pressure { cpu_us, memory_us, io_us };
        Ok(())
    }
}
