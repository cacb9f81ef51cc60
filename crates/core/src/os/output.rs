//! Output files of the user, which are replaced only when the new content is complete.
//!
//! In:  a path from the user. Out: a writer. The content of a regular file is written to a temporary file in the same
//! folder, which is renamed when it is complete. Devices, FIFOs and `/dev/stdout` are written directly.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};

use crate::os::{self, paths};

/// Longest chain of symbolic links that the kernel follows (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// An output file. If it is dropped without [`Self::commit`], an existing file stays unchanged.
#[derive(Debug)]
pub struct Output {
    file: File,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A temporary file `aside`, renamed to `path`.
    Aside {
        aside: PathBuf,
        path: PathBuf,
    },
    Direct,
}

impl Output {
    /// Opens an output file. Fails if the path cannot be written, so that the caller knows before the work starts.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(own) = own_descriptor(path) {
            return Ok(Self { file: os::duplicate(own)?, place: Place::Direct });
        }
        let path = &follow_links(path)?;
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => Self::open_direct(path, os::is_fifo(&found)),
            Ok(found) => {
                // A read-only file is not replaced, even if its folder is writable.
                OpenOptions::new().write(true).open(path)?;
                match Self::open_aside(path) {
                    Ok(output) => {
                        output.file.set_permissions(found.permissions())?;
                        Ok(output)
                    }
                    // The file is writable, but its folder is not.
                    Err(_) => Self::open_direct(path, false),
                }
            }
            // A path without a file name, such as an empty path, cannot be created.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => {
                Self::open_aside(path)
            }
            Err(error) => Err(error),
        }
    }

    /// [`Self::open`] for a command-line argument, where `-` is standard output.
    pub fn open_argument(path: &Path) -> io::Result<Self> {
        Self::open(if path == Path::new("-") { Path::new("/dev/stdout") } else { path })
    }

    fn open_direct(path: &Path, is_fifo: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Opening a FIFO without a reader blocks; opening it for reading and writing does not.
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
        let file = os::without_links(&mut options).open(&aside)?;
        Ok(Self { file, place: Place::Aside { aside, path: path.to_owned() } })
    }

    /// Renames the complete file to its final name.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Place::Aside { aside, path } = std::mem::replace(&mut self.place, Place::Direct) else {
            return Ok(());
        };
        let renamed = fs::rename(&aside, &path).or_else(|error| {
            // A file that is bind-mounted into a container can be written but not replaced.
            if error.kind() == io::ErrorKind::ResourceBusy {
                os::without_size_signal(|| fs::copy(&aside, &path)).map(|_| ())
            } else {
                Err(error)
            }
        });
        let _ = fs::remove_file(&aside);
        renamed
    }

    /// Truncates the output, so that it can be written again; fails for a pipe.
    pub fn restart(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)
    }

    /// Writes a file with this text. If this fails, an existing file stays unchanged.
    pub fn write_text(path: &Path, text: &str) -> io::Result<()> {
        let mut output = Self::open(path)?;
        output.write_all(text.as_bytes())?;
        output.commit()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        os::without_size_signal(|| self.file.write(bytes))
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

/// Opens a file for a stream of rows. A regular file is truncated.
pub fn open_stream(path: &Path) -> io::Result<File> {
    if let Some(own) = own_descriptor(path) {
        return os::duplicate(own);
    }
    let mut options = OpenOptions::new();
    match fs::metadata(path) {
        Ok(found) if os::is_fifo(&found) => options.read(true).write(true).open(path),
        _ => options.write(true).create(true).truncate(true).open(path),
    }
}

/// The descriptor number of `/dev/stdout`, `/dev/fd/N` and similar paths. If standard output is a file, a newly opened
/// `/dev/stdout` would write at offset 0 of that file, over the output of the job.
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

/// The target of a chain of symbolic links. The target need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            return Ok(path);
        }
        let target = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    // The chain is too long, probably a loop: the system returns the error.
    fs::metadata(&path).map(|_| path)
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
    fn old_file_stays_until_commit_and_no_temporary_file_is_left() {
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
    fn link_to_a_missing_file_creates_its_target() {
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
    fn device_is_written_and_not_replaced() {
        let mut output = Output::open(Path::new("/dev/null")).unwrap();
        output.write_all(b"x").unwrap();
        output.commit().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn unwritable_path_fails_when_opened() {
        let folder = folder();
        assert!(Output::open(&folder.path().join("no/such/folder/out")).is_err());
        assert!(Output::open(folder.path()).is_err(), "a folder");
        let nothing = Output::open(Path::new("")).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::NotFound, "an empty path");
    }
}
