//! Starting a container: what it resumes from is looked at first, and a start that fails says why.

use std::path::PathBuf;
use std::sync::Arc;

use actix::prelude::*;

use dormouse_messages::events::NodeFault;

use super::{Container, KILL_AGAIN, Start, What};
use crate::folder::{Below, aside_in_time};
use crate::layout;
use crate::runtime::{Exit, NotStarted, RuntimeError};
use crate::seal::{Unreadable, resumable};

/// Why a container was not started.
enum Unstarted {
    /// The runtime says so.
    Runtime(RuntimeError),
    /// The gang cannot resume.
    Resume(Unreadable),
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
    fn unstarted(&self, why: Unstarted, resumed_from: Option<PathBuf>) -> Exit {
        match why {
            Unstarted::Runtime(RuntimeError::Start(why)) => Exit::cannot_start(&why),
            Unstarted::Runtime(error) => {
                let why = NotStarted::of_node(NodeFault::Engine, error.to_string());
                Exit::cannot_start(&why)
            }
            Unstarted::Resume(Unreadable::Here(why)) => {
                Exit::cannot_start(&NotStarted::of_node(NodeFault::Checkpoints, why))
            }
            Unstarted::Resume(Unreadable::Anywhere(why)) => {
                let path = resumed_from.unwrap_or_default();
                self.tell(What::Rejected(layout::uri(&path), why.clone()));
                Exit::evicted(format!(
                    "the checkpoint {} cannot be resumed from ({why}); the one before is",
                    path.display()
                ))
            }
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
        let start = async move {
            let resumed_from = plan.resume.clone();
            let started = match check(resume).await {
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
                    actor.is_looking = watch.is_some();
                    actor.watch = watch;
                    match started {
                        Ok(pid) => {
                            actor.now_running(pid, ctx);
                            if actor.is_looking {
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
