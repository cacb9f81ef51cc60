//! Network traffic of the tracker itself, in a network namespace of its own.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
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
        assert_eq!(shown["tracker"][format!("net_{direction}_bytes")], own);
        assert_eq!(shown[format!("system_net_{direction}_bytes")], (machine - own).max(0.0));
    }
}

/// The metadata service of an EC2 instance of type m5.4xlarge in eu-west-1.
fn serve_ec2_metadata(listener: &TcpListener) {
    for mut connection in listener.incoming().flatten() {
        let mut line = String::new();
        let mut reader = BufReader::new(&connection);
        if reader.read_line(&mut line).is_err() {
            continue;
        }
        // Connections are closed after each answer, so the headers must be read first.
        let mut header = String::new();
        while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
            header.clear();
        }
        let body = match line.split(' ').nth(1).unwrap_or_default() {
            "/latest/api/token" => "token",
            "/latest/meta-data/services/domain" => "amazonaws.com",
            "/latest/meta-data/instance-type" => "m5.4xlarge",
            "/latest/meta-data/placement/region" => "eu-west-1",
            "/latest/meta-data/placement/availability-zone" => "eu-west-1a",
            "/latest/meta-data/instance-id" => "i-0123456789",
            "/latest/meta-data/instance-life-cycle" => "on-demand",
            _ => "",
        };
        let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
        let length = body.len();
        let _ = write!(
            connection,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
    }
}

#[test]
fn server_in_the_cloud_region_of_the_run_comes_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || serve_ec2_metadata(&listener));
    let home = open_folder();
    // Firmware texts of this machine would name its own cloud, or none.
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /sys/class/dmi 2>/dev/null; exec \"$@\"",
        "sh",
        BIN,
    ]);
    command.args([
        "run",
        "-j",
        "train",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done",
    ]);
    let output = command
        .env("HOME", home.path())
        .env("XDG_DATA_HOME", home.path().join("data"))
        .env("RESOURCE_TRACKER_METADATA_URL", url)
        .env_remove("RESOURCE_TRACKER_OFFLINE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let shown = text(&output);
    let at =
        shown.lines().position(|line| line.starts_with("  server ")).unwrap_or_else(|| panic!("{shown}"));
    let lines: Vec<&str> = shown.lines().skip(at).take(2).collect();
    let class = format!("dedicated {}, price of ", std::env::consts::ARCH.replace("aarch64", "arm64"));
    assert!(lines[0].starts_with("  server     aws ") && lines[0].contains(" in eu-west-1, "), "{shown}");
    assert!(lines[1].trim_start().starts_with(&class), "{shown}");
    assert!(
        shown.lines().any(|line| line.starts_with("  cost ") && line.contains("possible saving")),
        "{shown}"
    );
    let advice = tracker(home.path()).args(["recommend", "train", "--json", "--offline"]).output().unwrap();
    let advice: serde_json::Value = serde_json::from_slice(&advice.stdout).unwrap();
    let here = &advice["servers"]["here"];
    assert_eq!((&here["vendor_id"], &here["price_region"]), (&"aws".into(), &"eu-west-1".into()), "{advice}");
    assert_eq!(advice["cost"]["savings"]["same_region"], true, "{advice}");
}
