//! The messages that the agent's actor handles.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use dormouse_agent_core::Exit;
use dormouse_agent_core::lease_holder::News;
use dormouse_agent_core::{Lease, Stage};
use dormouse_messages::events::{NodeDrained, PartitionWarned};
use dormouse_messages::{ContainerId, Event};

use super::Agent;
use crate::AgentError;
use crate::config::Allocation;
use crate::container::{self, Note, What};
use crate::lease::LeaseNews;
use crate::plan;
use crate::report::{AppendFailed, Appended};
use crate::wire::{Heard, OutletError};

const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// A batch of events from the log.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Batch(pub Vec<Heard>);

/// The log went back behind the folded position.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LogLost;

/// The runtime's notice that a container ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RuntimeExit(pub ContainerId, pub Exit);

/// The node's time ends: it is drained.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain(pub Allocation);

/// Leaves in order, without ending containers.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Leave;

impl Actor for Agent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // A thousand containers may send notes at once.
        ctx.set_mailbox_capacity(4096);
    }
}

impl Agent {
    fn warn(&self, warned: &PartitionWarned) {
        if self.core.stage() != Stage::Live {
            return;
        }
        let Ok(signal) = plan::warning_signal(&warned.signal) else {
            return;
        };
        let ours = |id: &&ContainerId| id.job == warned.job && id.incarnation == warned.incarnation;
        for addr in self.actors.iter().filter(|(id, _)| ours(id)).map(|it| it.1) {
            addr.do_send(container::Warn(signal));
        }
    }

    fn keep(&mut self) -> impl Future<Output = ()> + use<> {
        let (kept, stored_at) = (self.kept.take(), self.stored_at);
        let state = self.core.state().clone();
        async move {
            if let Some(kept) = kept {
                kept.save_last(state, stored_at).await;
            }
        }
    }
}

impl Handler<Batch> for Agent {
    type Result = ();

    fn handle(&mut self, Batch(heard): Batch, ctx: &mut Context<Self>) {
        let mut too_new = None;
        for heard in heard {
            match heard {
                Heard::Event(recorded) => {
                    too_new = too_new.or(self.core.hear(&recorded));
                    self.stored_at = recorded.stored_at;
                    match recorded.event() {
                        Some(Event::PlacementDecided(placed)) => self.make_directories(placed),
                        Some(Event::CheckpointSaved(saved)) => self.retain_checkpoints(saved),
                        Some(Event::PartitionWarned(warned)) => self.warn(warned),
                        Some(Event::JobRevised(revised)) => self.revise_gpus(revised),
                        Some(Event::ContainerReady(ready)) => self.let_all_go(ready),
                        _ => {}
                    }
                }
                Heard::CaughtUp(_) => self.core.caught_up(),
            }
        }
        if let Some(type_name) = too_new {
            self.finish(Err(AgentError::TooNew(type_name)));
            return;
        }
        self.follow_policy();
        let is_live = self.core.stage() == Stage::Live;
        if let Some(kept) = &mut self.kept {
            if kept.is_of_former && is_live && !self.core.has_set_back() {
                kept.replace_former(self.core.state(), self.stored_at);
            }
            kept.save_now_and_then(self.core.state(), self.stored_at);
        }
        self.act(ctx);
    }
}

impl Handler<Drain> for Agent {
    type Result = ();

    fn handle(&mut self, Drain(allocation): Drain, ctx: &mut Context<Self>) {
        let event = NodeDrained {
            node: self.config.node.clone(),
            reason: Some("its allocation ends".to_owned()),
            deadline_s: Some(allocation.deadline_s()),
        };
        self.report(event, Vec::new());
        self.act(ctx);
    }
}

impl Handler<Note> for Agent {
    type Result = ();

    fn handle(&mut self, note: Note, ctx: &mut Context<Self>) {
        let Note { container, what } = note;
        if let (What::Ready(after), Some(token)) = (&what, self.notebook_token(&container)) {
            let after = *after;
            let reading = async move { token.read().await.ok() };
            ctx.spawn(reading.into_actor(self).map(move |token, actor, ctx| {
                if actor.actors.contains_key(&container) {
                    actor.ready(&container, after, token.as_deref());
                    actor.act(ctx);
                }
            }));
            return;
        }
        self.note(&container, what);
        self.act(ctx);
    }
}

impl Handler<RuntimeExit> for Agent {
    type Result = ();

    fn handle(&mut self, RuntimeExit(id, exit): RuntimeExit, ctx: &mut Context<Self>) {
        match self.actors.get(&id) {
            Some(addr) => addr.do_send(container::Ended(exit)),
            // The exit has overtaken its own adoption.
            None if self.core.stage() == Stage::Listing => {
                let again = RuntimeExit(id, exit);
                ctx.notify_later(again, Duration::from_millis(10));
            }
            None => {}
        }
    }
}

impl Handler<LeaseNews> for Agent {
    type Result = ();

    fn handle(&mut self, LeaseNews(news): LeaseNews, ctx: &mut Context<Self>) {
        match news {
            News::Held => {
                if self.core.lease(Lease::Held) {
                    tracing::info!(node = %self.config.node, "the lease is held again");
                }
            }
            News::Fence => {
                tracing::error!(node = %self.config.node, "the lease could not be renewed in time: ending all containers of this node before another may run them");
                self.core.lease(Lease::Fence);
            }
            News::Superseded(by) => {
                self.finish(Err(AgentError::Superseded(format!(
                    "the lease is held by {by}"
                ))));
                return;
            }
        }
        self.act(ctx);
    }
}

impl Handler<Appended> for Agent {
    type Result = ();

    fn handle(&mut self, _: Appended, _: &mut Context<Self>) {
        self.core.stored();
        self.send_report();
        self.unsettled.send_replace(self.core.unsettled());
    }
}

impl Handler<AppendFailed> for Agent {
    type Result = ();

    fn handle(&mut self, AppendFailed(error): AppendFailed, _: &mut Context<Self>) {
        self.finish(Err(match error {
            OutletError::Conflict(why) => AgentError::Superseded(why),
            OutletError::Denied(why) | OutletError::Refused(why) => AgentError::Denied(why),
        }));
    }
}

impl Handler<LogLost> for Agent {
    type Result = ();

    /// Saves the state, so that the next agent ends containers whose events the log lost.
    fn handle(&mut self, _: LogLost, ctx: &mut Context<Self>) {
        let kept = self.keep().into_actor(self);
        ctx.spawn(kept.map(|(), actor, _| {
            actor.finish(Err(dormouse_runtime::LogWentBack.into()));
        }));
    }
}

impl Handler<Leave> for Agent {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Context<Self>) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.if_gone(None);
        }
        self.unsettled.send_replace(self.core.unsettled());
        let mut unsettled = self.unsettled.subscribe();
        let drain = async move {
            let drained = unsettled.wait_for(|left| *left == 0);
            let _ = tokio::time::timeout(LEAVE_WITHIN, drained).await;
        };
        let runtime = Arc::clone(&self.runtime);
        let leave = async move {
            drain.await;
            runtime.leave().await;
        };
        ctx.spawn(
            leave
                .into_actor(self)
                .then(|(), actor, _| actor.keep().into_actor(actor))
                .map(|(), actor, _| actor.finish(Ok(()))),
        );
    }
}
