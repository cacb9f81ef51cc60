//! Behaviour of each command. The exact output is tested in `output.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{BIN, open_folder, text, tracker};

/// Runs the command without the user's settings and without a network; returns exit code, output and errors.
fn shown(home: &Path, arguments: &[&str]) -> String {
    let mut command = tracker(home);
    command.env("RESOURCE_TRACKER_OFFLINE", "1").env("XDG_CACHE_HOME", home.join("cache")).args(arguments);
    let output = command.output().unwrap();
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    format!(
        "exit: {:?}\n-- stdout --\n{}\n-- stderr --\n{}",
        output.status.code(),
        part(&output.stdout),
        part(&output.stderr)
    )
}

#[test]
fn invalid_interval_is_a_usage_error() {
    let home = open_folder();
    for wrong in ["-1", "nan", "inf", "0.0001", "86401", "x", ""] {
        let shown = shown(home.path(), &["run", "-i", wrong, "--", "true"]);
        assert!(shown.starts_with("exit: Some(2)") && shown.contains("error: "), "{wrong}: {shown}");
    }
}

#[test]
fn missing_command_and_unknown_option_are_usage_errors() {
    let home = open_folder();
    for wrong in [
        &["run"][..],
        &["run", "--"],
        &["run", "--no-such-option", "--", "true"],
        &["attach"],
        &["attach", "x"],
        &["nothing"],
        &[],
    ] {
        let shown = shown(home.path(), wrong);
        assert!(shown.starts_with("exit: Some(2)"), "{wrong:?}: {shown}");
    }
}

#[test]
fn invalid_server_requirements_are_usage_errors() {
    let home = open_folder();
    for wrong in [
        &["--cpu", "-1", "--memory", "1"][..],
        &["--cpu", "nan", "--memory", "1"],
        &["--cpu", "1", "--memory", "1", "--vendor-id", "nobody"],
        &["--cpu", "1", "--memory", "1", "--region", ""],
        &["--cpu", "1", "--memory", "1", "--max-price", "nan"],
        &["--cpu", "x", "--memory", "1"],
        &["--memory", "1"],
    ] {
        let shown = shown(home.path(), &[&["servers"], wrong].concat());
        assert!(shown.starts_with("exit: Some(2)") && shown.contains("error: "), "{wrong:?}: {shown}");
    }
}

#[test]
fn info_shows_the_machine_and_its_data_sources() {
    let home = open_folder();
    let output = tracker(home.path()).args(["info", "--offline", "--json"]).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["server_info"]["os"], "Linux");
    assert_eq!(info["cloud_info"]["vendor"], "unknown");
    assert!(info["sources"].as_array().unwrap().len() >= 8, "{info}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(info["server_info"]["vcpus"].as_u64().unwrap() >= cpus as u64);
    let human = shown(home.path(), &["info"]);
    assert!(human.contains("CPU time                 counted by "), "{human}");
    for word in ["none", "null", "NaN"] {
        assert!(!human.contains(word), "{human}");
    }
}

#[test]
fn stored_command_line_has_no_secret_and_can_be_left_out() {
    let home = open_folder();
    let stored = |options: &[&str]| {
        let job = ["true", "--epochs", "3", "--password", "tr0ub4dor", "https://me:tr0ub4dor@example.org/x"];
        let output = support::run(home.path(), options, &job);
        assert!(output.status.success(), "{}", text(&output));
        let shown = [&["list", "--json"][..], &["show", "last"], &["export", "last", "--format", "json"]];
        let stored: String = shown
            .iter()
            .map(|arguments| self::shown(home.path(), arguments))
            .chain([text(&output)])
            .collect();
        assert!(!stored.contains("tr0ub4dor"), "{stored}");
        stored
    };
    assert!(stored(&[]).contains("--epochs"));
    assert!(tracker(home.path()).args(["rm", "last"]).status().unwrap().success());
    let without = stored(&["--no-command"]);
    assert!(!without.contains("--epochs"), "{without}");
}

#[test]
fn run_can_be_exported_in_every_format() {
    let home = open_folder();
    let done = tracker(home.path())
        .args(["run", "-q", "-j", "train", "--tag", "a=b", "--", "sleep", "0.1"])
        .status()
        .unwrap();
    assert!(done.success());
    let export = |name: &str, format: &str| {
        tracker(home.path()).args(["export", name, "--format", format]).output().unwrap().stdout
    };
    let csv = String::from_utf8(export("last", "csv")).unwrap();
    assert!(csv.starts_with("\"timestamp\",\"system_processes\",") && csv.lines().count() == 2, "{csv}");
    let json: serde_json::Value = serde_json::from_slice(&export("train", "json")).unwrap();
    assert_eq!(
        (&json["metadata"]["version"], &json["run"]["job"], &json["run"]["tags"]["a"]),
        (&1.into(), &"train".into(), &"b".into())
    );
    let line: serde_json::Value = serde_json::from_slice(&export("train", "jsonl")).unwrap();
    assert_eq!(line["process_pid"], json["metadata"]["pid"]);
    let parquet = export("train", "parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let human = tracker(home.path()).args(["export", "last", "--bytes", "--human-names"]).output().unwrap();
    assert!(String::from_utf8_lossy(&human.stdout).contains("\"System CPU usage\""), "{}", text(&human));
}

#[test]
fn stream_ends_after_the_requested_samples_or_a_closed_pipe() {
    let home = open_folder();
    for command in ["system", "process"] {
        let output = tracker(home.path()).args([command, "-i", "0.05", "--samples", "3"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 4, "{}", text(&output));
    }
    let mut child =
        tracker(home.path()).args(["system", "-i", "0.02"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 400];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn recording_of_a_killed_tracker_is_recovered() {
    let home = open_folder();
    // The job watches the CSV to know that rows were written.
    let csv = home.path().join("rows.csv");
    let job =
        "\"$2\" mark work; until [ $(wc -l < \"$1\") -gt 8 ]; do sleep 0.02; done; echo x; exec sleep 60";
    let mut child = tracker(home.path())
        .args(["run", "-q", "-j", "killed", "-i", "0.05", "--csv"])
        .arg(&csv)
        .args(["--", "sh", "-c", job, "sh"])
        .args([csv.as_os_str(), BIN.as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
    let job = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    Command::new("kill").arg(job.trim()).status().unwrap();
    let listed = shown(home.path(), &["list", "--json"]);
    assert!(listed.contains("\"status\": \"tracker_died\""), "{listed}");
    let output = tracker(home.path()).args(["export", "killed", "--format", "json"]).output().unwrap();
    let recording: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = recording["process_metrics"].as_array().unwrap().len();
    let written = fs::read_to_string(&csv).unwrap().lines().count() - 1;
    // The tracker may have been killed between writing a row to the journal and writing it to the CSV.
    assert!(written >= 8 && rows.abs_diff(written) <= 1, "{rows} rows, {written} rows in the CSV");
    assert_eq!(recording["metadata"]["pid"].to_string(), job.trim());
    let phases = &recording["run"]["phases"];
    let duration_s = recording["metadata"]["duration"].as_f64().unwrap();
    let seconds = |at: usize| phases[at]["seconds"].as_f64().unwrap();
    assert_eq!((&phases[0]["name"], &phases[1]["name"]), (&"start".into(), &"work".into()), "{phases}");
    assert!((seconds(0) + seconds(1) - duration_s).abs() < 0.1, "{phases}, {duration_s} s");
    let files: Vec<_> = fs::read_dir(home.path().join("data/resource-tracker"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(files.len(), 2, "the journal was removed: {files:?}");
}

#[test]
fn all_commands_show_the_same_duration_after_a_step_of_the_wall_clock() {
    let home = support::runs::home_with_runs();
    let file =
        home.path().join("data/resource-tracker").join(format!("{}.json.gz", support::runs::RUNS[0].id));
    let mut recording: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let seconds = recording["metadata"]["duration"].as_f64().unwrap();
    assert!(seconds >= 2.0, "{seconds}");
    // From the second row on, the clock is 3600 s ahead.
    for table in ["process_metrics", "system_metrics", "extra_metrics"] {
        for row in recording[table].as_array_mut().unwrap().iter_mut().skip(1) {
            row["timestamp"] = (row["timestamp"].as_f64().unwrap() + 3600.0).into();
        }
    }
    let stepped = home.path().join("stepped.json");
    fs::write(&stepped, recording.to_string()).unwrap();
    let stepped = stepped.to_str().unwrap();
    let json = |arguments: &[&str]| {
        let output = tracker(home.path()).args(arguments).args([stepped, "--json"]).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    assert_eq!(json(&["show"])["duration_seconds"], seconds);
    let stats = json(&["stats"]);
    assert_eq!(stats["stats"]["timestamp"]["duration"], seconds, "{stats}");
    let report = shown(home.path(), &["report", stepped, "-o", "-"]);
    assert!(report.contains(&format!("after {seconds} s<")), "no duration in the report");
    assert!(!report.contains("1 h"), "the step is part of a duration");
}

#[test]
fn size_of_the_inputs_is_recorded() {
    let home = open_folder();
    let (file, folder) = (home.path().join("reads.bin"), home.path().join("genome"));
    fs::write(&file, vec![0; 1000]).unwrap();
    fs::create_dir_all(folder.join("deep")).unwrap();
    fs::write(folder.join("deep/a"), vec![0; 200]).unwrap();
    fs::write(folder.join("b"), vec![0; 30]).unwrap();
    std::os::unix::fs::symlink(&folder, folder.join("loop")).unwrap();
    let recorded = |command: &mut Command, job: &str| {
        let done = command.args(["-j", job, "--", "sleep", "0.1"]).output().unwrap();
        assert!(done.status.success(), "{}", text(&done));
        let list = tracker(home.path()).args(["list", "--json", "--job", job]).output().unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        (list["runs"][0]["input_bytes"].clone(), text(&done))
    };
    let (bytes, _) =
        recorded(tracker(home.path()).args(["run", "--input"]).arg(&file).arg("--input").arg(&folder), "a");
    assert_eq!(bytes, 1230);
    let both = std::env::join_paths([&file, &folder]).unwrap();
    let (bytes, _) = recorded(tracker(home.path()).env("RESOURCE_TRACKER_INPUT", both).arg("run"), "b");
    assert_eq!(bytes, 1230);
    let (bytes, shown) = recorded(tracker(home.path()).args(["run", "--input", "/no/such/input"]), "c");
    assert_eq!(bytes, serde_json::Value::Null, "a part of the size is unknown");
    assert!(shown.contains("the size of the input `/no/such/input` is unknown"), "{shown}");
    let (bytes, _) = recorded(tracker(home.path()).arg("run"), "d");
    assert_eq!(bytes, serde_json::Value::Null);
}

#[test]
#[cfg(target_env = "gnu")]
fn arguments_are_those_that_main_receives() {
    // With glibc, the standard library knows the arguments of the process by itself; elsewhere it does not. Here `main`
    // receives other arguments than the process.
    const START: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        typedef int main_function(int, char **, char **);
        static main_function *original;
        static int other(int argc, char **argv, char **environment) {
            (void)argc;
            char *arguments[] = {argv[0], "--version", 0};
            return original(2, arguments, environment);
        }
        int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                              void (*end)(void), void (*linker_end)(void), void *stack) {
            original = main;
            __typeof__(__libc_start_main) *start = dlsym(RTLD_NEXT, "__libc_start_main");
            return start(other, argc, argv, init, end, linker_end, stack);
        }"#;
    let home = open_folder();
    let library = home.path().join("start.so");
    let source = home.path().join("start.c");
    fs::write(&source, START).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    let output = tracker(home.path()).env("LD_PRELOAD", &library).arg("no-such-command").output().unwrap();
    let version = format!("resource-tracker {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
        (Some(0), &*version),
        "{}",
        text(&output)
    );
}
