//! Writes a command's output file completely or not at all, and replaces another file only on request.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Stdout, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The reason for an unwritten file.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{0} exists already, and is left as it is; name another file, or say --overwrite")]
    Exists(PathBuf),
    #[error("{0} is read by this command, and would be lost; name another file to write to")]
    IsRead(PathBuf),
    #[error("there is no folder {0}; make it, or name another file")]
    NoFolder(PathBuf),
    #[error("{path} cannot be written")]
    File {
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// An unfinished file; dropped early, it leaves nothing behind.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    overwrite: bool,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Stdout(Stdout),
    /// For a device or a pipe.
    Direct(BufWriter<File>),
    Partial(BufWriter<NamedTempFile>),
}

impl OutputFile {
    /// Begins the file; `-` is the standard output. `read` are the command's input files.
    ///
    /// # Errors
    /// The file is an input, exists without `overwrite`, or cannot be written.
    pub fn create(path: &Path, read: &[&Path], overwrite: bool) -> Result<Self, OutputError> {
        let failed = |source| OutputError::File {
            path: path.to_owned(),
            source,
        };
        let new = |path: PathBuf, sink| Self {
            path,
            overwrite,
            sink,
        };
        if path.as_os_str() == "-" {
            return Ok(new(path.to_owned(), Sink::Stdout(io::stdout())));
        }
        let there = path.metadata().ok();
        // Resolves links, so that a link to the file stays a link.
        let place = match &there {
            None => path.to_owned(),
            Some(there) => {
                let is_it = |read: &&Path| {
                    let read = read.metadata();
                    read.is_ok_and(|it| (it.dev(), it.ino()) == (there.dev(), there.ino()))
                };
                if read.iter().any(is_it) {
                    return Err(OutputError::IsRead(path.to_owned()));
                }
                if there.is_dir() {
                    return Err(failed(io::ErrorKind::IsADirectory.into()));
                }
                if !there.is_file() {
                    let file = File::options().write(true).open(path).map_err(failed)?;
                    return Ok(new(path.to_owned(), Sink::Direct(BufWriter::new(file))));
                }
                if !overwrite {
                    return Err(OutputError::Exists(path.to_owned()));
                }
                path.canonicalize().map_err(failed)?
            }
        };
        let folder = place.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(OutputError::NoFolder(folder.to_owned()));
        }
        let partial = tempfile::Builder::new()
            .prefix(".dormouse-")
            .suffix(".partial")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(failed)?;
        Ok(new(place, Sink::Partial(BufWriter::new(partial))))
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Completes the file under its name.
    ///
    /// # Errors
    /// The rest cannot be written, or another file has taken the name meanwhile.
    pub fn finish(mut self) -> Result<(), OutputError> {
        let path = self.path.clone();
        let failed = |source| OutputError::File {
            path: path.clone(),
            source,
        };
        self.flush().map_err(failed)?;
        let Sink::Partial(partial) = self.sink else {
            return Ok(());
        };
        let partial = partial.into_inner().map_err(|it| failed(it.into_error()))?;
        let named = if self.overwrite {
            partial.persist(&path)
        } else {
            partial.persist_noclobber(&path)
        };
        named.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => OutputError::Exists(path.clone()),
            _ => failed(error.error),
        })
    }

    /// Writes the whole file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_whole(mut self, text: &str) -> Result<(), OutputError> {
        let written = self.write_all(text.as_bytes());
        written.map_err(|source| OutputError::File {
            path: self.path.clone(),
            source,
        })?;
        self.finish()
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Stdout(out) => out.write(bytes),
            Sink::Direct(out) => out.write(bytes),
            Sink::Partial(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stdout(out) => out.flush(),
            Sink::Direct(out) => out.flush(),
            Sink::Partial(out) => out.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let files = std::fs::read_dir(folder).expect("there").flatten();
        let mut names: Vec<String> = files
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_complete_or_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.txt");
        let mut dropped = OutputFile::create(&path, &[], false).expect("begun");
        dropped.write_all(b"half").expect("written");
        assert!(!path.exists());
        drop(dropped);
        assert_eq!(names(folder.path()), [""; 0]);
        let file = OutputFile::create(&path, &[], false).expect("begun");
        file.write_whole("whole").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "whole");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[test]
    fn another_file_stays_unless_it_is_to_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.txt");
        let late = OutputFile::create(&path, &[], false).expect("begun");
        std::fs::write(&path, "mine").expect("written");
        let refused = OutputFile::create(&path, &[], false).expect_err("exists");
        assert!(matches!(refused, OutputError::Exists(_)), "{refused}");
        let refused = late.write_whole("late").expect_err("exists");
        assert!(matches!(refused, OutputError::Exists(_)), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "mine");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        let file = OutputFile::create(&link, &[], true).expect("begun");
        file.write_whole("new").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "new");
        assert!(link.is_symlink());
    }

    #[test]
    fn what_is_read_is_never_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("a.txt"), folder.path().join("link"));
        std::fs::write(&path, "mine").expect("written");
        std::fs::hard_link(&path, &link).expect("linked");
        for written in [&path, &link] {
            let refused = OutputFile::create(written, &[&path], true).expect_err("read");
            assert!(matches!(refused, OutputError::IsRead(_)), "{refused}");
        }
        let nowhere = OutputFile::create(&folder.path().join("b/c"), &[], false);
        assert!(matches!(nowhere, Err(OutputError::NoFolder(_))));
        let device = OutputFile::create(Path::new("/dev/null"), &[], false).expect("a device");
        device.write_whole("gone").expect("written");
    }
}
