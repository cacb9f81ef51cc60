//! `report`, and `run --report`: where pages go, what they cost the job, and whom they ask.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use support::{open_folder, text, tracker, write_program};

/// Answers nobody, and knows whether someone called.
struct Ear(TcpListener);

impl Ear {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of ours");
        listener.set_nonblocking(true).expect("a socket that does not wait");
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("an address"))
    }

    /// A call that was made waits in the queue, however late we look.
    fn was_called(&self) -> bool {
        self.0.accept().is_ok()
    }
}

fn run(folder: &Path, ear: &Ear, arguments: &[&str]) -> Output {
    let mut command = tracker(folder);
    command.current_dir(folder).env("RESOURCE_TRACKER_KEEPER_URL", ear.url());
    command.args(arguments).output().expect("the program")
}

#[test]
fn a_run_writes_its_report_and_asks_nobody() {
    let (folder, ear) = (open_folder(), Ear::new());
    let job = ["sh", "-c", "sleep 0.3; exit 3"];
    let arguments = ["run", "--no-save", "-i", "0.1", "--report", "page.html", "-j", "train", "--"];
    let output = run(folder.path(), &ear, &[&arguments[..], &job].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("<bdi>train</bdi></h1>") && page.contains("Failed</strong> with exit code 3"));
    assert!(page.contains("Prices by the built-in catalogue"));
    assert!(!ear.was_called());
    // No recording was asked for, so none is left, nor the rows that the report was made of.
    assert!(!folder.path().join("data").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_report_that_cannot_be_written_stops_us_before_the_job_starts() {
    let (folder, ear) = (open_folder(), Ear::new());
    let output =
        run(folder.path(), &ear, &["run", "--report", "no/such/page.html", "--", "touch", "started"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write `no/such/page.html`"));
    assert!(!folder.path().join("started").exists());
}

#[test]
fn a_recording_becomes_a_page_named_after_the_job_beside_its_earlier_runs() {
    let (folder, ear) = (open_folder(), Ear::new());
    for _ in 0..2 {
        let output =
            run(folder.path(), &ear, &["run", "-q", "-i", "0.1", "-j", "my job", "--", "sleep", "0.3"]);
        assert!(output.status.success(), "{}", text(&output));
    }
    assert!(!ear.was_called());
    let output = run(folder.path(), &ear, &["report", "my job"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "my-job-report.html\n", "{}", text(&output));
    let page = fs::read_to_string(folder.path().join("my-job-report.html")).unwrap();
    assert!(page.contains("Finished</strong>") && page.contains("The run before"));
    assert!(ear.was_called(), "a report is about prices, so the Keeper is asked");
    // It gave no answer, and the page says who did.
    assert!(page.contains("Prices by the built-in catalogue"));
}

#[test]
fn the_page_of_a_run_counts_in_as_many_earlier_runs_as_were_asked_for() {
    let (folder, ear) = (open_folder(), Ear::new());
    let page = |options: &[&str]| {
        let arguments = ["run", "-q", "-i", "0.05", "-j", "train", "--report", "page.html"];
        let output = run(folder.path(), &ear, &[&arguments[..], options, &["--", "sleep", "0.15"]].concat());
        assert!(output.status.success(), "{}", text(&output));
        fs::read_to_string(folder.path().join("page.html")).unwrap()
    };
    assert!(page(&[]).contains("There are no earlier runs of this job"));
    page(&[]);
    page(&[]);
    assert!(page(&[]).contains("3 earlier runs</th>"));
    assert!(page(&["--history", "2"]).contains("2 earlier runs</th>"));
    assert!(page(&["--history", "0"]).contains("There are no earlier runs of this job"));
}

#[test]
fn a_page_goes_to_standard_output_or_says_why_it_cannot_be_written() {
    let (folder, ear) = (open_folder(), Ear::new());
    run(folder.path(), &ear, &["run", "-q", "-o", "run.json.gz", "--", "true"]);
    let output = run(folder.path(), &ear, &["report", "run.json.gz", "-o", "-"]);
    assert!(output.stdout.starts_with(b"<!DOCTYPE html>") && output.stdout.ends_with(b"</html>\n"));
    let output = run(folder.path(), &ear, &["report", "run.json.gz", "-o", "no/such/page.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: cannot write `no/such/page.html`\n  caused by: No such file or directory (os error 2)\n"
    );
    let output = run(folder.path(), &ear, &["report", "nothing.json.gz"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn open_starts_the_readers_browser() {
    let (folder, ear) = (open_folder(), Ear::new());
    run(folder.path(), &ear, &["run", "-q", "-o", "run.json.gz", "--", "true"]);
    // A browser that tells which page it was given, through a pipe that we can wait at.
    let (pipe, browser) = (folder.path().join("pipe"), folder.path().join("browser"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    write_program(&browser, &format!("#!/bin/sh\nprintf %s \"$1\" > {}\n", pipe.display()));
    let mut command = tracker(folder.path());
    command.current_dir(folder.path()).env("RESOURCE_TRACKER_OFFLINE", "1").env("BROWSER", &browser);
    let output = command.args(["report", "run.json.gz", "-o", "page.html", "--open"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read_to_string(&pipe).unwrap(), "page.html");
}
