//! Finds and describes the holders of capacity that a job waits for.
//!
//! 1. A job lacks capacity if its smallest partition plus all commitments exceed the usable nodes in one
//!    resource. A job is committed to what it cannot be made to give up.
//! 2. The holders of that resource are named, largest first, with the earliest end by a time limit.
//!
//! Only sums count: the optimizer fits containers on nodes.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use dormouse_messages::policy::Allocation;
use dormouse_messages::{Amounts, JobId, Resource, Timestamp};
use dormouse_state::{Job, Queues};

use super::JobTable;

const NAMED: usize = 2;

/// The holders of capacity.
pub struct Room<'a> {
    queues: &'a Queues,
    table: &'a JobTable,
    committed: OnceCell<Amounts>,
    held: OnceCell<BTreeMap<Resource, Vec<Holder<'a>>>>,
}

/// The capacity that a job lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// The first scarce resource.
    pub resource: Resource,
    pub needs: u64,
    pub free: u64,
    pub total: u64,
}

/// A job that holds some of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    pub job: &'a JobId,
    /// Its commitment; for a waiting job, its minimum.
    pub keeps: u64,
    /// Released, without containers.
    pub waits: bool,
    /// By the time limit.
    pub ends_at: Option<Timestamp>,
    /// A higher class may take everything.
    gives_above: Option<i32>,
}

impl<'a> Room<'a> {
    /// Creates a lazy view.
    #[must_use]
    pub const fn new(queues: &'a Queues, table: &'a JobTable) -> Self {
        Self {
            queues,
            table,
            committed: OnceCell::new(),
            held: OnceCell::new(),
        }
    }

    /// Returns the queues.
    #[must_use]
    pub const fn queues(&self) -> &'a Queues {
        self.queues
    }

    /// Returns the jobs.
    #[must_use]
    pub const fn table(&self) -> &'a JobTable {
        self.table
    }

    /// Returns the first resource that is short.
    #[must_use]
    pub fn short(&self, id: &JobId) -> Option<Short> {
        let job = self.queues.jobs.get(id)?;
        let needs = self.queues.needs(id)?;
        let own = self.queues.committed_of(job);
        let committed = self.committed.get_or_init(|| self.queues.committed());
        let lacks = needs.iter().filter_map(|(resource, needs)| {
            let below = if job.preempts {
                self.queues.held_below(job.class, resource)
            } else {
                0
            };
            let kept = committed.get(resource).saturating_sub(own.get(resource));
            let total = self.queues.total.get(resource);
            let free = total.saturating_sub(kept.saturating_sub(below));
            (needs > free).then(|| Short {
                resource: resource.clone(),
                needs,
                free,
                total,
            })
        });
        lacks.into_iter().next()
    }

    /// Returns the holders, largest first.
    #[must_use]
    pub fn holders(&self, id: &JobId, short: &Short) -> Vec<Holder<'a>> {
        let held = self.held.get_or_init(|| self.look());
        let job = self.queues.jobs.get(id);
        let above = job.filter(|job| job.preempts && self.is_dorm());
        let above = above.map(|job| job.class);
        let gives = |it: &&Holder| it.gives_above.zip(above).is_some_and(|(it, own)| it < own);
        let of_it = held.get(&short.resource).into_iter().flatten();
        let others = of_it.filter(|it| it.job != id && !gives(it));
        others.copied().collect()
    }

    /// Describes a lack: `waits for 2 x cpu=4: of cpu 16 it can have 2; ads/lr-7 keeps 8 and ads/mnist 6,
    /// ads/lr-7 ends by its time limit in 12 min`.
    #[must_use]
    pub fn words(&self, id: &JobId, now: Timestamp) -> Option<String> {
        let short = self.short(id)?;
        let job = self.queues.jobs.get(id)?;
        let what = if job.auxiliary.is_empty() {
            format!("{} x {}", job.containers.start(), job.demand)
        } else {
            format!("{} with its roles", self.queues.needs(id)?)
        };
        let amount = |value: u64| short.resource.display(value);
        let holders = named(&self.holders(id, &short), &amount, now);
        Some(format!(
            "waits for {what}: of {} {} it can have {}{holders}",
            short.resource.name(),
            amount(short.total),
            amount(short.free),
        ))
    }

    fn is_dorm(&self) -> bool {
        self.queues.cluster.policy.allocation == Allocation::Dorm
    }

    fn look(&self) -> BTreeMap<Resource, Vec<Holder<'a>>> {
        let mut held: BTreeMap<Resource, Vec<Holder<'a>>> = BTreeMap::new();
        for (id, job) in &self.queues.jobs {
            let kept = self.queues.committed_of(job);
            let known = self.table.get(id);
            let gives = known.is_some_and(|known| !known.kind.is_served());
            for (resource, keeps) in kept.iter().filter(|(_, keeps)| *keeps > 0) {
                held.entry(resource.clone()).or_default().push(Holder {
                    job: id,
                    keeps,
                    waits: known.is_some_and(|known| known.now == 0 && known.target == 0),
                    ends_at: self.queues.cluster.jobs.get(id).and_then(Job::ends_at),
                    gives_above: gives.then_some(job.class),
                });
            }
        }
        for holders in held.values_mut() {
            holders.sort_by_key(|it| (it.waits, Reverse(it.keeps), it.job));
        }
        held
    }
}

fn named(holders: &[Holder<'_>], amount: &dyn Fn(u64) -> String, now: Timestamp) -> String {
    let Some((first, others)) = holders.split_first() else {
        return String::new();
    };
    let (others, rest) = others.split_at(others.len().min(NAMED - 1));
    let has = |holder: &Holder<'_>| if holder.waits { "is to have" } else { "keeps" };
    let mut parts = vec![format!(
        "{} {} {}",
        first.job,
        has(first),
        amount(first.keeps)
    )];
    let others = others.iter();
    parts.extend(others.map(|it| {
        if it.waits == first.waits {
            format!("{} {}", it.job, amount(it.keeps))
        } else {
            format!("{} {} {}", it.job, has(it), amount(it.keeps))
        }
    }));
    let more: u64 = rest.iter().map(|it| it.keeps).sum();
    match rest.len() {
        0 => {}
        1 => parts.push(format!("1 more job {}", amount(more))),
        count => parts.push(format!("{count} more jobs {}", amount(more))),
    }
    let last = parts.pop().filter(|_| !parts.is_empty());
    let mut text = match last {
        Some(last) => format!("; {} and {last}", parts.join(", ")),
        None => format!("; {} {} {}", first.job, has(first), amount(first.keeps)),
    };
    let ends = holders.iter().filter_map(|it| Some((it.ends_at?, it.job)));
    if let Some((at, job)) = ends.min() {
        let left = left(at.ms_since(now));
        text.push_str(&format!(", {job} ends by its time limit in {left}"));
    }
    text
}

fn left(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
