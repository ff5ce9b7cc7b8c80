//! The agent's actor: folds the log, decides what to do, has it done.
//!
//! 1. It folds until it is caught up, and waits for the node's lease; nothing is touched before.
//! 2. It looks what runs and adopts it.
//! 3. From then on every batch of events, and everything a container's actor tells, is followed
//!    by a reconciliation. The containers' actors and the reports do the rest.

mod adopting;
mod disk;
mod execs;
mod gpus;
mod handlers;
mod members_told;
mod notebook;
mod shares;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{oneshot, watch};

use dormouse_messages::job::JobSpec;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{Beside, ContainerId, Incarnation, JobId, Rank, Sequence, Timestamp};
use dormouse_runtime::{Clock, SystemClock};

use crate::AgentError;
use crate::config::AgentConfig;
use crate::container::{self, Container, How, Readiness, What};
use crate::jupyter;
use crate::kept::Kept;
use crate::logs::Alive;
use crate::marks::{Mark, Marks};
use crate::members::{self, Answers};
use crate::plan;
use crate::reconcile::{Action, Life, Machine, apply, reconcile};
use crate::report::{self, Reports};
use crate::runtime::{ContainerRuntime, Exit, NotStarted};
use crate::state::{AgentState, Phase};
use crate::tasks::{Orders, TaskFiles};
use crate::watch::{Complete, Watch, Watched};
pub use handlers::{Batch, Leave, LogLost, RuntimeExit};

/// What is taken away, but by no fence, has this long to end.
const EVICT_GRACE: Duration = Duration::from_secs(2);

/// A reconciliation can make the next one possible (what was in the way is forgotten), not more
/// often than this.
const ROUNDS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Folding { caught_up: bool, leased: bool },
    Listing,
    Live,
}

/// The actor.
pub struct Agent {
    config: AgentConfig,
    marks: Marks,
    state: AgentState,
    machine: Machine,
    stage: Stage,
    runtime: Arc<dyn ContainerRuntime>,
    actors: BTreeMap<ContainerId, Addr<Container>>,
    /// The same, for who reads what containers print.
    alive: Alive,
    /// The lives whose members' file could not be written, and why.
    untold: BTreeMap<(JobId, Incarnation), NotStarted>,
    /// Tenants whose share of the disk is full, and what they are told.
    full: BTreeMap<String, String>,
    /// The number of the last program that was run in a container for somebody.
    last_exec: u64,
    reports: Reports,
    /// Who shares GPUs, and what they were last said to have used.
    gpus: gpus::Gpus,
    kept: Option<Kept>,
    /// The broker's time of the last event folded.
    stored_at: Timestamp,
    /// The terms of the lease.
    term: watch::Sender<LeaseTerm>,
    done: Option<oneshot::Sender<Result<(), AgentError>>>,
}

impl Agent {
    /// An agent that has heard nothing since `kept` was; `leased` where it needs no lease.
    #[must_use]
    pub fn new(
        (config, marks, alive): (AgentConfig, Marks, Alive),
        runtime: Arc<dyn ContainerRuntime>,
        reports: Reports,
        mut kept: Option<Kept>,
        (term, leased): (watch::Sender<LeaseTerm>, bool),
        done: oneshot::Sender<Result<(), AgentError>>,
    ) -> Self {
        let node = || AgentState::new(config.node.clone());
        Self {
            state: kept.as_mut().map_or_else(node, Kept::take),
            config,
            marks,
            machine: Machine::default(),
            stage: Stage::Folding {
                caught_up: false,
                leased,
            },
            runtime,
            actors: BTreeMap::new(),
            alive,
            untold: BTreeMap::new(),
            full: BTreeMap::new(),
            last_exec: 0,
            gpus: gpus::Gpus::default(),
            reports,
            kept,
            stored_at: Timestamp::default(),
            term,
            done: Some(done),
        }
    }

    /// The lease lasts as the policy says that is folded.
    fn follow_policy(&self) {
        let term = self.config.lease.unwrap_or(self.state.lease);
        self.term.send_if_modified(|now| {
            let changed = *now != term;
            *now = term;
            changed
        });
    }

    fn finish(&mut self, result: Result<(), AgentError>) {
        if let Some(done) = self.done.take() {
            let _ = done.send(result);
        }
    }

    fn begin_if_ready(&mut self, ctx: &mut Context<Self>) {
        let ready = Stage::Folding {
            caught_up: true,
            leased: true,
        };
        if self.stage == ready {
            self.stage = Stage::Listing;
            self.list(ctx);
        }
    }

    /// What a container of a task set was given and has not reported.
    fn orders(&self, id: &ContainerId) -> Orders {
        let partition = self.state.partition(id);
        partition.map_or_else(Orders::new, |(_, partition)| {
            partition.orders_of(id.rank).clone()
        })
    }

    /// A task set's files, a member's, or rank 0's; after an adoption without what the log has of
    /// them. Nothing of a replica is looked at but its answers to requests.
    fn watch(&self, id: &ContainerId, adopted: bool) -> Option<Watched> {
        let (job, partition) = self.state.partition(id)?;
        let (layout, spec) = (self.config.layout(), job.spec.as_ref());
        if spec.is_some_and(|spec| spec.tasks.is_some()) {
            return Some(Watched::Tasks(TaskFiles::new(layout.container_below(id))));
        }
        if spec.is_some_and(|spec| spec.service.is_some()) {
            return None;
        }
        let chief = (id.rank == Rank(0)).then(|| {
            let watch = Watch::new(
                layout.checkpoint_below(&id.job, id.incarnation),
                layout.container_below(id),
            );
            if !adopted {
                return watch;
            }
            let known = partition.saved;
            let known = known.map(|(step, bytes)| Complete { step, bytes });
            watch.knowing(known, partition.step)
        });
        if partition.members.is_none() {
            return chief.map(Watched::Chief);
        }
        let here = partition.here.get(&id.rank);
        let told = here.and_then(|here| here.acknowledged.clone());
        let answers = Answers::new(layout.container_below(id), told);
        Some(Watched::Member(chief, answers))
    }

    /// What is asked of a container before it takes part; of one that was adopted, from its start on.
    fn readiness(&self, id: &ContainerId, adopted: bool) -> Readiness {
        let partition = self.state.partition(id);
        let here = partition.and_then(|(_, partition)| partition.here.get(&id.rank));
        let started_at = here.and_then(|here| here.started_at).filter(|_| adopted);
        let since = started_at.map_or(0, |at| SystemClock.now().ms_since(at));
        let asked = plan::asked(&self.config, &self.state, id);
        let since = Duration::from_millis(since);
        Readiness::new(asked, since).following(self.notebook(id))
    }

    fn container(
        &mut self,
        mark: Mark,
        is_running: bool,
        watch: Option<Watched>,
        ctx: &mut Context<Self>,
    ) -> Addr<Container> {
        let id = mark.container.clone();
        let directory = self.config.layout().container_below(&id);
        let runtime = Arc::clone(&self.runtime);
        let agent = ctx.address().recipient();
        let noted = (self.marks.clone(), mark);
        let looks = (watch, self.readiness(&id, is_running));
        let actor = Container::new(noted, runtime, agent, directory, is_running, looks);
        let addr = actor.start();
        self.alive.insert(&id);
        self.actors.insert(id, addr.clone());
        addr
    }

    /// Reconciles until nothing is left to do now.
    fn act(&mut self, ctx: &mut Context<Self>) {
        if self.stage != Stage::Live {
            return;
        }
        for _ in 0..ROUNDS {
            let actions = reconcile(&self.state, &self.machine);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                apply(&mut self.machine, &action);
                self.carry_out(action, ctx);
            }
        }
    }

    fn carry_out(&mut self, action: Action, ctx: &mut Context<Self>) {
        match action {
            Action::Start(id, _) => self.start(&id, ctx),
            Action::Stop(id) => {
                let grace = self.stop_grace(&id);
                self.tell(&id, container::Stop { grace });
            }
            Action::Evict(id, reason) => {
                let grace = if self.machine.fenced {
                    Duration::from_millis(self.term.borrow().grace_ms())
                } else {
                    EVICT_GRACE
                };
                self.tell(&id, container::Evict { reason, grace });
            }
            Action::Save(id, request) => self.save(&id, request),
            Action::Give(id, _) => self.tell(&id, container::Give(self.orders(&id))),
            Action::TellStarted(id, pid) => {
                let causes = self.causes(&id);
                self.reports
                    .send(report::started(&id, &self.config.node, pid), causes);
            }
            Action::TellExited(id, _, exit) => {
                let causes = self.causes(&id);
                if let Some(fault) = exit.fault {
                    let event = report::faulted(&id, &self.config.node, fault, &exit);
                    self.reports.send(event, causes.clone());
                }
                self.reports
                    .send(report::exited(&id, &self.config.node, exit), causes);
            }
            Action::Forget(id, request) => {
                self.actors.remove(&id);
                ctx.spawn(self.runtime.forget(&id, request).into_actor(self));
            }
            Action::Announce(job, incarnation, announced) => {
                self.announce(&job, incarnation, &announced);
            }
            Action::Withdraw(job, incarnation) => {
                members::withdraw(&self.config.layout(), &job, incarnation);
            }
            Action::Join(life, running) => {
                let name = self.runtime.name();
                self.reports.send(
                    report::joined(&self.config, name, life, running),
                    Vec::new(),
                );
            }
        }
    }

    fn tell<M>(&self, id: &ContainerId, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        Container: Handler<M>,
    {
        if let Some(addr) = self.actors.get(id) {
            addr.do_send(message);
        }
    }

    /// The job's own grace, or what the log names in its place.
    fn stop_grace(&self, id: &ContainerId) -> Duration {
        let partition = self.state.partition(id).map(|(_, partition)| partition);
        let named = partition.and_then(|partition| match partition.phase {
            Phase::Stop(..) => partition.stop_grace_s,
            Phase::Placed | Phase::Run(_) => {
                let leave = partition.here.get(&id.rank)?.leave.as_ref();
                leave.map(|leave| leave.grace_s)
            }
        });
        let named = named.map(|grace_s| Duration::from_secs(u64::from(grace_s)));
        named.unwrap_or_else(|| self.spec(id).map_or(EVICT_GRACE, grace))
    }

    fn spec(&self, id: &ContainerId) -> Option<&JobSpec> {
        self.state.partition(id)?.0.spec.as_ref()
    }

    /// The requests that made something happen to a container.
    fn causes(&self, id: &ContainerId) -> Vec<Sequence> {
        let Some((_, partition)) = self.state.partition(id) else {
            return Vec::new();
        };
        let here = partition.here.get(&id.rank);
        let leave = here.and_then(|here| here.leave.as_ref());
        let stop = match &partition.phase {
            Phase::Stop(_, stop) => Some(*stop),
            Phase::Placed | Phase::Run(_) => leave.map(|leave| leave.sequence),
        };
        let start = here.and_then(|here| here.request);
        stop.into_iter().chain(start).collect()
    }

    fn start(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let plan = plan::plan(&self.config, &self.state, id).map_err(NotStarted::from);
        let plan = self.share_is_full(id).and(plan);
        let plan = plan.and_then(|plan| self.told(id).map(|()| plan));
        let plan = plan.and_then(|plan| self.with_notebook(id, plan));
        let shared = |actor: &mut Self, plan| actor.share_gpus(&plan).map(|()| plan);
        match plan.and_then(|plan| shared(self, plan)) {
            Ok(plan) => {
                let watch = self.watch(id, false);
                let mark = Mark::new(id.clone(), plan.request);
                let addr = self.container(mark, false, watch, ctx);
                let layout = self.config.layout();
                let resume = plan.resume.as_deref().filter(|_| id.rank == Rank(0));
                let resume = resume.and_then(|path| layout.named_checkpoint(path));
                addr.do_send(container::Start { plan, resume });
            }
            Err(why) => self.ended(id, Exit::cannot_start(&why)),
        }
    }

    fn save(&self, id: &ContainerId, request: Sequence) {
        let Some(spec) = self.spec(id) else {
            return;
        };
        let checkpoint = &spec.checkpoint;
        let how = if spec.tasks.is_some() {
            How::Drain
        } else if !Beside::of(spec).is_worker(id.rank) {
            // It serves the workers while they save, and is stopped after them.
            How::NotAtAll
        } else if checkpoint.command.is_empty() {
            match plan::save_signal(spec) {
                Ok(signal) => How::Signal(signal),
                Err(_) => How::NotAtAll,
            }
        } else {
            match plan::plan(&self.config, &self.state, id) {
                Ok(mut plan) if id.rank == Rank(0) => {
                    plan.argv.clone_from(&checkpoint.command);
                    How::Command(Box::new(plan))
                }
                _ => How::NotAtAll,
            }
        };
        let save = container::Save {
            request,
            grace: grace(spec),
            ends_it: checkpoint.mode == dormouse_messages::job::CheckpointMode::Exit,
            how,
        };
        self.tell(id, save);
    }

    fn ended(&mut self, id: &ContainerId, exit: Exit) {
        if let Some(seen) = self.machine.containers.get_mut(id) {
            seen.life = Life::Ended(exit);
        }
    }

    fn note(&mut self, id: &ContainerId, what: What) {
        let node = &self.config.node;
        match what {
            What::Running(pid) => {
                if let Some(seen) = self.machine.containers.get_mut(id)
                    && seen.life == Life::Starting
                {
                    seen.life = Life::Running(pid);
                }
            }
            What::Ended(exit) => {
                self.share_gpus_no_more(id);
                self.actors.remove(id);
                self.alive.remove(id);
                let exit = self.of_the_job(id, exit);
                self.ended(id, exit);
            }
            What::Saved(complete, answer) => {
                let (request, took) = answer.map_or((None, Duration::ZERO), |(request, took)| {
                    (Some(request), took)
                });
                let causes = request.map_or_else(|| self.causes(id), |request| vec![request]);
                self.reports
                    .send(report::saved(id, &self.config, complete, took), causes);
            }
            What::Rejected(uri, reason) => {
                let event = report::rejected(id, node, uri, reason);
                self.reports.send(event, self.causes(id));
            }
            What::SaveFailed(request, reason) => {
                self.reports
                    .send(report::save_failed(id, node, reason), vec![request]);
            }
            What::Ready(after) => {
                let token = self.notebook_token(id).and_then(Result::ok);
                let token = token.map(|token| jupyter::fingerprint(&token));
                self.reports
                    .send(report::ready(id, node, after, token), self.causes(id));
            }
            What::Does(doing) => {
                self.reports
                    .send(report::does(id, node, doing), self.causes(id));
            }
            What::Unready(reason) => {
                self.reports
                    .send(report::unready(id, node, reason), self.causes(id));
            }
            What::Answered(answer) => self.answered(id, &answer),
            What::TasksEnded(results) => {
                let event = report::tasks_ended(id, node, results);
                self.reports.send(event, self.causes(id));
            }
            What::Progress(line) => {
                if self.reports.takes_progress()
                    && let Some((job, partition)) = self.state.partition(id)
                {
                    // Those that work on it.
                    let containers = u32::try_from(partition.containers()).unwrap_or(u32::MAX);
                    let beside = job.spec.as_ref().map(Beside::of).unwrap_or_default();
                    let containers = beside.workers(containers);
                    let event = report::progress(id, node, containers, line);
                    self.reports.send(event, self.causes(id));
                }
            }
        }
    }
}

/// How long a job may take to save, and again to stop.
fn grace(spec: &JobSpec) -> Duration {
    Duration::from_secs(u64::from(spec.checkpoint.grace_s))
}
