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
    kfd_id: Option<u64>,
    idle_ms_then: Option<u64>,
    energy_uj_then: Option<u64>,
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
            kfd_id: (driver == Driver::Amdgpu).then(|| kfd::gpu_id(root, minor)).flatten(),
            device,
            idle_ms_then: None,
            energy_uj_then: None,
        });
    }
    found
}

/// All of them, with the counters of the last look.
#[derive(Debug)]
pub(super) struct Drm {
    cards: Vec<Card>,
    /// By GPU and client.
    clients_then: HashMap<(String, u64), FdInfo>,
    /// `None` before the first look.
    at_then_ns: Option<u64>,
    buffer: Vec<u8>,
}

impl Drm {
    pub(super) fn new(cards: Vec<Card>) -> Self {
        Self { cards, clients_then: HashMap::new(), at_then_ns: None, buffer: Vec::new() }
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
        let elapsed_ns =
            self.at_then_ns.and_then(|then| at.monotonic_ns.checked_sub(then)).filter(|elapsed| *elapsed > 0);
        let only_one = self.cards.len() == 1;
        for card in &mut self.cards {
            // Drivers of before 2022 do not say which GPU a client belongs to.
            let is_here = |info: &&FdInfo| info.pdev == card.pdev || (info.pdev.is_empty() && only_one);
            let here: Vec<&FdInfo> = clients.values().filter(is_here).collect();
            let job = Share {
                usage: busiest(&here, &self.clients_then, elapsed_ns),
                vram_bytes: here.iter().map(|info| info.vram_bytes()).sum(),
                is_estimate: false,
            };
            reading.gpus.push(card.read(root, question, job, elapsed_ns));
        }
        self.clients_then = clients;
        self.at_then_ns = Some(at.monotonic_ns);
    }

    /// Every client of the job once, whoever has it open.
    fn clients(&mut self, root: &Root, files: &OpenFiles) -> HashMap<(String, u64), FdInfo> {
        let mut clients = HashMap::new();
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
    fn read(&mut self, root: &Root, question: &Question, job: Share, elapsed_ns: Option<u64>) -> Gpu {
        let number = |path: &str| root.text(path).and_then(|text| text.parse::<u64>().ok());
        let of_device = |file: &str| number(&format!("{}/{file}", self.device));
        let of_hwmon = |file: &str| number(&format!("{}/{file}", self.hwmon.as_ref()?));
        let of_card = |file: &str| number(&format!("{}/{file}", self.node.as_ref()?));
        let mut gpu = Gpu {
            vendor: if self.driver == Driver::Amdgpu { Vendor::Amd } else { Vendor::Intel },
            name: self.name.clone(),
            id: self.pdev.clone(),
            temperature_c: of_hwmon("temp1_input").map(|millidegrees| decimal(millidegrees) / 1e3),
            device: Some((MAJOR, self.minor)),
            job,
            is_allowed: true,
            ..Gpu::default()
        };
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
                if let Some(id) = self.kfd_id {
                    add_compute(&mut gpu, kfd::look(root, id, &question.members));
                }
            }
            Driver::I915 | Driver::Xe => {
                let idle_ms = match self.driver {
                    Driver::Xe => of_device("tile0/gt0/gtidle/idle_residency_ms"),
                    _ => of_card("gt/gt0/rc6_residency_ms").or_else(|| of_card("power/rc6_residency_ms")),
                };
                gpu.usage = awake(self.idle_ms_then, idle_ms, elapsed_ns);
                gpu.clock_mhz = match self.driver {
                    Driver::Xe => of_device("tile0/gt0/freq0/act_freq"),
                    _ => of_card("gt/gt0/rps_act_freq_mhz").or_else(|| of_card("gt_act_freq_mhz")),
                }
                .map(decimal);
                let total =
                    of_device("tile0/physical_vram_size_bytes").or_else(|| of_card("lmem_total_bytes"));
                let free = of_card("lmem_avail_bytes");
                // Without memory of its own a GPU holds none of it.
                gpu.vram_total_bytes = total.or(Some(0));
                gpu.vram_used_bytes =
                    total.map_or(Some(0), |total| free.and_then(|free| total.checked_sub(free)));
                let energy_uj = of_hwmon("energy1_input");
                let joules = self.energy_uj_then.zip(energy_uj).and_then(|(then, now)| now.checked_sub(then));
                gpu.power_w = joules.zip(elapsed_ns).map(|(uj, ns)| decimal(uj) * 1e3 / decimal(ns));
                self.idle_ms_then = idle_ms;
                self.energy_uj_then = energy_uj;
            }
        }
        gpu
    }
}

/// ROCm's processes, whose work no engine counts.
fn add_compute(gpu: &mut Gpu, compute: kfd::Compute) {
    if compute.job_processes == 0 {
        return;
    }
    gpu.job.vram_bytes = Some(gpu.job.vram_bytes.unwrap_or(0).max(compute.job_bytes));
    gpu.job.usage = match compute.other_processes {
        // Nobody else computes here, so what it does it does for the job.
        0 => gpu.usage,
        _ => None,
    };
}

/// Part of the time in which a GPU was not idle.
fn awake(idle_then_ms: Option<u64>, idle_now_ms: Option<u64>, elapsed_ns: Option<u64>) -> Option<f64> {
    let idle_ms = idle_now_ms?.checked_sub(idle_then_ms?)?;
    // The counter steps by milliseconds: a little more than all of the time is all of it.
    Some((1.0 - decimal(idle_ms) * 1e6 / decimal(elapsed_ns?)).max(0.0))
}

/// How busy the clients kept their busiest class of engines; `None` before the second look, and where a counter went
/// back.
fn busiest(
    clients: &[&FdInfo],
    then: &HashMap<(String, u64), FdInfo>,
    elapsed_ns: Option<u64>,
) -> Option<f64> {
    if clients.is_empty() {
        return Some(0.0);
    }
    let elapsed_ns = elapsed_ns?;
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
        busiest(&now.iter().collect::<Vec<_>>(), &then, Some(elapsed_ns))
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
        assert_eq!(busiest(&[&then[0]], &HashMap::new(), None), None);
        assert_eq!(busiest(&[], &HashMap::new(), None), Some(0.0), "no client, no use");
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
