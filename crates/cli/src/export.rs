//! `export`: a recording in another format.

use std::io;

use resource_tracker::export::{ExportError, Format, export as write};
use resource_tracker::frame::CombinedOptions;
use resource_tracker::output::Output;

use crate::args::{ExportArgs, FormatArg};
use crate::failure::Failure;
use crate::past;

/// Writes a recording in another format.
pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let recording = past::load(&args.which.recording)?;
    let unwritable = |error| Failure::unwritable(&args.output, error);
    let mut output = Output::open_argument(&args.output).map_err(unwritable)?;
    let options =
        CombinedOptions { bytes: args.bytes, human_names: args.human_names, ..CombinedOptions::default() };
    let format = match args.format {
        FormatArg::Csv => Format::Csv,
        FormatArg::Json => Format::Json,
        FormatArg::Jsonl => Format::Jsonl,
        FormatArg::Parquet => Format::Parquet,
    };
    let written = match write(&mut output, &recording, format, &options) {
        Err(ExportError::Io { source }) => Err(source),
        Err(error) => return Err(error.into()),
        Ok(()) => output.commit(),
    };
    match written {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(unwritable(error)),
        Ok(()) => Ok(0),
    }
}
