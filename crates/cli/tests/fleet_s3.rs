//! `run --store s3://…` and `fleet`: a real S3 server on loopback, and stores that fail while a job runs.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/mod.rs"]
mod cli;
#[path = "support/s3.rs"]
mod s3;
#[path = "../../core/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use cli::{text, tracker};
use s3::{KEY, SECRET, Server, URL, closed_port, failure, variables};
use serde_json::Value;
use support::{Reply, TestServer};

/// The longest time that `run` waits for the store, and what a busy machine may add.
const MOST_WAIT: Duration = Duration::from_millis(250);
const BUSY: Duration = Duration::from_secs(3);

/// The command, with credentials for a server.
fn with(home: &Path, endpoint: &str, words: &[&str]) -> Command {
    let mut command = tracker(home);
    command
        .current_dir(home)
        .env("XDG_CONFIG_HOME", home.join("config"))
        .envs(variables(endpoint))
        .args(words);
    command
}

fn done(home: &Path, endpoint: &str, words: &[&str]) -> String {
    let output = with(home, endpoint, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    assert!(!text(&output).contains(SECRET), "{}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn groups(home: &Path, endpoint: &str, store: &str) -> Vec<Value> {
    let answer = done(home, endpoint, &["fleet", "summary", "--json", "--store", store]);
    serde_json::from_str::<Value>(&answer).unwrap()["groups"].as_array().unwrap().clone()
}

#[test]
fn runs_go_to_a_bucket_and_a_copy_of_it_works_offline() {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    let (home, endpoint) = (home.path(), server.endpoint.as_str());
    // The address in the user's settings is also that of `fleet`.
    fs::create_dir_all(home.join("config/resource-tracker")).unwrap();
    fs::write(home.join("config/resource-tracker/config.toml"), format!("store = '{URL}'\n")).unwrap();
    for job in ["train", "test"] {
        let output =
            with(home, endpoint, &["run", "--job", job, "--", "sh", "-c", "exit 3"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        // The pushing process may take longer than `run` waits.
        done(home, endpoint, &["fleet", "push"]);
    }
    let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
    done(home, endpoint, &["attach", "--job", "other", &child.id().to_string()]);
    child.wait().unwrap();
    done(home, endpoint, &["fleet", "push"]);
    assert!(
        done(home, endpoint, &["fleet", "push"]).starts_with("stored 0 of 3 runs in s3://fleet/team/runs")
    );
    assert_eq!(server.objects().join("samples").read_dir().unwrap().count(), 1);
    let before = groups(home, endpoint, URL);
    assert_eq!(before.iter().map(|group| group["runs"].as_u64().unwrap()).sum::<u64>(), 3);
    assert!(done(home, endpoint, &["fleet", "pull", "copy"]).contains("copied 6 files"));
    assert!(done(home, endpoint, &["fleet", "compact"]).starts_with("merged 6 files of 1 day into 2"));
    assert_eq!(groups(home, endpoint, URL), before);
    done(home, endpoint, &["fleet", "report", "-o", "fleet.html"]);
    assert!(fs::read_to_string(home.join("fleet.html")).unwrap().contains("train"));
    assert!(done(home, endpoint, &["fleet", "pull", "copy"]).contains("copied 2 files"));
    let copy = ["fleet", "summary", "--json", "--offline", "--store", "copy"];
    assert_eq!(
        serde_json::from_str::<Value>(&done(home, endpoint, &copy)).unwrap()["groups"],
        Value::from(before)
    );

    let wrong =
        with(home, endpoint, &["fleet", "summary"]).env("AWS_SECRET_ACCESS_KEY", "wrong").output().unwrap();
    assert!(
        !wrong.status.success() && text(&wrong).contains("403 SignatureDoesNotMatch"),
        "{}",
        text(&wrong)
    );
    assert!(!text(&wrong).contains(KEY) && !text(&wrong).contains("X-Amz"), "{}", text(&wrong));
}

#[test]
fn offline_switches_a_remote_store_off_with_one_note() {
    let server = TestServer::start(|_| failure(500, "InternalError"));
    let home = tempfile::tempdir().unwrap();
    let note = "the store `s3://fleet/team/runs` is not used, because the network is switched off";
    let run = ["run", "--store", URL, "--", "true"];
    let check = |mut command: Command, is_success: bool| {
        let output = command.output().unwrap();
        assert_eq!(
            (output.status.success(), text(&output).matches(note).count()),
            (is_success, 1),
            "{}",
            text(&output)
        );
    };
    check(with(home.path(), &server.url(), &["run", "--offline", "--store", URL, "--", "true"]), true);
    let mut by_variable = with(home.path(), &server.url(), &run);
    by_variable.env("RESOURCE_TRACKER_OFFLINE", "1");
    check(by_variable, true);
    for words in
        [&["fleet", "push"][..], &["fleet", "summary"], &["fleet", "compact"], &["fleet", "pull", "copy"]]
    {
        check(with(home.path(), &server.url(), &[words, &["--offline", "--store", URL]].concat()), false);
    }
    assert!(server.log().is_empty());
}

#[test]
fn settings_of_a_project_name_no_store() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("elsewhere");
    let setting = format!("store = '{}'\n", store.display());
    fs::write(home.path().join("resource-tracker.toml"), &setting).unwrap();
    let output = with(home.path(), "", &["run", "--", "true"]).output().unwrap();
    assert!(output.status.success() && text(&output).contains("`store` in "), "{}", text(&output));
    assert!(!with(home.path(), "", &["fleet", "push"]).output().unwrap().status.success());
    assert!(!store.exists());
    // The same setting of the user counts.
    fs::create_dir_all(home.path().join("config/resource-tracker")).unwrap();
    fs::rename(
        home.path().join("resource-tracker.toml"),
        home.path().join("config/resource-tracker/config.toml"),
    )
    .unwrap();
    done(home.path(), "", &["fleet", "push"]);
    assert!(store.exists());
}

/// Runs a job that fails with 3, and returns how long it took.
fn timed(mut run: Command) -> (Output, Duration) {
    let began = Instant::now();
    let output = run.args(["--", "sh", "-c", "exit 3"]).output().unwrap();
    (output, began.elapsed())
}

#[test]
fn broken_store_costs_the_job_nothing_and_gets_the_run_once_later() {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let refused = format!("http://127.0.0.1:{}", closed_port());
    let replies = [
        Reply::Hang,
        failure(500, "InternalError"),
        failure(403, "AccessDenied"),
        failure(503, "SlowDown"),
        Reply::HalfUpload,
    ];
    let broken = replies.map(|reply| TestServer::start(move |_| reply.clone()));
    let endpoints: Vec<String> = broken.iter().map(TestServer::url).chain([refused]).collect();
    let mut stored = 0;
    for endpoint in &endpoints {
        let (_, without) = timed(with(home, endpoint, &["run", "--no-save"]));
        let (output, took) = timed(with(home, endpoint, &["run", "--job", "train", "--store", URL]));
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("`resource-tracker fleet push` stores it"), "{}", text(&output));
        assert!(took < without + MOST_WAIT + BUSY, "{took:?}, and {without:?} without a store");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let (summary, warning) = (printed.find("  recording "), printed.find("the run is not in the store"));
        assert!(summary.is_some() && summary < warning, "the summary comes first: {printed}");
        assert!(done(home, endpoint, &["list", "--json"]).contains("train"));
        stored += 1;
        let pushed = done(home, &server.endpoint, &["fleet", "push", "--store", URL]);
        assert!(pushed.starts_with(&format!("stored 1 of {stored} runs")), "{pushed}");
        assert!(done(home, &server.endpoint, &["fleet", "push", "--store", URL]).starts_with("stored 0 of"));
        let found = groups(home, &server.endpoint, URL);
        assert_eq!((&found[0]["runs"], found.len()), (&stored.into(), 1));
    }
    assert!(broken.iter().all(|server| !server.log().is_empty()), "each has been asked");
}

#[cfg(target_os = "linux")]
#[test]
fn full_file_system_costs_the_job_nothing_and_gets_the_run_once_later() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
    let home = tempfile::tempdir().unwrap();
    let full = home.path().join("full");
    fs::create_dir(&full).unwrap();
    let store = full.join("store").to_str().unwrap().to_owned();
    mount("none", &full, "tmpfs", MountFlags::empty(), Some(c"size=8k")).expect("root can mount");
    fs::write(full.join("other"), [0; 8192]).unwrap();
    let (output, took) = timed(with(home.path(), "", &["run", "--job", "train", "--store", &store]));
    mount_remount(&full, MountFlags::empty(), c"size=8m").unwrap();
    let pushed: Vec<String> =
        (0..2).map(|_| done(home.path(), "", &["fleet", "push", "--store", &store])).collect();
    let found = groups(home.path(), "", &store);
    unmount(&full, UnmountFlags::DETACH).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("`resource-tracker fleet push` stores it"), "{}", text(&output));
    assert!(took < MOST_WAIT + BUSY, "{took:?}");
    assert!(pushed[0].starts_with("stored 1 of 1") && pushed[1].starts_with("stored 0 of 1"), "{pushed:?}");
    assert_eq!(found[0]["runs"], 1);
}
