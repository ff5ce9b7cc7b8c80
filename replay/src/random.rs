//! A pseudo-random number generator whose seeds mean the same on every machine and in every version:
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

/// The generator. Chance is an input: the caller names the seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Seeds the generator.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a generator for one purpose, so that its draws do not change others.
    #[must_use]
    pub const fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in 0..`count`; 0 for a `count` of 0.
    pub fn below(&mut self, count: u64) -> u64 {
        // The bias is below 2^-32 for all counts in use.
        let wide = u128::from(self.next()) * u128::from(count);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Chooses an item.
    ///
    /// # Panics
    /// The slice is empty.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len() as u64);
        &from[usize::try_from(index).unwrap_or(0)]
    }

    /// Exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// Lognormally distributed: exp of a normal with mean ln(`median`) and deviation `sigma` (Box and
    /// Muller 1958, one of the pair).
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        let normal = radius * libm::cos(std::f64::consts::TAU * self.unit());
        median * libm::exp(sigma * normal)
    }

    /// Gamma of scale 1 (Marsaglia and Tsang 2000; below shape 1 by their boost).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = libm::pow(1.0 - self.unit(), 1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = libm::log(self.lognormal(1.0, 1.0));
            let v = 1.0 + c * normal;
            let v = v * v * v;
            if v > 0.0
                && libm::log(1.0 - self.unit())
                    < 0.5 * normal * normal + d - d * v + d * libm::log(v)
            {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        // The reference implementation's outputs for seed 1234567.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn the_distributions_have_their_means() {
        let mut random = Random::new(7);
        let count = 20_000;
        let sum: f64 = (0..count).map(|_| random.exponential(3.0)).sum();
        assert!((sum / f64::from(count) - 3.0).abs() < 0.1, "{sum}");
        let mut drawn: Vec<f64> = (0..count).map(|_| random.lognormal(5.0, 0.3)).collect();
        drawn.sort_by(f64::total_cmp);
        assert!((drawn[10_000] - 5.0).abs() < 0.1, "{}", drawn[10_000]);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
