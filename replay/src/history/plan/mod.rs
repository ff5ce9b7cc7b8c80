//! Predicts the effects of a submission, a drain, a node or a policy now: the services' first decisions
//! on a fork at the head ([`crate::history::whatif`]), and the time of the start from several runs
//! ([`start`]).

mod answer;
mod start;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_admission::plan::{Planned, state_digest};
use dormouse_messages::events::{AllocationDecided, Outcome, StopReason};
use dormouse_messages::job::Kind;
use dormouse_messages::{Event, Fact, JobId, KeptFact, Sequence, TenantId, Timestamp};
use serde_json::{Value, json};

pub use answer::{Moves, OnNode, Plan, Start};
use start::start;
pub use start::{LEAST_BASIS, forecast, waiting};

use super::changes::{Asked, ChangeError, Changes};
use super::whatif::{Forked, GIVEN_MS, History, WhatifError, ended, run};
use crate::engine::ModelJob;
use crate::scenario::Submission;

/// The subject of a plan.
#[derive(Debug, Clone)]
pub enum Subject {
    Job(TenantId, Value),
    Changes(Box<Changes>),
}

/// Plans at the head of a log, with `draws` runs for the time of the start.
///
/// # Errors
/// A change does not fit, or the services break a rule.
pub fn plan(
    history: &History,
    forked: &Forked<'_>,
    subject: &Subject,
    draws: u32,
) -> Result<Plan, WhatifError> {
    let changes = match subject {
        Subject::Job(tenant, document) => submission(tenant, document)?,
        Subject::Changes(changes) => (**changes).clone(),
    };
    let ingress = forked.next_ingress();
    let of_cluster = matches!(subject, Subject::Changes(_));
    let noted = Noted::of(forked, &changes, ingress, of_cluster)?;
    let mut plan = noted.plan(forked, subject, &changes);
    if plan.moves_anything() {
        let anyway = Noted::of(forked, &nothing(forked), ingress, true)?;
        anyway.mark(&mut plan);
    }
    if let Some(job) = noted.job.filter(|_| plan.code != "refused") {
        // A job that fits at once waits for nobody, so one run suffices.
        let at_once = plan.containers > 0 && plan.shrinks.is_empty();
        let draws = if at_once { 1 } else { draws };
        plan.start = Some(start(history, forked, &changes, &job, draws)?);
        let digest = state_digest(&forked.admission().queues);
        let planned = Planned {
            asof: forked.sequence,
            state: digest,
            containers: plan.containers,
        };
        plan.token = Some(planned.to_string());
    }
    Ok(plan)
}

/// Returns a change without effect that requests a decision: the policy again.
fn nothing(forked: &Forked<'_>) -> Changes {
    let theta2 = json!(forked.cluster().policy.theta2);
    Changes {
        policy: vec![(vec!["theta2".to_owned()], theta2)],
        ..Changes::default()
    }
}

fn submission(tenant: &TenantId, document: &Value) -> Result<Changes, ChangeError> {
    let name = document.get("name").and_then(Value::as_str);
    let job = JobId::new(tenant, name.unwrap_or("unnamed"))
        .map_err(|error| ChangeError::NotThere(format!("a name for it: {error}")))?;
    let asked = Asked {
        added: vec![Submission {
            at_s: 0.0,
            job,
            payload: document.to_string().into_bytes(),
            model: ModelJob::linear(f64::INFINITY),
            kind: Kind::default(),
            clients: None,
        }],
        ..Asked::default()
    };
    let mut variants = asked.variants()?;
    Ok(variants.pop().unwrap_or_default())
}

#[derive(Debug, Default)]
struct Noted {
    job: Option<JobId>,
    refused: Option<(String, String)>,
    decided: Option<Box<AllocationDecided>>,
    outcome: Option<Outcome>,
    released: bool,
    of_cluster: bool,
    /// Omitted jobs that have not ended; their containers become free only then.
    leaving: BTreeSet<JobId>,
    /// Decisions until then belong to the answer.
    until: Timestamp,
    nodes: BTreeMap<String, u32>,
    moving: BTreeSet<JobId>,
}

const MOST_LEAVING_MS: u64 = 10 * 60 * 1_000;

impl Noted {
    fn of(
        forked: &Forked<'_>,
        changes: &Changes,
        ingress: u64,
        of_cluster: bool,
    ) -> Result<Self, WhatifError> {
        let mut noted = Self {
            of_cluster,
            leaving: changes.drop_jobs.clone(),
            until: forked.now,
            ..Self::default()
        };
        run(forked, &forked.likely(), changes, |kept| {
            if noted.is_over(forked.now, kept.at()) {
                return true;
            }
            noted.read(&kept.fact(), ingress);
            false
        })?;
        Ok(noted)
    }

    fn mark(&self, plan: &mut Plan) {
        let decided = self.decided.iter().flat_map(|it| &it.jobs);
        let decided: BTreeMap<String, (u32, u32)> = decided
            .map(|it| (it.job.to_string(), (it.previous, it.containers)))
            .collect();
        for it in plan.shrinks.iter_mut().chain(&mut plan.gains) {
            it.anyway = decided.get(&it.job) == Some(&(it.from, it.to));
        }
        for it in &mut plan.moves {
            it.anyway = self.moving.iter().any(|job| job.as_str() == it.job);
        }
    }

    fn is_over(&self, forked: Timestamp, at: Timestamp) -> bool {
        if self.leaving.is_empty() {
            at > self.until
        } else {
            at > forked.plus_ms(MOST_LEAVING_MS)
        }
    }

    fn left(&mut self, job: &JobId, at: Timestamp) {
        if self.leaving.remove(job) && self.leaving.is_empty() {
            self.until = at.plus_ms(GIVEN_MS);
        }
    }

    fn read(&mut self, fact: &Fact<'_>, ingress: u64) {
        if let Some(job) = fact.event().and_then(ended) {
            self.left(job, fact.at);
        }
        match fact.event() {
            Some(Event::JobAdmitted(event)) if event.ingress_sequence == ingress => {
                self.job = Some(event.job.clone());
            }
            Some(Event::JobRefused(event)) if event.ingress_sequence == ingress => {
                self.refused = Some((event.code.clone(), event.reason.clone()));
            }
            Some(Event::JobReleased(event)) => {
                self.released |= self.job.as_ref() == Some(&event.job)
            }
            Some(Event::AllocationDecided(event)) if self.counts() => {
                self.outcome = Some(event.outcome.clone());
                self.decided = Some(event.clone());
            }
            Some(Event::AllocationUnchanged(event)) if self.counts() => {
                self.outcome = Some(event.outcome.clone());
            }
            Some(Event::PlacementRefused(_)) => (self.decided, self.outcome) = (None, None),
            Some(Event::PlacementDecided(event)) => {
                let removed = event.remove.iter().map(|it| it.job.clone());
                self.moving.extend(removed);
                let own = event.create.iter();
                for it in own.filter(|it| Some(&it.job) == self.job.as_ref()) {
                    *self.nodes.entry(it.node.to_string()).or_default() += 1;
                }
            }
            Some(Event::PartitionStopRequested(event)) if goes_on(event.reason) => {
                self.moving.insert(event.job.clone());
            }
            Some(Event::PartitionStopped(event)) if goes_on(event.reason) => {
                self.moving.insert(event.job.clone());
            }
            _ => {}
        }
    }

    fn counts(&self) -> bool {
        let given = self.of_cluster && self.leaving.is_empty();
        self.decided.is_none() && (given || self.released)
    }

    fn plan(&self, forked: &Forked<'_>, subject: &Subject, changes: &Changes) -> Plan {
        let about = match (&self.job, subject) {
            (Some(job), _) => job.to_string(),
            (None, Subject::Job(tenant, document)) => {
                let name = document.get("name").and_then(Value::as_str);
                format!("{tenant}/{}", name.unwrap_or("-"))
            }
            (None, Subject::Changes(_)) => changes.written.join(" "),
        };
        let mut plan = Plan {
            about,
            asof: forked.sequence,
            at: forked.now,
            code: "nothing".to_owned(),
            waits_for: None,
            reason: None,
            containers: 0,
            nodes: Vec::new(),
            start: None,
            shrinks: Vec::new(),
            gains: Vec::new(),
            moves: Vec::new(),
            loss_before: last_loss(forked.before),
            loss_after: self.outcome.as_ref().map(|it| it.fairness_loss),
            token: None,
        };
        if let Some((code, reason)) = &self.refused {
            "refused".clone_into(&mut plan.code);
            (plan.waits_for, plan.reason) = (Some(code.clone()), Some(reason.clone()));
            return plan;
        }
        self.moves(forked, &changes.drop_jobs, &mut plan);
        match &self.job {
            Some(job) => self.of_job(job, &mut plan),
            None if plan.moves_anything() => {
                "changes".clone_into(&mut plan.code);
            }
            None => {}
        }
        plan
    }

    fn moves(&self, forked: &Forked<'_>, dropped: &BTreeSet<JobId>, plan: &mut Plan) {
        let cluster = forked.cluster();
        let moves = |job: &JobId, from: u32, to: u32| {
            let known = cluster.jobs.get(job);
            let stall_s = known.and_then(|job| job.stall_ms).map(seconds);
            Moves {
                job: job.to_string(),
                tenant: job.tenant().to_owned(),
                from,
                to,
                anyway: false,
                cost_s: if known.is_some_and(|job| job.in_place) {
                    Some(0.0)
                } else {
                    stall_s.or_else(|| cluster.stalls.mean_s())
                },
            }
        };
        let mut decided = BTreeSet::new();
        let jobs = self.decided.iter().flat_map(|it| &it.jobs);
        for it in jobs.filter(|it| Some(&it.job) != self.job.as_ref()) {
            if it.containers != it.previous {
                decided.insert(&it.job);
            }
            let moves = moves(&it.job, it.previous, it.containers);
            match it.containers.cmp(&it.previous) {
                std::cmp::Ordering::Less => plan.shrinks.push(moves),
                std::cmp::Ordering::Greater => plan.gains.push(moves),
                std::cmp::Ordering::Equal => {}
            }
        }
        let keep = self.moving.iter().filter(|job| !decided.contains(job));
        for job in keep.filter(|job| !dropped.contains(*job)) {
            let known = cluster.jobs.get(job);
            let has = known.and_then(|job| job.assignment.as_ref());
            let has = has.map_or(0, dormouse_state::Assignment::containers);
            if has > 0 {
                plan.moves.push(moves(job, has, has));
            }
        }
    }

    fn of_job(&self, job: &JobId, plan: &mut Plan) {
        let decided = self.decided.iter().flat_map(|it| &it.jobs);
        let own = decided.filter(|it| it.job == *job).map(|it| it.containers);
        plan.containers = own.max().unwrap_or(0);
        let nodes = self.nodes.iter().map(|(node, containers)| OnNode {
            node: node.clone(),
            containers: *containers,
        });
        plan.nodes = nodes.collect();
        if plan.containers > 0 {
            "runs".clone_into(&mut plan.code);
            return;
        }
        "waits".clone_into(&mut plan.code);
        let mut waiting = self.outcome.iter().flat_map(|it| &it.waiting);
        let waiting = waiting.rfind(|it| it.job == *job);
        (plan.waits_for, plan.reason) = match waiting {
            Some(waiting) => (Some(waiting.code.clone()), Some(waiting.reason.clone())),
            None if !self.released => (
                Some("queue_turn".to_owned()),
                Some("other jobs of the queues go first, or their room is not free yet".to_owned()),
            ),
            None => (Some("room_not_free".to_owned()), None),
        };
    }
}

const fn goes_on(reason: StopReason) -> bool {
    matches!(reason, StopReason::Adjusted | StopReason::NodeLost)
}

fn last_loss(before: &[KeptFact]) -> Option<f64> {
    before.iter().rev().find_map(|it| match it.event() {
        Some(Event::AllocationDecided(event)) => Some(event.outcome.fairness_loss),
        Some(Event::AllocationUnchanged(event)) => Some(event.outcome.fairness_loss),
        _ => None,
    })
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a restart")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// True if a plan made at `asof` may still hold: no state that decides has changed.
#[must_use]
pub fn holds(planned: &Planned, forked: &Forked<'_>) -> bool {
    planned.asof <= forked.sequence
        && planned.asof >= Sequence(0)
        && planned.state == state_digest(&forked.admission().queues)
}
