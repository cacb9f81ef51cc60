//! Saves the recording of `run` and `attach`: to a file, to the history, or not at all.
//!
//! In:  the options and the finished tracker. Out: the recording, the report, and warnings for the summary.
//!
//! Named outputs are opened before the job starts, and an output that cannot be opened is an error. After that a failed
//! write is only a warning, and the rows stay in the journal.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::time::SystemTime;

use resource_tracker::{
    CloudInfo, Config, FinishedJob, Head, History, HistoryEntry, Output, RowFormat, RowSink, Rows, Run, Sink,
    Table, with_causes,
};

use crate::args::RecordArgs;
use crate::failure::Failure;
use crate::{load, report};

pub struct Saver {
    config: Config,
    offline: bool,
    keep_runs: usize,
    /// Number of earlier runs that the report includes.
    earlier_runs: usize,
    prints_summary: bool,
    run: Run,
    place: Place,
    report: Option<(Output, PathBuf)>,
    rows: Option<Rows>,
    /// Why no rows are kept, so that no recording can be saved.
    warning: Option<String>,
}

pub struct Saved {
    pub head: Head,
    pub recording: Option<PathBuf>,
    pub report: Option<PathBuf>,
    /// Problems to warn about.
    pub notes: Vec<String>,
}

enum Place {
    File { output: Box<Output>, path: PathBuf },
    History { history: History, id: String },
    Nowhere,
}

impl Saver {
    /// Opens all outputs, and returns the sinks that take the rows.
    pub fn open(
        args: &RecordArgs,
        command: Option<Vec<String>>,
    ) -> Result<(Self, Vec<Box<dyn Sink>>), Failure> {
        let id = History::new_id();
        let run = Run {
            job: args.job.clone(),
            tags: args.tags.iter().cloned().collect(),
            ..Run::new(&id, command.filter(|_| !args.no_command))
        };
        let (history, no_history) = match load::history() {
            Ok(history) => (Some(history), None),
            Err(failure) => (None, Some(format!("cannot save the recording: {}", failure.error))),
        };
        let warning = no_history.filter(|_| args.output.is_none() && !args.no_save);
        let place = match (&args.output, args.no_save, &history) {
            (Some(path), ..) => {
                let output =
                    Output::open_argument(path, args.force).map_err(|error| Failure::output(path, error))?;
                Place::File { output: Box::new(output), path: path.clone() }
            }
            (None, false, Some(history)) => Place::History { history: history.clone(), id: id.clone() },
            _ => Place::Nowhere,
        };
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if let Some(path) = &args.csv {
            let tables: &'static [Table] =
                if args.no_system { &[Table::Process] } else { &[Table::System, Table::Process] };
            let sink = RowSink::to_path(path, args.force, RowFormat::CombinedCsv(tables));
            sinks.push(Box::new(sink.map_err(|error| Failure::output(path, error))?));
        }
        let report = args.report.clone().map(|path| match Output::open_argument(&path, args.force) {
            Ok(output) => Ok((output, path)),
            Err(error) => Err(Failure::output(&path, error)),
        });
        let report = report.transpose()?;
        let mut saver = Self {
            config: args.config(),
            offline: args.offline,
            keep_runs: args.keep_runs,
            earlier_runs: args.history,
            prints_summary: !args.quiet,
            run,
            place,
            report,
            rows: None,
            warning,
        };
        saver.start_rows(history.as_ref(), &id, &mut sinks);
        Ok((saver, sinks))
    }

    fn start_rows(&mut self, history: Option<&History>, id: &str, sinks: &mut Vec<Box<dyn Sink>>) {
        let unsaved = matches!(self.place, Place::Nowhere);
        if unsaved && self.report.is_none() {
            return;
        }
        let head = Head::new(&self.config, 0, load::unix_now_s(), self.run.clone());
        let about = Rows::describe(&head.metadata, &self.run, None);
        let in_history = history.filter(|_| !unsaved).map(|history| {
            history.prepare().map_err(io::Error::other)?;
            Rows::start(&history.journal_path(id), &about, false)
        });
        let has_named_output = self.report.is_some() || matches!(self.place, Place::File { .. });
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

    /// Writes the recording and the report. `None` if there is nothing to save and no summary to print.
    pub fn finish(self, done: &FinishedJob) -> Option<Saved> {
        let tracker = &done.tracker;
        let mut notes = tracker.notes();
        notes.extend(self.warning);
        if !self.prints_summary && self.rows.is_none() {
            return None;
        }
        let mut run = self.run;
        done.describe(&mut run);
        let mut head = Head::new(&self.config, done.pid, tracker.started().wall_s(), run);
        tracker.complete(&mut head);
        // Stays `None` if cloud detection has not finished yet.
        head.cloud_info = CloudInfo::discovered(self.offline);
        let mut saved = Saved { head, recording: None, report: None, notes };
        let Some(rows) = self.rows else { return Some(saved) };
        if let Some((output, path)) = self.report {
            match report::write(output, &rows, &saved.head, self.earlier_runs) {
                Ok(()) => saved.report = Some(path),
                Err(error) => {
                    saved.notes.push(format!("cannot write the report `{}`: {error}", path.display()));
                }
            }
        }
        let written = match self.place {
            Place::File { output, path } => {
                write_file(*output, &rows, &saved.head).map(|()| path).map_err(|error| error.to_string())
            }
            Place::History { history, id } => {
                let entry = HistoryEntry::new(&id, &saved.head, tracker.summary().stats().ok());
                let stored = history.store(&entry, |file| rows.write_snapshot(file, &saved.head));
                // A failed removal of old runs is retried by a later run.
                match history.prune_sometimes(self.keep_runs, SystemTime::now()) {
                    Ok(removed) if removed > 0 => saved.notes.push(format!(
                        "removed {} from the history, which keeps the newest {} (--keep-runs)",
                        count(removed, "old run"),
                        self.keep_runs,
                    )),
                    _ => {}
                }
                stored.map_err(|error| with_causes(&error))
            }
            Place::Nowhere => return Some(saved),
        };
        match written {
            Ok(path) => saved.recording = Some(path),
            Err(why) => {
                let journal = rows.leave_finished(&saved.head, &why).display().to_string();
                // A full disk gives one warning: the warning below replaces the warning about lost rows.
                saved.notes.retain(|note| !note.contains(&journal));
                saved.notes.push(format!(
                    "cannot write the recording: {why}; the rows that were written are in `{journal}`"
                ));
            }
        }
        Some(saved)
    }
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
