//! `docs/schema/run.schema.json` has the columns of the metric table and the keys of the object of a run.
//!
//! `UPDATE_GENERATED=1` writes the parts that follow from others: rows and statistics from the metric table, and the
//! output of `run` and `show` from the object of a run.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use resource_tracker::metric::{Metric, Table};
use serde_json::{Map, Value, json};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/run.schema.json");

fn object(properties: &Map<String, Value>) -> Value {
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "type": "object", "required": required, "properties": properties, "additionalProperties": false,
    })
}

fn row(table: Table) -> Value {
    let cell = |metric: Metric| {
        let number = if metric.decimals() == 0 { "integer" } else { "number" };
        let cell = json!({ "description": metric.doc(), "type": [number, "null"] });
        (metric.column().to_owned(), cell)
    };
    object(&table.metrics().map(cell).collect())
}

fn statistics() -> Value {
    let column = |metric: &Metric| {
        let statistics = json!({ "description": metric.doc(), "$ref": "#/$defs/statistics" });
        (metric.combined_column(), statistics)
    };
    let of_gpu: Vec<&str> = Metric::PER_GPU.iter().map(|metric| metric.column()).collect();
    json!({
        "description": "Statistics of columns of the combined table and of the extra table.",
        "type": "object",
        "properties": Metric::ONCE.iter().map(column).collect::<Map<_, _>>(),
        "patternProperties": { format!("^gpu[0-9]+_({})$", of_gpu.join("|")): { "$ref": "#/$defs/statistics" } },
        "additionalProperties": false,
    })
}

fn requested() -> Value {
    let amount = json!({ "type": ["number", "null"] });
    let amounts = ["cpus", "memory_bytes", "gpus"].map(|name| (name.to_owned(), amount.clone()));
    let mut requested = object(&Map::from_iter(amounts));
    requested["description"] = json!("What was requested for the run, by the scheduler.");
    json!({ "anyOf": [requested, { "type": "null" }] })
}

/// The object of a run with the keys that `run` and `show` add.
fn output_of_run(run: &Value) -> Value {
    let mut properties = Map::from_iter([(
        "schema_version".to_owned(),
        json!({ "description": "Version of all JSON output.", "const": 2 }),
    )]);
    properties.extend(run["properties"].as_object().unwrap().clone());
    let nothing = json!({ "type": "null" });
    let file = |what: &str| json!({ "description": what, "type": ["string", "null"] });
    properties.extend([
        ("verdict".to_owned(), json!({ "anyOf": [{ "$ref": "#/$defs/verdict" }, nothing] })),
        ("waiting".to_owned(), json!({ "anyOf": [{ "$ref": "#/$defs/waiting" }, nothing] })),
        ("programs".to_owned(), json!({ "type": "array", "items": { "$ref": "#/$defs/program" } })),
        ("phases".to_owned(), json!({ "type": "array", "items": { "$ref": "#/$defs/phase" } })),
        ("requested".to_owned(), requested()),
        ("advice".to_owned(), json!({ "anyOf": [{ "$ref": "#/$defs/advice" }, nothing] })),
        ("servers".to_owned(), json!({ "$ref": "#/$defs/servers_found" })),
        ("cost".to_owned(), json!({ "$ref": "#/$defs/cost" })),
        ("recording".to_owned(), file("Path of the recording.")),
        ("report".to_owned(), file("Path of the report, if one was written.")),
    ]);
    object(&properties)
}

#[test]
fn schema_file_follows_the_metric_table() {
    let text = std::fs::read_to_string(PATH).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let run = schema["$defs"]["run"].clone();
    let generated = [
        ("process_row", row(Table::Process)),
        ("system_row", row(Table::System)),
        ("stats", statistics()),
        ("output_run", output_of_run(&run)),
    ];
    for (name, definition) in generated {
        schema["$defs"][name] = definition;
    }
    let current = format!("{schema:#}\n");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(PATH, &current).unwrap();
    }
    assert_eq!(std::fs::read_to_string(PATH).unwrap(), current, "run `make generate`");
    assert!(schema["$defs"]["stats"]["properties"]["process_memory"].is_object());
}
