//! Simulates containers from a model of each job.
//!
//! 1. A gang works at speed(n) once all its containers run. After a checkpoint the resume cost comes
//!    first.
//! 2. A gang that saves makes no progress meanwhile and, in mode `exit`, ends. A save may fail or hang.
//! 3. A stopped container ends, and loses the work since the last checkpoint. An evicted one ends at
//!    once.
//! 4. Auxiliary containers do no work, save nothing, and run until stopped.

use std::collections::BTreeSet;

use dormouse_agent_core::Exit;
use dormouse_agent_core::state::{AgentState, Phase};
use dormouse_messages::events::{CheckpointFailed, CheckpointSaved};
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::job::CheckpointMode;
use dormouse_messages::{Event, NodeId, Sequence, Timestamp};

use super::agents::ModelAgents;
use super::faults::{Faults, Saving};
use super::gang::{Container, Gang};
use super::life::{Due, LifeId, after, container_id, exited, fenced, life_of};
use super::model_node::Note;
use super::simulated::Simulated;
use super::work::whole;

/// The checkpointer gives up a start after two minutes; slower starts than this are blamed on the model.
const SLOW_START_S: f64 = 100.0;

impl ModelAgents {
    pub(super) fn begin(
        &mut self,
        state: &AgentState,
        (id, request): (&ContainerId, Sequence),
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let Some((_, partition)) = state.partition(id) else {
            return;
        };
        let life = life_of(id);
        let Some(node) = state.node.clone() else {
            return;
        };
        let here = partition.here.get(&id.rank);
        let comes_later = here.is_some_and(|here| here.generation > 0);
        if !comes_later {
            self.set_aside(&life, &partition.gang, request);
        }
        if self.late {
            // The late request may miss the other members' start.
            self.note_blame(&id.job, 1);
        }
        let job = self.jobs.get(&id.job);
        let (in_place, served) = job.map_or((false, false), |job| (job.in_place, job.served));
        let auxiliary = job.map_or(0, |job| job.auxiliary);
        let model = job.map(|job| job.model.clone());
        let resumes = partition.phase.start();
        let resumes = resumes.is_some_and(|start| start.resumed_from.is_some());
        let gang = self.gangs.entry(life.clone()).or_insert_with(|| Gang {
            request,
            size: u32::try_from(partition.gang.len()).unwrap_or(u32::MAX),
            members: None,
            resumes,
            in_place,
            served,
            auxiliary,
            ..Gang::default()
        });
        if gang.begun && !gang.in_place {
            // A rolled-back log repeats the request after a part of the gang ended, so the gang begins
            // again.
            (gang.begun, gang.starts_at) = (false, None);
        }
        gang.containers.insert(id.rank, (node, Container::Asked));
        if comes_later {
            let join_s = model.map_or(0.0, |model| model.join_s((life.1, id.rank)));
            let at = after(now, join_s + faults.start_delay_s());
            return self.schedule(at, life, Due::Joined(id.rank));
        }
        let known = gang.starts_at;
        let at = known.unwrap_or_else(|| {
            let start_s = model.map_or(0.0, |model| model.start_s(life.1));
            let start_s = start_s + faults.start_delay_s();
            self.note_blame(&id.job, u32::from(start_s > SLOW_START_S));
            after(now, start_s)
        });
        let at = at.max(now);
        if known != Some(at)
            && let Some(gang) = self.gangs.get_mut(&life)
        {
            gang.starts_at = Some(at);
            self.schedule(at, life, Due::Started);
        }
    }

    pub(super) fn started(&mut self, life: LifeId, now: Timestamp, faults: &mut Faults) {
        let Some(gang) = self.gangs.get_mut(&life) else {
            return;
        };
        let mut started = Vec::new();
        let mut unanswered = Vec::new();
        for (rank, (node, container)) in &mut gang.containers {
            let newcomer = gang.begun && gang.in_place;
            if self.standing.contains_key(node) {
                // The container starts when its host resumes.
            } else if gang.unanswered.contains_key(rank) {
                unanswered.push(*rank);
            } else if *container == Container::Asked && !newcomer && !gang.stopping.contains(rank) {
                *container = Container::Runs;
                started.push((*rank, node.clone()));
            }
        }
        let all = gang.containers.values();
        let runs = all.filter(|(_, container)| *container == Container::Runs);
        let whole = u32::try_from(runs.count()).unwrap_or(u32::MAX) == gang.size;
        let begins = whole && !gang.begun && gang.stopping.is_empty();
        gang.begun |= begins;
        let (resumes, served) = (gang.resumes, gang.served);
        for (rank, node) in started {
            self.runs(&life, rank, node);
            if served {
                let ready_s = self.ready_s(&life, rank);
                self.schedule(after(now, ready_s), life.clone(), Due::Ready(rank));
            }
        }
        for rank in unanswered {
            self.runs_unanswered(&life, rank, Due::Started, now, faults);
        }
        if begins {
            let model = self.jobs.get(&life.0).map(|job| &job.model);
            let pause_s = model.map_or(0.0, |it| it.pause_s(life.1, resumes));
            self.work(life, pause_s, now, faults);
        }
    }

    pub(super) fn runs(&mut self, life: &LifeId, rank: Rank, node: NodeId) {
        let id = container_id(life, rank);
        self.world.starts(&id, &node);
        self.notes.push_back((node, Note::Running(id)));
    }

    pub(super) fn end(&mut self, life: &LifeId, rank: Rank, exit: Exit) {
        if let Some(node) = self.takes_away(life, rank) {
            let id = container_id(life, rank);
            self.notes.push_back((node, Note::Ended(id, exit)));
        }
    }

    fn takes_away(&mut self, life: &LifeId, rank: Rank) -> Option<NodeId> {
        let gang = self.gangs.get_mut(life)?;
        let (node, _) = gang.containers.remove(&rank)?;
        gang.stopping.remove(&rank);
        gang.unanswered.remove(&rank);
        // Newcomers decided before this end may still be requested.
        if gang.containers.is_empty() && !gang.in_place {
            self.gangs.remove(life);
        }
        self.world.ends(&container_id(life, rank));
        Some(node)
    }

    fn exit(&mut self, life: &LifeId, code: i32) {
        let Some(gang) = self.gangs.get(life) else {
            return;
        };
        let ranks = gang.containers.keys().copied();
        let ranks: Vec<Rank> = ranks
            .filter(|rank| code != 0 || gang.is_worker(*rank))
            .collect();
        for rank in ranks {
            self.end(life, rank, exited(code));
        }
    }

    fn disturb(&mut self, life: &LifeId, rank: Rank, now: Timestamp) {
        let gang = self.gangs.get(life);
        let members = gang.and_then(|it| it.members.as_ref());
        if members.is_some_and(|members| !members.contains(&rank)) {
            return;
        }
        let goes_on = gang.is_some_and(|it| it.in_place && it.containers.contains_key(&Rank(0)));
        if let Some(job) = self.jobs.get_mut(&life.0) {
            match goes_on {
                _ if job.life.is_some_and(|works| works != life.1) => {}
                // The other members wait for the resize.
                true => job.pause(now),
                false => job.die(),
            }
        }
    }

    pub(super) fn evict(&mut self, id: &ContainerId, exit: Exit, now: Timestamp) {
        let life = life_of(id);
        self.end(&life, id.rank, exit);
        self.disturb(&life, id.rank, now);
    }

    /// Returns an evicted container's exit. Every other program of mode `exit` saves and exits with 0.
    pub(super) fn taken_away(&self, id: &ContainerId) -> Exit {
        let job = self.jobs.get(&id.job);
        let saves = job.is_some_and(|job| job.mode == CheckpointMode::Exit);
        if saves && id.incarnation.0 % 2 == 1 {
            exited(0)
        } else {
            fenced()
        }
    }

    pub(super) fn vanish(&mut self, id: &ContainerId) {
        let _ = self.takes_away(&life_of(id), id.rank);
    }

    pub(super) fn lose_containers(&mut self, node: &NodeId, now: Timestamp) {
        let mut lost = Vec::new();
        for (life, gang) in &self.gangs {
            let here = gang.containers.iter().filter(|(_, (at, _))| at == node);
            lost.extend(here.map(|(rank, _)| (life.clone(), *rank)));
        }
        for (life, rank) in lost {
            let _ = self.takes_away(&life, rank);
            self.disturb(&life, rank, now);
        }
    }

    pub(super) fn stop(&mut self, state: &AgentState, id: &ContainerId, now: Timestamp) {
        let life = life_of(id);
        let leaves = state
            .partition(id)
            .is_some_and(|(_, it)| matches!(it.phase, Phase::Run(_)));
        if leaves {
            return self.schedule(now, life, Due::Left(id.rank));
        }
        let job = self.jobs.get(&life.0);
        let stop_s = job.map_or(0.0, |job| job.model.stop_s(life.1));
        if let Some(gang) = self.gangs.get_mut(&life) {
            gang.stopping.insert(id.rank);
            self.schedule(after(now, stop_s), life, Due::Stopped);
        }
    }

    pub(super) fn stopped(&mut self, life: &LifeId) {
        let Some(gang) = self.gangs.get_mut(life) else {
            return;
        };
        let stands = |rank: &Rank| {
            let place = gang.containers.get(rank);
            place.is_some_and(|(node, _)| self.standing.contains_key(node))
        };
        let (stay, ranks): (BTreeSet<Rank>, BTreeSet<Rank>) = std::mem::take(&mut gang.stopping)
            .into_iter()
            .partition(stands);
        gang.stopping = stay;
        let job = self.jobs.get_mut(&life.0).filter(|_| !ranks.is_empty());
        if let Some(job) = job.filter(|job| job.life.is_none_or(|works| works == life.1)) {
            job.die();
        }
        for rank in ranks {
            self.end(life, rank, exited(143));
        }
    }

    /// Handles a save request: rank 0 saves for its gang; a task-set container leaves.
    pub(super) fn save(&mut self, id: &ContainerId, now: Timestamp, faults: &mut Faults) {
        let life = life_of(id);
        let Some(job) = self.jobs.get_mut(&life.0) else {
            return;
        };
        if job.task_s.is_some() {
            return self.drain(id, now, faults);
        }
        if id.rank != Rank(0) {
            return;
        }
        job.pause(now);
        let saved_at = after(now, job.model.save_s(life.1));
        match faults.saving() {
            Saving::Saves => self.schedule(saved_at, life, Due::Saved),
            Saving::Fails => self.schedule(saved_at, life, Due::SaveFailed),
            Saving::Hangs => {}
        }
    }

    pub(super) fn saved(&mut self, life: &LifeId) {
        let (Some(node), Some(job)) = (self.chief(life), self.jobs.get_mut(&life.0)) else {
            return;
        };
        if job.life.is_none_or(|works| works == life.1) {
            job.saved = job.done;
        }
        let exits = job.mode == CheckpointMode::Exit;
        let step = job.model.progress_s.map_or(0, |_| whole(job.done));
        let saved = CheckpointSaved {
            job: life.0.clone(),
            incarnation: life.1,
            node: node.clone(),
            uri: format!("model:{}/{}", life.0, life.1),
            step,
            bytes: 0,
            duration_ms: 0,
        };
        self.says(node, saved);
        if exits {
            self.exit(life, 0);
        }
    }

    pub(super) fn save_failed(&mut self, life: &LifeId) {
        if let Some(node) = self.chief(life) {
            let failed = CheckpointFailed {
                job: life.0.clone(),
                incarnation: life.1,
                node: node.clone(),
                reason: "the model's disk is full".to_owned(),
            };
            self.says(node, failed);
        }
    }

    pub(super) fn says(&mut self, node: NodeId, event: impl Into<Event>) {
        self.notes.push_back((node, Note::Said(event.into())));
    }

    fn chief(&self, life: &LifeId) -> Option<NodeId> {
        let gang = self.gangs.get(life)?;
        let containers = u32::try_from(gang.containers.len()).unwrap_or(u32::MAX);
        let chief = gang
            .containers
            .get(&Rank(0))
            .filter(|_| containers == gang.size);
        chief.map(|(node, _)| node.clone())
    }

    pub(super) fn ended(&mut self, life: &LifeId, code: i32, plan: u64, now: Timestamp) {
        let dies = u32::from(code != 0);
        let counts =
            |job: &&mut Simulated| job.plan == plan && job.life.is_none_or(|works| works == life.1);
        let Some(job) = self.jobs.get_mut(&life.0).filter(counts) else {
            return;
        };
        if code != 0 && job.in_place {
            self.note_blame(&life.0, dies);
            return self.one_dies(life, now);
        }
        job.pause(now);
        if code != 0 {
            let due = job.model.failures.get(job.failed);
            // A tolerance, since the failure was scheduled by time.
            job.failed += usize::from(due.is_some_and(|at| *at <= job.done * (1.0 + 1e-6)));
            job.die();
        }
        self.note_blame(&life.0, dies);
        self.exit(life, code);
    }
}
