//! A fork of a log: what the deciders have folded at a place, and what they would decide there if
//! something else had happened.
//!
//! The states are the services' own, so is every decision. Nothing of a fork is ever appended to
//! the log that it was made from.

use dormouse_admission::{Admission, AdmissionState};
use dormouse_autoscaler::AutoscalerState;
use dormouse_messages::{
    Decider, Envelope, Event, Fold, JobId, Recorded, Sequence, Timestamp, Writer,
};
use dormouse_optimizer::Optimizer;
use dormouse_state::{ClusterState, Job};

/// Admission comes to rest within so many decisions of one instant: each takes many submissions.
const MOST_DECISIONS: usize = 64;

/// The deciders' states at one place of a log.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// What admission has folded.
    pub admission: AdmissionState,
    /// What the optimizer, the placer and the checkpointer have folded.
    pub cluster: ClusterState,
    /// What the autoscaler has folded.
    pub autoscaler: AutoscalerState,
    /// The last sequence.
    pub sequence: Sequence,
    /// The time that a decision is given here.
    pub now: Timestamp,
}

/// What the optimizer decides on a fork.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The event, without its basis; nothing where there is nothing to decide.
    pub event: Option<Event>,
    /// Where the fork stands after it.
    pub releases: Vec<JobId>,
}

impl Fork {
    /// Folds an event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        self.admission.evolve(recorded);
        self.cluster.evolve(recorded);
        self.autoscaler.evolve(recorded);
        self.sequence = recorded.sequence;
        self.now = self.cluster.now;
    }

    /// Lets something happen that is not on the log.
    pub fn happen(&mut self, writer: Writer, event: Event) {
        let sequence = self.sequence.next();
        let off_us = self.cluster.clock.offset_us();
        let recorded = Recorded {
            sequence,
            stored_at: Timestamp::from_micros(self.now.as_micros().saturating_sub(off_us)),
            writer,
            envelope: Envelope::new(format!("fork-{sequence}"), writer, self.now, None, event),
        };
        self.read(&recorded);
    }

    /// Decides as the services would now: admission until it has nothing more to say, then the
    /// optimizer once.
    pub fn settle(&mut self, optimizer: &Optimizer) -> Outcome {
        let releases = self.release();
        let decision = optimizer.decide(&self.cluster, self.now);
        let event = decision.proposals.into_iter().next().map(|it| it.event);
        Outcome { event, releases }
    }

    /// Lets admission decide until it has nothing more to say; the jobs that it released.
    pub fn release(&mut self) -> Vec<JobId> {
        let decided = self.admit().into_iter();
        let released = decided.filter_map(|event| match event {
            Event::JobReleased(event) => Some(event.job),
            _ => None,
        });
        released.collect()
    }

    /// The same; everything that it said.
    pub fn admit(&mut self) -> Vec<Event> {
        let mut said = Vec::new();
        for _ in 0..MOST_DECISIONS {
            let decision = Admission.decide(&self.admission, self.now);
            if decision.proposals.is_empty() {
                break;
            }
            for proposal in decision.proposals {
                said.push(proposal.event.clone());
                self.happen(Writer::Admission, proposal.event);
            }
        }
        said
    }

    /// The containers of a job by the newest placement; 0 where it has none.
    #[must_use]
    pub fn containers(&self, job: &JobId) -> u32 {
        let job = self.cluster.jobs.get(job);
        job.map_or(0, Job::workers)
    }
}

impl Outcome {
    /// The containers that a job has by this decision, made on `fork`; its roles apart.
    #[must_use]
    pub fn containers(&self, fork: &Fork, job: &JobId) -> u32 {
        let listed = match &self.event {
            Some(Event::AllocationDecided(event)) => event.jobs.iter().find(|it| it.job == *job),
            _ => None,
        };
        listed.map_or_else(
            || fork.containers(job),
            |it| {
                let known = fork.cluster.jobs.get(job);
                known.map_or(it.containers, |job| job.beside.workers(it.containers))
            },
        )
    }

    /// The decision's figures.
    #[must_use]
    pub fn figures(&self) -> Option<&dormouse_messages::events::Outcome> {
        match &self.event {
            Some(Event::AllocationDecided(event)) => Some(&event.outcome),
            Some(Event::AllocationKept(event)) => Some(&event.outcome),
            _ => None,
        }
    }
}
