//! Starting a container: what it resumes from is looked at first, and a start that fails says why.

use std::sync::Arc;

use actix::prelude::*;
use futures::future::{AbortHandle, Abortable};

use dormouse_messages::events::NodeFault;

use super::{Container, KILL_AGAIN, LOOK_CLOSELY, Start, Storage, What};
use crate::folder::{Below, aside_in_time};
use crate::layout;
use crate::runtime::{ContainerPlan, ContainerRuntime, Exit, NotStarted, RuntimeError};
use crate::seal::{Unreadable, resumable};
use crate::store::StoreError;

/// Why a container was not started.
enum Unstarted {
    /// The runtime says so.
    Runtime(RuntimeError),
    /// The gang cannot resume.
    Resume(Unreadable),
    /// It was to end before it had what it starts with.
    Ended,
}

/// Has what goes with its job on this node, and what it resumes from.
async fn provide(
    runtime: &dyn ContainerRuntime,
    storage: Option<Storage>,
    plan: &ContainerPlan,
) -> Result<(), Unstarted> {
    fetch(storage, plan).await?;
    runtime.provide(plan).await.map_err(Unstarted::Runtime)
}

/// Has the checkpoint that it resumes from on this node, from the store that it lies in.
async fn fetch(storage: Option<Storage>, plan: &ContainerPlan) -> Result<(), Unstarted> {
    let Some(uri) = plan.stored.clone() else {
        return Ok(());
    };
    let Some(Storage { store, layout }) = storage else {
        let why = format!(
            "{uri} is in a store, and this agent has none; start it with the --checkpoints of the others"
        );
        return Err(Unstarted::Resume(Unreadable::Here(why)));
    };
    let provided = store.provide(layout, plan.container.job.clone(), uri);
    provided.outcome().await.map_err(|error| {
        let why = error.to_string();
        Unstarted::Resume(match error {
            StoreError::Wrong { .. } => Unreadable::Anywhere(why),
            _ => Unreadable::Here(why),
        })
    })
}

/// Looks at the checkpoint that the gang is to resume from.
async fn check(resume: Option<Below>) -> Result<(), Unstarted> {
    let Some(checkpoint) = resume else {
        return Ok(());
    };
    let path = checkpoint.path();
    let looked = aside_in_time(move || resumable(&checkpoint)).await;
    let hung = || {
        let why = format!("the file system of {} does not answer", path.display());
        Err(Unreadable::Here(why))
    };
    looked.unwrap_or_else(hung).map_err(Unstarted::Resume)
}

impl Container {
    fn unstarted(&self, why: Unstarted, resumed_from: Option<String>) -> Exit {
        match why {
            Unstarted::Ended => {
                Exit::evicted("it was to end before it had what it starts with".to_owned())
            }
            Unstarted::Runtime(RuntimeError::Start(why)) => Exit::cannot_start(&why),
            Unstarted::Runtime(error) => {
                let why = NotStarted::of_node(NodeFault::Engine, error.to_string());
                Exit::cannot_start(&why)
            }
            Unstarted::Resume(Unreadable::Here(why)) => {
                Exit::cannot_start(&NotStarted::of_node(NodeFault::Checkpoints, why))
            }
            Unstarted::Resume(Unreadable::Anywhere(why)) => {
                let uri = resumed_from.unwrap_or_default();
                let shown = layout::path_of(&uri).to_owned();
                self.tell(What::Rejected(uri, why.clone()));
                Exit::evicted(format!(
                    "the checkpoint {shown} cannot be resumed from ({why}); the one before is"
                ))
            }
        }
    }

    /// It is to end: what it would have started with is not waited for.
    pub(super) fn fetch_no_more(&mut self) {
        if let Some(fetching) = self.fetching.take() {
            fetching.abort();
        }
    }

    /// A start that takes long may have its container run already: it is killed whenever it
    /// appears, not only when its start is told.
    pub(super) fn kill_as_it_starts(&mut self, ctx: &mut Context<Self>) {
        if !self.is_running && self.exit.is_none() {
            self.kill(ctx);
            ctx.run_later(KILL_AGAIN, Self::kill_as_it_starts);
        }
    }
}

impl Handler<Start> for Container {
    type Result = ();

    fn handle(&mut self, Start { plan, resume }: Start, ctx: &mut Context<Self>) {
        tracing::debug!(container = %self.id, "starting");
        // Whatever lies there is of before: not this container's work.
        let watch = self.watch.take();
        let passed_over = watch.map(|mut watch| {
            tokio::spawn(aside_in_time(move || {
                watch.pass_over();
                watch
            }))
        });
        let runtime = Arc::clone(&self.runtime);
        let storage = self.storage.clone();
        let (fetching, aborted) = AbortHandle::new_pair();
        self.fetching = Some(fetching);
        let start = async move {
            let named = plan.resume.as_deref().map(layout::uri);
            let resumed_from = plan.stored.clone().or(named);
            let provided = Abortable::new(provide(&*runtime, storage, &plan), aborted).await;
            let provided = provided.unwrap_or(Err(Unstarted::Ended));
            let checked = match provided {
                Ok(()) => check(resume).await,
                Err(why) => Err(why),
            };
            let started = match checked {
                Ok(()) => runtime.start(plan).await.map_err(Unstarted::Runtime),
                Err(why) => Err(why),
            };
            let watch = match passed_over {
                Some(passing) => passing.await.ok().flatten(),
                None => None,
            };
            (started, watch, resumed_from)
        };
        ctx.spawn(
            start
                .into_actor(self)
                .map(|(started, watch, resumed_from), actor, ctx| {
                    actor.fetching = None;
                    actor.is_looking = watch.is_some();
                    actor.watch = watch;
                    match started {
                        Ok(pid) => {
                            actor.now_running(pid, ctx);
                            let has_begun = actor.exit.is_none() && actor.orders.is_empty();
                            if actor.is_looking && has_begun {
                                // It has left nothing yet.
                                actor.look_in(LOOK_CLOSELY, ctx);
                            } else if actor.is_looking {
                                actor.look(ctx);
                            } else {
                                actor.finish(ctx);
                            }
                        }
                        Err(why) => {
                            actor.is_looking = false;
                            actor.exit = Some(actor.unstarted(why, resumed_from));
                            actor.finish(ctx);
                        }
                    }
                }),
        );
    }
}
