//! Shares of the disk. A tenant above its share is stopped on this node, without effect on others.
//!
//! - The operator grants shares on the log (`--max-storage`), or gives the agent one for all
//!   (`--tenant-storage`).
//! - Usage counts a tenant's files and checkpoints, the engine's data, and unlinked open files.
//! - Usage that the tenant makes uncountable counts as exceeded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use actix::prelude::*;
use futures::future::join_all;

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::ContainerId;
use dormouse_sandbox::folder::{Below, User};

use super::{Agent, EVICT_GRACE};
use crate::blocking::aside;
use crate::config::Retention;
use crate::container;
use crate::plan;
use crate::usage::{Count, FILES_LIMIT, Uncounted, Unlinked, Usage, unlinked};

const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Time per check and tenant. A slow file system must not block other tenants' checks.
const COUNT_WITHIN: Duration = Duration::from_secs(3);

/// Prefix of the reason for a share from flags.
const TOLD: &str = "(the agent's --tenant-";

const GRANTED: &str = "--max-storage)";

fn is_of_share(reason: &str) -> bool {
    reason.contains(TOLD) || reason.contains(GRANTED)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    bytes: Option<u64>,
    files: u64,
    granted: bool,
}

impl Share {
    fn of(keep: &Retention, granted: Option<u64>) -> Option<Self> {
        let bytes = granted.or(keep.tenant_bytes);
        let is_bounded = bytes.is_some() || keep.tenant_files.is_some();
        is_bounded.then(|| Self {
            bytes,
            files: keep.tenant_files.unwrap_or(FILES_LIMIT),
            granted: granted.is_some(),
        })
    }

    fn bound(self, tenant: &str) -> String {
        if self.granted {
            format!("(dormouse tenant grant {tenant} {GRANTED}")
        } else {
            format!("{TOLD}storage)")
        }
    }

    fn exceeded(self, tenant: &str, used: &Result<Usage, Uncounted>) -> Option<String> {
        match (used, self.bytes) {
            (Ok(used), Some(bytes)) if used.bytes > bytes => Some(format!(
                "uses {} of this node's disk and of the checkpoints, and may use {} {}; remove checkpoints that are not needed, or ask for more",
                gib(used.bytes),
                gib(bytes),
                self.bound(tenant)
            )),
            (Ok(used), _) if used.files > self.files => Some(format!(
                "has {} files on this node's disk and in the checkpoints, and may have {} {TOLD}files); remove what is not needed, or ask for more",
                used.files, self.files
            )),
            (Ok(_), _) => None,
            (Err(why @ (Uncounted::TooMany(_) | Uncounted::TooManyOpen)), _) => Some(format!(
                "has {why} on this node's disk and in the checkpoints {TOLD}files); remove what is not needed, or ask for more"
            )),
            (Err(why @ (Uncounted::TooDeep | Uncounted::Closed)), _) => Some(format!(
                "has {why}, so that its share is taken as full {}; remove them",
                self.bound(tenant)
            )),
            (Err(Uncounted::Disk(_)), _) => None,
        }
    }
}

fn gib(bytes: u64) -> String {
    let hundredths = bytes / ((1 << 30) / 100);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

struct Looked {
    tenant: String,
    share: Share,
    roots: Vec<Below>,
    user: Option<User>,
    count: Option<Count>,
}

impl Looked {
    fn used(self, held: &Unlinked) -> Used {
        let new = || Count::new(&self.roots, self.share.files);
        let mut count = self.count.unwrap_or_else(new);
        let counted = count.go_on(Instant::now() + COUNT_WITHIN);
        let held = self
            .user
            .map_or(Ok(Usage::default()), |user| held.of(user.uid));
        let used = counted.and_then(|is_whole| {
            let (named, held) = (count.so_far(), held?);
            let used = Usage {
                bytes: named.bytes.saturating_add(held.bytes),
                files: named.files.saturating_add(held.files),
            };
            Ok((used, is_whole))
        });
        let rest = matches!(used, Ok((_, false))).then_some(count);
        Used {
            tenant: self.tenant,
            share: self.share,
            used: used.map(|(used, _)| used),
            rest,
        }
    }
}

struct Used {
    tenant: String,
    share: Share,
    used: Result<Usage, Uncounted>,
    rest: Option<Count>,
}

fn used(looked: Vec<Looked>) -> Vec<Used> {
    let uids = looked.iter().filter_map(|it| it.user.map(|user| user.uid));
    let roots = looked.iter().flat_map(|it| it.roots.iter().cloned());
    let held = unlinked(&uids.collect(), &roots.collect::<Vec<_>>());
    looked.into_iter().map(|it| it.used(&held)).collect()
}

impl Agent {
    pub(super) fn look_at_shares(&mut self, ctx: &mut Context<Self>) {
        let (keep, grants) = (self.config.keep, &self.core.state().grants);
        self.full
            .retain(|tenant, _| Share::of(&keep, grants.max_storage(tenant)).is_some());
        let mut looked = self.those_to_look_at();
        if looked.is_empty() {
            // Later tenants may have a bound, and grants change.
            ctx.run_later(LOOK_EVERY, Self::look_at_shares);
            return;
        }
        let runtime = self.runtime.clone();
        let running: Vec<ContainerId> = self.actors.keys().cloned().collect();
        let looks = async move {
            let running = running.into_iter();
            let running: Vec<_> = running
                .filter(|id| looked.contains_key(id.job.tenant()))
                .collect();
            let elsewhere = running.iter().map(|id| runtime.writes_elsewhere(id));
            for (id, folders) in running.iter().zip(join_all(elsewhere).await) {
                let folders = folders.into_iter().map(|folder| Below::new(folder, ""));
                if let Some(of) = looked.get_mut(id.job.tenant()) {
                    of.roots.extend(folders);
                }
            }
            let looked = looked.into_values().collect();
            aside(move || used(looked)).await
        };
        ctx.spawn(looks.into_actor(self).map(move |looked, actor, ctx| {
            for looked in looked.unwrap_or_default() {
                actor.judge(&looked);
                if let Some(rest) = looked.rest {
                    actor.counts.insert(looked.tenant, rest);
                }
            }
            ctx.run_later(LOOK_EVERY, Self::look_at_shares);
        }));
    }

    fn those_to_look_at(&mut self) -> BTreeMap<String, Looked> {
        let mut counts = std::mem::take(&mut self.counts);
        let running = self.actors.keys().map(|id| id.job.tenant().to_owned());
        let tenants: BTreeSet<String> = running.chain(self.full.keys().cloned()).collect();
        let layout = self.config.layout();
        let state = self.core.state();
        let keep = &self.config.keep;
        let looked = tenants.into_iter().filter_map(|tenant| {
            let share = Share::of(keep, state.grants.max_storage(&tenant))?;
            let granted = state.grants.of(&tenant);
            let user = plan::user(&self.config, state, &granted, &tenant);
            let looked = Looked {
                share,
                roots: layout.of_tenant(&tenant).into(),
                user: user.ok().flatten(),
                count: counts.remove(&tenant),
                tenant: tenant.clone(),
            };
            Some((tenant, looked))
        });
        looked.collect()
    }

    fn judge(&mut self, looked: &Used) {
        let Used {
            tenant,
            share,
            used,
            rest,
        } = looked;
        if let Err(Uncounted::Disk(error)) = used {
            tracing::warn!(tenant, %error, "what it uses of the disk cannot be counted");
            return;
        }
        let Some(why) = share.exceeded(tenant, used) else {
            if rest.is_some() {
                return;
            }
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
        self.full.insert(tenant.clone(), reason);
    }

    pub(super) fn share_is_full(&self, id: &ContainerId) -> Result<(), NotStarted> {
        match self.full.get(id.job.tenant()) {
            Some(reason) => Err(reason.as_str().into()),
            None => Ok(()),
        }
    }

    /// Blames the job for an end by a full share, so that it counts as an attempt.
    pub(super) fn of_the_job(&self, id: &ContainerId, exit: Exit) -> Exit {
        let is_full = self.full.contains_key(id.job.tenant());
        let of_share = exit.reason.as_deref().is_some_and(is_of_share);
        Exit {
            evicted: exit.evicted && !(is_full && of_share),
            ..exit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_counts_in_place_of_what_the_agent_was_told() {
        let mut keep = Retention::default();
        assert_eq!(Share::of(&keep, None), None);
        let granted = Share::of(&keep, Some(2 << 30)).expect("it is bounded");
        keep.tenant_bytes = Some(1 << 30);
        let told = Share::of(&keep, None).expect("it is bounded");
        assert_eq!(Share::of(&keep, Some(2 << 30)), Some(granted));
        let used = |bytes| Ok(Usage { bytes, files: 1 });
        let between = used(3 << 29);
        assert_eq!(granted.exceeded("ads", &between), None);
        let why = told.exceeded("ads", &between).expect("it is full");
        assert!(
            why.contains("1.00 GiB (the agent's --tenant-storage)"),
            "{why}"
        );
        let why = granted.exceeded("ads", &used(3 << 30)).expect("it is full");
        let named = "2.00 GiB (dormouse tenant grant ads --max-storage)";
        assert!(why.contains(named) && is_of_share(&why), "{why}");
    }
}
