//! The problem that a folded log poses.

use dormouse_messages::{Fold, Recorded, Timestamp};
use dormouse_optimizer::problem::Budget;
use dormouse_optimizer::problem_of;
use dormouse_state::ClusterState;

fn folded(log: &str) -> ClusterState {
    let mut state = ClusterState::default();
    for line in log.lines() {
        let (_, recorded) = Recorded::from_json(line).expect("a record");
        state.evolve(&recorded);
    }
    state
}

/// A job is cancelled while it is being moved from n0 to n1: the placer keeps its places on n1 for
/// it until it has ended, so an allocation that used them would be refused, decided again, and
/// refused again, for ever.
#[test]
fn a_cancelled_job_keeps_its_places_until_it_has_ended() {
    let state = folded(include_str!("../data/cancelled-in-transit.jsonl"));
    let problem = problem_of(&state, Timestamp::default(), Budget::default());
    assert_eq!(problem.jobs.len(), 1, "the cancelled one takes no part");
    let node = |name: &str| problem.nodes.iter().find(|node| node.name.as_str() == name);
    assert!(node("n0").is_none(), "n0 is drained");
    let reserved = &node("n1").expect("n1").reserved;
    assert_eq!(reserved.to_string(), "cpu=8,memory=4Gi");
    assert!(node("n2").expect("n2").reserved.is_empty());
}

/// A node was lost with a service's replica and a part of a gang. Once the gang has stopped there is room
/// for both, and nothing would ask for another decision if one of them were left out.
#[test]
fn a_service_that_lacks_a_replica_and_a_job_start_together() {
    let log = include_str!("../data/service-and-training-after-a-loss.jsonl");
    let state = folded(log);
    let problem = problem_of(&state, state.now, Budget::default());
    let solution = dormouse_optimizer::solve(&problem);
    let containers = |name: &str| {
        let share = solution.jobs.iter().find(|it| it.job.name() == name);
        share.map(|it| it.containers)
    };
    assert_eq!((containers("sv2"), containers("ck8")), (Some(1), Some(7)));
    assert_eq!(solution.waiting, []);
}
