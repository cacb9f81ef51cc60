//! Tests that a process discovers its cloud once, in the background and within the time limit.
//!
//! The test uses the firmware texts of this machine. It must also pass on machines without firmware texts.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/mod.rs"]
mod support;

use resource_tracker::market::cloud::{self, CloudInfo};
use resource_tracker::os;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Reply, Stalls, TestServer};

/// Body of the child process. Its metadata services never respond.
#[test]
#[ignore = "started by another test"]
fn probe_process() {
    let (started, stalls) = (Instant::now(), Stalls::watch());
    CloudInfo::discover_in_background(false);
    CloudInfo::discover_in_background(false);
    let began = started.elapsed();
    let first = cloud::discover(false);
    let took = started.elapsed();
    // On a busy machine `discover` may return shortly before the background thread ends.
    while cloud::discovered(false).is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "the discovery does not end");
        std::thread::yield_now();
    }
    let result = cloud::discovered(false).unwrap();
    assert_eq!(result.cloud, first.cloud);

    let (again, spent_ns) = (Instant::now(), os::background_cpu_ns());
    assert!(spent_ns > 0, "the CPU time of the discovery is not counted");
    assert_eq!((cloud::discover(false), os::background_cpu_ns()), (result.clone(), spent_ns));
    let (again, stalled) = (again.elapsed(), stalls.stop());
    assert!(
        began < Duration::from_millis(100) + stalled,
        "starting took {began:?}, {stalled:?} of it stalled"
    );
    assert!(took < Duration::from_millis(1_200) + stalled, "{took:?}, {stalled:?} of it stalled");
    assert!(again < Duration::from_millis(10) + stalled, "second discovery: {again:?}");
    let info = CloudInfo::new(&result);
    assert_eq!((info.region.as_str(), info.discovery_time), ("unknown", result.discovery_time_s));
}

#[test]
fn process_discovers_its_cloud_once_in_the_background() {
    let hanging = TestServer::start(|_| Reply::Hang);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["probe_process", "--exact", "--ignored", "--test-threads=1"])
        .env("RESOURCE_TRACKER_METADATA_URL", hanging.url())
        .env_remove("RESOURCE_TRACKER_OFFLINE")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
    if !Path::new("/sys/class/dmi/id").exists() {
        // Without firmware texts there is one request per vendor.
        assert_eq!(hanging.log().len(), 14);
    }
}
