//! Fits the time of a step with n containers, T(n) = a + b/n + c(n − 1), to a job's reports.
//!
//! The time is linear in a, b, c ≥ 0, so bounded least squares has one optimum. With three columns,
//! trying every set of nonzero ones is exact. Residuals are relative and weighted with the duration
//! (Ernest, NSDI 2016, fits the same family by non-negative least squares).

use std::collections::BTreeSet;

use dormouse_messages::speed::{Curve, SpeedPoint};

/// Returns the number of distinct container counts.
#[must_use]
pub fn distinct(points: &[SpeedPoint]) -> usize {
    let seen: BTreeSet<u32> = points.iter().map(|it| it.containers).collect();
    seen.len()
}

/// Returns the best curve; `None` without a point.
#[must_use]
pub fn fit(points: &[SpeedPoint]) -> Option<Curve> {
    let columns = distinct(points).min(3);
    let first = points.first()?;
    if columns == 1 {
        let weight: f64 = points.iter().map(|it| it.seconds).sum();
        let total: f64 = points.iter().map(|it| it.seconds * it.step_s).sum();
        let mean = if weight > 0.0 {
            total / weight
        } else {
            first.step_s
        };
        let b = mean * f64::from(first.containers.max(1));
        return Some(Curve { a: 0.0, b, c: 0.0 });
    }
    // With two container counts, a and b suffice; if the larger count is slower, b and c do.
    let two = [0b001, 0b010, 0b011, 0b110];
    let mut best: Option<(f64, [f64; 3])> = None;
    for set in 1..8_usize {
        let used: Vec<usize> = (0..3).filter(|column| (set >> column) & 1 == 1).collect();
        if columns == 2 && !two.contains(&set) {
            continue;
        }
        let Some(found) = solve(points, &used) else {
            continue;
        };
        if found.iter().any(|value| *value < 0.0 || !value.is_finite()) {
            continue;
        }
        let error = error(points, found);
        if best.is_none_or(|(least, _)| error < least) {
            best = Some((error, found));
        }
    }
    best.map(|(_, [a, b, c])| Curve { a, b, c })
}

/// Returns the curve with six digits, as the log writes it.
#[must_use]
pub fn rounded(curve: &Curve) -> Curve {
    let round = |part: f64| {
        if part == 0.0 || !part.is_finite() {
            return part;
        }
        let scale = libm::pow(10.0, 5.0 - libm::floor(libm::log10(part)));
        (part * scale).round() / scale
    };
    Curve {
        a: round(curve.a),
        b: round(curve.b),
        c: round(curve.c),
    }
}

fn row(point: &SpeedPoint) -> [f64; 3] {
    let n = f64::from(point.containers.max(1));
    [1.0, 1.0 / n, n - 1.0]
}

fn weight(point: &SpeedPoint) -> f64 {
    point.seconds / (point.step_s * point.step_s).max(f64::MIN_POSITIVE)
}

fn error(points: &[SpeedPoint], [a, b, c]: [f64; 3]) -> f64 {
    let each = points.iter().map(|point| {
        let off = Curve { a, b, c }.step_s(point.containers) - point.step_s;
        weight(point) * off * off
    });
    each.sum()
}

/// Solves weighted least squares over some columns, by the normal equations and Gaussian elimination.
fn solve(points: &[SpeedPoint], used: &[usize]) -> Option<[f64; 3]> {
    let size = used.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for point in points {
        let (row, weight) = (row(point), weight(point));
        for (i, left) in used.iter().enumerate() {
            for (j, right) in used.iter().enumerate() {
                matrix[i][j] += weight * row[*left] * row[*right];
            }
            matrix[i][size] += weight * row[*left] * point.step_s;
        }
    }
    for pivot in 0..size {
        let largest = (pivot..size)
            .max_by(|x, y| matrix[*x][pivot].abs().total_cmp(&matrix[*y][pivot].abs()))?;
        matrix.swap(pivot, largest);
        if matrix[pivot][pivot].abs() < 1e-12 {
            return None;
        }
        let top = matrix[pivot].clone();
        for (index, line) in matrix.iter_mut().enumerate() {
            if index != pivot {
                let factor = line[pivot] / top[pivot];
                line.iter_mut()
                    .zip(&top)
                    .for_each(|(value, above)| *value -= factor * above);
            }
        }
    }
    let mut found = [0.0; 3];
    for (index, column) in used.iter().enumerate() {
        found[*column] = matrix[index][size] / matrix[index][index];
    }
    Some(found)
}

/// Returns the median of |log(predicted / measured)|, leaving out each container count in turn; `None`
/// for fewer than three.
#[must_use]
pub fn left_out_error(points: &[SpeedPoint]) -> Option<f64> {
    let seen: BTreeSet<u32> = points.iter().map(|it| it.containers).collect();
    if seen.len() < 3 {
        return None;
    }
    let mut errors = Vec::new();
    for left_out in seen {
        let (out, rest): (Vec<SpeedPoint>, Vec<SpeedPoint>) =
            points.iter().partition(|it| it.containers == left_out);
        if let Some(curve) = fit(&rest) {
            let of = out
                .iter()
                .map(|it| libm::log(curve.step_s(it.containers) / it.step_s).abs());
            errors.extend(of);
        }
    }
    median(errors)
}

/// Returns the root mean square of log(measured / fitted).
#[must_use]
pub fn residual(points: &[SpeedPoint], curve: &Curve) -> f64 {
    let squares = points.iter().map(|it| {
        let off = libm::log(it.step_s / curve.step_s(it.containers));
        off * off
    });
    let count = u32::try_from(points.len()).unwrap_or(u32::MAX).max(1);
    (squares.sum::<f64>() / f64::from(count)).sqrt()
}

/// Returns the median; `None` for no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(upper), 0) => Some(f64::midpoint(values[middle - 1], *upper)),
        (value, _) => value.copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator of Knuth's MMIX.
    struct Random(u64);

    impl Random {
        fn unit(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn between(&mut self, least: f64, most: f64) -> f64 {
            least + (most - least) * self.unit()
        }
    }

    fn points(curve: Curve, at: &[u32], noise: f64, random: &mut Random) -> Vec<SpeedPoint> {
        let point = |containers: &u32| SpeedPoint {
            containers: *containers,
            step_s: curve.step_s(*containers) * (1.0 + noise * (2.0 * random.unit() - 1.0)),
            seconds: 60.0,
        };
        at.iter().map(point).collect()
    }

    #[test]
    fn what_is_exact_is_found_and_nothing_is_below_zero() {
        let mut random = Random(1);
        let truth = Curve {
            a: 0.4,
            b: 3.0,
            c: 0.05,
        };
        let found = fit(&points(truth, &[1, 2, 4, 8], 0.0, &mut random)).expect("a curve");
        for n in [1, 3, 6, 16] {
            assert!((found.step_s(n) / truth.step_s(n) - 1.0).abs() < 1e-6);
        }
        let superlinear = [(1, 4.0), (2, 1.5), (4, 0.6)].map(|(containers, step_s)| SpeedPoint {
            containers,
            step_s,
            seconds: 1.0,
        });
        let found = fit(&superlinear).expect("a curve");
        assert!(found.a >= 0.0 && found.b > 0.0 && found.c >= 0.0);
        let one = fit(&superlinear[1..2]).expect("a curve");
        assert!((one.step_s(4) - 0.75).abs() < 1e-12, "linear from one");
    }

    /// With 5 % noise on {1, 2, 4, 8}, nine of ten predictions for 6 lie within 5 %.
    #[test]
    fn between_what_was_seen_it_is_within_the_noise() {
        let mut random = Random(7);
        let (mut good, cases) = (0, 500);
        for _ in 0..cases {
            let truth = Curve {
                a: random.between(0.05, 0.5),
                b: random.between(1.0, 10.0),
                c: random.between(0.0, 0.02),
            };
            let seen = points(truth, &[1, 2, 4, 8], 0.05, &mut random);
            let found = fit(&seen).expect("a curve");
            good += u32::from((found.step_s(6) / truth.step_s(6) - 1.0).abs() <= 0.05);
        }
        assert!(good >= cases * 9 / 10, "{good} of {cases}");
    }

    /// Speeds of 1 to 4 containers of five applications at a fixed batch, from the measurements of Pollux's artifact
    /// (petuum/adaptdl, branch osdi21-artifact).
    const MEASURED: [[f64; 4]; 5] = [
        [1.0, 1.676, 2.719, 3.553],
        [1.0, 1.955, 3.183, 3.873],
        [1.0, 2.093, 3.039, 4.148],
        [1.0, 1.983, 2.781, 3.695],
        [1.0, 1.949, 2.526, 2.936],
    ];

    /// Relative errors of the fitted speeds between the smallest and the largest of the seen counts, ascending,
    /// over a hundred draws of 5 % noise.
    fn errors_after(seen: &[u32]) -> Vec<f64> {
        let mut random = Random(11);
        let mut errors = Vec::new();
        for speeds in MEASURED {
            let speed = |containers: u32| speeds[containers as usize - 1];
            for _ in 0..100 {
                let point = |containers: &u32| SpeedPoint {
                    containers: *containers,
                    step_s: (1.0 + random.between(-0.05, 0.05)) / speed(*containers),
                    seconds: 60.0,
                };
                let curve = fit(&seen.iter().map(point).collect::<Vec<_>>()).expect("a curve");
                let error = |count| (1.0 / curve.step_s(count) / speed(count) - 1.0).abs();
                errors.extend((seen[0]..=4).map(error));
            }
        }
        errors.sort_by(f64::total_cmp);
        errors
    }

    #[test]
    fn real_curves_are_known_after_two_and_three_counts() {
        for (seen, most, of_all) in [(&[2, 4][..], 0.2, 1.0), (&[1, 2, 4], 0.12, 0.95)] {
            let errors = errors_after(seen);
            let at = |part: f64| errors[(part * (errors.len() - 1) as f64) as usize];
            println!(
                "{seen:?}: median {:.3}, 95 % {:.3}, all {:.3}",
                at(0.5),
                at(0.95),
                at(1.0)
            );
            assert!(at(of_all) <= most, "{seen:?}");
            assert!(at(0.5) <= 0.05, "{seen:?}");
        }
    }
}
