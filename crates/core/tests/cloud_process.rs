//! The process's own discovery: in the background, once, and never longer than its budget.
//!
//! It looks at this very machine, so the test holds on any: with firmware texts or without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/mod.rs"]
mod support;

use resource_tracker::cloud::{self, CloudInfo};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Reply, Stalls, TestServer};

/// Not a test of its own: a process whose metadata services hang.
#[test]
#[ignore = "a probe that another test starts"]
fn probe_process() {
    let (started, stalls) = (Instant::now(), Stalls::watch());
    cloud::discover_in_background(false);
    cloud::discover_in_background(false);
    let began = started.elapsed();
    let first = cloud::discover(false);
    let took = started.elapsed();
    // Where the machine stood still, we were answered a little before the background was done.
    while cloud::known(false).is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "the background never ends");
        std::thread::yield_now();
    }
    let known = cloud::known(false).unwrap();
    assert_eq!(known.cloud, first.cloud);

    let (again, spent_ns) = (Instant::now(), cloud::spent_ns());
    assert!(spent_ns > 0, "whoever tracks this process cannot leave it out");
    assert_eq!((cloud::discover(false), cloud::spent_ns()), (known.clone(), spent_ns));
    let (again, stalled) = (again.elapsed(), stalls.stop());
    assert!(
        began < Duration::from_millis(100) + stalled,
        "starting took {began:?}, {stalled:?} of it stalled"
    );
    assert!(took < Duration::from_millis(1_200) + stalled, "{took:?}, {stalled:?} of it stalled");
    assert!(again < Duration::from_millis(10) + stalled, "found out twice: {again:?}");
    let info = CloudInfo::new(&known);
    assert_eq!((info.region.as_str(), info.discovery_time), ("unknown", known.discovery_time_s));
}

#[test]
fn a_process_finds_out_once_in_the_background() {
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
        // Nothing says which cloud it is: one request of each of the 14 vendors, and not twice.
        assert_eq!(hanging.log().len(), 14);
    }
}
