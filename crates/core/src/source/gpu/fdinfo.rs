//! `/proc/[pid]/fdinfo/[fd]` of a DRM device: what one client of a GPU's driver has used.
//!
//! In:  the file's text. Out: [`FdInfo`] in the kernel's own counters; `drm` makes rates of two of them.
//!
//! The map of this file is the kernel's `Documentation/gpu/drm-usage-stats.rst`.

/// A client of a GPU. The same client behind two descriptors, of one process or of several, has one number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FdInfo {
    /// PCI address of the GPU.
    pub pdev: String,
    pub client_id: u64,
    pub engines: Vec<Engine>,
    pub regions: Vec<Region>,
}

/// What a client did on engines of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Engine {
    pub class: String,
    /// Time that it was busy for the client.
    pub busy_ns: Option<u64>,
    /// The same in cycles of its clock, beside all that passed (xe).
    pub cycles: Option<u64>,
    pub total_cycles: Option<u64>,
    /// Engines of this class; 1 where the driver does not say.
    pub capacity: Option<u64>,
}

/// What a client holds in one kind of memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    pub name: String,
    pub total_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    /// The older name of resident.
    pub memory_bytes: Option<u64>,
}

impl Region {
    /// Memory of the GPU's own: `vram` of amdgpu, `vram0` of xe, `local0` of i915.
    fn is_vram(&self) -> bool {
        self.name.starts_with("vram") || self.name.starts_with("local")
    }

    /// What is really there, else what was asked for.
    fn bytes(&self) -> Option<u64> {
        self.resident_bytes.or(self.memory_bytes).or(self.total_bytes)
    }
}

impl FdInfo {
    /// Memory of the GPU's own; `None` where the driver tells of no memory at all.
    pub(super) fn vram_bytes(&self) -> Option<u64> {
        if self.regions.is_empty() {
            return None;
        }
        self.regions.iter().filter(|region| region.is_vram()).map(Region::bytes).sum()
    }
}

/// `None` for a descriptor of anything else.
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

/// Longer prefixes stand before those that they start with.
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

/// `<number> [KiB|MiB]`; without a unit they are bytes.
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
    fn every_driver_has_its_own_words_for_the_same_things() {
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
    fn other_descriptors_are_no_clients_and_unknown_units_are_unknown() {
        assert_eq!(parse_fdinfo("pos:\t0\nflags:\t0100002\nmnt_id:\t21\n"), None);
        let info = parse_fdinfo("drm-client-id: 1\ndrm-total-vram: 5 pages\n").unwrap();
        assert_eq!(info.vram_bytes(), None);
        assert_eq!(parse_fdinfo("drm-client-id: 1\n").unwrap().vram_bytes(), None);
    }

    proptest! {
        /// A driver may write what it likes: it never stops us.
        #[test]
        fn no_text_panics(text in "(drm-(engine|total|memory|cycles|client|id|-)*: ?[0-9 a-zA-Z]{0,12}\n){0,20}") {
            let _ = parse_fdinfo(&text);
        }
    }
}
