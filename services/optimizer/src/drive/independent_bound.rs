//! Gives every job its best count as if the job were alone. The sum bounds P2, and is optimal if everything
//! fits.

use crate::dual::relaxation::best_fresh;
use crate::model::candidate::Candidate;
use crate::model::instance::{Instance, State};
use crate::primal::best_fit::best_fit;

pub(crate) fn independent_bound(instance: &Instance) -> (f64, Option<Candidate>) {
    let mut bound = 0.0;
    let mut restarted = vec![false; instance.jobs.len()];
    let mut counts = vec![0; instance.jobs.len()];
    for (index, job) in instance.jobs.iter().enumerate() {
        let (fresh, count) = best_fresh(instance, index, 0.0, 0.0);
        let stays = instance.worth(index, job.count);
        restarted[index] = job.state == State::Running && fresh - job.restart > stays;
        counts[index] = count;
        bound += match job.state {
            State::Free => fresh,
            State::Running => stays.max(fresh - job.restart),
            State::Pinned => stays,
        };
    }
    (bound, best_fit(instance, &restarted, &counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::ladder::search_by_prices;
    use crate::drive::search::Verdict;
    use crate::model::samples::samples;
    use crate::problem::Budget;

    #[test]
    fn nothing_is_better_and_with_room_it_is_reached() {
        let (mut reached, mut short) = (0, 0);
        for (seed, mut instance) in samples(0..200) {
            let (bound, candidate) = independent_bound(&instance);
            let budget = Budget::default();
            if let Verdict::Found(found) = search_by_prices(&instance, &budget) {
                assert!(
                    found.candidate.objective(&instance) <= bound + 1e-9,
                    "seed {seed}"
                );
            }
            short += u32::from(
                candidate.is_none_or(|candidate| candidate.objective(&instance) < bound - 1e-9),
            );
            for room in instance.rooms.iter_mut().flatten() {
                *room *= 20;
            }
            instance.restart_bound = u32::MAX;
            instance.loss_bound = f64::INFINITY;
            let (bound, candidate) = independent_bound(&instance);
            let candidate = candidate.expect("there is room");
            assert!(
                (candidate.objective(&instance) - bound).abs() < 1e-9,
                "seed {seed}"
            );
            reached += 1;
        }
        assert!(reached > 0 && short > 0, "{reached} reached, {short} short");
    }
}
