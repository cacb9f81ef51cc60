//! Tests the ranges of numbers in recordings: numbers outside are errors that name the field, and a report of numbers at
//! the limits of all ranges is short and finite.

use std::error::Error as _;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use resource_tracker::human::Zone;
use resource_tracker::metric::{Metric, Row, Table};
use resource_tracker::store::recording::Recording;
use resource_tracker::store::stats::Stats;
use resource_tracker::{AdviceOptions, Catalog, CatalogSettings, ReportContext};
use serde_json::{Value, json};

const ORIGINAL: &[u8] = include_bytes!("../../../fixtures/original/snapshot.json");

fn snapshot() -> Value {
    serde_json::from_slice(ORIGINAL).expect("the snapshot of the original package")
}

fn refusal(snapshot: &Value) -> String {
    let text = snapshot.to_string();
    let error = Recording::read(text.as_bytes()).expect_err("this recording must not load");
    assert!(error.source().is_none(), "the message is complete");
    error.to_string()
}

#[test]
fn number_outside_of_its_range_is_an_error_that_names_the_field() {
    let cases = [
        ("/metadata/start_time", "key `metadata.start_time` is ", vec![1e16, -1.0, 1e308]),
        ("/metadata/stop_time", "key `metadata.stop_time` is ", vec![1e12]),
        ("/metadata/duration", "key `metadata.duration` is ", vec![1e13, -1e13]),
        ("/metadata/interval", "key `metadata.interval` is ", vec![0.0, -1.0, 1e-300, 1e308]),
        ("/metadata/later", "key `metadata.later` is ", vec![1e308]),
        ("/server_info/vcpus", "key `server_info.vcpus` is ", vec![-4.0, 1e-300, 1e308]),
        ("/server_info/memory_mb", "key `server_info.memory_mb` is ", vec![1e300]),
        ("/server_info/later/2/deep", "key `server_info.later.deep` is ", vec![1e22]),
        ("/run/coverage", "key `run.coverage` is ", vec![-0.5, 1e300]),
        ("/run/later/number", "key `run.later.number` is ", vec![1e300]),
        ("/weather", "key `weather` is ", vec![-1e300]),
    ];
    for (pointer, start, values) in cases {
        for value in values {
            let mut snapshot = snapshot();
            snapshot["run"] = json!({"coverage": 1, "later": {"number": 1}});
            snapshot["server_info"]["later"] = json!([1, 2, {"deep": 1}]);
            snapshot["metadata"]["later"] = json!(1);
            snapshot["weather"] = json!(1);
            *snapshot.pointer_mut(pointer).expect("a key of the snapshot") = json!(value);
            let found = refusal(&snapshot);
            assert!(found.starts_with(start) && found.contains(", not a number from "), "{found}");
        }
    }
}

#[test]
fn every_column_has_a_range() {
    let mut tested = 0;
    let columns = Metric::ALL.iter().map(|metric| match metric.table() {
        Table::Gpu => ("extra_metrics", metric.column_of_gpu(3)),
        Table::Every => ("process_metrics", metric.column().to_owned()),
        table => (table.key(), metric.column().to_owned()),
    });
    for (table, column) in columns.chain([("system_metrics", "later".to_owned())]) {
        for value in [1e300, -1e300, 1e22] {
            let mut snapshot = snapshot();
            snapshot["extra_metrics"] = json!([{"timestamp": 1}, {"timestamp": 2}, {"timestamp": 3}]);
            snapshot[table][1][&column] = json!(value);
            let found = refusal(&snapshot);
            assert!(
                found.starts_with(&format!("row 2 of `{table}`: column `{column}` is {value:e}, ")),
                "{found}"
            );
            tested += 1;
        }
    }
    assert!(tested > 100, "only {tested}");
}

/// A number at a limit of its range, near it, or ordinary.
fn at_a_limit(metric: Metric) -> impl Strategy<Value = Option<f64>> {
    let range = metric.unit().range();
    let (low, high) = (*range.start(), *range.end());
    prop_oneof![
        Just(None),
        Just(Some(low)),
        Just(Some(high)),
        Just(Some(1e-9)),
        (low..high).prop_map(Some),
        Just(Some(1.0))
    ]
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), Just(json!(0)), Just(json!(1e-9)), Just(json!(1)), Just(json!(1e6))]
}

prop_compose! {
    fn extreme()(
        rows in proptest::collection::vec(Metric::ONCE.iter().map(|metric| at_a_limit(*metric)).collect::<Vec<_>>(), 1..4),
        start in at_a_limit(Metric::Timestamp),
        interval in proptest::sample::select(&[1e-6, 1.0, 1e9][..]),
        numbers in proptest::collection::vec(any_number(), 6),
    ) -> Recording {
        let mut snapshot = snapshot();
        let metadata = &mut snapshot["metadata"];
        (metadata["start_time"], metadata["interval"]) = (json!(start), json!(interval));
        let keys = ["vcpus", "cpu_limit", "gpu_count", "memory_mb", "memory_limit_mb", "gpu_memory_mb"];
        for (key, number) in keys.into_iter().zip(numbers) {
            snapshot["server_info"][key] = number;
        }
        let head = Recording::read(snapshot.to_string().as_bytes()).expect("plausible numbers").head;
        let mut recording = Recording::new(head);
        for cells in rows {
            recording.push(&Row::of(|metric| cells[metric as usize]));
        }
        let mut text = Vec::new();
        recording.write(&mut text).expect("writing to a vector");
        Recording::read(&text[..]).expect("all numbers are plausible")
    }
}

/// The text of a page, without tags and scripts.
fn visible(page: &str) -> String {
    let mut text = String::new();
    for part in page.split('<').filter(|part| !part.starts_with("script") && !part.starts_with("style")) {
        text.push_str(part.split_once('>').map_or("", |(_, text)| text));
        text.push('\n');
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn report_of_extreme_numbers_is_finite_and_short(recording in extreme()) {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut context = ReportContext::of(
                &recording.head,
                recording.summary(),
                Vec::<Stats>::new().into(),
                &AdviceOptions::default(),
                2e9,
                Zone::utc(),
            );
            context.ask(&recording.head, &mut Catalog::new(CatalogSettings { cache_dir: None, ..CatalogSettings::offline() }));
            let _ = sender.send(context.render(&recording));
        });
        let page = receiver.recv_timeout(Duration::from_mins(1)).expect("the report ends");
        let text = visible(&page);
        prop_assert!(text.len() > 500, "{}", text);
        for word in text.split(|letter: char| !letter.is_alphanumeric()) {
            prop_assert!(!matches!(word, "inf" | "NaN"), "{}", text);
            prop_assert!(word.len() < 40 || !word.bytes().all(|byte| byte.is_ascii_digit()), "{}", word);
        }
    }
}
