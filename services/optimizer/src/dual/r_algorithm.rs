//! Minimises a convex function with kinks.
//!
//! Shor's r-algorithm (Minimization Methods for Non-Differentiable Functions, 1985, chapter 3): steps follow
//! a negative subgradient until the function rises, then space is dilated along the difference of the last
//! two subgradients, which turns the steps along valleys.

/// Contraction of space along a difference of subgradients.
const SHRINK: f64 = 0.4;
/// A step repeated more than [`REPEATS`] times grows; a step that overshoots at once shrinks.
const REPEATS: u32 = 3;
const GROWTH: f64 = 1.15;
const DECLINE: f64 = 0.985;

/// Below 0 the function is continued upwards.
#[derive(Debug, Clone)]
pub(crate) struct RAlgorithm {
    at: Vec<f64>,
    size: f64,
    space: Vec<Vec<f64>>,
    /// With the subgradient at its start.
    direction: Option<(Vec<f64>, Vec<f64>)>,
    repeats: u32,
}

impl RAlgorithm {
    pub fn new(at: Vec<f64>, size: f64) -> Self {
        let width = at.len();
        let row = |index: usize| {
            (0..width)
                .map(|at| f64::from(u8::from(at == index)))
                .collect()
        };
        Self {
            at,
            size,
            space: (0..width).map(row).collect(),
            direction: None,
            repeats: 0,
        }
    }

    /// The learnt dilation stays.
    pub fn return_to(&mut self, at: Vec<f64>, part: f64) {
        self.at = at;
        self.size *= part;
        self.direction = None;
    }

    pub fn beginning_at(&self, at: Vec<f64>, size: f64) -> Self {
        Self {
            at,
            size,
            direction: None,
            ..self.clone()
        }
    }

    /// Takes the subgradient at the present point; returns the next point, `None` at the end.
    pub fn step(&mut self, subgradient: &[f64]) -> Option<Vec<f64>> {
        let subgradient = &self.continued(subgradient);
        if let Some((direction, before)) = self.direction.take() {
            if self.repeats > REPEATS {
                self.size *= GROWTH;
            }
            if dot(subgradient, &direction) > 0.0 {
                self.direction = Some((direction, before));
            } else {
                if self.repeats == 1 {
                    self.size *= DECLINE;
                }
                let change = subgradient
                    .iter()
                    .zip(&before)
                    .map(|(now, before)| now - before);
                self.shrink(&change.collect::<Vec<f64>>());
            }
        }
        if self.direction.is_none() {
            let turned = self.turned(subgradient)?;
            self.direction = Some((self.back(&turned), subgradient.to_vec()));
            self.repeats = 0;
        }
        self.repeats += 1;
        let (direction, _) = self.direction.as_ref()?;
        for (at, by) in self.at.iter_mut().zip(direction) {
            *at -= self.size * by;
        }
        Some(self.at.iter().map(|at| at.max(0.0)).collect())
    }

    /// Leads from negative values back to 0.
    fn continued(&self, subgradient: &[f64]) -> Vec<f64> {
        let steep = subgradient
            .iter()
            .map(|subgradient| subgradient.abs())
            .fold(0.0, f64::max);
        let pairs = subgradient.iter().zip(&self.at);
        let inside = |(subgradient, at): (&f64, &f64)| {
            if *at < 0.0 {
                subgradient.min(0.0) - steep
            } else {
                *subgradient
            }
        };
        pairs.map(inside).collect()
    }

    /// Returns Bᵀ v with length 1; `None` if its length is 0.
    fn turned(&self, vector: &[f64]) -> Option<Vec<f64>> {
        let mut turned = vec![0.0; vector.len()];
        for (row, part) in self.space.iter().zip(vector) {
            let cells = turned.iter_mut().zip(row);
            cells.for_each(|(sum, cell)| *sum += cell * part);
        }
        let length = dot(&turned, &turned).sqrt();
        turned.iter_mut().for_each(|part| *part /= length);
        (length > 1e-12).then_some(turned)
    }

    /// Returns the product B v.
    fn back(&self, vector: &[f64]) -> Vec<f64> {
        self.space.iter().map(|row| dot(row, vector)).collect()
    }

    fn shrink(&mut self, change: &[f64]) {
        let Some(axis) = self.turned(change) else {
            return;
        };
        let image = self.back(&axis);
        for (row, image) in self.space.iter_mut().zip(image) {
            let by = (SHRINK - 1.0) * image;
            row.iter_mut()
                .zip(&axis)
                .for_each(|(cell, axis)| *cell += by * axis);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the best point after at most `most` oracle evaluations, with the oracle's extra result there.
/// `oracle` returns value, subgradient and extra result.
pub(crate) fn minimise<T>(
    mut descent: RAlgorithm,
    most: u32,
    mut oracle: impl FnMut(&[f64]) -> (f64, Vec<f64>, T),
) -> (Vec<f64>, T) {
    let start: Vec<f64> = descent.at.iter().map(|at| at.max(0.0)).collect();
    let (mut least, mut subgradient, said) = oracle(&start);
    let mut best = (start, said);
    for _ in 1..most {
        let Some(at) = descent.step(&subgradient) else {
            break;
        };
        let (value, next, said) = oracle(&at);
        subgradient = next;
        if value < least {
            least = value;
            best = (at, said);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_narrow_valley_is_found() {
        let oracle = |x: &[f64]| {
            let across = x[0] - 2.0 * x[1];
            let value = 100.0 * across.abs() + (x[0] + x[1] - 6.0).abs() + x[2];
            let end = (x[0] + x[1] - 6.0).signum();
            let subgradient = vec![
                100.0 * across.signum() + end,
                -200.0 * across.signum() + end,
                1.0,
            ];
            (value, subgradient, value)
        };
        let (at, value) = minimise(RAlgorithm::new(vec![0.5, 3.0, 1.0], 1.0), 300, oracle);
        assert!(value < 0.01, "{value} at {at:?}");
        assert!(
            (at[0] - 4.0).abs() < 0.01 && (at[1] - 2.0).abs() < 0.01,
            "{at:?}"
        );
    }
}
