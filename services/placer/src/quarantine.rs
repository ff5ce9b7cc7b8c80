//! Quarantines a node with several failed starts in a row, for a time that doubles until a start succeeds.
//! Otherwise a node with a full disk draws job after job: its starts fail at once, so the node is always
//! free.

use dormouse_messages::events::{NodeQuarantined, NodeReadmitted};
use dormouse_messages::{Proposal, Timestamp};
use dormouse_state::{ClusterState, Fault, Node};

/// Longer than an engine's restart.
const FIRST_S: u64 = 30;

/// A mended node is noticed within this time.
const LONGEST_S: u64 = 3600;

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
