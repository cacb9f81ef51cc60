//! Output, errors and exit codes of every command, byte for byte. `INSTA_UPDATE=always cargo test --test output`
//! rewrites the snapshots; read the diff.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::runs::{RUNS, Run, home_with_runs, recording, save};
use support::{open_folder, tracker};

/// All visible commands except `help` and `man`.
const COMMANDS: [&str; 28] = [
    "run",
    "mark",
    "attach",
    "process",
    "system",
    "stats",
    "recommend",
    "compare",
    "check",
    "show",
    "rm",
    "export",
    "list",
    "servers",
    "info",
    "catalog",
    "catalog info",
    "catalog update",
    "report",
    "fleet",
    "fleet push",
    "fleet summary",
    "fleet pull",
    "fleet report",
    "fleet compact",
    "fleet sql",
    "config",
    "completions",
];

/// Compares text with a snapshot.
fn check(name: &str, text: impl AsRef<str>) {
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text.as_ref());
    });
}

/// Runs the command lines in `home` without a network; returns exit code and both streams of each.
fn shown(home: &Path, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let mut command = tracker(home);
        command
            .env("TZ", "UTC")
            .env("RESOURCE_TRACKER_OFFLINE", "1")
            .env("XDG_CACHE_HOME", home.join("cache"));
        command.env_remove("XDG_CONFIG_HOME").current_dir(home).args(line.split_whitespace());
        let output = command.output().unwrap();
        let _ = writeln!(text, "$ resource-tracker {line}");
        for (name, bytes) in [("", &output.stdout), ("stderr", &output.stderr)] {
            let stream = String::from_utf8_lossy(bytes).replace(home.to_str().unwrap(), "HOME");
            if !name.is_empty() && !stream.is_empty() {
                let _ = writeln!(text, "-- {name} --");
            }
            text += &stream;
        }
        let _ = writeln!(text, "[exit {}]\n", output.status.code().unwrap());
    }
    text
}

#[test]
fn help_of_every_command_fits_eighty_columns() {
    let home = open_folder();
    let lines: Vec<String> = COMMANDS.iter().map(|command| format!("{command} --help")).collect();
    let all: Vec<&str> = std::iter::once("--help").chain(lines.iter().map(String::as_str)).collect();
    let help = shown(home.path(), &all);
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let listed = help.lines().filter(|line| line.starts_with("[exit 0]")).count();
    assert_eq!(listed, COMMANDS.len() + 1);
    check("help", help);
}

#[test]
fn every_command_in_the_help_is_tested() {
    let home = open_folder();
    let help = shown(home.path(), &["--help"]);
    let commands = help.split("Run:").nth(1).unwrap().split("Options:").next().unwrap();
    let mut count = 0;
    for line in commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        assert!(COMMANDS.contains(&name) || ["help", "man"].contains(&name), "{name}");
        count += 1;
    }
    let listed = COMMANDS.iter().filter(|command| !command.contains(' ')).count();
    assert_eq!(count, listed + 2);
}

#[test]
fn commands_that_read_the_history() {
    let home = home_with_runs();
    check(
        "history",
        shown(
            home.path(),
            &[
                "list",
                "list --job nobody",
                "list --job nobody --json",
                "show a10000000001",
                "show last",
                "show last --json",
                "stats a1",
                "stats a1 --stat process_memory:p95 --stat timestamp:max",
                "stats a1 --stat memory_peak:max --stat elapsed:sum --stat tracker_cpu:mean",
                "stats a1 --json",
                "recommend a4 --offline",
                "recommend a4 --history 0",
                "recommend last --json",
                "recommend last --for nextflow --history 0",
                "compare a1 a2 b1",
                "compare a1 b1",
                "compare a1 b1 --json",
            ],
        ),
    );
}

#[test]
fn runs_and_jobs_are_compared_with_the_first() {
    let home = open_folder();
    save(home.path(), "train", &RUNS[..4]);
    let with_id = |id| Run { id, ..RUNS[4] };
    save(home.path(), "slow", &["c10000000007", "c20000000008", "c30000000009", "c40000000010"].map(with_id));
    save(home.path(), "new", &[with_id("d10000000011")]);
    save(home.path(), "lost", &[Run { id: "e10000000012", ..RUNS[5] }]);
    check(
        "compare",
        shown(
            home.path(),
            &[
                "compare a1 c1",
                "compare a1 a2 c1",
                "compare a1 c1 d1",
                "compare a1 d1",
                "compare train slow",
                "compare train slow --runs 2",
                "compare train c1 new",
                "compare train c1 --json",
                "compare train slow --runs 0",
                "compare train lost",
            ],
        ),
    );
}

#[test]
fn runs_are_deleted_by_name_job_and_age() {
    let home = home_with_runs();
    check(
        "rm",
        shown(
            home.path(),
            &[
                "rm a1 nothing",
                "rm a1 a10000000001",
                "rm --job nobody",
                "rm --job train --older-than 100000",
                "rm last --json",
                "rm --job train",
                "list",
                "rm",
                "rm a2 --job train",
                "rm --older-than -1",
                "rm --older-than nan",
            ],
        ),
    );
    let left = fs::read_dir(home.path().join("data/resource-tracker")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn errors_name_the_cause_and_give_a_hint() {
    let home = home_with_runs();
    let write = |name: &str, text: &[u8]| fs::write(home.path().join(name), text).unwrap();
    write("list.json", b"[1, 2");
    write("empty.json", b"");
    write("later.json", br#"{"metadata": {"version": 99}}"#);
    write("binary.gz", b"\x1f\x8b\x08\x00garbage");
    write(
        "no-rows.json",
        recording("train", &Run { rows: &RUNS[0].rows[..1], ..RUNS[0] })
            .to_string()
            .replace("4242", "-1")
            .as_bytes(),
    );
    check(
        "errors",
        shown(
            home.path(),
            &[
                "",
                "nothing",
                "run",
                "run --",
                "run --no-such-option -- true",
                "run -i 0 -- true",
                "run -i 1e9 -- true",
                "run --tag novalue -- true",
                "run --json /no/such/folder/x -- true",
                "run -o /no/such/folder/x -- true",
                "run --csv /no/such/folder/x -- true",
                "run --report /no/such/folder/x -- true",
                "run -- no-such-command",
                "run -- /etc/passwd",
                "run -q --live -- true",
                "attach",
                "attach x",
                "attach 2147483647",
                "process --pid 2147483647",
                "process --samples 0",
                "stats",
                "stats nobody",
                "stats a",
                "stats /no/such/file",
                "stats list.json",
                "stats empty.json",
                "stats later.json",
                "stats binary.gz",
                "stats no-rows.json",
                "stats a1 --stat process_memory",
                "stats a1 --stat process_memory:average",
                "stats a1 --stat nothing:mean",
                "recommend nobody",
                "compare a1",
                "compare a1 nobody",
                "show nobody",
                "export nobody",
                "export a1 --format xml",
                "export a1 --format json --bytes",
                "export a1 --format json --extra",
                "export a1 -o /no/such/folder/x",
                "report nobody",
                "report a1 -o /no/such/folder/x",
                "servers --cpu -1 --memory 1",
                "servers --cpu 1 --memory 1 --vendor-id nobody",
                "servers --cpu 1 --memory 1 --compliance-framework-id hipaa",
                "catalog update",
                "completions tcsh",
                "man nothing",
            ],
        ),
    );
}

#[test]
fn servers_and_catalogue() {
    let home = open_folder();
    check(
        "servers",
        shown(
            home.path(),
            &[
                "servers --cpu 2 --memory 4GiB -n 3",
                "servers --cpu 8 --memory 65536 --gpu 1 --vram 16384 --continent Europe -n 2",
                "servers --cpu 100000 --memory 1",
                "servers --cpu 1 --memory 128 -n 1 --json",
                "catalog info",
            ],
        ),
    );
}

#[test]
fn export_and_report_write_the_named_files() {
    let home = home_with_runs();
    check(
        "export",
        shown(
            home.path(),
            &[
                "export a1",
                "export a1 --bytes --human-names",
                "export a1 --format jsonl",
                "export a1 --extra",
                "export a1 --extra --human-names --bytes --format jsonl",
                "export a1 --format parquet -o run.parquet",
                "report a1",
                "report a1 -o page.html --json",
            ],
        ),
    );
    assert!(fs::read(home.path().join("run.parquet")).unwrap().starts_with(b"PAR1"));
    for page in ["train-report.html", "page.html"] {
        assert!(fs::read_to_string(home.path().join(page)).unwrap().starts_with("<!DOCTYPE html>"), "{page}");
    }
}

#[test]
fn precedence_of_settings_is_option_variable_project_user() {
    let home = open_folder();
    let user = home.path().join(".config/resource-tracker");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("config.toml"), "interval = 5\njob = \"of-the-user\"\nkeep_runs = 7\nquiet = true\n")
        .unwrap();
    let project = home.path().join("resource-tracker.toml");
    fs::write(&project, "interval = 0.5\nquiet = false\ntags = { team = \"vision\" }\n").unwrap();
    let mut text = shown(home.path(), &["config", "config --json"]);
    let run = |variable: Option<&str>, option: Option<&str>| {
        let mut command = tracker(home.path());
        command.current_dir(home.path()).env_remove("XDG_CONFIG_HOME");
        if let Some(value) = variable {
            command.env("RESOURCE_TRACKER_INTERVAL", value);
        }
        command.arg("run").args(option.map(|value| format!("--interval={value}"))).args([
            "--no-save",
            "-o",
            "x.json.gz",
            "true",
        ]);
        let output = command.output().unwrap();
        assert!(output.stderr.starts_with(b"resource-tracker: finished"), "the project sets quiet = false");
        let output = tracker(home.path())
            .current_dir(home.path())
            .args(["export", "x.json.gz", "--format", "json"])
            .output();
        let json: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        (json["metadata"]["interval"].as_f64().unwrap(), json["run"].clone())
    };
    assert_eq!(run(Some("3"), Some("2")).0, 2.0);
    assert_eq!(run(Some("3"), None).0, 3.0);
    let (interval, of_run) = run(None, None);
    assert_eq!(interval, 0.5);
    assert_eq!((&of_run["job"], &of_run["tags"]["team"]), (&json!("of-the-user"), &json!("vision")));
    // A given option overrides a conflicting setting of a file.
    fs::write(&project, "quiet = true\noutput = \"from-file.json.gz\"\n").unwrap();
    text += &shown(home.path(), &["run --live --no-save -- no-such-command"]);
    assert!(!home.path().join("from-file.json.gz").exists());
    for wrong in [
        "interval = 0",
        "interval = \"x\"",
        "intervall = 1",
        "quiet = 1",
        "tags = [1]",
        "tags = { \"a=b\" = \"c\" }",
        "interval = ",
        "[run]\ninterval = 1",
        "command = \"rm\"",
    ] {
        fs::write(&project, wrong).unwrap();
        let _ = write!(text, "# {wrong}\n{}", shown(home.path(), &["run -- true"]));
    }
    text += &shown(home.path(), &["list"]);
    check("config", text);
}

/// The summary with numbers replaced: `12.5 MiB` becomes `# U`.
fn without_figures(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_inclusive([' ', '\n', ',', ';', '(', ')']) {
        let bare = word.trim_end_matches([' ', '\n', ',', ';', '(', ')']);
        let end = &word[bare.len()..];
        let number = bare.trim_start_matches('$').parse::<f64>().is_ok();
        let unit = ["B", "KiB", "MiB", "GiB", "s", "ms"].contains(&bare);
        let price = bare.starts_with('$');
        shown += match () {
            () if number || price => "#",
            () if unit => "U",
            () => bare,
        };
        shown += end;
    }
    // The text is singular on a machine with one CPU.
    shown = shown.replace("of # CPUs,", "of # CPU,");
    for source in ["(perf)", "(cgroup)", "(procfs)"] {
        shown = shown.replace(source, "(SOURCE)");
    }
    shown.replace("under # %", "# %").replace("under #", "#")
}

#[test]
fn summary_of_a_run_is_on_standard_error() {
    let home = open_folder();
    let summary = |options: &[&str], job: &str| {
        let output = tracker(home.path())
            .current_dir(home.path())
            .arg("run")
            .args(options)
            .args(["--", "sh", "-c", job])
            .output();
        let text =
            String::from_utf8_lossy(&output.unwrap().stderr).replace(home.path().to_str().unwrap(), "HOME");
        let id =
            text.split("resource-tracker/").nth(1).and_then(|rest| rest.split('.').next()).map(str::to_owned);
        format!(
            "$ run {} -- sh -c '{job}'\n{}\n",
            options.join(" "),
            without_figures(&id.map_or(text.clone(), |id| text.replace(&id, "ID")))
        )
    };
    // Memory of a job that takes a few milliseconds may be unknown.
    let some_time = "sleep 0.3";
    let texts = [
        summary(&["--offline", "-j", "once"], some_time),
        summary(&["--offline", "-j", "once", "--report", "page.html"], some_time),
        summary(&["--offline", "--no-save"], &format!("{some_time}; exit 3")),
        summary(&["--offline", "--no-save"], &format!("{some_time}; kill -TERM $$")),
        summary(&["--offline", "-q"], some_time),
        summary(&["--offline", "--no-save", "--no-system"], some_time),
    ];
    check("summary", texts.concat());
}

#[test]
fn keys_of_a_run_are_documented() {
    let home = home_with_runs();
    let output = tracker(home.path()).args(["show", "last", "--json"]).output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["schema_version"], 2);
    let keys: Vec<&String> = summary.as_object().unwrap().keys().collect();
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    for key in keys {
        assert!(docs.contains(&format!("`{key}`")), "`{key}` is not in docs/json.md");
    }
}

#[test]
fn json_lines_have_the_columns_of_the_table() {
    let home = open_folder();
    let output =
        tracker(home.path()).args(["process", "--json", "-i", "0.05", "--samples", "2"]).output().unwrap();
    let rows: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2);
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    assert_eq!(keys[..3], ["timestamp", "pid", "children"]);
}

#[test]
fn completions_and_manual_pages_exist_for_every_command() {
    let home = open_folder();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = shown(home.path(), &[&format!("completions {shell}")]);
        for command in ["recommend", "compare", "catalog"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert!(shown(home.path(), &["man"]).contains(".SH NAME"));
    for command in COMMANDS.iter().filter(|command| !command.contains(' ')) {
        let page = shown(home.path(), &[&format!("man {command}")]);
        assert!(page.contains(".SH SYNOPSIS") && page.contains("[exit 0]"), "{command}: {page}");
    }
}
