//! How far the price of restarts goes in a step of the ascent ([`crate::lagrangian::dual_descent`]).
//!
//! A step knows which price of restarts would be best if all other prices stayed as they are. But the
//! prices of blocks follow it, and the best price then lies a little further in the same direction. A step
//! of twice the distance is too short on some instances: after three hundred steps the price is not there
//! yet, and until it is, the wrong jobs are restarted. A step of five times the distance oscillates on
//! others. So the factor rises while steps agree on the direction and the bound falls.

/// The factor at first, and its range: parts of the distance to where the price would be best.
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

/// The factor, and the last step.
#[derive(Debug)]
pub(crate) struct StepSize {
    factor: f64,
    steps: u32,
    way: f64,
    bound: f64,
}

impl StepSize {
    pub fn new() -> Self {
        Self {
            factor: FIRST,
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
            self.factor = (self.factor * change).clamp(LEAST, MOST);
        }
        (self.way, self.bound) = (way, bound);
        self.factor * way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step size after `steps` equal steps while the bound falls.
    fn after(steps: u32) -> StepSize {
        let mut step_size = StepSize::new();
        for step in 0..steps {
            step_size.step(1.0, -f64::from(step));
        }
        step_size
    }

    #[test]
    fn it_rises_only_after_a_while() {
        assert_eq!(after(CALM - 1).factor, FIRST);
        assert_eq!(after(CALM).factor, FIRST * FELL);
        assert_eq!(after(100).factor, MOST);
    }

    #[test]
    fn it_falls_when_the_bound_rises_and_more_when_the_direction_turns() {
        let mut step_size = after(100);
        assert_eq!(step_size.step(1.0, 0.0), MOST * ROSE);
        assert_eq!(step_size.step(-0.1, -1.0), -0.1 * MOST * ROSE * TURNED);
        for _ in 0..10 {
            step_size.step(0.0, -1.0);
        }
        assert_eq!(step_size.factor, LEAST);
    }
}
