//! Removes stored checkpoints. The newest few stay, and all that the log may name, and those of later
//! incarnations.
//!
//! - An upload without a manifest stays within the present incarnation, because it may be under way.
//! - The manifest goes first, so that a partial removal counts as torn.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt};

use dormouse_messages::Incarnation;
use dormouse_sandbox::folder::Below;

use super::{Name, Store, StoreError, Task, blocking, cached};
use crate::layout::{JobFolder, Layout};

/// The checkpoints of a job to keep.
#[derive(Debug, Clone)]
pub struct Keep {
    pub present: Incarnation,
    pub newest: usize,
    pub named: BTreeSet<String>,
}

impl Store {
    /// Removes a job's unneeded checkpoints from the store and the cache. Returns the number removed from the
    /// store.
    #[must_use]
    pub fn retain(&self, layout: &Layout, job: JobFolder, keep: Keep) -> Task<usize> {
        let (store, below) = (self.clone(), layout.checkpoints_below(&job));
        self.spawn(async move {
            let removed = store.remove_old(&below, &job, &keep).await?;
            let shown = below.path();
            blocking(move || {
                cached::remove_others(&below, keep.newest, &keep.named)
                    .map_err(|error| StoreError::disk("cannot remove from", &shown, &error))
            })
            .await?;
            Ok(removed)
        })
    }

    async fn remove_old(
        &self,
        below: &Below,
        job: &JobFolder,
        keep: &Keep,
    ) -> Result<usize, StoreError> {
        // Excludes a concurrent upload, which skips files that exist.
        let turn = self.turn(&below.path());
        let _alone = turn.lock().await;
        let listed = self
            .objects
            .list_with_delimiter(Some(&self.of_job(job)))
            .await;
        let listed = listed.map_err(|error| self.unanswered(&error))?;
        let folders = listed.common_prefixes.iter();
        let names = folders.filter_map(|folder| folder.filename().and_then(Name::parse));
        let names: Vec<_> = names.filter(|it| it.incarnation <= keep.present).collect();
        if names.len() <= keep.newest {
            return Ok(0);
        }
        let (mut whole, mut old) = (Vec::new(), Vec::new());
        for name in names {
            let manifest = Self::manifest(&self.folder(job, &name));
            match self.objects.head(&manifest).await {
                Ok(found) => whole.push((Reverse((name.incarnation, found.last_modified)), name)),
                Err(object_store::Error::NotFound { .. }) => {
                    if name.incarnation < keep.present {
                        old.push(name);
                    }
                }
                Err(error) => return Err(self.unanswered(&error)),
            }
        }
        whole.sort();
        let beyond = whole.into_iter().skip(keep.newest).map(|(_, name)| name);
        old.extend(beyond.filter(|name| !keep.named.contains(&name.to_string())));
        for name in &old {
            self.remove(job, name).await?;
        }
        Ok(old.len())
    }

    async fn remove(&self, job: &JobFolder, name: &Name) -> Result<(), StoreError> {
        let folder = self.folder(job, name);
        match self.objects.delete(&Self::manifest(&folder)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(self.unanswered(&error)),
        }
        let objects = self
            .objects
            .list(Some(&folder))
            .map_ok(|it| it.location)
            .boxed();
        let removed: Result<Vec<_>, _> = self.objects.delete_stream(objects).try_collect().await;
        removed.map(drop).map_err(|error| self.unanswered(&error))
    }
}
