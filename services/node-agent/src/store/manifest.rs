//! The manifest of a stored checkpoint. Equal files give equal manifests, regardless of time and agent.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use dormouse_messages::{Incarnation, JobId};
use dormouse_sandbox::folder::Below;

use super::hexadecimal;
use crate::checkpoint_snapshot;

/// Limit on a manifest, enough for the largest number of files.
pub const MOST_BYTES: u64 = 16 << 20;

const READ_BYTES: usize = 1 << 20;

/// The list of a checkpoint's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub job: JobId,
    pub incarnation: Incarnation,
    pub files: Vec<Described>,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

impl Manifest {
    /// The version that this build writes.
    pub const VERSION: u32 = 1;

    /// Describes a complete checkpoint, and reads all of it. Blocking.
    ///
    /// # Errors
    /// Disk errors.
    pub fn of(job: &JobId, incarnation: Incarnation, folder: &Below) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in checkpoint_snapshot::files(folder)? {
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

    /// Validates a manifest, because it comes from outside.
    ///
    /// # Errors
    /// The defect, for a person.
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

/// Opens a file of a checkpoint without following links.
///
/// # Errors
/// Kernel errors.
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
