//! AMD and Intel GPUs: figures of the whole GPU from sysfs, and the job's share from DRM fdinfo.
//!
//! In:  `/sys/class/drm/renderD*/device` and `/proc/[pid]/fdinfo` of the job's DRM descriptors, all through `Root`.
//! Out: one [`Gpu`] per device.
//!
//! The job's usage of a GPU is its usage of the busiest engine class. Memory that two clients share counts for both.
//! The sysfs files of amdgpu are described in `Documentation/gpu/amdgpu/thermal.rst`. i915 and xe report only how long
//! the GPU was idle, so the GPU counts as busy for the rest of the time.

use std::collections::HashMap;

use super::fdinfo::{FdInfo, parse_fdinfo};
use super::open_files::OpenFiles;
use super::{Gpu, GpuReading, Question, Share, Vendor, kfd};
use crate::os::Moment;
use crate::os::root::Root;

/// Display drivers of virtual machines and dummy drivers. Their devices cannot compute, so they do not count as GPUs.
const NO_GPUS: [&str; 9] =
    ["virtio_gpu", "virtio-pci", "bochs-drm", "cirrus", "qxl", "vkms", "vgem", "vmwgfx", "hyperv_drm"];

/// PCI address of Intel's integrated graphics.
const INTEGRATED: &str = "0000:00:02.0";

/// Major number of DRM's device files (`Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 226;

/// The GPUs that were found by their render nodes.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub cards: Vec<Card>,
    /// Name of a GPU driver that neither this module nor NVML supports.
    pub unread: Option<String>,
}

#[derive(Debug)]
pub(super) struct Card {
    driver: Driver,
    pdev: String,
    name: String,
    /// Minor number of the GPU's render node.
    minor: u32,
    /// Folder of the GPU in sysfs.
    device: String,
    /// Folder of the GPU's card node in sysfs, which has the files of i915.
    node: Option<String>,
    hwmon: Option<String>,
    kfd: Option<kfd::Node>,
    /// The GPU's id in ROCm.
    alias: Option<String>,
    /// The value read last. It is used while the GPU is suspended, since reading the file would wake up the GPU.
    vram_total_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Amdgpu,
    I915,
    Xe,
}

/// Finds the GPUs of all render nodes.
pub(super) fn find(root: &Root) -> Found {
    let mut nodes: Vec<u32> =
        root.names("/dev/dri").iter().filter_map(|name| name.strip_prefix("renderD")?.parse().ok()).collect();
    nodes.sort_unstable();
    let mut found = Found::default();
    for minor in nodes {
        let device = format!("/sys/class/drm/renderD{minor}/device");
        let Some(uevent) = root.text(&format!("{device}/uevent")) else { continue };
        let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let driver = match value("DRIVER") {
            Some("amdgpu") => Driver::Amdgpu,
            Some("i915") => Driver::I915,
            Some("xe") => Driver::Xe,
            Some("nvidia") | None => continue,
            Some(other) => {
                if !NO_GPUS.contains(&other) {
                    found.unread = Some(other.to_owned());
                }
                continue;
            }
        };
        let product = root.text(&format!("{device}/product_name")).filter(|name| !name.is_empty());
        let maker = if driver == Driver::Amdgpu { "AMD" } else { "Intel" };
        let name = product.unwrap_or_else(|| {
            format!("{maker} GPU {}", value("PCI_ID").unwrap_or_default()).trim_end().to_owned()
        });
        let child = |folder: &str, prefix: &str| {
            let mut names = root.names(&format!("{device}/{folder}"));
            names.sort();
            let name = names.into_iter().find(|name| name.starts_with(prefix))?;
            Some(format!("{device}/{folder}/{name}"))
        };
        found.cards.push(Card {
            driver,
            pdev: value("PCI_SLOT_NAME").unwrap_or_default().to_owned(),
            name,
            minor,
            node: child("drm", "card"),
            hwmon: child("hwmon", "hwmon"),
            kfd: (driver == Driver::Amdgpu).then(|| kfd::node(root, minor)).flatten(),
            alias: root.text(&format!("{device}/unique_id")).map(|id| format!("GPU-{id}")),
            device,
            vram_total_bytes: None,
        });
    }
    found
}

/// All AMD and Intel GPUs, with the counters of earlier readings.
#[derive(Debug)]
pub(super) struct Drm {
    cards: Vec<Card>,
    /// Counters of earlier readings, oldest first.
    past: Vec<Counters>,
    is_container: bool,
    buffer: Vec<u8>,
}

/// Clients of the job, by PCI address of the GPU and client id.
type Clients = HashMap<(String, u64), FdInfo>;

/// All counters of one reading.
#[derive(Clone, Debug, Default)]
struct Counters {
    at_ns: u64,
    clients: Clients,
    cards: Vec<CardCounters>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CardCounters {
    idle_ms: Option<u64>,
    energy_uj: Option<u64>,
}

/// Maximum number of earlier readings to keep, which limits memory if many readings fall into one row.
const MAX_PAST: usize = 32;

impl Drm {
    pub(super) const fn new(cards: Vec<Card>, is_container: bool) -> Self {
        Self { cards, past: Vec::new(), is_container, buffer: Vec::new() }
    }

    pub(super) fn read(
        &mut self,
        root: &Root,
        question: &Question,
        files: &OpenFiles,
        at: Moment,
        reading: &mut GpuReading,
    ) {
        let clients = self.clients(root, files);
        let then = self.then(question.since_ns, &clients);
        let elapsed_ns = then
            .as_ref()
            .and_then(|then| at.monotonic_ns.checked_sub(then.at_ns))
            .filter(|elapsed| *elapsed > 0);
        let only_one = self.cards.len() == 1;
        let mut counters = Vec::new();
        for (place, card) in self.cards.iter_mut().enumerate() {
            // Drivers before 2022 do not report which GPU a client uses. With a single GPU the answer is clear.
            let is_here = |info: &&FdInfo| info.pdev == card.pdev || (info.pdev.is_empty() && only_one);
            let here: Vec<&FdInfo> = clients.values().filter(is_here).collect();
            let job = Share {
                usage: busiest(&here, then.as_ref().map(|then| &then.clients), elapsed_ns),
                vram_bytes: here.iter().map(|info| info.vram_bytes()).sum(),
                is_estimate: false,
            };
            let holders = if self.is_container { here.len() } else { 0 };
            let before = then.as_ref().and_then(|then| then.cards.get(place).copied()).unwrap_or_default();
            let (gpu, now) = card.read(root, question, job, holders, before, elapsed_ns);
            reading.gpus.push(gpu);
            counters.push(now);
        }
        self.past.push(Counters { at_ns: at.monotonic_ns, clients, cards: counters });
    }

    /// The earlier counters to compare with. For a window: the last counters before its start; new clients then count
    /// from 0. For a single reading: the last counters that contain the same clients.
    fn then(&mut self, since_ns: Option<u64>, clients: &Clients) -> Option<Counters> {
        let place = match since_ns {
            Some(since_ns) => {
                let place = self.past.iter().rposition(|past| past.at_ns <= since_ns).unwrap_or(0);
                // Older counters are not needed: no later window starts before this one.
                self.past.drain(..place);
                0
            }
            None => self
                .past
                .iter()
                .rposition(|past| clients.keys().all(|client| past.clients.contains_key(client)))?,
        };
        let then = self.past.get(place).cloned();
        if self.past.len() >= MAX_PAST {
            // The first counters are those at the start of the current row, so the second ones are removed.
            self.past.remove(1);
        }
        then
    }

    /// Reads every client of the job. A client that several processes have open is listed once.
    fn clients(&mut self, root: &Root, files: &OpenFiles) -> Clients {
        let mut clients = Clients::new();
        for (pid, fd) in files.drm() {
            let path = format!("/proc/{pid}/fdinfo/{fd}");
            let Ok(text) = root.read(&path, &mut self.buffer) else { continue };
            if let Some(info) = parse_fdinfo(&String::from_utf8_lossy(text)) {
                clients.insert((info.pdev.clone(), info.client_id), info);
            }
        }
        clients
    }
}

impl Card {
    /// Reads the GPU, and its counters for the next reading. In a container KFD lists other pids than the job's, so
    /// the job's share is estimated from `holders`, the number of its clients. On the host `holders` is 0.
    fn read(
        &mut self,
        root: &Root,
        question: &Question,
        job: Share,
        holders: usize,
        before: CardCounters,
        elapsed_ns: Option<u64>,
    ) -> (Gpu, CardCounters) {
        let number = |path: &str| root.text(path).and_then(|text| text.parse::<u64>().ok());
        let of_device = |file: &str| number(&format!("{}/{file}", self.device));
        let of_hwmon = |file: &str| number(&format!("{}/{file}", self.hwmon.as_ref()?));
        let of_card = |file: &str| number(&format!("{}/{file}", self.node.as_ref()?));
        let mut gpu = Gpu {
            vendor: if self.driver == Driver::Amdgpu { Vendor::Amd } else { Vendor::Intel },
            name: self.name.clone(),
            id: self.pdev.clone(),
            device: Some((MAJOR, self.minor)),
            aliases: self.alias.iter().cloned().collect(),
            job,
            is_allowed: true,
            ..Gpu::default()
        };
        let mut now = CardCounters::default();
        if root.text(&format!("{}/power/runtime_status", self.device)).as_deref() == Some("suspended") {
            // Reading the other files would fail or wake up the GPU.
            gpu.usage = Some(0.0);
            gpu.vram_used_bytes = Some(0);
            gpu.vram_total_bytes = self.vram_total_bytes;
            return (gpu, now);
        }
        // Some GPUs have only the second sensor, which measures the hottest spot.
        let millidegrees = of_hwmon("temp1_input").or_else(|| of_hwmon("temp2_input"));
        gpu.temperature_c = millidegrees.map(|millidegrees| decimal(millidegrees) / 1e3);
        match self.driver {
            Driver::Amdgpu => {
                gpu.usage = of_device("gpu_busy_percent")
                    .filter(|percent| *percent <= 100)
                    .map(|n| decimal(n) / 100.0);
                gpu.vram_used_bytes = of_device("mem_info_vram_used");
                gpu.vram_total_bytes = of_device("mem_info_vram_total");
                let microwatts = of_hwmon("power1_average").or_else(|| of_hwmon("power1_input"));
                gpu.power_w = microwatts.map(|microwatts| decimal(microwatts) / 1e6);
                gpu.clock_mhz = of_hwmon("freq1_input").map(|hertz| decimal(hertz) / 1e6);
                if let Some(node) = &self.kfd {
                    add_compute(&mut gpu, kfd::read(root, node.gpu_id, &question.members), holders);
                    // The VRAM of an APU is a reserved part of the machine's memory.
                    if node.is_integrated {
                        gpu.vram_total_bytes = Some(0);
                    }
                }
            }
            Driver::I915 | Driver::Xe => {
                now.idle_ms = match self.driver {
                    Driver::Xe => of_device("tile0/gt0/gtidle/idle_residency_ms"),
                    // With RC6 sleep states disabled an idle GPU stays awake, so the counter shows no idle time.
                    _ if of_card("power/rc6_enable") == Some(0) => None,
                    _ => of_card("gt/gt0/rc6_residency_ms").or_else(|| of_card("power/rc6_residency_ms")),
                };
                gpu.usage = awake(before.idle_ms, now.idle_ms, elapsed_ns);
                gpu.clock_mhz = match self.driver {
                    Driver::Xe => of_device("tile0/gt0/freq0/act_freq"),
                    _ => of_card("gt/gt0/rps_act_freq_mhz").or_else(|| of_card("gt_act_freq_mhz")),
                }
                .map(decimal);
                let total =
                    of_device("tile0/physical_vram_size_bytes").or_else(|| of_card("lmem_total_bytes"));
                let free = of_card("lmem_avail_bytes");
                // Integrated graphics have no dedicated memory. Discrete GPUs have some, but few kernels report it.
                let none = (self.pdev == INTEGRATED).then_some(0);
                gpu.vram_total_bytes = total.or(none);
                gpu.vram_used_bytes = total.map_or(none, |total| total.checked_sub(free?));
                now.energy_uj = of_hwmon("energy1_input");
                let joules =
                    before.energy_uj.zip(now.energy_uj).and_then(|(then, now)| now.checked_sub(then));
                gpu.power_w = joules.zip(elapsed_ns).map(|(uj, ns)| decimal(uj) * 1e3 / decimal(ns));
            }
        }
        self.vram_total_bytes = gpu.vram_total_bytes;
        (gpu, now)
    }
}

/// Adds the usage of ROCm processes, which engine counters do not include. In a container the job's `holders` are taken
/// as that many ROCm processes.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "part of a number of bytes far below 2^53"
)]
fn add_compute(gpu: &mut Gpu, compute: kfd::Compute, holders: usize) {
    if compute.job_processes > 0 {
        gpu.job.vram_bytes = Some(gpu.job.vram_bytes.unwrap_or(0).max(compute.job_bytes));
        // If no other process uses the GPU, its whole usage is the job's.
        gpu.job.usage = gpu.usage.filter(|_| compute.other_processes == 0);
    } else if holders > 0 && compute.other_processes > 0 {
        let part = (holders as f64 / f64::from(compute.other_processes)).min(1.0);
        let bytes = (decimal(compute.other_bytes) * part) as u64;
        gpu.job = Share {
            usage: gpu.usage.map(|usage| usage * part),
            vram_bytes: Some(gpu.job.vram_bytes.unwrap_or(0).max(bytes)),
            is_estimate: true,
        };
    }
}

/// Share of the time in which a GPU was not idle.
fn awake(idle_then_ms: Option<u64>, idle_now_ms: Option<u64>, elapsed_ns: Option<u64>) -> Option<f64> {
    let idle_ms = idle_now_ms?.checked_sub(idle_then_ms?)?;
    // The counter has a resolution of 1 ms, so idle time may exceed the elapsed time slightly.
    Some((1.0 - decimal(idle_ms) * 1e6 / decimal(elapsed_ns?)).max(0.0))
}

/// Usage of the busiest engine class; `None` without earlier counters, or if a counter was reset.
fn busiest(clients: &[&FdInfo], then: Option<&Clients>, elapsed_ns: Option<u64>) -> Option<f64> {
    if clients.is_empty() {
        return Some(0.0);
    }
    let (then, elapsed_ns) = (then?, elapsed_ns?);
    let mut by_class: HashMap<&str, f64> = HashMap::new();
    for client in clients {
        let before = then.get(&(client.pdev.clone(), client.client_id));
        for engine in &client.engines {
            let was = before.and_then(|before| before.engines.iter().find(|was| was.class == engine.class));
            let used = if let Some(busy_ns) = engine.busy_ns {
                // The counter of a new client started at 0.
                let grown_ns = busy_ns.checked_sub(was.map_or(Some(0), |was| was.busy_ns)?)?;
                decimal(grown_ns) / decimal(elapsed_ns)
            } else if let (Some(cycles), Some(total)) = (engine.cycles, engine.total_cycles) {
                let total_then = was.and_then(|was| was.total_cycles).or_else(|| {
                    // All clients of a GPU report the same `total_cycles`: a new client uses that of another one.
                    let others = then.values().filter(|other| other.pdev == client.pdev);
                    others
                        .flat_map(|other| &other.engines)
                        .find(|other| other.class == engine.class)?
                        .total_cycles
                })?;
                let grown = cycles.checked_sub(was.map_or(Some(0), |was| was.cycles)?)?;
                let passed = total.checked_sub(total_then)?;
                if passed == 0 { 0.0 } else { decimal(grown) / decimal(passed) }
            } else {
                continue;
            };
            let capacity = decimal(engine.capacity.filter(|capacity| *capacity > 0).unwrap_or(1));
            *by_class.entry(engine.class.as_str()).or_default() += used / capacity;
        }
    }
    // The result is capped at 1, since counters and clock are read at slightly different moments.
    Some(by_class.values().copied().fold(0.0, f64::max).min(1.0))
}

#[expect(clippy::cast_precision_loss, reason = "growth of counters within one interval, far below 2^53")]
fn decimal(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(id: u64, text: &str) -> FdInfo {
        parse_fdinfo(&format!("drm-pdev: a\ndrm-client-id: {id}\n{text}")).unwrap()
    }

    fn used(then: &[FdInfo], now: &[FdInfo], elapsed_ns: u64) -> Option<f64> {
        let then = then.iter().map(|info| ((info.pdev.clone(), info.client_id), info.clone())).collect();
        busiest(&now.iter().collect::<Vec<_>>(), Some(&then), Some(elapsed_ns))
    }

    #[test]
    fn usage_is_that_of_the_busiest_engine_class() {
        let then = [client(1, "drm-engine-gfx: 100 ns\ndrm-engine-enc: 0 ns")];
        let now = [
            client(1, "drm-engine-gfx: 350 ns\ndrm-engine-enc: 100 ns"),
            client(2, "drm-engine-gfx: 250 ns\ndrm-engine-enc: 0 ns"),
        ];
        assert_eq!(used(&then, &now, 1000), Some(0.5));
        let two_engines = [client(2, "drm-engine-video: 1000 ns\ndrm-engine-capacity-video: 2")];
        assert_eq!(used(&then, &two_engines, 1000), Some(0.5));
    }

    #[test]
    fn reset_counter_and_first_reading_are_unknown() {
        let then = [client(1, "drm-engine-gfx: 100 ns")];
        assert_eq!(used(&then, &[client(1, "drm-engine-gfx: 99 ns")], 1000), None);
        assert_eq!(busiest(&[&then[0]], None, None), None);
        assert_eq!(busiest(&[], None, None), Some(0.0), "no client, no use");
    }

    #[test]
    fn counters_are_compared_with_the_row_start_or_with_the_last_reading_of_the_same_clients() {
        let counters = |at_ns, ids: &[u64]| {
            let one = |id: &u64| (("a".to_owned(), *id), client(*id, ""));
            Counters { at_ns, clients: ids.iter().map(one).collect(), cards: Vec::new() }
        };
        let mut drm = Drm::new(Vec::new(), false);
        let mut then = |past: &[Counters], since_ns, now: &Counters| {
            drm.past = past.to_vec();
            let then = drm.then(since_ns, &now.clients);
            (then.map(|then| then.at_ns), drm.past.len())
        };
        let past = [counters(10, &[1]), counters(20, &[]), counters(30, &[2]), counters(40, &[1, 2])];
        // Single readings within a row do not change its window.
        assert_eq!(then(&past, Some(25), &counters(50, &[1])), (Some(20), 3));
        assert_eq!(then(&past, Some(5), &counters(50, &[1])), (Some(10), 4));
        assert_eq!(then(&[], Some(5), &counters(50, &[1])), (None, 0));
        // A single reading is not compared with readings that lack one of its clients.
        assert_eq!(then(&past[..3], None, &counters(50, &[1])).0, Some(10));
        assert_eq!(then(&past[..3], None, &counters(50, &[3])).0, None, "a new client has no usage yet");
        let many: Vec<Counters> = (0..40).map(|at| counters(at, &[1])).collect();
        assert_eq!(then(&many, Some(0), &counters(50, &[1])), (Some(0), 39));
    }

    #[test]
    fn rocm_share_in_a_container_is_an_estimate() {
        let compute = kfd::Compute { other_bytes: 800, other_processes: 2, ..kfd::Compute::default() };
        let mut gpu = Gpu { usage: Some(0.5), job: Share::NOTHING, ..Gpu::default() };
        add_compute(&mut gpu, compute, 0);
        assert_eq!(gpu.job, Share::NOTHING);
        add_compute(&mut gpu, compute, 1);
        assert_eq!(gpu.job, Share { usage: Some(0.25), vram_bytes: Some(400), is_estimate: true });
    }

    #[test]
    fn usage_by_cycles_is_relative_to_passed_cycles() {
        let text =
            |cycles: u64, total: u64| format!("drm-cycles-ccs: {cycles}\ndrm-total-cycles-ccs: {total}");
        let then = [client(1, &text(100, 1000))];
        let now = [client(1, &text(150, 1200)), client(2, &text(50, 1200))];
        assert_eq!(used(&then, &now, 7), Some(0.5));
    }

    #[test]
    fn time_that_is_not_idle_counts_as_busy() {
        assert_eq!(awake(Some(1000), Some(1250), Some(1_000_000_000)), Some(0.75));
        assert_eq!(awake(Some(0), Some(1001), Some(1_000_000_000)), Some(0.0));
        assert_eq!(awake(Some(5), Some(4), Some(1)), None);
        assert_eq!(awake(None, Some(4), Some(1)), None);
    }

    proptest! {
        #[test]
        fn usage_is_between_0_and_1(then in any::<u64>(), now in any::<u64>(), elapsed_ns in 1_u64..u64::MAX) {
            let text = |ns: u64| format!("drm-engine-gfx: {ns} ns");
            let found = used(&[client(1, &text(then))], &[client(1, &text(now))], elapsed_ns);
            prop_assert!(found.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
            prop_assert_eq!(found.is_none(), now < then);
        }
    }
}
