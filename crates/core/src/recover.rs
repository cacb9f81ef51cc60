//! Recordings of trackers that died: what they left behind is not lost.
//!
//! In:  journals in the history whose writer is gone. Out: recordings like any other, whose status says so.
//! Not here: what a journal holds (`journal`), how a run is kept (`history`).

use serde::Deserialize;
use serde_json::Map;

use crate::history::{Entry, History, HistoryError};
use crate::journal::Reader;
use crate::metric::Metric;
use crate::record::Rows;
use crate::recording::{Head, Metadata, Run, Status};
use crate::source::process_start;
use crate::summary::{Scope, Summary};

/// What a journal says about its recording.
#[derive(Deserialize)]
struct About {
    metadata: Metadata,
    #[serde(default)]
    run: Run,
    tracker: Writer,
}

#[derive(Deserialize)]
struct Writer {
    pid: u32,
    start_ticks: Option<u64>,
}

/// Makes recordings of all journals in `history` whose trackers died; their ids.
///
/// A journal that cannot be read stays where it is, for whoever wants to look at it.
///
/// # Errors
/// When the history cannot be read or written.
pub fn recover(history: &History) -> Result<Vec<String>, HistoryError> {
    let mut recovered = Vec::new();
    for id in history.unfinished()? {
        let path = history.journal_path(&id);
        let Ok(mut reader) = Reader::open(&path) else { continue };
        let Ok(about) = serde_json::from_value::<About>(reader.recording.clone()) else { continue };
        let is_alive =
            about.tracker.start_ticks.is_none_or(|then| process_start(about.tracker.pid) == Some(then));
        if is_alive {
            continue;
        }
        let (head, summary) = sum_up(about, &mut reader);
        let rows = Rows::left_at(&path);
        let entry = Entry::new(&id, &head, summary.stats().ok());
        match history.store(&entry, |file| rows.write_snapshot(file, &head)) {
            // Dropped, `rows` removes the journal.
            Ok(_) => recovered.push(id),
            Err(error) => {
                let _ = rows.keep();
                return Err(error);
            }
        }
    }
    Ok(recovered)
}

/// The head as it would have been, and the figures, from one pass over the rows.
fn sum_up(about: About, reader: &mut Reader) -> (Head, Summary) {
    let About { mut metadata, mut run, .. } = about;
    let mut summary = Summary::new(Scope {
        process: metadata.track_processes,
        system: metadata.track_system,
        start_time: metadata.start_time,
        interval_s: metadata.interval,
    });
    let mut last = None;
    for row in reader.by_ref() {
        summary.add(&row);
        last = Some(row);
    }
    if let Some(row) = last {
        if let Some(time) = row[Metric::Timestamp as usize] {
            metadata.set_stop_time(time);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a pid, as the tracker wrote it"
        )]
        if let Some(pid) = row[Metric::Pid as usize] {
            metadata.pid = pid as u32;
        }
    }
    run.status = Some(Status::TrackerDied);
    run.coverage = summary.coverage();
    run.notes.push("the tracker died before the job ended: rows after that are missing".to_owned());
    (Head { metadata, server_info: None, cloud_info: None, run: Some(run), other: Map::new() }, summary)
}
