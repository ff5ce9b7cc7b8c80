//! Adopts containers that run, or ended, before the agent starts.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use dormouse_agent_core::Adopted;
use dormouse_messages::{ContainerId, Sequence};

use super::{Agent, EVICT_GRACE};
use crate::blocking::aside_in_time;
use crate::container::{self, What};
use crate::container_record::ContainerRecord;
use crate::runtime::Found;
use crate::watch::Look;

const LIST_AGAIN: Duration = Duration::from_secs(1);

impl Agent {
    pub(super) fn list(&mut self, ctx: &mut Context<Self>) {
        let runtime = Arc::clone(&self.runtime);
        let list = async move { runtime.recover().await };
        ctx.spawn(list.into_actor(self).map(|found, actor, ctx| match found {
            Ok(found) => actor.look_at_the_ended(found, ctx),
            Err(error) => {
                tracing::error!(%error, "what runs on this node is not known; trying again");
                ctx.run_later(LIST_AGAIN, Self::list);
            }
        }));
    }

    fn look_at_the_ended(&mut self, found: Vec<Found>, ctx: &mut Context<Self>) {
        let ended = found.iter().filter(|found| found.status.is_err());
        let looks: Vec<_> = ended
            .map(|found| self.record(&found.container, found.request))
            .filter(|mark| !self.may_have_to_store(mark))
            .filter_map(|mark| {
                let id = mark.container.clone();
                let (mut watch, orders) = (self.watch(&mark, true)?, self.orders(&id));
                Some(async move {
                    let is_coordinator = watch.is_coordinator();
                    let look = aside_in_time(move || watch.look(&orders)).await;
                    (id, is_coordinator, look)
                })
            })
            .collect();
        let looked = futures::future::join_all(looks);
        ctx.spawn(looked.into_actor(self).map(|looked, actor, ctx| {
            for (id, is_coordinator, look) in looked {
                let look = look.unwrap_or_else(|| {
                    tracing::error!(container = %id, "the file system of what it has left does not answer");
                    Look::default()
                });
                actor.last_look(&id, is_coordinator, look);
            }
            let adopted: Vec<Adopted> = found
                .into_iter()
                .map(|found| actor.adopt(found, ctx))
                .collect();
            actor.core.listed(adopted);
            actor.alive.know();
            actor.clear_members();
            actor.end_former_execs();
            actor.act(ctx);
            actor.bound_logs(ctx);
            actor.prune(ctx);
            actor.look_at_shares(ctx);
            actor.look_at_gpus(ctx);
        }));
    }

    /// Returns a container's record, or a new one if the disk lost the record.
    pub(super) fn record(&self, id: &ContainerId, request: Sequence) -> ContainerRecord {
        let mark = self.marks.get(id, request);
        mark.unwrap_or_else(|| {
            let job = self.core.state().jobs.get(&id.job);
            let admitted = job.map(|job| job.admitted).unwrap_or_default();
            ContainerRecord::new(id.clone(), request).of(admitted)
        })
    }

    fn may_have_to_store(&self, mark: &ContainerRecord) -> bool {
        self.store.is_some()
            && self
                .watch(mark, true)
                .is_some_and(|watch| watch.is_coordinator())
    }

    fn adopt(&mut self, found: Found, ctx: &mut Context<Self>) -> Adopted {
        let id = found.container;
        let mark = self.record(&id, found.request);
        let mut evicting = false;
        let status = match found.status {
            Ok(pid) => {
                tracing::info!(container = %id, pid, "adopted");
                self.share_gpus_again(&id);
                let watch = self.watch(&mark, true);
                let evicted = mark.evicted.clone();
                let addr = self.container(mark, true, watch, ctx);
                self.let_go(&id);
                if let Some(reason) = evicted {
                    addr.do_send(container::Evict {
                        reason,
                        grace: EVICT_GRACE,
                    });
                    evicting = true;
                }
                Ok(pid)
            }
            Err(exit) if self.may_have_to_store(&mark) => {
                // Store the checkpoint before reporting the exit. Until then the container counts as running.
                let watch = self.watch(&mark, true);
                let exit = exit.with_eviction(mark.evicted.clone());
                let addr = self.container(mark, true, watch, ctx);
                addr.do_send(container::Ended(exit));
                Ok(0)
            }
            Err(exit) => Err(exit.with_eviction(mark.evicted)),
        };
        Adopted {
            container: id,
            request: found.request,
            status,
            evicting,
        }
    }

    fn last_look(&mut self, id: &ContainerId, is_coordinator: bool, look: Look) {
        if !look.tasks.is_empty() {
            self.note(id, What::TasksEnded(look.tasks));
        }
        if let Some(answer) = look.answer {
            self.note(id, What::Answered(answer));
        }
        if let Some(line) = look.progress {
            self.note(id, What::Progress(line));
        }
        let save = self
            .core
            .state()
            .partition(id)
            .and_then(|(_, partition)| partition.save)
            .filter(|_| is_coordinator);
        match (look.checkpoint, save) {
            (Some(complete), save) => {
                let answer = save.map(|request| (request, Duration::ZERO));
                self.note(id, What::Saved(complete, answer));
            }
            (None, Some(request)) => {
                let why = "it exited without a new complete checkpoint".to_owned();
                self.note(id, What::SaveFailed(Some(request), why));
            }
            (None, None) => {}
        }
    }
}
