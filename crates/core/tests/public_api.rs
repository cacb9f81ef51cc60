//! The public API consists of the items that `lib.rs` re-exports. If an item is added or removed, the list here must
//! change too.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::collections::BTreeSet;

/// Maximum number of public items, including those of the module `human`.
const MAX_ITEMS: usize = 100;

const ITEMS: &str = "
    ALLOCATION_CHECKS Advice AdviceOptions Aggregate Answer AnyColumn Backend Budget Catalog CatalogError CatalogSettings CatalogSource
    Check CloudInfo Column CombinedOptions Comparison Config ConfigError CpuSource
    DiskSpace ExportError ExportFormat Filters FinishedJob Fleet FleetBy FleetError Frame FrameError Head History HistoryEntry HistoryError Hooks HostInfo
    Inputs Interval LoadError Meter Metric OtherCell Output Plan ProcessReading Query RecommendError
    Recording ReportContext ReportOptions Resources Row RowFormat RowSink Rows Run Selection Server Session
    SessionError SessionNote Shared SidecarError Sink SnapshotError SourceError Spec State Stats StatsError Status Summary
    SystemReading Table Telemetry TrackerError Unit Warning WrapError attach config_folder export is_own_file
    parent_id run_command serve_sidecar server_info start_up watch_machine with_causes
    without_signals write_decimal 
    human::Civil human::Scale human::Zone human::duration human::megabytes human::percent human::printable human::usd";

#[test]
fn lib_exports_exactly_the_listed_items() {
    let lib = include_str!("../src/lib.rs");
    let mut found = BTreeSet::new();
    for statement in lib.split(';').filter_map(|statement| statement.split_once("pub use ")) {
        let (path, names) =
            statement.1.split_once('{').unwrap_or_else(|| statement.1.rsplit_once("::").unwrap());
        assert!(!path.contains('*'), "a glob hides what is public: {path}");
        let names =
            names.trim_end_matches(['}', '\n']).split(',').map(str::trim).filter(|name| !name.is_empty());
        found.extend(names.map(|name| name.rsplit(" as ").next().unwrap().to_owned()));
    }
    found.extend(public_items(lib).into_iter().filter(|name| name != "human"));
    let human = public_items(include_str!("../src/human.rs"));
    found.extend(human.into_iter().map(|name| format!("human::{name}")));
    let listed: BTreeSet<String> = ITEMS.split_ascii_whitespace().map(str::to_owned).collect();
    let (new, gone): (Vec<_>, Vec<_>) =
        (found.difference(&listed).collect(), listed.difference(&found).collect());
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:?}; listed and gone: {gone:?}");
    assert!(found.len() <= MAX_ITEMS, "{} items", found.len());
}

/// Names of the items that a file defines as `pub`, without modules behind the feature `internals`.
fn public_items(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut is_internal = false;
    for line in text.lines() {
        if line.starts_with("#[") {
            is_internal |= line.contains("feature = \"internals\"");
            continue;
        }
        let is_internal = std::mem::take(&mut is_internal);
        let Some(item) = line.strip_prefix("pub ").filter(|_| !is_internal) else { continue };
        let mut words = item.split(|character: char| !character.is_alphanumeric() && character != '_');
        let kind =
            words.find(|word| ["fn", "struct", "enum", "trait", "const", "mod", "type"].contains(word));
        if kind.is_some() {
            let name = words.find(|word| !word.is_empty() && *word != "fn").unwrap();
            items.push(name.to_owned());
        }
    }
    items
}
