//! Tests the discovery of every vendor, with metadata services that work or fail in several ways.
//!
//! This file has a single test because it counts the threads and sockets of the process.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/mod.rs"]
mod support;
#[path = "support/vendors.rs"]
mod vendors;

use resource_tracker::market::cloud::{BUDGET, Cloud, Discovery};
use std::thread;
use std::time::{Duration, Instant};
use support::{Reply, Request, Stalls, TestServer, sockets, threads};
use vendors::{VENDORS, Vendor, write_dmi};

/// Maximum duration of a discovery: the budget of 1 s and a margin.
const LIMIT: Duration = Duration::from_millis(1_200);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Correct,
    NoToken,
    SlightlyLate,
    TooLate,
    ByteByByte,
    Hanging,
    Half,
    Garbage,
    LoginPage,
    Redirect,
    Huge,
    Endless,
    Forbidden,
}

const BEHAVIOURS: [Behaviour; 13] = [
    Behaviour::Correct,
    Behaviour::NoToken,
    Behaviour::SlightlyLate,
    Behaviour::TooLate,
    Behaviour::ByteByByte,
    Behaviour::Hanging,
    Behaviour::Half,
    Behaviour::Garbage,
    Behaviour::LoginPage,
    Behaviour::Redirect,
    Behaviour::Huge,
    Behaviour::Endless,
    Behaviour::Forbidden,
];

fn reply(behaviour: Behaviour, vendor: &Vendor, request: &Request) -> Reply {
    let correct = || Box::new((vendor.service)(request));
    match behaviour {
        Behaviour::Correct => *correct(),
        Behaviour::NoToken => match vendor.id {
            _ if request.method == "PUT" => Reply::status(404, "Not Found"),
            "aws" => vendors::aws_tree(request),
            "alicloud" => vendors::alicloud_tree(request),
            _ => *correct(),
        },
        Behaviour::SlightlyLate => Reply::Late(correct(), Duration::from_millis(20)),
        Behaviour::TooLate => Reply::Late(correct(), 3 * BUDGET),
        Behaviour::ByteByByte => Reply::Drip(correct(), Duration::from_millis(30)),
        Behaviour::Hanging => Reply::Hang,
        Behaviour::Half => Reply::Half(correct()),
        Behaviour::Garbage => {
            Reply::Raw((0..4_096_u32).map(|byte| byte.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect())
        }
        Behaviour::LoginPage => Reply::ok("<!doctype html><title>Log in to this network</title>"),
        Behaviour::Redirect => Reply::Answer {
            status: 302,
            headers: vec![("Location", format!("http://127.0.0.1:9{}", request.path))],
            body: Vec::new(),
        },
        Behaviour::Huge => Reply::ok(vec![b'x'; 10_000_000]),
        Behaviour::Endless => Reply::Raw([&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b'x'; 10_000_000]].concat()),
        Behaviour::Forbidden => Reply::status(403, "Forbidden"),
    }
}

/// Runs one discovery and checks its duration.
fn discover(vendor: &'static Vendor, behaviour: Behaviour, with_dmi: bool) -> Option<Cloud> {
    let root = tempfile::tempdir().unwrap();
    if with_dmi {
        write_dmi(root.path(), vendor.dmi);
    }
    let server = TestServer::start(move |request| reply(behaviour, vendor, request));
    let discovery = Discovery {
        root: root.path().to_owned(),
        base_url: Some(server.url()),
        offline: false,
        budget: BUDGET,
    };
    let (started, stalls) = (Instant::now(), Stalls::watch());
    let found = discovery.run();
    let (took, stalled) = (started.elapsed(), stalls.stop());
    assert!(took < LIMIT + stalled, "{} {behaviour:?}: {took:?}, {stalled:?} of it stalled", vendor.id);
    if behaviour == Behaviour::Correct {
        assert!(!server.log().is_empty(), "{}: no request", vendor.id);
    }
    found.cloud
}

fn assert_complete(vendor: &Vendor, cloud: &Cloud, how: &str) {
    let found =
        (cloud.vendor, cloud.instance_type.as_deref(), cloud.region.as_deref(), cloud.zone.as_deref());
    assert_eq!(found, (vendor.id, vendor.instance_type, vendor.region, vendor.zone), "{how}");
    assert_eq!(
        (cloud.instance_id.as_deref(), cloud.spot),
        (vendor.instance_id, vendor.spot),
        "{} {how}",
        vendor.id
    );
}

fn assert_firmware_only(vendor: &Vendor, cloud: &Cloud, behaviour: Behaviour) {
    // OVH has the firmware texts of OpenStack. Only its metadata service differs.
    let expected = if vendor.id == "ovh" { "openstack" } else { vendor.id };
    let found = (cloud.vendor, cloud.instance_type.as_deref(), cloud.region.as_deref());
    assert_eq!(found, (expected, vendor.firmware_type, None), "{behaviour:?}");
}

#[test]
fn discovery_ends_in_time_and_closes_threads_and_sockets() {
    let (threads_before, sockets_before) = (threads(), sockets());
    for behaviour in BEHAVIOURS {
        // Discoveries that only wait can run in parallel. Other discoveries need CPU time within their time limit.
        let parallel = match behaviour {
            Behaviour::Hanging | Behaviour::TooLate | Behaviour::ByteByByte => VENDORS.len(),
            _ => 3,
        };
        for some in VENDORS.chunks(parallel) {
            let running: Vec<_> = some
                .iter()
                .map(|vendor| {
                    thread::spawn(move || {
                        let cloud = discover(vendor, behaviour, true)
                            .expect("the firmware texts are those of a vendor");
                        let needs_token = vendor.id == "linode";
                        match behaviour {
                            Behaviour::Correct | Behaviour::SlightlyLate => {
                                assert_complete(vendor, &cloud, "with DMI");
                            }
                            Behaviour::NoToken if !needs_token => {
                                assert_complete(vendor, &cloud, "without token");
                            }
                            _ => assert_firmware_only(vendor, &cloud, behaviour),
                        }
                    })
                })
                .collect();
            for thread in running {
                thread.join().unwrap();
            }
        }
    }

    // Without firmware texts a discovery already uses many threads, so discoveries run one by one.
    for vendor in VENDORS {
        let cloud =
            discover(vendor, Behaviour::Correct, false).unwrap_or_else(|| panic!("{} not found", vendor.id));
        assert_complete(vendor, &cloud, "without DMI");
    }
    for behaviour in BEHAVIOURS {
        if !matches!(behaviour, Behaviour::Correct | Behaviour::NoToken | Behaviour::SlightlyLate) {
            assert_eq!(discover(&VENDORS[0], behaviour, false), None, "{behaviour:?}");
        }
    }
    assert_eq!((threads(), sockets()), (threads_before, sockets_before), "threads and sockets are left");
}
