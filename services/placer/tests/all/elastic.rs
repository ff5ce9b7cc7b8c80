//! Partitions resized in place: the containers that stay, go or come.

use dormouse_messages::events::{NodeLabelled, PlacementDecided};
use dormouse_messages::job::{Containers, JobSpec};
use dormouse_messages::service::Resize;
use dormouse_messages::{Decider, Event};
use dormouse_placer::Placer;

use crate::given::{Given, at, job, node, spec};

impl Given {
    /// Ranks follow the order of the nodes.
    fn runs_in_place(&mut self, id: &str, on: &[&str]) {
        let spec = JobSpec {
            containers: Containers::between(1, 4),
            resize: Resize::in_place(),
            ..spec(&job(id))
        };
        self.runs(spec, on);
    }

    fn places(&mut self, jobs: &[(&str, &[(&str, u32)])]) -> PlacementDecided {
        self.allocated(jobs);
        let decision = Placer.decide(&self.state, at(self.seconds));
        match decision.proposals.into_iter().next().map(|it| it.event) {
            Some(Event::PlacementDecided(event)) => {
                self.push(*event.clone());
                *event
            }
            other => panic!("{other:?}"),
        }
    }
}

fn created(event: &PlacementDecided) -> Vec<(u32, u32, &str)> {
    let create = event.create.iter();
    create
        .map(|it| (it.incarnation.0, it.rank.0, it.node.as_str()))
        .collect()
}

fn removed(event: &PlacementDecided) -> Vec<u32> {
    event.remove.iter().map(|it| it.rank.0).collect()
}

#[test]
fn what_stays_is_not_listed_and_numbers_are_not_used_twice() {
    let mut given = Given::nodes();
    given.runs_in_place("t/a", &["n0", "n0", "n1"]);
    let shrunk = given.places(&[("t/a", &[("n0", 1)])]);
    assert_eq!((created(&shrunk), removed(&shrunk)), (vec![], vec![1, 2]));
    let grown = given.places(&[("t/a", &[("n0", 1), ("n1", 2)])]);
    assert_eq!(created(&grown), [(1, 3, "n1"), (1, 4, "n1")]);
    assert_eq!(removed(&grown), Vec::<u32>::new());
}

#[test]
fn a_job_whose_coordinator_must_move_is_placed_whole() {
    let mut given = Given::nodes();
    given.runs_in_place("t/a", &["n0", "n1"]);
    let moved = given.places(&[("t/a", &[("n1", 2)])]);
    assert_eq!(created(&moved), [(2, 0, "n1"), (2, 1, "n1")]);
    assert_eq!(removed(&moved), [0, 1]);
}

#[test]
fn what_stands_where_nobody_else_may_be_stays_there() {
    let mut given = Given::nodes();
    given.runs_in_place("t/a", &["n0", "n0", "n1"]);
    given.push(NodeLabelled {
        node: node("n1"),
        labels: Default::default(),
        taints: [("old".to_owned(), true)].into(),
    });
    given.released(spec(&job("t/b")));
    let placed = given.places(&[("t/a", &[("n0", 1), ("n1", 1)]), ("t/b", &[("n0", 1)])]);
    assert_eq!(created(&placed), [(1, 0, "n0")], "of t/b");
    assert_eq!(removed(&placed), [1]);
}
