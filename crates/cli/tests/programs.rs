//! Usage by program: beside what the parent of the programs is told by the kernel, and for more processes than samples.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;
use support::{load, python, run, text, tracker};

/// Starts the scripts of a folder, in a row or all at once, and writes what `wait4` says about each. Programs
/// that run at once end 0.4 s apart: what processes use after their last sample cannot be told apart if they end together.
const PARENT: &str = "
import json, os, subprocess, sys
folder, at_once, truth = sys.argv[1], sys.argv[2] == 'at once', {}
scripts = sorted(name for name in os.listdir(folder) if name.endswith('.py'))
running = {}
def wait():
    pid, _, used = os.wait4(-1, 0)
    truth[running.pop(pid)] = [used.ru_utime + used.ru_stime, used.ru_maxrss]
for number, script in enumerate(scripts):
    wait_s = str(number * 0.4) if at_once else '0'
    running[subprocess.Popen([sys.executable, f'{folder}/{script}', wait_s]).pid] = script
    if not at_once: wait()
while running: wait()
json.dump(truth, open(f'{folder}/truth.json', 'w'))
";

const SCRIPT: &str = "
import sys, time
pages = bytearray(MIB << 20)
for at in range(0, len(pages), 4096): pages[at] = 1
while time.process_time() < SECONDS: pass
time.sleep(float(sys.argv[1]))
";

fn programs(recording: &Value) -> Vec<Value> {
    recording["run"]["programs"].as_array().unwrap().clone()
}

fn named<'p>(programs: &'p [Value], name: &str) -> &'p Value {
    let found = programs.iter().find(|program| program["name"].as_str().unwrap().ends_with(name));
    found.unwrap_or_else(|| panic!("{name} is not in {programs:#?}"))
}

/// Asserts that the programs add up to the CPU time and the storage bytes of the job.
fn assert_sums(recording: &Value) {
    let programs = programs(recording);
    let rows = recording["process_metrics"].as_array().unwrap();
    let of_rows = |keys: &[&str]| -> f64 {
        rows.iter().flat_map(|row| keys.iter().map(|key| row[*key].as_f64().unwrap())).sum()
    };
    let sum = |key: &str| -> f64 { programs.iter().map(|program| program[key].as_f64().unwrap()).sum() };
    let cpu_s = of_rows(&["utime", "stime"]);
    assert!((sum("cpu_seconds") - cpu_s).abs() < 0.01, "{} of {cpu_s} s: {programs:#?}", sum("cpu_seconds"));
    for bytes in ["read_bytes", "write_bytes"] {
        assert!((sum(bytes) - of_rows(&[bytes])).abs() < 1.0, "{bytes}: {programs:#?}");
    }
}

#[test]
fn usage_of_five_programs_is_that_of_the_kernel() {
    let home = tempfile::tempdir().unwrap();
    for (name, mib, seconds) in
        [("load", 60, 0.7), ("clean", 120, 0.9), ("fit", 200, 1.5), ("plot", 80, 0.8), ("save", 40, 0.6)]
    {
        let script = SCRIPT.replace("MIB", &mib.to_string()).replace("SECONDS", &seconds.to_string());
        fs::write(home.path().join(format!("{name}.py")), script).unwrap();
    }
    for order in ["in a row", "at once"] {
        let file = home.path().join("run.json.gz");
        let command = [&python(), "-c", PARENT, home.path().to_str().unwrap(), order];
        let output = run(home.path(), &["-o", file.to_str().unwrap()], &command);
        assert!(output.status.success(), "{}", text(&output));
        let (recording, truth) = (load(&file), fs::read_to_string(home.path().join("truth.json")).unwrap());
        let truth: Value = serde_json::from_str(&truth).unwrap();
        for (script, used) in truth.as_object().unwrap() {
            let programs = programs(&recording);
            let program = named(&programs, script);
            let (cpu_s, rss_kib) = (used[0].as_f64().unwrap(), used[1].as_f64().unwrap());
            let ratio = program["cpu_seconds"].as_f64().unwrap() / cpu_s;
            // Clock ticks are 10 ms.
            assert!((ratio - 1.0).abs() < 0.03 + 0.01 / cpu_s, "{script} {order}: {ratio} of {cpu_s} s");
            let ratio = program["memory_peak_kib"].as_f64().unwrap() / rss_kib;
            assert!((ratio - 1.0).abs() < 0.03, "{script} {order}: {ratio} of {rss_kib} KiB");
            assert_eq!(program["processes"], 1, "{script} {order}");
        }
        assert_sums(&recording);
    }
}

#[test]
fn table_of_many_short_programs_is_bounded_and_adds_up() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("programs");
    fs::create_dir(&folder).unwrap();
    for number in 0..80 {
        symlink("/bin/sleep", folder.join(format!("program-{number}"))).unwrap();
    }
    let file = home.path().join("run.json.gz");
    let script = "for program in \"$1\"/*; do \"$program\" 1.5 & done; wait; i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done";
    let command = ["sh", "-c", script, "sh", folder.to_str().unwrap()];
    let output = run(home.path(), &["-i", "0.1", "-o", file.to_str().unwrap()], &command);
    assert!(output.status.success(), "{}", text(&output));
    let recording = load(&file);
    let programs = programs(&recording);
    assert_eq!(programs.len(), 52, "{programs:#?}");
    assert!(named(&programs, "other programs")["processes"].as_u64().unwrap() >= 30, "{programs:#?}");
    assert_sums(&recording);
    let shown = tracker(home.path()).args(["show", "--programs"]).arg(Path::new(&file)).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("not seen individually") && shown.lines().count() == 53, "{shown}");
}
