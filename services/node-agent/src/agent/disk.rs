//! The agent's own disk work: makes folders ahead of starts, bounds printed output, removes old files.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use actix::prelude::*;

use dormouse_messages::events::{CHECKPOINTS_RESUMABLE, CheckpointSaved, PlacementDecided};
use dormouse_runtime::{Clock, SystemClock};

use dormouse_agent_core::Stage;

use super::Agent;
use crate::blocking::aside;
use crate::checkpoint_snapshot::retain;
use crate::layout::JobFolder;
use crate::prune::prune;
use crate::rotate::rotate;
use crate::store::retain::Keep;

const PRUNE_EVERY: Duration = Duration::from_secs(3600);

const BOUND_LOGS_EVERY: Duration = Duration::from_secs(1);

impl Agent {
    pub(super) fn bound_logs(&mut self, ctx: &mut Context<Self>) {
        let (layout, bounds) = (self.config.layout(), self.config.keep.log_bounds);
        let running = self.actors.keys().map(|id| layout.container_below(id));
        let running: Vec<_> = running.collect();
        let now = SystemClock.now();
        let bounding = aside(move || {
            for directory in running {
                if let Err(error) = rotate(&directory, bounds, now)
                    && error.kind() != ErrorKind::NotFound
                {
                    let path = directory.path();
                    tracing::warn!(%error, "cannot bound what is printed to {}", path.display());
                }
            }
        });
        ctx.spawn(bounding.into_actor(self).map(|_, _, ctx| {
            ctx.run_later(BOUND_LOGS_EVERY, Self::bound_logs);
        }));
    }

    pub(super) fn prune(&mut self, ctx: &mut Context<Self>) {
        let Some(keep) = self.config.keep.logs else {
            return;
        };
        let (layout, marks) = (self.config.layout(), self.marks.clone());
        self.prune_cached(keep);
        tokio::task::spawn_blocking(move || {
            let removed = prune(&layout, &marks, keep);
            if removed > 0 {
                tracing::info!(removed, "removed what old containers have left");
            }
        });
        ctx.run_later(PRUNE_EVERY, Self::prune);
    }

    fn prune_cached(&self, keep: Duration) {
        if self.store.is_none() {
            return;
        }
        let layout = self.config.layout();
        let jobs = self.core.state().jobs.iter();
        let live = jobs.map(|(id, job)| JobFolder::new(id.clone(), job.admitted));
        let live: BTreeSet<_> = live.collect();
        tokio::task::spawn_blocking(move || {
            let removed = layout.remove_checkpoints(&live, keep);
            if removed > 0 {
                tracing::info!(
                    removed,
                    "removed the checkpoints of jobs that are over; the store has its own"
                );
            }
        });
    }

    pub(super) fn make_directories(&self, placed: &PlacementDecided) {
        if self.core.stage() != Stage::Live {
            return;
        }
        let layout = self.config.layout();
        let ours = placed
            .create
            .iter()
            .filter(|it| it.node == self.config.node);
        let jobs = &self.core.state().jobs;
        let folders: Vec<_> = ours
            .filter_map(|it| {
                let job = JobFolder::new(it.job.clone(), jobs.get(&it.job)?.admitted);
                let checkpoint = layout.checkpoint_below(&job, it.incarnation);
                Some((job, [layout.container_below(&it.container()), checkpoint]))
            })
            .collect();
        if !folders.is_empty() {
            tokio::spawn(aside(move || {
                for (job, own) in folders {
                    if layout.claim(&job).is_ok() {
                        own.iter().for_each(|folder| drop(folder.make()));
                    }
                }
            }));
        }
    }

    pub(super) fn retain_checkpoints(&self, saved: &CheckpointSaved) {
        if self.core.stage() != Stage::Live || saved.node != self.config.node {
            return;
        }
        let Some(job) = self.core.state().jobs.get(&saved.job) else {
            return;
        };
        let resumed = job.partitions.get(&saved.incarnation);
        let resumed = resumed.and_then(|partition| partition.phase.start());
        let resumed = resumed.and_then(|start| start.resumed_from.as_ref());
        let named = job.resumable.iter().chain(resumed);
        let named = named.filter_map(|uri| uri.rsplit('/').next().map(str::to_owned));
        let named: BTreeSet<String> = named.collect();
        let folder = JobFolder::new(saved.job.clone(), job.admitted);
        let keep = self.config.keep.checkpoints.max(CHECKPOINTS_RESUMABLE);
        if let Some(store) = &self.store {
            let keep = Keep {
                present: saved.incarnation,
                newest: keep,
                named: named.clone(),
            };
            let retained = store.retain(&self.config.layout(), folder.clone(), keep);
            let job = saved.job.clone();
            tokio::spawn(async move {
                if let Err(error) = retained.outcome().await {
                    tracing::warn!(%job, %error, "old checkpoints are not removed from the store");
                }
            });
        }
        let (below, present) = (
            self.config.layout().checkpoints_below(&folder),
            saved.incarnation,
        );
        tokio::spawn(aside(move || {
            if let Err(error) = retain(&below, present, keep, &named) {
                let path = below.path();
                tracing::warn!(%error, "cannot remove old checkpoints in {}", path.display());
            }
        }));
    }
}
