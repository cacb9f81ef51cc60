//! The cloud of this machine: vendor, instance type, region.
//!
//! In:  firmware texts below a root folder, then the metadata service of the vendor that the texts name.
//! Out: [`Cloud`], or `None` if this is not a cloud machine; [`CloudInfo`] for `get_cloud_info()`.
//! Not here: facts about the host (`probe::host`), prices (`catalog`).
//!
//! ```text
//! firmware texts  of a known vendor → request that vendor's metadata service
//!                 of no vendor      → not a cloud machine, no network traffic
//!                 not readable      → request the metadata services of all vendors in parallel
//! ```
//!
//! A discovery takes at most one second, runs in the background, and runs once per process. If network access is
//! disabled, only the firmware texts are used, which include the instance type on AWS.

mod client;
mod dmi;
mod machine;
mod metadata;
mod vendor;

use crate::os;
use client::MetadataClient;
use dmi::Dmi;
use machine::Machine;
use once_cell::race::OnceBox;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vendor::{VENDORS, Vendor};

/// Time limit of a discovery, including all requests.
pub const BUDGET: Duration = Duration::from_secs(1);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The cloud of this machine. A field is `None` if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cloud {
    /// One of [`VENDOR_IDS`](super::VENDOR_IDS).
    pub vendor: &'static str,
    pub instance_type: Option<String>,
    pub region: Option<String>,
    pub zone: Option<String>,
    pub instance_id: Option<String>,
    pub spot: Option<bool>,
    /// Whether the instance type was inferred from the size of the machine.
    pub inferred: bool,
    pub discovery_time_s: f64,
}

impl Cloud {
    pub(crate) fn new(vendor: &'static str) -> Self {
        Self { vendor, ..Self::default() }
    }
}

/// Result of `get_cloud_info()`. The text of an unknown field is `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CloudInfo {
    pub vendor: String,
    pub instance_type: String,
    pub region: String,
    /// Duration of the discovery in seconds.
    pub discovery_time: f64,
}

impl CloudInfo {
    pub fn new(result: &DiscoveryResult) -> Self {
        let cloud = result.cloud.as_ref();
        let or_unknown = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
        Self {
            vendor: or_unknown(cloud.map(|cloud| cloud.vendor)),
            instance_type: or_unknown(cloud.and_then(|cloud| cloud.instance_type.as_deref())),
            region: or_unknown(cloud.and_then(|cloud| cloud.region.as_deref())),
            discovery_time: result.discovery_time_s,
        }
    }

    /// The cloud of this machine, discovered once per process. Waits at most slightly longer than one second.
    pub fn get(offline: bool) -> Self {
        Self::new(&discover(offline))
    }

    /// Starts the discovery of this process in the background, unless it is running or finished. Returns immediately.
    pub fn discover_in_background(offline: bool) {
        let offline = offline || os::network::offline();
        let discovery = ProcessDiscovery::of(offline);
        if discovery.result.get().is_some() || discovery.is_running() {
            return;
        }
        if discovery.running_in_pid.swap(std::process::id(), Ordering::AcqRel) == std::process::id() {
            // Another thread has just started the discovery.
            return;
        }
        let work = move || {
            let result = Discovery { offline, ..Discovery::from_env() }.run();
            os::note_background_cpu();
            // If a result is already set, it stays.
            let _ = discovery.result.set(Box::new(result));
            discovery.running_in_pid.store(0, Ordering::Release);
        };
        if thread::Builder::new().name("rt-cloud".into()).stack_size(512 << 10).spawn(work).is_err() {
            discovery.running_in_pid.store(0, Ordering::Release);
        }
    }

    /// The result of [`CloudInfo::discover_in_background`] as a JSON object, for a recording; `None` until it is known.
    pub fn discovered(offline: bool) -> Option<Map<String, Value>> {
        match serde_json::to_value(Self::new(&discovered(offline)?)) {
            Ok(Value::Object(info)) => Some(info),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiscoveryResult {
    /// `None` if the machine does not run on a recognised cloud.
    pub cloud: Option<Cloud>,
    pub discovery_time_s: f64,
}

#[derive(Clone, Debug)]
pub struct Discovery {
    /// Root folder: `/`, or another folder in tests.
    pub root: PathBuf,
    /// Replaces the address of every metadata service, for example by `http://127.0.0.1:8080`.
    pub base_url: Option<String>,
    /// Whether network access is disabled.
    pub offline: bool,
    pub budget: Duration,
}

impl Discovery {
    /// Discovery of this machine. `RESOURCE_TRACKER_OFFLINE` disables network access;
    /// `RESOURCE_TRACKER_METADATA_URL` replaces the address of the metadata services.
    pub fn from_env() -> Self {
        Self {
            root: PathBuf::from("/"),
            base_url: std::env::var("RESOURCE_TRACKER_METADATA_URL").ok().filter(|url| !url.is_empty()),
            offline: os::network::offline(),
            budget: BUDGET,
        }
    }

    /// Runs the discovery in this thread. On return all other threads have ended and all sockets are closed.
    pub fn run(&self) -> DiscoveryResult {
        let started = Instant::now();
        let mut cloud = self.find();
        let missing = cloud.as_ref().filter(|cloud| cloud.instance_type.is_none()).map(|cloud| cloud.vendor);
        let inferred = missing.and_then(|vendor| Machine::read(&self.root)?.instance_type(vendor));
        let discovery_time_s = started.elapsed().as_secs_f64();
        if let Some(cloud) = &mut cloud {
            cloud.inferred = inferred.is_some();
            cloud.instance_type = cloud.instance_type.take().or(inferred);
            cloud.discovery_time_s = discovery_time_s;
        }
        DiscoveryResult { cloud, discovery_time_s }
    }

    fn find(&self) -> Option<Cloud> {
        let Some(dmi) = Dmi::read(&self.root) else { return self.request(&VENDORS.each_ref()) };
        let candidates: Vec<&Vendor> = VENDORS.iter().filter(|vendor| (vendor.matches)(&dmi)).collect();
        // If the firmware texts match several vendors, the last vendor is the general case.
        let firmware = vendor::from_firmware(candidates.last()?.id, &dmi);
        let Some(metadata) = self.request(&candidates) else { return Some(firmware) };
        Some(Cloud {
            instance_type: metadata.instance_type.or(firmware.instance_type),
            instance_id: metadata.instance_id.or(firmware.instance_id),
            ..metadata
        })
    }

    /// Requests the services of several vendors in parallel. Returns the first success in the order of `vendors`.
    ///
    /// The first step only connects to each address, in at most three threads that allocate no memory: glibc reserves
    /// 64 MiB of address space for each thread that allocates. Most machines without firmware texts stop here.
    fn request(&self, vendors: &[&Vendor]) -> Option<Cloud> {
        if self.offline {
            return None;
        }
        let client = MetadataClient::new(self.budget, self.base_url.clone());
        if let [only] = vendors {
            return (only.request)(&client);
        }
        let mut hosts: Vec<&str> = vendors.iter().map(|vendor| vendor.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let results = run_in_threads(&hosts, |host| {
            if !client.is_reachable(host) {
                return Vec::new();
            }
            let of_host: Vec<_> = vendors.iter().filter(|vendor| vendor.host == *host).collect();
            run_in_threads(&of_host, |vendor| (vendor.request)(&client))
        });
        let clouds = results.into_iter().flatten().flatten().flatten().flatten();
        clouds.min_by_key(|cloud| vendors.iter().position(|vendor| vendor.id == cloud.vendor))
    }
}

/// Runs `work` on each item in a separate thread and joins all threads. A result is `None` if its thread did not start.
fn run_in_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    thread::scope(|scope| {
        let start = |item| {
            let work = &work;
            let work = move || {
                // The host process may close or reuse any descriptor, so this thread gets its own descriptor table.
                let _ = os::leave_descriptors();
                let result = work(item);
                os::note_background_cpu();
                result
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).ok()
        };
        let started: Vec<_> = items.iter().map(start).collect();
        started.into_iter().map(|thread| thread?.join().ok()).collect()
    })
}

/// The discovery of this process.
///
/// Uses no lock: a fork may happen at any moment, and the forked child would inherit a locked mutex.
struct ProcessDiscovery {
    result: OnceBox<DiscoveryResult>,
    /// Pid of the process that runs the discovery thread, or 0. A forked child inherits this pid, but not the thread.
    running_in_pid: AtomicU32,
}

impl ProcessDiscovery {
    const fn new() -> Self {
        Self { result: OnceBox::new(), running_in_pid: AtomicU32::new(0) }
    }

    /// Online and offline discovery have separate results.
    fn of(offline: bool) -> &'static Self {
        static ALL: [ProcessDiscovery; 2] = [ProcessDiscovery::new(), ProcessDiscovery::new()];
        &ALL[usize::from(offline)]
    }

    fn is_running(&self) -> bool {
        self.running_in_pid.load(Ordering::Acquire) == std::process::id()
    }
}

/// The result of the discovery of this process; `None` before it is finished.
pub fn discovered(offline: bool) -> Option<DiscoveryResult> {
    ProcessDiscovery::of(offline || os::network::offline()).result.get().cloned()
}

/// Discovers the cloud once per process. Waits at most slightly longer than [`BUDGET`].
pub fn discover(offline: bool) -> DiscoveryResult {
    let offline = offline || os::network::offline();
    let started = Instant::now();
    CloudInfo::discover_in_background(offline);
    let discovery = ProcessDiscovery::of(offline);
    loop {
        let is_running = discovery.is_running();
        if let Some(result) = discovery.result.get() {
            return result.clone();
        }
        if !is_running || started.elapsed() > BUDGET + Duration::from_millis(150) {
            return DiscoveryResult { cloud: None, discovery_time_s: started.elapsed().as_secs_f64() };
        }
        thread::sleep(POLL_INTERVAL);
    }
}
