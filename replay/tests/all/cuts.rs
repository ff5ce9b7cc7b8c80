//! An agent's view, cut out of every node's, is the view of the node alone, at every event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_agent_core::state::AgentState;
use dormouse_messages::{Event, Fold, Recorded};
use dormouse_replay::engine::Rates;

use crate::common::small_cluster;

/// Fewer do not have all the events.
const SEEDS: u64 = 40;

fn is_cut_at_every_event(log: &[Arc<Recorded>]) -> Result<(), String> {
    let mut every = AgentState::default();
    let joined = log.iter().filter_map(|recorded| match recorded.event() {
        Some(Event::NodeJoined(event)) => Some(event.node.clone()),
        _ => None,
    });
    let mut alone: BTreeMap<_, _> = joined
        .map(|node| (node.clone(), AgentState::new(node)))
        .collect();
    for recorded in log {
        every.evolve(recorded);
        every.check_invariants()?;
        for (node, alone) in &mut alone {
            alone.evolve(recorded);
            let cut = every.cut(node);
            if cut != *alone {
                let event = recorded.sequence.0;
                return Err(format!(
                    "{node} after event {event}, cut {cut:#?}, and alone {alone:#?}"
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn an_agents_part_of_every_nodes_view_is_its_own_view() {
    let mut seen = BTreeSet::new();
    for seed in 1..=SEEDS {
        let (engine, _) = small_cluster(seed, Some(Rates::TORTURE));
        let log = engine.log();
        is_cut_at_every_event(log).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let events = log.iter().filter_map(|recorded| recorded.event());
        seen.extend(events.map(Event::subject_name));
    }
    for name in [
        "node.lost",
        "node.fenced",
        "partition.resize_requested",
        "partition.leave_requested",
        "tasks.assigned",
        "partition.stopped",
        "checkpoint.saved",
    ] {
        assert!(seen.contains(name), "no {name} among {seen:?}");
    }
}
