//! Makes space for the first waiting job if its class preempts: free capacity, then capacity of lower classes
//! ([`crate::drive::urgent`]). Preempting jobs directly behind it are tried together with it; one further
//! back would take what the first waits for.

use std::collections::BTreeSet;

use crate::drive::participants::Queue;
use crate::drive::urgent::{self, MadeRoom, Whom};
use crate::model::cluster::runs;

/// The next decision follows when these have started.
const PREEMPTING: usize = 32;

const NAMED: usize = 3;

pub(crate) enum Preempted {
    Nobody,
    Room(Whom, Box<MadeRoom>),
    Protected(usize, String),
}

pub(crate) fn preempt(queue: &Queue<'_>, members: &[usize]) -> Preempted {
    let waits = |job: &usize| !members.contains(job);
    let Some(place) = queue.waiting.iter().position(waits) else {
        return Preempted::Nobody;
    };
    let job = |index: &usize| &queue.problem.jobs[*index];
    let behind = queue.waiting[place..].iter().take(PREEMPTING);
    let preempting = behind.take_while(|index| job(index).precedence.preempts);
    let preempting = preempting.count();
    if preempting == 0 {
        return Preempted::Nobody;
    }
    let first = queue.waiting[place];
    let whom = |count: usize| {
        let members = &queue.waiting[..place + count];
        let classes = members[place..].iter();
        Whom {
            first,
            members: members.to_vec(),
            below: classes.map(|index| job(index).precedence.class).min(),
        }
    };
    if let Some(made) = urgent::in_free_room(queue, &whom(1)) {
        return Preempted::Room(whom(1), Box::new(made));
    }
    for count in BTreeSet::from([preempting, 1]).into_iter().rev() {
        let whom = whom(count);
        let gives = |index: &usize| {
            let job = job(index);
            whom.outranks(job) && runs(queue.cluster, job)
        };
        if !queue.running.iter().any(gives) {
            continue;
        }
        if let Some(made) = urgent::make_room(queue, &whom) {
            return Preempted::Room(whom, Box::new(made));
        }
        if count == 1 {
            return protected(queue, whom);
        }
    }
    Preempted::Nobody
}

fn protected(queue: &Queue<'_>, whom: Whom) -> Preempted {
    let protected = urgent::protecting(queue, &whom);
    if protected.is_empty() {
        return Preempted::Nobody;
    }
    let names = protected.iter().take(NAMED);
    let mut names = names.map(|job| job.job.to_string()).collect::<Vec<_>>();
    if protected.len() > NAMED {
        names.push(format!("{} more", protected.len() - NAMED));
    }
    let reason = format!(
        "its class preempts, but the policy's bound (preemption) protects {} for now: preempted often enough within the hour, or not running for long enough",
        names.join(", ")
    );
    Preempted::Protected(whom.first, reason)
}
