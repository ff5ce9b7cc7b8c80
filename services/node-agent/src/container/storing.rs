//! Reports a complete checkpoint, after its upload if there is a store.
//!
//! - One upload runs at a time. A requested checkpoint replaces an unrequested one, and only the newest
//!   unrequested one waits.
//! - The exit waits for the upload, but an eviction does not.

use std::time::Instant;

use actix::prelude::*;

use dormouse_messages::Sequence;

use super::{Container, What};
use crate::layout::Layout;
use crate::store::{Store, StoreError};
use crate::watch::Saved;

/// The storage of a container's checkpoints.
#[derive(Debug, Clone)]
pub struct Storage {
    pub store: Store,
    pub layout: Layout,
}

pub(super) struct Storing {
    saved: Saved,
    answer: Option<(Sequence, Instant)>,
    waiting: SpawnHandle,
}

impl Container {
    pub(super) const fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    pub(super) fn keep(
        &mut self,
        saved: Saved,
        answer: Option<(Sequence, Instant)>,
        ctx: &mut Context<Self>,
    ) {
        self.last_saved = Some(Instant::now());
        let Some(Storage { store, layout }) = self.storage.clone() else {
            let took = answer.map(|(request, since)| (request, since.elapsed()));
            self.tell(What::Saved(saved, took));
            return;
        };
        if let Some(storing) = self.storing.take() {
            ctx.cancel_future(storing.waiting);
        }
        let (folder, incarnation) = (self.mark.folder(), self.id.incarnation);
        let upload = store.put(layout, folder, incarnation, saved.below.clone());
        let stored = upload.outcome().into_actor(self);
        let waiting = ctx.spawn(stored.map(|stored, actor, ctx| actor.stored(stored, ctx)));
        self.storing = Some(Storing {
            saved,
            answer,
            waiting,
        });
    }

    fn stored(&mut self, stored: Result<String, StoreError>, ctx: &mut Context<Self>) {
        let Some(storing) = self.storing.take() else {
            return;
        };
        let mut answer = storing.answer;
        if answer.is_none() && self.lifecycle.exit().is_some() {
            answer = self.saving.take().map(|it| (it.request, it.since));
        }
        match stored {
            Ok(uri) => {
                let saved = Saved {
                    stored: Some(uri),
                    ..storing.saved
                };
                let took = answer.map(|(request, since)| (request, since.elapsed()));
                self.tell(What::Saved(saved, took));
            }
            Err(why) => self.not_stored(answer.map(|(request, _)| request), &why),
        }
        self.say_what_is_due(false, ctx);
        self.finish(ctx);
    }

    fn not_stored(&mut self, request: Option<Sequence>, why: &StoreError) {
        let reason = format!("not stored: {why}");
        if request.is_some() {
            self.lifecycle.leaves(false);
        } else if self.saving.is_some() {
            // A report would pass for the answer to the request.
            tracing::warn!(container = %self.id, reason, "a checkpoint is given up");
            self.problem = Some(reason);
            return;
        }
        self.tell(What::SaveFailed(request, reason));
    }
}
