//! Room for waiting jobs of a class that preempts.
//!
//! The first job that waits gets it, if its class preempts: free room first, then room of lower
//! classes ([`crate::queue::urgent`]). Those right behind it that preempt, too, are tried together with it.
//! One further back would take what the first one waits for.

use std::collections::BTreeSet;

use crate::instance::runs;
use crate::queue::prefix::Queue;
use crate::queue::urgent::{self, Whom};
use crate::report::Draft;

/// Waiting jobs of classes that preempt for which one decision tries to make room together: the next
/// decision comes when those have started.
const PREEMPTING: usize = 32;

/// Jobs that are named where the bound on preemptions protects several.
const NAMED: usize = 3;

/// What a class that preempts came to.
pub(crate) enum Preempted {
    /// Nobody waits who preempts, or nothing makes room.
    Nobody,
    /// Room was made.
    Room(Box<Draft>),
    /// The bound on preemptions keeps room from this job.
    Protected(usize, String),
}

impl Queue<'_> {
    /// Room for the first job that waits beside `members`, if it is of a class that preempts, and for
    /// those behind it that do.
    pub(crate) fn preempt(&self, members: &[usize]) -> Preempted {
        let waits = |job: &usize| !members.contains(job);
        let Some(place) = self.waiting.iter().position(waits) else {
            return Preempted::Nobody;
        };
        let job = |index: &usize| &self.problem.jobs[*index];
        let behind = self.waiting[place..].iter().take(PREEMPTING);
        let preempting = behind.take_while(|index| job(index).precedence.preempts);
        let preempting = preempting.count();
        if preempting == 0 {
            return Preempted::Nobody;
        }
        let first = self.waiting[place];
        let whom = |count: usize| {
            let members = &self.waiting[..place + count];
            let classes = members[place..].iter();
            Whom {
                first,
                members: members.to_vec(),
                below: classes.map(|index| job(index).precedence.class).min(),
            }
        };
        if let Some(made) = urgent::in_free_room(self, &whom(1)) {
            return Preempted::Room(Box::new(self.made(&whom(1), made)));
        }
        for count in BTreeSet::from([preempting, 1]).into_iter().rev() {
            let whom = whom(count);
            let gives = |index: &usize| {
                let job = job(index);
                whom.outranks(job) && runs(self.cluster, job)
            };
            if !self.running.iter().any(gives) {
                continue;
            }
            if let Some(made) = urgent::make_room(self, &whom) {
                return Preempted::Room(Box::new(self.made(&whom, made)));
            }
            if count == 1 {
                return self.protected(&whom);
            }
        }
        Preempted::Nobody
    }

    /// Whether the bound on preemptions is what keeps room from the first of them.
    fn protected(&self, whom: &Whom) -> Preempted {
        let protected = urgent::protecting(self, whom);
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
}
