//! Every JSON output of the command is valid by `docs/schema/run.schema.json`, and has the same object for the same run.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use serde_json::{Value, json};

use support::runs::home_with_runs;
use support::schema::Schema;
use support::{open_folder, text, tracker};

/// Standard output of a command.
fn shown(home: &Path, line: &str) -> String {
    let output = tracker(home)
        .env("RESOURCE_TRACKER_OFFLINE", "1")
        .env("XDG_CACHE_HOME", home.join("cache"))
        .current_dir(home)
        .args(line.split_whitespace())
        .output()
        .unwrap();
    assert!(!matches!(output.status.code(), Some(2 | 125)), "{line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn parsed(home: &Path, line: &str) -> Value {
    let text = shown(home, line);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
}

#[test]
fn every_json_output_is_valid() {
    let (schema, home) = (Schema::load(), home_with_runs());
    let home = home.path();
    shown(home, "run -q --json run.json -i 0.05 --job real --tag a=b --input run.json -- sleep 0.2");
    shown(home, "run -q --store store --job stored -- true");
    shown(home, "run -q --json killed.json -- sh -c kill${IFS}-9${IFS}$$");
    let mut outputs: Vec<(&str, Value)> = [
        ("output_run", "show last --json"),
        ("output_run", "show real --json"),
        ("output_run", "show b2 --json"),
        ("output_list", "list --json"),
        ("output_list", "list --job nobody --json"),
        ("output_stats", "stats real --json"),
        ("output_stats", "stats a1 --stat process_memory:p95 --json"),
        ("output_recommend", "recommend real --json"),
        ("output_recommend", "recommend b2 --json"),
        ("output_recommend", "recommend train --json"),
        ("output_compare", "compare a1 b1 --json"),
        ("output_compare", "compare train real a1 --json"),
        ("output_check", "check a1 --max memory=1GiB --max gpu=1 --json"),
        ("output_check", "check real --against train --json"),
        ("output_servers", "servers --cpu 1 --memory 128 -n 2 --json"),
        ("output_catalog_info", "catalog info --json"),
        ("output_info", "info --json"),
        ("output_config", "config --json"),
        ("output_report", "report a1 -o page.html --json"),
        ("output_rm", "rm a1 --json"),
        ("output_fleet_push", "fleet push --store store --json"),
        ("output_fleet_summary", "fleet summary --store store --json"),
        ("output_fleet_pull", "fleet pull copy --store store --json"),
        ("output_fleet_compact", "fleet compact --store store --json"),
        ("output_report", "fleet report --store store -o fleet.html --json"),
    ]
    .map(|(name, line)| (name, parsed(home, line)))
    .into();
    for file in ["run.json", "killed.json"] {
        let text = std::fs::read_to_string(home.join(file)).unwrap();
        outputs.push(("output_run", serde_json::from_str(&text).unwrap()));
    }
    for (name, line) in [("process_row", "process"), ("system_row", "system")] {
        for row in shown(home, &format!("{line} --json -i 0.05 --samples 2")).lines() {
            outputs.push((name, serde_json::from_str(row).unwrap()));
        }
    }
    for (name, output) in &outputs {
        assert_eq!(schema.errors(name, output), Vec::<String>::new());
    }
    // `catalog update` needs the network; its output is in the schema but not here.
    let unseen: Vec<_> = schema
        .definitions()
        .filter(|name| name.starts_with("output_") || name.ends_with("_row"))
        .filter(|name| !outputs.iter().any(|(seen, _)| seen == name))
        .collect();
    assert_eq!(unseen, ["output_catalog_update"]);
}

#[test]
fn unknown_missing_and_mistyped_keys_are_errors() {
    let (schema, home) = (Schema::load(), home_with_runs());
    let list = parsed(home.path(), "list --json");
    let broken = |key: &str, value: Option<Value>| {
        let mut list = list.clone();
        let run = list["runs"][0].as_object_mut().unwrap();
        run.shift_remove(key);
        run.extend(value.map(|value| (key.to_owned(), value)));
        schema.errors("output_list", &list).len()
    };
    assert_eq!(broken("job", Some(json!("train"))), 0);
    assert_eq!(broken("duration_s", Some(json!(1.0))), 1, "an unknown key");
    assert_eq!(broken("duration_seconds", None), 1, "a missing key");
    assert_eq!(broken("duration_seconds", Some(json!("1"))), 1, "text in place of a number");
    assert_eq!(broken("notes", Some(json!([1]))), 1);
    assert_eq!(broken("tracker", Some(json!({ "cpu_seconds": 1.0 }))), 1);
    let mut advice = parsed(home.path(), "recommend b2 --json");
    assert!(!advice["warnings"].as_array().unwrap().is_empty());
    advice["warnings"][0]["more"] = json!(1);
    assert_eq!(schema.errors("output_recommend", &advice).len(), 1);
}

#[test]
fn run_is_the_same_object_in_every_output() {
    let home = open_folder();
    let home = home.path();
    shown(home, "run -q --json run.json -i 0.05 --job real --tag a=b -- sh -c sleep${IFS}0.2;exit${IFS}3");
    let listed = parsed(home, "list --json")["runs"][0].clone();
    assert_eq!((&listed["status"], &listed["exit_code"]), (&json!("failed"), &json!(3)));
    assert!(listed["cpu_seconds"].is_number() && listed["tracker"]["cpu_source"].is_string(), "{listed}");
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(home.join("run.json")).unwrap()).unwrap();
    let others = [
        ("run", written),
        ("show", parsed(home, "show last --json")),
        ("stats", parsed(home, "stats last --json")["run"].clone()),
        ("recommend", parsed(home, "recommend last --json")["run"].clone()),
        ("compare", parsed(home, "compare last last --json")["sides"][1]["runs"][0].clone()),
        ("check", parsed(home, "check last --max duration=1h --json")["run"].clone()),
    ];
    for (name, other) in &others {
        for (key, value) in listed.as_object().unwrap() {
            assert_eq!(&other[key], value, "{key} of {name}");
        }
    }
}
