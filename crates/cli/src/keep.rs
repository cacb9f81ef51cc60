//! Where a recording goes: a file that the user named, the history, or nowhere.
//!
//! Everything that can be refused is refused before the job starts. After that nothing here can fail the job: what
//! cannot be written is a warning, and the rows stay in the journal.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use resource_tracker::cloud;
use resource_tracker::config::Config;
use resource_tracker::error::with_causes;
use resource_tracker::history::{Entry, History};
use resource_tracker::metric::Table;
use resource_tracker::output::{self, Output};
use resource_tracker::paths;
use resource_tracker::record::{self, Rows};
use resource_tracker::recording::{Head, Run, Status};
use resource_tracker::recover::temporary_name;
use resource_tracker::sampler::Sink;
use resource_tracker::snapshot::Moment;
use resource_tracker::sys;
use resource_tracker::tracker::State;
use resource_tracker::wrap::Done;

use crate::args::RecordArgs;
use crate::failure::Failure;
use crate::past;
use crate::report;
use crate::sinks::{RowFormat, RowSink};

/// A recording that will be kept, or not.
pub struct Keeper {
    config: Config,
    offline: bool,
    keep_runs: usize,
    /// Runs that the report counts in beside this one.
    earlier_runs: usize,
    /// Somebody wants to know how it went, whether it is kept or not.
    is_told: bool,
    run: Run,
    place: Place,
    report: Option<(Output, PathBuf)>,
    rows: Option<Rows>,
    /// Why a recording that nobody asked for by name cannot be kept.
    warning: Option<String>,
}

/// What was kept, and where.
pub struct Kept {
    pub head: Head,
    pub recording: Option<PathBuf>,
    pub report: Option<PathBuf>,
    /// What did not go as it should.
    pub notes: Vec<String>,
}

enum Place {
    File { output: Box<Output>, path: PathBuf },
    History { history: History, id: String },
    Nowhere,
}

impl Keeper {
    /// Opens all outputs, and gives what takes the rows.
    pub fn open(
        args: &RecordArgs,
        command: Option<Vec<String>>,
    ) -> Result<(Self, Vec<Box<dyn Sink>>), Failure> {
        let id = History::new_id();
        let run = Run {
            id: Some(id.clone()),
            job: args.job.clone(),
            command,
            host: sys::host_name(),
            tags: args.tags.iter().cloned().collect(),
            ..Run::default()
        };
        let history = past::own_history();
        let place = match (&args.output, args.no_save, &history) {
            (Some(path), ..) => {
                let output = Output::open_argument(path).map_err(|error| Failure::output(path, error))?;
                Place::File { output: Box::new(output), path: path.clone() }
            }
            (None, false, Some(history)) => Place::History { history: history.clone(), id: id.clone() },
            _ => Place::Nowhere,
        };
        let mut sinks = Vec::new();
        if let Some(path) = &args.csv {
            sinks.push(csv_sink(path, args.no_system).map_err(|error| Failure::output(path, error))?);
        }
        let report = args.report.clone().map(|path| match Output::open_argument(&path) {
            Ok(output) => Ok((output, path)),
            Err(error) => Err(Failure::output(&path, error)),
        });
        let report = report.transpose()?;
        let mut keeper = Self {
            config: args.config(),
            offline: args.offline,
            keep_runs: args.keep_runs,
            earlier_runs: args.history,
            is_told: !args.quiet,
            run,
            place,
            report,
            rows: None,
            warning: None,
        };
        keeper.start_rows(history.as_ref(), &id, &mut sinks);
        Ok((keeper, sinks))
    }

    fn start_rows(&mut self, history: Option<&History>, id: &str, sinks: &mut Vec<Box<dyn Sink>>) {
        let unsaved = matches!(self.place, Place::Nowhere);
        if unsaved && self.report.is_none() {
            return;
        }
        let head = record::head(&self.config, 0, Moment::now().wall_s(), self.run.clone());
        let about = Rows::about(&head.metadata, &self.run);
        let in_history = history.filter(|_| !unsaved).map(|history| {
            history.prepare().map_err(io::Error::other)?;
            Rows::start(&history.journal_path(id), &about, false)
        });
        let elsewhere = self.report.is_some() || matches!(self.place, Place::File { .. });
        let started = match in_history {
            Some(Ok(started)) => Ok(started),
            // What goes elsewhere does not depend on the history.
            _ if elsewhere => {
                Rows::start(&paths::temporary().join(temporary_name(std::process::id(), id)), &about, false)
            }
            Some(Err(error)) => Err(error),
            None => return,
        };
        match started {
            Ok((rows, sink)) => {
                self.rows = Some(rows);
                sinks.push(sink);
            }
            Err(error) => self.warning = Some(format!("the recording cannot be kept: {error}")),
        }
    }

    /// Writes the recording; where it is, and all that the user must know. `None` where nobody wants to know, and
    /// nothing was to be kept.
    pub fn finish(self, done: &Done) -> Option<Kept> {
        let tracker = &done.tracker;
        let mut notes = tracker.notes();
        notes.extend(self.warning);
        if !self.is_told && self.rows.is_none() {
            return None;
        }
        let mut run = self.run;
        run.oom_kills = done.oom_kills;
        match done.ending {
            Some(ending) => record::set_ending(&mut run, ending),
            None if tracker.state() == State::Exited => run.status = Some(Status::Ended),
            None => run.status = Some(Status::Detached),
        }
        let mut head = record::head(&self.config, done.pid, tracker.started().wall_s(), run);
        record::finish(&mut head, tracker);
        // `None` while the discovery that began with the job has not ended.
        head.cloud_info = cloud::known_info(self.offline);
        let mut kept = Kept { head, recording: None, report: None, notes };
        let Some(rows) = self.rows else { return Some(kept) };
        // What looked at the machine is not needed beside what writes.
        sys::release_start_up_code();
        if let Some((output, path)) = self.report {
            match report::write(output, &rows, &kept.head, self.earlier_runs) {
                Ok(()) => kept.report = Some(path),
                Err(error) => {
                    kept.notes.push(format!("the report `{}` cannot be written: {error}", path.display()));
                }
            }
        }
        let written = match self.place {
            Place::File { output, path } => {
                write_file(*output, &rows, &kept.head).map(|()| path).map_err(|error| error.to_string())
            }
            Place::History { history, id } => {
                let entry = Entry::new(&id, &kept.head, tracker.summary().stats().ok());
                let stored = history.store(&entry, |file| rows.write_snapshot(file, &kept.head));
                // Old runs that cannot be removed now can be the next time.
                let _ = history.prune_sometimes(self.keep_runs, SystemTime::now());
                stored.map_err(|error| with_causes(&error))
            }
            Place::Nowhere => return Some(kept),
        };
        match written {
            Ok(path) => kept.recording = Some(path),
            Err(why) => {
                let journal = rows.keep().display().to_string();
                // One full disk is one warning: that rows were lost is said by this one too.
                kept.notes.retain(|note| !note.contains(&journal));
                kept.notes.push(format!(
                    "the recording cannot be written: {why}; rows that could be are in `{journal}`"
                ));
            }
        }
        Some(kept)
    }
}

fn write_file(output: Output, rows: &Rows, head: &Head) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(64 << 10, output);
    rows.write_snapshot(&mut buffered, head)?;
    buffered.flush()?;
    buffered.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}

fn csv_sink(path: &Path, no_system: bool) -> io::Result<Box<dyn Sink>> {
    let tables: &'static [Table] =
        if no_system { &[Table::Process] } else { &[Table::System, Table::Process] };
    let file = if path == Path::new("-") { sys::duplicate(2)? } else { output::open_stream(path)? };
    Ok(Box::new(RowSink::new(file, format!("`{}`", path.display()), RowFormat::CombinedCsv(tables))?))
}
