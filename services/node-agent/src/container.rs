//! One container's actor: starts, saves, stops and watches a container, and reports to the agent.
//!
//! - A stop sends SIGTERM, and kills after the grace. A job that a save already ends gets no second signal.
//! - An eviction is recorded before its first signal, so that the exit names it even if the agent dies.
//! - Rank 0's files are read every second, every 20 ms during a requested checkpoint, and after the exit.
//!   Tasks' results are read every 20 ms. A hanging look delays by ten seconds at most.
//! - With a store, uploads precede reports ([`storing`]).
//!
//! Files: `messages`, `readiness` probes, `starting` starts, `storing` uploads.

mod messages;
mod readiness;
mod starting;
mod storing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use futures::future::AbortHandle;
use nix::sys::signal::Signal;

use dormouse_agent_core::lifecycle::{Leaving, Lifecycle, Step};
use dormouse_messages::{ContainerId, Sequence};
use dormouse_sandbox::folder::Below;

pub use messages::{
    Announced, Before, Ended, Evict, Give, How, Note, Save, Start, Stop, Warn, What,
};
pub use readiness::{Asked, Readiness, SILENCE};
pub use storing::Storage;

use crate::blocking::{LOOK_TIMEOUT, aside, aside_in_time};
use crate::container_record::{ContainerRecord, ContainerRecords};
use crate::runtime::ContainerDriver;
use crate::tasks::{Orders, Results, TaskFiles};
use crate::watch::{Line, Look, Saved, Watched};

const LOOK: Duration = Duration::from_secs(1);

/// The gang stands still during a requested checkpoint.
const LOOK_CLOSELY: Duration = Duration::from_millis(20);

const KILL_AGAIN: Duration = Duration::from_millis(200);

/// Minimum time between reports of progress and of unrequested checkpoints, by the log's contract.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Minimum time between reports of tasks: a thousand busy containers write ten thousand events a second.
const REPORT_TASKS_EVERY: Duration = Duration::from_millis(100);

struct Saving {
    request: Sequence,
    since: Instant,
    deadline: Instant,
}

/// The reader of a container's files.
#[expect(clippy::large_enum_variant, reason = "a container has one")]
enum Watching {
    Nothing,
    Idle(Watched),
    /// A look, or the start, has the reader.
    Looking,
    /// The look under way has timed out.
    Hung,
}

impl From<Option<Watched>> for Watching {
    fn from(watch: Option<Watched>) -> Self {
        watch.map_or(Self::Nothing, Self::Idle)
    }
}

/// A container's actor.
pub struct Container {
    id: ContainerId,
    runtime: Arc<dyn ContainerDriver>,
    agent: Recipient<Note>,
    directory: Below,
    marks: ContainerRecords,
    mark: ContainerRecord,
    lifecycle: Lifecycle,
    watch: Watching,
    is_coordinator: bool,
    readiness: Readiness,
    next_look: Option<SpawnHandle>,
    saving: Option<Saving>,
    last_saved: Option<Instant>,
    unsaid_checkpoint: Option<Saved>,
    last_progress: Option<Instant>,
    unsaid_progress: Option<Line>,
    orders: Orders,
    is_busy: bool,
    last_tasks: Option<Instant>,
    unsaid_tasks: Results,
    problem: Option<String>,
    /// `None`: checkpoints are reported at once.
    storage: Option<Storage>,
    storing: Option<storing::Storing>,
    fetching: Option<AbortHandle>,
}

impl Container {
    /// Creates an actor for a container to start, or for one found running (`is_running`).
    #[must_use]
    pub fn new(
        (marks, mark): (ContainerRecords, ContainerRecord),
        runtime: Arc<dyn ContainerDriver>,
        agent: Recipient<Note>,
        directory: Below,
        is_running: bool,
        (watch, readiness): (Option<Watched>, Readiness),
        storage: Option<Storage>,
    ) -> Self {
        let leaving = match (mark.is_stopped, mark.is_leaving) {
            (true, _) => Leaving::Stopped,
            (false, true) => Leaving::BySave,
            (false, false) => Leaving::No,
        };
        Self {
            id: mark.container.clone(),
            runtime,
            agent,
            lifecycle: if is_running {
                Lifecycle::Running(leaving)
            } else {
                Lifecycle::starting()
            },
            is_coordinator: watch.as_ref().is_some_and(Watched::is_coordinator),
            readiness,
            watch: watch.into(),
            next_look: None,
            marks,
            mark,
            directory,
            saving: None,
            last_saved: None,
            unsaid_checkpoint: None,
            last_progress: None,
            unsaid_progress: None,
            orders: Orders::new(),
            is_busy: false,
            last_tasks: None,
            unsaid_tasks: Results::default(),
            problem: None,
            storage,
            storing: None,
            fetching: None,
        }
    }

    fn tell(&self, what: What) {
        self.agent.do_send(Note {
            container: self.id.clone(),
            what,
        });
    }

    fn note(&mut self, change: impl Fn(&mut ContainerRecord)) {
        change(&mut self.mark);
        let admitted = self.mark.admitted;
        self.marks.change(&self.id, self.mark.request, |mark| {
            mark.admitted = admitted;
            change(mark);
        });
    }

    fn signal(&self, signal: Signal, ctx: &mut Context<Self>) {
        let (runtime, id) = (Arc::clone(&self.runtime), self.id.clone());
        let send = async move { runtime.signal(&id, signal).await };
        ctx.spawn(send.into_actor(self).map(|sent, actor, _| {
            if let Err(error) = sent {
                tracing::warn!(container = %actor.id, %error, "cannot be signalled");
            }
        }));
    }

    fn notify(&self, signal: Signal, ctx: &mut Context<Self>) {
        let (runtime, id) = (Arc::clone(&self.runtime), self.id.clone());
        let send = async move { runtime.notify(&id, signal).await };
        ctx.spawn(send.into_actor(self).map(|sent, actor, _| {
            if let Err(error) = sent {
                tracing::warn!(container = %actor.id, %error, "is not told by a signal that its members are others");
            }
        }));
    }

    fn kill(&self, ctx: &mut Context<Self>) {
        let (runtime, id) = (Arc::clone(&self.runtime), self.id.clone());
        let kill = async move { runtime.kill(&id).await };
        ctx.spawn(kill.into_actor(self).map(|killed, actor, ctx| {
            if let Err(error) = killed
                && actor.lifecycle.exit().is_none()
            {
                tracing::warn!(container = %actor.id, %error, "cannot be killed; trying again");
                ctx.run_later(LOOK, |actor, ctx| actor.kill(ctx));
            }
        }));
    }

    fn kill_after(&self, grace: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(grace, |actor, ctx| {
            if actor.lifecycle.exit().is_none() {
                tracing::info!(container = %actor.id, "its grace is over; killed");
                actor.kill(ctx);
            }
        });
    }

    fn take(&mut self, steps: Vec<Step>, ctx: &mut Context<Self>) {
        if !steps.is_empty() && self.lifecycle.has_started() {
            self.ask_no_more(ctx);
        }
        for step in steps {
            match step {
                Step::NoteStopped => self.note(|mark| mark.is_stopped = true),
                Step::NoteEvicted(reason) => {
                    tracing::warn!(container = %self.id, reason, "taken away");
                    self.note(|mark| mark.evicted = Some(reason.clone()));
                }
                Step::Terminate => self.signal(Signal::SIGTERM, ctx),
                Step::Kill => self.kill(ctx),
                Step::KillAfter(grace) => self.kill_after(grace, ctx),
                Step::AbandonStart(grace) => {
                    self.fetch_no_more();
                    if grace.is_zero() {
                        self.kill_as_it_starts(ctx);
                    } else {
                        ctx.run_later(grace, Self::kill_as_it_starts);
                    }
                }
                Step::Finish => self.finish(ctx),
            }
        }
    }

    fn now_running(&mut self, pid: u32, ctx: &mut Context<Self>) {
        let steps = self.lifecycle.started();
        self.tell(What::Running(pid));
        self.ask_if_ready(ctx);
        self.take(steps, ctx);
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let mut watch = match std::mem::replace(&mut self.watch, Watching::Looking) {
            Watching::Idle(watch) => watch,
            other => return self.watch = other,
        };
        let at_exit = self.lifecycle.exit().is_some();
        let orders = std::mem::take(&mut self.orders);
        let late = ctx.run_later(LOOK_TIMEOUT, |actor, ctx| actor.hung(ctx));
        let look = aside(move || {
            let look = watch.look(&orders);
            (watch, look)
        });
        ctx.spawn(look.into_actor(self).map(move |looked, actor, ctx| {
            ctx.cancel_future(late);
            let Some((watch, look)) = looked else {
                tracing::error!(container = %actor.id, "looking at its files failed");
                actor.watch = Watching::Nothing;
                actor.finish(ctx);
                return;
            };
            actor.watch = Watching::Idle(watch);
            actor.found(look, ctx);
            if at_exit {
                actor.watch = Watching::Nothing;
                actor.finish(ctx);
            } else if actor.lifecycle.exit().is_some() {
                actor.look(ctx);
            } else {
                let waits = actor.saving.is_some() || actor.readiness.is_awaited();
                let closely = waits || actor.is_busy || !actor.orders.is_empty();
                let pause = if closely { LOOK_CLOSELY } else { LOOK };
                actor.look_in(pause, ctx);
            }
        }));
    }

    /// Goes on without a hanging look until the file system answers.
    fn hung(&mut self, ctx: &mut Context<Self>) {
        self.watch = Watching::Hung;
        let path = self.directory.path();
        let problem = format!(
            "the file system of its checkpoints or of {} does not answer",
            path.display()
        );
        tracing::warn!(container = %self.id, problem, "looking at its files is given up for now");
        self.problem = Some(problem);
        self.fail_late_save();
        self.finish(ctx);
    }

    fn fail_late_save(&mut self) {
        let now = Instant::now();
        if self.saving.as_ref().is_some_and(|it| now >= it.deadline) {
            self.save_failed("no complete checkpoint within checkpoint.grace_s");
        }
    }

    fn look_in(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if let Some(scheduled) = self.next_look.take() {
            ctx.cancel_future(scheduled);
        }
        self.next_look = Some(ctx.run_later(pause, |actor, ctx| {
            actor.next_look = None;
            if actor.lifecycle.exit().is_none() {
                actor.look(ctx);
            }
        }));
    }

    fn found(&mut self, look: Look, ctx: &mut Context<Self>) {
        if let Some(answer) = look.answer {
            self.answered(answer, ctx);
        }
        if look.progress.is_some() {
            self.unsaid_progress = look.progress;
        }
        if look.problem.is_some() {
            self.problem = look.problem;
        }
        if let Some(complete) = look.checkpoint {
            self.problem = None;
            if let Some(saving) = self.saving.take() {
                self.unsaid_checkpoint = None;
                self.keep(complete, Some((saving.request, saving.since)), ctx);
            } else {
                self.unsaid_checkpoint = Some(complete);
            }
        }
        self.fail_late_save();
        self.is_busy = look.is_busy;
        self.unsaid_tasks.add(look.tasks);
        self.say_what_is_due(false, ctx);
    }

    fn say_what_is_due(&mut self, at_exit: bool, ctx: &mut Context<Self>) {
        let is_due = |last: Option<Instant>| {
            at_exit || last.is_none_or(|last| last.elapsed() >= REPORT_EVERY)
        };
        if is_due(self.last_progress)
            && let Some(line) = self.unsaid_progress.take()
        {
            self.last_progress = Some(Instant::now());
            self.tell(What::Progress(line));
        }
        if is_due(self.last_saved)
            && !self.is_storing()
            && let Some(complete) = self.unsaid_checkpoint.take()
        {
            self.keep(complete, None, ctx);
        }
        let last = self.last_tasks;
        let waited = last.is_none_or(|last| last.elapsed() >= REPORT_TASKS_EVERY);
        if !self.unsaid_tasks.is_empty() && (waited || at_exit || !self.is_busy) {
            self.last_tasks = Some(Instant::now());
            let tasks = std::mem::take(&mut self.unsaid_tasks);
            self.tell(What::TasksEnded(tasks));
        }
    }

    fn save_failed(&mut self, why: &str) {
        let Some(saving) = self.saving.take() else {
            return;
        };
        self.lifecycle.leaves(false);
        let reason = match &self.problem {
            Some(problem) => format!("{why}; {problem}"),
            None => why.to_owned(),
        };
        self.tell(What::SaveFailed(Some(saving.request), reason));
    }

    fn finish(&mut self, ctx: &mut Context<Self>) {
        if self.lifecycle.exit().is_none() {
            return;
        }
        self.say_what_is_due(true, ctx);
        if self.is_storing() && !self.lifecycle.is_evicted() {
            return;
        }
        let Some(exit) = self.lifecycle.report() else {
            return;
        };
        self.save_failed("it exited without a new complete checkpoint");
        self.tell(What::Ended(exit));
        ctx.stop();
    }
}

impl Actor for Container {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if self.lifecycle.has_started() {
            self.ask_if_ready(ctx);
            self.look(ctx);
        }
    }
}

impl Handler<Save> for Container {
    type Result = ();

    fn handle(&mut self, save: Save, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if self.is_coordinator && !matches!(self.watch, Watching::Nothing) {
            self.saving = Some(Saving {
                request: save.request,
                since: now,
                deadline: now + save.grace,
            });
            self.problem = None;
            ctx.run_later(save.grace, |actor, _| {
                if matches!(actor.watch, Watching::Hung) {
                    actor.fail_late_save();
                }
            });
        }
        // Record before the signal: a leaving job must not be asked twice.
        if self.mark.asked == Some(save.request) {
            return;
        }
        self.note(|mark| mark.asked = Some(save.request));
        match save.how {
            How::Signal(signal) => {
                if save.ends_it {
                    self.lifecycle.leaves(true);
                    self.note(|mark| mark.is_leaving = true);
                }
                self.signal(signal, ctx);
            }
            How::Command(plan) => {
                let runtime = Arc::clone(&self.runtime);
                let grace = save.grace;
                let run = async move {
                    match tokio::time::timeout(grace, runtime.run(*plan)).await {
                        Ok(done) => done,
                        Err(_) => Err("it did not end within checkpoint.grace_s".to_owned()),
                    }
                };
                ctx.spawn(run.into_actor(self).map(|done, actor, _| {
                    if let Err(why) = done {
                        actor.save_failed(&format!("checkpoint.command: {why}"));
                    }
                }));
            }
            How::Drain => {
                let directory = self.directory.clone();
                let drained = aside_in_time(move || TaskFiles::drain(&directory));
                ctx.spawn(drained.into_actor(self).map(|drained, actor, _| {
                    if !matches!(drained, Some(Ok(()))) {
                        tracing::warn!(container = %actor.id, ?drained, "cannot be asked to leave; it is stopped when its grace is over");
                    }
                }));
            }
            How::NotAtAll => {}
        }
        self.look_in(LOOK_CLOSELY, ctx);
    }
}

impl Handler<Give> for Container {
    type Result = ();

    fn handle(&mut self, Give(orders): Give, ctx: &mut Context<Self>) {
        self.orders.extend(orders);
        if self.lifecycle.has_started() {
            self.look_in(Duration::ZERO, ctx);
        }
    }
}

impl Handler<Warn> for Container {
    type Result = ();

    fn handle(&mut self, Warn(signal): Warn, ctx: &mut Context<Self>) {
        self.notify(signal, ctx);
    }
}

impl Handler<Stop> for Container {
    type Result = ();

    fn handle(&mut self, Stop { grace }: Stop, ctx: &mut Context<Self>) {
        let steps = self.lifecycle.stop(grace);
        self.take(steps, ctx);
    }
}

impl Handler<Evict> for Container {
    type Result = ();

    fn handle(&mut self, Evict { reason, grace }: Evict, ctx: &mut Context<Self>) {
        let steps = self.lifecycle.evict(reason, grace);
        self.take(steps, ctx);
    }
}

impl Handler<Ended> for Container {
    type Result = ();

    fn handle(&mut self, Ended(exit): Ended, ctx: &mut Context<Self>) {
        if !self.lifecycle.ended(exit) {
            return;
        }
        match self.watch {
            // The start is reported first.
            _ if !self.lifecycle.has_started() => {}
            Watching::Nothing | Watching::Hung => self.finish(ctx),
            Watching::Idle(_) => self.look(ctx),
            // The look under way is followed by a last one.
            Watching::Looking => {}
        }
    }
}
