//! Network traffic of the tracker itself, in a network namespace of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::Command;

use support::{BIN, load, open_folder, text};

/// Two network namespaces that a veth pair connects. The other namespace has a web server at the address of metadata
/// services, which answers 404. `$1` is the tracker, `$2` the recording.
const SCRIPT: &str = r#"
set -e
unshare --net --kill-child sh -c 'read go; ip addr add 169.254.169.254/16 dev v1; ip link set v1 up
exec python3 -m http.server 80 --bind 169.254.169.254 --directory /var/empty-no-such' < "$3" > "$4" 2>&1 &
peer=$!
exec 5> "$3"
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
server=$(cat /proc/$peer/task/$peer/children); server=${server:-$peer}
ip link add v0 type veth peer name v1 netns $peer
sysctl -qw net.ipv6.conf.v0.disable_ipv6=1 2>/dev/null || true
ip addr add 169.254.1.1/16 dev v0
ip link set v0 up
echo go >&5
until python3 -c 'import socket; socket.create_connection(("169.254.169.254", 80), 1)' 2>/dev/null; do sleep 0.05; done
"$1" run -i 0.2 -o "$2" -- sleep 2
kill $server $peer 2>/dev/null || true
"#;

#[test]
fn traffic_of_the_tracker_is_recorded_and_not_in_the_summary() {
    let home = open_folder();
    let (file, fifo, log) =
        (home.path().join("run.json.gz"), home.path().join("go"), home.path().join("log"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--kill-child", "sh", "-c", SCRIPT, "sh", BIN]).args([&file, &fifo, &log]);
    let output = command
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env_remove("RESOURCE_TRACKER_OFFLINE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let recording = load(&file);
    let sum = |table: &str, column: &str| {
        let rows = recording[table].as_array().unwrap();
        rows.iter().filter_map(|row| row[column].as_f64()).sum::<f64>()
    };
    for (machine, own) in [("net_recv_bytes", "tracker_recv_bytes"), ("net_sent_bytes", "tracker_sent_bytes")]
    {
        let (machine, own) = (sum("system_metrics", machine), sum("extra_metrics", own));
        // Nothing else uses this network, but for a few packets of ARP.
        assert!(
            machine > 1000.0 && (own - machine).abs() < machine * 0.3,
            "{own} of {machine} bytes\n{}",
            text(&output)
        );
    }
}
