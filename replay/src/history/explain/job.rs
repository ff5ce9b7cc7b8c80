//! Why a job has what it has.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_messages::events::Outcome as Figures;
use dormouse_messages::{Event, JobId, Recorded, Sequence, Timestamp};
use dormouse_optimizer::problem::{Budget, Problem};
use dormouse_optimizer::{Group, Solution, conflict, problem_of, solve};
use dormouse_projections::jobs::Phase;
use dormouse_state::Stand;

use super::answer::{Cause, Explanation, Gives, PastResize, QueuePlace, Reason};
use super::changes::Search;
use super::{Decided, ExplainError, Explainer, in_words};
use crate::history::fork::Fork;

/// Jobs of a queue that are named.
const MOST_NAMED: usize = 20;

/// The job's resizes, as they come by.
#[derive(Debug, Default)]
pub struct Resizes {
    all: Vec<PastResize>,
    gained: Vec<Vec<(JobId, u32, u32)>>,
    asked: Option<Timestamp>,
}

impl Resizes {
    /// Notes what an event does to `job`.
    pub fn read(
        &mut self,
        job: &JobId,
        recorded: &Arc<Recorded>,
        causes: impl FnOnce(&[Sequence]) -> Vec<Cause>,
    ) {
        match recorded.event() {
            Some(Event::AllocationDecided(event)) => {
                let own = event.jobs.iter().find(|it| it.job == *job && !it.new);
                let Some(own) = own.filter(|own| own.containers != own.previous) else {
                    return;
                };
                let others = event.jobs.iter();
                let gained = others.filter(|it| it.job != *job && it.containers > it.previous);
                let gained = gained.map(|it| (it.job.clone(), it.previous, it.containers));
                self.gained.push(gained.collect());
                self.all.push(PastResize {
                    sequence: recorded.sequence,
                    at: recorded.stored_at,
                    epoch: event.epoch.0,
                    from: own.previous,
                    to: own.containers,
                    causes: causes(event.basis.as_ref().map_or(&[], |basis| &basis.causes)),
                    gained: Vec::new(),
                    cost_s: None,
                    given_up: None,
                });
            }
            Some(Event::CheckpointRequested(event)) if event.job == *job => {
                self.asked = Some(recorded.stored_at);
            }
            Some(Event::PartitionStopRequested(event)) if event.job == *job => {
                self.asked.get_or_insert(recorded.stored_at);
            }
            Some(Event::PartitionStarted(event)) if event.job == *job => {
                if let (Some(asked), Some(last)) = (self.asked.take(), self.all.last_mut()) {
                    last.cost_s
                        .get_or_insert(recorded.stored_at.seconds_since(asked));
                }
            }
            Some(Event::PartitionKept(event)) if event.job == *job => {
                self.asked = None;
                if let Some(last) = self.all.last_mut() {
                    last.given_up = Some(event.reason.clone());
                }
            }
            _ => {}
        }
    }

    fn seen_by(&self, explainer: &Explainer) -> Vec<PastResize> {
        let mut all = self.all.clone();
        for (resize, gained) in all.iter_mut().zip(&self.gained) {
            let gained = gained.iter().map(|(job, from, to)| Gives {
                job: explainer.name(job),
                from: *from,
                to: *to,
                loses_s: None,
            });
            resize.gained = gained.collect();
            for cause in &mut resize.causes {
                explainer.hide(&mut cause.subject);
            }
        }
        all
    }
}

/// Explains a job.
pub fn explain(explainer: &Explainer, id: &JobId) -> Result<Explanation, ExplainError> {
    let (at, time) = explainer.place();
    let unknown = || explainer.not_there(format!("job {id}"));
    if !explainer.sees(id.tenant()) {
        return Err(unknown());
    }
    let Some(known) = explainer.model.jobs.get(id) else {
        let mut refused = explainer.model.jobs.refused().rev();
        let refused = refused
            .find(|it| it.job.as_ref() == Some(id))
            .ok_or_else(unknown)?;
        let mut answer = Explanation::of(id.to_string(), at, time, "refused");
        answer
            .words
            .push(format!("{id} was refused: {}", refused.reason));
        answer.all.push(reason(
            "refused",
            format!("{}: {}", refused.code, refused.reason),
        ));
        answer.rank();
        return Ok(answer);
    };
    let mut answer = Explanation::of(id.to_string(), at, time, known.phase.as_str());
    answer.resizes = explainer.resizes.seen_by(explainer);
    answer.has = Some(known.now);
    if known.phase.is_over() {
        answer
            .words
            .push(format!("{id} has ended: {}", known.phase.as_str()));
        past(&mut answer);
        return Ok(answer);
    }
    let released = explainer.head.cluster.jobs.contains_key(id);
    if !released {
        queued(explainer, id, &mut answer);
    }
    let Some(decided) = explainer.decided() else {
        answer
            .words
            .push("no allocation has been decided yet".to_owned());
        answer.rank();
        return Ok(answer);
    };
    answer.decision = decided.reference(explainer);
    // A job that has come since is explained by what would be decided now.
    let known_then = decided.before.cluster.job(id).is_some();
    let base = match known_then {
        true => decided.before.clone(),
        false => explainer.head.clone(),
    };
    if known_then && released {
        decision(explainer, id, decided, &mut answer);
    }
    changes(explainer, id, decided, &base, &mut answer);
    answer.rank();
    if let Some(dominant) = answer.dominant.clone() {
        answer.words.push(dominant.words);
    }
    say_corrections(&mut answer);
    past(&mut answer);
    Ok(answer)
}

/// The changes in words.
fn say_corrections(answer: &mut Explanation) {
    let corrections = answer.corrections.clone();
    for correction in &corrections {
        let gets = match correction.admitted {
            true => "would be admitted, with",
            false => "would have",
        };
        let proof = match correction.verified_by.proof.as_str() {
            "proven" => "proven optimal".to_owned(),
            proof => format!("{proof}, gap {:.3}", correction.verified_by.gap),
        };
        answer.words.push(format!(
            "with {} ({} instead of {}) it {gets} {} ({proof})",
            correction.change,
            correction.to,
            correction.from,
            containers(correction.becomes)
        ));
    }
}

/// The resizes in words, the last ones.
fn past(answer: &mut Explanation) {
    for resize in answer.resizes.iter().rev().take(3) {
        let gained: Vec<String> = resize
            .gained
            .iter()
            .map(|gain| format!("{} {}→{}", gain.job, gain.from, gain.to))
            .collect();
        let mut words = format!(
            "epoch {} (event {}, {}) resized it {}→{}, because of {}",
            resize.epoch,
            resize.sequence,
            resize.at.to_words(),
            resize.from,
            resize.to,
            in_words(&resize.causes)
        );
        if !gained.is_empty() {
            words.push_str(&format!("; in the same decision: {}", gained.join(", ")));
        }
        match (&resize.given_up, resize.cost_s) {
            (Some(why), _) => words.push_str(&format!("; it was given up: {why}")),
            (None, Some(cost_s)) => {
                words.push_str(&format!("; it stood still for {cost_s:.1} s"));
            }
            (None, None) => words.push_str("; it does not run again yet"),
        }
        answer.words.push(words);
    }
}

fn reason(code: &str, words: String) -> Reason {
    Reason {
        code: code.to_owned(),
        resource: None,
        short: None,
        of: None,
        words,
    }
}

/// A job that admission has not released.
fn queued(explainer: &Explainer, id: &JobId, answer: &mut Explanation) {
    let queues = &explainer.head.admission.queues;
    let Some(job) = queues.jobs.get(id) else {
        return;
    };
    if let Stand::Held { unmet } = &job.stand {
        "held".clone_into(&mut answer.state);
        let names: Vec<String> = unmet.iter().map(|job| explainer.name(job)).collect();
        let words = format!("it waits for {} to complete", names.join(", "));
        answer.all.push(reason("dependency", words));
        return;
    }
    let needs = queues.needs(id).unwrap_or_default();
    if let Some((resource, has, most)) = queues.over_quota(id.tenant(), &needs) {
        let need = needs.get(resource);
        answer.all.push(Reason {
            code: "quota".to_owned(),
            resource: Some(resource.name().to_owned()),
            short: Some((has + need).saturating_sub(most)),
            of: Some(most),
            words: format!(
                "its tenant's quota of {} {} is used up: it has {}, and the job needs {}",
                resource.name(),
                resource.display(most),
                resource.display(has),
                resource.display(need)
            ),
        });
    }
    let Some(tenant) = queues.tenants.get(id.tenant()) else {
        return;
    };
    let before: Vec<String> = tenant
        .order
        .iter()
        .map(|(_, other)| other)
        .take_while(|other| *other != id)
        .map(|other| explainer.name(other))
        .collect();
    let all = queues
        .tenants
        .values()
        .map(|it| it.order.len())
        .sum::<usize>();
    let place = QueuePlace {
        position: before.len() as u64 + 1,
        of_others: (all - tenant.order.len()) as u64,
        policy: queues.policy.queue.as_str().to_owned(),
        share: queues.share(tenant).as_f64(),
        demand_share: queues.demand_share(tenant).as_f64(),
        before: before.into_iter().take(MOST_NAMED).collect(),
    };
    let words = format!(
        "it is queued: number {} of its tenant's queue, {} jobs of other tenants are queued; the policy {} chooses whose turn it is",
        place.position, place.of_others, place.policy
    );
    answer.all.push(reason("queue_turn", words));
    answer.queue = Some(place);
}

/// What the decision says of a released job, and what stands against more.
fn decision(explainer: &Explainer, id: &JobId, decided: &Decided, answer: &mut Explanation) {
    let basis = decided.recorded.event().and_then(Event::basis);
    let now = basis.map_or(decided.before.now, |basis| basis.now);
    let optimizer = decided.optimizer();
    let budget = Budget {
        gap: optimizer.gap,
        nodes: None,
        seconds: optimizer.seconds,
    };
    let problem = problem_of(&decided.before.cluster, now, budget);
    let solution = solve(&problem);
    let share = solution.jobs.iter().find(|it| it.job == *id);
    let has = share.map_or(0, |share| share.containers);
    if let Some(share) = share {
        (answer.share, answer.fair_share) = (Some(share.share), Some(share.fair_share));
    } else if let Some(waiting) = solution.waiting.iter().find(|it| it.job == *id) {
        answer.fair_share = Some(waiting.fair_share);
    }
    let figures = decided.recorded.event().and_then(figures);
    let waiting = figures.and_then(|it| it.waiting.iter().find(|waiting| waiting.job == *id));
    if let Some(waiting) = waiting {
        let words = match waiting.code.as_str() {
            "behind" if !explainer.sees("") => {
                "it waits behind a job that was released before it".to_owned()
            }
            _ => waiting.reason.clone(),
        };
        answer.all.push(reason(&waiting.code, words));
    }
    stand(id, decided, has, answer);
    against(id, &problem, &solution, has, answer);
}

fn figures(event: &Event) -> Option<&Figures> {
    match event {
        Event::AllocationDecided(event) => Some(&event.outcome),
        Event::AllocationKept(event) => Some(&event.outcome),
        _ => None,
    }
}

/// What can be told of the job alone.
fn stand(id: &JobId, decided: &Decided, has: u32, answer: &mut Explanation) {
    let cluster = &decided.before.cluster;
    let Some(job) = cluster.jobs.get(id) else {
        return;
    };
    if has > 0 {
        let (share, fair) = (
            answer.share.unwrap_or(0.0),
            answer.fair_share.unwrap_or(0.0),
        );
        answer.words.push(format!(
            "it has {} of at least {} and at most {}; its share is {share:.3}, its fair share {fair:.3}",
            containers(has), job.containers.min, job.containers.max
        ));
        if has >= job.containers.max {
            let words = "it has as many containers as it can use".to_owned();
            answer.all.push(reason("own_max", words));
        }
    }
    if job.assignment.is_none() {
        return;
    }
    let settled = job.settled_at(&cluster.policy);
    if job.in_transit() {
        let words = "it was being started or resized when it was decided: until it runs it stays at its target";
        answer.all.push(reason("in_transit", words.to_owned()));
    } else if job.mode == dormouse_messages::job::CheckpointMode::None {
        let words = "it has no checkpoint: it is never resized while it runs";
        answer.all.push(reason("not_adjustable", words.to_owned()));
    } else if let Some(until) = settled.filter(|until| *until > decided.before.now) {
        let words = format!(
            "it had just started and is left as it is until {} (min_run_s, or its first progress)",
            until.to_words()
        );
        answer.all.push(reason("not_ready", words));
    }
}

/// What stands against one container more, or its least.
fn against(id: &JobId, problem: &Problem, solution: &Solution, has: u32, answer: &mut Explanation) {
    let Some(posed) = problem.jobs.iter().find(|job| job.job == *id) else {
        return;
    };
    let least = match has {
        0 => posed.min.max(1),
        has => has + 1,
    };
    let is_most = has >= posed.max;
    if is_most && answer.all.iter().all(|it| it.code != "own_max") {
        let words = "its tenant's quota holds no more containers of it".to_owned();
        answer.all.push(reason("quota", words));
    }
    if is_most
        || answer
            .all
            .iter()
            .any(|it| ["no_such_resource", "never_fits"].contains(&it.code.as_str()))
    {
        return;
    }
    let placed = solution.jobs.iter().filter(|it| it.containers > 0);
    let beside: BTreeSet<JobId> = placed.map(|it| it.job.clone()).collect();
    let Some(found) = conflict(problem, id, least, &beside) else {
        return;
    };
    if let Some(objective) = found.feasible {
        // A waiting job that alone could start waits for the jobs before it.
        if has > 0 {
            let words = format!(
                "{} could be had, but the objective would be {objective:.4} instead of {:.4}: it is not worth what it costs others",
                containers(least),
                solution.solver.objective
            );
            answer.all.push(reason("price", words));
        }
        return;
    }
    answer.conflict = found.conflict.iter().map(name).collect();
    answer.relaxations = found
        .corrections
        .iter()
        .map(|set| set.iter().map(name).collect())
        .collect();
    let alone: BTreeSet<&Group> = found
        .corrections
        .iter()
        .filter(|set| set.len() == 1)
        .flatten()
        .collect();
    for group in alone
        .into_iter()
        .chain(&found.conflict)
        .collect::<BTreeSet<_>>()
    {
        let more = words(group, problem, id, least, has, solution);
        if let Some(said) = answer.all.iter_mut().find(|it| it.code == more.code) {
            // The log says it in words; the quantities are added.
            if said.resource.is_none() {
                (said.resource, said.short, said.of) = (more.resource, more.short, more.of);
            }
        } else if has > 0 || more.code != "resources" || answer.all.is_empty() {
            // Of a waiting job the decision itself names what is short, not what would help too.
            answer.all.push(more);
        }
    }
}

/// The group's name in an answer.
fn name(group: &Group) -> String {
    match group {
        Group::Capacity(resource) => format!("capacity {}", resource.name()),
        Group::Constraints => "constraints".to_owned(),
        Group::Packing => "packing".to_owned(),
        Group::Reserved => "reserved".to_owned(),
        Group::Pins => "pins".to_owned(),
        Group::Adjustments => "theta2".to_owned(),
        Group::Fairness => "theta1".to_owned(),
    }
}

fn words(
    group: &Group,
    problem: &Problem,
    id: &JobId,
    least: u32,
    has: u32,
    solution: &Solution,
) -> Reason {
    let more = containers(least - has);
    match group {
        Group::Capacity(resource) => {
            let total: u64 = problem.nodes.iter().map(|node| node.capacity.get(resource)).sum();
            let reserved: u64 = problem.nodes.iter().map(|node| node.reserved.get(resource)).sum();
            let each = |job: &JobId| {
                let posed = problem.jobs.iter().find(|it| it.job == *job);
                posed.map_or(0, |it| it.demand.get(resource))
            };
            let used: u64 = solution.jobs.iter().map(|it| each(&it.job) * u64::from(it.containers)).sum();
            let free = total.saturating_sub(reserved + used);
            let need = each(id) * u64::from(least - has);
            let short = need.saturating_sub(free);
            Reason {
                code: "resources".to_owned(),
                resource: Some(resource.name().to_owned()),
                short: Some(short),
                of: Some(total),
                words: format!(
                    "{more} more would need {} {}, and {} of {} is free",
                    resource.name(),
                    resource.display(need),
                    resource.display(free),
                    resource.display(total)
                ),
            }
        }
        Group::Constraints => reason("constraints", format!("there is no room for {more} more on the nodes that its constraints and tolerations allow")),
        Group::Packing => reason("fragmentation", format!("room for {more} more is there, but in pieces on several nodes")),
        Group::Reserved => reason("reserved", format!("room for {more} more is still held by containers on their way out")),
        Group::Pins => reason("not_adjustable", "jobs that may not be changed now hold the room: in transit, just started, or without a checkpoint".to_owned()),
        Group::Adjustments => reason(
            "adjustment_bound",
            format!(
                "{more} more would take more restarts than theta2 {} allows: {} of the jobs that run",
                problem.policy.theta2, solution.adjustment_bound
            ),
        ),
        Group::Fairness => reason(
            "fairness_bound",
            format!(
                "with {more} more the fairness loss would be above what theta1 {} allows: {:.3}",
                problem.policy.theta1, solution.fairness_loss_bound
            ),
        ),
    }
}

/// The least changes.
fn changes(
    explainer: &Explainer,
    id: &JobId,
    decided: &Decided,
    base: &Fork,
    answer: &mut Explanation,
) {
    let mut fork = base.clone();
    let optimizer = decided.optimizer();
    let has = fork.settle(&optimizer).containers(&fork, id);
    let mut search = Search {
        base,
        optimizer,
        job: id,
        has,
        left: explainer.solves,
        cut: Vec::new(),
    };
    let mut found = search.all(&base.cluster.policy);
    for correction in &mut found {
        let hidden: Vec<JobId> = correction
            .gives
            .iter()
            .filter_map(|it| it.job.parse().ok())
            .collect();
        for (gives, job) in correction.gives.iter_mut().zip(hidden) {
            if !explainer.sees(job.tenant()) {
                gives.job = explainer.name(&job);
                correction.change =
                    format!("{} with {} instead of {}", gives.job, gives.to, gives.from);
            }
        }
    }
    search.cut.dedup();
    answer.not_searched = search.cut;
    answer.corrections = found;
}

/// `1 container`, `4 containers`.
pub(crate) fn containers(count: u32) -> String {
    match count {
        1 => "1 container".to_owned(),
        count => format!("{count} containers"),
    }
}

/// The phases in which a job has or awaits containers.
pub(crate) fn is_live(phase: Phase) -> bool {
    !phase.is_over()
}
