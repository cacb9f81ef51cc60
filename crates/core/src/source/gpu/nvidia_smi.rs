//! NVIDIA GPUs through `nvidia-smi`, for where the library cannot be loaded and the command still works.
//!
//! In:  the XML that one long-running `nvidia-smi -q -x` writes every second. Out: a [`NvidiaGpu`] for each.
//!
//! It is never started once a look: a start takes longer than many intervals. One that dies is started again after a
//! second, then after two, four and so on; one that writes something else is not believed.

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::nvidia::NvidiaGpu;
use super::share::GpuProcess;
use crate::snapshot::Moment;
use crate::sys::SignalSet;

const NAME: &str = "nvidia-smi";
const PERIOD_MS: &str = "1000";
/// A document of this age is not of now.
const STALE_NS: u64 = 3_000_000_000;
/// The first one may take as long as a driver that is not kept awake.
const FIRST_NS: u64 = 10_000_000_000;
const FIRST_REST_NS: u64 = 1_000_000_000;
const LONGEST_REST_NS: u64 = 60_000_000_000;
/// No line of the document is longer; process names are the longest.
const MOST_LINE_BYTES: u64 = 64 << 10;
const MIB: u64 = 1 << 20;

/// The last two processes that were started here: ours, whoever finds them.
static HELPERS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
static IS_STARTING: AtomicBool = AtomicBool::new(false);

/// Whether process `pid` is an `nvidia-smi` of ours, and so no part of the job.
#[must_use]
pub fn is_helper(pid: u32) -> bool {
    HELPERS.iter().any(|helper| helper.load(Ordering::SeqCst) == pid)
}

/// The number may be somebody else's from now on.
fn forget_helper(pid: u32) {
    for helper in &HELPERS {
        // Where it is another's, it stays.
        let _ = helper.compare_exchange(pid, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Whether a child of process `parent` may be one whose number is not known yet.
#[must_use]
pub fn may_be_helper(parent: u32) -> bool {
    parent == std::process::id() && IS_STARTING.load(Ordering::SeqCst)
}

/// The command, and the process that runs it.
#[derive(Debug)]
pub(super) struct Smi {
    program: PathBuf,
    running: Option<Running>,
    start_at_ns: u64,
    rest_ns: u64,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// The process itself, whatever becomes of its number.
    handle: Option<OwnedFd>,
    heard: Arc<Mutex<Heard>>,
    started_ns: u64,
}

/// What the process has said so far.
#[derive(Debug, Default)]
struct Heard {
    last: Option<(u64, Vec<NvidiaGpu>)>,
    has_ended: bool,
}

impl Smi {
    /// Finds the command on the path.
    pub(super) fn find() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let program =
            std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|file| file.is_file())?;
        Some(Self { program, running: None, start_at_ns: 0, rest_ns: FIRST_REST_NS })
    }

    /// The last document, where it is young enough.
    pub(super) fn read(&mut self, at: Moment, notes: &mut Vec<String>) -> Option<Vec<NvidiaGpu>> {
        let now_ns = at.monotonic_ns;
        if let Some(running) = &mut self.running {
            let heard = running.heard.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((heard_ns, gpus)) = &heard.last
                && now_ns.saturating_sub(*heard_ns) < STALE_NS
            {
                self.rest_ns = FIRST_REST_NS;
                return Some(gpus.clone());
            }
            let has_ended = heard.has_ended;
            if !has_ended {
                let patience_ns = if heard.last.is_none() { FIRST_NS } else { STALE_NS };
                if now_ns.saturating_sub(running.started_ns) > patience_ns {
                    notes.push("GPU: `nvidia-smi` runs and says nothing that can be read".to_owned());
                }
                return None;
            }
            drop(heard);
            notes.push("GPU: `nvidia-smi` ended, and is started again".to_owned());
            // Somebody else may have reaped it.
            let _ = running.child.try_wait();
            forget_helper(running.child.id());
            self.running = None;
            self.start_at_ns = now_ns.saturating_add(self.rest_ns);
            self.rest_ns = self.rest_ns.saturating_mul(2).min(LONGEST_REST_NS);
        }
        if now_ns >= self.start_at_ns {
            match self.start(now_ns) {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    notes.push(format!("GPU: cannot start `{}`: {error}", self.program.display()));
                    self.start_at_ns = now_ns.saturating_add(LONGEST_REST_NS);
                }
            }
        }
        None
    }

    fn start(&self, now_ns: u64) -> io::Result<Running> {
        IS_STARTING.store(true, Ordering::SeqCst);
        // This thread takes no signals; what it starts must, or it outlives everybody.
        let mask = SignalSet::every().block();
        SignalSet::every().unblock();
        let spawned = Command::new(&self.program)
            .args(["-q", "-x", "-lms", PERIOD_MS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // The terminal's Ctrl-C is for the job.
            .process_group(0)
            .spawn();
        mask.restore();
        if let Ok(child) = &spawned {
            let [last, before] = &HELPERS;
            before.store(last.load(Ordering::SeqCst), Ordering::SeqCst);
            last.store(child.id(), Ordering::SeqCst);
        }
        IS_STARTING.store(false, Ordering::SeqCst);
        let mut child = spawned?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let pid = Pid::from_raw(child.id().cast_signed());
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(output) = child.stdout.take() {
            let heard = Arc::clone(&heard);
            std::thread::Builder::new()
                .name("resource-tracker-smi".to_owned())
                .stack_size(256 << 10)
                .spawn(move || listen(output, &heard))?;
        }
        Ok(Running { child, handle, heard, started_ns: now_ns })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            // It only reads, and may have ended already, which is as good.
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// Reads document after document until the process ends.
fn listen(output: ChildStdout, heard: &Mutex<Heard>) {
    use std::io::Read as _;
    let mut output = BufReader::new(output);
    let mut document = Document::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut output).take(MOST_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if let Some(gpus) = document.add(&String::from_utf8_lossy(&line)) {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.last = Some((Moment::now().monotonic_ns, gpus));
        }
    }
    heard.lock().unwrap_or_else(PoisonError::into_inner).has_ended = true;
}

/// A document while its lines come in.
#[derive(Debug, Default)]
struct Document {
    /// `None` before its first line, and after one that does not belong there.
    gpus: Option<Vec<NvidiaGpu>>,
    /// The elements that are open.
    within: Vec<String>,
}

impl Document {
    /// Adds a line; gives the GPUs with the last one.
    fn add(&mut self, line: &str) -> Option<Vec<NvidiaGpu>> {
        let line = line.trim();
        if line == "<nvidia_smi_log>" {
            *self = Self { gpus: Some(Vec::new()), within: Vec::new() };
            return None;
        }
        if line == "</nvidia_smi_log>" {
            self.within.clear();
            return self.gpus.take().filter(|gpus| !gpus.is_empty());
        }
        let gpus = self.gpus.as_mut()?;
        if let Some(name) = line.strip_prefix("</").and_then(|rest| rest.strip_suffix('>')) {
            if self.within.pop().as_deref() != Some(name) {
                // Torn or not what it should be: nothing until the next document.
                self.gpus = None;
            }
            return None;
        }
        let (opening, rest) = line.strip_prefix('<')?.split_once('>')?;
        let name = opening.split(' ').next().unwrap_or_default();
        if opening.ends_with('/') {
            return None;
        }
        if rest.is_empty() {
            self.within.push(name.to_owned());
            match name {
                "gpu" => gpus.push(NvidiaGpu::default()),
                "processes" => {
                    if let Some(gpu) = gpus.last_mut() {
                        gpu.processes.listed = Some(Vec::new());
                    }
                }
                _ => {}
            }
            return None;
        }
        let value = rest.rsplit_once("</").map_or(rest, |(value, _)| value).trim();
        if let Some(gpu) = gpus.last_mut() {
            let within = self.within.last().map_or("", String::as_str);
            set(gpu, within, name, value);
        }
        None
    }
}

/// Puts a value where it belongs; most of the document is not asked for.
fn set(gpu: &mut NvidiaGpu, within: &str, name: &str, value: &str) {
    let bytes = || number(value, "MiB").map(|mib| mib.saturating_mul(MIB));
    let decimal = |unit: &str| value.strip_suffix(unit).and_then(|text| text.trim().parse::<f64>().ok());
    match (within, name) {
        ("gpu", "product_name") => value.clone_into(&mut gpu.name),
        ("gpu", "uuid") => value.clone_into(&mut gpu.uuid),
        ("gpu", "minor_number") => gpu.minor = value.parse().ok(),
        ("fb_memory_usage", "total") => gpu.vram_total_bytes = bytes(),
        ("fb_memory_usage", "used") => gpu.processes.gpu_vram_bytes = bytes(),
        ("utilization", "gpu_util") => {
            gpu.processes.gpu_usage =
                decimal("%").filter(|percent| *percent <= 100.0).map(|percent| percent / 100.0);
        }
        ("temperature", "gpu_temp") => gpu.temperature_c = decimal("C"),
        // Newer versions name the same reading otherwise.
        (
            "power_readings" | "gpu_power_readings",
            "power_draw" | "instant_power_draw" | "average_power_draw",
        ) => {
            gpu.power_w = gpu.power_w.or_else(|| decimal("W"));
        }
        ("clocks", "sm_clock") => gpu.clock_mhz = decimal("MHz"),
        ("process_info", "pid") => {
            if let (Ok(pid), Some(listed)) = (value.parse(), &mut gpu.processes.listed) {
                listed.push(GpuProcess { pid, vram_bytes: None });
            }
        }
        ("process_info", "used_memory") => {
            if let Some(process) = gpu.processes.listed.as_mut().and_then(|listed| listed.last_mut()) {
                process.vram_bytes = bytes();
            }
        }
        _ => {}
    }
}

fn number(value: &str, unit: &str) -> Option<u64> {
    value.strip_suffix(unit)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = include_str!("../../../../../fixtures/nvidia-smi/two-gpus.xml");

    fn documents(text: &str) -> Vec<Vec<NvidiaGpu>> {
        let mut document = Document::default();
        text.lines().filter_map(|line| document.add(line)).collect()
    }

    #[test]
    fn a_document_gives_every_gpu_and_its_processes() {
        let found = documents(TEXT);
        let [gpus] = found.as_slice() else { panic!("{found:?}") };
        let first = gpus.first().unwrap();
        assert_eq!((gpus.len(), first.name.as_str(), first.minor), (2, "Tesla T4", Some(0)));
        assert_eq!(first.vram_total_bytes, Some(15_360 * MIB));
        assert_eq!(
            (first.processes.gpu_usage, first.processes.gpu_vram_bytes),
            (Some(0.37), Some(1_100 * MIB))
        );
        assert_eq!(
            (first.power_w, first.temperature_c, first.clock_mhz),
            (Some(29.55), Some(41.0), Some(585.0))
        );
        let listed = first.processes.listed.as_deref().unwrap();
        assert_eq!(listed, [GpuProcess { pid: 4242, vram_bytes: Some(1_000 * MIB) }]);
        let second = gpus.last().unwrap();
        assert_eq!((second.processes.gpu_usage, second.power_w), (None, None), "N/A is unknown, not 0");
        assert_eq!(second.processes.listed.as_deref(), Some(&[][..]));
    }

    #[test]
    fn a_torn_document_is_left_out_and_the_next_one_is_read() {
        let half = TEXT.split_inclusive("</uuid>").next().unwrap();
        assert_eq!(documents(&format!("{half}\n{TEXT}")).len(), 1);
        assert_eq!(documents(&format!("garbage\n<<<>\n{TEXT}")).len(), 1);
        assert_eq!(documents(&TEXT.replace("</fb_memory_usage>", "</wrong>")).len(), 0);
        assert_eq!(documents("<nvidia_smi_log>\n</nvidia_smi_log>\n").len(), 0);
    }

    proptest! {
        /// Whatever it writes, reading it never panics, and never gives a GPU that was not announced.
        #[test]
        fn garbage_is_no_gpu(lines in proptest::collection::vec("[<>/a-z_ 0-9]{0,30}", 0..50)) {
            let text = lines.join("\n");
            prop_assert!(text.contains("<nvidia_smi_log>") || documents(&text).is_empty());
        }
    }
}
