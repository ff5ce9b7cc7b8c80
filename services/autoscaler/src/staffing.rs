//! Replicas that keep an objective.
//!
//! 1. λ requests a second of S seconds each keep a = λS servers busy (Little).
//! 2. With Poisson arrivals and k servers a request waits with probability C(k, a) (Erlang C), and longer
//!    than t with C · e^(−(k−a)t/S).
//! 3. Other arrivals and service times: the exponent is divided by (I + Cs²)/2 (Allen and Cunneen 1978; I:
//!    variance of the counts ÷ their mean). The wait probability is that of k/z servers under the load a/z
//!    (Hayward; Fredericks 1980), z: the peakedness.
//! 4. A request is late if its wait exceeds objective minus service time, summed over the measured service
//!    times.

pub use crate::times::Times;

/// Bounds the search.
const MOST_SERVERS: u32 = 100_000;

/// Part of the dispersion within a service of a tenth of a second (simulated, gaps of CV 3).
const WITHIN: f64 = 0.6;

/// The load on the servers.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// Requests per second.
    pub rate: f64,
    /// Variance of counts ÷ mean; 1 for Poisson.
    pub dispersion: f64,
    pub times: &'a Times,
}

/// A latency objective.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    pub latency_s: f64,
    /// Allowed late part.
    pub late: f64,
}

/// Returns e^−x for x ≥ 0, equal on every machine; library results may differ in the last bit.
#[must_use]
pub fn exp_neg(x: f64) -> f64 {
    if x > 700.0 {
        return 0.0;
    }
    let (mut y, mut squarings) = (x.max(0.0), 0);
    while y > 0.25 {
        y *= 0.5;
        squarings += 1;
    }
    // Taylor's series; the tenth term is below 2^-53 of the sum.
    let mut sum = 1.0;
    for n in (1..=10).rev() {
        sum = 1.0 - sum * y / f64::from(n);
    }
    for _ in 0..squarings {
        sum *= sum;
    }
    sum
}

/// Yields the wait probability for 0, 1, … servers.
fn waiting(erlangs: f64) -> impl Iterator<Item = f64> {
    let mut blocked = 1.0;
    (0..=MOST_SERVERS).map(move |servers| {
        let servers = f64::from(servers);
        if servers > 0.0 {
            blocked = erlangs * blocked / (servers + erlangs * blocked);
        }
        if servers > erlangs {
            blocked / (1.0 - erlangs / servers * (1.0 - blocked))
        } else {
            1.0
        }
    })
}

impl Load<'_> {
    /// Returns the mean number of busy servers.
    #[must_use]
    pub fn erlangs(&self) -> f64 {
        self.rate * self.times.mean_s
    }

    /// Variance of busy servers, if unlimited, ÷ that with Poisson arrivals; for short clumps, and service
    /// times between exponential and fixed.
    fn peakedness(&self) -> f64 {
        let share = WITHIN / (1.0 + self.times.cv2.min(1.0));
        (1.0 + (self.dispersion - 1.0) * share).max(1.0)
    }

    fn late(&self, goal: Goal, servers: f64, wait: f64) -> f64 {
        let free = servers - self.erlangs();
        if free <= 0.0 {
            return 1.0;
        }
        let spread = (self.dispersion + self.times.cv2).max(0.2) / 2.0;
        let per_second = free / self.times.mean_s / spread;
        let parts = self.times.parts.iter();
        let late = parts.map(|(seconds, part)| match goal.latency_s - seconds {
            left if left <= 0.0 => *part,
            left => part * wait * exp_neg(per_second * left),
        });
        late.sum()
    }

    /// Returns the part that is late with any number of servers.
    #[must_use]
    pub fn late_anyway(&self, goal: Goal) -> f64 {
        let parts = self.times.parts.iter();
        let late = parts.filter(|(seconds, _)| *seconds >= goal.latency_s);
        late.map(|(_, part)| part).sum()
    }

    /// Returns the fewest replicas for the goal, or `most` + 1. Requests late with any number of servers are
    /// excused.
    #[must_use]
    pub fn replicas(&self, goal: Goal, servers_each: u32, most: u32) -> u32 {
        if self.rate <= 0.0 {
            return 0;
        }
        let allowed = goal.late + self.late_anyway(goal);
        let peaked = self.peakedness();
        // Interpolates between whole numbers of servers.
        let mut probabilities = waiting(self.erlangs() / peaked);
        let mut below = probabilities.next().unwrap_or(1.0);
        let mut above = probabilities.next().unwrap_or(0.0);
        let mut whole = 0.0;
        for replicas in 1..=most {
            let servers = f64::from(replicas) * f64::from(servers_each);
            let at = servers / peaked;
            if at > f64::from(MOST_SERVERS) {
                return replicas;
            }
            while at > whole + 1.0 {
                below = above;
                above = probabilities.next().unwrap_or(0.0);
                whole += 1.0;
            }
            let wait = below + (above - below) * (at - whole);
            if self.late(goal, servers, wait) <= allowed {
                return replicas;
            }
        }
        most.saturating_add(1)
    }

    /// Returns the requests per second within the goal, to a thousandth.
    #[must_use]
    pub fn carried(&self, goal: Goal, servers_each: u32, replicas: u32) -> f64 {
        let servers = f64::from(servers_each) * f64::from(replicas);
        let (mut low, mut high) = (0.0, servers / self.times.mean_s);
        for _ in 0..10 {
            let rate = f64::midpoint(low, high);
            let load = Load {
                rate,
                ..self.clone()
            };
            if load.replicas(goal, servers_each, replicas) <= replicas {
                low = rate;
            } else {
                high = rate;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(mean_s: f64, cv2: f64) -> Times {
        Times {
            mean_s,
            cv2,
            parts: vec![(mean_s, 1.0)],
        }
    }

    #[test]
    fn the_exponential_is_exact_to_the_last_digits() {
        for x in [0.0, 1e-9, 0.1, 0.25, 1.0, 3.7, 20.0, 300.0] {
            let wrong = (exp_neg(x) / libm::exp(-x) - 1.0).abs();
            assert!(wrong < 1e-12, "{x}: {wrong}");
        }
        assert!(exp_neg(1e9) <= 0.0);
    }

    /// Erlang's table: the smallest k with P(W > x) ≤ 1 %.
    #[test]
    fn poisson_staffing_is_erlangs() {
        let times = fixed(0.1, 1.0);
        for (erlangs, waits) in [
            (1.0, [5, 4, 3]),
            (5.0, [12, 8, 7]),
            (20.0, [32, 24, 23]),
            (100.0, [125, 105, 103]),
        ] {
            let load = Load {
                rate: erlangs / 0.1,
                dispersion: 1.0,
                times: &times,
            };
            for (services, least) in waits.into_iter().enumerate() {
                let waits = f64::from(u32::try_from(services).unwrap_or(0)) * 0.1;
                let goal = Goal {
                    // Lets a service without a wait be in time.
                    latency_s: 0.1 + waits + 1e-12,
                    late: 0.01,
                };
                let replicas = load.replicas(goal, 1, 1000);
                assert_eq!(replicas, least, "{erlangs} erlangs, {services} S");
            }
        }
    }

    #[test]
    fn bursts_need_more_and_servers_within_a_replica_are_servers() {
        let times = fixed(0.1, 0.25);
        let goal = Goal {
            latency_s: 0.4,
            late: 0.01,
        };
        let load = |dispersion| Load {
            rate: 50.0,
            dispersion,
            times: &times,
        };
        let poisson = load(1.0).replicas(goal, 1, 100);
        let bursts = load(9.0).replicas(goal, 1, 100);
        assert!(bursts > poisson + 2, "{bursts} {poisson}");
        assert_eq!(load(1.0).replicas(goal, 4, 100), poisson.div_ceil(4));
        assert_eq!(load(9.0).replicas(goal, 1, 4), 5, "one more than there are");
        let carried = load(1.0).carried(goal, 1, poisson);
        assert!((50.0..80.0).contains(&carried), "{carried}");
    }
}
