//! Starts a container: verifies the checkpoint to resume from, and explains a failed start.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::future::{AbortHandle, Abortable};

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_sandbox::folder::Below;

use super::{Before, Container, KILL_AGAIN, LOOK_CLOSELY, Start, Storage, Watching, What};
use crate::blocking::{aside, aside_in_time};
use crate::checkpoint_snapshot::{Unreadable, resumable};
use crate::container_plan::ContainerPlan;
use crate::layout;
use crate::runtime::{ContainerDriver, RuntimeError};
use crate::store::StoreError;

/// Limit for ten thousand files on a busy network file system.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(60);

enum Unstarted {
    Runtime(RuntimeError),
    Resume(Unreadable),
    Ended,
}

async fn provide(
    runtime: &dyn ContainerDriver,
    storage: Option<Storage>,
    plan: &ContainerPlan,
    before: Vec<Before>,
) -> Result<(), Unstarted> {
    for work in before {
        let done = work.done().await;
        done.map_err(|why| Unstarted::Runtime(why.into()))?;
    }
    fetch(storage, plan).await?;
    runtime.provide(plan).await.map_err(Unstarted::Runtime)
}

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
    let provided = store.provide(layout, plan.folder(), uri);
    provided.outcome().await.map_err(|error| {
        let why = error.to_string();
        Unstarted::Resume(match error {
            StoreError::Wrong { .. } => Unreadable::Anywhere(why),
            _ => Unreadable::Here(why),
        })
    })
}

async fn check(resume: Option<Below>) -> Result<(), Unstarted> {
    let Some(checkpoint) = resume else {
        return Ok(());
    };
    let (path, root) = (checkpoint.path(), checkpoint.clone());
    let looked = tokio::time::timeout(VERIFY_TIMEOUT, aside(move || resumable(&checkpoint)));
    if let Ok(Some(looked)) = looked.await {
        return looked.map_err(Unstarted::Resume);
    }
    // Too many files are the job's fault, a hanging file system the node's.
    let answers = aside_in_time(move || root.check_root()).await;
    match answers {
        Some(Ok(())) => {
            let why = format!(
                "the files of the checkpoint {} cannot be looked at in {} s; save fewer of them",
                path.display(),
                VERIFY_TIMEOUT.as_secs()
            );
            Err(Unstarted::Runtime(NotStarted::from(why).into()))
        }
        _ => {
            let why = format!("the file system of {} does not answer", path.display());
            Err(Unstarted::Resume(Unreadable::Here(why)))
        }
    }
}

impl Container {
    fn unstarted(&self, why: Unstarted, resumed_from: Option<String>) -> Exit {
        match why {
            Unstarted::Runtime(_) if self.lifecycle.must_end() => {
                self.unstarted(Unstarted::Ended, resumed_from)
            }
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

    pub(super) fn fetch_no_more(&mut self) {
        if let Some(fetching) = self.fetching.take() {
            fetching.abort();
        }
    }

    /// Kills a container during a slow start, whenever it appears.
    pub(super) fn kill_as_it_starts(&mut self, ctx: &mut Context<Self>) {
        if !self.lifecycle.has_started() && self.lifecycle.exit().is_none() {
            self.kill(ctx);
            ctx.run_later(KILL_AGAIN, Self::kill_as_it_starts);
        }
    }
}

impl Handler<Start> for Container {
    type Result = ();

    fn handle(&mut self, start: Start, ctx: &mut Context<Self>) {
        let Start {
            plan,
            resume,
            before,
        } = start;
        tracing::debug!(container = %self.id, "starting");
        // Existing files are an earlier container's.
        let passed_over = match std::mem::replace(&mut self.watch, Watching::Looking) {
            Watching::Idle(mut watch) => Some(tokio::spawn(aside_in_time(move || {
                watch.pass_over();
                watch
            }))),
            other => {
                self.watch = other;
                None
            }
        };
        let runtime = Arc::clone(&self.runtime);
        let storage = self.storage.clone();
        let (fetching, aborted) = AbortHandle::new_pair();
        self.fetching = Some(fetching);
        let start = async move {
            let named = plan.resume.as_deref().map(layout::uri);
            let resumed_from = plan.stored.clone().or(named);
            let prepared = async {
                provide(&*runtime, storage, &plan, before).await?;
                check(resume).await
            };
            let ready = Abortable::new(prepared, aborted).await;
            let started = match ready.unwrap_or(Err(Unstarted::Ended)) {
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
                    actor.watch = watch.into();
                    match started {
                        Ok(pid) => {
                            actor.now_running(pid, ctx);
                            let has_ended = actor.lifecycle.exit().is_some();
                            match actor.watch {
                                Watching::Nothing => actor.finish(ctx),
                                _ if has_ended || !actor.orders.is_empty() => actor.look(ctx),
                                _ => actor.look_in(LOOK_CLOSELY, ctx),
                            }
                        }
                        Err(why) => {
                            actor.watch = Watching::Nothing;
                            let exit = actor.unstarted(why, resumed_from);
                            actor.lifecycle.not_started(exit);
                            actor.finish(ctx);
                        }
                    }
                }),
        );
    }
}
