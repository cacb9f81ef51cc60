//! `report` and `run --report`: where the page is written, and when the Keeper is queried.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use support::{open_folder, text, tracker, write_program};

/// A Keeper that never answers and records whether it was contacted.
struct SilentKeeper(TcpListener);

impl SilentKeeper {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a non-blocking socket");
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("an address"))
    }

    /// A connection stays in the queue until it is accepted, so one queued connection is a contact.
    fn was_contacted(&self) -> bool {
        self.0.accept().is_ok()
    }
}

fn run(folder: &Path, keeper: &SilentKeeper, arguments: &[&str]) -> Output {
    let mut command = tracker(folder);
    command.current_dir(folder).env("RESOURCE_TRACKER_KEEPER_URL", keeper.url());
    command.args(arguments).output().expect("the program")
}

#[test]
fn run_writes_its_report_without_the_network() {
    let (folder, keeper) = (open_folder(), SilentKeeper::new());
    let job = ["sh", "-c", "sleep 0.3; exit 3"];
    let arguments = ["run", "--no-save", "-i", "0.1", "--report", "page.html", "-j", "train", "--"];
    let output = run(folder.path(), &keeper, &[&arguments[..], &job].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("<bdi>train</bdi></h1>") && page.contains("Failed</strong> with exit code 3"));
    assert!(page.contains("Prices from the built-in catalogue"));
    assert!(!keeper.was_contacted());
    // --no-save: neither a recording nor a journal is left.
    assert!(!folder.path().join("data").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn unwritable_report_is_an_error_before_the_job_starts() {
    let (folder, keeper) = (open_folder(), SilentKeeper::new());
    let output =
        run(folder.path(), &keeper, &["run", "--report", "no/such/page.html", "--", "touch", "started"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write `no/such/page.html`"));
    assert!(!folder.path().join("started").exists());
}

#[test]
fn report_is_named_after_the_job_and_shows_the_run_before() {
    let (folder, keeper) = (open_folder(), SilentKeeper::new());
    for _ in 0..2 {
        let output =
            run(folder.path(), &keeper, &["run", "-q", "-i", "0.1", "-j", "my job", "--", "sleep", "0.3"]);
        assert!(output.status.success(), "{}", text(&output));
    }
    assert!(!keeper.was_contacted());
    let output = run(folder.path(), &keeper, &["report", "my job"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "my-job-report.html\n", "{}", text(&output));
    let page = fs::read_to_string(folder.path().join("my-job-report.html")).unwrap();
    assert!(page.contains("Finished</strong>") && page.contains("Previous run"));
    assert!(keeper.was_contacted(), "`report` queries the Keeper for prices");
    // The Keeper gave no answer, and the page names the source of the prices.
    assert!(page.contains("Prices from the built-in catalogue"));
}

#[test]
fn report_includes_the_requested_number_of_earlier_runs() {
    let (folder, keeper) = (open_folder(), SilentKeeper::new());
    let page = |options: &[&str]| {
        let arguments = ["run", "-q", "-i", "0.05", "-j", "train", "--report", "page.html"];
        let output =
            run(folder.path(), &keeper, &[&arguments[..], options, &["--", "sleep", "0.15"]].concat());
        assert!(output.status.success(), "{}", text(&output));
        fs::read_to_string(folder.path().join("page.html")).unwrap()
    };
    assert!(page(&[]).contains("No earlier runs of this job"));
    page(&[]);
    page(&[]);
    assert!(page(&[]).contains("3 earlier runs</th>"));
    assert!(page(&["--history", "2"]).contains("2 earlier runs</th>"));
    assert!(page(&["--history", "0"]).contains("No earlier runs of this job"));
}

#[test]
fn report_goes_to_standard_output_or_fails_with_the_cause() {
    let (folder, keeper) = (open_folder(), SilentKeeper::new());
    run(folder.path(), &keeper, &["run", "-q", "-o", "run.json.gz", "--", "true"]);
    let output = run(folder.path(), &keeper, &["report", "run.json.gz", "-o", "-"]);
    assert!(output.stdout.starts_with(b"<!DOCTYPE html>") && output.stdout.ends_with(b"</html>\n"));
    let output = run(folder.path(), &keeper, &["report", "run.json.gz", "-o", "no/such/page.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: cannot write `no/such/page.html`\n  caused by: No such file or directory (os error 2)\n"
    );
    let output = run(folder.path(), &keeper, &["report", "nothing.json.gz"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn open_starts_the_browser_and_reports_a_failure() {
    let (folder, keeper) = (open_folder(), SilentKeeper::new());
    run(folder.path(), &keeper, &["run", "-q", "-o", "run.json.gz", "--", "true"]);
    // A browser that writes its argument to a pipe; reading the pipe waits for it.
    let (pipe, browser) = (folder.path().join("pipe"), folder.path().join("browser"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    write_program(&browser, &format!("#!/bin/sh\nprintf %s \"$1\" > {}\n", pipe.display()));
    let mut command = tracker(folder.path());
    command.current_dir(folder.path()).env("RESOURCE_TRACKER_OFFLINE", "1").env("BROWSER", &browser);
    let output = command.args(["report", "run.json.gz", "-o", "page.html", "--open"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let page = fs::canonicalize(folder.path()).unwrap().join("page.html");
    assert_eq!(fs::read_to_string(&pipe).unwrap(), page.to_str().unwrap());
    write_program(&browser, "#!/bin/sh\nexit 3\n");
    let mut command = tracker(folder.path());
    command.current_dir(folder.path()).env("RESOURCE_TRACKER_OFFLINE", "1").env("BROWSER", &browser);
    let output = command.args(["report", "run.json.gz", "-o", "page.html", "--open"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected =
        format!("cannot open `page.html` in a browser: `{}` failed (exit status: 3)", browser.display());
    assert!(output.status.success() && stderr.contains(&expected), "{stderr}");
    let mut command = tracker(folder.path());
    command
        .current_dir(folder.path())
        .env("RESOURCE_TRACKER_OFFLINE", "1")
        .env("BROWSER", "/no/such/browser");
    let output = command.args(["report", "run.json.gz", "-o", "page.html", "--open"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success()
            && stderr.contains("cannot open `page.html` in a browser: `/no/such/browser`"),
        "{stderr}"
    );
    // A machine without a browser: `xdg-open` exits with 3.
    write_program(&folder.path().join("xdg-open"), "#!/bin/sh\nexit 3\n");
    let mut command = tracker(folder.path());
    command.current_dir(folder.path()).env("RESOURCE_TRACKER_OFFLINE", "1").env("PATH", folder.path());
    let command = command.env_remove("BROWSER").args(["report", "run.json.gz", "-o", "page.html", "--open"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "resource-tracker: warning: cannot open `page.html` in a browser: no program for web pages works; open the file, or \
         set `BROWSER`\n"
    );
}
