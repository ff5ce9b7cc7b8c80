//! Explains a tenant, a node or a decision.

use dormouse_messages::events::{Outcome as Figures, StoppedBy};
use dormouse_messages::{Epoch, Event, NodeId, TenantId, Timestamp};
use dormouse_projections::jobs::Job;
use dormouse_projections::keys::KeyHolder;
use dormouse_state::NodePhase;

use super::alternatives::alternatives;
use super::answer::{Explanation, JobLine, KeyLine, in_words};
use super::explainer::{ExplainError, Explainer};
use super::job::{budget, is_live, remembered};

fn line(
    explainer: &Explainer,
    id: &dormouse_messages::JobId,
    job: &Job,
    containers: u32,
) -> JobLine {
    let waiting = explainer
        .head
        .cluster
        .waiting
        .iter()
        .find(|it| it.job == *id);
    JobLine {
        job: explainer.name(id),
        from: None,
        containers,
        share: job.share,
        fair_share: job.fair_share,
        code: waiting.map(|it| it.code.clone()).unwrap_or_default(),
        reason: waiting.map(|it| it.reason.clone()).unwrap_or_default(),
    }
}

fn key((name, holder): (&str, &KeyHolder)) -> KeyLine {
    KeyLine {
        name: name.to_owned(),
        holder: holder.clone(),
    }
}

pub fn tenant(explainer: &Explainer, tenant: &TenantId) -> Result<Explanation, ExplainError> {
    let (at, time) = explainer.place();
    let queues = &explainer.head.admission.queues;
    let unknown = || explainer.not_there(format!("tenant {tenant}"));
    if !explainer.sees(tenant.as_str()) {
        return Err(unknown());
    }
    let configured = queues.cluster.tenants.get(tenant.as_str()).is_some();
    let known = queues.tenants.get(tenant.as_str());
    let keys = explainer.model.keys.of(tenant.as_str()).map(key);
    let keys: Vec<KeyLine> = keys.collect();
    if !configured && known.is_none() && keys.is_empty() {
        return Err(unknown());
    }
    let mut answer = Explanation::of(format!("tenant {tenant}"), at, time, "known");
    let weight = queues.weight(tenant.as_str());
    let mut others: Vec<&str> = queues.tenants.keys().map(TenantId::as_str).collect();
    others.extend(queues.cluster.tenants.iter().map(|(name, _)| name.as_str()));
    others.sort_unstable();
    others.dedup();
    let all: u64 = others
        .iter()
        .map(|name| u64::from(queues.weight(name)))
        .sum();
    answer
        .words
        .push(format!("{tenant} has weight {weight} of {all} together"));
    answer.words.extend(remembered(explainer, tenant.as_str()));
    answer.words.extend(budget(explainer, tenant.as_str()));
    if let Some(queue) = known {
        answer.share = Some(queues.share(queue).as_f64());
        answer.words.push(format!(
            "its jobs run with a dominant share of {:.3} and have {:.3} queued in {} jobs; the policy {} chooses whose turn it is",
            queues.share(queue).as_f64(),
            queues.demand_share(queue).as_f64(),
            queue.order.len(),
            queues.cluster.policy.queue.as_str()
        ));
    }
    if let Some(quota) = queues.cluster.tenants.quota(tenant.as_str()) {
        answer.words.push(format!("its quota is {quota}"));
    }
    let jobs = explainer.model.jobs.live();
    let jobs = jobs.filter(|(id, job)| id.tenant() == tenant.as_str() && is_live(job.phase));
    answer.jobs = jobs
        .map(|(id, job)| line(explainer, id, job, job.now))
        .collect();
    answer.keys = keys;
    if let Some(decided) = explainer.decided() {
        let made = decided.made();
        answer.decision = decided.reference_by(explainer, &made);
        // An allocation names only changed jobs, but fair shares change with any of them.
        for line in &mut answer.jobs {
            let now = made
                .solution
                .jobs
                .iter()
                .find(|it| it.job.as_str() == line.job);
            if let Some(now) = now {
                (line.share, line.fair_share) = (now.share, now.fair_share);
            }
        }
    }
    let waiting: Vec<String> = answer
        .jobs
        .iter()
        .filter(|job| !job.reason.is_empty())
        .map(|job| format!("{} waits: {}", job.job, job.reason))
        .collect();
    answer.words.extend(waiting);
    Ok(answer)
}

fn drained_by(explainer: &Explainer, name: &NodeId) -> String {
    let known = explainer.model.nodes.get(name);
    let by = known.and_then(|node| node.drain.as_ref()?.by.as_ref());
    by.map_or_else(|| "the operator".to_owned(), ToString::to_string)
}

fn lost(last_seen: Timestamp) -> String {
    if last_seen == Timestamp::default() {
        "its agent's lease has ended".to_owned()
    } else {
        format!(
            "its agent's lease has ended; it was last renewed at {}",
            last_seen.to_words()
        )
    }
}

pub fn node(explainer: &Explainer, name: &NodeId) -> Result<Explanation, ExplainError> {
    let (at, time) = explainer.place();
    let cluster = &explainer.head.cluster;
    let node = cluster.nodes.get(name);
    let node = node.ok_or_else(|| explainer.not_there(format!("node {name}")))?;
    let (state, why) = match (&node.phase, &node.health.quarantine, node.drained) {
        (NodePhase::Lost { last_seen }, _, _) => ("lost", lost(*last_seen)),
        (NodePhase::Returning { .. }, _, _) => (
            "returning",
            "its agent has joined again and is being taken back".to_owned(),
        ),
        (NodePhase::Up, _, true) => (
            "drained",
            format!(
                "{} has drained it: nothing is placed on it until `dormouse node restore`",
                drained_by(explainer, name)
            ),
        ),
        (NodePhase::Up, Some(quarantine), false) => (
            "quarantined",
            format!(
                "nothing is placed on it until {}: {}",
                quarantine.until.to_words(),
                quarantine.reason
            ),
        ),
        (NodePhase::Up, None, false) => ("up", "containers may be placed on it".to_owned()),
    };
    let mut answer = Explanation::of(format!("node {name}"), at, time, state);
    answer.words.push(format!("{name} is {state}: {why}"));
    let held = cluster.held();
    let held = held.get(name).cloned().unwrap_or_default();
    answer.words.push(if held.is_empty() {
        format!("it offers {}, and nothing of it is held", node.capacity)
    } else {
        format!("it offers {}; {held} is held", node.capacity)
    });
    for (id, job) in &cluster.jobs {
        let count = job.held().filter(|(node, _)| *node == name).count();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if let (true, Some(known)) = (count > 0, explainer.model.jobs.get(id)) {
            answer.jobs.push(line(explainer, id, known, count));
        }
    }
    let stays =
        |job: &dormouse_state::Job| job.mode == dormouse_messages::job::CheckpointMode::None;
    let stay = cluster
        .jobs
        .iter()
        .filter(|(_, job)| stays(job) && job.held().any(|(node, _)| node == name));
    if state == "drained" {
        let latest = node.leave_by.map_or_else(String::new, |by| {
            format!(", at the latest by {}, when it is stopped", by.to_words())
        });
        for (id, _) in stay {
            let id = explainer.name(id);
            answer.words.push(format!(
                "{id} stays there until it ends{latest}: it has no checkpoint"
            ));
        }
    }
    Ok(answer)
}

pub(crate) fn restarts(adjusted: u32, bound: u32) -> String {
    match bound {
        u32::MAX => format!("{adjusted} jobs, without a bound"),
        bound => format!("{adjusted} of at most {bound} jobs"),
    }
}

fn quality(figures: &Figures, answer: &mut Explanation) {
    let solver = &figures.solver;
    answer.words.push(format!(
        "its objective is {:.4}, and no allocation has more than {:.4} ({}, found by {}); it restarts {}, with a fairness loss of {:.3} of at most {:.3}",
        solver.objective,
        solver.bound.max(solver.objective),
        match solver.stopped_by {
            StoppedBy::Optimal => "proven",
            other => other.as_str(),
        },
        solver.stage,
        restarts(figures.adjusted_jobs, figures.adjustment_bound),
        figures.fairness_loss,
        figures.fairness_loss_bound
    ));
    if figures.forced_jobs > 0 {
        answer.words.push(format!(
            "{} more had to be placed again",
            figures.forced_jobs
        ));
    }
    if figures.unbounded {
        let words =
            "the cluster was idle: the head of the queue was admitted without the fairness bound";
        answer.words.push(words.to_owned());
    }
}

/// Explains a decision; `tell` receives the answer before the alternatives.
pub fn epoch(
    explainer: &Explainer,
    epoch: Epoch,
    tell: &mut dyn FnMut(&Explanation),
) -> Result<Explanation, ExplainError> {
    let (at, time) = explainer.place();
    let unknown = || explainer.not_there(format!("decision epoch/{epoch}"));
    let decided = explainer.decided().ok_or_else(unknown)?;
    let Some(Event::AllocationDecided(event)) = decided.recorded.event() else {
        return Err(unknown());
    };
    if event.epoch != epoch {
        return Err(unknown());
    }
    let mut answer = Explanation::of(format!("epoch/{epoch}"), at, time, "decided");
    let made = decided.made();
    answer.decision = decided.reference_by(explainer, &made);
    let causes = answer.decision.iter().flat_map(|it| it.causes.clone());
    let causes = in_words(&causes.collect::<Vec<_>>());
    answer
        .words
        .push(format!("epoch {epoch} was decided because of {causes}"));
    let figures = &event.outcome;
    quality(figures, &mut answer);
    let lines = event.jobs.iter().map(|job| JobLine {
        job: explainer.name(&job.job),
        from: Some(job.previous),
        containers: job.containers,
        share: job.share,
        fair_share: job.fair_share,
        code: String::new(),
        reason: String::new(),
    });
    answer.jobs.extend(lines);
    for waiting in &figures.waiting {
        if explainer.sees(waiting.job.tenant()) {
            answer
                .words
                .push(format!("{} waits: {}", waiting.job, waiting.reason));
        }
    }
    tell(&answer);
    // Only a repeatable decision can be weighed against alternatives.
    if answer
        .decision
        .as_ref()
        .is_some_and(|it| it.remade == "equal")
    {
        answer.alternatives = alternatives(explainer, &made, explainer.solves);
        answer.solves = answer.alternatives.len();
    }
    Ok(answer)
}
