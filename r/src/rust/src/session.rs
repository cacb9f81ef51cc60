//! A recording as an R external pointer, and functions on it.

use std::path::{Path, PathBuf};

use extendr_api::prelude::*;
use resource_tracker::{
    AdviceOptions, Backend, Catalog, CatalogSettings, CombinedOptions, Config, ExportError, ExportFormat,
    Filters, Fleet, Inputs, Interval, Output, Plan, Query, Recording, ReportContext, ReportOptions,
    Resources, Session, SessionNote, Shared, Stats, Table, human,
};
use serde_json::{Value, json};

use crate::failure::{Answer, Failure, Kind};
use crate::frame::frame_to_r;
use crate::value::{Singles, from_r, map_from_r, map_to_r, or_null, to_r};

/// The session of a pointer. Pointers that R loaded from a file or received from another process are empty.
fn shared(session: &Robj) -> Answer<&ExternalPtr<Shared>> {
    session.try_into().map_err(|_: Error| {
        Failure::new(
            Kind::State,
            "this tracker belongs to another R process; use `dump` there and `ResourceTracker$load` here",
        )
    })
}

fn pointer(session: Session) -> Robj {
    ExternalPtr::new(Shared::new(session)).into()
}

fn stats_from_r(runs: &Robj) -> Answer<Vec<Stats>> {
    let Value::Array(runs) = from_r(runs)? else { return Ok(Vec::new()) };
    serde_json::from_value(Value::Array(runs)).map_err(|error| {
        Failure::new(
            Kind::Value,
            format!("`historical_stats` must be a list of values of `stats()`: {error}"),
        )
    })
}

fn paths(texts: &Robj) -> Vec<PathBuf> {
    texts.as_str_vector().unwrap_or_default().into_iter().map(PathBuf::from).collect()
}

fn filters_from_r(filters: &List, into: &mut Filters) -> Answer<()> {
    for (name, value) in map_from_r(filters)? {
        into.set(&name, &value)?;
    }
    Ok(())
}

#[extendr]
fn core_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[extendr]
#[expect(
    clippy::too_many_arguments,
    clippy::fn_params_excessive_bools,
    reason = "arguments of the public R API"
)]
fn session_new(
    pid: f64,
    children: bool,
    interval: f64,
    autostart: bool,
    track_processes: bool,
    track_system: bool,
    discover_server: bool,
    discover_cloud: bool,
    temporary_folder: &str,
    job: Option<String>,
    tags: List,
    inputs: Robj,
    store: Option<String>,
) -> Answer {
    let interval = Interval::from_seconds(interval)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and in range"
    )]
    let pid = if pid.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&pid) {
        pid as u32
    } else {
        return Err(Failure::new(Kind::Value, format!("`pid` must be a process id, not `{pid}`")));
    };
    let backend = Backend::from_env()?;
    let config = Config { interval, children, track_processes, track_system, backend, ..Config::from_env() };
    let tag = |(key, value): (&str, Robj)| Some((key.to_owned(), value.as_str()?.to_owned()));
    let plan = Plan {
        autostart,
        discover_server,
        discover_cloud,
        job,
        tags: tags.iter().filter_map(tag).collect(),
        inputs: paths(&inputs),
        store,
        ..Plan::new(config, pid)
    };
    Ok(pointer(Session::new(plan).with_rows_in(temporary_folder.into())))
}

#[extendr]
fn session_load(file: &str) -> Answer {
    Ok(pointer(Session::from_recording(Recording::load(Path::new(file))?)))
}

#[extendr]
fn session_loads(text: &str) -> Answer {
    Ok(pointer(Session::from_recording(Recording::read(text.as_bytes())?)))
}

#[extendr]
fn session_from_snapshot(snapshot: Robj) -> Answer {
    let snapshot = from_r(&snapshot)?;
    if !snapshot.is_object() {
        let message = "cannot load: a snapshot is a named list, as `snapshot()` of a tracker returns it";
        return Err(Failure::new(Kind::Format, message));
    }
    session_loads(&snapshot.to_string())
}

#[extendr]
fn session_start(session: Robj) -> Answer<()> {
    Ok(shared(&session)?.start()?)
}

#[extendr]
fn session_stop(session: Robj) -> Answer<()> {
    shared(&session)?.stop();
    Ok(())
}

/// Starts a phase; returns the phase that this process marked before.
#[extendr]
fn session_mark(session: Robj, name: &str) -> Answer<String> {
    Ok(shared(&session)?.mark(name))
}

/// What each phase used so far.
#[extendr]
fn session_phases(session: Robj) -> Answer {
    to_r(&json!(shared(&session)?.with(|session| session.phases()).0), Singles::Plain)
}

/// Marks the run as failed.
#[extendr]
fn session_set_error(session: Robj, error: String) -> Answer<()> {
    shared(&session)?.with(|session| session.set_error(error));
    Ok(())
}

/// Saves the recording so far in the history; returns its id.
#[extendr]
fn session_save(session: Robj) -> Answer<String> {
    Ok(shared(&session)?.with(Session::save)?)
}

#[extendr]
fn session_remove_files(session: Robj) -> Answer<()> {
    shared(&session)?.remove_files();
    Ok(())
}

#[extendr]
fn session_running(session: Robj) -> Answer<bool> {
    Ok(shared(&session)?.with(|session| session.is_running()))
}

#[extendr]
fn session_rows(session: Robj) -> Answer {
    let rows = shared(&session)?.with(|session| session.rows());
    to_r(&json!(rows), Singles::Plain)
}

/// One step of a wait for `wanted` rows: seconds to sleep before the next call; `NULL` once the rows are there.
#[extendr]
fn session_wait_on(session: Robj, wanted: f64, waited_s: f64, timeout_s: f64) -> Answer {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts from floats saturate")]
    let wanted = wanted.ceil() as u64;
    Ok(or_null(shared(&session)?.with(|session| session.poll_rows(wanted, waited_s, timeout_s))?))
}

/// Settings, start time and stop time.
#[extendr]
fn session_settings(session: Robj) -> Answer {
    let shared = shared(&session)?;
    let Plan { config, pid, .. } = shared.plan();
    let (interval, start_time, stop_time) =
        shared.with(|session| (session.interval_s(), session.start_time(), session.stop_time()));
    let settings = json!({
        "pid": pid,
        "children": config.children,
        "interval": interval,
        "start_time": start_time,
        "stop_time": stop_time,
    });
    to_r(&settings, Singles::Plain)
}

/// The run, as the command prints it with `--json`.
#[extendr]
fn session_run(session: Robj) -> Answer {
    map_to_r(&shared(&session)?.with(Session::run_object), Singles::Plain)
}

/// What explains the run so far.
#[extendr]
fn session_explain(session: Robj) -> Answer {
    map_to_r(&shared(&session)?.with(Session::explain), Singles::Plain)
}

/// New warnings since the last call.
#[extendr]
fn session_take_warnings(session: Robj) -> Answer<Vec<String>> {
    let notes = shared(&session)?.with(Session::take_notes).into_iter();
    Ok(notes
        .filter_map(|note| match note {
            SessionNote::Warning(text) => Some(text),
            // R shows no notes of this kind; the snapshot holds them.
            SessionNote::Info(_) => None,
        })
        .collect())
}

/// A table so far; without columns if the table is off.
#[extendr]
fn session_table(session: Robj, name: &str) -> Answer {
    let table =
        Table::from_key(name).ok_or_else(|| Failure::new(Kind::Value, format!("no table named `{name}`")))?;
    let frame = shared(&session)?.with(|session| session.frame(table)).unwrap_or_default();
    frame_to_r(&frame)
}

#[extendr]
fn session_combined(
    session: Robj,
    bytes: bool,
    human_names: bool,
    system_prefix: Option<String>,
    process_prefix: Option<String>,
) -> Answer {
    let options = CombinedOptions { bytes, human_names, system_prefix, process_prefix, extra: false };
    let frame = shared(&session)?.with(|session| session.combined(&options))?;
    frame_to_r(&frame)
}

#[extendr]
fn session_stats(session: Robj) -> Answer {
    let stats = shared(&session)?.with(|session| session.stats())?;
    to_r(&json!(stats), Singles::Plain)
}

fn resources(session: &Robj, history: &Robj) -> Answer<Resources> {
    let history = stats_from_r(history)?;
    Ok(shared(session)?.with(|session| session.recommend(&history))?)
}

#[extendr]
fn session_recommend(session: Robj, history: Robj) -> Answer {
    to_r(&json!(resources(&session, &history)?), Singles::Plain)
}

/// The cheapest server that fits the job; `NULL` if none fits.
#[extendr]
fn session_recommend_server(session: Robj, history: Robj, filters: List) -> Answer {
    let needs = resources(&session, &history)?;
    let mut query = Query::from(&needs).top(1);
    filters_from_r(&filters, &mut query.filters)?;
    let answer = Catalog::new(CatalogSettings::from_env()).servers(&query)?;
    Ok(or_null(answer.rows().next().map(|server| map_to_r(&server, Singles::Plain)).transpose()?))
}

/// The advice of `recommend --json`.
#[extendr]
fn session_advise(
    session: Robj,
    slowdown_percent: f64,
    earlier_runs: i32,
    inputs: Robj,
    filters: List,
    store: Option<String>,
) -> Answer {
    let input_bytes =
        Inputs::total_bytes(&paths(&inputs)).map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
    let mut options = AdviceOptions {
        earlier_runs: usize::try_from(earlier_runs).unwrap_or_default(),
        slowdown: slowdown_percent / 100.0,
        input_bytes,
        ..AdviceOptions::default()
    };
    filters_from_r(&filters, &mut options.filters)?;
    let (head, summary) = shared(&session)?.with(|session| (session.head(), session.summary()));
    if let Some(store) = store {
        let store = Fleet::open(&store)?;
        options.other_runs = store.earlier(&head, options.earlier_runs)?;
        shared(&session)?.with(|session| session.add_warning(store.take_warning()));
    }
    to_r(&ReportContext::advise(&head, summary, &options)?, Singles::Plain)
}

/// Durations and money as text.
#[extendr]
fn human_duration(seconds: f64) -> String {
    human::duration(seconds)
}

#[extendr]
fn human_usd(amount: f64) -> String {
    human::usd(amount)
}

#[extendr]
fn session_server_info(session: Robj) -> Answer {
    let info = shared(&session)?.with(Session::server_info);
    Ok(or_null(info.map(|info| map_to_r(&info, Singles::Plain)).transpose()?))
}

#[extendr]
fn session_cloud_info(session: Robj) -> Answer {
    let info = shared(&session)?.with(Session::cloud_info);
    Ok(or_null(info.map(|info| map_to_r(&info, Singles::Plain)).transpose()?))
}

#[extendr]
fn session_report(session: Robj, integration: &str, history: Robj, failed: bool) -> Answer<String> {
    let history = stats_from_r(&history)?;
    let recording = shared(&session)?.with(Session::recording)?;
    let options = ReportOptions { integration: integration.to_owned(), failed, ..ReportOptions::default() };
    Ok(options.report(&recording, history)?)
}

/// The recording so far, with tables as data frames.
#[extendr]
fn session_snapshot(session: Robj) -> Answer {
    let Recording { head, process, system, extra } = shared(&session)?.with(Session::recording)?;
    let mut text = Vec::new();
    let without_rows = Recording { head, process: None, system: None, extra: None };
    let written = without_rows.write(&mut text).map_err(|error| error.to_string());
    let head = written.and_then(|()| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    let Value::Object(mut head) = head.map_err(|text| Failure::new(Kind::Io, text))? else {
        return Err(Failure::new(Kind::Format, "the snapshot is not a JSON object"));
    };
    let tables = [(Table::Process, process), (Table::System, system), (Table::Extra, extra)];
    for (table, _) in &tables {
        head.shift_remove(table.key());
    }
    let mut names: Vec<String> = head.keys().cloned().collect();
    let mut values: Vec<Robj> =
        head.values().map(|value| to_r(value, Singles::Marked)).collect::<Answer<_>>()?;
    for (table, frame) in &tables {
        let Some(frame) = frame else { continue };
        names.push(table.key().to_owned());
        values.push(frame_to_r(frame)?);
    }
    Ok(List::from_names_and_values(names, values)?.into())
}

#[extendr]
fn session_dumps(session: Robj) -> Answer<String> {
    let mut text = Vec::new();
    shared(&session)?.with(|session| session.write_snapshot(&mut text, false))?;
    String::from_utf8(text).map_err(|error| Failure::new(Kind::Format, error.to_string()))
}

#[extendr]
fn session_dump(session: Robj, file: &str) -> Answer<()> {
    let written = shared(&session)?.with(|session| session.dump(Path::new(file)));
    written.map_err(|error| Failure::save(file, error))
}

/// Writes the combined table, or the whole recording as JSON, atomically. Without a format the extension decides.
#[extendr]
fn session_export(
    session: Robj,
    file: &str,
    format: Option<String>,
    bytes: bool,
    human_names: bool,
) -> Answer<()> {
    let path = Path::new(file);
    let recording = shared(&session)?.with(Session::recording)?;
    let write = || -> Result<(), ExportError> {
        let format = format.map_or_else(|| ExportFormat::of_path(path), |name| name.parse())?;
        let options = CombinedOptions { bytes, human_names, ..CombinedOptions::default() };
        let mut output = Output::open(path)?;
        resource_tracker::export(&mut output, &recording, format, &options)?;
        Ok(output.commit()?)
    };
    write().map_err(|error| Failure::export(file, &error))
}

/// Writes a text file atomically.
#[extendr]
fn save_text(text: &str, file: &str) -> Answer<()> {
    Output::write_text(Path::new(file), text).map_err(|error| Failure::write(file, &error))
}

extendr_module! {
    mod session;
    fn core_version;
    fn session_new;
    fn session_load;
    fn session_loads;
    fn session_from_snapshot;
    fn session_start;
    fn session_stop;
    fn session_mark;
    fn session_phases;
    fn session_set_error;
    fn session_save;
    fn session_remove_files;
    fn session_running;
    fn session_rows;
    fn session_wait_on;
    fn session_settings;
    fn session_run;
    fn session_explain;
    fn session_take_warnings;
    fn session_table;
    fn session_combined;
    fn session_stats;
    fn session_recommend;
    fn session_recommend_server;
    fn session_advise;
    fn human_duration;
    fn human_usd;
    fn session_server_info;
    fn session_cloud_info;
    fn session_report;
    fn session_snapshot;
    fn session_dumps;
    fn session_dump;
    fn session_export;
    fn save_text;
}
