//! Fetches a checkpoint from the store to this node.
//!
//! 1. A cached checkpoint is used if it was made since boot and not changed.
//! 2. Otherwise the log's name verifies the manifest, and the manifest each file.
//! 3. The folder is renamed into place, and other cached checkpoints of the job go.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path as FilePath;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use sha2::{Digest, Sha256};

use dormouse_messages::JobId;
use dormouse_sandbox::folder::Below;

use super::manifest::{Described, MOST_BYTES, Manifest};
use super::{Name, Store, StoreError, Task, blocking, cached, digest, hexadecimal};
use crate::checkpoint_snapshot;
use crate::code::tree::Tree;
use crate::layout::{JobFolder, Layout};

const PIECE_BYTES: u64 = 8 << 20;
const PIECES_UNDER_WAY: usize = 4;
const FILES_UNDER_WAY: usize = 8;

impl Store {
    /// Provides the checkpoint `uri` on this node.
    #[must_use]
    pub fn provide(&self, layout: Layout, job: JobFolder, uri: String) -> Task<()> {
        let store = self.clone();
        self.spawn(async move {
            let name = store.named(&job, &uri)?;
            let place = cached::place(&layout, &job, &name);
            let turn = store.turn(&place.path());
            let _alone = turn.lock().await;
            let looked = place.clone();
            if blocking(move || Ok(cached::is_whole(&looked))).await? {
                return Ok(());
            }
            let fetch = Fetch {
                store: &store,
                folder: store.folder(&job, &name),
                uri,
                name,
            };
            fetch.all(&layout, &job, &place).await
        })
    }
}

struct Fetch<'a> {
    store: &'a Store,
    folder: Path,
    uri: String,
    name: Name,
}

impl Fetch<'_> {
    fn wrong(&self, why: impl Into<String>) -> StoreError {
        StoreError::Wrong {
            uri: self.uri.clone(),
            why: why.into(),
        }
    }

    fn failed(&self, what: &str, error: &object_store::Error) -> StoreError {
        match error {
            object_store::Error::NotFound { .. } => {
                self.wrong(format!("the store has no {what} of it"))
            }
            error => self.store.unanswered(error),
        }
    }

    async fn manifest(&self, job: &JobId) -> Result<Manifest, StoreError> {
        let failed = |error| self.failed("manifest", &error);
        let found = self.store.objects.get(&Store::manifest(&self.folder)).await;
        let found = found.map_err(failed)?;
        if found.meta.size > MOST_BYTES {
            return Err(self.wrong("its manifest is longer than any"));
        }
        let text = found.bytes().await.map_err(failed)?;
        if digest(&text) != self.name.sha256 {
            return Err(self.wrong("its manifest is not what was stored"));
        }
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| self.wrong(error.to_string()))?;
        let checked = manifest.check(job, self.name.incarnation);
        checked.map_err(|why| self.wrong(why))?;
        Ok(manifest)
    }

    async fn all(&self, layout: &Layout, job: &JobFolder, place: &Below) -> Result<(), StoreError> {
        let manifest = self.manifest(&job.job).await?;
        let below = layout.checkpoints_below(job);
        let unfinished = format!(".{}", self.name);
        let new = below.join(&unfinished);
        let at = new.clone();
        blocking(move || {
            let _ = fs::remove_dir_all(at.path());
            let made = Tree::new(at.clone(), None);
            made.map(drop)
                .map_err(|error| StoreError::disk("cannot make", &at.path(), &error))
        })
        .await?;
        let (small, long): (Vec<_>, Vec<_>) = manifest
            .files
            .iter()
            .partition(|it| it.bytes <= PIECE_BYTES);
        stream::iter(small.into_iter().map(Ok))
            .try_for_each_concurrent(FILES_UNDER_WAY, |file| self.file(file, &new))
            .await?;
        for file in long {
            self.file(file, &new).await?;
        }
        let (place, name) = (place.clone(), self.name.to_string());
        blocking(move || {
            let placed = checkpoint_snapshot::list(&new)
                .and_then(|()| cached::place_at(&place, &unfinished));
            placed.map_err(|error| StoreError::disk("cannot make", &place.path(), &error))?;
            let only = BTreeSet::from([name]);
            if let Err(error) = cached::remove_others(&below, 0, &only) {
                let path = below.path();
                tracing::warn!(%error, "cannot remove old checkpoints in {}", path.display());
            }
            Ok(())
        })
        .await
    }

    async fn file(&self, file: &Described, to: &Below) -> Result<(), StoreError> {
        let (tree, way) = (to.clone(), file.path.clone());
        let path = to.path().join(&file.path);
        let at = path.clone();
        let mut writing = blocking(move || {
            let made = made_in(&tree, FilePath::new(&way));
            let made = made.map_err(|error| StoreError::disk("cannot write", &at, &error));
            Ok((made?, Sha256::new()))
        })
        .await?;
        let object = Store::file(&self.folder, &file.path);
        let pieces = stream::iter(ranges(file.bytes));
        let mut pieces = pieces
            .map(|range| {
                let object = &object;
                async move {
                    let wanted = range.end - range.start;
                    let piece = self.store.objects.get_range(object, range).await;
                    let piece = piece.map_err(|error| self.failed(&file.path, &error))?;
                    if piece.len() as u64 == wanted {
                        Ok(piece)
                    } else {
                        Err(self.wrong(format!("{} is too short", file.path)))
                    }
                }
            })
            .buffered(PIECES_UNDER_WAY);
        while let Some(piece) = pieces.try_next().await? {
            let at = path.clone();
            writing = blocking(move || {
                let (mut file, mut digest) = writing;
                digest.update(&piece);
                let written = file.write_all(&piece);
                written.map_err(|error| StoreError::disk("cannot write", &at, &error))?;
                Ok((file, digest))
            })
            .await?;
        }
        if hexadecimal(&writing.1.finalize()) == file.sha256 {
            Ok(())
        } else {
            Err(self.wrong(format!("{} is not what was stored", file.path)))
        }
    }
}

fn made_in(tree: &Below, way: &FilePath) -> io::Result<File> {
    Tree::new(tree.clone(), None)?.file(way, false)
}

fn ranges(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let count = bytes.div_ceil(PIECE_BYTES);
    (0..count).map(move |index| {
        let start = index * PIECE_BYTES;
        start..bytes.min(start + PIECE_BYTES)
    })
}
