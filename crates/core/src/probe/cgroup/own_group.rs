//! The cgroup of the tracker: the time for which its CPU quota throttled it, and the memory charged to it.

use super::groups::{groups_of, parse_key};
use super::limits::cpu_limit;
use crate::error::SourceError;
use crate::os::root::{Kept, Root};
use crate::probe::Source;
use crate::probe::snapshot::Snapshot;

#[derive(Debug)]
pub struct OwnGroupSource {
    /// The file `cpu.stat`, the key of the throttled time in this file, and the unit of the time in nanoseconds.
    throttle: Option<(Kept, &'static str, u64)>,
    memory: Option<Kept>,
    buffer: Vec<u8>,
}

impl OwnGroupSource {
    /// Finds the files. This is done once per run, since processes rarely change their cgroup.
    pub fn new(root: &Root) -> Self {
        let groups = groups_of(root, "self");
        let throttle = groups.iter().filter(|group| group.unified || group.has("cpu")).find_map(|group| {
            // Throttled time is counted by the group that has the quota, which may be an ancestor of this group.
            let limited = group.upwards().find(|folder| cpu_limit(root, group.unified, folder).is_some())?;
            let kept = root.keep(&format!("{limited}/cpu.stat")).ok()?;
            Some(if group.unified { (kept, "throttled_usec", 1_000) } else { (kept, "throttled_time", 1) })
        });
        let memory = groups.iter().filter(|group| group.unified || group.has("memory")).find_map(|group| {
            let file = if group.unified { "memory.current" } else { "memory.usage_in_bytes" };
            root.keep(&format!("{}/{file}", group.folder)).ok()
        });
        Self { throttle, memory, buffer: Vec::new() }
    }
}

impl Source for OwnGroupSource {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        if let Some((kept, key, unit_ns)) = &self.throttle {
            let text = root.reread(kept, &mut self.buffer)?;
            snapshot.throttled_ns = parse_key(text, key).and_then(|time| time.checked_mul(*unit_ns));
        }
        if let Some(kept) = &self.memory {
            let text = root.reread(kept, &mut self.buffer)?;
            snapshot.cgroup_memory_bytes =
                std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        }
        Ok(())
    }
}
