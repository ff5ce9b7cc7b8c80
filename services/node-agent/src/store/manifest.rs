//! What a stored checkpoint is made of: the same files make the same manifest, whenever and by
//! whichever agent it is written.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use dormouse_messages::{Incarnation, JobId};

use super::hexadecimal;
use crate::folder::Below;
use crate::seal;

/// A manifest of as many files as a checkpoint may have is no longer.
pub const MOST_BYTES: u64 = 16 << 20;

/// Read at once while a digest is made.
const READ_BYTES: usize = 1 << 20;

/// The list of a checkpoint's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of this list.
    pub version: u32,
    /// Whose it is.
    pub job: JobId,
    /// Which life saved it.
    pub incarnation: Incarnation,
    /// Its files, sorted by their paths.
    pub files: Vec<Described>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The way to it, from the checkpoint's folder.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// The form that this build writes.
    pub const VERSION: u32 = 1;

    /// Describes a complete checkpoint; blocking, reads all of it.
    ///
    /// # Errors
    /// The disk's.
    pub fn of(job: &JobId, incarnation: Incarnation, folder: &Below) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in seal::files(folder)? {
            let (bytes, sha256) = described(open(folder, &path)?)?;
            files.push(Described {
                path,
                bytes,
                sha256,
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            version: Self::VERSION,
            job: job.clone(),
            incarnation,
            files,
        })
    }

    /// What is wrong with it, if anything: it comes from outside.
    ///
    /// # Errors
    /// Said for a person.
    pub fn check(&self, job: &JobId, incarnation: Incarnation) -> Result<(), String> {
        if self.version != Self::VERSION {
            return Err(format!(
                "its manifest has the form {}, which this build does not know",
                self.version
            ));
        }
        if (&self.job, self.incarnation) != (job, incarnation) {
            return Err(format!(
                "its manifest is of {}, incarnation {}",
                self.job, self.incarnation
            ));
        }
        let leads_out = |file: &&Described| {
            let mut steps = Path::new(&file.path).components();
            file.path.is_empty() || !steps.all(|step| matches!(step, Component::Normal(_)))
        };
        match self.files.iter().find(leads_out) {
            Some(file) => Err(format!("its manifest names {:?}", file.path)),
            None => Ok(()),
        }
    }
}

/// Opens a file of a checkpoint; no link is followed.
///
/// # Errors
/// The kernel's.
pub fn open(folder: &Below, way: &str) -> io::Result<File> {
    let path = Path::new(way);
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or(io::ErrorKind::InvalidInput)?;
    let above = path.parent().unwrap_or(Path::new(""));
    folder.join(above).open()?.file(name)
}

fn described(mut file: File) -> io::Result<(u64, String)> {
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hexadecimal(&digest.finalize())));
        }
        bytes += read as u64;
        digest.update(&buffer[..read]);
    }
}
