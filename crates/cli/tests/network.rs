//! Network traffic of the tracker itself, in a network namespace of its own.

mod support;

use std::process::Command;

use support::{BIN, load, open_folder, text, tracker};

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
    let shown = tracker(home.path()).arg("show").arg(&file).arg("--json").output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    for direction in ["received", "sent"] {
        let short = if direction == "sent" { "sent" } else { "recv" };
        let machine = sum("system_metrics", &format!("net_{short}_bytes"));
        let own = sum("extra_metrics", &format!("tracker_{short}_bytes"));
        // Nothing else uses this network, but for a few packets of ARP.
        let is_close = machine > 1000.0 && (own - machine).abs() < machine * 0.3;
        assert!(is_close, "{own} of {machine} bytes {direction}\n{}", text(&output));
        assert_eq!(shown["tracker"]["network_bytes"][direction], own);
        assert_eq!(shown["system_network_bytes"][direction], (machine - own).max(0.0));
    }
}
