//! Nodes that cannot start what others can: out of use for a while, which doubles.
//!
//! Input: what the folds know of each node's health. Without this a node whose disk is full draws
//! job after job: its starts fail at once, so it is always free.
//!
//! 1. A usable node on which several starts in a row have failed is quarantined.
//! 2. One whose time is over is readmitted. Its next failures quarantine it for twice as long, its
//!    next start clears it.

use dormouse_messages::events::{NodeQuarantined, NodeReadmitted};
use dormouse_messages::{Proposal, Timestamp};
use dormouse_state::{ClusterState, Fault, Node};

/// The first quarantine: longer than an engine's restart.
const FIRST_S: u64 = 30;

/// The longest: a node that was mended is noticed within it.
const LONGEST_S: u64 = 3600;

/// What is due now, and when something will be.
pub fn due(state: &ClusterState, now: Timestamp) -> (Vec<Proposal>, Option<Timestamp>) {
    let (mut proposals, mut next) = (Vec::new(), None::<Timestamp>);
    for (name, node) in state.nodes.iter() {
        match &node.health.quarantine {
            Some(quarantine) if quarantine.until <= now => {
                let event = NodeReadmitted {
                    node: name.clone(),
                    basis: None,
                };
                proposals.push(Proposal::new(event, quarantine.at));
            }
            Some(quarantine) => {
                let until = quarantine.until;
                next = Some(next.map_or(until, |next| next.min(until)));
            }
            None if node.is_usable() && node.health.is_suspect() => {
                let event = NodeQuarantined {
                    node: name.clone(),
                    reason: reason(node),
                    until: now.plus_ms(duration_s(node.health.quarantines) * 1000),
                    basis: None,
                };
                let causes = node.health.faults.iter().map(|fault| fault.at);
                proposals.push(Proposal::caused_by(event, causes.collect()));
            }
            None => {}
        }
    }
    (proposals, next)
}

fn duration_s(quarantines: u32) -> u64 {
    let doubled = FIRST_S.checked_mul(1_u64.checked_shl(quarantines).unwrap_or(LONGEST_S));
    doubled.map_or(LONGEST_S, |doubled| doubled.min(LONGEST_S))
}

fn reason(node: &Node) -> String {
    let faults = &node.health.faults;
    let last = faults.last();
    let why = last.map_or("", |Fault { reason, .. }| reason.as_str());
    format!(
        "{} starts in a row failed, the last one: {why}",
        faults.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_up_to_an_hour() {
        let times = [0, 1, 2, 6, 7, 40, 80].map(duration_s);
        assert_eq!(times, [30, 60, 120, 1920, 3600, 3600, 3600]);
    }
}
