//! Splits placements that exceed one log message, each part of whole jobs.
//!
//! ```text
//!   epoch 7   jobs a, b      after a crash here the allocation is placed again
//!   epoch 7   jobs c, d
//!   epoch 8   job e, and as many removals of departing jobs as fit
//!   epoch 8   the other removals, for readers only: the fold has them already
//! ```
//!
//! All parts before the last that creates something carry the previous epoch, like retries; that one marks
//! the allocation as placed. A gang of up to 10,000 containers is never divided.

use std::collections::BTreeMap;

use dormouse_messages::events::{PlacedContainer, PlacementDecided, RemovedContainer};
use dormouse_messages::{Epoch, JobId};

/// This many containers fit the log's 4 MiB message limit even with the longest names (some 250 bytes each).
const MOST: usize = 15_000;

/// `before` is the newest placed epoch.
pub fn of(
    placed: PlacementDecided,
    before: Epoch,
    gives_up: impl Fn(&JobId) -> bool,
) -> Vec<PlacementDecided> {
    at_most(MOST, placed, before, gives_up)
}

fn length(part: &PlacementDecided) -> usize {
    part.create.len() + part.remove.len()
}

fn at_most(
    most: usize,
    placed: PlacementDecided,
    before: Epoch,
    gives_up: impl Fn(&JobId) -> bool,
) -> Vec<PlacementDecided> {
    if length(&placed) <= most {
        return vec![placed];
    }
    let part = |epoch| PlacementDecided {
        epoch,
        create: Vec::new(),
        remove: Vec::new(),
        basis: None,
    };
    let mut jobs: BTreeMap<JobId, (Vec<PlacedContainer>, Vec<RemovedContainer>)> = BTreeMap::new();
    let mut given_up = Vec::new();
    for container in placed.create {
        let job = jobs.entry(container.job.clone()).or_default();
        job.0.push(container);
    }
    for container in placed.remove {
        if gives_up(&container.job) {
            given_up.push(container)
        } else {
            let job = jobs.entry(container.job.clone()).or_default();
            job.1.push(container);
        }
    }
    let (mut parts, mut last) = (Vec::new(), part(before));
    for (_, (create, remove)) in jobs {
        let already = length(&last);
        if already > 0 && already + create.len() + remove.len() > most {
            parts.push(std::mem::replace(&mut last, part(before)));
        }
        last.create.extend(create);
        last.remove.extend(remove);
    }
    last.epoch = placed.epoch;
    for container in given_up {
        if length(&last) >= most {
            parts.push(std::mem::replace(&mut last, part(placed.epoch)));
        }
        last.remove.push(container);
    }
    parts.push(last);
    parts
}

#[cfg(test)]
mod tests {
    use dormouse_messages::{Decider, Event, Incarnation, Rank};
    use dormouse_state::ClusterState;
    use dormouse_state::history::{History, job, node};

    use super::*;
    use crate::Placer;

    fn created(job: u32, rank: u32) -> PlacedContainer {
        PlacedContainer {
            job: format!("t/j{job}").parse().expect("an id"),
            incarnation: Incarnation(1),
            rank: Rank(rank),
            node: node("n0"),
            gpus: Vec::new(),
            port: 0,
        }
    }

    fn placed(jobs: u32, containers: u32) -> PlacementDecided {
        let create = (0..jobs).flat_map(|job| (0..containers).map(move |rank| created(job, rank)));
        PlacementDecided {
            epoch: Epoch(8),
            create: create.collect(),
            remove: Vec::new(),
            basis: None,
        }
    }

    fn taken(jobs: u32) -> Vec<RemovedContainer> {
        let removed = (0..jobs).map(|number| RemovedContainer {
            job: format!("t/old{number}").parse().expect("an id"),
            incarnation: Incarnation(1),
            rank: Rank(0),
            node: node("n0"),
        });
        removed.collect()
    }

    fn epochs(parts: &[PlacementDecided]) -> Vec<u64> {
        parts.iter().map(|part| part.epoch.0).collect()
    }

    #[test]
    fn what_fits_is_one_message() {
        let parts = of(placed(10, 100), Epoch(7), |_| false);
        assert_eq!(parts, [placed(10, 100)]);
    }

    #[test]
    fn sixty_thousand_containers_are_several_and_only_the_last_ends_it() {
        let parts = of(placed(60, 1_000), Epoch(7), |_| false);
        assert_eq!(epochs(&parts), [7, 7, 7, 8]);
        assert!(parts.iter().all(|part| length(part) <= MOST));
        let all: Vec<_> = parts.into_iter().flat_map(|part| part.create).collect();
        assert_eq!(all.len(), 60_000);
    }

    #[test]
    fn each_part_is_within_a_message_with_the_longest_names() {
        let name = |length: usize| "x".repeat(length);
        let id: JobId = format!("{}/{}", name(63), name(63)).parse().expect("an id");
        let mut long = placed(1, u32::try_from(MOST).expect("few"));
        for container in &mut long.create {
            container.job = id.clone();
            container.node = name(63).parse().expect("a name");
            container.port = 65_000;
        }
        let bytes = rmp_serde::to_vec_named(&long).expect("encodes").len();
        assert!(bytes < (4 << 20) - 4_096, "{bytes} bytes");
    }

    #[test]
    fn a_gang_stays_together() {
        let parts = of(placed(3, 10_000), Epoch(7), |_| false);
        let jobs = |part: &PlacementDecided| {
            let mut jobs: Vec<JobId> = part.create.iter().map(|it| it.job.clone()).collect();
            jobs.dedup();
            jobs.len()
        };
        assert_eq!(parts.iter().map(jobs).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn what_is_given_up_goes_when_the_allocation_is_placed() {
        let mut both = placed(2, 2);
        both.remove = taken(5);
        let parts = at_most(3, both, Epoch(7), |id| id.name().starts_with("old"));
        assert_eq!(epochs(&parts), [7, 8, 8, 8]);
        let removed: Vec<usize> = parts.iter().map(|part| part.remove.len()).collect();
        assert_eq!(removed, [0, 1, 3, 1]);
    }

    fn allocated() -> History {
        let mut history = History::default();
        for name in ["n0", "n1", "n2"] {
            history.join(name, 1);
        }
        let jobs = ["t/a", "t/b", "t/c"];
        for id in jobs {
            history.submit(id).release(id);
        }
        history.allocate_on(
            1,
            &[
                ("t/a", &[("n0", 4)]),
                ("t/b", &[("n1", 4)]),
                ("t/c", &[("n2", 4)]),
            ],
        );
        history
    }

    fn wants(history: &History) -> Option<PlacementDecided> {
        let state: ClusterState = history.fold();
        let decision = Placer.decide(&state, history.now());
        let mut proposals = decision.proposals.into_iter();
        proposals.find_map(|proposal| match proposal.event {
            Event::PlacementDecided(event) => Some(PlacementDecided::clone(&event)),
            _ => None,
        })
    }

    #[test]
    fn a_crash_after_any_part_leaves_what_is_placed_again() {
        for stored in 0..=3 {
            let mut history = allocated();
            let whole = wants(&history).expect("it places");
            let parts = at_most(4, whole, Epoch(0), |_| false);
            assert_eq!(epochs(&parts), [0, 0, 1]);
            parts.into_iter().take(stored).for_each(|part| {
                history.push(part);
            });
            if let Some(again) = wants(&history) {
                assert!(stored < 3, "nothing is left to place");
                history.push(again);
            }
            let state: ClusterState = history.fold();
            assert_eq!(state.placed_epoch, Epoch(1), "after {stored} parts");
            for id in ["t/a", "t/b", "t/c"] {
                let assignment = state.jobs[&job(id)].assignment.as_ref();
                let places = assignment.map(|it| it.places.len());
                assert_eq!(places, Some(4), "{id} after {stored} parts");
            }
        }
    }
}
