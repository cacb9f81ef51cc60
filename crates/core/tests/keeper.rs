//! Tests against a local Keeper (`support/keeper.rs`).
//!
//! Answers must be the same from the Keeper and from the embedded catalogue. If the Keeper fails, the answer comes from
//! the embedded catalogue and contains the reason.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/keeper.rs"]
mod local;
#[path = "support/mod.rs"]
mod support;

use local::{Deviation, answer, api_server, keeper};
use resource_tracker::market::catalog::embedded::embedded;
use resource_tracker::market::catalog::{
    Answer, Catalog, CatalogError, DEADLINE, Query, RunCost, Settings, Source, Updated, update::Step,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Reply, Stalls, TestServer};

fn settings(url: &str, cache_dir: Option<&Path>) -> Settings {
    Settings {
        offline: false,
        keeper_url: url.to_owned(),
        cache_dir: cache_dir.map(Path::to_owned),
        // The test server is slow in a debug build.
        deadline: if cfg!(debug_assertions) { Duration::from_secs(20) } else { DEADLINE },
    }
}

fn ask(url: &str, query: &Query) -> Answer {
    Catalog::new(settings(url, None)).servers(query).unwrap()
}

fn ask_offline(query: &Query) -> Answer {
    Catalog::new(Settings { offline: true, ..settings("", None) }).servers(query).unwrap()
}

/// The servers without the fields that only one source has.
fn comparable(answer: &Answer) -> Vec<Value> {
    let mut servers = serde_json::to_value(&answer.servers).unwrap().as_array().unwrap().clone();
    for server in &mut servers {
        let fields = server.as_object_mut().unwrap();
        fields.remove("price_region");
        fields.remove("a_new_field");
    }
    servers
}

fn queries() -> Vec<Query> {
    let of = Query::new;
    let with = |query: Query, filters: &[(&str, Value)]| {
        filters.iter().fold(query, |query, (name, value)| query.filter(name, value.clone()).unwrap())
    };
    vec![
        of(2.0, 4_096.0),
        of(1.0, 128.0),
        of(8.0, 65_536.0).with_gpu(1.0, 16_384.0),
        of(4.0, 16_384.0).top(60),
        of(0.5, 100.0).top(0),
        with(of(2.0, 4_096.0), &[("vendor_id", json!("aws"))]),
        with(of(2.0, 4_096.0), &[("vendor_id", json!(["gcp", "azure"])), ("architecture", json!("arm64"))]),
        with(of(2.0, 4_096.0), &[("cpu_allocation", json!("Dedicated")), ("cpu_manufacturer", json!("AMD"))]),
        with(of(2.0, 4_096.0), &[("region", json!("hcloud~fsn1"))]),
        with(of(16.0, 1.0).top(4), &[("region", json!("europe-west4"))]),
        with(of(4.0, 1.0).top(4), &[("country", json!("Germany")), ("vendor_id", json!(["aws", "azure"]))]),
        with(of(1.0, 1.0).with_gpu(1.0, 1.0), &[("gpu_model", json!("T4"))]),
        with(of(16.0, 1.0), &[("vendor_id", json!("gcp")), ("spot", json!(true))]),
        with(of(2.0, 1.0), &[("max_price", json!(0.02))]),
        with(of(2.0, 1.0), &[("storage_size", json!(3_000))]),
        // The lowest price of D96as_v5 is an outlier.
        with(of(96.0, 300_000.0).top(120), &[("vendor_id", json!("azure"))]),
    ]
}

#[test]
fn keeper_and_embedded_catalogue_return_the_same_servers() {
    let server = keeper(Deviation::None);
    let mut compared = 0;
    for query in queries() {
        let (online, offline) = (ask(&server.url(), &query), ask_offline(&query));
        assert_eq!((online.source, online.fallback_reason.as_deref()), (Source::Keeper, None), "{query:?}");
        assert_eq!(comparable(&online), comparable(&offline), "{query:?}");
        compared += online.servers.len();
    }
    assert!(compared > 100, "only {compared} servers were compared");
    let outlier = queries().last().map(|query| ask(&server.url(), query)).unwrap();
    let outlier = outlier.servers.iter().find(|server| server.server_id() == "Standard_D96as_v5").unwrap();
    assert_eq!(outlier.ondemand_usd(), Some(4.608));
    let fits_nothing = ask(&server.url(), &Query::new(200.0, 1e9));
    assert_eq!((fits_nothing.source, fits_nothing.servers.len()), (Source::Keeper, 0));
}

#[test]
fn region_that_new_customers_cannot_use_is_not_in_any_answer() {
    let server = keeper(Deviation::HasClosedRegion);
    let azure = Query::new(2.0, 4_096.0).filter("vendor_id", "azure").unwrap();
    let spot = azure.clone().filter("spot", true).unwrap();
    for query in
        [azure.clone(), azure.clone().filter("country", "India").unwrap(), spot, Query::new(2.0, 4_096.0)]
    {
        let (online, offline) = (ask(&server.url(), &query), ask_offline(&query));
        assert_eq!((online.source, online.fallback_reason.as_deref()), (Source::Keeper, None), "{query:?}");
        assert_eq!(comparable(&online), comparable(&offline), "{query:?}");
    }
    let lookups = server.log().iter().filter(|request| request.path.ends_with("/prices")).count();
    assert!(lookups > 3, "only {lookups} prices were in doubt");
    let mut online = Catalog::new(settings(&server.url(), None));
    let elsewhere = online.instance_price("azure", None, "Standard_D16s_v3").unwrap().unwrap();
    assert_ne!(elsewhere.region, "jioindiawest");
    // The price of a machine that runs there is known.
    let here = online.instance_price("azure", Some("jioindiawest"), "Standard_D16s_v3").unwrap().unwrap();
    assert!(here.in_asked_region && here.usd_per_hour < elsewhere.usd_per_hour, "{here:?}");

    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&server.url(), Some(dir.path()));
    let mut steps = Vec::new();
    settings.update_catalog(&[], &mut |step| steps.push(step.to_string())).unwrap();
    assert_eq!(steps[3..], ["fetching servers in open regions of azure", "saving"]);
    let offline = Catalog::new(Settings { offline: true, ..settings }).servers(&azure).unwrap();
    assert_eq!(offline.source, Source::Updated);
    assert_eq!(comparable(&offline), comparable(&ask_offline(&azure)));
}

#[test]
fn new_api_fields_are_kept() {
    let server = keeper(Deviation::None);
    let answer = ask(&server.url(), &Query::new(2.0, 4_096.0));
    assert_eq!(answer.servers[0].get("a_new_field"), &json!([2]));
}

#[test]
fn accelerator_fields_are_read_as_gpu_fields() {
    let server = keeper(Deviation::RenamesGpuFields);
    let query = Query::new(8.0, 65_536.0).with_gpu(1.0, 16_384.0);
    let answer = ask(&server.url(), &query);
    assert_eq!(answer.source, Source::Keeper);
    assert_eq!(comparable(&answer), comparable(&ask_offline(&query)));
}

#[test]
fn answer_is_right_if_the_keeper_ignores_parameters() {
    let mut fell_back = 0;
    for deviation in [Deviation::IgnoresFilters, Deviation::IgnoresRegions, Deviation::IgnoresOrder] {
        let server = keeper(deviation);
        for query in queries() {
            let answer = ask(&server.url(), &query);
            assert_eq!(comparable(&answer), comparable(&ask_offline(&query)), "{deviation:?} {query:?}");
            if answer.source == Source::Embedded {
                let reason =
                    "the Keeper ignored a filter or the sort order, so cheaper servers may be missing";
                assert_eq!(answer.fallback_reason.as_deref(), Some(reason));
                fell_back += 1;
            }
        }
    }
    assert!(fell_back > 10, "{fell_back}");
}

#[test]
fn failure_of_the_keeper_is_the_fallback_reason() {
    let rows = |change: fn(&mut Value)| {
        let catalogue = embedded().unwrap();
        let mut server = api_server(0, catalogue.rows[0], &[]).unwrap();
        change(&mut server);
        Reply::ok(json!([server]).to_string())
    };
    let rename = |server: &mut Value| server["cores"] = server["vcpus"].take();
    let without_id = |server: &mut Value| server["server_id"] = Value::Null;
    let expected = ask_offline(&Query::new(2.0, 4_096.0)).servers;
    for (reply, reason) in [
        (Reply::status(400, r#"{"detail": "bad"}"#), "the Keeper returned status 400: bad"),
        (Reply::status(404, r#"{"detail": "Not Found"}"#), "the Keeper returned status 404: Not Found"),
        (
            Reply::status(
                422,
                r#"{"detail": [{"loc": ["query", "vcpus_min"], "msg": "Input should be less"}]}"#,
            ),
            "the Keeper returned status 422: Input should be less",
        ),
        (Reply::status(429, "Rate limit exceeded"), "the Keeper returned status 429: Rate limit exceeded"),
        (Reply::status(503, ""), "the Keeper returned status 503"),
        (
            Reply::ok("[{"),
            "the response of the Keeper is not valid JSON: EOF while parsing an object at line 1 column 2",
        ),
        (
            Reply::ok(""),
            "the response of the Keeper is not valid JSON: EOF while parsing a value at line 1 column 0",
        ),
        (Reply::ok("{}"), "the response of the Keeper has no valid `list of servers`"),
        (rows(rename), "the response of the Keeper has no valid `vcpus`"),
        (rows(without_id), "the response of the Keeper has no valid `server_id`"),
        (Reply::Half(Box::new(Reply::ok("[]    ".repeat(50)))), "cannot reach the Keeper: "),
        (Reply::Raw(b"\x16\x03\x01 not HTTP\r\n\r\n".to_vec()), "cannot reach the Keeper: "),
    ] {
        let server = TestServer::start(move |_| reply.clone());
        let answer = ask(&server.url(), &Query::new(2.0, 4_096.0));
        assert_eq!((answer.source, &answer.servers), (Source::Embedded, &expected), "{reason}");
        let actual = answer.fallback_reason.unwrap();
        assert!(
            actual.starts_with(reason) && (reason.ends_with(": ") || actual == reason),
            "{actual}, not {reason}"
        );
        assert_eq!(server.log().len(), 1, "one request");
    }
    let closed = keeper(Deviation::None).url();
    let actual = ask(&closed, &Query::new(2.0, 4_096.0)).fallback_reason.unwrap();
    assert!(actual.starts_with("cannot reach the Keeper: "), "{actual}");
    let plain = keeper(Deviation::None);
    let actual =
        ask(&plain.url().replace("http://", "https://"), &Query::new(2.0, 4_096.0)).fallback_reason.unwrap();
    assert!(actual.starts_with("cannot reach the Keeper: "), "{actual}");
    let actual = ask("not a url", &Query::new(2.0, 4_096.0)).fallback_reason.unwrap();
    assert!(actual.starts_with("cannot reach the Keeper: "), "{actual}");
    let actual = ask(&closed, &Query::new(1_000.0, 1.0)).fallback_reason.unwrap();
    assert_eq!(actual, "the Keeper accepts at most 256 vCPUs per query");
}

#[test]
fn one_deadline_covers_all_requests_of_a_call() {
    let hanging = TestServer::start(|_| Reply::Hang);
    let dripping =
        TestServer::start(|_| Reply::Drip(Box::new(Reply::ok(vec![b' '; 5_000])), Duration::from_millis(20)));
    // Each response takes more than half of the deadline, so the second response is late.
    let slow = TestServer::start(|request| {
        Reply::Late(Box::new(answer(request, Deviation::None)), DEADLINE.mul_f64(0.55))
    });
    for server in [hanging, dripping, slow] {
        let (started, stalls) = (Instant::now(), Stalls::watch());
        let mut catalog = Catalog::new(Settings { deadline: DEADLINE, ..settings(&server.url(), None) });
        let query = Query::new(2.0, 4_096.0).filter("region", "eu-west-1").unwrap();
        let found = catalog.servers(&query).unwrap();
        let price = catalog.instance_price("aws", Some("us-east-1"), "c5.large").unwrap().unwrap();
        let took = started.elapsed();
        let stalled = stalls.stop();
        assert!(
            took < DEADLINE + Duration::from_millis(400) + stalled,
            "{took:?}, {stalled:?} of it stalled"
        );
        assert_eq!((found.source, price.source), (Source::Embedded, Source::Embedded));
        assert_eq!(found.fallback_reason.as_deref(), Some("the Keeper did not respond within 2 s"));
    }
}

#[test]
fn response_is_cached_on_disk_and_a_corrupt_file_is_ignored() {
    let server = keeper(Deviation::None);
    let dir = tempfile::tempdir().unwrap();
    let query = Query::new(2.0, 4_096.0);
    let ask = || Catalog::new(settings(&server.url(), Some(dir.path()))).servers(&query).unwrap();
    let first = ask();
    assert_eq!((ask(), server.log().len()), (first.clone(), 1));
    assert_eq!(settings("", Some(dir.path())).catalog_info().unwrap().cached_answers, 1);
    for entry in std::fs::read_dir(dir.path().join("keeper")).unwrap() {
        std::fs::write(entry.unwrap().path(), b"\x00{\"url\": nonsense").unwrap();
    }
    std::fs::write(dir.path().join("catalog.json.gz"), b"nonsense").unwrap();
    assert_eq!((ask(), server.log().len()), (first, 2));
    // A cache folder that cannot be created does not change the answer.
    let file = dir.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let answer = Catalog::new(settings(&server.url(), Some(&file))).servers(&query).unwrap();
    assert_eq!(answer.source, Source::Keeper);
}

#[test]
fn compliance_filter_needs_the_keeper() {
    let server = keeper(Deviation::None);
    let query =
        Query::new(2.0, 4_096.0).filter("compliance_framework_id", json!(["hipaa", "soc2t2"])).unwrap();
    assert_eq!(ask(&server.url(), &query).source, Source::Keeper);
    assert_eq!(server.log()[0].parameters("compliance_framework"), ["hipaa", "soc2t2"]);
    let refusing = TestServer::start(|_| Reply::status(503, ""));
    let error = Catalog::new(settings(&refusing.url(), None)).servers(&query).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter `compliance_framework_id` needs the Keeper server-search service: the Keeper returned status 503"
    );
}

#[test]
fn instance_price_is_the_linux_on_demand_price_of_its_region() {
    let server = keeper(Deviation::None);
    let mut online = Catalog::new(settings(&server.url(), None));
    for (vendor, region, instance_type) in [
        ("aws", Some("us-east-1"), "c5.large"),
        ("aws", Some("nowhere"), "c5.large"),
        ("gcp", Some("europe-west4"), "n2-standard-4"),
        ("hcloud", Some("hel1"), "cx23"),
        ("azure", Some("eastus2"), "Standard_D96as_v5"),
    ] {
        let price = online.instance_price(vendor, region, instance_type).unwrap().unwrap();
        let offline = resource_tracker::market::catalog::embedded_price(vendor, region, instance_type)
            .unwrap()
            .unwrap();
        assert_eq!(price.source, Source::Keeper);
        assert_eq!(
            (price.usd_per_hour, price.in_asked_region),
            (offline.usd_per_hour, offline.in_asked_region)
        );
    }
    assert_eq!(online.instance_price("aws", None, "c5.potato").unwrap(), None);

    let current = online.instance_price("aws", Some("us-east-1"), "m5.4xlarge").unwrap().unwrap();
    assert_eq!(current.source, Source::Keeper, "an unknown server is not a failure of the Keeper");
    let recommended = online.servers(&Query::new(2.0, 4_096.0).top(1)).unwrap().servers;
    let cost = RunCost::new(7_200.0, Some(&current), recommended.first());
    let savings = cost.savings.unwrap();
    assert!((cost.current.unwrap().usd - 1.536).abs() < 1e-9, "{cost:?}");
    assert!((savings.usd - (1.536 - 2.0 * recommended[0].ondemand_usd().unwrap())).abs() < 1e-9, "{cost:?}");
    assert!((savings.percent - 100.0 * savings.usd / 1.536).abs() < 1e-9, "{cost:?}");
}

#[test]
fn update_is_saved_once_and_used_offline() {
    let server = keeper(Deviation::None);
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&server.url(), Some(dir.path()));
    let run = |regions: &[&str]| {
        let mut steps = Vec::new();
        let regions: Vec<String> = regions.iter().map(|region| (*region).to_owned()).collect();
        let report = settings.update_catalog(&regions, &mut |step| steps.push(step.to_string())).unwrap();
        (report, steps)
    };
    let (report, steps) = run(&[]);
    assert_eq!((report.changed, report.servers, report.regions), (true, 3_310, 129));
    assert_eq!(report.database_last_updated.as_deref(), Some("2026-11-14T03:00:00"));
    assert_eq!(steps, ["checking for changes", "fetching servers", "fetching regions", "saving"]);
    let (report, steps) = run(&[]);
    assert_eq!((report.changed, steps.len()), (false, 1));
    let (report, steps) = run(&["hcloud~fsn1"]);
    assert_eq!((report.changed, report.region_prices.as_slice()), (true, &["hcloud~fsn1".to_owned()][..]));
    assert_eq!(steps[1..], ["fetching prices in hcloud~fsn1", "saving"]);
    assert_eq!(Updated::load(dir.path()).unwrap().servers().len(), 3_310);

    let offline =
        |query: &Query| Catalog::new(Settings { offline: true, ..settings.clone() }).servers(query).unwrap();
    for (query, source) in [
        (Query::new(2.0, 4_096.0), Source::Updated),
        (Query::new(8.0, 65_536.0).with_gpu(1.0, 16_384.0), Source::Updated),
        (Query::new(2.0, 4_096.0).filter("region", "fsn1").unwrap(), Source::Updated),
        (Query::new(2.0, 4_096.0).filter("region", "eu-west-1").unwrap(), Source::Embedded),
    ] {
        let answer = offline(&query);
        assert_eq!(answer.source, source, "{query:?}");
        assert_eq!(comparable(&answer), comparable(&ask_offline(&query)), "{query:?}");
    }
}

#[test]
fn failed_update_keeps_the_old_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let good = keeper(Deviation::None);
    settings(&good.url(), Some(dir.path())).update_catalog(&[], &mut |_| {}).unwrap();
    let broken = TestServer::start(|request| match request.route() {
        "/healthcheck" => Reply::ok(r#"{"database_hash": "h2"}"#),
        _ => Reply::ok("[]"),
    });
    let mut last = None;
    let error = settings(&broken.url(), Some(dir.path()))
        .update_catalog(&[], &mut |step| last = Some(step.clone()))
        .unwrap_err();
    assert_eq!(last, Some(Step::Servers));
    assert!(error.to_string().starts_with("cannot update the catalogue from `http://127.0.0.1:"), "{error}");
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "the response of the Keeper has no valid `list of servers`"
    );
    assert!(Updated::load(dir.path()).is_some());

    let offline = Settings { offline: true, ..settings(&good.url(), Some(dir.path())) };
    let error = offline.update_catalog(&[], &mut |_| {}).unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "network access is disabled");
    let error = settings(&good.url(), None).update_catalog(&[], &mut |_| {}).unwrap_err();
    assert!(matches!(error, CatalogError::NoCacheDir));
    let error = settings(&good.url(), Some(dir.path()))
        .update_catalog(&["atlantis-1".to_owned()], &mut |_| {})
        .unwrap_err();
    assert!(error.is_usage(), "{error}");
}

#[test]
fn update_has_one_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let drip = |reply| Reply::Drip(Box::new(reply), Duration::from_millis(20));
    let slow = TestServer::start(move |request| match request.route() {
        "/healthcheck" => Reply::ok(r#"{"database_hash": "h2"}"#),
        _ => drip(Reply::ok(vec![b' '; 50_000])),
    });
    let (started, stalls) = (Instant::now(), Stalls::watch());
    let short = Settings { deadline: Duration::from_millis(100), ..settings(&slow.url(), Some(dir.path())) };
    let error = short.update_catalog(&[], &mut |_| {}).unwrap_err();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5) + stalls.stop(), "{took:?}");
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "the Keeper did not respond within 1 s"
    );
    // The limit of a user is ten times the two seconds of a query.
    assert!(DEADLINE * 10 <= Duration::from_secs(20));
}

#[test]
fn redirect_between_internal_addresses_is_followed() {
    let target = keeper(Deviation::None);
    let url = target.url();
    let first = TestServer::start(move |request| Reply::Answer {
        status: 307,
        headers: vec![("Location", format!("{url}{}", request.path))],
        body: Vec::new(),
    });
    assert_eq!(ask(&first.url(), &Query::new(2.0, 4_096.0)).source, Source::Keeper);
}
