//! Checks with strace that no socket is opened where network access is not allowed.
//!
//! Each test runs one ignored test of this binary under strace.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/mod.rs"]
mod support;
#[expect(dead_code, reason = "the expected results are used by another test")]
#[path = "support/vendors.rs"]
mod vendors;

use resource_tracker::market::catalog::{Catalog, Query, Settings, Source};
use resource_tracker::market::cloud::{BUDGET, CloudInfo, Discovery};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Reply, TestServer};
use vendors::{VENDORS, write_dmi};

const ROOT: &str = "RT_PROBE_ROOT";
const BASE_URL: &str = "RT_PROBE_BASE_URL";

/// Runs an ignored test (a probe) under strace. Returns its output and its network system calls.
fn network_calls(probe: &str, variables: &[(&str, &str)]) -> (String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=%network", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args([probe, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .output()
        .expect("this test needs strace");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("1 passed"), "the probe did not run: {shown}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let calls =
        trace.lines().filter(|line| line.contains('(') && !line.contains("+++") && !line.contains("---"));
    (shown, calls.map(ToOwned::to_owned).collect())
}

/// Prints the cloud found below `RT_PROBE_ROOT`.
#[test]
#[ignore = "started by other tests"]
fn probe_cloud() {
    let found = Discovery {
        root: PathBuf::from(std::env::var_os(ROOT).unwrap()),
        base_url: std::env::var(BASE_URL).ok(),
        offline: resource_tracker::os::network::offline(),
        budget: BUDGET,
    }
    .run();
    report(&format!("found {}", serde_json::to_string(&found.cloud).unwrap()));
}

/// Uses all functions that work offline.
#[test]
#[ignore = "started by other tests"]
fn probe_offline() {
    assert!(resource_tracker::os::network::offline());
    let mut catalog = Catalog::new(Settings::from_env());
    let answer = catalog.servers(&Query::new(2.0, 4096.0).filter("region", "fsn1").unwrap()).unwrap();
    assert_eq!((answer.source, answer.servers.len()), (Source::Embedded, 10));
    assert!(catalog.instance_price("aws", Some("us-east-1"), "c5.large").unwrap().is_some());
    CloudInfo::discover_in_background(false);
    report(&format!("cloud {}", serde_json::to_string(&CloudInfo::get(false)).unwrap()));
}

#[expect(clippy::print_stdout, reason = "read by the calling test")]
fn report(line: &str) {
    println!("{line}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn no_socket_if_the_firmware_is_not_of_a_cloud() {
    let root = tempfile::tempdir().unwrap();
    for dmi in [
        &[
            ("sys_vendor", "LENOVO"),
            ("product_name", "20XWCTO1WW"),
            ("chassis_asset_tag", "No Asset Information"),
        ][..],
        // A private Hyper-V host and a dedicated Hetzner server name a cloud vendor, but are not cloud machines.
        &[
            ("sys_vendor", "Microsoft Corporation"),
            ("product_name", "Virtual Machine"),
            ("chassis_asset_tag", "5555-1"),
        ],
        &[("sys_vendor", "Hetzner"), ("product_name", "Dedicated Server"), ("chassis_asset_tag", "")],
        &[
            ("sys_vendor", "QEMU"),
            ("product_name", "Standard PC (Q35 + ICH9, 2009)"),
            ("chassis_asset_tag", ""),
        ],
    ] {
        write_dmi(root.path(), dmi);
        let (shown, calls) = network_calls("probe_cloud", &[(ROOT, path(root.path()))]);
        assert!(shown.contains("found null"), "{shown}");
        assert_eq!(calls, [""; 0], "{dmi:?}");
    }
}

#[test]
fn offline_discovery_opens_no_socket_and_reads_the_firmware() {
    let root = tempfile::tempdir().unwrap();
    write_dmi(root.path(), VENDORS[0].dmi);
    let (shown, calls) =
        network_calls("probe_cloud", &[(ROOT, path(root.path())), ("RESOURCE_TRACKER_OFFLINE", "1")]);
    assert!(shown.contains(r#""vendor":"aws","instance_type":"c5.large","region":null"#), "{shown}");
    assert_eq!(calls, [""; 0]);

    // Without firmware texts no socket is opened either.
    let empty = tempfile::tempdir().unwrap();
    let (shown, calls) =
        network_calls("probe_cloud", &[(ROOT, path(empty.path())), ("RESOURCE_TRACKER_OFFLINE", "1")]);
    assert!(shown.contains("found null"), "{shown}");
    assert_eq!(calls, [""; 0]);
}

#[test]
fn offline_catalog_and_cloud_open_no_socket() {
    let cache = tempfile::tempdir().unwrap();
    let (_, calls) = network_calls(
        "probe_offline",
        &[("RESOURCE_TRACKER_OFFLINE", "1"), ("XDG_CACHE_HOME", path(cache.path()))],
    );
    assert_eq!(calls, [""; 0]);
}

#[test]
fn online_discovery_opens_sockets_and_uses_no_proxy() {
    let server = TestServer::start(|request| (VENDORS[0].service)(request));
    let proxy = TestServer::start(|_| Reply::status(502, "a proxy"));
    let root = tempfile::tempdir().unwrap();
    write_dmi(root.path(), VENDORS[0].dmi);
    let proxy_url = proxy.url();
    let (shown, calls) = network_calls(
        "probe_cloud",
        &[
            (ROOT, path(root.path())),
            (BASE_URL, &server.url()),
            ("http_proxy", &proxy_url),
            ("HTTP_PROXY", &proxy_url),
            ("ALL_PROXY", &proxy_url),
        ],
    );
    assert!(shown.contains(r#""region":"us-west-2""#), "{shown}");
    assert!(calls.iter().any(|call| call.contains("socket(")), "{calls:?}");
    assert!(calls.iter().any(|call| call.contains("connect(")), "{calls:?}");
    assert_eq!(proxy.log().len(), 0);
}
