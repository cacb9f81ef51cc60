//! `/proc/[pid]/fdinfo/[fd]` of a DRM device: GPU usage of one client of the driver.
//!
//! In:  the file's text. Out: [`FdInfo`] with the kernel's counters. `drm` computes usage from two readings.
//!
//! Format: `Documentation/gpu/drm-usage-stats.rst` of the kernel.

/// A client of a GPU driver. All descriptors of a client have the same id, also in different processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FdInfo {
    /// PCI address of the GPU.
    pub pdev: String,
    pub client_id: u64,
    pub engines: Vec<Engine>,
    pub regions: Vec<Region>,
}

/// A client's usage of all engines of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Engine {
    pub class: String,
    pub busy_ns: Option<u64>,
    /// `cycles` in which the client was busy, out of `total_cycles`. Only xe reports them.
    pub cycles: Option<u64>,
    pub total_cycles: Option<u64>,
    /// Number of engines of this class; `None` means 1.
    pub capacity: Option<u64>,
}

/// A client's memory in one memory region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    pub name: String,
    pub total_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    /// `drm-memory-…`, the older name of `drm-resident-…`.
    pub memory_bytes: Option<u64>,
}

impl Region {
    /// Whether the region is dedicated memory: `vram` of amdgpu, `vram0` of xe, `local0` of i915.
    fn is_vram(&self) -> bool {
        self.name.starts_with("vram") || self.name.starts_with("local")
    }

    /// Resident memory; if the driver does not report it, allocated memory.
    fn bytes(&self) -> Option<u64> {
        self.resident_bytes.or(self.memory_bytes).or(self.total_bytes)
    }
}

impl FdInfo {
    /// Dedicated memory of the client; `None` if the driver reports no memory at all.
    pub(super) fn vram_bytes(&self) -> Option<u64> {
        if self.regions.is_empty() {
            return None;
        }
        self.regions.iter().filter(|region| region.is_vram()).map(Region::bytes).sum()
    }
}

/// `None` if the descriptor is not a DRM client.
pub(super) fn parse_fdinfo(text: &str) -> Option<FdInfo> {
    let mut info = FdInfo::default();
    let mut client_id = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (Some(key), value) = (key.strip_prefix("drm-"), value.trim()) else { continue };
        match key {
            "client-id" => client_id = value.parse().ok(),
            "pdev" => value.clone_into(&mut info.pdev),
            _ => add(&mut info, key, value),
        }
    }
    info.client_id = client_id?;
    Some(info)
}

/// Stores one line. Longer prefixes are tested first, since some keys start with another key.
fn add(info: &mut FdInfo, key: &str, value: &str) {
    if let Some(class) = key.strip_prefix("engine-capacity-") {
        engine(info, class).capacity = value.parse().ok();
    } else if let Some(class) = key.strip_prefix("engine-") {
        engine(info, class).busy_ns = value.strip_suffix("ns").and_then(|ns| ns.trim().parse().ok());
    } else if let Some(class) = key.strip_prefix("total-cycles-") {
        engine(info, class).total_cycles = value.parse().ok();
    } else if let Some(class) = key.strip_prefix("cycles-") {
        engine(info, class).cycles = value.parse().ok();
    } else if let Some(name) = key.strip_prefix("total-") {
        region(info, name).total_bytes = bytes(value);
    } else if let Some(name) = key.strip_prefix("resident-") {
        region(info, name).resident_bytes = bytes(value);
    } else if let Some(name) = key.strip_prefix("memory-") {
        region(info, name).memory_bytes = bytes(value);
    }
}

fn engine<'i>(info: &'i mut FdInfo, class: &str) -> &'i mut Engine {
    let at = info.engines.iter().position(|engine| engine.class == class).unwrap_or_else(|| {
        info.engines.push(Engine { class: class.to_owned(), ..Engine::default() });
        info.engines.len() - 1
    });
    &mut info.engines[at]
}

fn region<'i>(info: &'i mut FdInfo, name: &str) -> &'i mut Region {
    let at = info.regions.iter().position(|region| region.name == name).unwrap_or_else(|| {
        info.regions.push(Region { name: name.to_owned(), ..Region::default() });
        info.regions.len() - 1
    });
    &mut info.regions[at]
}

/// Parses `<number> [KiB|MiB]`. A number without a unit is in bytes.
fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let factor = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_of_all_drivers_are_understood() {
        let amd = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t42\n\
                   drm-memory-vram:\t2048 KiB\ndrm-memory-gtt:\t64 KiB\ndrm-engine-gfx:\t5000 ns\n";
        let info = parse_fdinfo(amd).unwrap();
        assert_eq!(
            (info.pdev.as_str(), info.client_id, info.vram_bytes()),
            ("0000:03:00.0", 42, Some(2 << 20))
        );
        assert_eq!(info.engines.first().unwrap().busy_ns, Some(5000));
        let intel = "drm-client-id: 7\ndrm-engine-capacity-video: 2\ndrm-engine-video: 9 ns\n\
                     drm-total-local0: 8 MiB\ndrm-resident-local0: 3 MiB\ndrm-total-system0: 99 MiB\n";
        let info = parse_fdinfo(intel).unwrap();
        assert_eq!(info.vram_bytes(), Some(3 << 20));
        let video = info.engines.first().unwrap();
        assert_eq!((info.engines.len(), video.capacity, video.busy_ns), (1, Some(2), Some(9)));
        let xe = "drm-client-id:\t1\ndrm-cycles-ccs:\t50\ndrm-total-cycles-ccs:\t200\ndrm-total-vram0:\t5\n";
        let info = parse_fdinfo(xe).unwrap();
        let ccs = info.engines.first().unwrap();
        assert_eq!((ccs.cycles, ccs.total_cycles, info.vram_bytes()), (Some(50), Some(200), Some(5)));
    }

    #[test]
    fn other_descriptors_are_ignored_and_unknown_units_are_unknown() {
        assert_eq!(parse_fdinfo("pos:\t0\nflags:\t0100002\nmnt_id:\t21\n"), None);
        let info = parse_fdinfo("drm-client-id: 1\ndrm-total-vram: 5 pages\n").unwrap();
        assert_eq!(info.vram_bytes(), None);
        assert_eq!(parse_fdinfo("drm-client-id: 1\n").unwrap().vram_bytes(), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(drm-(engine|total|memory|cycles|client|id|-)*: ?[0-9 a-zA-Z]{0,12}\n){0,20}") {
            let _ = parse_fdinfo(&text);
        }
    }
}
