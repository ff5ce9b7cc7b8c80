//! The step size of the restart price. Block prices follow that price, so its optimum lies further ahead.
//! Fixed factors are too slow on some instances and oscillate on others; the factor rises while steps agree
//! and the bound falls.

/// The first factor and its range.
const FIRST: f64 = 2.0;
const LEAST: f64 = 1.0;
const MOST: f64 = 5.0;
/// Steps before the factor changes: early prices are far off, and steps agree by chance.
const CALM: u32 = 30;
/// Factors for a step that agrees while the bound falls, one that agrees otherwise, and one that turns back.
const FELL: f64 = 1.2;
const ROSE: f64 = 0.9;
const TURNED: f64 = 0.5;

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

    /// `way` leads to the best price at the others' present values.
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
