//! Fits new jobs next to the running ones, which is often good enough after a single event.
//!
//! 1. All running jobs stay; new jobs get the free capacity.
//! 2. If a minimum does not fit, one job is restarted: of those whose departure lets a container fit, the
//!    first few by size.
//! 3. If none is enough, several are restarted in turn, by the most capacity for their size.

use crate::model::candidate::Candidate;
use crate::model::instance::{Instance, State};
use crate::model::room::fits;
use crate::primal::best_fit::best_fit;

/// A few milliseconds each.
const TRIES: usize = 12;
const TOGETHER: u32 = 24;

pub(crate) fn min_restart_heuristic(instance: &Instance) -> Option<Candidate> {
    let mut restarted = vec![false; instance.jobs.len()];
    // A restarted job regains as much as fits; if that leaves no room for other minima, only the rest.
    let minima: Vec<u32> = instance.jobs.iter().map(|job| job.min).collect();
    let counts = instance.jobs.iter().map(|job| match job.state {
        State::Free => job.min,
        State::Running | State::Pinned => job.count,
    });
    let counts: Vec<u32> = counts.collect();
    let candidate = best_fit(instance, &restarted, &minima);
    if candidate.is_some() || instance.restart_bound == 0 {
        return candidate;
    }
    let mut best: Option<(f64, Candidate)> = None;
    for job in makes_room(instance) {
        restarted[job] = true;
        let candidate = best_fit(instance, &restarted, &counts);
        if let Some(candidate) = candidate.or_else(|| best_fit(instance, &restarted, &minima)) {
            let objective = candidate.objective(instance);
            if best.as_ref().is_none_or(|(most, _)| objective > *most) {
                best = Some((objective, candidate));
            }
        }
        restarted[job] = false;
    }
    best.map(|(_, candidate)| candidate)
        .or_else(|| with_several(instance, &minima))
}

fn with_several(instance: &Instance, minima: &[u32]) -> Option<Candidate> {
    let mut restarted = vec![false; instance.jobs.len()];
    let mut room = Room::new(instance);
    for _ in 0..TOGETHER.min(instance.restart_bound) {
        let worth = |job: usize| room.made_by(job) * spare(instance, job) / size(instance, job);
        let others = (0..restarted.len())
            .filter(|job| instance.jobs[*job].state == State::Running && !restarted[*job]);
        let valued = others.map(|job| (worth(job), job));
        let (_, best) = valued
            .filter(|(worth, _)| *worth > 0.0)
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
        restarted[best] = true;
        let candidate = best_fit(instance, &restarted, minima);
        if candidate.is_some() {
            return candidate;
        }
        room.rooms = instance.free_rooms(&restarted);
    }
    None
}

/// First jobs that need not regain everything, then by size.
fn makes_room(instance: &Instance) -> Vec<usize> {
    let room = Room::new(instance);
    let mut jobs = Vec::new();
    for job in 0..instance.jobs.len() {
        let made = room.made_by(job);
        if made > 0.0 {
            let needs_all = made * spare(instance, job) < 1.0;
            jobs.push((needs_all, size(instance, job), job));
        }
    }
    jobs.sort_by(|a, b| {
        let larger = a.1.total_cmp(&b.1).then(a.2.cmp(&b.2));
        a.0.cmp(&b.0).then(larger)
    });
    jobs.into_iter()
        .map(|(_, _, job)| job)
        .take(TRIES)
        .collect()
}

fn size(instance: &Instance, job: usize) -> f64 {
    let job = &instance.jobs[job];
    instance.types[job.ty].value * job.value(job.count)
}

fn spare(instance: &Instance, job: usize) -> f64 {
    let job = &instance.jobs[job];
    1.0 - f64::from(job.min) / f64::from(job.count.max(1))
}

struct Room<'a> {
    instance: &'a Instance,
    rooms: Vec<Vec<u64>>,
    lacking: Vec<usize>,
}

impl<'a> Room<'a> {
    fn new(instance: &'a Instance) -> Self {
        let jobs = instance.jobs.len();
        let mut room = Self {
            instance,
            rooms: instance.free_rooms(&vec![false; jobs]),
            lacking: Vec::new(),
        };
        let new = (0..jobs).filter(|job| instance.jobs[*job].state == State::Free);
        let lacking = new.filter(|job| {
            let fit = room.rooms.iter().map(|free| fits(room.demand(*job), free));
            fit.sum::<u64>() < u64::from(instance.jobs[*job].min)
        });
        room.lacking = lacking.collect();
        room
    }

    fn demand(&self, job: usize) -> &[u64] {
        &self.instance.types[self.instance.jobs[job].ty].demand
    }

    fn made_by(&self, index: usize) -> f64 {
        let job = &self.instance.jobs[index];
        if job.state != State::Running {
            return 0.0;
        }
        let more = |(node, count): &(usize, u32)| {
            let pairs = self.rooms[*node].iter().zip(self.demand(index));
            let with: Vec<u64> = pairs.map(|(r, d)| r + d * u64::from(*count)).collect();
            let more = |new: &usize| {
                let demand = self.demand(*new);
                fits(demand, &with) - fits(demand, &self.rooms[*node])
            };
            self.lacking.iter().map(more).sum::<u64>()
        };
        job.previous.iter().map(more).sum::<u64>() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::instance::{Job, Type};
    use crate::model::samples::samples;
    use crate::problem::Objective;

    #[test]
    fn restarts_only_where_nothing_fits_without() {
        let (mut stood, mut made) = (0, 0);
        for (seed, instance) in samples(0..200) {
            let Some(candidate) = min_restart_heuristic(&instance) else {
                continue;
            };
            assert!(candidate.is_feasible(&instance), "seed {seed}");
            let minima: Vec<u32> = instance.jobs.iter().map(|job| job.min).collect();
            let without = best_fit(&instance, &vec![false; minima.len()], &minima);
            assert_eq!(candidate.restarts() == 0, without.is_some(), "seed {seed}");
            stood += u32::from(without.is_some());
            made += u32::from(without.is_none());
        }
        assert!(stood > 0 && made > 0, "{stood} stood, {made} made room");
    }

    #[test]
    fn two_make_room_together() {
        let job = |index: usize, min: u32, previous: Vec<(usize, u32)>| Job {
            index,
            ty: 0,
            state: if previous.is_empty() {
                State::Free
            } else {
                State::Running
            },
            min,
            max: 2,
            count: previous.iter().map(|(_, count)| count).sum(),
            previous,
            fair: 0.4,
            in_place: false,
            fixed: Vec::new(),
            is_role: false,
            useful: None,
            restart: 0.001,
        };
        let mut instance = Instance {
            totals: vec![4],
            counted: 1,
            classes: Vec::new(),
            rooms: vec![vec![2], vec![2]],
            types: vec![Type {
                demand: vec![1],
                value: 0.25,
                share: 0.25,
            }],
            jobs: vec![
                job(0, 1, vec![(0, 2)]),
                job(1, 1, vec![(1, 2)]),
                job(2, 2, Vec::new()),
            ],
            objective: Objective::default(),
            loss_bound: f64::INFINITY,
            restart_bound: 2,
        };
        let candidate = min_restart_heuristic(&instance).expect("there is room");
        assert!(candidate.is_feasible(&instance));
        assert_eq!((candidate.restarts(), candidate.counts), (2, vec![1, 1, 2]));
        instance.restart_bound = 1;
        assert_eq!(min_restart_heuristic(&instance), None);
    }
}
