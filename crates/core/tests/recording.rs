//! Tests writing and reading of recording files, including files of the original package and damaged or hostile files.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use resource_tracker::AnyColumn;
use resource_tracker::metric::{Metric, Row, Table};
use resource_tracker::store::frame::{Column, CombinedOptions, Frame};
use resource_tracker::store::recording::{Head, LoadError, Recording, Run, Status, gzip, write_snapshot};
use serde_json::{Map, Value, json};

const ORIGINAL: &[u8] = include_bytes!("../../../fixtures/original/snapshot.json");

static GZIPPED: LazyLock<Vec<u8>> = LazyLock::new(|| gzipped(ORIGINAL));

fn head(process: bool, system: bool) -> Head {
    let original = Recording::read(ORIGINAL).expect("the snapshot of the original package").head;
    let mut head = Head { server_info: None, cloud_info: None, ..original };
    (head.metadata.track_processes, head.metadata.track_system) = (process, system);
    head
}

fn json_of(recording: &Recording) -> Vec<u8> {
    let mut out = Vec::new();
    recording.write(&mut out).expect("writing to a vector");
    out
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut out = gzip(Vec::new());
    out.write_all(text).expect("writing to a vector");
    out.finish().expect("writing to a vector")
}

/// Loads a file that must fail to load. Returns the error message with all its causes.
fn refusal(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), bytes).expect("writing a temporary file");
    let error = Recording::load(file.path()).expect_err("this file must not load");
    let name = file.path().display().to_string();
    assert!(error.to_string().contains(&name), "the message must name the file: {error}");
    let mut text = error.to_string().replace(&name, "FILE");
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn snapshot_of_the_original_package_loads_with_equal_values() {
    for bytes in [ORIGINAL.to_vec(), gzipped(ORIGINAL)] {
        let recording = Recording::read(&bytes[..]).unwrap();
        let values: Value = serde_json::from_slice(ORIGINAL).unwrap();
        let mut compared = 0;
        for (key, frame) in [("process_metrics", &recording.process), ("system_metrics", &recording.system)] {
            let frame = frame.as_ref().unwrap();
            for (number, row) in values[key].as_array().unwrap().iter().enumerate() {
                for (column, value) in row.as_object().unwrap() {
                    assert_eq!(frame.column(column).unwrap().get(number), value.as_f64(), "{key} {column}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 3 * (12 + 21));
        assert_eq!(recording.head.metadata.stop_time, Some(1_741_732_806.123_456_7));
        assert_eq!(recording.head.server_info.unwrap()["allocation"], "shared");
        assert_eq!((recording.extra, recording.head.run), (None, None));
    }
}

#[test]
fn default_statistics_of_a_snapshot_of_the_original_package() {
    let stats = Recording::read(ORIGINAL).unwrap().stats().unwrap();
    assert_eq!(stats.get("process_memory", "max"), Some(591_621.0));
    assert_eq!(stats.get("system_net_recv_bytes", "sum"), Some(8066.0 + 1369.0 + 10602.0));
    // The rows have lengths of 1.308, 1.001 and 0.999 s. The first row begins at the start time.
    assert_eq!(stats.get("process_cpu_usage", "mean"), Some(0.9));
    let duration = stats.get("timestamp", "duration").unwrap();
    assert!((duration - 3.308).abs() < 1e-6, "{duration}");
}

#[test]
fn csv_and_snapshot_of_the_original_package_have_the_same_rows() {
    let recording = Recording::read(ORIGINAL).unwrap();
    let text = include_bytes!("../../../fixtures/original/process.csv");
    let columns = AnyColumn::read_csv(text).unwrap().into_iter().map(|column| column.numbers);
    assert_eq!(Some(Frame::from_columns(columns.collect()).unwrap()), recording.process);
}

#[test]
fn replayed_rows_and_frames_give_the_same_file() {
    let mut recording = Recording::new(Head { run: Some(Run::default()), ..head(true, false) });
    // The first GPU appears in the second row. The second GPU is in the fourth row only.
    let row = |number: u32| {
        let gpus = usize::from(number > 0) + usize::from(number == 3);
        let each = [Some(f64::from(number)); Metric::PER_GPU.len()];
        Row::of(|_| Some(f64::from(number))).with_gpus(vec![each; gpus])
    };
    let rows: Vec<Row> = (0..5).map(row).collect();
    for row in &rows {
        recording.push(row);
    }
    let mut text = Vec::new();
    let mut replays = 0;
    write_snapshot(&mut text, &recording.head, &mut |visit| {
        replays += 1;
        rows.iter().try_for_each(&mut *visit)
    })
    .unwrap();
    assert_eq!(String::from_utf8(text.clone()).unwrap(), String::from_utf8(json_of(&recording)).unwrap());
    assert!(recording.system.is_none() && recording.rows() == 5 && replays == 2);
    let again = Recording::read(&text[..]).unwrap();
    let extra = again.extra.as_ref().unwrap();
    let clock = |gpu| extra.metric_of_gpu(Metric::GpuClock, gpu).unwrap().iter().collect::<Vec<_>>();
    assert_eq!(clock(0), [None, Some(1.0), Some(2.0), Some(3.0), Some(4.0)]);
    assert_eq!(clock(1), [None, None, None, Some(3.0), None]);
    assert_eq!(again, recording);
}

#[test]
fn keys_and_columns_of_later_versions_are_kept() {
    let mut snapshot: Value = serde_json::from_slice(ORIGINAL).unwrap();
    snapshot["metadata"]["cluster"] = json!("a");
    snapshot["weather"] = json!({"rain": [1, 2.5, null, "\"}]"]});
    snapshot["run"] = json!({"job": "train", "status": "paused", "exit_code": 0, "shape": [3]});
    snapshot["process_metrics"][1]["power_\"watts\""] = json!(12.5);
    let text = snapshot.to_string();
    let recording = Recording::read(text.as_bytes()).unwrap();
    let process = recording.process.as_ref().unwrap();
    assert_eq!(
        process.column("power_\"watts\"").unwrap().iter().collect::<Vec<_>>(),
        [None, Some(12.5), None]
    );
    let run = recording.head.run.as_ref().unwrap();
    assert_eq!(run.status, Some(Status::Other("paused".into())));
    let again: Value = serde_json::from_slice(&json_of(&recording)).unwrap();
    assert_eq!((&again["weather"], &again["metadata"]["cluster"]), (&snapshot["weather"], &json!("a")));
    assert_eq!(again["run"], snapshot["run"]);
}

#[test]
fn columns_may_have_any_order_and_may_be_missing() {
    let text = String::from_utf8(ORIGINAL.to_vec()).unwrap();
    let (before, _) = text.split_once("\"process_metrics\"").unwrap();
    let rows = r#"[{"memory" : 5, "timestamp":1e3 },{"timestamp":2.0,"memory":null} , {}, {"memory":"","timestamp":4}]"#;
    let text = format!("{before} \"system_metrics\":[], \"process_metrics\"\n:\t{rows}}}\r\n");
    let recording = Recording::read(text.as_bytes()).unwrap();
    let process = recording.process.unwrap();
    assert_eq!(process.names().collect::<Vec<_>>(), ["memory", "timestamp"]);
    assert_eq!(process.column("memory").unwrap().iter().collect::<Vec<_>>(), [Some(5.0), None, None, None]);
    let times: Vec<_> = process.column("timestamp").unwrap().iter().collect();
    assert_eq!(times, [Some(1000.0), Some(2.0), None, Some(4.0)]);
    assert_eq!(
        recording.system.unwrap().columns().len(),
        21,
        "a recorded table without rows has its columns"
    );
}

#[test]
fn error_names_the_missing_file() {
    let error = Recording::load(Path::new("/no/such/file")).unwrap_err();
    assert!(matches!(error, LoadError::Open { .. }));
    assert_eq!(error.to_string(), "cannot open `/no/such/file`");
}

#[test]
fn truncated_file_is_an_error() {
    let whole = gzipped(ORIGINAL);
    let cut_short = "cannot load `FILE`: the file ends in the middle of the recording";
    for length in (2..whole.len()).step_by(7).chain([whole.len() - 1]) {
        assert_eq!(refusal(&whole[..length]), cut_short, "gzip cut at {length}");
    }
    let text_end = ORIGINAL.trim_ascii_end().len();
    for length in (1..text_end).step_by(5).chain([text_end - 1]) {
        assert_eq!(refusal(&ORIGINAL[..length]), cut_short, "JSON cut at {length}");
    }
}

#[test]
fn other_files_are_errors() {
    let mut wrong_checksum = gzipped(ORIGINAL);
    let checksum = wrong_checksum.len() - 8;
    wrong_checksum[checksum] ^= 1;
    let text = refusal(&wrong_checksum);
    assert!(text.starts_with("cannot load `FILE`: the gzip data is damaged: "), "{text}");

    let cases: [(&[u8], &str); 6] = [
        (b"", "the file is empty"),
        (b"\x89PNG\r\n", "expected the `{` of a recording at byte 0, found byte 0x89"),
        (b"[1,2]", "expected the `{` of a recording at byte 0, found `[1`"),
        (b"{\"a\":1} x", "expected nothing after the recording at byte 8, found `x`"),
        (b"{}", "key `metadata` is missing"),
        (b"{1:2}", "expected a key in quotes at byte 1, found `1:2`"),
    ];
    for (bytes, reason) in cases {
        assert_eq!(refusal(bytes), format!("cannot load `FILE`: {reason}"));
    }
}

#[test]
fn missing_cells_may_be_null_empty_text_or_nan() {
    let text = String::from_utf8(ORIGINAL.to_vec()).unwrap();
    for cell in ["null", "\"\"", "NaN"] {
        let recording = Recording::read(text.replacen("1.1089", cell, 1).as_bytes()).unwrap();
        let usage = recording.process.as_ref().unwrap().column("cpu_usage").unwrap();
        assert!(usage.get(0).is_some() && usage.get(1).is_none(), "{cell}");
    }
}

#[test]
fn errors_name_the_wrong_value_and_its_position() {
    let text = String::from_utf8(ORIGINAL.to_vec()).unwrap();
    let long_row = format!("\"cpu_usage\": 1.1089, \"{}\": 1", "x".repeat(200_000));
    let in_row_2 = "row 2 of `process_metrics`";
    let unsupported = "unsupported format version";
    let supported = "only version 1 is supported";
    let mut cases = vec![
        ("\"version\": 1,", "\"version\": 99,", format!("{unsupported} 99: {supported}")),
        ("\"version\": 1,", "\"version\": \"1\",", format!("{unsupported} \"1\": {supported}")),
        ("\"version\": 1,", "", "key `metadata.version` is missing".into()),
        ("\"system_metrics\"", "\"system\"", "key `system_metrics` is missing".into()),
        ("\"cloud_info\"", "\"cloud\"", "key `cloud_info` is missing".into()),
        (
            "\"interval\": 1",
            "\"interval\": 0",
            "key `metadata.interval` is 0, not a number from 1e-6 to 1000000000".into(),
        ),
        (
            "1.1089,",
            "1.1089",
            format!("{in_row_2}: expected `,` or `}}` after a cell, found `\"memory\": 591621.0`"),
        ),
        ("s\": [", "s\": [7, ", "row 1 of `process_metrics`: expected the `{` of a row, found `7`".into()),
        (
            "s\": [{",
            "s\": [[{",
            "row 1 of `process_metrics`: expected the `{` of a row, found `[{\"timestamp\": 174173280`"
                .into(),
        ),
        (
            "\"cpu_usage\": 1.1089",
            "\"\\u001b[2J\u{202e}\": 1",
            format!(
                "{in_row_2}: expected a column's name of printable characters, found `\u{fffd}[2J\u{fffd}`"
            ),
        ),
        ("\"cpu_usage\": 1.1089", &long_row, format!("{in_row_2} is longer than 131072 bytes")),
    ];
    for cell in ["nan", "-Infinity", "1e999", "\"high\"", "true", "[1"] {
        cases.push(("1.1089", cell, format!("{in_row_2}: column `cpu_usage` holds `{cell}`, not a number")));
    }
    for (from, to, reason) in cases {
        let changed = text.replace("\"gpu_names\": [", "\"gpu_names\":[").replacen(from, to, 1);
        assert_eq!(refusal(changed.as_bytes()), format!("cannot load `FILE`: {reason}"));
    }
    let wrong_type = [
        (
            "\"process_metrics\": [",
            "\"process_metrics\": {\"a\": [",
            "expected `[` before the rows of a table",
        ),
        ("\"pid\": 777691, ", "", "invalid value of key `metadata`: missing field `pid`"),
        ("\"pid\": 777691", "\"pid\": \"me\"", "invalid value of key `metadata`: invalid type"),
        ("\"server_info\": {", "\"server_info\": 3, \"x\": {", "invalid value of key `server_info`"),
        ("\"server_info\": {", "\"server_info\": {,", "invalid value of key `server_info`"),
    ];
    for (from, to, start) in wrong_type {
        let found = refusal(text.replacen(from, to, 1).as_bytes());
        assert!(found.starts_with(&format!("cannot load `FILE`: {start}")), "{found}");
    }
}

/// A small gzip file that decompresses to many megabytes of one byte. `benches/recording.rs` tests 10 GB.
fn bomb(start: &[u8], unit: u8, megabytes: usize) -> Vec<u8> {
    let block = vec![unit; 1_000_000];
    let mut out = gzip(Vec::new());
    out.write_all(start).expect("writing to a vector");
    for _ in 0..megabytes {
        out.write_all(&block).expect("writing to a vector");
    }
    out.finish().expect("writing to a vector")
}

#[test]
fn decompression_bomb_is_an_error() {
    let blank = refusal(&bomb(b"{", b' ', 3));
    assert!(blank.starts_with("cannot load `FILE`: too much white space before byte 1"), "{blank}");
    assert_eq!(
        refusal(&bomb(b"{\"metadata\":{\"a\":\"", b'x', 9)),
        "cannot load `FILE`: key `metadata` and the keys before it have more than 8388608 bytes"
    );
    assert_eq!(
        refusal(&bomb(b"{\"process_metrics\":[{\"a\":1", b'0', 1)),
        "cannot load `FILE`: row 1 of `process_metrics` is longer than 131072 bytes"
    );
    let columns: Vec<String> = (0..513).map(|number| format!("\"c{number}\":1")).collect();
    let many = format!("{{\"extra_metrics\":[{{{}}}]}}", columns.join(","));
    assert_eq!(refusal(many.as_bytes()), "cannot load `FILE`: `extra_metrics` has more than 512 columns");
}

#[test]
fn failing_reader_is_an_error() {
    struct Failing(usize);
    impl io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let piece =
                ORIGINAL.get(self.0..self.0 + 100).ok_or_else(|| io::Error::other("the disk is gone"))?;
            buffer[..100].copy_from_slice(piece);
            self.0 += 100;
            Ok(100)
        }
    }
    let error = Recording::read(io::BufReader::new(Failing(0))).unwrap_err();
    assert_eq!(error.to_string(), "reading failed");
    assert_eq!(error.source().unwrap().to_string(), "the disk is gone");
}

/// Numbers in the range of every column. The tests of `decimal` cover every double, `plausible.rs` the limits.
fn any_cell() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        (0_i32..1_000_000).prop_map(|value| Some(f64::from(value))),
        (0_u32..2_000_000).prop_map(|value| Some(f64::from(value) / 1e4)),
        (1e-9_f64..1e6).prop_map(Some),
    ]
}

fn any_rows(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Row>> {
    let cells = proptest::collection::vec(any_cell(), Metric::ALL.len());
    let row = (cells, 0_usize..3).prop_map(|(cells, gpus)| {
        let (once, per_gpu) = cells.split_at(Metric::ONCE.len());
        let each = per_gpu.try_into().expect("one cell for each metric");
        Row::of(|metric| once[metric as usize]).with_gpus(vec![each; gpus])
    });
    proptest::collection::vec(row, count)
}

prop_compose! {
    fn any_table(table: Table)(rows in any_rows(0..6), later in proptest::option::of("[^\\pC\u{ad}\u{2028}\u{2029}]{1,6}")) -> Frame {
        let mut frame = Frame::for_table(table);
        for row in &rows {
            frame.push(row);
        }
        // Adds a column of a later version. A table without rows cannot store the name of the column.
        if let Some(name) = later.filter(|_| !rows.is_empty()) {
            let cells = rows.iter().map(|row| row.cells()[0].unwrap_or(f64::NAN)).collect();
            frame.set(Column::new(format!("later {name}"), cells)).expect("one cell for each row");
        }
        frame
    }
}

fn any_info() -> impl Strategy<Value = Option<Map<String, Value>>> {
    let value = prop_oneof![
        any::<i64>().prop_map(Value::from),
        (-1e21..1e21).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        Just(json!([{"a": null}, true])),
    ];
    let pairs = proptest::collection::vec(("[^\\pC.]{1,6}", value), 0..4);
    proptest::option::of(pairs.prop_map(|pairs| pairs.into_iter().collect()))
}

prop_compose! {
    fn any_run()(
        job in proptest::option::of("\\PC{0,8}"),
        command in proptest::option::of(proptest::collection::vec("\\PC{0,8}", 0..3)),
        tags in proptest::collection::btree_map("[a-z]{1,3}", "\\PC{0,4}", 0..3),
        exit_code in proptest::option::of(any::<i32>()),
        status in proptest::option::of("(running|finished|failed|killed|detached|tracker_died|odd)"),
        coverage in proptest::option::of(0.0..1.0),
    ) -> Run {
        let tags: BTreeMap<String, String> = tags;
        Run { job, command, tags, exit_code, status: status.map(Status::from), coverage, ..Run::default() }
    }
}

prop_compose! {
    fn any_recording()(
        process in proptest::option::of(any_table(Table::Process)),
        system in proptest::option::of(any_table(Table::System)),
        extra in proptest::option::of(any_table(Table::Extra)),
        server_info in any_info(),
        cloud_info in any_info(),
        run in proptest::option::of(any_run()),
        start in 0.0..4e9,
        length in 0.0..1e6,
    ) -> Recording {
        let mut head = Head { server_info, cloud_info, run, ..head(process.is_some(), system.is_some()) };
        head.metadata.start_time = Some(start);
        head.metadata.set_stop_time(start + length, 0.0);
        Recording { head, process, system, extra }
    }
}

/// Any byte. Bytes with a meaning in JSON are more frequent.
fn any_hostile_byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), proptest::sample::select(&b"\"{}[],:0-.enull\\ "[..])]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn recording_is_read_back_unchanged(recording in any_recording()) {
        let text = json_of(&recording);
        prop_assert_eq!(&Recording::read(&text[..]).unwrap(), &recording);
        prop_assert_eq!(&Recording::read(&gzipped(&text)[..]).unwrap(), &recording);
        // The text is valid JSON, so that other programs can read it.
        let value: Value = serde_json::from_slice(&text).unwrap();
        let rows = value["process_metrics"].as_array().unwrap().len();
        prop_assert_eq!(rows, recording.process.as_ref().map_or(0, Frame::len));
    }

    #[test]
    fn loaded_recording_has_the_statistics_of_the_live_tracker(rows in any_rows(1..6)) {
        let mut recording = Recording::new(head(true, true));
        let mut live = recording.summary();
        for row in &rows {
            recording.push(row);
            live.add(row);
        }
        let loaded = Recording::read(&json_of(&recording)[..]).unwrap();
        prop_assert_eq!(loaded.stats(), live.stats());
        prop_assert_eq!(loaded.combined(&CombinedOptions::default()).unwrap().len(), rows.len());
    }

    #[test]
    fn arbitrary_bytes_are_an_error_without_panic(
        bytes in proptest::collection::vec(any_hostile_byte(), 0..300),
        gzip in any::<bool>(),
    ) {
        let bytes = if gzip { gzipped(&bytes) } else { bytes };
        prop_assert!(Recording::read(&bytes[..]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The text has some changed bytes, a copied part and a truncated end.
    #[test]
    fn mutated_snapshots_never_panic(
        changes in proptest::collection::vec((any::<usize>(), any_hostile_byte()), 0..8),
        piece in proptest::option::of((any::<usize>(), 0_usize..200, any::<usize>())),
        cut in proptest::option::of(any::<usize>()),
    ) {
        let mut text = ORIGINAL.to_vec();
        for (at, byte) in changes {
            let at = at % text.len();
            text[at] = byte;
        }
        if let Some((from, length, to)) = piece {
            let from = from % text.len();
            let piece: Vec<u8> = text[from..(from + length).min(text.len())].to_vec();
            let to = to % text.len();
            text.splice(to..to, piece);
        }
        if let Some(cut) = cut {
            text.truncate(cut % text.len());
        }
        if let Ok(recording) = Recording::read(&text[..]) {
            let _ = (recording.stats(), recording.combined(&CombinedOptions::default()));
            let again = Recording::read(&json_of(&recording)[..]).unwrap();
            prop_assert_eq!(&again.process, &recording.process);
        }
    }

    /// Some bytes are changed after compression.
    #[test]
    fn mutated_gzip_never_panics(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
        let mut bytes = GZIPPED.clone();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Ok(recording) = Recording::read(&bytes[..]) {
            prop_assert_eq!(recording.rows(), 3, "only the gzip header has no checksum");
        }
    }
}
