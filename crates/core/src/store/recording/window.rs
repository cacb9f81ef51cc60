//! A sliding window over a stream of JSON text, plain or gzipped.
//!
//! In:  a reader.
//! Out: the decompressed bytes, and the position for error messages.
//! Not here: parsing (`read`, `rows`).

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;

use super::error::SnapshotError;

/// Size of the window, which is also the maximum length of a row.
pub(super) const WINDOW_BYTES: usize = 128 * 1024;

/// Maximum length of consecutive white space. More means that the file is a decompression bomb.
const MAX_BLANK_BYTES: usize = 1024 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Counts the bytes read from the file, that is before decompression.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes += amount as u64;
        self.inner.consume(amount);
    }
}

enum Input<R> {
    Plain(Counted<R>),
    Gzip(Box<MultiGzDecoder<Counted<R>>>),
}

pub(super) struct Window<R> {
    input: Input<R>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Number of decompressed bytes before the buffer.
    before: u64,
    ended: bool,
}

impl<R: BufRead> Window<R> {
    /// Opens a stream. Gzip is detected by the first two bytes.
    pub(super) fn new(mut reader: R) -> Result<Self, SnapshotError> {
        let gzip = reader.fill_buf().map_err(SnapshotError::from_io)?.starts_with(&GZIP_MAGIC);
        let counted = Counted { inner: reader, bytes: 0 };
        let input =
            if gzip { Input::Gzip(Box::new(MultiGzDecoder::new(counted))) } else { Input::Plain(counted) };
        Ok(Self { input, buffer: vec![0; WINDOW_BYTES], start: 0, end: 0, before: 0, ended: false })
    }

    /// Number of bytes read from the file, that is before decompression.
    pub(super) fn file_bytes(&self) -> u64 {
        match &self.input {
            Input::Plain(counted) => counted.bytes,
            Input::Gzip(decoder) => decoder.get_ref().bytes,
        }
    }

    /// Position of the window in the decompressed stream.
    pub(super) fn position(&self) -> u64 {
        self.before + self.start as u64
    }

    /// The bytes in the window that are not consumed yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Fills the window; `false` if the stream has no more bytes.
    pub(super) fn refill(&mut self) -> Result<bool, SnapshotError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.before += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        let had = self.end;
        while !self.ended && self.end < self.buffer.len() {
            let free = &mut self.buffer[self.end..];
            let read = match &mut self.input {
                Input::Plain(input) => input.read(free),
                Input::Gzip(input) => input.read(free),
            };
            match read {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SnapshotError::from_io(error)),
            }
        }
        Ok(self.end > had)
    }

    /// Skips white space and returns the next byte without consuming it; `None` at the end of the stream.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, SnapshotError> {
        let mut blank_bytes = 0;
        loop {
            let blank = self.rest().iter().take_while(|byte| is_blank(**byte)).count();
            self.advance(blank);
            blank_bytes += blank;
            if let Some(byte) = self.rest().first() {
                return Ok(Some(*byte));
            }
            if blank_bytes > MAX_BLANK_BYTES {
                return Err(SnapshotError::Blank { at: self.position() });
            }
            if !self.refill()? {
                return Ok(None);
            }
        }
    }
}

/// Whether a byte is white space in JSON.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}
