//! A job's folder: a tar file compressed with zstd, stored by tenant and SHA-256, so that retries, resizes
//! and replays use the same code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient_int::whole;

/// A packed folder.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {sha256: 9f86…, bytes: 4096}"
)]
pub struct Workdir {
    /// SHA-256 of the archive, 64 digits of lower-case hexadecimal.
    pub sha256: String,
    /// Length of the archive.
    #[serde(deserialize_with = "whole")]
    pub bytes: u64,
}

/// A job's folder in a document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a folder such as ., which the command line packs, or a packed one such as {sha256: 9f86…, bytes: 4096}"
)]
pub enum WrittenWorkdir {
    /// A folder next to the document, packed by `dormouse submit`.
    Folder(String),
    /// A packed folder.
    Packed(Workdir),
}

/// A reason against the archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkdirError {
    #[error("{0:?} is not a SHA-256: 64 digits of lower-case hexadecimal")]
    Digest(String),
    #[error("an archive has 1 to {most} bytes, not {0}", most = Workdir::MOST_BYTES)]
    Bytes(u64),
}

impl Workdir {
    /// Limit on a folder's bytes: code, not data.
    pub const MOST_UNPACKED_BYTES: u64 = 256 << 20;
    /// Limit on files, folders and links.
    pub const MOST_ENTRIES: usize = 20_000;
    /// Limit on an archive: incompressible files, plus all entries' names.
    pub const MOST_BYTES: u64 = Self::MOST_UNPACKED_BYTES + (32 << 20);

    /// Checks digest and length.
    ///
    /// # Errors
    /// The invalid one.
    pub fn check(&self) -> Result<(), WorkdirError> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if self.sha256.len() != 64 || !self.sha256.bytes().all(is_digit) {
            return Err(WorkdirError::Digest(self.sha256.clone()));
        }
        if (1..=Self::MOST_BYTES).contains(&self.bytes) {
            Ok(())
        } else {
            Err(WorkdirError::Bytes(self.bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_an_archive_are_told_apart() {
        let read = |text: &str| serde_json::from_str::<WrittenWorkdir>(text);
        let folder = WrittenWorkdir::Folder(".".to_owned());
        assert_eq!(read(r#"".""#).expect("a folder"), folder);
        let sha256 = "a".repeat(64);
        let text = format!(r#"{{"sha256": "{sha256}", "bytes": 7}}"#);
        let packed = Workdir { sha256, bytes: 7 };
        assert_eq!(packed.check(), Ok(()));
        assert_eq!(read(&text).expect("one"), WrittenWorkdir::Packed(packed));
        let wrong = read(r#"{"sha256": "a", "size": 7}"#).expect_err("unknown");
        assert!(wrong.to_string().contains("a folder such as"), "{wrong}");
    }

    #[test]
    fn what_is_no_archive_is_said() {
        let check = |sha256: &str, bytes| {
            let sha256 = sha256.to_owned();
            Workdir { sha256, bytes }.check()
        };
        let digest = "0123456789abcdef".repeat(4);
        assert_eq!(check(&digest, 1), Ok(()));
        for wrong in ["", "../../etc/passwd", &digest.to_uppercase(), &digest[1..]] {
            let error = check(wrong, 1).expect_err("no digest");
            assert_eq!(error, WorkdirError::Digest(wrong.to_owned()));
        }
        for bytes in [0, Workdir::MOST_BYTES + 1] {
            assert_eq!(check(&digest, bytes), Err(WorkdirError::Bytes(bytes)));
        }
    }
}
