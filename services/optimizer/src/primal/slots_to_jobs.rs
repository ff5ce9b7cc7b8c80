//! Divides the slots of each type, the containers that P2 puts on nodes, among the jobs:
//!
//! 1. Containers stay where they are, as far as there are slots.
//! 2. Packed: training that is resized in place takes slots on its own nodes.
//! 3. The other containers follow, gangs first, large ones first, replicas of services last. Packed: a node
//!    in use; else the nearest that takes all the rest, the smallest of these; else the one that takes most,
//!    with near ones around ([`crate::model::topology`]). Spread, by policy: one by one on the node with
//!    the most slots.
//! 4. Roles follow their workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::job::Urgency;
use dormouse_messages::policy::Placement;

use crate::model::candidate::Candidate;
use crate::model::cluster::Cluster;
use crate::model::instance::Instance;
use crate::model::topology::{Group, Topology};
use crate::problem::Problem;

/// Containers of each job by node.
pub(crate) type Partitions = Vec<BTreeMap<usize, u32>>;

/// A restarted job that gets its exact former places is no longer restarted.
pub(crate) fn slots_to_jobs(
    problem: &Problem,
    cluster: &Cluster,
    instance: &Instance,
    candidate: &mut Candidate,
) -> Partitions {
    let mut head = 0;
    let claims = instance.jobs.iter().enumerate().map(|(index, job)| {
        if !job.is_role {
            head = index;
        }
        Claim {
            ty: job.ty,
            previous: &job.previous,
            fixed: &job.fixed,
            count: candidate.counts[index],
            is_free: candidate.is_free(instance, index),
            urgency: problem.jobs[job.index].urgency,
            in_place: job.in_place,
            head: job.is_role.then_some(head),
        }
    });
    let claims: Vec<Claim<'_>> = claims.collect();
    let placement = problem.policy.placement;
    let partitions = divide(&cluster.topology, placement, &candidate.slots, &claims);
    unmark_unchanged(instance, candidate, &partitions);
    partitions
}

/// A job's claim to slots.
struct Claim<'a> {
    ty: usize,
    previous: &'a [(usize, u32)],
    /// Containers outside the count.
    fixed: &'a [(usize, u32)],
    count: u32,
    /// False for a job that stays as it is.
    is_free: bool,
    urgency: Urgency,
    in_place: bool,
    /// The job of a role.
    head: Option<usize>,
}

/// Divides the containers of changed jobs among them again, as far as equal containers allow. The policies
/// `drf` and `static` place container by container.
pub(crate) fn divide_again(problem: &Problem, cluster: &Cluster, placed: &mut Partitions) {
    let previous: Vec<Vec<(usize, u32)>> = problem
        .jobs
        .iter()
        .map(|job| {
            let located = job.previous.as_ref().and_then(|it| cluster.locate(it));
            located.unwrap_or_default()
        })
        .collect();
    let is_changed = |job: &usize| !is_same(&previous[*job], &placed[*job]);
    let mut jobs: Vec<usize> = (0..problem.jobs.len()).filter(is_changed).collect();
    jobs.sort_by_key(|job| {
        let job = &problem.jobs[*job];
        (job.role.is_some(), &job.job)
    });
    let mut types: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    let mut slots: Vec<BTreeMap<usize, u32>> = Vec::new();
    let mut claims = Vec::new();
    for job in &jobs {
        let posed = &problem.jobs[*job];
        let demand = cluster.demand(posed).unwrap_or_default();
        let ty = *types.entry(demand).or_insert_with(|| {
            slots.push(BTreeMap::new());
            slots.len() - 1
        });
        for (node, count) in &placed[*job] {
            *slots[ty].entry(*node).or_insert(0) += count;
        }
        let of = posed.role.as_ref().map(|role| &role.of);
        let head = of.and_then(|of| jobs.iter().position(|job| problem.jobs[*job].job == *of));
        claims.push(Claim {
            ty,
            previous: &previous[*job],
            fixed: &[],
            count: placed[*job].values().sum(),
            is_free: true,
            urgency: posed.urgency,
            in_place: posed.in_place.is_some(),
            head,
        });
    }
    let divided = divide(&cluster.topology, problem.policy.placement, &slots, &claims);
    for (job, nodes) in jobs.into_iter().zip(divided) {
        placed[job] = nodes;
    }
}

fn divide(
    topology: &Topology,
    placement: Placement,
    slots: &[BTreeMap<usize, u32>],
    claims: &[Claim<'_>],
) -> Partitions {
    let slots = slots.iter();
    let slots = slots.map(|slots| FreeSlots::new(topology, placement, slots));
    let mut division = Division {
        slots: slots.collect(),
        partitions: vec![BTreeMap::new(); claims.len()],
    };
    let mut order = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        if claim.is_free {
            division.keep(claims, index);
            order.push(index);
        } else {
            division.partitions[index] = claim.previous.iter().copied().collect();
        }
    }
    let packs = placement == Placement::Pack;
    for index in &order {
        let claim = &claims[*index];
        if packs && claim.in_place && claim.head.is_none() && claim.urgency == Urgency::Training {
            let homes = division.nodes_of(claims, *index);
            division.take_at(claims, *index, &homes);
        }
    }
    order.sort_by_cached_key(|index| {
        let claim = &claims[*index];
        let is_replica = packs && claim.urgency > Urgency::Training;
        let missing = Reverse(division.missing(claims, *index));
        (claim.head.is_some(), is_replica, missing, *index)
    });
    for index in order {
        if let Some(head) = claims[index].head {
            let workers = division.nodes_of(claims, head);
            division.take_at(claims, index, &workers);
        }
        division.fill(claims, index);
    }
    division.partitions
}

struct Division<'a> {
    slots: Vec<FreeSlots<'a>>,
    partitions: Partitions,
}

impl Division<'_> {
    fn keep(&mut self, claims: &[Claim<'_>], index: usize) {
        let claim = &claims[index];
        let mut rest = claim.count;
        for (node, had) in claim.previous {
            rest -= self.take(claim.ty, index, *node, (*had).min(rest));
        }
    }

    fn missing(&self, claims: &[Claim<'_>], index: usize) -> u32 {
        let has: u32 = self.partitions[index].values().sum();
        claims[index].count.saturating_sub(has)
    }

    fn nodes_of(&self, claims: &[Claim<'_>], index: usize) -> BTreeSet<usize> {
        let fixed = claims[index].fixed.iter().map(|(node, _)| *node);
        self.partitions[index]
            .keys()
            .copied()
            .chain(fixed)
            .collect()
    }

    fn take_at(&mut self, claims: &[Claim<'_>], index: usize, nodes: &BTreeSet<usize>) {
        let mut rest = self.missing(claims, index);
        for node in nodes {
            rest -= self.take(claims[index].ty, index, *node, rest);
        }
    }

    fn fill(&mut self, claims: &[Claim<'_>], index: usize) {
        let ty = claims[index].ty;
        let mut rest = self.missing(claims, index);
        while let Some((node, most)) = self.slots[ty].next(rest, &self.partitions[index]) {
            rest -= self.take(ty, index, node, most);
        }
    }

    fn take(&mut self, ty: usize, index: usize, node: usize, most: u32) -> u32 {
        let taken = self.slots[ty].take(node, most);
        if taken > 0 {
            *self.partitions[index].entry(node).or_insert(0) += taken;
        }
        taken
    }
}

/// The slots of one type that no job has yet.
struct FreeSlots<'a> {
    topology: &'a Topology,
    placement: Placement,
    by_node: BTreeMap<usize, u32>,
    by_count: BTreeSet<(u32, usize)>,
    by_group: BTreeMap<Group, u32>,
}

impl<'a> FreeSlots<'a> {
    fn new(topology: &'a Topology, placement: Placement, slots: &BTreeMap<usize, u32>) -> Self {
        let mut free = Self {
            topology,
            placement,
            by_node: BTreeMap::new(),
            by_count: BTreeSet::new(),
            by_group: BTreeMap::new(),
        };
        for (node, count) in slots.iter().filter(|(_, count)| **count > 0) {
            free.by_node.insert(*node, *count);
            free.by_count.insert((*count, *node));
            for group in free.groups(*node) {
                *free.by_group.entry(group).or_insert(0) += count;
            }
        }
        free
    }

    fn groups(&self, node: usize) -> Vec<Group> {
        if self.topology.is_flat() {
            return Vec::new();
        }
        let (rack, zone) = self.topology.groups(node);
        if rack == zone {
            vec![rack]
        } else {
            vec![rack, zone]
        }
    }

    fn take(&mut self, node: usize, most: u32) -> u32 {
        let Some(free) = self.by_node.get_mut(&node) else {
            return 0;
        };
        let (before, taken) = (*free, most.min(*free));
        *free -= taken;
        let left = *free;
        self.by_count.remove(&(before, node));
        if left > 0 {
            self.by_count.insert((left, node));
        } else {
            self.by_node.remove(&node);
        }
        for group in self.groups(node) {
            if let Some(free) = self.by_group.get_mut(&group) {
                *free -= taken;
            }
        }
        taken
    }

    /// Returns the next node of a job with `counts`, and how many of its `rest` it takes there.
    fn next(&self, rest: u32, counts: &BTreeMap<usize, u32>) -> Option<(usize, u32)> {
        let (most, _) = *self.by_count.last().filter(|_| rest > 0)?;
        let fullest = || self.by_count.range((most, 0)..).map(|(_, node)| *node);
        if self.placement == Placement::Spread {
            return Some((fullest().next()?, 1));
        }
        let here = counts.keys().filter_map(|node| {
            let free = *self.by_node.get(node)?;
            Some((free, Reverse(*node)))
        });
        if let Some((_, Reverse(node))) = here.max() {
            return Some((node, rest));
        }
        let mut whole = self.by_count.range((rest, 0)..);
        let node = if self.topology.is_flat() || counts.is_empty() {
            whole.next().map(|(_, node)| *node)
        } else {
            let near =
                whole.map(|(free, node)| (self.topology.distance(*node, counts), free, *node));
            near.min().map(|(_, _, node)| node)
        };
        let largest = || {
            fullest().min_by_key(|node| {
                let (rack, zone) = self.topology.groups(*node);
                let around = |group| self.by_group.get(&group).copied();
                let near = self.topology.distance(*node, counts);
                (near, Reverse((around(rack), around(zone))), *node)
            })
        };
        Some((node.or_else(largest)?, rest))
    }
}

fn is_same(previous: &[(usize, u32)], partition: &BTreeMap<usize, u32>) -> bool {
    let partition = partition.iter().map(|(node, count)| (*node, *count));
    partition.eq(previous.iter().copied())
}

fn unmark_unchanged(instance: &Instance, candidate: &mut Candidate, partitions: &Partitions) {
    for (index, job) in instance.jobs.iter().enumerate() {
        if candidate.restarted[index] && is_same(&job.previous, &partitions[index]) {
            candidate.restarted[index] = false;
            for (node, count) in &job.previous {
                if let Some(slot) = candidate.slots[job.ty].get_mut(node) {
                    *slot = slot.saturating_sub(*count);
                }
            }
            candidate.slots[job.ty].retain(|_, count| *count > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{InPlace, Policy, ProblemJob, ProblemNode};

    fn nodes(labels: &[(&str, &str)]) -> Vec<ProblemNode> {
        let node = |(index, (rack, zone)): (usize, &(&str, &str))| ProblemNode {
            name: format!("n{index}").parse().expect("a name"),
            capacity: "cpu=8".parse().expect("amounts"),
            reserved: Default::default(),
            closed: false,
            labels: [("rack", rack), ("zone", zone)]
                .map(|(name, value)| (name.to_owned(), (*value).to_owned()))
                .into(),
            taints: Default::default(),
            gpus: Vec::new(),
        };
        labels.iter().enumerate().map(node).collect()
    }

    fn divided(labels: &[(&str, &str)], slots: &[(usize, u32)], jobs: &[u32]) -> Vec<Vec<usize>> {
        let nodes = nodes(labels);
        let topology = Topology::of(&nodes.iter().collect::<Vec<_>>());
        let slots = slots.iter().copied().collect();
        let new = |count: &u32| Claim {
            ty: 0,
            previous: &[],
            fixed: &[],
            count: *count,
            is_free: true,
            urgency: Urgency::Training,
            in_place: false,
            head: None,
        };
        let claims: Vec<Claim<'_>> = jobs.iter().map(new).collect();
        let partitions = divide(&topology, Placement::Pack, &[slots], &claims);
        partitions
            .into_iter()
            .map(|at| at.into_keys().collect())
            .collect()
    }

    #[test]
    fn a_gang_on_several_nodes_gets_near_ones() {
        let slots = [(0, 2), (1, 2), (2, 2), (3, 2)];
        let zones = [("r0", "a"), ("r1", "b"), ("r2", "a"), ("r3", "b")];
        assert_eq!(divided(&zones, &slots, &[4, 4]), [[0, 2], [1, 3]]);
        // Racks of one zone come first; a rack's name counts within its zone.
        let racks = [("r0", "a"), ("r1", "a"), ("r0", "b"), ("r0", "a")];
        assert_eq!(divided(&racks, &slots, &[4, 4]), [[0, 3], [1, 2]]);
    }

    #[test]
    fn a_gang_on_several_nodes_is_where_most_is_free_nearby() {
        let racks = [("r0", "a"), ("r1", "a"), ("r2", "b"), ("r2", "b")];
        let slots = [(0, 1), (2, 1), (3, 1)];
        assert_eq!(divided(&racks, &slots, &[2]), [[2, 3]]);
        // No rack has all slots, so the zone with more is taken.
        let slots = [(0, 1), (1, 1), (2, 1)];
        assert_eq!(divided(&racks, &slots, &[2]), [[0, 1]]);
    }

    #[test]
    fn a_gang_is_packed_unless_the_policy_spreads() {
        for (placement, nodes) in [(Placement::Pack, 1), (Placement::Spread, 2)] {
            let gangs = vec![job("t/a", &[]), job("t/b", &[])];
            let at = placed_by(placement, gangs, &[2, 2], &[(0, 2), (1, 2)]);
            assert!(
                at.iter().all(|at| at.len() == nodes),
                "{placement:?}: {at:?}"
            );
        }
    }

    fn job(id: &str, previous: &[(&str, u32)]) -> ProblemJob {
        let previous: BTreeMap<_, _> = previous
            .iter()
            .map(|(node, count)| (node.parse().expect("a name"), *count))
            .collect();
        ProblemJob {
            min: 1,
            max: 8,
            previous: Some(previous).filter(|it| !it.is_empty()),
            ..crate::model::samples::job(id, "cpu=1")
        }
    }

    /// Resized in place, its coordinator on its first node.
    fn in_place(job: ProblemJob) -> ProblemJob {
        let nodes = job.previous.iter().flatten();
        let coordinator = nodes.map(|(node, _)| node.clone()).next();
        ProblemJob {
            in_place: Some(InPlace {
                coordinator: coordinator.filter(|_| job.urgency == Urgency::Training),
            }),
            ..job
        }
    }

    fn service(job: ProblemJob) -> ProblemJob {
        in_place(ProblemJob {
            urgency: Urgency::Service,
            ..job
        })
    }

    fn nodes_of_jobs(
        jobs: Vec<ProblemJob>,
        counts: &[u32],
        slots: &[(usize, u32)],
    ) -> Vec<Vec<(usize, u32)>> {
        placed_by(Placement::Pack, jobs, counts, slots)
    }

    /// Returns each job's nodes without its coordinator's place. The counts and slots leave it out, too.
    fn placed_by(
        placement: Placement,
        jobs: Vec<ProblemJob>,
        counts: &[u32],
        slots: &[(usize, u32)],
    ) -> Vec<Vec<(usize, u32)>> {
        let problem = Problem {
            nodes: nodes(&[("r", "z"); 4]),
            jobs,
            policy: Policy {
                placement,
                ..Policy::default()
            },
            ..Problem::default()
        };
        let cluster = Cluster::new(&problem);
        let members: Vec<usize> = (0..problem.jobs.len()).collect();
        let instance = Instance::new(&problem, &cluster, &members);
        let mut candidate = Candidate {
            counts: counts.to_vec(),
            slots: vec![slots.iter().copied().collect()],
            ..Candidate::incumbent(&instance)
        };
        let partitions = slots_to_jobs(&problem, &cluster, &instance, &mut candidate).into_iter();
        partitions.map(|at| at.into_iter().collect()).collect()
    }

    /// Replicas are interchangeable; the ranks of a gang are not.
    #[test]
    fn training_chooses_before_a_service_that_is_larger() {
        let jobs = vec![service(job("t/a", &[])), job("t/b", &[])];
        let at = nodes_of_jobs(jobs, &[3, 2], &[(0, 2), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(at[1], [(0, 2)]);
        // The larger of two gangs chooses first.
        let at = nodes_of_jobs(
            vec![job("t/a", &[]), job("t/b", &[])],
            &[1, 2],
            &[(0, 2), (1, 1)],
        );
        assert_eq!(at[1], [(0, 2)]);
    }

    #[test]
    fn training_grows_where_it_is_before_others_choose() {
        let training = in_place(job("t/z", &[("n0", 1)]));
        let replica = service(job("t/a", &[("n0", 1)]));
        let at = nodes_of_jobs(vec![replica, training.clone()], &[2, 1], &[(0, 2), (1, 1)]);
        assert_eq!(at, [vec![(0, 1), (1, 1)], vec![(0, 1)]]);
        let at = nodes_of_jobs(vec![job("t/a", &[]), training], &[2, 1], &[(0, 2), (1, 3)]);
        assert_eq!(at, [[(1, 2)], [(0, 1)]]);
    }

    #[test]
    fn containers_stay_before_others_come() {
        let at = nodes_of_jobs(
            vec![
                job("t/a", &[]),
                service(job("t/b", &[("n0", 1), ("n1", 1)])),
            ],
            &[2, 2],
            &[(0, 1), (1, 2), (2, 1)],
        );
        assert_eq!(at, [[(1, 1), (2, 1)], [(0, 1), (1, 1)]]);
    }

    #[test]
    fn roles_follow_their_workers() {
        use dormouse_messages::roles::Part;
        let own = job("t/b", &[]);
        let server = own.role(
            &Part {
                role: "ps".to_owned(),
                count: 1,
                demand: own.demand.clone(),
                needs: Default::default(),
            },
            None,
        );
        let at = nodes_of_jobs(
            vec![job("t/a", &[]), own, server],
            &[1, 3, 1],
            &[(0, 1), (1, 4)],
        );
        assert_eq!(at, [[(0, 1)], [(1, 3)], [(1, 1)]]);
    }
}
