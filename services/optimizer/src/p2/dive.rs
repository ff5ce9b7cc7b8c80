//! The dive: which running jobs are restarted.
//!
//! The linear relaxation says how much of each running job it would restart. Those that it leaves
//! alone are pinned, those that it restarts are set free, and of the rest the one it restarts most
//! is set free too; then the smaller relaxation is solved again, until all are decided.

use super::groups::Groups;
use super::instance::{Instance, State};
use super::model::TypeModel;
use super::solver::{Ending, Limits};

/// Relaxations solved at most; what is still open then is pinned.
const ROUNDS: usize = 16;
/// Below this fraction a job is pinned.
const DECIDED: f64 = 0.02;
/// Above this fraction it is restarted.
const SETTLED: f64 = 0.9;

/// The restarts that a dive from the relaxation's `fractions` ends with.
pub(crate) fn dive(
    instance: &Instance,
    groups: &Groups,
    fractions: &[f64],
    limits: Limits,
) -> Vec<bool> {
    let mut open = instance.clone();
    let mut restarted = vec![false; instance.jobs.len()];
    let mut fractions = fractions.to_vec();
    for round in 0..ROUNDS {
        decide(&mut open, &fractions, &mut restarted, round);
        if !open.jobs.iter().any(|job| job.state == State::Running) {
            break;
        }
        let mut model = TypeModel::new(&open, groups, false);
        let outcome = std::mem::take(&mut model.model).maximise(limits, None);
        let Some(columns) = outcome
            .columns
            .filter(|_| outcome.ending == Ending::Optimal)
        else {
            break;
        };
        fractions = model
            .restart
            .iter()
            .map(|r| r.map_or(0.0, |r| columns[r]))
            .collect();
    }
    restarted
}

fn decide(open: &mut Instance, fractions: &[f64], restarted: &mut [bool], round: usize) {
    let mut undecided: Vec<(f64, usize)> = Vec::new();
    for (index, job) in open.jobs.iter_mut().enumerate() {
        if job.state != State::Running {
            continue;
        }
        if fractions[index] < DECIDED {
            job.state = State::Pinned;
        } else {
            undecided.push((fractions[index], index));
        }
    }
    undecided.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    // At least an eighth of what is open in each round, so that few rounds are needed.
    let least = if round == 0 {
        0
    } else {
        undecided.len().div_ceil(8)
    };
    for (place, (fraction, index)) in undecided.into_iter().enumerate() {
        let settled = fraction > SETTLED || place < least;
        if settled && open.restart_bound > 0 {
            open.jobs[index].state = State::Free;
            open.restart_bound -= 1;
            restarted[index] = true;
        } else if open.restart_bound == 0 {
            open.jobs[index].state = State::Pinned;
        }
    }
}
