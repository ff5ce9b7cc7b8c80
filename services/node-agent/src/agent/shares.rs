//! Shares of the disk: a tenant that uses more than it may is stopped on this node, with the
//! reason, and nobody else is.

use std::collections::BTreeSet;
use std::time::Duration;

use actix::prelude::*;

use dormouse_messages::ContainerId;

use super::{Agent, EVICT_GRACE};
use crate::container;
use crate::folder::{Below, aside};
use crate::runtime::{Exit, NotStarted};
use crate::usage::used_bytes;

/// Between two looks at what tenants use: a disk takes ten gigabytes meanwhile at most.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What a tenant uses of the containers' directories and of the checkpoints.
fn used(roots: &[Below]) -> u64 {
    roots.iter().filter_map(|root| used_bytes(root).ok()).sum()
}

fn gib(bytes: u64) -> String {
    let hundredths = bytes / ((1 << 30) / 100);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

impl Agent {
    /// Looks at the shares of those that run here, or were stopped for theirs.
    pub(super) fn look_at_shares(&mut self, ctx: &mut Context<Self>) {
        let Some(share) = self.config.keep.tenant_bytes else {
            return;
        };
        let running = self.actors.keys().map(|id| id.job.tenant().to_owned());
        let tenants: BTreeSet<String> = running.chain(self.full.keys().cloned()).collect();
        let layout = self.config.layout();
        let looks = aside(move || {
            let look = |tenant: String| {
                let used = used(&layout.of_tenant(&tenant));
                (tenant, used)
            };
            tenants.into_iter().map(look).collect::<Vec<_>>()
        });
        ctx.spawn(looks.into_actor(self).map(move |looked, actor, ctx| {
            for (tenant, used) in looked.unwrap_or_default() {
                actor.judge(&tenant, used, share);
            }
            ctx.run_later(LOOK_EVERY, Self::look_at_shares);
        }));
    }

    fn judge(&mut self, tenant: &str, used: u64, share: u64) {
        if used <= share {
            if self.full.remove(tenant).is_some() {
                tracing::info!(tenant, used, "its share of the disk has room again");
            }
            return;
        }
        let reason = format!(
            "its tenant {tenant} uses {} of this node's disk and of the checkpoints, and may use {} (the agent's --tenant-storage); remove checkpoints that are not needed, or ask for more",
            gib(used),
            gib(share)
        );
        tracing::warn!(
            tenant,
            used,
            share,
            "stopped: its share of the disk is full"
        );
        for (id, addr) in &self.actors {
            if id.job.tenant() == tenant {
                addr.do_send(container::Evict {
                    reason: reason.clone(),
                    grace: EVICT_GRACE,
                });
            }
        }
        self.full.insert(tenant.to_owned(), reason);
    }

    /// Why nothing of a tenant starts here.
    pub(super) fn share_is_full(&self, id: &ContainerId) -> Result<(), NotStarted> {
        match self.full.get(id.job.tenant()) {
            Some(reason) => Err(reason.as_str().into()),
            None => Ok(()),
        }
    }

    /// An end for a full share is the job's doing, not the platform's: it counts.
    pub(super) fn of_the_job(&self, id: &ContainerId, exit: Exit) -> Exit {
        let is_full = self.full.contains_key(id.job.tenant());
        let of_share = exit
            .reason
            .as_ref()
            .is_some_and(|it| it.contains("--tenant-storage"));
        Exit {
            evicted: exit.evicted && !(is_full && of_share),
            ..exit
        }
    }
}
