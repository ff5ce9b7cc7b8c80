//! Draws host faults in half of the trials. Separate random numbers leave a seed's other choices
//! unchanged.

use dormouse_messages::events::NodeFault;
use dormouse_messages::{Amounts, NodeId};

use crate::engine::{Action, Ailment, Engine};
use crate::random::Random;
use crate::simulate::seconds_after_start;

/// Separates these numbers from the trial's own.
const APART: u64 = 0x7769_6465;

/// Draws start faults, suspensions and reboots for one to three nodes.
pub fn troubles(engine: &mut Engine, seed: u64, nodes: &[(NodeId, Amounts)]) {
    let random = &mut Random::new(seed ^ APART);
    if !random.chance(0.5) {
        return;
    }
    for _ in 0..1 + random.below(3) {
        let at_s = random.between(0.0, 400.0);
        let back_s = at_s + random.between(0.001, 200.0);
        let (node, _) = random.choose(nodes);
        let (at, back) = (seconds_after_start(at_s), seconds_after_start(back_s));
        let ailments = [
            Ailment::Starts(NodeFault::Disk),
            Ailment::Starts(NodeFault::Image),
            Ailment::Starts(NodeFault::Engine),
            Ailment::Answers,
            Ailment::Answers,
        ];
        match random.below(10) {
            kind @ 0..5 => {
                let ailment = ailments[usize::try_from(kind).unwrap_or(0)];
                engine.at(at, Action::Ails(node.clone(), ailment));
                engine.at(back, Action::Heals(node.clone()));
            }
            5..8 => engine.at(at, Action::Stand(node.clone(), back)),
            _ => {
                let back = if random.chance(0.7) {
                    seconds_after_start(at_s + random.between(1.0, 15.0))
                } else {
                    back
                };
                engine.at(at, Action::Reboot(node.clone()));
                engine.at(back, Action::Mend(node.clone()));
            }
        }
    }
}
