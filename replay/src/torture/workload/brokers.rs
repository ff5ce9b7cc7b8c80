//! Brokers that keep the log together, in a third of the trials. They are drawn from numbers of their own,
//! so that everything else that a seed chooses stays what it was.

use crate::engine::Engine;
use crate::random::Random;

/// Sets these numbers apart from the trial's own.
const APART: u64 = 0x6272_6f6b_6572_7321;

/// Three brokers, with a leader that is lost now and then.
pub fn several(engine: &mut Engine, seed: u64) {
    let mut random = Random::new(seed ^ APART);
    if random.chance(1.0 / 3.0) {
        engine.replicate(random.split());
    }
}
