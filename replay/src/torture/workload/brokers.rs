//! Several brokers and disconnected services in a third of the trials; second agents in a fifth.
//! Separate random numbers leave a seed's other choices unchanged.

use dormouse_messages::{Amounts, NodeId};

use crate::engine::{Action, Cut, Engine};
use crate::random::Random;
use crate::simulate::seconds_after_start;

/// Separates these numbers from the trial's own.
const APART: u64 = 0x6272_6f6b_6572_7321;

const APART_TOO: u64 = 0x7365_636f_6e64_7321;

/// Draws three brokers whose leader may be lost.
pub fn several(engine: &mut Engine, seed: u64) {
    let mut random = Random::new(seed ^ APART);
    if !random.chance(1.0 / 3.0) {
        return;
    }
    engine.replicate(random.split());
    for _ in 0..random.below(4) {
        let at_s = random.between(0.0, 400.0);
        let most_s = *random.choose(&[4.0, 10.0, 60.0]);
        let until = seconds_after_start(at_s + random.between(0.001, most_s));
        let copy = usize::from(random.chance(0.5));
        let cut = *random.choose(&[Cut::Whole, Cut::Mute, Cut::Deaf]);
        let action = Action::CutCopies(copy, cut, until);
        engine.at(seconds_after_start(at_s), action);
    }
}

/// Draws second agents for a node or two, mostly while the first is disconnected or killed.
pub fn seconds(engine: &mut Engine, seed: u64, nodes: &[(NodeId, Amounts)]) {
    let random = &mut Random::new(seed ^ APART_TOO);
    if !random.chance(0.2) {
        return;
    }
    for _ in 0..1 + random.below(2) {
        let (node, _) = random.choose(nodes);
        let at_s = random.between(0.0, 400.0);
        if random.chance(0.8) {
            let cut = *random.choose(&[Cut::Whole, Cut::Mute, Cut::Deaf, Cut::Killed]);
            let back_s = at_s + random.between(1.0, 300.0);
            let (at, back) = (seconds_after_start(at_s), seconds_after_start(back_s));
            engine.at(at, Action::Cut(node.clone(), cut));
            engine.at(back, Action::Mend(node.clone()));
        }
        let comes_s = at_s + random.between(0.0, 60.0);
        let action = Action::Second(node.clone());
        engine.at(seconds_after_start(comes_s), action);
    }
}
