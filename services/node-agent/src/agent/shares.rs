//! Shares of the disk: a tenant that uses more than it may is stopped on this node, with the
//! reason, and nobody else is.
//!
//! - What is counted: everything of a tenant's in the agent's folders and among the checkpoints; what
//!   the engine keeps for its containers; files without a name that its processes hold.
//! - What cannot be counted for the tenant's doing counts as too much.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actix::prelude::*;
use futures::future::join_all;

use dormouse_messages::ContainerId;

use super::{Agent, EVICT_GRACE};
use crate::config::Retention;
use crate::container;
use crate::folder::{Below, aside};
use crate::plan;
use crate::runtime::{Exit, NotStarted, User};
use crate::usage::{FILES_LIMIT, Uncounted, Unlinked, Usage, unlinked, usage};

/// Between two looks at what tenants use: a disk takes ten gigabytes meanwhile at most.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Begins what names the share, in every reason that is given for it.
const NAMED: &str = "(the agent's --tenant-";

/// What a tenant may use.
#[derive(Debug, Clone, Copy)]
struct Share {
    bytes: Option<u64>,
    files: u64,
}

impl Share {
    fn of(keep: &Retention) -> Option<Self> {
        let is_bounded = keep.tenant_bytes.is_some() || keep.tenant_files.is_some();
        is_bounded.then(|| Self {
            bytes: keep.tenant_bytes,
            files: keep.tenant_files.unwrap_or(FILES_LIMIT),
        })
    }

    /// Why that is too much, after "its tenant".
    fn exceeded(self, used: &Result<Usage, Uncounted>) -> Option<String> {
        match (used, self.bytes) {
            (Ok(used), Some(bytes)) if used.bytes > bytes => Some(format!(
                "uses {} of this node's disk and of the checkpoints, and may use {} {NAMED}storage); remove checkpoints that are not needed, or ask for more",
                gib(used.bytes),
                gib(bytes)
            )),
            // Those that have no name are not among those that were walked over.
            (Ok(used), _) if used.files > self.files => Some(format!(
                "has {} files on this node's disk and in the checkpoints, and may have {} {NAMED}files); remove what is not needed, or ask for more",
                used.files, self.files
            )),
            (Ok(_), _) => None,
            (Err(why @ (Uncounted::TooMany(_) | Uncounted::TooManyOpen)), _) => Some(format!(
                "has {why} on this node's disk and in the checkpoints {NAMED}files); remove what is not needed, or ask for more"
            )),
            (Err(why @ (Uncounted::TooDeep | Uncounted::Closed)), _) => Some(format!(
                "has {why}, so that its share is taken as full {NAMED}storage); remove them"
            )),
            (Err(Uncounted::Disk(_)), _) => None,
        }
    }
}

fn gib(bytes: u64) -> String {
    let hundredths = bytes / ((1 << 30) / 100);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

/// Whose use is looked at.
struct Looked {
    tenant: String,
    roots: Vec<Below>,
    user: Option<User>,
}

impl Looked {
    fn used(&self, share: Share, held: &Unlinked) -> Result<Usage, Uncounted> {
        let named = usage(&self.roots, share.files)?;
        let held = match self.user {
            Some(user) => held.of(user.uid)?,
            None => Usage::default(),
        };
        Ok(Usage {
            bytes: named.bytes + held.bytes,
            files: named.files + held.files,
        })
    }
}

/// Blocking.
fn used(looked: Vec<Looked>, share: Share) -> Vec<(String, Result<Usage, Uncounted>)> {
    let uids = looked.iter().filter_map(|it| it.user.map(|user| user.uid));
    let roots = looked.iter().flat_map(|it| it.roots.iter().cloned());
    let held = unlinked(&uids.collect(), &roots.collect::<Vec<_>>());
    let used = looked.into_iter().map(|it| {
        let used = it.used(share, &held);
        (it.tenant, used)
    });
    used.collect()
}

impl Agent {
    /// Looks at the shares of those that run here, or were stopped for theirs.
    pub(super) fn look_at_shares(&mut self, ctx: &mut Context<Self>) {
        let Some(share) = Share::of(&self.config.keep) else {
            return;
        };
        let mut looked = self.those_to_look_at();
        let runtime = self.runtime.clone();
        let running: Vec<ContainerId> = self.actors.keys().cloned().collect();
        let looks = async move {
            let elsewhere = running.iter().map(|id| runtime.writes_elsewhere(id));
            for (id, folders) in running.iter().zip(join_all(elsewhere).await) {
                let folders = folders.into_iter().map(|folder| Below::new(folder, ""));
                if let Some(of) = looked.get_mut(id.job.tenant()) {
                    of.roots.extend(folders);
                }
            }
            let looked = looked.into_values().collect();
            aside(move || used(looked, share)).await
        };
        ctx.spawn(looks.into_actor(self).map(move |looked, actor, ctx| {
            for (tenant, used) in looked.unwrap_or_default() {
                actor.judge(&tenant, &used, share);
            }
            ctx.run_later(LOOK_EVERY, Self::look_at_shares);
        }));
    }

    fn those_to_look_at(&self) -> BTreeMap<String, Looked> {
        let running = self.actors.keys().map(|id| id.job.tenant().to_owned());
        let tenants: BTreeSet<String> = running.chain(self.full.keys().cloned()).collect();
        let layout = self.config.layout();
        let state = self.core.state();
        let looked = tenants.into_iter().map(|tenant| {
            let granted = state.grants.of(&tenant);
            let user = plan::user(&self.config, state, &granted, &tenant);
            let looked = Looked {
                roots: layout.of_tenant(&tenant).into(),
                user: user.ok().flatten(),
                tenant: tenant.clone(),
            };
            (tenant, looked)
        });
        looked.collect()
    }

    fn judge(&mut self, tenant: &str, used: &Result<Usage, Uncounted>, share: Share) {
        if let Err(Uncounted::Disk(error)) = used {
            tracing::warn!(tenant, %error, "what it uses of the disk cannot be counted");
            return;
        }
        let Some(why) = share.exceeded(used) else {
            if self.full.remove(tenant).is_some() {
                tracing::info!(tenant, ?used, "its share of the disk has room again");
            }
            return;
        };
        tracing::warn!(tenant, %why, "stopped: its share of the disk is full");
        let reason = format!("its tenant {tenant} {why}");
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
        let of_share = exit.reason.as_ref().is_some_and(|it| it.contains(NAMED));
        Exit {
            evicted: exit.evicted && !(is_full && of_share),
            ..exit
        }
    }
}
