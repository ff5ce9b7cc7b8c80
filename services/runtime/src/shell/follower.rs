//! The actor that hands the log to the decider in batches.

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Message, WrapFuture};
use dormouse_messages::Decider;
use tokio::sync::mpsc;

use crate::decode::LogItem;
use crate::shell::decider::DeciderActor;

/// Enough for a fast fold, few enough for a prompt decision.
const BATCH: usize = 1_000;

/// A part of the log; the answer means folded.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Batch(pub Vec<LogItem>);

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct WentBack;

pub(crate) struct FollowerActor<D: Decider> {
    followed: Option<mpsc::Receiver<LogItem>>,
    decider: Addr<DeciderActor<D>>,
}

impl<D: Decider> FollowerActor<D> {
    pub fn new(followed: mpsc::Receiver<LogItem>, decider: Addr<DeciderActor<D>>) -> Self {
        Self {
            followed: Some(followed),
            decider,
        }
    }
}

impl<D: Decider> Actor for FollowerActor<D> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let Some(mut followed) = self.followed.take() else {
            return context.stop();
        };
        let decider = self.decider.clone();
        let follow = async move {
            loop {
                let mut batch = Vec::with_capacity(BATCH);
                if followed.recv_many(&mut batch, BATCH).await == 0 {
                    decider.do_send(WentBack);
                    return;
                }
                if decider.send(Batch(batch)).await.is_err() {
                    return;
                }
            }
        };
        context.spawn(follow.into_actor(self));
    }
}
