//! The objects of an archive: each is written once, read back, and checked against its manifest.

use std::io::Write;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_bucket::Place;
use dormouse_messages::Sequence;
use dormouse_replay::history::slice::{EncodedState, States};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tempfile::NamedTempFile;

use crate::error::ArchiveError;
use crate::folds::Folds;
use crate::manifest::{FORMAT, Manifest, Object, Sealed, StateObject, digest};

const MANIFESTS: &str = "manifests";

/// Digits of a manifest's name, so that names sort as numbers do.
const DIGITS: usize = 10;

/// Enough of a digest to tell two objects apart.
const SHORT: usize = 16;

/// An archive in a folder or a bucket. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Archive {
    objects: Arc<dyn ObjectStore>,
    place: Place,
}

impl Archive {
    /// Opens the archive that a sealer writes to, and makes its folder.
    ///
    /// # Errors
    /// If the folder cannot be made, or the bucket's settings are invalid.
    pub fn create(place: &Place, options: Option<&FilePath>) -> Result<Self, ArchiveError> {
        place.make()?;
        Self::open(place, options)
    }

    /// Opens an archive without a request to it. `options` is a file of a bucket's options.
    ///
    /// # Errors
    /// If there is no such folder, or the bucket's settings are invalid.
    pub fn open(place: &Place, options: Option<&FilePath>) -> Result<Self, ArchiveError> {
        Ok(Self {
            objects: place.open(options)?,
            place: place.clone(),
        })
    }

    /// Returns the folder or URL.
    #[must_use]
    pub fn place(&self) -> String {
        self.place.to_string()
    }

    fn failed(&self, error: &object_store::Error) -> ArchiveError {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            let more = error.to_string();
            if !why.contains(&more) {
                why = format!("{why}: {more}");
            }
            source = error.source();
        }
        ArchiveError::Store {
            place: self.place(),
            why,
        }
    }

    fn damaged(&self, object: &str, why: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged {
            place: self.place(),
            object: object.to_owned(),
            why: why.into(),
        }
    }

    /// Returns the number of the newest manifest; 0 in an empty archive.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn newest_number(&self) -> Result<u64, ArchiveError> {
        let listed = self.objects.list(Some(&Path::from(MANIFESTS)));
        let numbers = listed.try_fold(0, |newest: u64, object| {
            let name = object.location.filename().unwrap_or_default();
            let number = name.strip_suffix(".json").and_then(|it| it.parse().ok());
            futures::future::ready(Ok(newest.max(number.unwrap_or(0))))
        });
        match numbers.await {
            Ok(newest) => Ok(newest),
            Err(error) if is_absent(&error) => Ok(0),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Returns the newest segment; `None` in an empty archive.
    ///
    /// # Errors
    /// The store does not answer, or the manifest is damaged.
    pub async fn newest(&self) -> Result<Option<Sealed>, ArchiveError> {
        match self.newest_number().await? {
            0 => Ok(None),
            number => self.manifest(number).await.map(Some),
        }
    }

    /// Returns segment `number`.
    ///
    /// # Errors
    /// The store does not answer, or the manifest is missing or damaged.
    pub async fn manifest(&self, number: u64) -> Result<Sealed, ArchiveError> {
        let path = manifest_path(number);
        let bytes = match self.get(&path).await {
            Ok(bytes) => bytes,
            Err(error) if is_absent(&error) => return Err(self.damaged(&path, "it is missing")),
            Err(error) => return Err(self.failed(&error)),
        };
        let manifest: Manifest = serde_json::from_slice(&bytes)
            .map_err(|error| self.damaged(&path, error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(self.damaged(
                &path,
                format!(
                    "it has format {}, and this build reads format {FORMAT}; use the build {}",
                    manifest.format, manifest.build
                ),
            ));
        }
        if manifest.number != number {
            return Err(self.damaged(&path, format!("it says that it is {}", manifest.number)));
        }
        Ok(Sealed {
            manifest,
            digest: digest(&bytes),
        })
    }

    async fn get(&self, path: &str) -> Result<Bytes, object_store::Error> {
        self.objects.get(&Path::from(path)).await?.bytes().await
    }

    async fn checked(&self, object: &Object) -> Result<Bytes, ArchiveError> {
        let bytes = match self.get(&object.path).await {
            Ok(bytes) => bytes,
            Err(error) if is_absent(&error) => {
                return Err(self.damaged(&object.path, "it is missing"));
            }
            Err(error) => return Err(self.failed(&error)),
        };
        if bytes.len() as u64 != object.bytes || digest(&bytes) != object.sha256 {
            return Err(self.damaged(&object.path, "its digest is not that of its manifest"));
        }
        Ok(bytes)
    }

    /// Checks that an object is there, with its size.
    ///
    /// # Errors
    /// The store does not answer, or the object is missing or has another size.
    pub async fn has(&self, object: &Object) -> Result<(), ArchiveError> {
        match self.objects.head(&Path::from(object.path.as_str())).await {
            Ok(found) if found.size == object.bytes => Ok(()),
            Ok(_) => Err(self.damaged(&object.path, "its size is not that of its manifest")),
            Err(error) if is_absent(&error) => Err(self.damaged(&object.path, "it is missing")),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn encoded(&self, manifest: &Manifest) -> Result<Vec<EncodedState>, ArchiveError> {
        let mut states = Vec::with_capacity(manifest.states.len());
        for state in &manifest.states {
            states.push(EncodedState {
                name: state.name.clone(),
                version: state.version,
                bytes: self.checked(&state.object).await?.to_vec(),
            });
        }
        Ok(states)
    }

    /// Returns the states of deciders and read model at the end of a segment.
    ///
    /// # Errors
    /// The store does not answer, or a state is missing, damaged, or of another shape than this build's.
    pub async fn states(&self, manifest: &Manifest) -> Result<States, ArchiveError> {
        let states = self.encoded(manifest).await?;
        let (asof, at) = (manifest.asof, manifest.asof_time);
        Ok(States::decode(&states, asof, at, &manifest.build)?)
    }

    /// Returns all states at the end of a segment.
    ///
    /// # Errors
    /// Those of [`Archive::states`].
    pub async fn folds(&self, manifest: &Manifest) -> Result<Folds, ArchiveError> {
        Folds::decode(&self.encoded(manifest).await?, manifest)
    }

    /// Fetches a segment's file, which goes when it is dropped.
    ///
    /// # Errors
    /// The store does not answer, or the segment is missing or damaged.
    pub async fn segment(&self, manifest: &Manifest) -> Result<NamedTempFile, ArchiveError> {
        let bytes = self.checked(&manifest.segment).await?;
        let mut file = tempfile::Builder::new().suffix(".parquet").tempfile()?;
        file.write_all(&bytes)?;
        Ok(file)
    }

    /// Writes a segment's file, and reads it back.
    ///
    /// # Errors
    /// The store does not answer, or does not return what was written.
    pub async fn put_segment(
        &self,
        bytes: Vec<u8>,
        first: Sequence,
        last: Sequence,
    ) -> Result<Object, ArchiveError> {
        let sha256 = digest(&bytes);
        let path = format!(
            "segments/{:020}-{:020}-{}.parquet",
            first.0,
            last.0,
            &sha256[..SHORT]
        );
        self.put(path, bytes, sha256).await
    }

    /// Writes a state, and reads it back.
    ///
    /// # Errors
    /// Those of [`Archive::put_segment`].
    pub async fn put_state(
        &self,
        state: EncodedState,
        last: Sequence,
    ) -> Result<StateObject, ArchiveError> {
        let sha256 = digest(&state.bytes);
        let path = format!(
            "states/{:020}/{}-v{}-{}.zst",
            last.0,
            state.name,
            state.version,
            &sha256[..SHORT]
        );
        Ok(StateObject {
            name: state.name,
            version: state.version,
            object: self.put(path, state.bytes, sha256).await?,
        })
    }

    async fn put(
        &self,
        path: String,
        bytes: Vec<u8>,
        sha256: String,
    ) -> Result<Object, ArchiveError> {
        let object = Object {
            bytes: bytes.len() as u64,
            sha256,
            path,
        };
        let location = Path::from(object.path.as_str());
        let written = self.objects.put(&location, bytes.into()).await;
        written.map_err(|error| self.failed(&error))?;
        self.checked(&object).await?;
        Ok(object)
    }

    /// Writes a manifest; false if another archiver has written this number.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn seal(&self, manifest: &Manifest) -> Result<bool, ArchiveError> {
        let path = manifest_path(manifest.number);
        let bytes = serde_json::to_vec_pretty(manifest)
            .map_err(|error| self.damaged(&path, error.to_string()))?;
        let options = PutOptions::from(PutMode::Create);
        let location = Path::from(path);
        match self
            .objects
            .put_opts(&location, bytes.into(), options)
            .await
        {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

fn manifest_path(number: u64) -> String {
    format!("{MANIFESTS}/{number:0DIGITS$}.json")
}

fn is_absent(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
}
