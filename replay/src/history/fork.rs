//! A fork of a log: the deciders' folded states, and their decisions after hypothetical events.
//!
//! States and decisions are the services' own. A fork never appends to its log.

use dormouse_admission::{Admission, AdmissionState};
use dormouse_archiver::ArchiverState;
use dormouse_autoscaler::AutoscalerState;
use dormouse_messages::{
    Decider, Envelope, Event, Fold, JobId, Recorded, Sequence, Timestamp, Writer,
};
use dormouse_optimizer::Optimizer;
use dormouse_state::{ClusterState, Job};

/// The most decisions until admission rests; each handles many submissions.
const MOST_DECISIONS: usize = 64;

/// The deciders' states at one position of a log.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    pub admission: AdmissionState,
    pub cluster: ClusterState,
    pub autoscaler: AutoscalerState,
    pub archiver: ArchiverState,
    pub sequence: Sequence,
    pub now: Timestamp,
}

/// The optimizer's decision on a fork.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The event without basis; `None` without a decision.
    pub event: Option<Event>,
    pub releases: Vec<JobId>,
}

impl Fork {
    /// Folds an event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        self.admission.evolve(recorded);
        self.cluster.evolve(recorded);
        self.autoscaler.evolve(recorded);
        self.archiver.evolve(recorded);
        self.sequence = recorded.sequence;
        self.now = self.cluster.now;
    }

    /// Folds a hypothetical event.
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

    /// Decides as the services would now: admission until it rests, then the optimizer once.
    pub fn settle(&mut self, optimizer: &Optimizer) -> Outcome {
        let releases = self.release();
        let decision = optimizer.decide(&self.cluster, self.now);
        let event = decision.proposals.into_iter().next().map(|it| it.event);
        Outcome { event, releases }
    }

    /// Lets admission decide until it rests; returns the released jobs.
    pub fn release(&mut self) -> Vec<JobId> {
        let decided = self.admit().into_iter();
        let released = decided.filter_map(|event| match event {
            Event::JobReleased(event) => Some(event.job),
            _ => None,
        });
        released.collect()
    }

    /// Lets admission decide until it rests; returns all its events.
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

    /// Returns a job's containers by the newest placement, or 0.
    #[must_use]
    pub fn containers(&self, job: &JobId) -> u32 {
        let job = self.cluster.jobs.get(job);
        job.map_or(0, Job::workers)
    }
}

impl Outcome {
    /// Returns a job's containers by this decision on `fork`, without roles.
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
                known.map_or(it.containers, |job| job.auxiliary.workers(it.containers))
            },
        )
    }

    /// Returns the decision's figures.
    #[must_use]
    pub fn figures(&self) -> Option<&dormouse_messages::events::Outcome> {
        match &self.event {
            Some(Event::AllocationDecided(event)) => Some(&event.outcome),
            Some(Event::AllocationUnchanged(event)) => Some(&event.outcome),
            _ => None,
        }
    }
}
