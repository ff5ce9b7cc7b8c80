//! The new jobs beside what runs: after a single event that is often good enough.
//!
//! 1. Everything that runs stays; the new jobs get the room that there is.
//! 2. Where a minimum does not fit, one running job is restarted to make room for it: of those on
//!    whose nodes a container would then fit, the first few by how little they have.
//!
//! A heuristic: the plan is checked, and what it is worth is compared with the bound.

use super::instance::{Instance, State, fits};
use super::place::place;
use super::plan::Plan;

/// How many jobs are tried in step 2: a few milliseconds each.
const TRIES: usize = 8;

/// The best plan with at most one restart that was found.
pub(crate) fn beside(instance: &Instance) -> Option<Plan> {
    let mut restarted = vec![false; instance.jobs.len()];
    // A restarted job gets back as much of what it had as fits.
    let counts = instance.jobs.iter().map(|job| match job.state {
        State::Free => job.min,
        State::Running | State::Pinned => job.count,
    });
    let counts: Vec<u32> = counts.collect();
    let plan = place(instance, &restarted, &counts);
    if plan.is_some() || instance.restart_bound == 0 {
        return plan;
    }
    let mut best: Option<(f64, Plan)> = None;
    for job in makes_room(instance) {
        restarted[job] = true;
        if let Some(plan) = place(instance, &restarted, &counts) {
            let objective = plan.objective(instance);
            if best.as_ref().is_none_or(|(most, _)| objective > *most) {
                best = Some((objective, plan));
            }
        }
        restarted[job] = false;
    }
    best.map(|(_, plan)| plan)
}

/// The running jobs without which a container of a new job fits that does not fit now, the
/// smallest first.
fn makes_room(instance: &Instance) -> Vec<usize> {
    let rooms = instance.free_rooms(&vec![false; instance.jobs.len()]);
    let demand = |job: usize| &instance.types[instance.jobs[job].ty].demand;
    let fit = |job: usize| {
        rooms
            .iter()
            .map(|room| fits(demand(job), room))
            .sum::<u64>()
    };
    let new = (0..instance.jobs.len()).filter(|job| instance.jobs[*job].state == State::Free);
    let lacking = new.filter(|job| fit(*job) < u64::from(instance.jobs[*job].min));
    let lacking: Vec<usize> = lacking.collect();
    let helps = |job: &usize| {
        let running = &instance.jobs[*job];
        running.state == State::Running
            && running.previous.iter().any(|(node, count)| {
                let with = rooms[*node].iter().zip(demand(*job));
                let room: Vec<u64> = with.map(|(room, d)| room + d * u64::from(*count)).collect();
                let more =
                    |new: &usize| fits(demand(*new), &room) > fits(demand(*new), &rooms[*node]);
                lacking.iter().any(more)
            })
    };
    let mut jobs: Vec<usize> = (0..instance.jobs.len()).filter(helps).collect();
    let size = |job: usize| {
        instance.types[instance.jobs[job].ty].value * f64::from(instance.jobs[job].count)
    };
    jobs.sort_by(|a, b| size(*a).total_cmp(&size(*b)).then(a.cmp(b)));
    jobs.truncate(TRIES);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::p2::samples::random;

    #[test]
    fn at_most_one_restart_and_only_where_nothing_fits_without() {
        let (mut stood, mut made) = (0, 0);
        for seed in 0..200 {
            let Some(instance) = random(seed) else {
                continue;
            };
            let Some(plan) = beside(&instance) else {
                continue;
            };
            assert!(plan.is_feasible(&instance), "seed {seed}");
            let minima: Vec<u32> = instance.jobs.iter().map(|job| job.min).collect();
            let without = place(&instance, &vec![false; minima.len()], &minima);
            assert_eq!(plan.restarts(), u32::from(without.is_none()), "seed {seed}");
            stood += u32::from(without.is_some());
            made += u32::from(without.is_none());
        }
        assert!(stood > 0 && made > 0, "{stood} stood, {made} made room");
    }
}
