//! Finds the constraints that keep a job from having at least a given number of containers.
//!
//! P2 is solved again with groups of constraints relaxed, each as a whole.
//!
//! 1. A *conflict*: a set of groups that is infeasible together and feasible without any one. A deletion
//!    filter finds it: groups are relaxed in turn and stay relaxed while the problem stays infeasible.
//! 2. The *corrections*: all least sets of groups whose relaxation makes the problem feasible. Each meets the
//!    conflict.
//!
//! Only the first question is optimised; the others are feasibility checks. Unlike in P2, the job's own
//! restart counts towards θ2.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::JobId;
use dormouse_messages::quantity::Resource;

use crate::drive::ladder::{any, search};
use crate::drive::search::Verdict;
use crate::drive::work::Work;
use crate::milp::type_milp::may_be_feasible;
use crate::model::cluster::Cluster;
use crate::model::instance::{Instance, State};
use crate::problem::Problem;

/// A group of constraints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Capacity(Resource),
    Constraints,
    /// Capacity is divided among nodes.
    Packing,
    /// Capacity still held by departing containers.
    Reserved,
    Pins,
    Adjustments,
    Fairness,
}

/// The answer to a question about a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conflict {
    pub feasible: Option<f64>,
    /// Empty if feasible, or infeasible under every relaxation.
    pub conflict: Vec<Group>,
    pub corrections: Vec<Vec<Group>>,
    /// Infeasible even without the bounds on unfairness and restarts.
    pub beyond_bounds: bool,
    /// The budget ended a question, so parts of the answer are missing.
    pub limit: bool,
}

/// More than any instance uses.
const PLENTY: u64 = 1 << 50;

pub(super) struct Questions<'a> {
    problem: &'a Problem,
    pub instance: Instance,
    reserved: Vec<Vec<u64>>,
    resources: Vec<Resource>,
    target: usize,
    /// The job runs: its own restart uses up one allowed restart.
    restarts: bool,
    /// Index in the instance, and price of a restart.
    own: (usize, f64),
    work: Work,
    pub limit: bool,
}

/// Returns the constraints that keep `job` from `least` containers while the given jobs with containers take
/// part.
#[must_use]
pub fn conflict(
    problem: &Problem,
    job: &JobId,
    least: u32,
    others: &BTreeSet<JobId>,
) -> Option<Conflict> {
    let takes_part = |index: usize| others.contains(&problem.jobs[index].job);
    let (mut questions, place) = Questions::new(problem, job, least, takes_part)?;
    Some(questions.answer(place))
}

impl<'a> Questions<'a> {
    pub fn new(
        problem: &'a Problem,
        job: &JobId,
        least: u32,
        takes_part: impl Fn(usize) -> bool,
    ) -> Option<(Self, usize)> {
        let cluster = Cluster::new(problem);
        let target = problem.jobs.iter().position(|it| it.job == *job)?;
        cluster.demand(&problem.jobs[target])?;
        let jobs = 0..problem.jobs.len();
        let members: Vec<usize> = jobs
            .filter(|index| *index == target || takes_part(*index))
            .collect();
        let mut instance = Instance::new(problem, &cluster, &members);
        let place = instance.jobs.iter().position(|it| it.index == target)?;
        let own = &mut instance.jobs[place];
        let restarts = own.state != State::Free;
        let price = if restarts { own.restart } else { 0.0 };
        own.state = State::Free;
        let decided = least.saturating_sub(own.base());
        own.min = own.min.max(decided);
        own.max = own.max.max(decided);
        let counted = instance.counted;
        let nodes = cluster.capacities.iter().zip(&cluster.rooms);
        let of_node = |(capacity, room): (&Vec<u64>, &Vec<u64>)| {
            let resources = capacity[..counted].iter().zip(room);
            let reserved = resources.map(|(capacity, room)| capacity.saturating_sub(*room));
            reserved.collect()
        };
        let reserved = nodes.map(of_node).collect();
        let questions = Self {
            problem,
            instance,
            reserved,
            resources: cluster.resources,
            target,
            restarts,
            own: (place, price),
            work: Work::new(problem.budget.work),
            limit: false,
        };
        Some((questions, place))
    }

    fn answer(&mut self, target: usize) -> Conflict {
        let groups = self.groups(target);
        let mut answer = Conflict {
            feasible: self.best(&BTreeSet::new()),
            ..Conflict::default()
        };
        if answer.feasible.is_none() {
            let bounds = [Group::Adjustments, Group::Fairness];
            answer.beyond_bounds = !self.is_possible(&bounds.iter().collect());
        }
        let all: BTreeSet<&Group> = groups.iter().collect();
        if answer.feasible.is_none() && self.is_possible(&all) {
            let mut relaxed = BTreeSet::new();
            // Groups beyond the operator's control are relaxed first, so that the conflict names the others.
            for group in &groups {
                relaxed.insert(group);
                if self.is_possible(&relaxed) {
                    relaxed.remove(group);
                }
            }
            let active = groups.iter().filter(|group| !relaxed.contains(group));
            answer.conflict = active.cloned().collect();
            answer.corrections = self.corrections(&groups, &answer.conflict);
        }
        answer.limit = self.limit;
        answer
    }

    fn groups(&self, target: usize) -> Vec<Group> {
        let demand = &self.instance.types[self.instance.jobs[target].ty].demand;
        let demanded = self.resources.iter().zip(demand);
        let demanded = demanded.filter(|(_, amount)| **amount > 0);
        let mut groups: Vec<Group> = demanded
            .map(|(resource, _)| Group::Capacity(resource.clone()))
            .collect();
        let own = &self.instance.types[self.instance.jobs[target].ty].demand;
        if own[self.instance.counted..].iter().any(|asked| *asked > 0) {
            groups.push(Group::Constraints);
        }
        if self.instance.rooms.len() > 1 {
            groups.push(Group::Packing);
        }
        if self.reserved.iter().flatten().any(|reserved| *reserved > 0) {
            groups.push(Group::Reserved);
        }
        if self
            .instance
            .jobs
            .iter()
            .any(|job| job.state == State::Pinned)
        {
            groups.push(Group::Pins);
        }
        groups.push(Group::Adjustments);
        if self.instance.loss_bound.is_finite() {
            groups.push(Group::Fairness);
        }
        groups
    }

    fn corrections(&mut self, groups: &[Group], conflict: &[Group]) -> Vec<Vec<Group>> {
        for size in 1..=groups.len().min(3) {
            let mut found = Vec::new();
            for set in subsets(groups.len(), size) {
                let set: BTreeSet<&Group> = set.into_iter().map(|index| &groups[index]).collect();
                let meets = conflict.iter().any(|group| set.contains(group));
                if meets && self.is_possible(&set) {
                    found.push(set.into_iter().cloned().collect());
                }
            }
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn best(&mut self, relaxed: &BTreeSet<&Group>) -> Option<f64> {
        let instance = self.relaxed(relaxed)?;
        if !may_be_feasible(&instance) {
            return None;
        }
        match search(&instance, &self.problem.budget, &self.work) {
            Verdict::Found(found) => {
                let (place, price) = self.own;
                let moves = found.candidate.counts[place] != instance.jobs[place].count;
                let price = if moves { price } else { 0.0 };
                Some(found.candidate.objective(&instance) - price)
            }
            Verdict::Infeasible => None,
            Verdict::Unknown => {
                self.limit = true;
                None
            }
        }
    }

    pub fn is_possible(&mut self, relaxed: &BTreeSet<&Group>) -> bool {
        let Some(instance) = self.relaxed(relaxed) else {
            return false;
        };
        let found = any(&instance, &self.problem.budget, &self.work);
        self.limit |= found.is_none();
        found == Some(true)
    }

    /// `None` if not even the job's own restart is allowed.
    pub fn relaxed(&self, relaxed: &BTreeSet<&Group>) -> Option<Instance> {
        let mut instance = self.instance.clone();
        if relaxed.contains(&Group::Adjustments) {
            instance.restart_bound = u32::MAX;
        } else if self.restarts {
            instance.restart_bound = instance.restart_bound.checked_sub(1)?;
        }
        if relaxed.contains(&Group::Fairness) {
            instance.loss_bound = f64::INFINITY;
        }
        if relaxed.contains(&Group::Reserved) {
            for (room, reserved) in instance.rooms.iter_mut().zip(&self.reserved) {
                for (room, reserved) in room.iter_mut().zip(reserved) {
                    *room += reserved;
                }
            }
            instance.classify();
        }
        if relaxed.contains(&Group::Constraints) {
            instance = instance.without_constraints(self.target)?;
        }
        if relaxed.contains(&Group::Pins) {
            for job in &mut instance.jobs {
                if job.state == State::Pinned {
                    job.state = State::Running;
                }
            }
        }
        for (index, resource) in self.resources.iter().enumerate() {
            if relaxed.contains(&Group::Capacity(resource.clone())) {
                for room in &mut instance.rooms {
                    room[index] = room[index].max(PLENTY);
                }
            }
        }
        if relaxed.contains(&Group::Packing) {
            gather(&mut instance);
        }
        Some(instance)
    }
}

/// Merges nodes with equal eligibility columns.
fn gather(instance: &mut Instance) {
    let counted = instance.counted;
    let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    let mut rooms: Vec<Vec<u64>> = Vec::new();
    let mut group_of = Vec::new();
    for room in &instance.rooms {
        let group = *known.entry(room[counted..].to_vec()).or_insert(rooms.len());
        group_of.push(group);
        match rooms.get_mut(group) {
            None => rooms.push(room.clone()),
            Some(sums) => {
                for (sum, amount) in sums.iter_mut().zip(&room[..counted]) {
                    *sum = sum.saturating_add(*amount);
                }
            }
        }
    }
    instance.rooms = rooms;
    for job in &mut instance.jobs {
        let mut previous = BTreeMap::new();
        for (node, count) in &job.previous {
            *previous.entry(group_of[*node]).or_insert(0) += count;
        }
        job.previous = previous.into_iter().collect();
    }
}

fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for last in size - 1..count {
        for mut set in subsets(last, size - 1) {
            set.push(last);
            all.push(set);
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use dormouse_messages::quantity::Resource;
    use serde_json::{Value, json};

    use super::*;
    use crate::document::read;
    use crate::problem::InPlace;

    fn asked(document: &Value, job: &str, least: u32) -> Conflict {
        let problem = read(&document.to_string()).expect("a problem");
        let others = problem.jobs.iter().filter(|it| it.previous.is_some());
        let others = others.map(|it| it.job.clone()).collect();
        conflict(&problem, &job.parse().expect("a job"), least, &others).expect("it is there")
    }

    fn cluster(theta1: f64, theta2: f64, jobs: Value) -> Value {
        json!({
            "nodes": [{"name": "n0", "capacity": {"cpu": 8}}, {"name": "n1", "capacity": {"cpu": 8}}],
            "jobs": jobs, "policy": {"theta1": theta1, "theta2": theta2},
        })
    }

    #[test]
    fn subsets_come_in_order() {
        assert_eq!(subsets(3, 2), [[0, 1], [0, 2], [1, 2]]);
        assert_eq!(subsets(2, 1), [[0], [1]]);
    }

    #[test]
    fn without_restarts_room_and_the_bound_on_them_stand_against_each_other() {
        let jobs = json!([
            {"job": "a/x", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 8}, "previous": {"n0": 8}},
            {"job": "a/y", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 8}, "previous": {"n1": 8}},
            {"job": "a/new", "demand": {"cpu": 1}, "containers": {"min": 2, "max": 4}},
        ]);
        let found = asked(&cluster(1.0, 0.0, jobs.clone()), "a/new", 2);
        assert_eq!(
            found.conflict,
            [Group::Capacity(Resource::Cpu), Group::Adjustments]
        );
        assert_eq!(
            found.corrections,
            [[Group::Capacity(Resource::Cpu)], [Group::Adjustments]]
        );
        let found = asked(&cluster(1.0, 0.1, jobs), "a/new", 2);
        assert!(
            found.feasible.is_some() && found.conflict.is_empty(),
            "{found:?}"
        );
    }

    #[test]
    fn its_own_restart_has_its_price() {
        let jobs = json!([
            {"job": "a/x", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 16}, "previous": {"n0": 8, "n1": 8}},
            {"job": "a/new", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 16}},
        ]);
        let document = cluster(1.0, 1.0, jobs);
        let problem = read(&document.to_string()).expect("a problem");
        let chosen = crate::solve(&problem);
        let others = problem.jobs.iter().map(|it| it.job.clone()).collect();
        let more = chosen.jobs[0].containers + 1;
        let found = conflict(&problem, &chosen.jobs[0].job, more, &others).expect("it is there");
        let objective = found.feasible.expect("it could be had");
        assert!(
            objective < chosen.solver.objective,
            "{objective} of {}",
            chosen.solver.objective
        );
    }

    #[test]
    fn what_stays_in_place_is_not_on_its_way_out() {
        let job = |name: &str, node: &str| {
            json!({"job": name, "demand": {"cpu": 1}, "containers": {"min": 1, "max": 16},
                "previous": {node: 8}})
        };
        let document = cluster(1.0, 0.0, json!([job("a/x", "n0"), job("a/y", "n1")]));
        let mut problem = read(&document.to_string()).expect("a problem");
        for job in &mut problem.jobs {
            let mut nodes = job.previous.iter().flat_map(BTreeMap::keys);
            let coordinator = nodes.next().cloned();
            job.in_place = Some(InPlace { coordinator });
        }
        let others = problem.jobs.iter().map(|it| it.job.clone()).collect();
        let job = problem.jobs[0].job.clone();
        let found = conflict(&problem, &job, 16, &others).expect("it is there");
        assert_eq!(found.corrections, [[Group::Capacity(Resource::Cpu)]]);
    }

    #[test]
    fn room_in_pieces_is_packing() {
        let jobs = json!([
            {"job": "a/x", "demand": {"cpu": 4}, "containers": {"min": 1, "max": 1}, "previous": {"n0": 1}, "adjustable": false},
            {"job": "a/y", "demand": {"cpu": 4}, "containers": {"min": 1, "max": 1}, "previous": {"n1": 1}, "adjustable": false},
            {"job": "a/new", "demand": {"cpu": 8}, "containers": {"min": 1, "max": 1}},
        ]);
        let found = asked(&cluster(1.0, 1.0, jobs), "a/new", 1);
        assert!(found.conflict.contains(&Group::Packing), "{found:?}");
        assert!(
            found.corrections.contains(&vec![Group::Packing]),
            "{found:?}"
        );
        assert!(found.corrections.contains(&vec![Group::Pins]), "{found:?}");
    }
}
