//! The value of a number of containers under `objective.value: speed`.
//!
//! A job's value is a · s(n)^p: s are its useful containers (its speed in speeds of one container), p is
//! `objective.concave`, and a falls with the job's service. The function is sampled at few counts and replaced
//! by its concave envelope, so that every stage of the search, exact or not, values the same piecewise linear
//! function. Where a curve rises again behind a dip, the envelope is above the curve.

/// A concave function of the number of containers, in containers of full value: linear between its points,
/// constant behind the last.
#[derive(Debug, Clone, PartialEq)]
pub struct Useful {
    /// Ascending counts from 0.
    points: Vec<(u32, f64)>,
    /// The fastest count, if measured: fair shares end there.
    pub peak: Option<u32>,
}

impl Useful {
    /// Samples `value` at 0, 1, 2, 3, 4, 6, 8, 12 and so on to `most`, and at the counts in `also`.
    #[must_use]
    pub fn new(value: impl Fn(u32) -> f64, most: u32, also: &[u32]) -> Self {
        let mut counts: Vec<u32> = (0..=most.min(4)).collect();
        let mut step = 4_u32;
        while step < most {
            let half = step / 2;
            counts.extend([step.saturating_add(half), step.saturating_mul(2)]);
            step = step.saturating_mul(2);
        }
        counts.extend(also.iter().copied().chain([most]));
        counts.retain(|count| *count <= most);
        counts.sort_unstable();
        counts.dedup();
        let mut points: Vec<(u32, f64)> = Vec::new();
        for count in counts {
            let next = (count, value(count));
            while let [.., before, last] = points.as_slice()
                && slope(*before, *last) <= slope(*last, next)
            {
                points.pop();
            }
            points.push(next);
        }
        Self { points, peak: None }
    }

    /// Returns the value of `count` containers.
    #[must_use]
    pub fn at(&self, count: u32) -> f64 {
        let next = self.points.partition_point(|(at, _)| *at < count);
        match (next.checked_sub(1), self.points.get(next)) {
            (None, Some((_, value))) => *value,
            (Some(last), Some(next)) => {
                let last = self.points[last];
                last.1 + slope(last, *next) * f64::from(count - last.0)
            }
            (Some(last), None) => self.points[last].1,
            (None, None) => 0.0,
        }
    }

    /// Returns the counts where the slope changes.
    pub fn kinks(&self) -> impl Iterator<Item = u32> + '_ {
        self.points.iter().map(|(count, _)| *count)
    }

    /// Returns slope and value at 0 of each piece, the constant one last. The function is their minimum.
    pub fn tangents(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let pieces = self.points.windows(2).map(|pair| {
            let slope = slope(pair[0], pair[1]);
            (slope, pair[0].1 - slope * f64::from(pair[0].0))
        });
        let last = self.points.last().map(|(_, value)| (0.0, *value));
        let is_falling = match self.points.as_slice() {
            [.., before, last] => last.1 < before.1,
            _ => false,
        };
        pieces.chain(last.filter(move |_| !is_falling))
    }
}

/// Returns v(n): the value of `count` containers, or their number without a curve.
#[must_use]
pub fn value(useful: Option<&Useful>, count: u32) -> f64 {
    useful.map_or(f64::from(count), |useful| useful.at(count))
}

fn slope(from: (u32, f64), to: (u32, f64)) -> f64 {
    (to.1 - from.1) / f64::from(to.0 - from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_concave_and_not_below_what_it_samples() {
        let bumpy = |count: u32| match count {
            5..=9 => 3.0,
            10.. => 8.0 - f64::from(count) / 10.0,
            count => f64::from(count),
        };
        let useful = Useful::new(bumpy, 40, &[5, 10]);
        for count in useful.kinks() {
            assert!(useful.at(count) >= bumpy(count) - 1e-12, "{count}");
        }
        for count in 1..40 {
            let (gain, next) = (
                useful.at(count) - useful.at(count - 1),
                useful.at(count + 1) - useful.at(count),
            );
            assert!(next <= gain + 1e-12, "{count}");
            let least = useful
                .tangents()
                .map(|(slope, zero)| zero + slope * f64::from(count))
                .fold(f64::INFINITY, f64::min);
            assert!((least - useful.at(count)).abs() < 1e-9, "{count}");
        }
        assert_eq!(useful.at(99), useful.at(40));
    }
}
