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
use super::incarnation::{Due, IncarnationId, after, container_id, exited, fenced, incarnation_of};
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
        let incarnation = incarnation_of(id);
        let Some(node) = state.node.clone() else {
            return;
        };
        let here = partition.here.get(&id.rank);
        let comes_later = here.is_some_and(|here| here.generation > 0);
        if !comes_later {
            self.set_aside(&incarnation, &partition.gang, request);
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
        let gang = self
            .gangs
            .entry(incarnation.clone())
            .or_insert_with(|| Gang {
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
            let join_s = model.map_or(0.0, |model| model.join_s((incarnation.1, id.rank)));
            let at = after(now, join_s + faults.start_delay_s());
            return self.schedule(at, incarnation, Due::Joined(id.rank));
        }
        let known = gang.starts_at;
        let at = known.unwrap_or_else(|| {
            let start_s = model.map_or(0.0, |model| model.start_s(incarnation.1));
            let start_s = start_s + faults.start_delay_s();
            self.note_blame(&id.job, u32::from(start_s > SLOW_START_S));
            after(now, start_s)
        });
        let at = at.max(now);
        if known != Some(at)
            && let Some(gang) = self.gangs.get_mut(&incarnation)
        {
            gang.starts_at = Some(at);
            self.schedule(at, incarnation, Due::Started);
        }
    }

    pub(super) fn started(
        &mut self,
        incarnation: IncarnationId,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let Some(gang) = self.gangs.get_mut(&incarnation) else {
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
            self.runs(&incarnation, rank, node);
            if served {
                let ready_s = self.ready_s(&incarnation, rank);
                self.schedule(after(now, ready_s), incarnation.clone(), Due::Ready(rank));
            }
        }
        for rank in unanswered {
            self.runs_unanswered(&incarnation, rank, Due::Started, now, faults);
        }
        if begins {
            let model = self.jobs.get(&incarnation.0).map(|job| &job.model);
            let pause_s = model.map_or(0.0, |it| it.pause_s(incarnation.1, resumes));
            self.work(incarnation, pause_s, now, faults);
        }
    }

    pub(super) fn runs(&mut self, incarnation: &IncarnationId, rank: Rank, node: NodeId) {
        let id = container_id(incarnation, rank);
        self.world.starts(&id, &node);
        self.notes.push_back((node, Note::Running(id)));
    }

    pub(super) fn end(&mut self, incarnation: &IncarnationId, rank: Rank, exit: Exit) {
        if let Some(node) = self.takes_away(incarnation, rank) {
            let id = container_id(incarnation, rank);
            self.notes.push_back((node, Note::Ended(id, exit)));
        }
    }

    fn takes_away(&mut self, incarnation: &IncarnationId, rank: Rank) -> Option<NodeId> {
        let gang = self.gangs.get_mut(incarnation)?;
        let (node, _) = gang.containers.remove(&rank)?;
        gang.stopping.remove(&rank);
        gang.unanswered.remove(&rank);
        // Newcomers decided before this end may still be requested.
        if gang.containers.is_empty() && !gang.in_place {
            self.gangs.remove(incarnation);
        }
        self.world.ends(&container_id(incarnation, rank));
        Some(node)
    }

    fn exit(&mut self, incarnation: &IncarnationId, code: i32) {
        let Some(gang) = self.gangs.get(incarnation) else {
            return;
        };
        let ranks = gang.containers.keys().copied();
        let ranks: Vec<Rank> = ranks
            .filter(|rank| code != 0 || gang.is_worker(*rank))
            .collect();
        for rank in ranks {
            self.end(incarnation, rank, exited(code));
        }
    }

    fn disturb(&mut self, incarnation: &IncarnationId, rank: Rank, now: Timestamp) {
        let gang = self.gangs.get(incarnation);
        let members = gang.and_then(|it| it.members.as_ref());
        if members.is_some_and(|members| !members.contains(&rank)) {
            return;
        }
        let goes_on = gang.is_some_and(|it| it.in_place && it.containers.contains_key(&Rank(0)));
        if let Some(job) = self.jobs.get_mut(&incarnation.0) {
            match goes_on {
                _ if job.incarnation.is_some_and(|works| works != incarnation.1) => {}
                // The other members wait for the resize.
                true => job.pause(now),
                false => job.die(),
            }
        }
    }

    pub(super) fn evict(&mut self, id: &ContainerId, exit: Exit, now: Timestamp) {
        let incarnation = incarnation_of(id);
        self.end(&incarnation, id.rank, exit);
        self.disturb(&incarnation, id.rank, now);
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
        let _ = self.takes_away(&incarnation_of(id), id.rank);
    }

    pub(super) fn lose_containers(&mut self, node: &NodeId, now: Timestamp) {
        let mut lost = Vec::new();
        for (incarnation, gang) in &self.gangs {
            let here = gang.containers.iter().filter(|(_, (at, _))| at == node);
            lost.extend(here.map(|(rank, _)| (incarnation.clone(), *rank)));
        }
        for (incarnation, rank) in lost {
            let _ = self.takes_away(&incarnation, rank);
            self.disturb(&incarnation, rank, now);
        }
    }

    pub(super) fn stop(&mut self, state: &AgentState, id: &ContainerId, now: Timestamp) {
        let incarnation = incarnation_of(id);
        let leaves = state
            .partition(id)
            .is_some_and(|(_, it)| matches!(it.phase, Phase::Run(_)));
        if leaves {
            return self.schedule(now, incarnation, Due::Left(id.rank));
        }
        let job = self.jobs.get(&incarnation.0);
        let stop_s = job.map_or(0.0, |job| job.model.stop_s(incarnation.1));
        if let Some(gang) = self.gangs.get_mut(&incarnation) {
            gang.stopping.insert(id.rank);
            self.schedule(after(now, stop_s), incarnation, Due::Stopped);
        }
    }

    pub(super) fn stopped(&mut self, incarnation: &IncarnationId) {
        let Some(gang) = self.gangs.get_mut(incarnation) else {
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
        let job = self
            .jobs
            .get_mut(&incarnation.0)
            .filter(|_| !ranks.is_empty());
        if let Some(job) =
            job.filter(|job| job.incarnation.is_none_or(|works| works == incarnation.1))
        {
            job.die();
        }
        for rank in ranks {
            self.end(incarnation, rank, exited(143));
        }
    }

    /// Handles a save request: rank 0 saves for its gang; a task-set container leaves.
    pub(super) fn save(&mut self, id: &ContainerId, now: Timestamp, faults: &mut Faults) {
        let incarnation = incarnation_of(id);
        let Some(job) = self.jobs.get_mut(&incarnation.0) else {
            return;
        };
        if job.task_s.is_some() {
            return self.drain(id, now, faults);
        }
        if id.rank != Rank(0) {
            return;
        }
        job.pause(now);
        let saved_at = after(now, job.model.save_s(incarnation.1));
        match faults.saving() {
            Saving::Saves => self.schedule(saved_at, incarnation, Due::Saved),
            Saving::Fails => self.schedule(saved_at, incarnation, Due::SaveFailed),
            Saving::Hangs => {}
        }
    }

    pub(super) fn saved(&mut self, incarnation: &IncarnationId) {
        let (Some(node), Some(job)) = (
            self.coordinator(incarnation),
            self.jobs.get_mut(&incarnation.0),
        ) else {
            return;
        };
        if job.incarnation.is_none_or(|works| works == incarnation.1) {
            job.saved = job.done;
        }
        let exits = job.mode == CheckpointMode::Exit;
        let step = job.model.progress_s.map_or(0, |_| whole(job.done));
        let saved = CheckpointSaved {
            job: incarnation.0.clone(),
            incarnation: incarnation.1,
            node: node.clone(),
            uri: format!("model:{}/{}", incarnation.0, incarnation.1),
            step,
            bytes: 0,
            duration_ms: 0,
        };
        self.says(node, saved);
        if exits {
            self.exit(incarnation, 0);
        }
    }

    pub(super) fn save_failed(&mut self, incarnation: &IncarnationId) {
        if let Some(node) = self.coordinator(incarnation) {
            let failed = CheckpointFailed {
                job: incarnation.0.clone(),
                incarnation: incarnation.1,
                node: node.clone(),
                reason: "the model's disk is full".to_owned(),
            };
            self.says(node, failed);
        }
    }

    pub(super) fn says(&mut self, node: NodeId, event: impl Into<Event>) {
        self.notes.push_back((node, Note::Said(event.into())));
    }

    fn coordinator(&self, incarnation: &IncarnationId) -> Option<NodeId> {
        let gang = self.gangs.get(incarnation)?;
        let containers = u32::try_from(gang.containers.len()).unwrap_or(u32::MAX);
        let coordinator = gang
            .containers
            .get(&Rank(0))
            .filter(|_| containers == gang.size);
        coordinator.map(|(node, _)| node.clone())
    }

    pub(super) fn ended(
        &mut self,
        incarnation: &IncarnationId,
        code: i32,
        plan: u64,
        now: Timestamp,
    ) {
        let dies = u32::from(code != 0);
        let counts = |job: &&mut Simulated| {
            job.plan == plan && job.incarnation.is_none_or(|works| works == incarnation.1)
        };
        let Some(job) = self.jobs.get_mut(&incarnation.0).filter(counts) else {
            return;
        };
        if code != 0 && job.in_place {
            self.note_blame(&incarnation.0, dies);
            return self.one_dies(incarnation, now);
        }
        job.pause(now);
        if code != 0 {
            let due = job.model.failures.get(job.failed);
            // A tolerance, since the failure was scheduled by time.
            job.failed += usize::from(due.is_some_and(|at| *at <= job.done * (1.0 + 1e-6)));
            job.die();
        }
        self.note_blame(&incarnation.0, dies);
        self.exit(incarnation, code);
    }
}
