//! A dataset in a bucket of a real S3 server on loopback, and what errors say.
#![cfg(unix)]
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and a large case prints its times"
)]

#[path = "../../core/examples/fleet_runs_generator/mod.rs"]
mod generator;
#[path = "support/s3.rs"]
mod s3;
#[path = "../../core/tests/support/mod.rs"]
mod support;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use resource_tracker::fleet::By;
use resource_tracker::fleet::columns::run_columns;
use resource_tracker::fleet::dataset::{Dataset, DatasetError};
use resource_tracker::fleet::pull::Pulled;
use resource_tracker::fleet::store::{self, Environment};
use resource_tracker::fleet::summary::Line;
use resource_tracker::fleet::table::Table;
use resource_tracker::with_causes;
use s3::{KEY, SECRET, Server, URL, closed_port, failure, variables};
use serde_json::json;
use support::{Reply, TestServer};

fn environment(endpoint: &str, others: &[(&str, &str)]) -> Environment {
    let mut all = variables(endpoint);
    all.extend(others.iter().map(|(name, value)| (*name, (*value).to_owned())));
    // Later ones count; an empty one is not set.
    Environment::of(|name| all.iter().rev().find(|(set, _)| *set == name).map(|(_, value)| value.clone()))
}

fn dataset(endpoint: &str) -> Dataset {
    Dataset::open_with(URL, environment(endpoint, &[])).unwrap()
}

fn folder(folder: &tempfile::TempDir) -> Dataset {
    Dataset::open(folder.path().to_str().unwrap()).unwrap()
}

fn put(dataset: &Dataset, id: &str) -> Result<(), DatasetError> {
    let row = json!({"id": id, "stored_time": 1.0, "job": "train", "cpu_hours_used": 0.5});
    let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
    dataset.put_run(id, 0.0, &row)
}

const EACH: [&str; 5] = ["job", "user", "node", "day", "tag:team"];

/// The summaries by these. Sums depend on the order of the runs in the last digits.
fn summaries(dataset: &Dataset, by: &[&str]) -> Vec<Vec<Line>> {
    let round = |value: &mut Option<f64>| *value = value.map(|value| (value * 1e6).round() / 1e6);
    let summary = |by: &&str| dataset.summary(&By::from_name(by).unwrap(), None).unwrap();
    let mut all: Vec<Vec<Line>> = by.iter().map(summary).collect();
    for line in all.iter_mut().flatten() {
        round(&mut line.cpu_hours_asked);
        round(&mut line.cpu_hours_used);
        round(&mut line.cpu_hours_wasted);
        round(&mut line.gib_hours_asked);
        round(&mut line.gib_hours_used);
        round(&mut line.gib_hours_wasted);
        round(&mut line.cost_usd);
        round(&mut line.savings_usd);
        round(&mut line.imbalance);
    }
    all
}

/// What the user reads.
fn shown(error: &DatasetError) -> String {
    let text = format!("{} ({})", with_causes(error), error.hint().unwrap_or_default());
    assert!(!text.contains(SECRET) && !text.contains(KEY) && !text.contains("Signature="), "{text}");
    assert!(!format!("{error:?}").contains(SECRET));
    text
}

#[test]
fn summary_of_a_bucket_and_of_its_copy_are_those_of_a_folder() {
    let runs = std::env::var("RESOURCE_TRACKER_FLEET_RUNS").map_or(2000, |runs| runs.parse().unwrap());
    let (server, written, pulled) =
        (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (bucket, written, copy) = (dataset(&server.endpoint), folder(&written), folder(&pulled));
    let began = Instant::now();
    generator::write(&written, runs, 7);
    generator::write(&bucket, runs, 7);
    println!("wrote {runs} runs twice: {:.2} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let expected = summaries(&written, &EACH);
    assert!(expected[0].iter().map(|line| line.recordings).sum::<u64>() > runs / 2);
    assert_eq!(summaries(&bucket, &EACH[..1]), expected[..1]);
    println!("added them up six times: {:.2} s", began.elapsed().as_secs_f64());

    let files = usize::try_from(runs).unwrap() + 100;
    let done = bucket.pull(&copy, None).unwrap();
    assert_eq!((done.copied_files >= files, done.removed_files), (true, 0));
    assert_eq!(bucket.pull(&copy, None).unwrap(), Pulled::default(), "nothing is copied again");
    assert_eq!(summaries(&copy, &EACH[..1]), expected[..1]);

    let began = Instant::now();
    bucket.compact_after(Duration::ZERO).unwrap();
    println!("compacted: {:.2} s", began.elapsed().as_secs_f64());
    assert_eq!(summaries(&bucket, &EACH), expected);
    put(&copy, "of-the-copy").unwrap();
    put(&bucket, "later").unwrap();
    let done = bucket.pull(&copy, None).unwrap();
    assert!(
        done.copied_files <= 61 && done.removed_files >= files - 100,
        "merged files replace the others: {done:?}"
    );
    assert_eq!(bucket.pull(&copy, None).unwrap(), Pulled::default());
    let added =
        copy.summary(&By::Job, None).unwrap().into_iter().find(|line| line.key.as_deref() == Some("train"));
    assert_eq!(added.map(|line| line.recordings), Some(2), "runs of the copy itself stay");
}

#[test]
fn every_run_in_a_bucket_counts_once_while_others_write_and_compact() {
    const WRITERS: u64 = 32;
    const RUNS: u64 = 4;
    let server = Server::start();
    let dataset = &dataset(&server.endpoint);
    let recordings = || dataset.summary(&By::Job, None).unwrap().first().map_or(0, |line| line.recordings);
    let (stored, is_done) = (&AtomicU64::new(0), &AtomicBool::new(false));
    thread::scope(|scope| {
        let write = |writer: u64| {
            for run in 0..RUNS {
                put(dataset, &format!("{writer:02}-{run:02}")).unwrap();
                stored.fetch_add(1, Ordering::SeqCst);
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    dataset.compact_after(Duration::ZERO).unwrap();
                }
            });
        }
        while writers.iter().any(|writer| !writer.is_finished()) {
            let before = stored.load(Ordering::SeqCst);
            let counted = recordings();
            // A writer may have stored a run that it has not counted yet.
            let after = stored.load(Ordering::SeqCst) + WRITERS;
            assert!((before..=after).contains(&counted), "{counted} of {before} to {after}");
        }
        is_done.store(true, Ordering::SeqCst);
    });
    assert_eq!(recordings(), WRITERS * RUNS);
    dataset.compact_after(Duration::ZERO).unwrap();
    assert_eq!(recordings(), WRITERS * RUNS);
}

#[test]
fn listing_has_all_pages_and_only_what_is_in_the_folder() {
    let server = Server::start();
    let day = server.objects().join("runs/date=2026-03-12");
    fs::create_dir_all(day.join("inner")).unwrap();
    for number in 0..1234 {
        fs::write(day.join(format!("{number:04}.parquet")), "x").unwrap();
    }
    fs::write(day.join("inner/other.parquet"), "x").unwrap();
    let store = store::open(URL, environment(&server.endpoint, &[])).unwrap();
    let names: Vec<String> =
        store.objects("runs/date=2026-03-12", "").unwrap().into_iter().map(|object| object.name).collect();
    assert_eq!(names, (0..1234).map(|number| format!("{number:04}.parquet")).collect::<Vec<_>>());
    assert_eq!(store.objects("runs/date=2026-03-12", "12").unwrap().len(), 34);
    assert_eq!(store.folders("runs").unwrap(), ["date=2026-03-12"]);
    assert_eq!(store.folders("none").unwrap(), [""; 0]);
    assert_eq!(store.get("runs/date=2026-03-12/0007.parquet").unwrap(), b"x");
    store.put("a b/c+d", b"content").unwrap();
    assert_eq!(store.get("a b/c+d").unwrap(), b"content");
    store.remove("a b/c+d").unwrap();
    store.remove("a b/c+d").unwrap();
    assert!(store.get("a b/c+d").unwrap_err().is_not_found());
}

#[test]
fn refusals_are_explained_without_secrets() {
    let server = Server::start();
    let error = |url: &str, others: &[(&str, &str)]| {
        shown(&Dataset::open_with(url, environment(&server.endpoint, others)).unwrap().days().unwrap_err())
    };
    let wrong = error(URL, &[("AWS_SECRET_ACCESS_KEY", "wrong")]);
    assert!(
        wrong.contains("403 SignatureDoesNotMatch") && wrong.contains("AWS_SECRET_ACCESS_KEY"),
        "{wrong}"
    );
    let unknown = error(URL, &[("AWS_ACCESS_KEY_ID", "AKIDOTHER")]);
    assert!(unknown.contains("403 ") && unknown.contains("s3://fleet/team/runs"), "{unknown}");
    let bucket = error("s3://missing/runs", &[]);
    assert!(bucket.contains("404 NoSuchBucket") && bucket.contains("create the bucket"), "{bucket}");
    let endpoint = error(URL, &[("AWS_ENDPOINT_URL_S3", "ftp://user:pass@host/")]);
    assert!(endpoint.contains("AWS_ENDPOINT_URL_S3") && !endpoint.contains("pass"), "{endpoint}");
    let nothing =
        [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", ""), ("AWS_EC2_METADATA_DISABLED", "true")];
    let missing = error(URL, &nothing);
    assert!(
        missing.contains("neither the variables") && missing.contains("set AWS_ACCESS_KEY_ID"),
        "{missing}"
    );
    let half = error(URL, &nothing[1..]);
    assert!(half.contains("`AWS_ACCESS_KEY_ID` is set, and `AWS_SECRET_ACCESS_KEY` is not"), "{half}");
    for url in [
        "s3://",
        "s3:///runs",
        "s3://key:secret@bucket/x",
        "s3://bucket/a/../b",
        "s3://bucket//x",
        "http://x/",
    ] {
        let error = Dataset::open_with(url, environment("", &[])).unwrap_err();
        assert!(
            error.to_string().contains("is not a valid store address")
                && !error.to_string().contains("secret"),
            "{url}: {error}"
        );
    }
}

#[test]
fn passing_failures_are_asked_again_within_the_time_limit_and_others_end() {
    let broken = |reply: Reply| TestServer::start(move |_| reply.clone());
    let slow = failure(503, "SlowDown");
    for (reply, text, requests, limit) in [
        (slow.clone(), "503 SlowDown", 4, "60"),
        (slow.clone(), "503 SlowDown", 1, "0.1"),
        (failure(500, "InternalError"), "500 InternalError", 4, "60"),
        (failure(502, ""), "502 ", 4, "60"),
        (failure(429, "TooManyRequests"), "429 TooManyRequests", 4, "60"),
        (failure(400, "RequestTimeout"), "400 RequestTimeout", 4, "60"),
        (failure(400, "InvalidRequest"), "400 InvalidRequest", 1, "60"),
        (failure(403, "AccessDenied"), "the clock of this machine", 1, "60"),
        (failure(403, "ExpiredToken"), "have expired", 1, "60"),
        (failure(301, "PermanentRedirect"), "AWS_REGION", 1, "60"),
        (Reply::HalfUpload, "cannot write", 4, "60"),
        (Reply::Hang, "no answer within 0.5 s", 1, "0.5"),
    ] {
        let server = broken(reply);
        let environment = environment(&server.url(), &[("RESOURCE_TRACKER_STORE_TIMEOUT", limit)]);
        let error = put(&Dataset::open_with(URL, environment).unwrap(), "a").unwrap_err();
        assert!(shown(&error).contains(text), "{}", shown(&error));
        assert_eq!(server.log().len(), requests, "{text}");
    }
    let refused = put(&dataset(&format!("http://127.0.0.1:{}", closed_port())), "a").unwrap_err();
    assert!(shown(&refused).to_lowercase().contains("refused"), "{}", shown(&refused));
    let page = broken(Reply::ok("<html>sign in</html>"));
    assert!(shown(&dataset(&page.url()).days().unwrap_err()).contains("the answer is no listing"));

    let seen = AtomicU64::new(0);
    let server = TestServer::start(move |_| match seen.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => slow.clone(),
        _ => Reply::ok(""),
    });
    put(&dataset(&server.url()), "a").unwrap();
    assert_eq!(server.log().len(), 3);
    // The limit of 5 s, and a clock that is 15 minutes slow.
    assert!(server.log().iter().all(|request| request.path.contains("X-Amz-Expires=905")));
}

#[test]
fn readers_stop_at_the_first_error() {
    let object = |number: u32| {
        format!(
            "<Contents><Key>team/runs/runs/date=2026-03-12/{number}.parquet</Key><ETag>x</ETag>\
             <LastModified>2026-03-12T00:00:00Z</LastModified><Size>9</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>"
        )
    };
    let objects = (0..500).map(object).collect::<Vec<_>>().concat();
    let server = TestServer::start(move |request| {
        let prefix = "<CommonPrefixes><Prefix>team/runs/runs/date=2026-03-12/</Prefix></CommonPrefixes>";
        let list = |of: &str| {
            let xmlns = "http://s3.amazonaws.com/doc/2006-03-01/";
            Reply::ok(format!(
                "<ListBucketResult xmlns=\"{xmlns}\"><Name>fleet</Name><Prefix></Prefix>\
                 <MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{of}</ListBucketResult>"
            ))
        };
        match (request.path.contains("list-type=2"), request.path.contains("date%3D")) {
            (true, true) => list(&objects),
            (true, false) => list(prefix),
            _ => failure(403, "AccessDenied"),
        }
    });
    let error = dataset(&server.url()).summary(&By::Job, None).unwrap_err();
    assert!(shown(&error).contains("403 AccessDenied"), "{}", shown(&error));
    let requests = server.log().len();
    assert!(requests < 200, "{requests} requests");
}

/// A service for credentials of EC2 instances and containers. A token is required.
fn metadata(expires: &'static str) -> TestServer {
    TestServer::start(move |request| {
        let has = |header: &str, value: &str| request.header(header) == Some(value);
        let is_allowed = has("X-aws-ec2-metadata-token", "token-1") || has("Authorization", "token-2");
        match (request.method.as_str(), request.path.as_str()) {
            ("PUT", "/latest/api/token") if has("X-aws-ec2-metadata-token-ttl-seconds", "60") => {
                Reply::ok("token-1")
            }
            ("GET", _) if !is_allowed => Reply::status(401, ""),
            ("GET", "/latest/meta-data/iam/security-credentials/") => Reply::ok("batch"),
            ("GET", "/latest/meta-data/iam/security-credentials/batch" | "/v1/credentials") => Reply::ok(
                json!({"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "session", "Expiration": expires})
                    .to_string(),
            ),
            _ => Reply::status(404, ""),
        }
    })
}

#[test]
fn credentials_come_from_profile_files_containers_and_instances() {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".aws")).unwrap();
    fs::write(
        home.path().join(".aws/config"),
        format!(
            "[default]\nregion = eu-west-1\nendpoint_url = {}\n[profile sso]\nsso_session = x\n",
            server.endpoint
        ),
    )
    .unwrap();
    let keys = format!("[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    fs::write(home.path().join(".aws/credentials"), keys).unwrap();
    let home = home.path().to_str().unwrap();
    let none = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", ""), ("HOME", home)];
    let days = |others: &[(&str, &str)]| {
        let environment = environment(&server.endpoint, &[&none[..], others].concat());
        Dataset::open_with(URL, environment).unwrap().days()
    };
    let (valid, expired) = (metadata("2999-01-01T00:00:00Z"), metadata("2020-01-01T00:00:00Z"));
    let container = format!("{}/v1/credentials", valid.url());
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "token-2\n").unwrap();
    days(&[("AWS_PROFILE", "team")]).unwrap();
    days(&[("AWS_PROFILE", "team"), ("RESOURCE_TRACKER_S3_PATH_STYLE", "True")]).unwrap();
    // The bucket is no part of an address that is a number.
    days(&[("AWS_PROFILE", "team"), ("RESOURCE_TRACKER_S3_PATH_STYLE", "False")]).unwrap_err();
    days(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &valid.url())]).unwrap();
    days(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &valid.url()), ("AWS_ENDPOINT_URL_S3", "")]).unwrap();
    days(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_str().unwrap()),
    ])
    .unwrap();
    // This path cannot be read. That is an error only for a file that a variable names.
    let below_a_file = token.path().join("config");
    let named = below_a_file.to_str().unwrap();
    days(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &valid.url()), ("HOME", token.path().to_str().unwrap())])
        .unwrap();
    for (others, text) in [
        (&[("AWS_CONFIG_FILE", named)][..], "cannot read `"),
        (&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", expired.url().as_str())], "expired at 2020"),
        (&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container)], "the credentials service of the container"),
        (
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://203.0.113.7/")],
            "neither a service of this machine",
        ),
        (
            &[("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")],
            "`aws configure export-credentials",
        ),
        (&[("AWS_PROFILE", "sso")], "`sso` has no access key"),
        (&[("AWS_PROFILE", "other")], "no profile named `other`"),
    ] {
        let text_shown = shown(&days(others).unwrap_err());
        assert!(text_shown.contains(text), "{text_shown}");
    }
}
