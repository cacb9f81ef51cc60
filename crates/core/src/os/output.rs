//! Output files of the user, which are replaced only when the new content is complete.
//!
//! In:  a path from the user. Out: a writer. The content of a regular file is written to a temporary file in the same
//! folder, which is renamed when it is complete. Devices, FIFOs and `/dev/stdout` are written directly.
//! Not here: which files this package has written (`recognise`).
//!
//! The folder may be shared with other users, such as `/tmp`. The name of the temporary file is random and its creation
//! exclusive. A file of another user is never replaced, and a link of another user is never followed, except for links of
//! root. The writer of a temporary file has its lock: a temporary file without lock was left by a killed writer.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};

use super::recognise;
use crate::os::{self, paths};

/// Longest chain of symbolic links that the kernel follows (`path_resolution(7)`).
const MAX_LINKS: usize = 40;
/// Attempts to create a temporary file, if another process removes it before it is locked.
const MAX_ATTEMPTS: usize = 100;
/// Files of a folder among which temporary files of killed writers are searched. A larger folder would delay the job.
const MAX_SEARCHED: usize = 10_000;
const TEMPORARY_SUFFIX: &str = ".tmp";

/// An output file. If it is dropped without [`Self::commit`], an existing file stays unchanged.
#[derive(Debug)]
pub struct Output {
    file: File,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A temporary file `aside`, renamed to `path`. `force` replaces any file of the user.
    Aside {
        aside: PathBuf,
        path: PathBuf,
        force: bool,
    },
    /// A regular file in a folder that is not writable.
    Unmovable,
    Direct,
}

impl Output {
    /// Opens an output file that a program named; an existing file of the user is replaced. Fails if the path cannot be
    /// written, so that the caller knows before the work starts.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_target(&follow_links(path)?, true)
    }

    /// Opens an output file that a command-line argument names, where `-` is standard output. Without `force`, an existing
    /// file is replaced only if it is empty or was written by this package.
    pub fn open_argument(path: &Path, force: bool) -> io::Result<Self> {
        let path = if path == Path::new("-") { Path::new("/dev/stdout") } else { path };
        Self::open_target(&follow_links(path)?, force)
    }

    /// [`Self::open_argument`] for a file name that the user did not choose: a link is an error.
    pub fn open_default(path: &Path, force: bool) -> io::Result<Self> {
        Self::open_target(path, force)
    }

    fn open_target(path: &Path, force: bool) -> io::Result<Self> {
        if let Some(own) = own_descriptor(path) {
            return Ok(Self { file: os::duplicate(own)?, place: Place::Direct });
        }
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            // A path without a file name, such as an empty path, cannot be created.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => {
                return Self::open_aside(path, force);
            }
            Err(error) => return Err(error),
        };
        if found.is_symlink() {
            return Err(refusal("it is a symbolic link"));
        }
        if !found.is_file() {
            return Self::open_direct(path, &found, Place::Direct);
        }
        // A read-only file is not replaced, even if its folder is writable.
        os::without_links(OpenOptions::new().write(true)).open(path)?;
        if let Ok(output) = Self::open_aside(path, force) {
            output.check_replaced_file()?;
            output.file.set_permissions(found.permissions())?;
            return Ok(output);
        }
        // The file is writable, but its folder is not.
        check_content(path, force)?;
        Self::open_direct(path, &found, Place::Unmovable)
    }

    fn open_direct(path: &Path, found: &Metadata, place: Place) -> io::Result<Self> {
        if !os::is_own_file(found) && matches!(place, Place::Direct) {
            return Err(refusal("it belongs to another user"));
        }
        let mut options = OpenOptions::new();
        // Opening a FIFO without a reader blocks; opening it for reading and writing does not.
        options.read(os::is_fifo(found)).write(true);
        Ok(Self { file: os::without_links(&mut options).open(path)?, place })
    }

    fn open_aside(path: &Path, force: bool) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        remove_leftovers(path, &prefix);
        let (file, aside) = create_temporary(OpenOptions::new().write(true), path, &prefix)?;
        Ok(Self { file, place: Place::Aside { aside, path: path.to_owned(), force } })
    }

    /// Whether the file at the final name, if there is one, may be replaced.
    fn check_replaced_file(&self) -> io::Result<()> {
        let Place::Aside { path, force, .. } = &self.place else { return Ok(()) };
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        // Some network file systems show one owner for the files of all users, hence no comparison with the user's id.
        if !os::have_same_owner(&found, &self.file.metadata()?) {
            return Err(refusal("it belongs to another user"));
        }
        if found.is_file() { check_content(path, *force) } else { Ok(()) }
    }

    /// Renames the complete file to its final name.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.publish()
    }

    /// Renames the empty file to its final name, for rows that can be read while more are written.
    pub fn into_stream(mut self) -> io::Result<File> {
        self.publish()?;
        let file = self.file.try_clone()?;
        os::unlock(&file);
        Ok(file)
    }

    fn publish(&mut self) -> io::Result<()> {
        self.check_replaced_file()?;
        if matches!(self.place, Place::Unmovable) {
            let written = self.file.stream_position()?;
            return self.file.set_len(written);
        }
        let Place::Aside { aside, path, .. } = &self.place else { return Ok(()) };
        let renamed = fs::rename(aside, path);
        // A file that is bind-mounted into a container can be written but not replaced.
        if renamed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
            let mut file = os::without_links(OpenOptions::new().write(true).truncate(true)).open(path)?;
            let mut written = File::open(aside)?;
            os::without_size_signal(|| io::copy(&mut written, &mut file))?;
            self.file = file;
            // The temporary file is removed by `drop`.
            return Ok(());
        }
        renamed?;
        self.place = Place::Direct;
        Ok(())
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

fn refusal(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn check_content(path: &Path, force: bool) -> io::Result<()> {
    if force || recognise::is_own_output(path) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the file exists, and resource-tracker did not write it",
    ))
}

/// Creates a file beside `path` with a random name and locks it.
pub fn create_temporary(
    options: &mut OpenOptions,
    path: &Path,
    prefix: &OsString,
) -> io::Result<(File, PathBuf)> {
    for _ in 0..MAX_ATTEMPTS {
        let mut name = prefix.clone();
        name.push(paths::writer());
        name.push(TEMPORARY_SUFFIX);
        let temporary = path.with_file_name(name);
        let file = options.create_new(true).open(&temporary)?;
        // Another process may take the file for a leftover before it is locked.
        if os::try_lock(&file).unwrap_or(true) && !os::is_removed(&file.metadata()?) {
            return Ok((file, temporary));
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Removes temporary files of killed writers of the same output.
fn remove_leftovers(path: &Path, prefix: &OsString) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for file in fs::read_dir(folder).into_iter().flatten().take(MAX_SEARCHED).flatten() {
        let name = file.file_name();
        let name = name.as_encoded_bytes();
        let random = name
            .strip_prefix(prefix.as_encoded_bytes())
            .and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX.as_bytes()));
        if random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit)) {
            remove_if_dead(&file.path());
        }
    }
}

/// Removes a temporary file of the user if its writer has certainly ended: nobody has its lock.
pub fn remove_if_dead(path: &Path) {
    let Ok(file) = os::open_regular_to_lock(path) else { return };
    let is_mine = file.metadata().is_ok_and(|found| os::is_mine(&found));
    if is_mine && os::is_on_local_disk(&file) && matches!(os::try_lock(&file), Ok(true)) {
        let _ = fs::remove_file(path);
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

/// The target of a chain of symbolic links of the user or root. The target need not exist.
///
/// The kernel has a weaker rule (`fs.protected_symlinks`): it follows any link outside of sticky folders such as `/tmp`.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if own_descriptor(&path).is_some() {
            return Ok(path);
        }
        let found = fs::symlink_metadata(&path).ok().filter(Metadata::is_symlink);
        let Some(found) = found else { return Ok(path) };
        if !os::is_own_file(&found) {
            return Err(refusal("it is a symbolic link of another user"));
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
    fn name_of_the_temporary_file_is_random_and_file_of_a_killed_writer_is_removed() {
        let folder = folder();
        let path = folder.path().join("out");
        let names = || {
            let files = fs::read_dir(folder.path()).unwrap();
            files.map(|file| file.unwrap().file_name()).collect::<std::collections::HashSet<_>>()
        };
        let mut outputs: Vec<Output> = (0..100).map(|_| Output::open(&path).unwrap()).collect();
        assert_eq!(names().len(), 100, "the files of running writers stay");
        let before = names();
        // As if the writers were killed: the locks are free, the files stay.
        for output in &mut outputs {
            output.place = Place::Direct;
        }
        drop(outputs);
        fs::write(folder.path().join(".out.notes.tmp"), "of the user").unwrap();
        let _output = Output::open(&path).unwrap();
        assert_eq!(names().len(), 2, "{:?}", names());
        assert!(names().is_disjoint(&before));
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
