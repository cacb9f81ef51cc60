//! Saves the recording of `run` and `attach`: in the history, in a file, in both, or not at all.
//!
//! In:  the options and the finished tracker. Out: the recording, the report, and warnings for the summary.
//! Not here: the JSON of the run, which needs servers and prices (`run`); its file is opened here.
//!
//! Named outputs are opened before the job starts, and an output that cannot be opened is an error. After that a failed
//! write is only a warning, and the rows stay in the journal.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::time::SystemTime;

use resource_tracker::{
    AdviceOptions, CloudInfo, Config, FinishedJob, Head, History, HistoryEntry, Inputs, Output, Plan,
    RowFormat, RowSink, Rows, Run, Sink, Table, Telemetry, with_causes,
};

use crate::args::RecordArgs;
use crate::failure::{BEFORE_THE_JOB, Failure};
use crate::{load, report};

pub struct Saver {
    config: Config,
    offline: bool,
    keep_runs: usize,
    advice: AdviceOptions,
    prints_summary: bool,
    run: Run,
    /// `None` if the run is not saved in the history.
    history: Option<History>,
    file: Option<(Output, PathBuf)>,
    report: Option<(Output, PathBuf)>,
    json: Option<(Output, PathBuf)>,
    rows: Option<Rows>,
    telemetry: Option<Telemetry>,
    /// Why no rows are kept, so that no recording can be saved.
    warning: Option<String>,
}

pub struct Saved {
    pub head: Head,
    pub recording: Option<PathBuf>,
    pub report: Option<PathBuf>,
    /// The file for the JSON of the run.
    pub json: Option<(Output, PathBuf)>,
    /// Problems to warn about.
    pub notes: Vec<String>,
    /// Id of the run in the history; `None` if it is not there.
    pub id: Option<String>,
}

impl Saver {
    /// Opens all outputs, and returns the sinks that take the rows. `attempt` is a tag of the run.
    pub fn open(
        args: &RecordArgs,
        command: Option<Vec<String>>,
        attempt: Option<u32>,
    ) -> Result<(Self, Vec<Box<dyn Sink>>), Failure> {
        let id = History::new_id();
        let run = Run {
            job: args.job.clone(),
            tags: Plan::tags_of_environment()
                .map_err(|error| Failure { code: BEFORE_THE_JOB, ..Failure::new(error, None) })?
                .into_iter()
                .chain(attempt.map(|attempt| ("attempt".to_owned(), attempt.to_string())))
                .chain(args.tags.iter().cloned())
                .collect(),
            ..Run::new(&id, command.filter(|_| !args.no_command))
        };
        let (history, no_history) = match load::history() {
            _ if args.no_save => (None, None),
            Ok(history) => (Some(history), None),
            Err(failure) => (None, Some(format!("cannot save the recording: {}", failure.error))),
        };
        // Without a home folder, the named file is the recording.
        let warning = no_history.filter(|_| args.output.is_none());
        let open = |path: &Option<PathBuf>| {
            let open = |path: &PathBuf| match Output::open_argument(path, args.force) {
                Ok(output) => Ok((output, path.clone())),
                Err(error) => Err(Failure::output(path, error)),
            };
            path.as_ref().map(open).transpose()
        };
        let file = open(&args.output)?;
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if let Some(path) = &args.csv {
            let tables: &'static [Table] =
                if args.no_system { &[Table::Process] } else { &[Table::System, Table::Process] };
            let sink = RowSink::to_path(path, args.force, RowFormat::CombinedCsv(tables));
            sinks.push(Box::new(sink.map_err(|error| Failure::output(path, error))?));
        }
        let (report, json) = (open(&args.report)?, open(&args.json)?);
        let telemetry = start_telemetry(args, &run, &mut sinks)?;
        let mut saver = Self {
            config: args.config(),
            offline: args.offline,
            keep_runs: args.keep_runs,
            advice: args.advice_options(),
            prints_summary: !args.quiet || json.is_some(),
            run,
            history,
            file,
            report,
            json,
            rows: None,
            telemetry,
            warning,
        };
        saver.start_rows(&id, &mut sinks);
        Ok((saver, sinks))
    }

    fn start_rows(&mut self, id: &str, sinks: &mut Vec<Box<dyn Sink>>) {
        let has_named_output = self.file.is_some() || self.report.is_some();
        if self.history.is_none() && !has_named_output {
            return;
        }
        let head = Head::new(&self.config, 0, load::unix_now_s(), self.run.clone());
        let about = Rows::describe(&head.metadata, &self.run, None);
        let in_history = self.history.as_ref().map(|history| {
            history.prepare().map_err(io::Error::other)?;
            Rows::start(&history.journal_path(id), &about, false)
        });
        let started = match in_history {
            Some(Ok(started)) => Ok(started),
            Some(Err(error)) if !has_named_output => Err(error),
            // A named file and the report do not need the history: their journal is a temporary file.
            _ => Rows::start(&Rows::temporary_path(id), &about, false),
        };
        match started {
            Ok((rows, sink)) => {
                self.rows = Some(rows);
                sinks.push(sink);
            }
            Err(error) => self.warning = Some(format!("cannot save the recording: {error}")),
        }
    }

    /// Id of the run; empty if it has none.
    pub fn run_id(&self) -> String {
        self.run.id.clone().unwrap_or_default()
    }

    /// Path of the journal, which exists only if the recording is saved.
    pub fn journal(&self) -> PathBuf {
        let temporary = || Rows::temporary_path(&self.run_id());
        self.rows.as_ref().map_or_else(temporary, |rows| rows.path().to_owned())
    }

    /// Writes the recording and the report. `None` if there is nothing to save and no summary to print.
    pub fn finish(self, done: &FinishedJob, inputs: Option<Inputs>) -> Option<Saved> {
        let tracker = &done.tracker;
        let mut run = self.run;
        done.describe(&mut run);
        let mut notes = tracker.notes();
        notes.extend(self.warning);
        if !self.prints_summary && self.rows.is_none() {
            if let Some(telemetry) = self.telemetry {
                telemetry.finish(&run);
            }
            return None;
        }
        if let Some((bytes, warnings)) = inputs.map(Inputs::finish) {
            run.input_bytes = bytes;
            notes.extend(warnings);
        }
        let mut head = Head::new(&self.config, done.pid, tracker.started().wall_s(), run);
        tracker.complete(&mut head);
        // The run has ended here: the wait for receivers is not a part of it.
        if let Some(telemetry) = self.telemetry {
            let run = head.run.get_or_insert_default();
            let missing = telemetry.finish(run);
            run.notes.extend(missing.iter().cloned());
            notes.extend(missing);
        }
        // Stays `None` if cloud detection has not finished yet.
        head.cloud_info = CloudInfo::discovered(self.offline);
        let mut saved = Saved { head, recording: None, report: None, json: self.json, notes, id: None };
        let Some(rows) = self.rows else { return Some(saved) };
        if let Some((output, path)) = self.report {
            match report::write(output, &rows, &saved.head, &self.advice) {
                Ok(()) => saved.report = Some(path),
                Err(error) => {
                    saved.notes.push(format!("cannot write the report `{}`: {error}", path.display()));
                }
            }
        }
        let mut problems = Vec::new();
        if let Some(history) = self.history {
            let id = saved.head.run.as_ref().and_then(|run| run.id.clone()).unwrap_or_default();
            let entry = HistoryEntry::with_cause(&id, &saved.head, &tracker.summary());
            match history.store(&entry, |file| rows.write_snapshot(file, &saved.head)) {
                Ok(path) => {
                    saved.recording = Some(path);
                    saved.id = Some(id);
                }
                Err(error) => problems.push(with_causes(&error)),
            }
            // A failed removal of old runs is retried by a later run.
            match history.prune_sometimes(self.keep_runs, SystemTime::now()) {
                Ok(removed) if removed > 0 => saved.notes.push(format!(
                    "removed {} from the history, which keeps the newest {} (--keep-runs)",
                    count(removed, "old run"),
                    self.keep_runs,
                )),
                _ => {}
            }
        }
        if let Some((output, path)) = self.file {
            match write_file(output, &rows, &saved.head) {
                Ok(()) => saved.recording = Some(path),
                Err(error) => problems.push(format!("`{}`: {error}", path.display())),
            }
        }
        if problems.is_empty() {
            return Some(saved);
        }
        let why = problems.join("; ");
        if saved.recording.is_some() {
            saved.notes.push(format!("cannot write the recording: {why}"));
            return Some(saved);
        }
        let journal = rows.leave_finished(&saved.head, &why).display().to_string();
        // A full disk gives one warning: the warning below replaces the warning about lost rows.
        saved.notes.retain(|note| !note.contains(&journal));
        saved.notes.push(format!(
            "cannot write the recording: {why}; the rows that were written are in `{journal}`"
        ));
        Some(saved)
    }
}

fn start_telemetry(
    args: &RecordArgs,
    run: &Run,
    sinks: &mut Vec<Box<dyn Sink>>,
) -> Result<Option<Telemetry>, Failure> {
    let to = &args.telemetry;
    let file = to.prometheus.as_deref().map(|path| (path, args.force));
    let started = Telemetry::start((to.otlp.as_deref(), to.pushgateway.as_deref()), file, run, args.offline);
    let path = to.prometheus.clone().unwrap_or_default();
    let (telemetry, sink) = started.map_err(|error| Failure::output(&path, error))?.unzip();
    sinks.extend(sink);
    Ok(telemetry)
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn write_file(output: Output, rows: &Rows, head: &Head) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(64 << 10, output);
    rows.write_snapshot(&mut buffered, head)?;
    buffered.flush()?;
    buffered.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}
