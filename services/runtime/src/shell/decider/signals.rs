//! Signals of the decider actor: lease, observations, stop.

use std::time::Instant;

use actix::fut::wrap_future;
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler};
use dormouse_messages::Decider;

use super::DeciderActor;
use crate::lease::LeaseState;
use crate::shell::appending::AppenderActor;
use crate::shell::follower::{Batch, WentBack};
use crate::shell::options::ServiceError;
use crate::snapshot::{Snapshot, Snapshots};

impl<D: Decider> DeciderActor<D> {
    pub(super) fn save(&mut self, snapshot: Snapshot<D::State>, context: &mut Context<Self>) {
        let snapshots = self.snapshots.clone();
        let writing = tokio::task::spawn_blocking(move || {
            if let Some(snapshots) = snapshots {
                write(&snapshots, &snapshot);
            }
        });
        context.spawn(wrap_future::<_, Self>(writing).map(|_, actor, context| {
            actor.shell.saved();
            actor.advance(context);
        }));
    }

    pub(super) fn listen(&mut self, context: &mut Context<Self>) {
        if let Some(lease) = self.lease.take() {
            let changes = futures::stream::unfold(lease, |mut lease| async move {
                lease.changed().await.ok()?;
                let held = is_held(&lease.borrow_and_update());
                Some((held, lease))
            });
            context.add_stream(futures::StreamExt::map(changes, Signal::Active));
        }
        if let Some(inputs) = &self.inputs {
            let observed = futures::stream::unfold(inputs.changed(), |changed| async move {
                changed.notified().await;
                Some((Signal::Observed, changed))
            });
            context.add_stream(observed);
        }
        let shutdown = self.shutdown.clone();
        let stop = futures::stream::once(async move {
            shutdown.cancelled().await;
            Signal::Stop
        });
        context.add_stream(stop);
    }
}

fn write<F: dormouse_messages::Fold>(snapshots: &Snapshots, snapshot: &Snapshot<F>) {
    let started = Instant::now();
    match snapshots.save(snapshot) {
        Ok(()) => {
            tracing::debug!(name = F::NAME, sequence = %snapshot.sequence, took = ?started.elapsed(), "snapshot");
        }
        Err(error) => {
            let path = snapshots.path::<F>();
            tracing::warn!(path = %path.display(), %error, "the snapshot cannot be written");
        }
    }
}

enum Signal {
    Active(bool),
    Observed,
    Stop,
}

impl<D: Decider> Actor for DeciderActor<D> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.appender = Some(AppenderActor::new(self.log.clone()).start());
        self.counters
            .active
            .set(f64::from(u8::from(self.shell.is_active())));
        self.listen(context);
    }
}

impl<D: Decider> actix::StreamHandler<Signal> for DeciderActor<D> {
    fn handle(&mut self, signal: Signal, context: &mut Self::Context) {
        match signal {
            Signal::Active(active) => self.set_active(active),
            Signal::Observed => self.shell.observed(),
            Signal::Stop => self.shell.stop(),
        }
        self.advance(context);
    }

    /// The actor outlives each of its streams.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl<D: Decider> Handler<Batch> for DeciderActor<D> {
    type Result = ();

    fn handle(&mut self, batch: Batch, context: &mut Self::Context) {
        if let Err(error) = self.fold(&batch.0) {
            return self.end(Err(error), context);
        }
        self.advance(context);
    }
}

impl<D: Decider> Handler<WentBack> for DeciderActor<D> {
    type Result = ();

    fn handle(&mut self, _: WentBack, context: &mut Self::Context) {
        let folded = self.shell.folded();
        self.end(Err(ServiceError::LogWentBack { folded }), context);
    }
}

fn is_held(state: &LeaseState) -> bool {
    matches!(state, LeaseState::Held { .. })
}
