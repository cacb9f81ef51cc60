//! `run --store` and `fleet`: runs of several processes in one store.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use resource_tracker::fleet::columns::run_columns;
use resource_tracker::fleet::dataset::Dataset;
use resource_tracker::fleet::table::Table;
use serde_json::{Value, json};
use support::{NOBODY, as_user, is_root, open_folder, text, tracker};

const IN_BACKGROUND: &str = "storing continues in the background";
const SPIN: &str = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass";

fn run(home: &Path, job: &str, variables: &[(&str, &str)], command: &[&str]) -> Output {
    let store = home.join("store");
    let mut run = tracker(home);
    run.args(["run", "--offline", "--job", job, "--store", store.to_str().unwrap(), "--"]).args(command);
    let output = run.envs(variables.iter().copied()).output().unwrap();
    // On a busy machine, storing takes longer than `run` waits.
    if text(&output).contains(IN_BACKGROUND) {
        fleet(home, &["push"]);
    }
    output
}

fn fleet(home: &Path, words: &[&str]) -> String {
    let store = home.join("store");
    let output = tracker(home).arg("fleet").args(words).arg("--store").arg(store).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn groups(home: &Path, words: &[&str]) -> Vec<Value> {
    let answer: Value =
        serde_json::from_str(&fleet(home, &[&["summary", "--json"], words].concat())).unwrap();
    answer["groups"].as_array().unwrap().clone()
}

fn files(home: &Path, table: &str) -> usize {
    let days = fs::read_dir(home.join("store").join(table)).unwrap();
    days.map(|day| fs::read_dir(day.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn runs_are_stored_once_and_added_up_by_job_user_and_tag() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for (job, status) in [("train", 0), ("train", 3), ("test", 0)] {
        let variables =
            [("USER", "ada"), ("RESOURCE_TRACKER_TAGS", "team=vision"), ("RESOURCE_TRACKER_ASKED_CPUS", "4")];
        let output = run(home, job, &variables, &["sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
        assert!(
            !text(&output).contains("store") || text(&output).contains(IN_BACKGROUND),
            "{}",
            text(&output)
        );
    }
    assert_eq!((files(home, "runs"), files(home, "samples")), (3, 3));
    assert!(fleet(home, &["push"]).starts_with("stored 0 of 3 runs"), "they are in the store");
    let by_job = groups(home, &[]);
    let of = |job: &str| by_job.iter().find(|group| group["key"] == job).unwrap();
    assert_eq!(
        (&of("train")["runs"], &of("train")["failed"], &of("test")["runs"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert!(
        of("train")["cpu_hours_asked"].as_f64().unwrap() > of("train")["cpu_hours_used"].as_f64().unwrap()
    );
    assert_eq!(of("train")["imbalance"], Value::Null);
    for (by, key) in [("user", "ada"), ("tag:team", "vision")] {
        let found = groups(home, &["--by", by]);
        assert_eq!((found.len(), &found[0]["key"], &found[0]["runs"]), (1, &key.into(), &3.into()));
    }
    let before = groups(home, &["--by", "node"]);
    assert!(fleet(home, &["compact"]).starts_with("merged 6 files of 1 day into 2"));
    assert_eq!((files(home, "runs"), files(home, "samples")), (1, 1));
    assert_eq!(groups(home, &["--by", "node"]), before);
    assert_eq!(groups(home, &["--since", "2100-01-01"]), Vec::<Value>::new());
}

#[test]
fn request_to_slurm_is_shown_beside_the_use() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let slurm = [("SLURM_JOB_ID", "42"), ("SLURM_CPUS_PER_TASK", "8"), ("SLURM_MEM_PER_NODE", "4096")];
    let shown = "8 CPUs, 4.00 GiB memory";
    let run = run(home, "train", &slurm, &["sleep", "0.1"]);
    assert!(text(&run).contains(&format!("  requested  {shown}\n")), "{}", text(&run));
    let tracker =
        |words: &[&str]| String::from_utf8(tracker(home).args(words).output().unwrap().stdout).unwrap();
    let advice = tracker(&["recommend", "train", "--offline"]);
    assert!(advice.starts_with(&format!("requested      {shown}\n")), "{advice}");
    let run: Value = serde_json::from_str(&tracker(&["show", "train", "--json"])).unwrap();
    assert_eq!(run["requested"]["cpus"], 8.0);
    assert_eq!(run["requested"]["memory_bytes"], 4096.0 * 1_048_576.0);
    assert_eq!(run["requested"]["gpus"], Value::Null);
    let page = tracker(&["report", "train", "--offline", "-o", "-"]);
    assert!(page.contains(&format!("Requested for this run: <code>{shown}</code>")));
}

#[test]
fn report_is_a_page_with_escaped_names() {
    let home = tempfile::tempdir().unwrap();
    run(home.path(), "<b>train</b>", &[("RESOURCE_TRACKER_ASKED_CPUS", "64")], &["sleep", "0.1"]);
    let page = fleet(home.path(), &["report", "-o", "-"]);
    assert!(page.contains("<bdi>&lt;b&gt;train&lt;/b&gt;</bdi>") && !page.contains("<b>train"), "{page}");
    assert!(page.contains("64 CPUs") && page.contains("Content-Security-Policy"), "{page}");
    let path = home.path().join("fleet.html");
    assert_eq!(fleet(home.path(), &["report", "-o", path.to_str().unwrap()]).trim(), path.to_str().unwrap());
    assert!(fs::read_to_string(&path).unwrap().contains("64 CPUs"));
    let later = fleet(home.path(), &["report", "-o", "-", "--since", "2100-01-01"]);
    assert!(later.contains("No runs are in the store."), "{later}");
}

#[test]
fn ranks_of_a_distributed_program_are_one_run_with_its_imbalance() {
    let home = tempfile::tempdir().unwrap();
    let slurm = |rank: &'static str| {
        let node = [("SLURM_NTASKS", "4"), ("SLURM_NNODES", "1"), ("SLURM_CPUS_ON_NODE", "64")];
        [&[("SLURM_JOB_ID", "42"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", rank)], &node[..]].concat()
    };
    let torchrun = |rank: &'static str| {
        let node = [("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "4"), ("RESOURCE_TRACKER_ASKED_CPUS", "64")];
        [&[("RANK", rank), ("LOCAL_RANK", rank)], &node[..]].concat()
    };
    for (job, variables) in [("slurm", &slurm as &dyn Fn(&'static str) -> Vec<_>), ("torchrun", &torchrun)] {
        for (rank, cpu_s) in [("0", "0.6"), ("1", "0.2"), ("2", "0.2"), ("3", "0.2")] {
            let output = run(home.path(), job, &variables(rank), &["python3", "-c", SPIN, cpu_s]);
            assert!(output.status.success(), "{}", text(&output));
            let shown = tracker(home.path()).args(["show", "last", "--json"]).output().unwrap();
            let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
            assert_eq!(shown["requested"]["cpus"], 16.0, "a quarter of the node");
        }
    }
    for group in groups(home.path(), &[]) {
        assert_eq!((&group["runs"], &group["recordings"]), (&1.into(), &4.into()), "{group}");
        // The busiest rank by the mean; starting Python adds to each rank.
        let imbalance = group["imbalance"].as_f64().unwrap();
        assert!((1.7..2.05).contains(&imbalance), "{group}");
    }
}

#[test]
fn run_inside_of_another_counts_once_and_a_run_on_another_host_counts() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let inner = |store: &str| format!("'{}' run -q --offline --job inner {store} -- true", support::BIN);
    let of = |job: &str| {
        let found = groups(home, &[]).into_iter().find(|group| group["key"] == job);
        found.map_or(0, |group| group["recordings"].as_u64().unwrap())
    };
    // Both are stored; the work counts once.
    let store = format!("--store '{}'", home.join("store").display());
    run(home, "outer", &[], &["sh", "-c", &inner(&store)]);
    assert_eq!((files(home, "runs"), of("outer"), of("inner")), (2, 1, 0));
    // The outer run has no store.
    let mut outer = tracker(home);
    let outer = outer.args(["run", "-q", "--offline", "--no-save", "--", "sh", "-c", &inner(&store)]);
    assert!(outer.output().unwrap().status.success());
    assert_eq!(of("inner"), 1);
    // A scheduler has passed the variable on to another host, or to another job.
    let id = |variable: &[(&str, &str)]| {
        let sh = ["sh", "-c", "echo $RESOURCE_TRACKER_RUN"];
        String::from_utf8(run(home, "outer", variable, &sh).stdout).unwrap().trim().to_owned()
    };
    let (login, slurm) = (id(&[]), id(&[("SLURM_JOB_ID", "41")]));
    let host = login.split_once('@').unwrap().1;
    assert_eq!(slurm.split_once('@').unwrap().1, format!("{host}/41"));
    let elsewhere = login.replace(host, "elsewhere");
    run(home, "submitted", &[("RESOURCE_TRACKER_RUN", &elsewhere)], &["true"]);
    run(home, "submitted", &[("RESOURCE_TRACKER_RUN", &slurm), ("SLURM_JOB_ID", "42")], &["true"]);
    run(home, "submitted", &[("RESOURCE_TRACKER_RUN", &login), ("SLURM_JOB_ID", "42")], &["true"]);
    assert_eq!(of("submitted"), 3);
    run(home, "submitted", &[("RESOURCE_TRACKER_RUN", &login)], &["true"]);
    assert_eq!(of("submitted"), 3, "inside of the run on this host");
}

#[test]
fn store_that_cannot_be_written_costs_the_job_nothing_and_gets_the_run_later() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("store");
    // A file where the folder should be, since root may write anywhere.
    fs::write(&store, "").unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).unwrap();
    let output = run(home.path(), "train", &[], &["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    let printed = text(&output);
    assert!(printed.contains("Not a directory"), "the reason: {printed}");
    assert!(printed.contains("`resource-tracker fleet push` stores it"), "{printed}");
    fs::remove_file(&store).unwrap();
    assert!(fleet(home.path(), &["push"]).starts_with("stored 1 of 1 runs"));
    assert!(fleet(home.path(), &["push"]).starts_with("stored 0 of 1 runs"));
    assert_eq!(groups(home.path(), &[])[0]["runs"], 1);
    // The store loses the run.
    fs::remove_dir_all(&store).unwrap();
    assert!(fleet(home.path(), &["push"]).starts_with("stored 0 of 1 runs"));
    assert!(fleet(home.path(), &["push", "train"]).starts_with("stored 1 of 1 runs"));
    assert_eq!(groups(home.path(), &[])[0]["runs"], 1);
}

#[test]
fn run_that_is_not_in_the_history_is_not_stored_and_that_is_said() {
    let home = tempfile::tempdir().unwrap();
    let (home, store) = (home.path(), home.path().join("store"));
    let run = |options: &[&str], variables: &[(&str, &str)]| {
        let mut run = tracker(home);
        run.arg("run").args(options).args(["--offline", "--job", "train", "--", "sh", "-c", "exit 3"]);
        run.envs(variables.iter().copied()).output().unwrap()
    };
    let store_text = store.to_str().unwrap();
    let both = run(&["--no-save", "--store", store_text], &[]);
    assert_eq!(both.status.code(), Some(2), "{}", text(&both));
    assert!(text(&both).contains("a run is stored from the history"), "{}", text(&both));
    let by_variable = run(&["--no-save"], &[("RESOURCE_TRACKER_STORE", store_text)]);
    assert_eq!(by_variable.status.code(), Some(3), "{}", text(&by_variable));
    assert!(!text(&by_variable).contains("store"), "{}", text(&by_variable));
    // A file where the history should be.
    fs::write(home.join("data"), "").unwrap();
    let unsaved = run(&["--store", store_text], &[]);
    assert_eq!(unsaved.status.code(), Some(3), "{}", text(&unsaved));
    assert!(text(&unsaved).contains("because it is not in the history"), "{}", text(&unsaved));
    assert!(!store.exists());
}

#[test]
fn damaged_run_is_a_failure_when_it_is_named() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert!(tracker(home).args(["run", "-q", "--job", "train", "--", "true"]).status().unwrap().success());
    let folder = home.join("data/resource-tracker");
    let recordings = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    for recording in recordings.filter(|path| path.extension().is_some_and(|extension| extension == "gz")) {
        fs::write(recording, "damaged").unwrap();
    }
    let push = |names: &[&str]| {
        let mut push = tracker(home);
        push.args(["fleet", "push", "--store"]).arg(home.join("store")).args(names).output().unwrap()
    };
    let (all, named) = (push(&[]), push(&["train"]));
    assert_eq!((all.status.code(), named.status.code()), (Some(0), Some(1)), "{}", text(&named));
    assert!([all, named].iter().all(|output| text(output).contains("cannot read the run `")));
}

#[test]
fn users_with_any_umask_share_a_folder() {
    assert!(is_root(), "only root can become other users");
    let folder = open_folder();
    let store = folder.path().join("store");
    fs::create_dir(&store).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o1777)).unwrap();
    let other = NOBODY - 1;
    let as_other = |user: u32, line: &str| {
        let home = folder.path().join(format!("home-{user}"));
        fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(user), Some(user)).unwrap();
        let tracker = tracker(&home);
        let line = format!("umask 077; exec \"$0\" {line}");
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(line).arg(support::BIN).current_dir(&home).env("RESOURCE_TRACKER_STORE", &store);
        shell.envs(tracker.get_envs().filter_map(|(name, value)| Some((name, value?))));
        as_user(&mut shell, user).output().unwrap()
    };
    for user in [NOBODY, other] {
        let output = as_other(user, "run --offline --job train -- true");
        assert!(output.status.success(), "{}", text(&output));
        let output = as_other(user, "fleet push");
        assert!(output.status.success(), "{}", text(&output));
    }
    for user in [NOBODY, other] {
        let summary = as_other(user, "fleet summary --json");
        assert!(text(&summary).contains("\"runs\": 2") && summary.stderr.is_empty(), "{}", text(&summary));
    }
    // The folder of the day belongs to the first user.
    let compact = as_other(other, "fleet compact");
    assert!(
        !compact.status.success() && text(&compact).contains("only root can merge"),
        "{}",
        text(&compact)
    );
    let compact = as_other(0, "fleet compact");
    assert!(compact.status.success(), "{}", text(&compact));
    assert_eq!((files(folder.path(), "runs"), files(folder.path(), "samples")), (1, 1));
    let summary = as_other(other, "fleet summary --json");
    assert!(text(&summary).contains("\"runs\": 2") && summary.stderr.is_empty(), "{}", text(&summary));
    // A folder for a group only stays one.
    let group = folder.path().join("group");
    fs::create_dir(&group).unwrap();
    fs::set_permissions(&group, fs::Permissions::from_mode(0o2770)).unwrap();
    let run = as_other(0, "run --offline --store ../group -- true");
    assert!(run.status.success(), "{}", text(&run));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let day = fs::read_dir(group.join("runs")).unwrap().next().unwrap().unwrap().path();
    let file = fs::read_dir(&day).unwrap().next().unwrap().unwrap().path();
    assert_eq!((mode(&group.join("runs")), mode(&day), mode(&file)), (0o2770, 0o2770, 0o640));
}

/// Stores runs of one day without samples.
fn put(store: &Path, ids: std::ops::Range<u64>) {
    let dataset = Dataset::open(store.to_str().unwrap()).unwrap();
    for id in ids {
        let id = format!("{id:012x}");
        let row = json!({"id": id, "stored_time": 1.0, "job": "train"});
        let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
        dataset.put_run(&id, 0.0, &row).unwrap();
    }
}

/// Names of the files of the day that [`put`] writes.
fn names(store: &Path) -> Vec<String> {
    let files = fs::read_dir(store.join("runs/date=1970-01-01")).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

fn start_compact(home: &Path) -> Child {
    let mut compact = tracker(home);
    compact.args(["fleet", "compact", "--store"]).arg(home.join("store"));
    compact.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn nothing_is_lost_when_compact_is_killed_while_it_writes() {
    const RUNS: u64 = 100;
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("store");
    put(&store, 0..RUNS);
    for number in 0..40 {
        let before = names(&store);
        let mut child = start_compact(home.path());
        if number % 2 == 0 {
            thread::sleep(Duration::from_micros(200 * (number * 7 % 50)));
        } else {
            // A temporary or a merged file is new.
            while names(&store).iter().all(|name| before.contains(name)) {
                assert!(child.try_wait().unwrap().is_none(), "it pauses before it ends");
            }
        }
        let _ = child.kill();
        child.wait().unwrap();
        assert!(names(&store).len() >= before.len(), "nothing is removed before a pause");
        assert_eq!(groups(home.path(), &[])[0]["recordings"], RUNS + number);
        put(&store, RUNS + number..RUNS + number + 1);
    }
}

#[test]
fn nothing_is_lost_when_compact_is_killed_while_it_removes() {
    const RUNS: usize = 400;
    let homes: Vec<_> = (0..10).map(|_| tempfile::tempdir().unwrap()).collect();
    let source = tempfile::tempdir().unwrap();
    put(source.path(), 0..RUNS as u64);
    let kill = |home: &Path| {
        let store = home.join("store");
        fs::create_dir_all(store.join("runs/date=1970-01-01")).unwrap();
        for name in names(source.path()) {
            let key = format!("runs/date=1970-01-01/{name}");
            fs::copy(source.path().join(&key), store.join(&key)).unwrap();
        }
        let mut child = start_compact(home);
        while names(&store).len() >= RUNS && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_micros(200));
        }
        let _ = child.kill();
        child.wait().unwrap();
        let left = names(&store).len();
        assert_eq!(groups(home, &[])[0]["recordings"], RUNS);
        assert!(start_compact(home).wait().unwrap().success());
        assert_eq!((names(&store).len(), &groups(home, &[])[0]["recordings"]), (1, &RUNS.into()));
        left
    };
    let left = thread::scope(|scope| {
        let kill = &kill;
        let killed: Vec<_> = homes.iter().map(|home| scope.spawn(move || kill(home.path()))).collect();
        killed.into_iter().map(|killed| killed.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(left.iter().any(|left| (2..RUNS).contains(left)), "killed after the removal: {left:?}");
}

#[test]
fn advice_with_a_store_is_that_of_one_machine_with_all_runs() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let home = |name: &str| folder.path().join(name);
    let allocate = |mib: usize| format!("import time\nx = b'1' * ({mib} << 20)\ntime.sleep(0.15)");
    for (number, mib) in [20, 60, 35, 50, 28, 44].into_iter().enumerate() {
        let home = home(if number % 2 == 0 { "one" } else { "two" });
        fs::create_dir_all(&home).unwrap();
        let mut run = tracker(&home);
        run.args(["run", "-q", "--offline", "-i", "0.05", "--job", "train", "--store"]).arg(&store);
        let output = run.args(["--", "python3", "-c", &allocate(mib)]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        tracker(&home).args(["fleet", "push", "--store"]).arg(&store).output().unwrap();
    }
    let advice = |home: &Path, options: &[&str]| -> Value {
        let mut command = tracker(home);
        let output =
            command.args(["recommend", "last", "--offline", "--json"]).args(options).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    let (alone, with_store) =
        (advice(&home("two"), &[]), advice(&home("two"), &["--store", store.to_str().unwrap()]));
    assert_eq!((&alone["runs"], &with_store["runs"]), (&3.into(), &6.into()));
    let other = tracker(&home("two")).args(["recommend", "last", "--offline", "--store", "empty"]).output();
    assert!(text(&other.unwrap()).contains("no earlier run of this job is in the store"));
    let data = |name: &str| home(name).join("data/resource-tracker");
    for file in fs::read_dir(data("one")).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), data("two").join(file.file_name())).unwrap();
        }
    }
    assert_eq!(advice(&home("two"), &[]), with_store, "one machine with all runs");
}
