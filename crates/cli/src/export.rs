//! `export`: writes a recording in another format.

use std::io;

use resource_tracker::{CombinedOptions, ExportError, ExportFormat, Output, export as write};

use crate::args::{ExportArgs, FormatArg};
use crate::failure::Failure;
use crate::load::load;

pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let recording = load(&args.which.recording)?;
    let unwritable = |error| Failure::unwritable(&args.output, error);
    let mut output = Output::open_argument(&args.output, args.force).map_err(unwritable)?;
    let options = CombinedOptions {
        bytes: args.bytes,
        human_names: args.human_names,
        extra: args.extra,
        ..CombinedOptions::default()
    };
    let format = match args.format {
        FormatArg::Csv => ExportFormat::Csv,
        FormatArg::Json => ExportFormat::Json,
        FormatArg::Jsonl => ExportFormat::Jsonl,
        FormatArg::Parquet => ExportFormat::Parquet,
    };
    let written = match write(&mut output, &recording, format, &options) {
        Err(ExportError::Io { source }) => Err(source),
        Err(error) => return Err(error.into()),
        Ok(()) => output.commit(),
    };
    match written {
        // `export last | head` is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(unwritable(error)),
        Ok(()) => Ok(0),
    }
}
