//! Follows the preferences of starting containers: `spread`, `pack` and `prefer`.
//!
//! P2 ignores preferences. A job's starting containers are taken off and put back one by one on the
//! best-liked node; the result stays if it is better. Containers of a job resized in place stay.

use std::collections::BTreeMap;

use dormouse_messages::needs::{Constraints, Labels};

use crate::model::candidate::Candidate;
use crate::model::cluster::Cluster;
use crate::model::instance::{Instance, Job};
use crate::model::room::{fits, give, take};
use crate::primal::slots_to_jobs::Partitions;
use crate::problem::Problem;

pub(crate) fn follow_preferences(
    problem: &Problem,
    cluster: &Cluster,
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
) {
    let wishes = |index: usize| {
        let constraints = &problem.jobs[instance.jobs[index].index].needs.constraints;
        let any = constraints.spread.is_some()
            || constraints.pack.is_some()
            || !constraints.prefer.is_empty();
        any.then_some(constraints)
    };
    let jobs = 0..instance.jobs.len();
    let fussy: Vec<(usize, &Constraints)> = jobs
        .filter(|index| candidate.is_free(instance, *index))
        .filter_map(|index| Some((index, wishes(index)?)))
        .collect();
    if fussy.is_empty() {
        return;
    }
    let Some(mut rooms) = candidate.rooms(instance) else {
        return;
    };
    let known: BTreeMap<_, _> = problem
        .nodes
        .iter()
        .map(|node| (&node.name, &node.labels))
        .collect();
    let none = Labels::new();
    let labels = cluster
        .names
        .iter()
        .map(|name| *known.get(name).unwrap_or(&&none));
    let labels: Vec<&Labels> = labels.collect();
    for (index, constraints) in fussy {
        let ty = instance.jobs[index].ty;
        let demand = &instance.types[ty].demand;
        let before = partitions[index].clone();
        let stays = staying(&instance.jobs[index], &before);
        for (node, count) in &before {
            give(
                demand,
                count - stays.get(node).unwrap_or(&0),
                &mut rooms[*node],
            );
        }
        let wish = Wish {
            constraints,
            labels: &labels,
            fixed: &instance.jobs[index].fixed,
        };
        let after = wish.placed(demand, &stays, &rooms, &before);
        let after = after.filter(|after| wish.regret(after) < wish.regret(&before));
        for (node, count) in after.as_ref().unwrap_or(&before) {
            take(
                demand,
                count - stays.get(node).unwrap_or(&0),
                &mut rooms[*node],
            );
        }
        if let Some(after) = after {
            for (node, count) in &before {
                if let Some(slot) = candidate.slots[ty].get_mut(node) {
                    *slot = slot.saturating_sub(*count);
                }
            }
            for (node, count) in &after {
                *candidate.slots[ty].entry(*node).or_insert(0) += count;
            }
            candidate.slots[ty].retain(|_, count| *count > 0);
            partitions[index] = after;
        }
    }
}

/// Returns the containers of a job resized in place that are there already.
fn staying(job: &Job, counts: &BTreeMap<usize, u32>) -> BTreeMap<usize, u32> {
    let previous = job.previous.iter().filter(|_| job.in_place);
    let stays = previous.map(|(node, had)| {
        let has = counts.get(node).copied().unwrap_or(0);
        (*node, has.min(*had))
    });
    stays.filter(|(_, count)| *count > 0).collect()
}

struct Wish<'a> {
    constraints: &'a Constraints,
    labels: &'a [&'a Labels],
    /// Containers outside the counts.
    fixed: &'a [(usize, u32)],
}

impl Wish<'_> {
    fn value(&self, node: usize, label: &str) -> &str {
        self.labels[node].get(label).map_or("", String::as_str)
    }

    fn by_value(&self, label: &str, counts: &BTreeMap<usize, u32>) -> BTreeMap<&str, u64> {
        let mut by_value = BTreeMap::new();
        let fixed = self.fixed.iter().map(|(node, count)| (node, count));
        for (node, count) in counts.iter().chain(fixed) {
            *by_value.entry(self.value(*node, label)).or_insert(0) += u64::from(*count);
        }
        by_value
    }

    /// Unevenness, then distinct values, then disliked nodes.
    fn regret(&self, counts: &BTreeMap<usize, u32>) -> (u64, usize, u64) {
        let spread = self.constraints.spread.as_ref().map_or(0, |label| {
            let by_value = self.by_value(label, counts);
            by_value.values().map(|count| count * count).sum()
        });
        let packed = self.constraints.pack.as_ref();
        let packed = packed.map_or(0, |label| self.by_value(label, counts).len());
        let disliked = counts.iter().map(|(node, count)| {
            self.constraints.dislikes(self.labels[*node]) as u64 * u64::from(*count)
        });
        (spread, packed, disliked.sum())
    }

    fn placed(
        &self,
        demand: &[u64],
        stays: &BTreeMap<usize, u32>,
        rooms: &[Vec<u64>],
        before: &BTreeMap<usize, u32>,
    ) -> Option<BTreeMap<usize, u32>> {
        let mut free: BTreeMap<usize, u64> = (0..rooms.len())
            .map(|node| (node, fits(demand, &rooms[node])))
            .filter(|(_, fits)| *fits > 0)
            .collect();
        let mut placed = stays.clone();
        let missing = before.values().sum::<u32>() - stays.values().sum::<u32>();
        for left in (1..=missing).rev() {
            let node = self.next(&free, &placed, before, left)?;
            *placed.entry(node).or_insert(0) += 1;
            let fits = free.get_mut(&node)?;
            *fits -= 1;
            if *fits == 0 {
                free.remove(&node);
            }
        }
        Some(placed)
    }

    fn next(
        &self,
        free: &BTreeMap<usize, u64>,
        placed: &BTreeMap<usize, u32>,
        before: &BTreeMap<usize, u32>,
        left: u32,
    ) -> Option<usize> {
        let spread = self.constraints.spread.as_ref();
        let spread = spread.map(|label| (label, self.by_value(label, placed)));
        let pack = self.constraints.pack.as_ref();
        let pack = pack.map(|label| (label, self.gathered(label, free, placed, left)));
        let key = |node: &usize| {
            let crowd = spread.as_ref().map_or(0, |(label, by_value)| {
                by_value.get(self.value(*node, label)).copied().unwrap_or(0)
            });
            let apart = pack
                .as_ref()
                .is_some_and(|(label, value)| self.value(*node, label) != value);
            let has = placed.get(node).copied().unwrap_or(0);
            let was = before.get(node).copied().unwrap_or(0);
            (
                crowd,
                apart,
                self.constraints.dislikes(self.labels[*node]),
                has == 0,
                was <= has,
                free[node],
                *node,
            )
        };
        free.keys().copied().min_by_key(key)
    }

    /// One value already in use, else the smallest that holds all, else the largest.
    fn gathered(
        &self,
        label: &str,
        free: &BTreeMap<usize, u64>,
        placed: &BTreeMap<usize, u32>,
        left: u32,
    ) -> String {
        let mut room: BTreeMap<&str, u64> = BTreeMap::new();
        for (node, fits) in free {
            *room.entry(self.value(*node, label)).or_insert(0) += fits;
        }
        let has = self.by_value(label, placed);
        let known = room.iter().filter(|(value, _)| has.contains_key(*value));
        let whole = room.iter().filter(|(_, fits)| **fits >= u64::from(left));
        let value = known
            .max_by_key(|(value, _)| (has[*value], std::cmp::Reverse(**value)))
            .or_else(|| whole.min_by_key(|(value, fits)| (**fits, **value)))
            .or_else(|| {
                room.iter()
                    .max_by_key(|(value, fits)| (**fits, std::cmp::Reverse(**value)))
            });
        value.map_or_else(String::new, |(value, _)| (*value).to_owned())
    }
}
