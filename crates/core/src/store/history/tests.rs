//! Tests of the history of runs.

use super::prune::LEFTOVER_AGE;
use super::*;
use crate::store::recording::{Recording, Run};
use std::time::SystemTime;

fn history() -> (tempfile::TempDir, History) {
    let directory = tempfile::tempdir().unwrap();
    let history = History::at(directory.path().join("deep/history"));
    (directory, history)
}

fn store(history: &History, id: &str, job: &str, status: Status, start_time: f64) {
    let (id, job, status, start_time) = (id.to_owned(), Some(job.to_owned()), Some(status), Some(start_time));
    let mut stats = Stats::default();
    stats.set("start", "max", start_time);
    let entry = Entry { id, job, status, start_time, stats: Some(stats), ..Entry::default() };
    history.store(&entry, |file| file.write_all(b"rows")).unwrap();
}

fn ids(history: &History) -> Vec<String> {
    history.list().unwrap().entries.into_iter().map(|entry| entry.id).collect()
}

#[test]
fn duration_of_an_entry_does_not_follow_a_step_of_the_wall_clock() {
    use crate::metric::{Metric, Row};
    let mut head = Head::new(&crate::config::Config::default(), 1, 100.0, Run::default());
    let mut recording = Recording::new(head.clone());
    for (time, elapsed_s) in [(101.0, 1.0), (104.0, 1.0)] {
        let mut row = Row::default();
        row.set(Metric::Timestamp, Some(time));
        row.set(Metric::Elapsed, Some(elapsed_s));
        recording.push(&row);
    }
    let summary = recording.summary();
    head.metadata.set_stop_time(104.5, summary.clock_step_s());
    assert_eq!(head.metadata.duration, Some(2.5));
    assert_eq!(Entry::new("aa11", &head, &summary).duration_s, Some(2.0));
    assert_eq!(Entry::new("aa11", &head, &Recording::new(head.clone()).summary()).duration_s, Some(2.5));
}

#[test]
fn runs_are_listed_newest_first() {
    let (_directory, history) = history();
    assert_eq!(history.list().unwrap(), Listing::default());
    assert!(matches!(history.find("last"), Err(HistoryError::Empty)));
    store(&history, "aa11", "train", Status::Finished, 100.0);
    store(&history, "bb22", "train", Status::Failed, 300.0);
    store(&history, "cc33", "test", Status::Finished, 200.0);
    assert_eq!(ids(&history), ["bb22", "cc33", "aa11"]);
}

#[cfg(unix)]
#[test]
fn files_are_accessible_to_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_directory, history) = history();
    store(&history, "aa11", "train", Status::Finished, 100.0);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(history.directory()), 0o700);
    assert_eq!((mode(&history.entry_path("aa11")), mode(&history.recording_path("aa11"))), (0o600, 0o600));
}

#[test]
fn run_is_found_by_last_id_job_or_prefix_of_its_id() {
    let (_directory, history) = history();
    store(&history, "aa11", "train", Status::Finished, 100.0);
    store(&history, "ab22", "train", Status::Finished, 200.0);
    store(&history, "cc33", "aa", Status::Finished, 50.0);
    let found = |name: &str| history.find(name).map(|entry| entry.id).map_err(|error| error.to_string());
    for (name, id) in [("last", "ab22"), ("aa11", "aa11"), ("train", "ab22"), ("ab", "ab22"), ("aa", "cc33")]
    {
        assert_eq!(found(name).as_deref(), Ok(id), "{name}");
    }
    assert_eq!(found("a"), Err("ambiguous id `a`: it matches 2 runs".to_owned()));
    assert_eq!(found("x"), Err("no run named `x`".to_owned()));
    assert_eq!(found(""), Err("no run named ``".to_owned()));
}

#[test]
fn damaged_entries_are_counted_and_skipped() {
    let (_directory, history) = history();
    store(&history, "aa11", "train", Status::Finished, 100.0);
    fs::write(history.entry_path("bb22"), b"{\"id\":\"bb2").unwrap();
    fs::write(history.entry_path("cc33"), b"{\"id\":\"other\"}").unwrap();
    fs::write(history.entry_path("dd44"), vec![b' '; 2 * 1024 * 1024]).unwrap();
    fs::write(history.entry_path("ee55"), b"{\"id\":\"ee55\",\"duration_s\":1e300}").unwrap();
    fs::write(history.directory().join("notes.txt"), b"mine").unwrap();
    #[cfg(unix)]
    rustix::fs::mknodat(
        rustix::fs::CWD,
        history.entry_path("ff66"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let listing = history.list().unwrap();
    assert_eq!(
        (listing.entries.len(), listing.damaged.len()),
        (1, 4 + usize::from(cfg!(unix))),
        "a FIFO does not block"
    );
}

#[test]
fn only_earlier_runs_of_the_same_job_count() {
    let (_directory, history) = history();
    store(&history, "aa11", "train", Status::Finished, 100.0);
    store(&history, "bb22", "train", Status::Failed, 200.0);
    store(&history, "cc33", "test", Status::Finished, 300.0);
    store(&history, "dd44", "train", Status::Finished, 400.0);
    let original = include_bytes!("../../../../../fixtures/original/snapshot.json");
    let mut head = Recording::read(&original[..]).unwrap().head;
    head.run = Some(Run { job: Some("train".to_owned()), ..Run::default() });
    let mut starts = |start_time, at_most| {
        head.metadata.start_time = Some(start_time);
        let earlier = history.earlier(&head, at_most).unwrap();
        earlier.iter().map(|entry| entry.start_time.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(starts(500.0, 5), [400.0, 200.0, 100.0]);
    assert_eq!((starts(500.0, 1), starts(400.0, 5)), (vec![400.0], vec![200.0, 100.0]));
    // Python under `resource-tracker run`, both with a job name.
    for (id, parent) in [("ee55", "dd44"), ("ff66", "gone")] {
        let entry = Entry {
            id: id.to_owned(),
            job: Some("train".to_owned()),
            parent: Some(parent.to_owned()),
            start_time: Some(if id == "ee55" { 401.0 } else { 402.0 }),
            ..Entry::default()
        };
        history.store(&entry, |file| file.write_all(b"rows")).unwrap();
    }
    assert_eq!(starts(500.0, 5), [402.0, 400.0, 200.0, 100.0], "a run inside a tracked run counts once");
}

#[test]
fn pruning_removes_the_oldest_runs() {
    let (_directory, history) = history();
    for (number, id) in ["aa11", "bb22", "cc33", "dd44"].into_iter().enumerate() {
        store(&history, id, "train", Status::Finished, [100.0, 200.0, 300.0, 400.0][number]);
    }
    let now = SystemTime::now();
    history.prune_sometimes(4, now).unwrap();
    assert_eq!(ids(&history).len(), 4);
    history.prune(4, now).unwrap();
    assert_eq!(ids(&history).len(), 4);
    history.prune_sometimes(2, now).unwrap();
    assert_eq!(ids(&history), ["dd44", "cc33"]);
    assert!(!history.recording_path("aa11").exists() && history.recording_path("cc33").exists());
}

#[test]
fn files_of_killed_writers_are_removed_after_a_day() {
    let (_directory, history) = history();
    store(&history, "aa11", "train", Status::Finished, 100.0);
    let (temporary, orphan) = (history.directory().join(".bb22.tmp"), history.recording_path("cc33"));
    fs::write(&temporary, b"half").unwrap();
    fs::write(&orphan, b"a complete recording without an entry").unwrap();
    let now = SystemTime::now();
    history.prune(1, now).unwrap();
    assert!(temporary.exists() && orphan.exists(), "a writer may still use them");
    history.prune(1, now + 2 * LEFTOVER_AGE).unwrap();
    assert!(!temporary.exists() && !orphan.exists() && history.recording_path("aa11").exists());
}

#[test]
fn failed_write_leaves_no_files() {
    let (_directory, history) = history();
    let entry = Entry { id: "aa11".to_owned(), ..Entry::default() };
    let error = history.store(&entry, |_| Err(io::Error::other("disk full"))).unwrap_err();
    assert!(error.to_string().ends_with("aa11.json.gz`"), "{error}");
    assert_eq!(fs::read_dir(history.directory()).unwrap().count(), 0);
    store(&history, "aa11", "train", Status::Finished, 100.0);
    history.remove("aa11").unwrap();
    history.remove("aa11").unwrap();
    assert_eq!(fs::read_dir(history.directory()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn folder_of_the_history_depends_on_environment_variables() {
    let with = |pairs: &'static [(&str, &str)]| {
        History::of_user(move |name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
        .map(|history| history.directory)
    };
    assert_eq!(with(&[("XDG_DATA_HOME", "/data"), ("HOME", "/h")]), Some("/data/resource-tracker".into()));
    assert_eq!(
        with(&[("XDG_DATA_HOME", "data"), ("HOME", "/h")]),
        Some("/h/.local/share/resource-tracker".into())
    );
    assert_eq!(with(&[("HOME", "")]), None);
}

#[test]
fn ids_are_unique() {
    let ids: HashSet<String> = (0..1000).map(|_| History::new_id()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
}
