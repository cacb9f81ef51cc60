//! Which cloud this machine is in: vendor, instance type, region.
//!
//! In:  the firmware's texts below a root, then that vendor's metadata service and no other.
//! Out: [`Cloud`], or `None` where there is none; [`CloudInfo`] is what `get_cloud_info()` gives.
//! Not here: what the machine has (`host`), what it costs (`catalog`).
//!
//! ```text
//! firmware says   a vendor     → ask that one
//!                 none of ours → no cloud, not a packet
//!                 nothing      → ask all, side by side
//! ```
//!
//! One second in all, in the background, once a process. Offline the firmware's texts are all there
//! is, which on AWS still name the instance type.

mod dmi;
mod http;
mod machine;
mod metadata;
mod vendor;

pub use machine::Machine;

use crate::sys::{self, Handover, Tally};
use dmi::Dmi;
use http::Client;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// For firmware, services and all.
pub const BUDGET: Duration = Duration::from_secs(1);

/// Between two looks of one who waits for the answer.
const PAUSE: Duration = Duration::from_millis(2);

/// Ids of the vendors that are recognised, as in `vendor_id` of a server.
pub const VENDOR_IDS: [&str; 14] = {
    let mut ids = [""; 14];
    let mut index = 0;
    while index < ids.len() {
        ids[index] = vendor::VENDORS[index].id;
        index += 1;
    }
    ids
};

/// Where we run; `None` in a field that is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cloud {
    /// One of [`VENDOR_IDS`].
    pub vendor: &'static str,
    /// As the vendor's API names it.
    pub instance_type: Option<String>,
    /// As the vendor's API names it.
    pub region: Option<String>,
    /// Part of the region.
    pub zone: Option<String>,
    /// The vendor's id of this machine.
    pub instance_id: Option<String>,
    /// Whether it can be taken away.
    pub spot: Option<bool>,
    /// Whether the instance type is our inference from the machine's size.
    pub inferred: bool,
    /// How long it took to find out.
    pub discovery_time_s: f64,
}

impl Cloud {
    pub(crate) fn new(vendor: &'static str) -> Self {
        Self {
            vendor,
            instance_type: None,
            region: None,
            zone: None,
            instance_id: None,
            spot: None,
            inferred: false,
            discovery_time_s: 0.0,
        }
    }
}

/// What `get_cloud_info()` gives: `unknown` where a field is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CloudInfo {
    /// Vendor id.
    pub vendor: String,
    /// Instance type.
    pub instance_type: String,
    /// Region.
    pub region: String,
    /// Seconds.
    pub discovery_time: f64,
}

impl CloudInfo {
    /// Spells out what a discovery found, or that it found no cloud.
    #[must_use]
    pub fn new(found: &Found) -> Self {
        let cloud = found.cloud.as_ref();
        let or_unknown = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
        Self {
            vendor: or_unknown(cloud.map(|cloud| cloud.vendor)),
            instance_type: or_unknown(cloud.and_then(|cloud| cloud.instance_type.as_deref())),
            region: or_unknown(cloud.and_then(|cloud| cloud.region.as_deref())),
            discovery_time: found.discovery_time_s,
        }
    }
}

/// The end of a discovery.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// `None` where there is no cloud.
    pub cloud: Option<Cloud>,
    /// How long it took to find out.
    pub discovery_time_s: f64,
}

/// How to find out.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// Stands for `/`.
    pub root: PathBuf,
    /// `http://127.0.0.1:8080` in place of every metadata service.
    pub base_url: Option<String>,
    /// Not a single packet.
    pub offline: bool,
    /// For everything.
    pub budget: Duration,
}

impl Discovery {
    /// This machine, as the environment says: `RESOURCE_TRACKER_OFFLINE`, and
    /// `RESOURCE_TRACKER_METADATA_URL` in place of the metadata services.
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            root: PathBuf::from("/"),
            base_url: std::env::var("RESOURCE_TRACKER_METADATA_URL").ok().filter(|url| !url.is_empty()),
            offline: crate::network::offline(),
            budget: BUDGET,
        }
    }

    /// Finds out, in the caller's thread; see [`discover`] for the process's own.
    ///
    /// Threads and sockets that it needs are gone when it returns.
    #[must_use]
    pub fn run(&self) -> Found {
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
        Found { cloud, discovery_time_s }
    }

    fn find(&self) -> Option<Cloud> {
        let client = Client::new(self.budget, self.base_url.clone());
        let Some(dmi) = Dmi::read(&self.root) else {
            return if self.offline { None } else { ask(&client, vendor::VENDORS.iter()) };
        };
        let candidates = || vendor::VENDORS.iter().filter(|vendor| (vendor.matches)(&dmi));
        // Where several vendors look alike to the firmware, the last is the general case.
        let firmware = vendor::from_firmware(candidates().next_back()?.id, &dmi);
        let Some(told) = (if self.offline { None } else { ask(&client, candidates()) }) else {
            return Some(firmware);
        };
        Some(Cloud {
            instance_type: told.instance_type.or(firmware.instance_type),
            instance_id: told.instance_id.or(firmware.instance_id),
            ..told
        })
    }
}

/// Asks vendors side by side; the first in the table's order that knows this machine.
///
/// Those of one address only once somebody takes a connection there: mostly nobody does, and then there are three threads
/// without any memory of their own. The C library sets 64 MiB of address space aside for each that has some.
fn ask<'a>(client: &Client, vendors: impl Iterator<Item = &'a vendor::Vendor>) -> Option<Cloud> {
    let vendors: Vec<&vendor::Vendor> = vendors.collect();
    if let [only] = vendors.as_slice() {
        return (only.ask)(client);
    }
    let mut hosts: Vec<&str> = vendors.iter().map(|vendor| vendor.host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let answers = in_threads(&hosts, |host| {
        if !client.reaches(host) {
            return Vec::new();
        }
        let there: Vec<_> = vendors.iter().filter(|vendor| vendor.host == *host).collect();
        in_threads(&there, |vendor| (vendor.ask)(client))
    });
    let known = answers.into_iter().flatten().flatten().flatten().flatten();
    known.min_by_key(|cloud| vendors.iter().position(|vendor| vendor.id == cloud.vendor))
}

/// What becomes of each in a thread of its own; nothing where no thread can be had.
fn in_threads<T: Sync, A: Send>(all: &[T], work: impl Fn(&T) -> A + Sync) -> Vec<Option<A>> {
    thread::scope(|scope| {
        let start = |one| {
            let work = &work;
            let work = move || {
                // So many for up to a second are not to be among a host's, who may close and reuse any number.
                let _ = sys::leave_descriptors();
                let answer = work(one);
                note_spent();
                answer
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).ok()
        };
        let started: Vec<_> = all.iter().map(start).collect();
        // All are joined, so that nothing is left over.
        started.into_iter().map(|thread| thread?.join().ok()).collect()
    })
}

/// CPU time of threads that looked for the cloud and have ended.
static SPENT_US: Tally = Tally::zero();

/// CPU time that looking for the cloud took in this process so far; it is nobody's job.
#[must_use]
pub fn spent_ns() -> u64 {
    u64::from(SPENT_US.get()) * 1_000
}

/// A thread that looks for the cloud is about to end.
fn note_spent() {
    let us = u32::try_from(sys::thread_cpu_ns().unwrap_or(0) / 1_000).unwrap_or(u32::MAX);
    SPENT_US.change(|spent| spent.saturating_add(us));
}

/// What this process knows: once found out, it stays.
///
/// Without a lock: a fork copies whatever stands here, at any moment, and the child must be able to go on.
struct Knowledge {
    found: Handover<Found>,
    /// The process whose thread is finding out; 0 for none. A fork copies the number but not the thread.
    asking_pid: AtomicU32,
}

impl Knowledge {
    const fn none() -> Self {
        Self { found: Handover::empty(), asking_pid: AtomicU32::new(0) }
    }

    /// Two answers: what may be asked of the network differs.
    fn of(offline: bool) -> &'static Self {
        static ALL: [Knowledge; 2] = [Knowledge::none(), Knowledge::none()];
        &ALL[usize::from(offline)]
    }

    fn is_asking(&self) -> bool {
        self.asking_pid.load(Ordering::Acquire) == std::process::id()
    }
}

/// Starts finding out in the background, unless that is done or under way. Returns at once.
pub fn discover_in_background(offline: bool) {
    let offline = offline || crate::network::offline();
    let knowledge = Knowledge::of(offline);
    if knowledge.found.get().is_some() || knowledge.is_asking() {
        return;
    }
    if knowledge.asking_pid.swap(std::process::id(), Ordering::AcqRel) == std::process::id() {
        // Another thread came first.
        return;
    }
    let work = move || {
        let found = Discovery { offline, ..Discovery::from_env() }.run();
        note_spent();
        knowledge.found.set(found);
        knowledge.asking_pid.store(0, Ordering::Release);
    };
    if thread::Builder::new().name("rt-cloud".into()).stack_size(512 << 10).spawn(work).is_err() {
        knowledge.asking_pid.store(0, Ordering::Release);
    }
}

/// What is known by now, without waiting.
#[must_use]
pub fn known(offline: bool) -> Option<Found> {
    Knowledge::of(offline || crate::network::offline()).found.get().cloned()
}

/// The same, as a recording has it.
#[must_use]
pub fn known_info(offline: bool) -> Option<Map<String, Value>> {
    match serde_json::to_value(CloudInfo::new(&known(offline)?)) {
        Ok(Value::Object(info)) => Some(info),
        _ => None,
    }
}

/// Which cloud this is, found out once a process; waits for little more than [`BUDGET`] at most.
#[must_use]
pub fn discover(offline: bool) -> Found {
    let offline = offline || crate::network::offline();
    let started = Instant::now();
    discover_in_background(offline);
    let knowledge = Knowledge::of(offline);
    loop {
        let is_asking = knowledge.is_asking();
        if let Some(found) = knowledge.found.get() {
            return found.clone();
        }
        if !is_asking || started.elapsed() > BUDGET + Duration::from_millis(150) {
            return Found { cloud: None, discovery_time_s: started.elapsed().as_secs_f64() };
        }
        thread::sleep(PAUSE);
    }
}

/// `get_cloud_info()`.
#[must_use]
pub fn cloud_info(offline: bool) -> CloudInfo {
    CloudInfo::new(&discover(offline))
}
