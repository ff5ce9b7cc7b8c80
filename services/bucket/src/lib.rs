//! Folders and buckets as object stores, for checkpoints and for the archive. Credentials come from the
//! environment (`AWS_ACCESS_KEY_ID`, …), a private file, or a role. No job sees them.

use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};

/// Retry time for a store that does not answer.
const RETRIED: Duration = Duration::from_secs(60);

/// A place for objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Folder(PathBuf),
    S3(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        match written.split_once("://") {
            None if written.is_empty() => Err("it is empty".to_owned()),
            None => Ok(Self::Folder(PathBuf::from(written))),
            Some(("file", path)) if path.starts_with('/') => Ok(Self::Folder(PathBuf::from(path))),
            Some(("s3", way)) if !way.starts_with('/') && !way.is_empty() => {
                Ok(Self::S3(written.trim_end_matches('/').to_owned()))
            }
            Some(_) => Err(format!(
                "{written:?} is neither a folder, file:///FOLDER nor s3://BUCKET/PREFIX"
            )),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::S3(url) => f.write_str(url),
        }
    }
}

impl Place {
    /// Makes a folder that is not there yet, for its owner alone. A bucket has none to make.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn make(&self) -> Result<(), SettingsError> {
        let Self::Folder(folder) = self else {
            return Ok(());
        };
        let mut made = fs::DirBuilder::new();
        let made = made.recursive(true).mode(0o700).create(folder);
        made.map_err(|error| SettingsError::Store {
            url: self.to_string(),
            why: error.to_string(),
        })
    }

    /// Opens the place without a request to it; paths are relative to it.
    ///
    /// # Errors
    /// If there is no such folder, or the bucket's settings are invalid.
    pub fn open(&self, options: Option<&Path>) -> Result<Arc<dyn ObjectStore>, SettingsError> {
        let url = match self {
            Self::S3(url) => url,
            Self::Folder(folder) => {
                let wrong = |why: String| SettingsError::Store {
                    url: self.to_string(),
                    why,
                };
                if !folder.is_dir() {
                    return Err(wrong("there is no such folder".to_owned()));
                }
                let store = LocalFileSystem::new_with_prefix(folder);
                let store = store.map_err(|error| wrong(error.to_string()))?;
                return Ok(Arc::new(store.with_fsync(true)));
            }
        };
        let settings = BucketSettings {
            url: url.clone(),
            options: options.map(Path::to_owned),
        };
        let bucket = settings.open()?;
        let path = url.strip_prefix("s3://").and_then(|it| it.split_once('/'));
        Ok(match path {
            Some((_, prefix)) => Arc::new(PrefixStore::new(bucket, prefix)),
            None => bucket,
        })
    }
}

/// A bucket's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSettings {
    pub url: String,
    /// A file of `AWS_…=value` lines, which override the environment.
    pub options: Option<PathBuf>,
}

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the options of the bucket {path}: {error}")]
    Unread {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{0} has credentials, and others than its owner may read it; chmod 600 it")]
    Open(PathBuf),
    #[error("{path}, line {line}: {why}")]
    Line {
        path: PathBuf,
        line: usize,
        why: String,
    },
    #[error("the store {url}: {why}")]
    Store { url: String, why: String },
}

fn read(path: &Path) -> Result<Vec<(AmazonS3ConfigKey, String)>, SettingsError> {
    let unread = |error| SettingsError::Unread {
        path: path.to_owned(),
        error,
    };
    let mode = fs::metadata(path).map_err(unread)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(SettingsError::Open(path.to_owned()));
    }
    let text = fs::read_to_string(path).map_err(unread)?;
    let mut options = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| SettingsError::Line {
            path: path.to_owned(),
            line: index + 1,
            why,
        };
        let (name, value) = line
            .split_once('=')
            // Omit the line: it may contain a secret.
            .ok_or_else(|| wrong("it is no NAME=VALUE".to_owned()))?;
        let name = name.trim();
        let known = name.starts_with("AWS_").then(|| name.to_ascii_lowercase());
        let key = known.and_then(|name| name.parse().ok());
        let key = key.ok_or_else(|| wrong(format!("{name:?} is no option of a store")))?;
        options.push((key, value.trim().to_owned()));
    }
    Ok(options)
}

impl BucketSettings {
    /// Opens the bucket without a request to it.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn open(&self) -> Result<Arc<dyn ObjectStore>, SettingsError> {
        let wrong = |why: String| SettingsError::Store {
            url: self.url.clone(),
            why,
        };
        // Only the first provider of a process is installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env();
        let options = self.options.as_deref().map(read).transpose()?;
        for (key, value) in options.unwrap_or_default() {
            builder = builder.with_config(key, value);
        }
        if builder
            .get_config_value(&AmazonS3ConfigKey::Checksum)
            .is_none()
        {
            builder = builder.with_checksum_algorithm(Checksum::SHA256);
        }
        let way = self.url.strip_prefix("s3://").unwrap_or_default();
        let bucket = way.split('/').next().unwrap_or_default();
        let built = builder
            .with_bucket_name(bucket)
            .with_retry(RetryConfig {
                retry_timeout: RETRIED,
                ..RetryConfig::default()
            })
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Arc::new(built))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_a_bucket_are_told_apart() {
        let read = |text: &str| text.parse::<Place>();
        let folder = |path: &str| Ok(Place::Folder(PathBuf::from(path)));
        assert_eq!(read("/shared/checkpoints"), folder("/shared/checkpoints"));
        assert_eq!(read("file:///shared"), folder("/shared"));
        assert_eq!(
            read("s3://bucket/a/b/"),
            Ok(Place::S3("s3://bucket/a/b".to_owned()))
        );
        for wrong in ["", "s3://", "s3:///a", "file://host/a", "https://bucket/a"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_new_folder_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::Folder(folder.path().join("a/archive"));
        let missing = place.open(None).expect_err("not there").to_string();
        assert!(missing.contains("no such folder"), "{missing}");
        place.make().expect("made");
        place.make().expect("there already");
        let mode = |path: &str| {
            let metadata = fs::metadata(folder.path().join(path)).expect("there");
            metadata.permissions().mode() & 0o777
        };
        assert_eq!((mode("a"), mode("a/archive")), (0o700, 0o700));
    }

    #[test]
    fn a_file_of_options_is_the_agents_own_and_says_which_line_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.env");
        let write = |text: &str, mode: u32| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            read(&path).map_err(|error| error.to_string())
        };
        let good = "# mine\nAWS_ACCESS_KEY_ID = a\nAWS_SERVER_SIDE_ENCRYPTION=AES256\n";
        assert_eq!(write(good, 0o600).expect("read").len(), 2);
        assert!(write(good, 0o640).expect_err("open").contains("chmod 600"));
        let wrong = write("AWS_ACCESS_KEY_ID=a\nAWS_SECRET=b", 0o600).expect_err("unknown");
        assert!(
            wrong.contains("line 2") && wrong.contains("AWS_SECRET"),
            "{wrong}"
        );
        let wrong = write("hunter2", 0o600).expect_err("no pair");
        assert!(
            wrong.contains("line 1") && !wrong.contains("hunter2"),
            "{wrong}"
        );
    }
}
