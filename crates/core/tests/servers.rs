//! Tests which servers are offered for a run: architecture, CPU class, cloud and region of the run, and user filters.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use resource_tracker::human::Zone;
use resource_tracker::metric::{Metric, Row};
use resource_tracker::store::recording::{Head, Recording, Run};
use resource_tracker::{
    AdviceOptions, Catalog, CatalogSettings, Config, Filters, ReportContext, Server, Stats,
};
use serde_json::{Map, Value, json};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

/// A run of one minute with this mean CPU usage and 512 MiB of memory.
fn run(cpu_cores: f64, server_info: Value, cloud_info: Value) -> Recording {
    let mut head = Head::new(&Config::default(), 1, 1_741_785_600.0, Run::default());
    head.metadata.set_stop_time(1_741_785_660.0, 0.0);
    head.server_info = Some(object(server_info));
    head.cloud_info = (!cloud_info.is_null()).then(|| object(cloud_info));
    let mut recording = Recording::new(head);
    for second in 1..=60 {
        let mut row = Row::default();
        row.set(Metric::Timestamp, Some(1_741_785_600.0 + f64::from(second)));
        row.set(Metric::ProcessCpu, Some(cpu_cores));
        row.set(Metric::ProcessUtime, Some(cpu_cores));
        row.set(Metric::ProcessStime, Some(0.0));
        row.set(Metric::ProcessMemory, Some(512.0 * 1024.0));
        row.set(Metric::MemoryPeak, Some(512.0 * 1024.0));
        recording.push(&row);
    }
    recording
}

fn asked(recording: &Recording, filters: &Filters) -> ReportContext {
    let head = &recording.head;
    let options = AdviceOptions { filters: filters.clone(), ..AdviceOptions::default() };
    let earlier = Vec::<Stats>::new().into();
    let mut context = ReportContext::of(head, recording.summary(), earlier, &options, 2e9, Zone::utc());
    let offline = CatalogSettings { cache_dir: None, ..CatalogSettings::offline() };
    context.ask(head, &mut Catalog::new(offline));
    context
}

fn x86() -> Value {
    json!({ "architecture": "x86_64", "vcpus": 4 })
}

fn class(server: &Server) -> (&str, &str) {
    (server.text("cpu_architecture").unwrap(), server.text("cpu_allocation").unwrap())
}

/// All servers that a page shows.
fn all(context: &ReportContext) -> Vec<Server> {
    let resource_tracker::analysis::cost::Servers::Answered(offers) = &context.servers else { panic!() };
    let here = offers.here.iter().flat_map(|answer| &answer.servers);
    here.chain(&offers.anywhere.servers).cloned().collect()
}

#[test]
fn busy_job_gets_its_own_architecture_and_no_burstable_server() {
    for architecture in ["x86_64", "arm64"] {
        for cpu in [0.21, 0.9, 2.4, 7.0, 31.0] {
            let info = json!({ "architecture": architecture, "vcpus": 64 });
            let cloud = json!({ "vendor": "aws", "region": "eu-west-1", "instance_type": "m5.large" });
            for cloud in [Value::Null, cloud] {
                let context = asked(&run(cpu, info.clone(), cloud), &Filters::default());
                let servers = all(&context);
                assert!(servers.len() >= 5, "{cpu} CPUs on {architecture}");
                for server in &servers {
                    let (shown, allocation) = class(server);
                    assert_eq!(shown, architecture, "{server:?}");
                    assert_ne!(allocation, "Burstable", "{server:?}");
                }
            }
        }
    }
}

#[test]
fn burstable_server_is_offered_only_to_a_job_that_uses_a_fifth_of_its_cpus_and_is_named() {
    let offered = |cpu| {
        let cloud = json!({ "vendor": "aws", "region": "eu-west-1", "instance_type": "m5.large" });
        let context = asked(&run(cpu, x86(), cloud), &Filters::default());
        let (answer, server) = context.servers.first().unwrap();
        (class(server).1.to_owned(), answer.about(server))
    };
    assert_ne!(offered(0.21).0, "Burstable");
    let (allocation, about) = offered(0.2);
    assert_eq!(allocation, "Burstable");
    assert!(about.starts_with("burstable x86_64, price of 20"), "{about}");
    assert!(about.ends_with(", built-in catalogue"), "{about}");
}

#[test]
fn cloud_region_of_the_run_comes_first_and_the_cheapest_server_anywhere_is_beside_it() {
    for (vendor, region) in
        [("aws", "eu-west-1"), ("gcp", "europe-west4"), ("azure", "westeurope"), ("hcloud", "fsn1")]
    {
        let recording =
            run(0.9, x86(), json!({ "vendor": vendor, "region": region, "instance_type": "unknown" }));
        let context = asked(&recording, &Filters::default());
        let here = context.servers.here().unwrap().1;
        let place =
            |server: &Server| (server.vendor_id().to_owned(), server.price_region().unwrap().to_owned());
        assert_eq!(place(here), (vendor.to_owned(), region.to_owned()));
        assert_eq!(context.server(), Some(here));
        let anywhere = context.servers.anywhere().unwrap().1;
        assert!(anywhere.price_usd() <= here.price_usd(), "{anywhere:?}");
        let is_cheaper = anywhere.price_usd() < here.price_usd();
        assert_eq!(context.servers.cheaper_elsewhere().is_some(), is_cheaper);
        let json = context.servers.json();
        assert_eq!(
            (&json["here"]["price_region"], &json["here"]["price_source"]),
            (&json!(region), &json!("embedded"))
        );
        assert!(json["anywhere"]["price_date"].as_str().unwrap().starts_with("20"), "{json}");
    }
    let unknown =
        asked(&run(0.9, x86(), json!({ "vendor": "unknown", "region": "unknown" })), &Filters::default());
    assert!(unknown.servers.here().is_none() && unknown.servers.json()["here"].is_null());
    assert_eq!(unknown.server(), unknown.servers.anywhere().map(|(_, server)| server));
}

#[test]
fn region_or_vendor_without_servers_leaves_the_cheapest_server_anywhere_and_a_note() {
    for (vendor, region) in [("aws", "us-gov-west-1"), ("aws", "moon-1"), ("ovh", "GRA"), ("acme", "x")] {
        let recording = run(0.9, x86(), json!({ "vendor": vendor, "region": region, "instance_type": "t" }));
        let context = asked(&recording, &Filters::default());
        assert!(context.servers.here().is_none() && context.server().is_some(), "{vendor} {region}");
        assert_eq!(context.servers.notes(), [format!("no server of {vendor} in {region} is known to fit")]);
    }
    let region_unknown = run(0.9, x86(), json!({ "vendor": "gcp", "region": "unknown" }));
    assert_eq!(asked(&region_unknown, &Filters::default()).server().unwrap().vendor_id(), "gcp");
}

#[test]
fn filter_replaces_the_matching_default_and_no_other() {
    let recording =
        run(0.9, x86(), json!({ "vendor": "aws", "region": "eu-west-1", "instance_type": "m5.large" }));
    let filtered = |name: &str, value: Value| {
        let mut filters = Filters::default();
        filters.set(name, &value).unwrap();
        asked(&recording, &filters)
    };
    let arm = filtered("architecture", json!("arm64"));
    assert_eq!(class(arm.server().unwrap()).0, "arm64");
    assert_ne!(class(arm.server().unwrap()).1, "Burstable");
    assert!(arm.servers.here().is_some());
    let burstable = filtered("cpu_allocation", json!("Burstable"));
    assert_eq!(class(burstable.server().unwrap()), ("x86_64", "Burstable"));
    for (name, value) in
        [("vendor_id", "gcp"), ("region", "eu-central-1"), ("country", "DE"), ("continent", "Asia")]
    {
        let context = filtered(name, json!(value));
        assert!(context.servers.here().is_none(), "{name}");
        assert_eq!(class(context.server().unwrap()).0, "x86_64");
    }
    assert_eq!(
        filtered("region", json!("eu-central-1")).server().unwrap().price_region(),
        Some("eu-central-1")
    );
}

#[test]
fn unknown_architecture_is_said_and_other_architectures_are_not_left_out() {
    for info in [json!({ "vcpus": 4 }), json!({ "architecture": null }), json!({ "architecture": "" })] {
        let context = asked(&run(0.9, info, Value::Null), &Filters::default());
        assert!(context.server().is_some());
        let [note] = context.servers.notes() else { panic!("{:?}", context.servers.notes()) };
        assert!(note.contains("architecture of this run is unknown"), "{note}");
        let page = context.render(&run(0.9, json!({}), Value::Null));
        assert!(page.contains("architecture of this run is unknown"));
    }
    let original = Recording::read(&include_bytes!("../../../fixtures/original/snapshot.json")[..]).unwrap();
    assert!(
        asked(&original, &Filters::default()).servers.notes().iter().any(|note| note.contains("unknown"))
    );
}

#[test]
fn architecture_without_servers_has_no_server_of_another_one() {
    let context = asked(&run(0.9, json!({ "architecture": "riscv64" }), Value::Null), &Filters::default());
    assert_eq!(context.server(), None);
    assert_eq!(context.servers.problem(), Some("the catalogue has no servers with riscv64 CPUs"));
}

#[test]
fn savings_compare_prices_of_one_region() {
    let cloud = |region: &str| json!({ "vendor": "aws", "region": region, "instance_type": "m5.4xlarge" });
    let here = asked(&run(0.9, x86(), cloud("eu-west-1")), &Filters::default());
    let savings = here.cost(here.server()).savings.unwrap();
    assert!(savings.same_region && savings.percent > 0.0, "{savings:?}");
    let elsewhere = here.cost(here.servers.cheaper_elsewhere().map(|(_, server)| server)).savings.unwrap();
    assert!(!elsewhere.same_region && elsewhere.percent >= savings.percent, "{elsewhere:?}");
    let unknown = run(0.9, x86(), cloud("us-gov-west-1"));
    let page = asked(&unknown, &Filters::default()).render(&unknown);
    assert!(page.contains("% saved, in another region)"));
}

#[test]
fn page_shows_region_class_and_price_date_of_every_server() {
    let recording =
        run(0.9, x86(), json!({ "vendor": "aws", "region": "us-east-1", "instance_type": "m5.large" }));
    let page = asked(&recording, &Filters::default()).render(&recording);
    for text in [
        "Servers of the same cloud and region",
        "Servers anywhere",
        "<td class=\"word\">us-east-1</td>",
        "<td>2026-07</td>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.matches("<td class=\"word\">dedicated x86_64</td>").count() >= 5);
}
