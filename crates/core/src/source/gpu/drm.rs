//! AMD and Intel GPUs: sysfs for the device, DRM fdinfo for the job.
//!
//! In:  `/sys/class/drm/renderD*/device` and `/proc/[pid]/fdinfo` of the job's DRM descriptors, all through `Root`.
//! Out: a [`Gpu`] each.
//!
//! A GPU is as busy for the job as its busiest class of engines. Memory that two clients share counts for both.
//! What sysfs offers: `Documentation/gpu/amdgpu/thermal.rst` for amdgpu; idle residency for i915 and xe, by which a
//! GPU counts as busy while it is awake.

use std::collections::HashMap;

use super::fdinfo::{FdInfo, parse_fdinfo};
use super::open_files::OpenFiles;
use super::{Gpu, GpuReading, Question, Share, Vendor, kfd};
use crate::root::Root;
use crate::snapshot::Moment;

/// Drivers that show a screen of a virtual machine, or nothing: no GPU to compute with.
const NO_GPUS: [&str; 9] =
    ["virtio_gpu", "virtio-pci", "bochs-drm", "cirrus", "qxl", "vkms", "vgem", "vmwgfx", "hyperv_drm"];

/// Where the graphics of an Intel processor are on its bus.
const INTEGRATED: &str = "0000:00:02.0";

/// Of DRM's device files (`Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 226;

/// Which GPUs are behind the render nodes.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub cards: Vec<Card>,
    /// A driver that is not read here, nor by NVML.
    pub unread: Option<String>,
}

/// A GPU.
#[derive(Debug)]
pub(super) struct Card {
    driver: Driver,
    pdev: String,
    name: String,
    /// Of its render node.
    minor: u32,
    /// Its folder in sysfs.
    device: String,
    /// The folder of its card node, where i915 keeps its own files.
    node: Option<String>,
    hwmon: Option<String>,
    kfd: Option<kfd::Node>,
    /// By which ROCm calls it.
    alias: Option<String>,
    /// As last read: a GPU that sleeps is not woken up for it.
    vram_total_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Amdgpu,
    I915,
    Xe,
}

/// Looks for render nodes.
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

/// All of them, with the counters of earlier looks.
#[derive(Debug)]
pub(super) struct Drm {
    cards: Vec<Card>,
    /// The oldest first.
    looks: Vec<Look>,
    is_container: bool,
    buffer: Vec<u8>,
}

/// By GPU and client.
type Clients = HashMap<(String, u64), FdInfo>;

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
struct Look {
    at_ns: u64,
    clients: Clients,
    cards: Vec<CardCounters>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CardCounters {
    idle_ms: Option<u64>,
    energy_uj: Option<u64>,
}

/// So many looks are kept for those to come.
const MOST_LOOKS: usize = 32;

impl Drm {
    pub(super) const fn new(cards: Vec<Card>, is_container: bool) -> Self {
        Self { cards, looks: Vec::new(), is_container, buffer: Vec::new() }
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
            // Drivers of before 2022 do not say which GPU a client belongs to.
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
        self.looks.push(Look { at_ns: at.monotonic_ns, clients, cards: counters });
    }

    /// The look with which to compare. Whoever follows a job wants all since a moment: the last look before it, and a
    /// client that came since then started from 0. A single look is compared with the last one that knew the same
    /// clients, whoever was asked about in between.
    fn then(&mut self, since_ns: Option<u64>, clients: &Clients) -> Option<Look> {
        let place = match since_ns {
            Some(since_ns) => {
                let place = self.looks.iter().rposition(|look| look.at_ns <= since_ns).unwrap_or(0);
                // The next question is about no earlier time.
                self.looks.drain(..place);
                0
            }
            None => self
                .looks
                .iter()
                .rposition(|look| clients.keys().all(|client| look.clients.contains_key(client)))?,
        };
        let then = self.looks.get(place).cloned();
        if self.looks.len() >= MOST_LOOKS {
            // Not the one that a row began with.
            self.looks.remove(1);
        }
        then
    }

    /// Every client of the job once, whoever has it open.
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
    /// The GPU, and its counters for the next look; `holders` are clients of the job where numbers of processes say
    /// nothing.
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
            // It would be woken up for the rest, or refuse it.
            gpu.usage = Some(0.0);
            gpu.vram_used_bytes = Some(0);
            gpu.vram_total_bytes = self.vram_total_bytes;
            return (gpu, now);
        }
        // Some have only the second, at the hottest place.
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
                    add_compute(&mut gpu, kfd::look(root, node.gpu_id, &question.members), holders);
                    // The part of a machine's memory that its firmware sets aside for the graphics of the processor.
                    if node.is_integrated {
                        gpu.vram_total_bytes = Some(0);
                    }
                }
            }
            Driver::I915 | Driver::Xe => {
                now.idle_ms = match self.driver {
                    Driver::Xe => of_device("tile0/gt0/gtidle/idle_residency_ms"),
                    // One that is kept from sleeping is awake and may do nothing.
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
                // Without memory of its own a GPU holds none of it. Other than on a processor, at the place that all
                // of them have, it has some, of which few kernels tell.
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

/// ROCm's processes, whose work no engine counts. Where their numbers are the host's, the job's `holders` stand for as
/// many of them.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a number of bytes that is far below 2^53"
)]
fn add_compute(gpu: &mut Gpu, compute: kfd::Compute, holders: usize) {
    if compute.job_processes > 0 {
        gpu.job.vram_bytes = Some(gpu.job.vram_bytes.unwrap_or(0).max(compute.job_bytes));
        // Where nobody else computes here, what it does it does for the job.
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

/// Part of the time in which a GPU was not idle.
fn awake(idle_then_ms: Option<u64>, idle_now_ms: Option<u64>, elapsed_ns: Option<u64>) -> Option<f64> {
    let idle_ms = idle_now_ms?.checked_sub(idle_then_ms?)?;
    // The counter steps by milliseconds: a little more than all of the time is all of it.
    Some((1.0 - decimal(idle_ms) * 1e6 / decimal(elapsed_ns?)).max(0.0))
}

/// How busy the clients kept their busiest class of engines; `None` before the second look, and where a counter went
/// back.
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
                // A client that came since then started from 0.
                let grown_ns = busy_ns.checked_sub(was.map_or(Some(0), |was| was.busy_ns)?)?;
                decimal(grown_ns) / decimal(elapsed_ns)
            } else if let (Some(cycles), Some(total)) = (engine.cycles, engine.total_cycles) {
                let total_then = was.and_then(|was| was.total_cycles).or_else(|| {
                    // The clock is the GPU's: any client tells where it stood.
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
    // Counters and our clock are not read in one moment.
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
    fn a_gpu_is_as_busy_as_its_busiest_engines() {
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
    fn a_counter_that_went_back_and_a_first_look_are_unknown() {
        let then = [client(1, "drm-engine-gfx: 100 ns")];
        assert_eq!(used(&then, &[client(1, "drm-engine-gfx: 99 ns")], 1000), None);
        assert_eq!(busiest(&[&then[0]], None, None), None);
        assert_eq!(busiest(&[], None, None), Some(0.0), "no client, no use");
    }

    #[test]
    fn rows_are_counted_from_their_beginning_and_single_looks_from_the_last_at_the_same_client() {
        let look = |at_ns, ids: &[u64]| {
            let one = |id: &u64| (("a".to_owned(), *id), client(*id, ""));
            Look { at_ns, clients: ids.iter().map(one).collect(), cards: Vec::new() }
        };
        let mut drm = Drm::new(Vec::new(), false);
        let mut then = |looks: &[Look], since_ns, now: &Look| {
            drm.looks = looks.to_vec();
            let then = drm.then(since_ns, &now.clients);
            (then.map(|look| look.at_ns), drm.looks.len())
        };
        let looks = [look(10, &[1]), look(20, &[]), look(30, &[2]), look(40, &[1, 2])];
        // Looks between two rows do not shorten what a row counts.
        assert_eq!(then(&looks, Some(25), &look(50, &[1])), (Some(20), 3));
        assert_eq!(then(&looks, Some(5), &look(50, &[1])), (Some(10), 4));
        assert_eq!(then(&[], Some(5), &look(50, &[1])), (None, 0));
        // Nor do looks at others.
        assert_eq!(then(&looks[..3], None, &look(50, &[1])).0, Some(10));
        assert_eq!(then(&looks[..3], None, &look(50, &[3])).0, None, "never seen: not from 0");
        let many: Vec<Look> = (0..40).map(|at| look(at, &[1])).collect();
        assert_eq!(then(&many, Some(0), &look(50, &[1])), (Some(0), 39));
    }

    #[test]
    fn in_a_container_rocm_is_an_estimate() {
        let compute = kfd::Compute { other_bytes: 800, other_processes: 2, ..kfd::Compute::default() };
        let mut gpu = Gpu { usage: Some(0.5), job: Share::NOTHING, ..Gpu::default() };
        add_compute(&mut gpu, compute, 0);
        assert_eq!(gpu.job, Share::NOTHING);
        add_compute(&mut gpu, compute, 1);
        assert_eq!(gpu.job, Share { usage: Some(0.25), vram_bytes: Some(400), is_estimate: true });
    }

    #[test]
    fn cycles_count_against_the_cycles_that_passed() {
        let text =
            |cycles: u64, total: u64| format!("drm-cycles-ccs: {cycles}\ndrm-total-cycles-ccs: {total}");
        let then = [client(1, &text(100, 1000))];
        let now = [client(1, &text(150, 1200)), client(2, &text(50, 1200))];
        assert_eq!(used(&then, &now, 7), Some(0.5));
    }

    #[test]
    fn a_gpu_is_busy_while_it_is_not_idle() {
        assert_eq!(awake(Some(1000), Some(1250), Some(1_000_000_000)), Some(0.75));
        assert_eq!(awake(Some(0), Some(1001), Some(1_000_000_000)), Some(0.0));
        assert_eq!(awake(Some(5), Some(4), Some(1)), None);
        assert_eq!(awake(None, Some(4), Some(1)), None);
    }

    proptest! {
        /// No counters make a job use less than nothing of a GPU, or more than all of it.
        #[test]
        fn usage_stays_within_the_gpu(then in any::<u64>(), now in any::<u64>(), elapsed_ns in 1_u64..u64::MAX) {
            let text = |ns: u64| format!("drm-engine-gfx: {ns} ns");
            let found = used(&[client(1, &text(then))], &[client(1, &text(now))], elapsed_ns);
            prop_assert!(found.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
            prop_assert_eq!(found.is_none(), now < then);
        }
    }
}
