//! Every vendor against a server on loopback that behaves as its metadata service does, and badly.
//!
//! One test, so that counting the threads and sockets of the process counts nobody else's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/mod.rs"]
mod support;
#[path = "support/vendors.rs"]
mod vendors;

use resource_tracker::cloud::{BUDGET, Cloud, Discovery};
use std::thread;
use std::time::{Duration, Instant};
use support::{Reply, Request, Stalls, TestServer, sockets, threads};
use vendors::{VENDORS, Vendor, write_dmi};

/// The budget, and what it takes to be told.
const LIMIT: Duration = Duration::from_millis(1_200);

/// What a service does to its own right answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Right,
    NoToken,
    ALittleLate,
    TooLate,
    Dripping,
    Hanging,
    Half,
    Garbage,
    Page,
    Redirect,
    Huge,
    Endless,
    Refusing,
}

const BEHAVIOURS: [Behaviour; 13] = [
    Behaviour::Right,
    Behaviour::NoToken,
    Behaviour::ALittleLate,
    Behaviour::TooLate,
    Behaviour::Dripping,
    Behaviour::Hanging,
    Behaviour::Half,
    Behaviour::Garbage,
    Behaviour::Page,
    Behaviour::Redirect,
    Behaviour::Huge,
    Behaviour::Endless,
    Behaviour::Refusing,
];

fn reply(behaviour: Behaviour, vendor: &Vendor, request: &Request) -> Reply {
    let right = || Box::new((vendor.service)(request));
    match behaviour {
        Behaviour::Right => *right(),
        Behaviour::NoToken => match vendor.id {
            _ if request.method == "PUT" => Reply::status(404, "no such thing"),
            "aws" => vendors::aws_tree(request),
            "alicloud" => vendors::alicloud_tree(request),
            _ => *right(),
        },
        Behaviour::ALittleLate => Reply::Late(right(), Duration::from_millis(20)),
        Behaviour::TooLate => Reply::Late(right(), 3 * BUDGET),
        Behaviour::Dripping => Reply::Drip(right(), Duration::from_millis(30)),
        Behaviour::Hanging => Reply::Hang,
        Behaviour::Half => Reply::Half(right()),
        Behaviour::Garbage => {
            Reply::Raw((0..4_096_u32).map(|byte| byte.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect())
        }
        Behaviour::Page => Reply::ok("<!doctype html><title>Log in to this network</title>"),
        Behaviour::Redirect => Reply::Answer {
            status: 302,
            headers: vec![("Location", format!("http://127.0.0.1:9{}", request.path))],
            body: Vec::new(),
        },
        Behaviour::Huge => Reply::ok(vec![b'x'; 10_000_000]),
        Behaviour::Endless => Reply::Raw([&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b'x'; 10_000_000]].concat()),
        Behaviour::Refusing => Reply::status(403, "Forbidden"),
    }
}

/// Runs one discovery and checks what must hold whatever the service does.
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
    if behaviour == Behaviour::Right {
        assert!(!server.log().is_empty(), "{}: nothing was asked", vendor.id);
    }
    found.cloud
}

fn assert_right(vendor: &Vendor, cloud: &Cloud, how: &str) {
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

fn assert_unknown(vendor: &Vendor, cloud: &Cloud, behaviour: Behaviour) {
    // What several vendors' firmware has in common is only told apart by their services.
    let expected = if vendor.id == "ovh" { "openstack" } else { vendor.id };
    let found = (cloud.vendor, cloud.instance_type.as_deref(), cloud.region.as_deref());
    assert_eq!(found, (expected, vendor.firmware_type, None), "{behaviour:?}");
}

#[test]
fn every_vendor_is_found_or_unknown_in_time_and_leaves_nothing_behind() {
    let (threads_before, sockets_before) = (threads(), sockets());
    for behaviour in BEHAVIOURS {
        // Those that only wait can all wait side by side; the others take turns, so that each has its second.
        let side_by_side = match behaviour {
            Behaviour::Hanging | Behaviour::TooLate | Behaviour::Dripping => VENDORS.len(),
            _ => 3,
        };
        for some in VENDORS.chunks(side_by_side) {
            let running: Vec<_> = some
                .iter()
                .map(|vendor| {
                    thread::spawn(move || {
                        let cloud = discover(vendor, behaviour, true).expect("the firmware names a vendor");
                        let needs_token = vendor.id == "linode";
                        match behaviour {
                            Behaviour::Right | Behaviour::ALittleLate => {
                                assert_right(vendor, &cloud, "with DMI");
                            }
                            Behaviour::NoToken if !needs_token => {
                                assert_right(vendor, &cloud, "without token");
                            }
                            _ => assert_unknown(vendor, &cloud, behaviour),
                        }
                    })
                })
                .collect();
            for thread in running {
                thread.join().unwrap();
            }
        }
    }

    // Without firmware texts all vendors are asked side by side, so one machine at a time.
    for vendor in VENDORS {
        let cloud =
            discover(vendor, Behaviour::Right, false).unwrap_or_else(|| panic!("{} not found", vendor.id));
        assert_right(vendor, &cloud, "without DMI");
    }
    for behaviour in BEHAVIOURS {
        if !matches!(behaviour, Behaviour::Right | Behaviour::NoToken | Behaviour::ALittleLate) {
            assert_eq!(discover(&VENDORS[0], behaviour, false), None, "{behaviour:?}");
        }
    }
    assert_eq!((threads(), sockets()), (threads_before, sockets_before), "left over");
}
