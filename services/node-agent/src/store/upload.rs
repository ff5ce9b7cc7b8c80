//! Uploads a complete checkpoint.
//!
//! 1. The digest of the manifest ([`Manifest::of`]) names the folder.
//! 2. Missing files are uploaded, hashed again, and verified by the store's checksums and list.
//! 3. The manifest is written last and read back.
//! 4. The sealed folder becomes the cached copy.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart};
use sha2::{Digest, Sha256};

use dormouse_messages::Incarnation;
use dormouse_sandbox::folder::Below;

use super::manifest::{Described, Manifest, open};
use super::{Name, Store, StoreError, Task, blocking, cached, digest, hexadecimal};
use crate::layout::{JobFolder, Layout};

const PART_BYTES: u64 = 8 << 20;
/// S3's limit on parts per object, with a margin.
const MOST_PARTS: u64 = 9_000;
const PARTS_UNDER_WAY: usize = 4;
const FILES_UNDER_WAY: usize = 8;

struct Reading {
    file: File,
    digest: Sha256,
    left: u64,
}

impl Store {
    /// Stores a complete checkpoint and returns its URI.
    #[must_use]
    pub fn put(
        &self,
        layout: Layout,
        job: JobFolder,
        incarnation: Incarnation,
        folder: Below,
    ) -> Task<String> {
        let store = self.clone();
        self.spawn(async move { store.upload(&layout, &job, incarnation, folder).await })
    }

    async fn upload(
        &self,
        layout: &Layout,
        job: &JobFolder,
        incarnation: Incarnation,
        folder: Below,
    ) -> Result<String, StoreError> {
        let turn = self.turn(&layout.checkpoints_below(job).path());
        let _alone = turn.lock().await;
        let (of, from) = (job.job.clone(), folder.clone());
        let manifest = blocking(move || {
            Manifest::of(&of, incarnation, &from)
                .map_err(|error| StoreError::disk("cannot read", &from.path(), &error))
        })
        .await?;
        let text = serde_json::to_vec(&manifest).unwrap_or_default();
        let name = Name {
            incarnation,
            sha256: digest(&text),
        };
        let at = self.folder(job, &name);
        if !self.has_manifest(&at, &text).await? {
            self.upload_files(&at, &manifest, &folder).await?;
            self.upload_manifest(&at, text).await?;
        }
        let place = cached::place(layout, job, &name);
        let kept = blocking(move || Ok(cached::keep(&folder, &place))).await?;
        if let Err(error) = kept {
            tracing::warn!(%job, %error, "a stored checkpoint is not kept on this node");
        }
        Ok(self.uri(job, &name))
    }

    async fn stored(&self, at: &Path) -> Result<BTreeMap<Path, u64>, StoreError> {
        let listed = self.objects.list(Some(at));
        let sizes = listed.map_ok(|it| (it.location, it.size));
        sizes
            .try_collect()
            .await
            .map_err(|error| self.unanswered(&error))
    }

    async fn has_manifest(&self, at: &Path, text: &[u8]) -> Result<bool, StoreError> {
        match self.objects.head(&Self::manifest(at)).await {
            Ok(found) => Ok(found.size == text.len() as u64),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.unanswered(&error)),
        }
    }

    async fn upload_files(
        &self,
        at: &Path,
        manifest: &Manifest,
        folder: &Below,
    ) -> Result<(), StoreError> {
        let is_there = |stored: &BTreeMap<Path, u64>, file: &Described| {
            stored.get(&Self::file(at, &file.path)) == Some(&file.bytes)
        };
        let stored = self.stored(at).await?;
        let missing = manifest
            .files
            .iter()
            .filter(|file| !is_there(&stored, file));
        let (small, long): (Vec<_>, Vec<_>) = missing.partition(|it| it.bytes <= PART_BYTES);
        stream::iter(small.into_iter().map(Ok))
            .try_for_each_concurrent(FILES_UNDER_WAY, |file| async move {
                let (read, _) = self
                    .read(reading(folder, file).await?, file.bytes, file)
                    .await?;
                let object = Self::file(at, &file.path);
                let put = self.objects.put(&object, read.into()).await;
                put.map(drop).map_err(|error| self.unanswered(&error))
            })
            .await?;
        for file in long {
            self.upload_long(at, file, folder).await?;
        }
        let stored = self.stored(at).await?;
        match manifest.files.iter().find(|file| !is_there(&stored, file)) {
            None => Ok(()),
            Some(file) => Err(StoreError::Unanswered {
                url: self.url.clone(),
                why: format!("{} was taken, and is not there as it was sent", file.path),
            }),
        }
    }

    /// Reads the next piece. The last one requires the described file.
    async fn read(
        &self,
        mut reading: Reading,
        most: u64,
        file: &Described,
    ) -> Result<(Bytes, Reading), StoreError> {
        let (way, sha256) = (file.path.clone(), file.sha256.clone());
        blocking(move || {
            let changed = || StoreError::Changed(way.clone());
            let wanted = usize::try_from(reading.left.min(most)).unwrap_or(usize::MAX);
            let mut piece = vec![0; wanted];
            reading.file.read_exact(&mut piece).map_err(|_| changed())?;
            reading.left -= piece.len() as u64;
            reading.digest.update(&piece);
            let is_last = reading.left == 0;
            if is_last && hexadecimal(&reading.digest.clone().finalize()) != sha256 {
                return Err(changed());
            }
            Ok((Bytes::from(piece), reading))
        })
        .await
    }

    async fn upload_long(
        &self,
        at: &Path,
        file: &Described,
        folder: &Below,
    ) -> Result<(), StoreError> {
        let object = Self::file(at, &file.path);
        let part = PART_BYTES.max(file.bytes / MOST_PARTS + 1);
        let begun = self.objects.put_multipart(&object).await;
        let upload = begun.map_err(|error| self.unanswered(&error))?;
        let size = usize::try_from(part).unwrap_or(usize::MAX);
        let mut upload = WriteMultipart::new_with_chunk_size(upload, size);
        let mut left = reading(folder, file).await?;
        loop {
            let waited = upload.wait_for_capacity(PARTS_UNDER_WAY - 1).await;
            let read = match waited {
                Ok(()) => self.read(left, part, file).await,
                Err(error) => Err(self.unanswered(&error)),
            };
            match read {
                Ok((piece, reading)) => {
                    upload.put(piece);
                    left = reading;
                }
                Err(error) => {
                    let _ = upload.abort().await;
                    return Err(error);
                }
            }
            if left.left == 0 {
                let stored = upload.finish().await;
                return stored.map(drop).map_err(|error| self.unanswered(&error));
            }
        }
    }

    async fn upload_manifest(&self, at: &Path, text: Vec<u8>) -> Result<(), StoreError> {
        let object = Self::manifest(at);
        let options = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from(text.clone());
        match self.objects.put_opts(&object, payload, options).await {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(self.unanswered(&error)),
        }
        let read = async { self.objects.get(&object).await?.bytes().await };
        let read = read.await.map_err(|error| self.unanswered(&error))?;
        if read == text {
            Ok(())
        } else {
            Err(StoreError::Unanswered {
                url: self.url.clone(),
                why: format!("{object} was taken, and is not there as it was sent"),
            })
        }
    }
}

async fn reading(folder: &Below, file: &Described) -> Result<Reading, StoreError> {
    let (folder, file) = (folder.clone(), file.clone());
    blocking(move || {
        let path = folder.path().join(&file.path);
        let opened = open(&folder, &file.path)
            .map_err(|error| StoreError::disk("cannot read", &path, &error))?;
        Ok(Reading {
            file: opened,
            digest: Sha256::new(),
            left: file.bytes,
        })
    })
    .await
}
