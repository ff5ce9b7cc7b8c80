//! Readiness of a container: probes the container and reports to the agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;

use dormouse_messages::events::Acknowledged;
use dormouse_runtime::{Clock, SystemClock};

use super::{Announced, Container, LOOK_CLOSELY, What};
use crate::jupyter::Follower;
use crate::listening::until_own;
use crate::members::Answer;
use crate::probe::Probe;

/// Time after which a silent member counts as ready.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Time of frequent looks, because other members wait.
const AWAITED: Duration = Duration::from_secs(10);

/// The question that decides a container's readiness.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Asked {
    /// No question: ready from the start, or known.
    #[default]
    Nothing,
    /// Ready at once, and reported.
    AtOnce,
    Answer(u32),
    Listens(u16),
    Probe(Probe),
    /// A probe of a replica that was ready before.
    ProbeAgain(Probe),
}

/// The readiness state of a container.
#[derive(Debug, Default)]
pub struct Readiness {
    asked: Asked,
    since_start: Duration,
    began: Option<Instant>,
    asking: Option<SpawnHandle>,
    awaited: Option<Instant>,
    follower: Option<Follower>,
}

impl Readiness {
    /// Creates the state for a container that started `since_start` ago.
    #[must_use]
    pub fn new(asked: Asked, since_start: Duration) -> Self {
        Self {
            asked,
            since_start,
            ..Self::default()
        }
    }

    /// Adds a notebook's follower.
    #[must_use]
    pub fn following(self, follower: Option<Follower>) -> Self {
        Self { follower, ..self }
    }

    fn after(&self) -> Duration {
        self.since_start + self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    pub(super) fn is_awaited(&self) -> bool {
        let awaited = self.awaited.is_some_and(|until| Instant::now() < until);
        awaited || matches!(self.asked, Asked::Answer(_))
    }
}

impl Container {
    pub(super) fn ask_if_ready(&mut self, ctx: &mut Context<Self>) {
        self.readiness.began = Some(Instant::now());
        let since_start = self.readiness.since_start;
        self.readiness.asking = match self.readiness.asked.clone() {
            Asked::Nothing => None,
            Asked::AtOnce => {
                self.is_ready();
                None
            }
            Asked::Answer(_) => {
                let rest = SILENCE.saturating_sub(since_start);
                Some(ctx.run_later(rest, |actor, _| actor.is_ready()))
            }
            Asked::Listens(port) => Some(self.await_listening(port, ctx)),
            Asked::Probe(probe) => Some(self.probe(probe, since_start, ctx)),
            Asked::ProbeAgain(probe) => {
                self.follow_activity(ctx);
                Some(self.probe_again(probe, ctx))
            }
        };
    }

    fn follow_activity(&mut self, ctx: &mut Context<Self>) {
        let Some(mut follower) = self.readiness.follower.take() else {
            return;
        };
        let since_start = self.readiness.after();
        let asking = async move {
            let doing = follower.ask(SystemClock.now(), since_start).await;
            (follower, doing)
        };
        let asking = asking.into_actor(self);
        ctx.spawn(asking.map(|(follower, doing), actor, ctx| {
            if actor.lifecycle.exit().is_some() || actor.mark.is_stopped {
                return;
            }
            if let Some(doing) = doing {
                actor.tell(What::Does(doing));
            }
            let pause = follower.pause();
            actor.readiness.follower = Some(follower);
            ctx.run_later(pause, Self::follow_activity);
        }));
    }

    fn await_listening(&self, port: u16, ctx: &mut Context<Self>) -> SpawnHandle {
        let (runtime, id) = (Arc::clone(&self.runtime), self.id.clone());
        let looking = async move { until_own(&*runtime, &id, port).await };
        let looking = looking.into_actor(self);
        ctx.spawn(looking.map(|listens, actor, _| {
            // A container that never listens explains its end.
            if listens.is_some() {
                actor.is_ready();
            }
        }))
    }

    fn probe(&self, probe: Probe, after: Duration, ctx: &mut Context<Self>) -> SpawnHandle {
        let asking = async move {
            let ready = probe.until_ready(after).await;
            (probe, ready)
        };
        let asking = asking.into_actor(self);
        ctx.spawn(asking.map(|(probe, ready), actor, ctx| match ready {
            Ok(after) => {
                actor.tell(What::Ready(after));
                actor.follow_activity(ctx);
                actor.readiness.asking = Some(actor.probe_again(probe, ctx));
            }
            Err(why) => actor.tell(What::Unready(why)),
        }))
    }

    fn probe_again(&self, probe: Probe, ctx: &mut Context<Self>) -> SpawnHandle {
        let asking = async move { probe.until_unready().await };
        let asking = asking.into_actor(self);
        ctx.spawn(asking.map(|why, actor, _| actor.tell(What::Unready(why))))
    }

    fn is_ready(&mut self) {
        self.readiness.asked = Asked::Nothing;
        self.tell(What::Ready(self.readiness.after()));
    }

    /// Stops all probes of a container that must end.
    pub(super) fn ask_no_more(&mut self, ctx: &mut Context<Self>) {
        self.readiness.asked = Asked::Nothing;
        if let Some(asking) = self.readiness.asking.take() {
            ctx.cancel_future(asking);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, ctx: &mut Context<Self>) {
        self.readiness.awaited = None;
        let (generation, state) = (answer.generation, answer.state);
        self.tell(What::Answered(answer));
        if self.readiness.asked != Asked::Answer(generation) {
            return;
        }
        self.ask_no_more(ctx);
        match state {
            Acknowledged::Ready | Acknowledged::Joined => self.is_ready(),
            Acknowledged::Left | Acknowledged::Refused => {
                let why = format!("it does not take part in change {generation}: {state:?}");
                self.tell(What::Unready(why.to_lowercase()));
            }
        }
    }
}

impl Handler<Announced> for Container {
    type Result = ();

    fn handle(&mut self, announced: Announced, ctx: &mut Context<Self>) {
        let lifecycle = &self.lifecycle;
        if !lifecycle.has_started() || lifecycle.exit().is_some() || self.mark.is_stopped {
            return;
        }
        tracing::debug!(container = %self.id, generation = announced.generation, "its members are others");
        if let Some(signal) = announced.signal {
            self.notify(signal, ctx);
        }
        self.readiness.awaited = Some(Instant::now() + AWAITED);
        self.look_in(LOOK_CLOSELY, ctx);
    }
}
