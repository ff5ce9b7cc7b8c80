//! Explains a job.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_messages::events::Outcome as Figures;
use dormouse_messages::policy::Value;
use dormouse_messages::sanitize::containers;
use dormouse_messages::{Event, JobId, Span};
use dormouse_optimizer::{Made, Optimizer, unknown_speed};
use dormouse_projections::jobs::reason::failed_container;
use dormouse_projections::jobs::{Job, Phase, turn};
use dormouse_projections::queries::BudgetRow;
use dormouse_state::queues::TenantQueue;
use dormouse_state::usage::NEUTRAL;
use dormouse_state::{ClusterState, Queues, Stand};

use super::against::against;
use super::answer::{Correction, Explanation, QueuePlace, Reason, reason, say};
use super::explainer::{Decided, ExplainError, Explainer};
use super::refusal::refused;
use super::resizes::past;
use super::room::{held, no_nodes};
use super::search::Search;
use super::slurm;
use crate::history::fork::{Fork, Outcome};

const MOST_NAMED: usize = 20;

/// Explains a job; `tell` receives the partial answer after the reason and after each change.
pub fn explain(
    explainer: &Explainer,
    id: &JobId,
    tell: &mut dyn FnMut(&Explanation),
) -> Result<Explanation, ExplainError> {
    let (at, time) = explainer.place();
    let unknown = || explainer.no_job(id);
    if !explainer.sees(id.tenant()) {
        return Err(unknown());
    }
    let Some(known) = explainer.model.jobs.get(id) else {
        return refused(explainer, id, tell).ok_or_else(unknown);
    };
    let mut answer = Explanation::of(id.to_string(), at, time, known.phase.as_str());
    answer.resizes = explainer.past_resizes();
    answer.has = Some(known.now);
    answer.words.extend(people(id, known));
    answer.words.extend(class(explainer, id, known));
    answer.words.extend(remembered(explainer, id.tenant()));
    answer.words.extend(budget(explainer, id.tenant()));
    answer.words.extend(seen(explainer, id));
    if alone(explainer, (id, known), &mut answer) {
        past(&mut answer);
        return Ok(answer);
    }
    answer.words.extend(failed_container(known));
    answer.words.extend(slurm::words(explainer, id));
    let released = explainer.head.cluster.jobs.contains_key(id);
    if !released {
        queued(explainer, id, &mut answer);
    }
    let Some(decided) = explainer.decided() else {
        answer
            .words
            .push("no allocation has been decided yet".to_owned());
        held(explainer, id, &mut answer);
        answer.rank();
        return Ok(answer);
    };
    let made = decided.made();
    answer.decision = decided.reference_by(explainer, &made);
    // A job newer than the decision is explained by a decision made now.
    let known_then = decided.before.cluster.job(id).is_some();
    let base = if known_then {
        &decided.before
    } else {
        &explainer.head
    };
    let mut idle = None;
    if known_then && released {
        idle = Some(decision(explainer, id, decided, &made, &mut answer));
    }
    if answer.all.is_empty() {
        answer.all.extend(idle_service(known));
    }
    answer.rank();
    if let Some(dominant) = answer.dominant.clone() {
        answer.words.push(dominant.words);
    }
    answer.words.extend(speed(&base.cluster, id));
    if known.now == 0 {
        held(explainer, id, &mut answer);
    }
    tell(&answer);
    let made = known_then.then_some(made.event);
    let optimizer = decided.optimizer();
    changes(
        explainer,
        id,
        (optimizer, base, made),
        idle,
        &mut answer,
        tell,
    );
    past(&mut answer);
    Ok(answer)
}

/// Says what the policy knows about the job's speed, if it values speed.
fn speed(cluster: &ClusterState, id: &JobId) -> Option<String> {
    if cluster.policy.objective.value != Value::Speed {
        return None;
    }
    let job = cluster.job(id)?;
    let fitted = cluster.speeds.job(id).and_then(|it| it.fitted.as_ref());
    let Some(fitted) = fitted else {
        return Some(format!(
            "its speed is unknown until it reports progress with two numbers of containers: it counts as linear up to {}",
            containers(unknown_speed(job))
        ));
    };
    let (points, most) = (fitted.points.len(), fitted.most());
    let fastest = fitted.fastest(job.containers.max);
    let further = fitted.further(job.workers()).map(|further| {
        let gain = further * 100.0;
        format!("a further container would change its speed by {gain:+.1} %, and ")
    });
    let further = further.unwrap_or_default();
    Some(format!(
        "{further}it is fastest with {fastest}: fitted to {points} numbers of containers, {most} at most, error {:.0} %",
        fitted.error * 100.0
    ))
}

fn people(id: &JobId, known: &Job) -> impl Iterator<Item = String> {
    let did = [
        (&known.submitted_by, "submitted"),
        (&known.cancelled_by, "cancelled"),
    ];
    did.into_iter().filter_map(move |(by, did)| {
        let by = by.as_ref()?;
        Some(format!("{id} was {did} by {by}"))
    })
}

fn idle_service(known: &Job) -> Option<Reason> {
    let is_idle = known.kind.is_served() && known.now == 0 && known.target == 0;
    let words = "it is idle: it is to have no replica until somebody asks for it";
    is_idle.then(|| reason("idle", words.to_owned()))
}

/// Explains jobs that no decision affects: ended jobs and jobs on hold.
fn alone(explainer: &Explainer, (id, known): (&JobId, &Job), answer: &mut Explanation) -> bool {
    if known.phase.is_over() {
        let why = match known.note.as_str() {
            "" => String::new(),
            note => format!(", {note}"),
        };
        let words = format!("{id} has ended: {}{why}", known.phase.as_str());
        answer.words.push(words);
        return true;
    }
    let budgeted = explainer.head.cluster.job(id).filter(|it| it.over_budget);
    if budgeted.is_some() {
        let words = "its tenant's budget is used: it has saved and stops until the budget begins again or is raised";
        answer.all.push(reason("budget", words.to_owned()));
        answer.rank();
        let dominant = answer.dominant.iter().map(|it| it.words.clone());
        answer.words.extend(dominant);
        return true;
    }
    let Some(job) = explainer.head.cluster.job(id).filter(|it| it.on_hold) else {
        return false;
    };
    let words = match known.now {
        _ if job.requeued => "it is requeued: it gives back what it has first".to_owned(),
        0 => format!("it is on hold: it is given nothing until `dormouse job release {id}`"),
        _ => "it is on hold: it gives back what it has".to_owned(),
    };
    answer.all.push(reason("on_hold", words));
    answer.rank();
    let dominant = answer.dominant.iter().map(|it| it.words.clone());
    answer.words.extend(dominant);
    true
}

fn seen(explainer: &Explainer, id: &JobId) -> Option<String> {
    let (_, now) = explainer.place();
    let service = explainer.model.services.get(id)?;
    let is_told = service.told.is_some() && !service.ended;
    is_told.then(|| format!("its clients see: {}", service.health(now).words))
}

fn class(explainer: &Explainer, id: &JobId, known: &Job) -> Option<String> {
    let request = known.request(id, explainer.model.state());
    let class = request.as_ref().and_then(|it| it.class.as_ref());
    let class = class.map(|class| {
        let preempts = if class.preempts {
            "; lower ones make room for it"
        } else {
            ""
        };
        format!(
            "its priority class is {} ({}{preempts})",
            class.name, class.value
        )
    });
    let times = match known.preempted {
        0 => return class,
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let class = class.unwrap_or_else(|| "it has no priority class".to_owned());
    Some(format!("{class}; it was preempted {times}"))
}

/// Describes the tenant's budget, and its end at the present use.
pub(super) fn budget(explainer: &Explainer, tenant: &str) -> Option<String> {
    let (_, now) = explainer.place();
    let spending = explainer.head.cluster.budgets.get(tenant)?;
    let row = BudgetRow::of(spending, now)?;
    let until = row
        .until
        .map(|until| format!("; it begins again at {}", until.to_words()));
    let ends = row.ends_at.map(|at| {
        let minutes = at.ms_since(now) / 60_000;
        let left = Span(Duration::from_secs(minutes * 60));
        format!(" and ends in {left} at the present use")
    });
    Some(format!(
        "{} of {} {} hours of the budget of {tenant} a {} are used{}{}",
        row.used,
        row.hours,
        row.resource,
        row.budget.period.as_str(),
        ends.unwrap_or_default(),
        until.unwrap_or_default()
    ))
}

/// Describes the effect of the tenant's past use.
pub(super) fn remembered(explainer: &Explainer, tenant: &str) -> Option<String> {
    let (_, now) = explainer.place();
    let cluster = &explainer.head.cluster;
    let half_life = cluster.policy.shares.memory()?.half_life();
    let standing = cluster.standings(now).get(tenant)?;
    let weight = cluster.tenants.weight(tenant, &cluster.policy);
    let does = match standing.factor {
        factor if factor > NEUTRAL => "its jobs get more now and go earlier",
        factor if factor < NEUTRAL => "its jobs get less now and go later",
        _ => "its jobs get what its weight says",
    };
    Some(format!(
        "{tenant} used {} % of its due (half-life {half_life}); its weight {weight} counts {} times, so {does}",
        standing.balance / 10,
        thousandths(standing.factor)
    ))
}

fn thousandths(number: u64) -> String {
    format!("{}.{:02}", number / 1000, number % 1000 / 10)
}

fn queued(explainer: &Explainer, id: &JobId, answer: &mut Explanation) {
    let queues = &explainer.head.admission.queues;
    let Some(job) = queues.jobs.get(id) else {
        return;
    };
    if let Stand::Held { unmet } = &job.stand {
        "queued".clone_into(&mut answer.state);
        let names: Vec<String> = unmet.iter().map(|job| explainer.name(job)).collect();
        let words = format!("it waits for {} to complete", names.join(", "));
        answer.all.push(reason("dependency", words));
        return;
    }
    let needs = queues.needs(id).unwrap_or_default();
    if let Some(words) = turn::never_fits(queues, id) {
        answer.all.push(reason("never_fits", words));
    }
    let least = job.smallest_containers();
    if let Some(above) = queues.above(id) {
        let words = above.waits(id.tenant());
        answer.all.push(reason(above.code(), words));
    } else if let Some((resource, has, most)) = queues.over_quota(id.tenant(), &needs) {
        let need = needs.get(resource);
        answer.all.push(Reason {
            code: "quota".to_owned(),
            resource: Some(resource.name().to_owned()),
            short: Some((has + need).saturating_sub(most)),
            of: Some(most),
            words: format!(
                "its tenant's quota of {} {} has no room for it: what runs needs {} at the least, and the job needs {}",
                resource.name(),
                resource.display(most),
                resource.display(has),
                resource.display(need)
            ),
        });
    } else if let Some((has, most)) = queues.over_containers(id.tenant(), least) {
        let words = turn::over_containers(id.tenant(), has, most);
        answer.all.push(reason("quota", words));
    } else if let Some(words) = queues.over_budget(id, explainer.place().1) {
        answer.all.push(reason("budget", words));
    }
    if answer.all.is_empty()
        && let Some(words) = no_nodes(explainer, id)
    {
        answer.all.push(reason("fragmentation", words));
    }
    let Some(tenant) = queues.tenants.get(id.tenant()) else {
        return;
    };
    let place = queue_place(explainer, queues, tenant, id);
    let words = format!(
        "it is queued: number {} of its tenant's queue, {} jobs of other tenants are queued; the policy {} chooses whose turn it is",
        place.position, place.of_others, place.policy
    );
    answer.all.push(reason("queue_turn", words));
    answer.queue = Some(place);
}

fn queue_place(
    explainer: &Explainer,
    queues: &Queues,
    tenant: &TenantQueue,
    id: &JobId,
) -> QueuePlace {
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
    QueuePlace {
        position: before.len() as u64 + 1,
        of_others: (all - tenant.order.len()) as u64,
        policy: queues.cluster.policy.queue.as_str().to_owned(),
        share: queues.share(tenant).as_f64(),
        demand_share: queues.demand_share(tenant).as_f64(),
        before: before.into_iter().take(MOST_NAMED).collect(),
    }
}

/// Returns the job's containers and the kinds of changes that cannot help.
fn decision(
    explainer: &Explainer,
    id: &JobId,
    decided: &Decided,
    made: &Made,
    answer: &mut Explanation,
) -> (u32, BTreeSet<&'static str>) {
    let Made {
        problem, solution, ..
    } = made;
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
            "preempted" if !explainer.sees("") => {
                "it made room for a service or a job of a higher class".to_owned()
            }
            "preemption_bound" if !explainer.sees("") => {
                "room for it could only come from jobs that the bound on preemptions protects"
                    .to_owned()
            }
            _ => waiting.reason.clone(),
        };
        answer.all.push(reason(&waiting.code, words));
    }
    stand(id, decided, has, answer);
    (has, against(id, problem, solution, has, answer))
}

fn figures(event: &Event) -> Option<&Figures> {
    match event {
        Event::AllocationDecided(event) => Some(&event.outcome),
        Event::AllocationUnchanged(event) => Some(&event.outcome),
        _ => None,
    }
}

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
    } else if job.mode == dormouse_messages::job::CheckpointMode::None && !job.in_place {
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

fn changes(
    explainer: &Explainer,
    id: &JobId,
    (optimizer, base, made): (Optimizer, &Fork, Option<Event>),
    idle: Option<(u32, BTreeSet<&'static str>)>,
    answer: &mut Explanation,
    tell: &mut dyn FnMut(&Explanation),
) {
    let mut fork = base.clone();
    let releases = fork.release();
    let outcome = match made.filter(|_| fork.sequence == base.sequence) {
        Some(event) => Outcome {
            event: Some(event),
            releases,
        },
        None => fork.settle(&optimizer),
    };
    let has = outcome.containers(&fork, id);
    // The proof holds only for the same number of containers.
    let idle = idle.filter(|(of, _)| *of == has).map(|(_, idle)| idle);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut search = Search {
        base,
        optimizer,
        job: id,
        has,
        left: explainer.solves,
        cut: Vec::new(),
        idle: idle.unwrap_or_default(),
        threads,
    };
    search.all(&base.cluster.policy, |mut correction| {
        hide(explainer, &mut correction);
        answer.words.push(say(&correction, "be released"));
        answer.corrections.push(correction);
        tell(answer);
    });
    search.cut.dedup();
    answer.solves = explainer.solves - search.left;
    answer.not_searched = search.cut;
}

fn hide(explainer: &Explainer, correction: &mut Correction) {
    let mut hidden = false;
    for gives in &mut correction.gives {
        if let Ok(job) = gives.job.parse::<JobId>()
            && !explainer.sees(job.tenant())
        {
            gives.job = explainer.name(&job);
            hidden = true;
        }
    }
    if hidden {
        let each = correction.gives.iter();
        let each = each.map(|it| format!("{} with {} instead of {}", it.job, it.to, it.from));
        correction.change = each.collect::<Vec<_>>().join(", ");
    }
}

pub(crate) fn is_live(phase: Phase) -> bool {
    !phase.is_over()
}
