//! Settings files: which of them are used. The exact output of `config` is tested in `output.rs`.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::runs::home_with_runs;
use support::{NOBODY, as_user, open_folder, text, tracker};

#[test]
fn project_file_applies_below_it_in_the_same_repository_and_only_to_its_owner() {
    let home = open_folder();
    let below = home.path().join("project/a/b");
    fs::create_dir_all(&below).unwrap();
    let file = home.path().join("project/resource-tracker.toml");
    fs::write(&file, "interval = 9\n").unwrap();
    let interval = |folder: &Path| {
        let output = tracker(home.path()).current_dir(folder).args(["config", "--json"]).output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        json["settings"][0]["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(interval(&home.path().join("project")), "9");
    assert_eq!(interval(&below), "1", "outside a repository only the current directory is searched");
    fs::create_dir(home.path().join("project/.git")).unwrap();
    assert_eq!(interval(&below), "9");
    if support::is_root() {
        std::os::unix::fs::chown(&file, Some(support::NOBODY), None).unwrap();
        assert_eq!(interval(&below), "1", "a file of another user");
        let own = home.path().join("own.toml");
        fs::rename(&file, &own).unwrap();
        std::os::unix::fs::chown(&own, Some(0), None).unwrap();
        std::os::unix::fs::symlink(&own, &file).unwrap();
        std::os::unix::fs::lchown(&file, Some(support::NOBODY), None).unwrap();
        assert_eq!(interval(&below), "1", "a link of another user to a file of this user");
    }
}

#[test]
fn unreachable_settings_are_ignored_and_a_fifo_is_an_error() {
    let home = open_folder();
    let output =
        tracker(Path::new("/dev/null")).args(["run", "-q", "--no-save", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        Command::new("mkfifo").arg(home.path().join("resource-tracker.toml")).status().unwrap().success()
    );
    let output =
        tracker(home.path()).current_dir(home.path()).args(["run", "-q", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn project_file_of_a_cloned_repository_harms_nothing() {
    for user in if support::is_root() { vec![0, NOBODY] } else { vec![rustix::process::getuid().as_raw()] } {
        let home = open_folder();
        let victim = home.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        let path = victim.to_str().unwrap();
        let harm = format!(
            "csv = '{path}'\noutput = '{path}'\nreport = '{path}'\nprometheus = '{path}'\notlp = 'http://127.0.0.1:9'\n\
             pushgateway = 'http://127.0.0.1:9'\nkeep_runs = 0\noffline = false\njob = 'train'\n"
        );
        let file = project.join("resource-tracker.toml");
        fs::write(&file, harm).unwrap();
        if support::is_root() {
            for owned in [&victim, &project, &file] {
                std::os::unix::fs::chown(owned, Some(user), None).unwrap();
            }
        }
        let run = |options: &[&str]| {
            let mut command = tracker(home.path());
            command.current_dir(&project).arg("run").args(options).args(["--", "true"]);
            as_user(&mut command, user).output().unwrap()
        };
        assert!(run(&["--offline"]).status.success());
        let output = run(&["--offline"]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        for key in ["csv", "output", "report", "prometheus", "otlp", "pushgateway", "keep_runs", "offline"] {
            assert!(stderr.contains(&format!("warning: `{key}` in ")), "{key}: {stderr}");
        }
        let mut list = tracker(home.path());
        let listed = as_user(list.args(["list", "--json"]), user).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&listed.stdout).matches("\"train\"").count(),
            2,
            "{}",
            text(&listed)
        );
        assert!(run(&["-q"]).stderr.is_empty());
    }
}

#[test]
fn server_filters_of_the_settings_apply_where_a_server_is_shown_and_options_replace_them() {
    let home = home_with_runs();
    fs::write(
        home.path().join("resource-tracker.toml"),
        "region = ['eu-central-1', 'fsn1']\nmax_price = 9\n",
    )
    .unwrap();
    let server = |arguments: &[&str]| {
        let output = tracker(home.path()).current_dir(home.path()).args(arguments).output().unwrap();
        let json: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
        json["servers"]["anywhere"]["price_region"].as_str().unwrap().to_owned()
    };
    for command in ["recommend", "show"] {
        assert_eq!(server(&[command, "last", "--json"]), "fsn1", "{command}");
    }
    assert_eq!(server(&["recommend", "last", "--json", "--offline", "--region", "eu-west-3"]), "eu-west-3");
    let output =
        tracker(home.path()).current_dir(home.path()).args(["run", "--", "sleep", "0.3"]).output().unwrap();
    let in_region = [" in fsn1, ", " in eu-central-1, "].iter().any(|region| text(&output).contains(region));
    assert!(in_region && !text(&output).contains("warning"), "{}", text(&output));
    let page = home.path().join("page.html");
    let report = [
        "report",
        "last",
        "--force",
        "-o",
        page.to_str().unwrap(),
        "--vendor-id",
        "gcp",
        "--region",
        "us-east1",
    ];
    let output = tracker(home.path()).current_dir(home.path()).args(report).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(fs::read_to_string(page).unwrap().contains("<td class=\"word\">us-east1</td>"));
}

#[test]
fn invalid_server_filter_never_keeps_a_job_from_running() {
    let home = home_with_runs();
    let file = home.path().join("resource-tracker.toml");
    for (setting, problem) in [
        ("vendor_id = 'acme'", "unknown value `acme` for filter `vendor_id`"),
        ("region = ['fsn1', 'moon-1']", "unknown value `moon-1` for filter `region`"),
        ("vendor_id = 'hcloud'\nregion = 'eu-west-1'", "unknown value `eu-west-1` for filter `region`"),
        ("max_price = -1", "`max_price` must be a number of 0 or more"),
        ("max_price = nan", "`max_price` must be a number of 0 or more"),
        ("region = 5", "invalid value `5` for setting `region`"),
        ("spot = 'maybe'", "invalid value `\"maybe\"` for setting `spot`"),
    ] {
        fs::write(&file, setting).unwrap();
        let run = |arguments: &[&str]| {
            tracker(home.path()).current_dir(home.path()).args(arguments).output().unwrap()
        };
        for (arguments, printed) in
            [(&["run", "--", "echo", "ran"][..], "ran\n"), (&["show", "last"], "finished")]
        {
            let output = run(arguments);
            assert!(output.status.success(), "{setting}: {}", text(&output));
            assert!(
                String::from_utf8_lossy(&output.stdout).contains(printed),
                "{setting}: {}",
                text(&output)
            );
            let warning = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(warning.contains("warning: ") && warning.contains(problem), "{setting}: {warning}");
        }
        assert!(run(&["run", "-q", "--", "true"]).stderr.is_empty());
        let missing = run(&["recommend", "no-such-run"]);
        assert_eq!(missing.status.code(), Some(2), "{setting}: {}", text(&missing));
        assert!(
            text(&missing).contains(problem) && !text(&missing).contains("no-such-run"),
            "{}",
            text(&missing)
        );
    }
}

#[test]
fn invalid_server_filter_is_an_error_before_the_recording_is_read() {
    let home = open_folder();
    for command in ["recommend", "report"] {
        for (option, value) in
            [("--region", "moon-1"), ("--vendor-id", "acme"), ("--max-price", "-1"), ("--max-price", "inf")]
        {
            let output = tracker(home.path()).args([command, "no-such-run", option, value]).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}", text(&output));
            assert!(
                text(&output).contains(value) && !text(&output).contains("no-such-run"),
                "{}",
                text(&output)
            );
        }
    }
}
