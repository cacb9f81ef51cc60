//! Tests against a Keeper that attacks: responses that decompress to gigabytes, and redirects into the network of the
//! machine. Each search runs in a child process, with its own environment and its own peak memory.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/mod.rs"]
mod support;

use resource_tracker::market::catalog::{Catalog, Query, Settings, Source};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use support::{Reply, TestServer};

/// Body of the child process: searches with the settings of the environment, in little memory.
#[test]
#[ignore = "started by another test"]
fn probe_environment() {
    let answer = Catalog::new(Settings::from_env()).servers(&Query::new(2.0, 4_096.0)).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")).unwrap();
    let peak_mib = peak.trim().parse::<u64>().unwrap() >> 10;
    let reason = answer.fallback_reason.unwrap();
    std::io::stdout().write_all(format!("{reason}\n").as_bytes()).unwrap();
    assert_eq!(answer.source, Source::Embedded);
    assert!(peak_mib < 400, "{peak_mib} MiB");
}

/// Runs [`probe_environment`] and returns its output.
fn probe(environment: &[(&str, String)]) -> String {
    let cache = tempfile::tempdir().unwrap();
    let probed = Command::new(std::env::current_exe().unwrap())
        .args(["probe_environment", "--exact", "--ignored", "--nocapture"])
        .env("XDG_CACHE_HOME", cache.path())
        .envs(environment.iter().map(|(name, value)| (*name, value)))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&probed.stdout).into_owned();
    assert!(probed.status.success(), "{output}");
    output
}

#[test]
fn large_response_takes_little_memory() {
    let gzipped = |piece: &[u8], bytes: usize| {
        let mut body = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..bytes / piece.len()).for_each(|_| body.write_all(piece).unwrap());
        let headers = vec![("Content-Encoding", "gzip".to_owned())];
        Reply::Answer { status: 200, headers, body: body.finish().unwrap() }
    };
    let long = "cannot reach the Keeper: the response body is larger than request limit: 33554432";
    let cases = [
        (gzipped(&vec![b' '; 1 << 20], 500 << 20), long),
        (
            gzipped(b"[{\"\":0},".repeat(1 << 17).as_slice(), 30 << 20),
            "the response of the Keeper is too large",
        ),
        (
            gzipped(b"[0,0,0,0".repeat(1 << 17).as_slice(), 30 << 20),
            "the response of the Keeper is too large",
        ),
    ];
    for (reply, reason) in cases {
        let server = TestServer::start(move |_| reply.clone());
        let output = probe(&[("RESOURCE_TRACKER_KEEPER_URL", server.url())]);
        // On a busy machine, the deadline may pass first.
        assert!(output.contains(reason) || output.contains("did not respond within 2 s"), "{output}");
    }
}

#[test]
fn redirect_from_a_public_to_an_internal_address_is_not_followed() {
    let internal = TestServer::start(|_| Reply::ok("[]"));
    let targets = [
        internal.url(),
        internal.url().replace("127.0.0.1", "localhost"),
        internal.url().replace("127.0.0.1", "[::ffff:127.0.0.1]"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/".to_owned(),
        "http://10.0.0.1/".to_owned(),
    ];
    for target in targets {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let location = target.clone();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let found = format!(
                "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            for reply in ["HTTP/1.1 200 OK\r\n\r\n", &found] {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                stream.write_all(reply.as_bytes()).unwrap();
            }
            drop(stream);
            // A second connection would be the redirect through the proxy.
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let output = probe(&[
            ("RESOURCE_TRACKER_KEEPER_URL", "http://keeper.test".to_owned()),
            ("http_proxy", proxy.clone()),
            ("HTTP_PROXY", proxy),
            ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
        ]);
        assert!(output.contains("an address of this machine or its network"), "{target}: {output}");
        assert!(asked.join().unwrap().accept().is_err(), "{target}");
    }
    assert_eq!(internal.log().len(), 0);
}

#[test]
fn proxy_settings_apply_to_the_keeper() {
    let proxy = TestServer::start(|_| Reply::status(502, "no way through"));
    probe(&[
        ("RESOURCE_TRACKER_KEEPER_URL", "http://keeper.test".to_owned()),
        ("HTTP_PROXY", proxy.url()),
        ("http_proxy", proxy.url()),
    ]);
    let requests = proxy.log();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].path.contains("keeper.test"), "{requests:?}");
}
