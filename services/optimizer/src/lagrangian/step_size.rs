//! How far the price of restarts goes in a step of the ascent ([`crate::lagrangian::dual_descent`]).
//!
//! A step knows where that price were best if nothing else moved. But what is paid for blocks follows
//! it, and then it were best a little further on: at twice the way, three hundred steps are too few on
//! some instances, and until it is there the wrong jobs are restarted; at five times it swings on others.
//! So the pace rises while steps agree on the direction and the bound falls.

/// The pace at first, and its range: parts of the way to where the price were best.
const FIRST: f64 = 2.0;
const LEAST: f64 = 1.0;
const MOST: f64 = 5.0;
/// Steps before it changes: until then prices are far from where they stay, and steps agree by chance.
const CALM: u32 = 30;
/// What it is multiplied with when a step agrees with the one before and the bound has fallen, when
/// it has not, and when the steps disagree.
const FELL: f64 = 1.2;
const ROSE: f64 = 0.9;
const TURNED: f64 = 0.5;

/// The pace, and the last step.
#[derive(Debug)]
pub(crate) struct Pace {
    pace: f64,
    steps: u32,
    way: f64,
    bound: f64,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            pace: FIRST,
            steps: 0,
            way: 0.0,
            bound: f64::INFINITY,
        }
    }

    /// How far to go when the price is `way` below where it is best; `bound` is that of this step.
    pub fn step(&mut self, way: f64, bound: f64) -> f64 {
        self.steps += 1;
        if self.steps >= CALM {
            let change = match (way * self.way > 0.0, bound < self.bound) {
                (false, _) => TURNED,
                (true, false) => ROSE,
                (true, true) => FELL,
            };
            self.pace = (self.pace * change).clamp(LEAST, MOST);
        }
        (self.way, self.bound) = (way, bound);
        self.pace * way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pace after `steps` equal steps while the bound falls.
    fn after(steps: u32) -> Pace {
        let mut pace = Pace::new();
        for step in 0..steps {
            pace.step(1.0, -f64::from(step));
        }
        pace
    }

    #[test]
    fn it_rises_only_after_a_while() {
        assert_eq!(after(CALM - 1).pace, FIRST);
        assert_eq!(after(CALM).pace, FIRST * FELL);
        assert_eq!(after(100).pace, MOST);
    }

    #[test]
    fn it_falls_when_the_bound_rises_and_more_when_the_direction_turns() {
        let mut pace = after(100);
        assert_eq!(pace.step(1.0, 0.0), MOST * ROSE);
        assert_eq!(pace.step(-0.1, -1.0), -0.1 * MOST * ROSE * TURNED);
        for _ in 0..10 {
            pace.step(0.0, -1.0);
        }
        assert_eq!(pace.pace, LEAST);
    }
}
