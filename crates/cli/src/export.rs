//! `export`: a recording in another format.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use resource_tracker::csv;
use resource_tracker::frame::CombinedOptions;
use resource_tracker::history::{self, History};
use resource_tracker::output::Output;
use resource_tracker::recording::Recording;

use crate::args::{ExportArgs, Format};
use crate::failure::Failure;

/// Writes a recording in another format.
pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let recording = load(&args.recording)?;
    let mut output = Output::open(&args.output)
        .map_err(|error| Failure { code: 1, ..Failure::output(&args.output, error) })?;
    let options =
        CombinedOptions { bytes: args.bytes, human_names: args.human_names, ..CombinedOptions::default() };
    let written = match args.format {
        Format::Csv => {
            let frame = recording.combined(&options).map_err(|error| Failure::new(error, None))?;
            let mut buffered = BufWriter::new(&mut output);
            csv::write_frame(&mut buffered, &frame).and_then(|()| buffered.flush())
        }
    };
    match written.and_then(|()| output.commit()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure { code: 1, ..Failure::output(&args.output, error) }),
        Ok(()) => Ok(0),
    }
}

/// Loads a file, or the run of the history that goes by this name.
pub fn load(name: &str) -> Result<Recording, Failure> {
    let path = if Path::new(name).exists() { PathBuf::from(name) } else { in_history(name)? };
    Recording::load(&path).map_err(|error| {
        let hint = error.hint();
        Failure::new(error, hint)
    })
}

fn in_history(name: &str) -> Result<PathBuf, Failure> {
    let Some(history) = history::default_directory(|name| std::env::var_os(name)).map(History::at) else {
        return Ok(PathBuf::from(name));
    };
    // What looks like a path is one, and its own error says more than the history's.
    if name.contains('/') || Path::new(name).extension().is_some() {
        return Ok(PathBuf::from(name));
    }
    let entry = history.find(name).map_err(|error| {
        let hint = error.hint();
        Failure::new(error, hint)
    })?;
    Ok(history.recording_path(&entry.id))
}
