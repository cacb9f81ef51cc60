//! The verdict of a run, for snapshots.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::tracker;

/// Compares text with a snapshot.
pub fn check(name: &str, text: impl AsRef<str>) {
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "../snapshots" }, {
        insta::assert_snapshot!(name, text.as_ref());
    });
}

/// The verdict of the last run as text, with its numbers masked where they differ from run to run.
pub fn last_verdict(home: &Path) -> String {
    let shown = tracker(home).args(["show", "last", "--json"]).output().unwrap();
    let run: Value = serde_json::from_slice(&shown.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&shown.stderr)));
    let verdict = &run["verdict"];
    let word = |key: &str| verdict[key].as_str().unwrap_or_else(|| panic!("no {key} in {run:#}"));
    let listed = tracker(home).args(["list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["runs"][0]["cause"], verdict["cause"], "{}", listed["runs"][0]);
    let mut text = format!("{} ({})\n  {}\n", word("cause"), word("certainty"), word("message"));
    for fact in verdict["evidence"].as_array().unwrap() {
        let _ = writeln!(text, "  - {}", fact.as_str().unwrap());
    }
    if let Some(next) = verdict["next"].as_str() {
        let _ = writeln!(text, "  next: {next}");
    }
    let text = masked(&text.replace(home.to_str().unwrap(), "HOME"));
    // Full file systems of this machine that have nothing to do with the job.
    text.lines()
        .filter(|line| !line.starts_with("  - the file system `/"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// Replaces pids, durations and measured memory, and their units.
fn masked(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        let is_measured = ["process", "from", "to", "last", "after", "had"].contains(&words[at - 1].as_str());
        let is_time = words.get(at + 1..at + 3).is_some_and(|next| next == ["s", "before"]);
        if (is_measured || is_time) && words[at].trim_end_matches(',').parse::<f64>().is_ok() {
            "N".clone_into(&mut words[at]);
        }
        if words[at - 1] == "N" {
            words[at] = words[at].replace("ms", "s").replace("KiB", "MiB");
        }
    }
    words.join(" ")
}
