//! The Keeper on loopback, with its real schema and the embedded catalogue's facts: the same answers
//! either way, and the embedded ones, with a reason, whenever it misbehaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/mod.rs"]
mod support;

use flate2::{Compression, write::GzEncoder};
use resource_tracker::catalog::embedded::{Row, embedded, prices, usd};
use resource_tracker::catalog::{
    Answer, Catalog, CatalogError, DEADLINE, Query, RunCost, Settings, Source, Step, Updated, info, update,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{Reply, Request, Stalls, TestServer};

/// How far the Keeper is from its documentation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manners {
    Good,
    IgnoresFilters,
    IgnoresRegions,
    IgnoresOrder,
    SaysAccelerator,
}

/// The Keeper's own id of a region: numeric at two vendors.
fn region_id(vendor: &str, index: usize, name: &str) -> String {
    if matches!(vendor, "gcp" | "hcloud") { (1_000 + index).to_string() } else { name.to_owned() }
}

/// A server as the API sends it, at the cheapest price of some regions, outliers and all.
fn api_server(index: usize, row: &Row<'_>, regions: &[String]) -> Option<Value> {
    let catalogue = embedded().unwrap();
    let vendor = &catalogue.vendors[row.vendor];
    let asked = |region: usize| {
        regions.is_empty() || regions.contains(&format!("{}~{}", vendor.id, vendor.regions[region]))
    };
    let ondemand = prices()
        .unwrap()
        .of(index)
        .iter()
        .filter(|(region, _)| asked(usize::from(*region)))
        .map(|(_, price)| usd(*price))
        .min_by(f64::total_cmp)?;
    let spot = row.spot.filter(|(_, region)| asked(*region)).map(|(price, _)| usd(price));
    Some(json!({
        "vendor_id": vendor.id, "server_id": row.server_id, "name": row.display_name,
        "api_reference": row.api_reference, "display_name": row.display_name, "vcpus": row.vcpus,
        "cpu_allocation": row.cpu_allocation, "cpu_architecture": row.cpu_architecture,
        "cpu_manufacturer": row.cpu_manufacturer, "memory_amount": row.memory_mib,
        "gpu_count": row.gpu.map_or(0.0, |gpu| gpu.count()),
        "gpu_memory_min": row.gpu.map(|gpu| gpu.vram_min_mib), "gpu_memory_total": row.gpu.map(|gpu| gpu.vram_total_mib),
        "gpu_manufacturer": row.gpu.map(|gpu| catalogue.gpus[gpu.gpu].manufacturer),
        "gpu_model": row.gpu.map(|gpu| catalogue.gpus[gpu.gpu].model),
        "gpus": if row.gpu.is_none() { json!([]) } else { Value::Null },
        "storage_size": row.storage_gb, "status": "active", "min_price_spot": spot, "min_price_ondemand": ondemand,
        "min_price": spot.map_or(ondemand, |spot: f64| spot.min(ondemand)),
        "vendor": {"vendor_id": vendor.id, "name": vendor.name},
        "a_field_of_next_year": [row.vcpus],
    }))
}

fn answer(request: &Request, manners: Manners) -> Reply {
    if request.header("X-Application-ID") != Some("resource-tracker") {
        return Reply::status(400, r#"{"detail": "who are you?"}"#);
    }
    let catalogue = embedded().unwrap();
    let body = match request.route().split('/').collect::<Vec<_>>().as_slice() {
        ["", "healthcheck"] => json!({"packages": {}, "database_hash": "h1", "database_last_updated": "2026-11-14T03:00:00"}),
        ["", "regions"] => catalogue
            .vendors
            .iter()
            .flat_map(|vendor| {
                vendor.regions.iter().enumerate().map(|(index, name)| {
                    json!({"vendor_id": vendor.id, "region_id": region_id(vendor.id, index, name), "api_reference": name, "aliases": []})
                })
            })
            .collect(),
        ["", "server", vendor, server, "prices"] => match catalogue.find(vendor, server) {
            Some((index, row)) => api_prices(index, row),
            None => return Reply::status(404, r#"{"detail": "Server not found"}"#),
        },
        ["", "servers"] => api_servers(request, manners),
        _ => return Reply::status(404, r#"{"detail": "Not Found"}"#),
    };
    let text = serde_json::to_vec(&body).unwrap();
    assert!(request.header("Accept-Encoding").is_some_and(|codings| codings.contains("gzip")));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&text).unwrap();
    Reply::Answer {
        status: 200,
        headers: vec![
            ("Content-Encoding", "gzip".to_owned()),
            ("Content-Type", "application/json".to_owned()),
        ],
        body: encoder.finish().unwrap(),
    }
}

fn api_prices(index: usize, row: &Row<'_>) -> Value {
    let catalogue = embedded().unwrap();
    let vendor = &catalogue.vendors[row.vendor];
    let line = |region: usize, price: f64, allocation: &str, system: &str| {
        json!({
            "vendor_id": vendor.id, "region_id": region_id(vendor.id, region, vendor.regions[region]), "zone_id": "a",
            "server_id": row.server_id, "operating_system": system, "allocation": allocation, "unit": "hour",
            "price": price, "price_tiered": [], "currency": "USD", "status": "active", "observed_at": "2026-11-14",
        })
    };
    let mut lines = Vec::new();
    for (region, price) in prices().unwrap().of(index) {
        let region = usize::from(*region);
        lines.push(line(region, usd(*price), "ondemand", "Linux"));
        // A dearer zone, another system and another contract, none of which may be taken.
        lines.push(line(region, usd(*price) * 1.5, "ondemand", "linux"));
        lines.push(line(region, usd(*price) / 2.0, "ondemand", "Windows"));
        lines.push(line(region, usd(*price) / 3.0, "reserved", "linux"));
        if row.spot.is_some_and(|(_, at)| at == region) {
            lines.push(line(region, usd(row.spot.unwrap().0), "spot", "linux"));
        }
    }
    Value::Array(lines)
}

/// Made once for questions without a region, which are most.
fn all_servers(regions: &[String]) -> Cow<'static, [Value]> {
    static ANYWHERE: OnceLock<Vec<Value>> = OnceLock::new();
    let make = || {
        let rows = embedded().unwrap().rows.iter().enumerate();
        rows.filter_map(|(index, row)| api_server(index, row, regions)).collect()
    };
    if regions.is_empty() { Cow::Borrowed(ANYWHERE.get_or_init(make)) } else { Cow::Owned(make()) }
}

fn api_servers(request: &Request, manners: Manners) -> Value {
    let number =
        |name: &str| request.parameters(name).first().map_or(0.0, |text| text.parse::<f64>().unwrap());
    let regions =
        if manners == Manners::IgnoresRegions { Vec::new() } else { request.parameters("vendor_regions") };
    let has = |server: &Value, field: &str| server[field].as_f64().unwrap_or(0.0);
    let one_of = |server: &Value, field: &str, parameter: &str| {
        let asked = request.parameters(parameter);
        asked.is_empty() || asked.iter().any(|value| server[field] == *value)
    };
    let mut found: Vec<Value> = all_servers(&regions)
        .iter()
        .filter(|server| {
            manners == Manners::IgnoresFilters
                || (has(server, "vcpus") >= number("vcpus_min")
                    && has(server, "memory_amount") >= number("memory_min") * 1024.0
                    && has(server, "gpu_count") >= number("gpu_min")
                    && has(server, "gpu_memory_total") >= number("gpu_memory_total") * 1024.0
                    && has(server, "storage_size") >= number("storage_size")
                    && one_of(server, "vendor_id", "vendor")
                    && one_of(server, "cpu_architecture", "architecture")
                    && one_of(server, "cpu_manufacturer", "cpu_manufacturer")
                    && one_of(server, "cpu_allocation", "cpu_allocation"))
        })
        .cloned()
        .collect();
    let order = request.parameters("order_by").first().cloned().unwrap_or_else(|| "vcpus".to_owned());
    if manners != Manners::IgnoresOrder {
        found.sort_by(|a, b| has(a, &order).total_cmp(&has(b, &order)));
    }
    let limit = number("limit");
    if limit >= 0.0 {
        found.truncate(format!("{limit}").parse().unwrap());
    }
    if manners == Manners::SaysAccelerator {
        for server in &mut found {
            let Value::Object(fields) = server else { continue };
            let renamed =
                std::mem::take(fields).into_iter().map(|(name, value)| match name.strip_prefix("gpu") {
                    Some("s") => ("accelerators".to_owned(), value),
                    Some(rest) => (format!("accelerator{rest}"), value),
                    None => (name, value),
                });
            *fields = renamed.collect();
        }
    }
    Value::Array(found)
}

fn keeper(manners: Manners) -> TestServer {
    TestServer::start(move |request| answer(request, manners))
}

fn settings(url: &str, cache_dir: Option<&Path>) -> Settings {
    Settings {
        offline: false,
        keeper_url: url.to_owned(),
        cache_dir: cache_dir.map(Path::to_owned),
        // A debug build of this test's server needs longer than the real one may.
        deadline: if cfg!(debug_assertions) { Duration::from_secs(20) } else { DEADLINE },
    }
}

fn ask(url: &str, query: &Query) -> Answer {
    Catalog::new(settings(url, None)).servers(query).unwrap()
}

fn ask_offline(query: &Query) -> Answer {
    Catalog::new(Settings { offline: true, ..settings("", None) }).servers(query).unwrap()
}

/// Everything but what only one of the two sources can know.
fn comparable(answer: &Answer) -> Vec<Value> {
    let mut servers = serde_json::to_value(&answer.servers).unwrap().as_array().unwrap().clone();
    for server in &mut servers {
        let fields = server.as_object_mut().unwrap();
        fields.remove("price_region");
        fields.remove("a_field_of_next_year");
    }
    servers
}

fn questions() -> Vec<Query> {
    let ask = |cpu, memory| Query::new(cpu, memory);
    let with = |query: Query, filters: &[(&str, Value)]| {
        filters.iter().fold(query, |query, (name, value)| query.filter(name, value.clone()).unwrap())
    };
    vec![
        ask(2.0, 4_096.0),
        ask(1.0, 128.0),
        ask(8.0, 65_536.0).with_gpu(1.0, 16_384.0),
        ask(4.0, 16_384.0).top(60),
        ask(0.5, 100.0).top(0),
        with(ask(2.0, 4_096.0), &[("vendor_id", json!("aws"))]),
        with(ask(2.0, 4_096.0), &[("vendor_id", json!(["gcp", "azure"])), ("architecture", json!("arm64"))]),
        with(
            ask(2.0, 4_096.0),
            &[("cpu_allocation", json!("Dedicated")), ("cpu_manufacturer", json!("AMD"))],
        ),
        with(ask(2.0, 4_096.0), &[("region", json!("hcloud~fsn1"))]),
        with(ask(16.0, 1.0).top(4), &[("region", json!("europe-west4"))]),
        with(ask(4.0, 1.0).top(4), &[("country", json!("Germany")), ("vendor_id", json!(["aws", "azure"]))]),
        with(ask(1.0, 1.0).with_gpu(1.0, 1.0), &[("gpu_model", json!("T4"))]),
        with(ask(16.0, 1.0), &[("vendor_id", json!("gcp")), ("spot", json!(true))]),
        with(ask(2.0, 1.0), &[("max_price", json!(0.02))]),
        with(ask(2.0, 1.0), &[("storage_size", json!(3_000))]),
        // The cheapest D96as_v5 is an outlier of its list.
        with(ask(96.0, 300_000.0).top(120), &[("vendor_id", json!("azure"))]),
    ]
}

#[test]
fn the_keeper_and_the_embedded_catalogue_give_the_same_servers() {
    let server = keeper(Manners::Good);
    let mut compared = 0;
    for query in questions() {
        let (online, offline) = (ask(&server.url(), &query), ask_offline(&query));
        assert_eq!((online.source, online.fallback_reason.as_deref()), (Source::Keeper, None), "{query:?}");
        assert_eq!(comparable(&online), comparable(&offline), "{query:?}");
        compared += online.servers.len();
    }
    assert!(compared > 100, "only {compared} servers were compared");
    let outlier = questions().last().map(|query| ask(&server.url(), query)).unwrap();
    let outlier = outlier.servers.iter().find(|server| server.server_id() == "Standard_D96as_v5").unwrap();
    assert_eq!(outlier.ondemand_usd(), Some(4.608));
    let fits_nothing = ask(&server.url(), &Query::new(200.0, 1e9));
    assert_eq!((fits_nothing.source, fits_nothing.servers.len()), (Source::Keeper, 0));
}

#[test]
fn fields_that_the_api_adds_survive() {
    let server = keeper(Manners::Good);
    let answer = ask(&server.url(), &Query::new(2.0, 4_096.0));
    assert_eq!(answer.servers[0].get("a_field_of_next_year"), &json!([2]));
}

#[test]
fn accelerator_is_read_as_gpu() {
    let server = keeper(Manners::SaysAccelerator);
    let query = Query::new(8.0, 65_536.0).with_gpu(1.0, 16_384.0);
    let answer = ask(&server.url(), &query);
    assert_eq!(answer.source, Source::Keeper);
    assert_eq!(comparable(&answer), comparable(&ask_offline(&query)));
}

#[test]
fn a_keeper_that_ignores_what_it_is_asked_cannot_make_an_answer_wrong() {
    let mut fell_back = 0;
    for manners in [Manners::IgnoresFilters, Manners::IgnoresRegions, Manners::IgnoresOrder] {
        let server = keeper(manners);
        for query in questions() {
            let answer = ask(&server.url(), &query);
            assert_eq!(comparable(&answer), comparable(&ask_offline(&query)), "{manners:?} {query:?}");
            if answer.source == Source::Embedded {
                let reason =
                    "the Keeper ignored a filter or the order, so its answer may lack cheaper servers";
                assert_eq!(answer.fallback_reason.as_deref(), Some(reason));
                fell_back += 1;
            }
        }
    }
    assert!(fell_back > 10, "{fell_back}");
}

#[test]
fn whatever_the_keeper_does_wrong_the_embedded_catalogue_answers_and_says_why() {
    let rows = |change: fn(&mut Value)| {
        let catalogue = embedded().unwrap();
        let mut server = api_server(0, &catalogue.rows[0], &[]).unwrap();
        change(&mut server);
        Reply::ok(json!([server]).to_string())
    };
    let rename = |server: &mut Value| server["cores"] = server["vcpus"].take();
    let nameless = |server: &mut Value| server["server_id"] = Value::Null;
    let expected = ask_offline(&Query::new(2.0, 4_096.0)).servers;
    for (reply, reason) in [
        (Reply::status(400, r#"{"detail": "bad"}"#), "the Keeper answered with status 400: bad"),
        (Reply::status(404, r#"{"detail": "Not Found"}"#), "the Keeper answered with status 404: Not Found"),
        (
            Reply::status(
                422,
                r#"{"detail": [{"loc": ["query", "vcpus_min"], "msg": "Input should be less"}]}"#,
            ),
            "the Keeper answered with status 422: Input should be less",
        ),
        (
            Reply::status(429, "Rate limit exceeded"),
            "the Keeper answered with status 429: Rate limit exceeded",
        ),
        (Reply::status(503, ""), "the Keeper answered with status 503"),
        (Reply::ok("[{"), "the Keeper's answer is no JSON: EOF while parsing an object at line 1 column 2"),
        (Reply::ok(""), "the Keeper's answer is no JSON: EOF while parsing a value at line 1 column 0"),
        (Reply::ok("{}"), "the Keeper's answer has no usable `list of servers`"),
        (rows(rename), "the Keeper's answer has no usable `vcpus`"),
        (rows(nameless), "the Keeper's answer has no usable `server_id`"),
        (Reply::Half(Box::new(Reply::ok("[]    ".repeat(50)))), "the Keeper cannot be reached: "),
        (Reply::Raw(b"\x16\x03\x01 not HTTP\r\n\r\n".to_vec()), "the Keeper cannot be reached: "),
    ] {
        let server = TestServer::start(move |_| reply.clone());
        let answer = ask(&server.url(), &Query::new(2.0, 4_096.0));
        assert_eq!((answer.source, &answer.servers), (Source::Embedded, &expected), "{reason}");
        let told = answer.fallback_reason.unwrap();
        assert!(
            told.starts_with(reason) && (reason.ends_with(": ") || told == reason),
            "{told}, not {reason}"
        );
        assert_eq!(server.log().len(), 1, "one request");
    }
    // Nobody listens there.
    let closed = keeper(Manners::Good).url();
    let told = ask(&closed, &Query::new(2.0, 4_096.0)).fallback_reason.unwrap();
    assert!(told.starts_with("the Keeper cannot be reached: "), "{told}");
    let plain = keeper(Manners::Good);
    let told =
        ask(&plain.url().replace("http://", "https://"), &Query::new(2.0, 4_096.0)).fallback_reason.unwrap();
    assert!(told.starts_with("the Keeper cannot be reached: "), "{told}");
    let told = ask("not a url", &Query::new(2.0, 4_096.0)).fallback_reason.unwrap();
    assert!(told.starts_with("the Keeper cannot be reached: "), "{told}");
    let told = ask(&closed, &Query::new(1_000.0, 1.0)).fallback_reason.unwrap();
    assert_eq!(told, "the Keeper takes at most 256 vCPUs in a question");
}

#[test]
fn one_deadline_covers_all_requests_of_a_call() {
    let hanging = TestServer::start(|_| Reply::Hang);
    let dripping =
        TestServer::start(|_| Reply::Drip(Box::new(Reply::ok(vec![b' '; 5_000])), Duration::from_millis(20)));
    // Each answer comes in time, two of them together do not, however fast the rest is.
    let slow = TestServer::start(|request| {
        Reply::Late(Box::new(answer(request, Manners::Good)), DEADLINE.mul_f64(0.55))
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
        assert_eq!(found.fallback_reason.as_deref(), Some("the Keeper did not answer within 2 s"));
    }
}

#[test]
fn an_answer_is_kept_on_disk_and_a_corrupt_one_is_ignored() {
    let server = keeper(Manners::Good);
    let dir = tempfile::tempdir().unwrap();
    let query = Query::new(2.0, 4_096.0);
    let ask = || Catalog::new(settings(&server.url(), Some(dir.path()))).servers(&query).unwrap();
    let first = ask();
    assert_eq!((ask(), server.log().len()), (first.clone(), 1));
    assert_eq!(info(&settings("", Some(dir.path()))).unwrap().cached_answers, 1);
    for entry in std::fs::read_dir(dir.path().join("keeper")).unwrap() {
        std::fs::write(entry.unwrap().path(), b"\x00{\"url\": nonsense").unwrap();
    }
    std::fs::write(dir.path().join("catalog.json.gz"), b"nonsense").unwrap();
    assert_eq!((ask(), server.log().len()), (first, 2));
    // Where nothing can be kept, the answer is the same.
    let file = dir.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let answer = Catalog::new(settings(&server.url(), Some(&file))).servers(&query).unwrap();
    assert_eq!(answer.source, Source::Keeper);
}

#[test]
fn compliance_is_asked_of_the_keeper_and_never_ignored() {
    let server = keeper(Manners::Good);
    let query =
        Query::new(2.0, 4_096.0).filter("compliance_framework_id", json!(["hipaa", "soc2t2"])).unwrap();
    assert_eq!(ask(&server.url(), &query).source, Source::Keeper);
    assert_eq!(server.log()[0].parameters("compliance_framework"), ["hipaa", "soc2t2"]);
    let refusing = TestServer::start(|_| Reply::status(503, ""));
    let error = Catalog::new(settings(&refusing.url(), None)).servers(&query).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter `compliance_framework_id` needs the Keeper, which gave no answer: the Keeper answered with status 503"
    );
}

#[test]
fn an_instances_price_is_the_linux_on_demand_price_of_its_region() {
    let server = keeper(Manners::Good);
    let mut online = Catalog::new(settings(&server.url(), None));
    for (vendor, region, instance_type) in [
        ("aws", Some("us-east-1"), "c5.large"),
        ("aws", Some("nowhere"), "c5.large"),
        ("gcp", Some("europe-west4"), "n2-standard-4"),
        ("hcloud", Some("hel1"), "cx23"),
        ("azure", Some("eastus2"), "Standard_D96as_v5"),
    ] {
        let price = online.instance_price(vendor, region, instance_type).unwrap().unwrap();
        let offline =
            resource_tracker::catalog::embedded_price(vendor, region, instance_type).unwrap().unwrap();
        assert_eq!(price.source, Source::Keeper);
        assert_eq!(
            (price.usd_per_hour, price.in_asked_region),
            (offline.usd_per_hour, offline.in_asked_region)
        );
    }
    assert_eq!(online.instance_price("aws", None, "c5.potato").unwrap(), None);
    assert_eq!(online.fallback_reason(), None, "an unknown server is no failure of the Keeper's");

    let current = online.instance_price("aws", Some("us-east-1"), "m5.4xlarge").unwrap().unwrap();
    let recommended = online.servers(&Query::new(2.0, 4_096.0).top(1)).unwrap().servers;
    let cost = RunCost::new(7_200.0, Some(&current), recommended.first());
    let savings = cost.savings.unwrap();
    assert!((cost.current.unwrap().usd - 1.536).abs() < 1e-9, "{cost:?}");
    assert!((savings.usd - (1.536 - 2.0 * recommended[0].ondemand_usd().unwrap())).abs() < 1e-9, "{cost:?}");
    assert!((savings.percent - 100.0 * savings.usd / 1.536).abs() < 1e-9, "{cost:?}");
}

#[test]
fn an_update_is_fetched_once_kept_and_used_when_the_keeper_is_gone() {
    let server = keeper(Manners::Good);
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&server.url(), Some(dir.path()));
    let run = |regions: &[&str]| {
        let mut steps = Vec::new();
        let regions: Vec<String> = regions.iter().map(|region| (*region).to_owned()).collect();
        let report = update(&settings, &regions, &mut |step| steps.push(step.to_string())).unwrap();
        (report, steps)
    };
    let (report, steps) = run(&[]);
    assert_eq!((report.changed, report.servers, report.regions), (true, 3_310, 140));
    assert_eq!(report.database_last_updated.as_deref(), Some("2026-11-14T03:00:00"));
    assert_eq!(
        steps,
        ["asking whether the catalogue has changed", "fetching servers", "fetching regions", "saving"]
    );
    let (report, steps) = run(&[]);
    assert_eq!((report.changed, steps.len()), (false, 1));
    let (report, steps) = run(&["hcloud~fsn1"]);
    assert_eq!((report.changed, report.region_prices.as_slice()), (true, &["hcloud~fsn1".to_owned()][..]));
    assert_eq!(steps[1..], ["fetching prices of hcloud~fsn1", "saving"]);
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
fn an_update_that_fails_says_why_and_leaves_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let good = keeper(Manners::Good);
    update(&settings(&good.url(), Some(dir.path())), &[], &mut |_| {}).unwrap();
    let broken = TestServer::start(|request| match request.route() {
        "/healthcheck" => Reply::ok(r#"{"database_hash": "h2"}"#),
        _ => Reply::ok("[]"),
    });
    let mut last = None;
    let error =
        update(&settings(&broken.url(), Some(dir.path())), &[], &mut |step| last = Some(step.clone()))
            .unwrap_err();
    assert_eq!(last, Some(Step::Servers));
    assert!(error.to_string().starts_with("cannot update the catalogue from `http://127.0.0.1:"), "{error}");
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "the Keeper's answer has no usable `list of servers`"
    );
    assert!(Updated::load(dir.path()).is_some());

    let offline = Settings { offline: true, ..settings(&good.url(), Some(dir.path())) };
    let error = update(&offline, &[], &mut |_| {}).unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the network is switched off");
    let error = update(&settings(&good.url(), None), &[], &mut |_| {}).unwrap_err();
    assert!(matches!(error, CatalogError::NoCacheDir));
    let error = update(&settings(&good.url(), Some(dir.path())), &["atlantis-1".to_owned()], &mut |_| {})
        .unwrap_err();
    assert!(error.is_usage(), "{error}");
}

/// Not a test of its own: asks as the environment says.
#[test]
#[ignore = "a probe that another test starts"]
fn probe_environment() {
    let answer = resource_tracker::catalog::servers(&Query::new(2.0, 4_096.0)).unwrap();
    assert_eq!(answer.source, Source::Embedded);
}

#[test]
fn the_users_proxy_is_used_for_the_keeper() {
    let proxy = TestServer::start(|_| Reply::status(502, "no way through"));
    let cache = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["probe_environment", "--exact", "--ignored", "--test-threads=1"])
        .env("RESOURCE_TRACKER_KEEPER_URL", "http://keeper.test")
        .env("XDG_CACHE_HOME", cache.path())
        .env("HTTP_PROXY", proxy.url())
        .env("http_proxy", proxy.url())
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    let asked = proxy.log();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].path.contains("keeper.test"), "{asked:?}");
}
