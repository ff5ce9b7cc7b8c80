//! Brokers that keep the log together, and hosts of services that are cut off from them, in a third of
//! the trials. They are drawn from numbers of their own, so that everything else that a seed chooses
//! stays what it was.

use crate::engine::{Action, Cut, Engine};
use crate::random::Random;
use crate::simulate::seconds_after_start;

/// Sets these numbers apart from the trial's own.
const APART: u64 = 0x6272_6f6b_6572_7321;

/// Three brokers, with a leader that is lost now and then.
pub fn several(engine: &mut Engine, seed: u64) {
    let mut random = Random::new(seed ^ APART);
    if !random.chance(1.0 / 3.0) {
        return;
    }
    engine.replicate(random.split());
    for _ in 0..random.below(4) {
        let at_s = random.between(0.0, 400.0);
        // Mostly shorter than anybody waits.
        let most_s = *random.choose(&[4.0, 10.0, 60.0]);
        let until = seconds_after_start(at_s + random.between(0.001, most_s));
        let copy = usize::from(random.chance(0.5));
        let cut = *random.choose(&[Cut::Whole, Cut::Mute, Cut::Deaf]);
        let action = Action::CutCopies(copy, cut, until);
        engine.at(seconds_after_start(at_s), action);
    }
}
