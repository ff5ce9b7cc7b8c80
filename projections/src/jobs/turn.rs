//! Reasons why a queued job is not released.

use std::cmp::Reverse;

use dormouse_messages::policy::Queue;
use dormouse_messages::{Amounts, JobId, Timestamp, sanitize};

use super::room::Room;
use dormouse_state::queues::Order;
use dormouse_state::{Queues, Stand};

const NAMED: usize = 3;

/// Returns the reason for `id`; `position` is its place in its tenant's queue, from 1.
#[must_use]
pub fn queued(room: &Room<'_>, id: &JobId, position: Option<u64>, now: Timestamp) -> String {
    let table = room.table();
    let stand = room.queues().jobs.get(id).map(|job| &job.stand);
    match (stand, position) {
        (Some(Stand::Held { unmet }), _) => {
            let phase = |id: &JobId| table.get(id).map_or("unknown", |job| job.phase.as_str());
            let named = unmet.iter().map(|id| format!("{id} ({})", phase(id)));
            format!("waits for {} to complete", sanitize::listed(named, NAMED))
        }
        (Some(Stand::DependencyFailed { by, .. }), _) => {
            format!("it depends on {by}, which did not complete; it is being cancelled")
        }
        (_, Some(position)) => {
            let queues = room.queues();
            if let Some(above) = queues.above(id) {
                return above.waits(id.tenant());
            }
            let tenant = queues.tenants.get(id.tenant());
            let first = tenant.and_then(|tenant| queues.first_within(tenant));
            // Jobs above limits, or that never fit, block nobody.
            let above = first.map_or(0, |(before, _)| before);
            let behind = tenant
                .into_iter()
                .flat_map(|it| &it.order)
                .skip(above as usize);
            let unschedulable = behind
                .take(MOST_UNSCHEDULABLE)
                .take_while(|(_, job)| job != id && never_fits(queues, job).is_some());
            let passed = above + unschedulable.count() as u64;
            let ahead = match position.saturating_sub(passed + 1) {
                0 => return head(room, id, now),
                1 => "1 job".to_owned(),
                ahead => format!("{ahead} jobs"),
            };
            format!("queued behind {ahead} of {}", id.tenant())
        }
        _ => "queued for release".to_owned(),
    }
}

const MOST_UNSCHEDULABLE: usize = 16;

/// Returns a need beyond empty nodes.
#[must_use]
pub fn never_fits(queues: &Queues, id: &JobId) -> Option<String> {
    let job = queues.jobs.get(id)?;
    let needs = queues.needs(id).unwrap_or_default();
    let mut roles = job.auxiliary.parts().iter();
    let fits =
        queues.some_node_fits(&job.demand) && roles.all(|part| queues.some_node_fits(&part.demand));
    let never = needs.first_short(&queues.total, 1).is_some() || !fits;
    never.then(|| format!("the nodes that are up have no room for {needs} at all"))
}

/// Describes a tenant at its container limit.
#[must_use]
pub fn over_containers(tenant: &str, has: u64, most: u64) -> String {
    format!(
        "{tenant} has {has} of the {most} containers that it is granted; it waits until fewer run"
    )
}

/// Returns the reason for a queue head.
#[must_use]
pub fn head(room: &Room<'_>, id: &JobId, now: Timestamp) -> String {
    let queues = room.queues();
    let Some(job) = queues.jobs.get(id) else {
        return "queued for release".to_owned();
    };
    let needs = queues.needs(id).unwrap_or_default();
    if queues.total.is_empty() {
        return "no node takes containers: none has joined, or all are drained, quarantined or lost"
            .to_owned();
    }
    if let Some(reason) = never_fits(queues, id) {
        return reason;
    }
    if let Some(above) = queues.above(id) {
        return above.waits(id.tenant());
    }
    if let Some(reason) = over_quota(queues, id.tenant(), &needs) {
        return reason;
    }
    let least = job.smallest_containers();
    if let Some((has, most)) = queues.over_containers(id.tenant(), least) {
        return over_containers(id.tenant(), has, most);
    }
    if let Some(reason) = queues.over_budget(id, now) {
        return reason;
    }
    let tenant = id.tenant();
    let Some(waits) = room.words(id, now) else {
        return its_turn(queues, id, job.class);
    };
    let reserved = queues.passed_over.get(id).map(|since| {
        let passed_s = now.ms_since(*since) / 1000;
        if passed_s >= u64::from(queues.cluster.policy.reserve_after_s) {
            "; room is being kept for it".to_owned()
        } else {
            format!("; others have passed it for {passed_s} s")
        }
    });
    format!("first of {tenant}; {waits}{}", reserved.unwrap_or_default())
}

fn its_turn(queues: &Queues, id: &JobId, class: i32) -> String {
    let tenant = id.tenant();
    if let Some(higher) = higher(queues, class) {
        return format!("first of {tenant}; {higher} is of a higher priority class");
    }
    match queues.cluster.policy.queue {
        Queue::Fifo => match first_in(queues) {
            Some(first) if first != id => format!("first of {tenant}; {first} came before it"),
            _ => "next in the queue".to_owned(),
        },
        queue => format!("first of {tenant}; its turn comes by {}", queue.as_str()),
    }
}

fn first_in(queues: &Queues) -> Option<&JobId> {
    first_of_all(queues).map(|(_, id)| id)
}

fn first_of_all(queues: &Queues) -> Option<&(Order, JobId)> {
    let heads = queues.tenants.values();
    let heads = heads.filter_map(|tenant| Some(queues.first_within(tenant)?.1));
    heads.min_by_key(|((_, class, _, admitted), _)| (*class, *admitted))
}

fn higher(queues: &Queues, class: i32) -> Option<&JobId> {
    let above = first_of_all(queues).filter(|((_, Reverse(highest), ..), _)| *highest > class);
    above.map(|(_, id)| id)
}

fn over_quota(queues: &Queues, tenant: &str, needs: &Amounts) -> Option<String> {
    let (resource, has, most) = queues.over_quota(tenant, needs)?;
    let name = resource.name();
    Some(format!(
        "what {tenant} runs needs {name} {} of its quota of {name} {}; it waits until less is used",
        resource.display(has),
        resource.display(most)
    ))
}
