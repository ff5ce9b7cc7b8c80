//! The node table after given histories.

use dormouse_messages::events::{
    NodeDrained, NodeLost, NodeQuarantined, NodeReadmitted, NodeRecovered, NodeRestored, StopReason,
};

use super::*;
use crate::ReadModel;
use dormouse_state::history::{History, at, node};

#[track_caller]
fn then(history: &History, name: &str, state: NodeState, counts: [u32; 3], cpu: u64) {
    let model = history.fold::<ReadModel>();
    let name = node(name);
    let found = model.node(&name).expect("the node has joined");
    let seen = [
        found.load.reserved,
        found.load.containers,
        found.load.running,
    ];
    let used = found.load.used.get(&dormouse_messages::Resource::Cpu);
    assert_eq!((found.state(), seen, used), (state, counts, cpu));
}

#[test]
fn room_is_reserved_then_taken_then_free() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/lr").release("ads/lr");
    history
        .allocate(1, &[("ads/lr", 0, 2)], &[])
        .place(1, "ads/lr", 1, &[("n0", 2)]);
    then(&history, "n0", NodeState::Up, [2, 0, 0], 0);
    history.request_start(1, "ads/lr", 1, 2);
    then(&history, "n0", NodeState::Up, [0, 2, 0], 4000);
    history.container_started("ads/lr", 1, 0, "n0");
    then(&history, "n0", NodeState::Up, [0, 2, 1], 4000);
    history.container_exited("ads/lr", 1, 0, "n0", Some(0));
    then(&history, "n0", NodeState::Up, [0, 1, 0], 2000);
    history.complete("ads/lr");
    then(&history, "n0", NodeState::Up, [0, 0, 0], 0);
}

#[test]
fn a_resize_takes_its_new_room_only_when_it_starts() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .run("ads/lr", 2)
        .place(2, "ads/lr", 2, &[("n0", 4)]);
    then(&history, "n0", NodeState::Up, [4, 2, 2], 4000);
    history.stopped(2, "ads/lr", 1, StopReason::Adjusted);
    then(&history, "n0", NodeState::Up, [4, 0, 0], 0);
    history.request_start(2, "ads/lr", 2, 4);
    then(&history, "n0", NodeState::Up, [0, 4, 0], 8000);
}

#[test]
fn what_is_resized_in_place_stands_where_it_stood() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .admit_in_place("ads/lr")
        .release("ads/lr");
    history
        .place(1, "ads/lr", 1, &[("n0", 2)])
        .request_start(1, "ads/lr", 1, 2);
    for rank in 0..2 {
        history.container_started("ads/lr", 1, rank, "n0");
    }
    history.place_more(2, "ads/lr", 1, &[(2, "n0"), (3, "n0")], &[]);
    then(&history, "n0", NodeState::Up, [2, 2, 2], 4000);
    history.request_resize(2, "ads/lr", 1, &[2, 3], &[]);
    then(&history, "n0", NodeState::Up, [0, 4, 2], 8000);
    history.container_started("ads/lr", 1, 2, "n0");
    history.place_more(3, "ads/lr", 1, &[], &[(1, "n0")]);
    then(&history, "n0", NodeState::Up, [0, 4, 3], 8000);
    history.container_exited("ads/lr", 1, 1, "n0", Some(0));
    then(&history, "n0", NodeState::Up, [0, 3, 2], 6000);
}

#[test]
fn a_replaced_placement_does_not_count_twice() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .join("n1", 1)
        .submit("ads/lr")
        .release("ads/lr");
    history
        .place(1, "ads/lr", 1, &[("n0", 2)])
        .place(2, "ads/lr", 2, &[("n1", 1)]);
    then(&history, "n0", NodeState::Up, [0, 0, 0], 0);
    then(&history, "n1", NodeState::Up, [1, 0, 0], 0);
}

#[test]
fn a_lost_node_holds_nothing_until_it_recovers() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2);
    let lost = |incarnation| NodeLost {
        node: node("n0"),
        incarnation,
        last_seen: at(5),
    };
    history.push(lost(0));
    then(&history, "n0", NodeState::Up, [0, 2, 2], 4000);
    history.push(lost(1));
    then(&history, "n0", NodeState::Lost, [0, 0, 0], 0);
    history.join("n0", 2);
    then(&history, "n0", NodeState::Lost, [0, 0, 0], 0);
    history.push(NodeRecovered {
        node: node("n0"),
        last_seen: at(5),
        basis: None,
    });
    then(&history, "n0", NodeState::Up, [0, 0, 0], 0);
}

#[test]
fn a_drain_holds_also_before_the_node_joins() {
    let mut history = History::default();
    history
        .push(NodeDrained {
            node: node("n0"),
            reason: None,
            deadline_s: None,
        })
        .join("n0", 1);
    then(&history, "n0", NodeState::Drained, [0, 0, 0], 0);
    history.push(NodeRestored { node: node("n0") });
    then(&history, "n0", NodeState::Up, [0, 0, 0], 0);
}

#[test]
fn a_quarantine_is_seen_until_it_is_over() {
    let mut history = History::default();
    let quarantine = || NodeQuarantined {
        node: node("n0"),
        reason: "3 starts in a row failed".to_owned(),
        until: at(60),
        basis: None,
    };
    history.join("n0", 1).push(quarantine());
    then(&history, "n0", NodeState::Quarantined, [0, 0, 0], 0);
    let rows = crate::queries::answer(
        &history.fold::<ReadModel>(),
        "nodes",
        serde_json::json!({}),
        at(9),
    );
    let rows = rows.expect("answered").to_string();
    assert!(rows.contains("3 starts in a row failed"), "{rows}");
    history.push(NodeReadmitted {
        node: node("n0"),
        basis: None,
    });
    then(&history, "n0", NodeState::Up, [0, 0, 0], 0);
    // The operator ends the quarantine, too.
    history
        .push(quarantine())
        .push(NodeRestored { node: node("n0") });
    then(&history, "n0", NodeState::Up, [0, 0, 0], 0);
}
