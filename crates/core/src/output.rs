//! Files that we write for the user: never half of one, never a device replaced by a file.
//!
//! In:  a path as the user gave it. Out: something to write to; a regular file appears under its name only when
//! all of it is written. What exists and is no regular file (a device, a FIFO, `/dev/stdout`) is written to as it is.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};

use crate::paths;
use crate::sys;

/// Links that are followed before we believe in a loop, as the kernel does.
const MOST_LINKS: usize = 40;

/// An output that was checked when it was named, and is complete when it is committed.
#[derive(Debug)]
pub struct Output {
    file: File,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Written beside, then renamed to its name.
    Aside { aside: PathBuf, path: PathBuf },
    /// Written where it is.
    Direct,
}

impl Output {
    /// Opens an output, so that one which cannot be written is known before any work is done.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(own) = own_descriptor(path) {
            return Ok(Self { file: duplicate(own)?, place: Place::Direct });
        }
        let path = &follow_links(path)?;
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => Self::open_direct(path, sys::is_fifo(&found)),
            Ok(found) => {
                // A file that we may not write stays, even where its folder would let us replace it.
                OpenOptions::new().write(true).open(path)?;
                match Self::open_aside(path) {
                    Ok(output) => {
                        output.file.set_permissions(found.permissions())?;
                        Ok(output)
                    }
                    // The file may be ours where the folder is not.
                    Err(_) => Self::open_direct(path, false),
                }
            }
            // What names no file, as an empty path does, is not there and cannot be made.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => {
                Self::open_aside(path)
            }
            Err(error) => Err(error),
        }
    }

    /// The same for a word on a command line, where `-` is standard output.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open_argument(path: &Path) -> io::Result<Self> {
        Self::open(if path == Path::new("-") { Path::new("/dev/stdout") } else { path })
    }

    fn open_direct(path: &Path, is_fifo: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // A FIFO that nobody reads yet would hold us up; opened for both it does not.
        let file = if is_fifo { options.read(true).write(true) } else { options.write(true) }.open(path)?;
        Ok(Self { file, place: Place::Direct })
    }

    fn open_aside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let mut aside = OsString::from(".");
        aside.push(name);
        aside.push(format!(".{}.tmp", paths::writer()));
        let aside = path.with_file_name(aside);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = sys::without_links(&mut options).open(&aside)?;
        Ok(Self { file, place: Place::Aside { aside, path: path.to_owned() } })
    }

    /// Puts a regular file under its name.
    ///
    /// # Errors
    /// What the file system says; the old file is then still there.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Place::Aside { aside, path } = std::mem::replace(&mut self.place, Place::Direct) else {
            return Ok(());
        };
        let renamed = fs::rename(&aside, &path).or_else(|error| {
            // A file that is mounted into a container can be written but not replaced.
            if error.kind() == io::ErrorKind::ResourceBusy {
                fs::copy(&aside, &path).map(|_| ())
            } else {
                Err(error)
            }
        });
        let _ = fs::remove_file(&aside);
        renamed
    }

    /// Starts again from nothing, where that can be done.
    ///
    /// # Errors
    /// What the file system says.
    pub fn restart(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Place::Aside { aside, .. } = &self.place {
            let _ = fs::remove_file(aside);
        }
    }
}

/// Writes a text, whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write_text(path: &Path, text: &str) -> io::Result<()> {
    let mut output = Output::open(path)?;
    output.write_all(text.as_bytes())?;
    output.commit()
}

/// Opens a file for rows as they come: emptied if it is a regular one, written to if it is not.
///
/// # Errors
/// What the file system says.
pub fn open_stream(path: &Path) -> io::Result<File> {
    if let Some(own) = own_descriptor(path) {
        return duplicate(own);
    }
    let mut options = OpenOptions::new();
    match fs::metadata(path) {
        Ok(found) if sys::is_fifo(&found) => options.read(true).write(true).open(path),
        _ => options.write(true).create(true).truncate(true).open(path),
    }
}

/// `/dev/stdout` and its like are descriptors of ours, whatever file stands behind them: opened anew, that file would
/// be written from its start, over what the job wrote.
fn own_descriptor(path: &Path) -> Option<i32> {
    match path.to_str()? {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        path => {
            let number =
                ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|folder| path.strip_prefix(folder))?;
            number.parse().ok()
        }
    }
}

fn duplicate(descriptor: i32) -> io::Result<File> {
    sys::duplicate(descriptor)
}

/// The file that a chain of links leads to, which need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            return Ok(path);
        }
        let target = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(sys::too_many_links())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::FileTypeExt as _;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole_and_nothing_is_left_beside_it() {
        let folder = folder();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        let mut output = Output::open(&path).unwrap();
        output.write_all(b"half").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let mut output = Output::open(&path).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_are_followed_also_to_a_file_that_is_not_there_yet() {
        let folder = folder();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        let mut output = Output::open(&link).unwrap();
        output.write_all(b"x").unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read_to_string(target).unwrap(), "x");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        assert!(Output::open(&folder.path().join("loop")).is_err());
    }

    #[test]
    fn a_device_is_written_to_and_stays_a_device() {
        let mut output = Output::open(Path::new("/dev/null")).unwrap();
        output.write_all(b"x").unwrap();
        output.commit().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn what_cannot_be_written_is_known_at_once() {
        let folder = folder();
        assert!(Output::open(&folder.path().join("no/such/folder/out")).is_err());
        assert!(Output::open(folder.path()).is_err(), "a folder is no file");
        let nothing = Output::open(Path::new("")).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::NotFound, "as the system says of no name at all");
    }
}
