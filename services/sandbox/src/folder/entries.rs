//! The entries of a folder, without following a link.

use std::ffi::{CStr, CString};
use std::io;

use rustix::fs::{AtFlags, Dir, FileType};

use super::Folder;

/// The kernel's unit of `st_blocks`, independent of the file system.
const BLOCK_BYTES: u64 = 512;

/// Limit on entries read from one folder.
pub const ENTRIES_LIMIT: usize = 10_000;

/// An entry of a folder. A link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub is_folder: bool,
    pub is_regular: bool,
    pub bytes: u64,
    pub disk_bytes: u64,
    pub names: u64,
    /// Device number and inode number.
    pub file: (u64, u64),
    pub modified_ns: i64,
}

impl Entry {
    fn of(stat: &rustix::fs::Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let seconds = i128::from(stat.st_mtime) * 1_000_000_000;
        let modified_ns = seconds + i128::from(stat.st_mtime_nsec);
        #[allow(clippy::useless_conversion, reason = "narrower on other machines")]
        let names = stat.st_nlink.into();
        Self {
            is_folder: kind == FileType::Directory,
            is_regular: kind == FileType::RegularFile,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            disk_bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES,
            names,
            file: (stat.st_dev, stat.st_ino),
            modified_ns: i64::try_from(modified_ns).unwrap_or(0),
        }
    }
}

impl Folder {
    /// Returns the names of the entries, sorted.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reports whether [`Self::names`] omits a name that is not UTF-8.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn has_unreadable_names(&self) -> io::Result<bool> {
        for entry in Dir::read_from(&self.0)? {
            if entry?.file_name().to_str().is_err() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the entries with their names, at most [`ENTRIES_LIMIT`].
    ///
    /// # Errors
    /// Kernel errors.
    pub fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        let names = self.names()?.into_iter().take(ENTRIES_LIMIT);
        let entry = |name: String| match self.entry(&name) {
            Ok(entry) => Some(Ok((name, entry))),
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        };
        names.filter_map(entry).collect()
    }

    /// Returns all names, unsorted, or `None` if there are more than `most`.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn raw_names(&self, most: usize) -> io::Result<Option<Vec<CString>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == most {
                return Ok(None);
            }
            names.push(name.to_owned());
        }
        Ok(Some(names))
    }

    /// Returns an entry whose name need not be UTF-8.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn entry_named(&self, name: &CStr) -> io::Result<Entry> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Entry::of(&stat))
    }

    /// Returns an entry by name.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn entry(&self, name: &str) -> io::Result<Entry> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Entry::of(&stat))
    }
}
