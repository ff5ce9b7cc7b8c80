//! The agent's actor: drives the state machine of [`dormouse_agent_core`], which decides everything.
//!
//! 1. Events, lease news and containers' notes enter the machine.
//! 2. Container actors, the runtime and files carry out its effects.
//! 3. Reports are appended one by one.
//!
//! Files: `adopting` found containers, `disk` folders and pruning, `execs` attached programs, `gpus` GPU
//! shares, `handlers` messages, `members_told` resized jobs, `notebook` tokens, `shares` disk shares.

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

use dormouse_agent_core::{Agent as Core, Effect, Exit, NotStarted, Offer};
use dormouse_messages::job::JobSpec;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{
    AuxiliaryRoles, ContainerId, Event, Incarnation, JobId, Rank, Sequence, Timestamp,
};
use dormouse_runtime::{Clock, SystemClock};
use dormouse_sandbox::protocol::Gone;

use crate::AgentError;
use crate::config::AgentConfig;
use crate::container::{self, Container, How, Readiness, Storage, What};
use crate::container_record::{ContainerRecord, ContainerRecords};
use crate::jupyter;
use crate::logs::Alive;
use crate::members::{self, Answers};
use crate::plan;
use crate::report::{self, Reports};
use crate::runtime::ContainerDriver;
use crate::snapshot::AgentSnapshot;
use crate::state::AgentState;
use crate::store::Store;
use crate::supervisor::Supervisor;
use crate::tasks::{Orders, TaskFiles};
use crate::usage::Count;
use crate::watch::{Complete, Watch, Watched};
pub use handlers::{Batch, Drain, Leave, LogLost, RuntimeExit};

/// Grace of an eviction that no fence causes.
const EVICT_GRACE: Duration = Duration::from_secs(2);

/// The agent's actor.
pub struct Agent {
    config: AgentConfig,
    marks: ContainerRecords,
    core: Core,
    runtime: Arc<dyn ContainerDriver>,
    actors: BTreeMap<ContainerId, Addr<Container>>,
    alive: Alive,
    store: Option<Store>,
    untold: BTreeMap<(JobId, Incarnation), NotStarted>,
    full: BTreeMap<String, String>,
    counts: BTreeMap<String, Count>,
    last_exec: u64,
    reports: Reports,
    unsettled: watch::Sender<usize>,
    gpus: gpus::Gpus,
    kept: Option<AgentSnapshot>,
    stored_at: Timestamp,
    term: watch::Sender<LeaseTerm>,
    supervisor: Option<Supervisor>,
    kept_incarnation: u64,
    done: Option<oneshot::Sender<Result<(), AgentError>>>,
}

impl Agent {
    /// Creates an agent that continues from `kept`. `leased` is true if the agent needs no lease.
    #[must_use]
    pub fn new(
        (config, marks, alive, store): (AgentConfig, ContainerRecords, Alive, Option<Store>),
        runtime: Arc<dyn ContainerDriver>,
        reports: Reports,
        mut kept: Option<AgentSnapshot>,
        (term, leased, supervisor): (watch::Sender<LeaseTerm>, bool, Option<Supervisor>),
        done: oneshot::Sender<Result<(), AgentError>>,
    ) -> Self {
        let nothing = || (AgentState::new(config.node.clone()), None);
        let (state, former) = kept.as_mut().map_or_else(nothing, AgentSnapshot::take);
        let joined = report::joined(&config, runtime.name());
        Self {
            core: Core::new(Offer { joined }, state, leased).after(former),
            config,
            marks,
            runtime,
            actors: BTreeMap::new(),
            alive,
            store,
            untold: BTreeMap::new(),
            full: BTreeMap::new(),
            counts: BTreeMap::new(),
            last_exec: 0,
            gpus: gpus::Gpus::default(),
            reports,
            unsettled: watch::channel(0).0,
            kept,
            stored_at: Timestamp::default(),
            term,
            supervisor,
            kept_incarnation: 0,
            done: Some(done),
        }
    }

    fn follow_policy(&self) {
        let term = self.config.lease.unwrap_or(self.core.state().lease);
        self.term.send_if_modified(|now| {
            let changed = *now != term;
            *now = term;
            changed
        });
    }

    /// Tells the supervisor what to run if this agent dies, once the log has its incarnation.
    fn entrust(&mut self) {
        let incarnation = self.core.state().own().incarnation;
        let has_joined = self.core.machine().joined == Some(incarnation);
        let (Some(supervisor), Some(gone)) = (&self.supervisor, &self.config.gone) else {
            return;
        };
        if !has_joined || self.kept_incarnation == incarnation {
            return;
        }
        self.kept_incarnation = incarnation;
        let text = |it: std::ffi::OsString| it.into_string().ok();
        let env = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let after_ms = u64::try_from(gone.after.as_millis()).unwrap_or(u64::MAX);
        let mut command = gone.command.clone();
        command.push(incarnation.to_string());
        supervisor.if_gone(Some(Gone {
            after_ms,
            command,
            env: env.collect(),
            working_dir: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        }));
    }

    fn finish(&mut self, result: Result<(), AgentError>) {
        if let Some(done) = self.done.take() {
            let _ = done.send(result);
        }
    }

    fn report(&mut self, event: impl Into<Event>, causes: Vec<Sequence>) {
        self.core.say(event, causes);
        self.send_report();
    }

    fn send_report(&mut self) {
        if let Some(report) = self.core.to_append() {
            self.reports.send(report);
        }
    }

    fn orders(&self, id: &ContainerId) -> Orders {
        let partition = self.core.state().partition(id);
        partition.map_or_else(Orders::new, |(_, partition)| {
            partition.orders_of(id.rank).clone()
        })
    }

    fn watch(&self, mark: &ContainerRecord, adopted: bool) -> Option<Watched> {
        let id = &mark.container;
        let (job, partition) = self.core.state().partition(id)?;
        let (layout, spec) = (self.config.layout(), job.spec());
        if spec.is_some_and(|spec| spec.tasks.is_some()) {
            return Some(Watched::Tasks(TaskFiles::new(layout.container_below(id))));
        }
        if spec.is_some_and(|spec| spec.service.is_some()) {
            return None;
        }
        let coordinator = (id.rank == Rank(0)).then(|| {
            let watch = Watch::new(
                layout.checkpoint_below(&mark.folder(), id.incarnation),
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
            return coordinator.map(Watched::Coordinator);
        }
        let here = partition.here.get(&id.rank);
        let told = here.and_then(|here| here.acknowledged.clone());
        let answers = Answers::new(layout.container_below(id), told);
        Some(Watched::Member(coordinator, answers))
    }

    fn readiness(&self, mark: &ContainerRecord, adopted: bool) -> Readiness {
        let id = &mark.container;
        let partition = self.core.state().partition(id);
        let here = partition.and_then(|(_, partition)| partition.here.get(&id.rank));
        let started_at = here.and_then(|here| here.started_at).filter(|_| adopted);
        let since = started_at.map_or(0, |at| SystemClock.now().ms_since(at));
        let asked = plan::asked(&self.config, self.core.state(), id);
        let since = Duration::from_millis(since);
        Readiness::new(asked, since).following(self.notebook(mark))
    }

    fn storage(&self) -> Option<Storage> {
        let store = self.store.clone()?;
        let layout = self.config.layout();
        Some(Storage { store, layout })
    }

    fn container(
        &mut self,
        mark: ContainerRecord,
        is_running: bool,
        watch: Option<Watched>,
        ctx: &mut Context<Self>,
    ) -> Addr<Container> {
        let id = mark.container.clone();
        let directory = self.config.layout().container_below(&id);
        let runtime = Arc::clone(&self.runtime);
        let agent = ctx.address().recipient();
        let looks = (watch, self.readiness(&mark, is_running));
        let noted = (self.marks.clone(), mark);
        let storage = self.storage();
        let actor = Container::new(noted, runtime, agent, directory, is_running, looks, storage);
        let addr = actor.start();
        self.alive.insert(&id);
        self.actors.insert(id, addr.clone());
        addr
    }

    fn act(&mut self, ctx: &mut Context<Self>) {
        self.core.turn();
        while let Some(effect) = self.core.next_effect() {
            self.carry_out(effect, ctx);
        }
        self.send_report();
        self.entrust();
        self.unsettled.send_replace(self.core.unsettled());
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::List => self.list(ctx),
            Effect::Start(id, _) => self.start(&id, ctx),
            Effect::Stop(id) => {
                let grace = self.stop_grace(&id);
                self.tell(&id, container::Stop { grace });
            }
            Effect::Evict(id, reason) => {
                let grace = if self.core.machine().fenced {
                    Duration::from_millis(self.term.borrow().grace_ms())
                } else {
                    EVICT_GRACE
                };
                self.tell(&id, container::Evict { reason, grace });
            }
            Effect::Save(id, request) => self.save(&id, request),
            Effect::Give(id, _) => self.tell(&id, container::Give(self.orders(&id))),
            Effect::Forget(id, request) => {
                self.actors.remove(&id);
                ctx.spawn(self.runtime.remove(&id, request).into_actor(self));
            }
            Effect::Announce(job, incarnation, announced) => {
                self.announce(&job, incarnation, &announced);
            }
            Effect::Withdraw(job, incarnation) => {
                members::withdraw(&self.config.layout(), &job, incarnation);
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

    fn stop_grace(&self, id: &ContainerId) -> Duration {
        let grace_s = self.core.state().stop_grace_s(id);
        grace_s.map_or(EVICT_GRACE, |it| Duration::from_secs(u64::from(it)))
    }

    fn spec(&self, id: &ContainerId) -> Option<&JobSpec> {
        self.core.state().partition(id)?.0.spec()
    }

    fn causes(&self, id: &ContainerId) -> Vec<Sequence> {
        self.core.state().causes(id)
    }

    fn start(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let plan = plan::plan(&self.config, self.core.state(), id).map_err(NotStarted::from);
        let plan = self.share_is_full(id).and(plan);
        let plan = plan.and_then(|plan| self.told(id).map(|()| plan));
        let plan = plan.map(|plan| self.with_token(id, plan));
        let ready = plan.and_then(|plan| {
            let files = self.notebook_files(id, &plan)?;
            let before = files.into_iter().chain(self.share_gpus(&plan)?).collect();
            Ok((plan, before))
        });
        match ready {
            Ok((plan, before)) => {
                let mark = ContainerRecord::new(id.clone(), plan.request).of(plan.admitted);
                let watch = self.watch(&mark, false);
                let addr = self.container(mark, false, watch, ctx);
                let layout = self.config.layout();
                let resume = plan.resume.as_deref().filter(|_| id.rank == Rank(0));
                let resume = resume.and_then(|path| layout.named_checkpoint(path));
                addr.do_send(container::Start {
                    plan,
                    resume,
                    before,
                });
            }
            Err(why) => self.core.ended(id, Exit::cannot_start(&why)),
        }
    }

    fn save(&self, id: &ContainerId, request: Sequence) {
        let Some(spec) = self.spec(id) else {
            return;
        };
        let checkpoint = &spec.checkpoint;
        let how = if spec.tasks.is_some() {
            How::Drain
        } else if !AuxiliaryRoles::of(spec).is_worker(id.rank) {
            // An auxiliary container serves the workers while they save.
            How::NotAtAll
        } else if checkpoint.command.is_empty() {
            match plan::save_signal(spec) {
                Ok(signal) => How::Signal(signal),
                Err(_) => How::NotAtAll,
            }
        } else {
            match plan::plan(&self.config, self.core.state(), id) {
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

    fn note(&mut self, id: &ContainerId, what: What) {
        let node = &self.config.node.clone();
        match what {
            What::Running(pid) => {
                self.core.running(id, pid);
                self.let_go(id);
            }
            What::Ended(exit) => {
                self.share_gpus_no_more(id);
                self.actors.remove(id);
                self.alive.remove(id);
                let exit = self.of_the_job(id, exit);
                self.core.ended(id, exit);
            }
            What::Saved(complete, answer) => {
                let (request, took) = answer.map_or((None, Duration::ZERO), |(request, took)| {
                    (Some(request), took)
                });
                let causes = request.map_or_else(|| self.causes(id), |request| vec![request]);
                let event = report::saved(id, &self.config, complete, took);
                self.report(event, causes);
            }
            What::Rejected(uri, reason) => {
                let event = report::rejected(id, node, uri, reason);
                let causes = self.causes(id);
                self.report(event, causes);
            }
            What::SaveFailed(request, reason) => {
                let causes = request.map_or_else(|| self.causes(id), |request| vec![request]);
                self.report(report::save_failed(id, node, reason), causes);
            }
            What::Ready(after) => self.ready(id, after, None),
            What::Does(doing) => {
                let causes = self.causes(id);
                self.report(report::does(id, node, doing), causes);
            }
            What::Unready(reason) => {
                let causes = self.causes(id);
                self.report(report::unready(id, node, reason), causes);
            }
            What::Answered(answer) => self.answered(id, &answer),
            What::TasksEnded(results) => {
                let event = report::tasks_ended(id, node, results);
                let causes = self.causes(id);
                self.report(event, causes);
            }
            What::Progress(line) => {
                if self.core.takes_progress()
                    && let Some((job, partition)) = self.core.state().partition(id)
                {
                    let containers = u32::try_from(partition.containers()).unwrap_or(u32::MAX);
                    let auxiliary = job.spec().map(AuxiliaryRoles::of).unwrap_or_default();
                    let containers = auxiliary.workers(containers);
                    let event = report::progress(id, node, containers, line);
                    let causes = self.causes(id);
                    self.report(event, causes);
                }
            }
        }
    }
}

impl Agent {
    fn ready(&mut self, id: &ContainerId, after: Duration, token: Option<&str>) {
        let token = token.map(jupyter::fingerprint);
        let causes = self.causes(id);
        let event = report::ready(id, &self.config.node, after, token);
        self.report(event, causes);
    }
}

fn grace(spec: &JobSpec) -> Duration {
    Duration::from_secs(u64::from(spec.checkpoint.grace_s))
}
