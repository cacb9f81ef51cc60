//! Phases of a job that `mark` starts: beside what the phases measured themselves, and from several processes at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{BIN, load, python, run, text, tracker};

/// Uses CPU time and memory, and writes its peak memory and duration. The CPU time of its end is only known to the shell.
const STEP: &str = "
import resource, sys, time
cpu_s, idle_s, mib, truth = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
began = time.monotonic()
pages = bytearray(mib << 20)
for at in range(0, len(pages), 4096): pages[at] = 1
time.sleep(idle_s)
while time.process_time() < cpu_s: pass
used = resource.getrusage(resource.RUSAGE_SELF)
with open(truth, 'w') as file: file.write(f'{used.ru_maxrss} {time.monotonic() - began}')
";

fn phases(recording: &Value) -> Vec<Value> {
    recording["run"]["phases"].as_array().cloned().unwrap_or_default()
}

fn phase<'p>(phases: &'p [Value], name: &str) -> &'p Value {
    phases
        .iter()
        .find(|phase| phase["name"] == name)
        .unwrap_or_else(|| panic!("{name} is not in {phases:#?}"))
}

/// CPU time of the ended children of a shell, from its builtin `times`.
fn cpu_of_children_s(file: &Path) -> f64 {
    let text = fs::read_to_string(file).unwrap();
    let seconds = |word: &str| -> f64 {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    text.lines().nth(1).unwrap().split(' ').map(seconds).sum()
}

fn record(home: &Path, script: &str) -> Value {
    let file = home.join("run.json.gz");
    let output = run(home, &["-o", file.to_str().unwrap()], &["sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output));
    load(&file)
}

#[test]
fn usage_of_three_phases_is_what_the_phases_measured() {
    let home = tempfile::tempdir().unwrap();
    let step = home.path().join("step.py");
    fs::write(&step, STEP).unwrap();
    let used = [("load", 0.6, 1.6, 300), ("train", 2.2, 0.0, 200), ("save", 0.4, 2.0, 150)];
    let steps: Vec<String> = used
        .iter()
        .map(|(name, cpu_s, idle_s, mib)| {
            let (step, folder) = (step.display(), home.path().display());
            format!(
                "{BIN} mark {name}; {} {step} {cpu_s} {idle_s} {mib} {folder}/{name}; times > {folder}/{name}.times; ",
                python()
            )
        })
        .collect();
    let recording = record(home.path(), &steps.concat());
    let phases = phases(&recording);
    let mut cpu_before_s = 0.0;
    for (name, ..) in used {
        let (truth, found) = (fs::read_to_string(home.path().join(name)).unwrap(), phase(&phases, name));
        let cpu_s = cpu_of_children_s(&home.path().join(format!("{name}.times")));
        let (rss_kib, seconds) = truth.split_once(' ').unwrap();
        for (figure, truth, slack) in [
            // The shell counts in steps of 10 ms.
            ("cpu_seconds", cpu_s - cpu_before_s, 0.02),
            ("memory_peak_kib", rss_kib.parse().unwrap(), 0.0),
            // The start and the end of the interpreter are outside of what the script measures.
            ("seconds", seconds.parse().unwrap(), 0.2),
        ] {
            let found = found[figure].as_f64().unwrap();
            assert!((found - truth).abs() < 0.05 * truth + slack, "{name}: {figure} is {found}, not {truth}");
        }
        cpu_before_s = cpu_s;
    }
    let rows = recording["process_metrics"].as_array().unwrap();
    let of_rows: f64 =
        rows.iter().map(|row| row["utime"].as_f64().unwrap() + row["stime"].as_f64().unwrap()).sum();
    let of_phases: f64 = phases.iter().map(|phase| phase["cpu_seconds"].as_f64().unwrap()).sum();
    assert!((of_rows - of_phases).abs() < 0.01, "{of_rows} {of_phases}");
    let marks: Vec<_> =
        recording["run"]["marks"].as_array().unwrap().iter().map(|mark| &mark["name"]).collect();
    assert_eq!(marks, ["load", "train", "save"]);
    let shown = tracker(home.path())
        .args(["show", "--phases"])
        .arg(home.path().join("run.json.gz"))
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("peak memory") && shown.lines().count() == 5, "{shown}");
}

#[test]
fn flood_of_marks_from_four_processes_is_summarised() {
    let home = tempfile::tempdir().unwrap();
    // One write per mark, as the command does, without 10,000 processes.
    let flood = "
import os, time
for worker in range(4):
    if os.fork() == 0:
        for number in range(2500):
            with open(os.environ['RESOURCE_TRACKER_MARKS'], 'a') as file:
                file.write(f'{time.monotonic_ns()} phase {worker}-{number % 30}\\n')
        os._exit(0)
for worker in range(4): os.wait()
time.sleep(0.3)
";
    let script = format!("{BIN} mark flood; {} -c \"$FLOOD\"; {BIN} mark 'after the flood'", python());
    let file = home.path().join("run.json.gz");
    let mut command = tracker(home.path());
    command.args(["run", "-q", "-o"]).arg(&file).args(["--", "sh", "-c", &script]).env("FLOOD", flood);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let recording = load(&file);
    let phases = phases(&recording);
    assert_eq!(recording["run"]["marks"].as_array().unwrap().len(), 1000);
    assert_eq!(phases.len(), 51, "{phases:#?}");
    let sum = |figure: &str| -> f64 { phases.iter().filter_map(|phase| phase[figure].as_f64()).sum() };
    let times = phases.iter().map(|phase| phase["times"].as_u64().unwrap()).sum::<u64>();
    assert!(times > 9000, "{times}");
    let duration = recording["metadata"]["duration"].as_f64().unwrap();
    assert!((sum("seconds") - duration).abs() < 0.1, "{} {duration}", sum("seconds"));
    let rows = recording["process_metrics"].as_array().unwrap().len();
    assert!(rows < 300, "{rows}");
}

#[test]
fn mark_outside_of_a_run_does_nothing() {
    let home = tempfile::tempdir().unwrap();
    for variable in ["", "/no/such/file", "/dev/full", home.path().to_str().unwrap()] {
        for name in ["train", "", "--"] {
            let mut command = tracker(home.path());
            command.args(["mark", "--", name].iter().filter(|word| name == "--" || **word != "--"));
            let output = command.env("RESOURCE_TRACKER_MARKS", variable).output().unwrap();
            assert!(output.status.success(), "{variable} {}", text(&output));
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{}", text(&output));
        }
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn marks_of_a_run_leave_no_file_and_do_not_reach_the_run_around_it() {
    let home = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let inner = format!(
        "{BIN} mark outer; TMPDIR={} {BIN} run -q --no-save -- {BIN} mark inner",
        folder.path().display()
    );
    let recording = record(home.path(), &format!("{inner}; {BIN} mark last; sleep 0.1"));
    let phases = phases(&recording);
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["start", "outer", "last"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let files =
        String::from_utf8(std::process::Command::new("find").arg(home.path()).output().unwrap().stdout)
            .unwrap();
    assert!(!files.contains(".marks"), "{files}");
}

#[test]
fn phases_are_in_the_json_the_report_and_the_exports() {
    let home = tempfile::tempdir().unwrap();
    let (file, page) = (home.path().join("run.json.gz"), home.path().join("page.html"));
    let script = format!("sleep 0.6; {BIN} mark load; sleep 0.6; {BIN} mark 'a <b> \"c\"'; sleep 0.6");
    let options =
        ["-q", "--json", "/dev/stderr", "-o", file.to_str().unwrap(), "--report", page.to_str().unwrap()];
    let output = run(home.path(), &options, &["sh", "-c", &script]);
    let summary: Value = serde_json::from_slice(&output.stderr).unwrap();
    let names: Vec<_> = summary["phases"].as_array().unwrap().iter().map(|phase| &phase["name"]).collect();
    assert_eq!(names, ["start", "load", "a <b> \"c\""]);
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("<h2 id=\"phases\">Phases</h2>") && page.contains("class=\"phase-label\""));
    assert!(page.contains("a &lt;b&gt; &quot;c&quot;") && !page.contains("a <b>"), "names are escaped");
    let exported = |format: &str| {
        let output = tracker(home.path()).args(["export", "--format", format]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        output.stdout
    };
    let csv = String::from_utf8(exported("csv")).unwrap();
    let column = |line: &str| line.split_once(",\"").map(|_| line.rsplit(',').next().unwrap().to_owned());
    let mut cells: Vec<_> = csv.lines().filter_map(column).collect();
    cells.dedup();
    assert_eq!(cells, ["\"phase\"", "\"start\"", "\"load\"", "\"a <b> \"\"c\"\"\""]);
    let lines = String::from_utf8(exported("jsonl")).unwrap();
    let mut cells: Vec<_> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["phase"].clone()).collect();
    cells.dedup();
    assert_eq!(cells, names.into_iter().cloned().collect::<Vec<_>>());
    assert!(exported("parquet").windows(5).any(|bytes| bytes == b"phase"));
}
