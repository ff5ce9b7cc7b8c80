//! Arrivals of requests: a rate per second, with Poisson or bursty gaps.

use crate::random::Random;

/// A load.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Requests per second, for each second.
    pub rates: Vec<f64>,
    /// Coefficient of variation of the Gamma gaps; 1 is Poisson.
    pub cv: f64,
    /// Seconds at which the rate jumps up without warning.
    pub jumps: Vec<usize>,
}

/// Clients by the minute (DynamoML, CLOSER 2021, from its figure).
pub const DYNAMOML_CLIENTS: [u32; 28] = [
    10, 40, 100, 160, 220, 280, 340, 340, 280, 220, 160, 100, 40, 40, 40, 40, 40, 40, 40, 40, 40,
    100, 160, 220, 160, 100, 40, 40,
];

/// The kinds of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// DynamoML's clients × 0.25 per second.
    A,
    /// A day of ratio 12 in 40 minutes, noise by the minute, one minute of +40 %.
    B,
    /// 10 per second, and 60 for five minutes, in bursts (CV 3).
    C,
    /// An hour of 40 per second.
    Constant,
    /// Steps between 5 and 80 per second, of one to five minutes.
    Steps,
    /// A day curve of ratio 2.5 with much noise and gaps of CV 10.
    Bursts,
    /// A slow day: ratio 4 in three hours, little noise.
    Day,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::A,
        Self::B,
        Self::C,
        Self::Constant,
        Self::Steps,
        Self::Bursts,
        Self::Day,
    ];

    /// Returns the kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::Constant => "constant",
            Self::Steps => "steps",
            Self::Bursts => "bursts",
            Self::Day => "day",
        }
    }

    /// Draws a trace.
    #[must_use]
    pub fn trace(self, random: &mut Random) -> Trace {
        match self {
            Self::A => {
                let rates = DYNAMOML_CLIENTS.iter().map(|it| f64::from(*it) * 0.25);
                by_minute(rates.collect(), 1.0)
            }
            Self::B => {
                let mut trace = day(random, 40, (5.0, 60.0), 0.12, 1.0);
                let spiked = 60 * usize::try_from(5 + random.below(30)).unwrap_or(5);
                // 40 % above the curve, without that minute's noise.
                let curve = day(random, 40, (5.0, 60.0), 0.0, 1.0).rates;
                let minute = spiked..spiked + 60;
                let spike = trace.rates[minute.clone()].iter_mut().zip(&curve[minute]);
                spike.for_each(|(rate, curve)| *rate = 1.4 * curve);
                trace.jumps = vec![spiked];
                trace
            }
            Self::C => {
                let rates = [(600, 10.0), (300, 60.0), (600, 10.0)];
                steps(&rates, 3.0)
            }
            Self::Constant => steps(&[(3600, 40.0)], 1.0),
            Self::Steps => {
                let drawn = (0..15).map(|_| {
                    let length = 60 + usize::try_from(random.below(240)).unwrap_or(0);
                    (length, random.between(5.0, 80.0))
                });
                steps(&drawn.collect::<Vec<_>>(), 1.0)
            }
            Self::Bursts => day(random, 60, (20.0, 50.0), 0.2, 10.0),
            Self::Day => day(random, 180, (15.0, 60.0), 0.05, 1.0),
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            format!("{text:?} is none of the traces {}", names.join(", "))
        })
    }
}

fn by_minute(rates: Vec<f64>, cv: f64) -> Trace {
    let minutes: Vec<(usize, f64)> = rates.into_iter().map(|rate| (60, rate)).collect();
    steps(&minutes, cv)
}

fn steps(parts: &[(usize, f64)], cv: f64) -> Trace {
    let mut rates: Vec<f64> = Vec::new();
    let mut jumps = Vec::new();
    for (length, rate) in parts {
        if rates.last().is_some_and(|before| rate > before) {
            jumps.push(rates.len());
        }
        rates.extend(std::iter::repeat_n(*rate, *length));
    }
    Trace { rates, cv, jumps }
}

/// A raised cosine between the rates, with noise by the minute.
fn day(random: &mut Random, minutes: usize, (low, high): (f64, f64), noise: f64, cv: f64) -> Trace {
    let noises: Vec<f64> = (0..minutes)
        .map(|_| random.between(1.0 - noise, 1.0 + noise))
        .collect();
    let length = minutes * 60;
    let rates = (0..length).map(|second| {
        let turn = std::f64::consts::TAU * real(second) / real(length);
        (low + (high - low) * (1.0 - libm::cos(turn)) / 2.0) * noises[second / 60]
    });
    Trace {
        rates: rates.collect(),
        cv,
        jumps: Vec::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a few hours")]
const fn real(count: usize) -> f64 {
    count as f64
}

impl Trace {
    /// Prepends seconds at the first rate.
    #[must_use]
    pub fn warmed(mut self, seconds: usize) -> Self {
        let first = self.rates.first().copied().unwrap_or(0.0);
        self.rates.splice(0..0, std::iter::repeat_n(first, seconds));
        self.jumps.iter_mut().for_each(|jump| *jump += seconds);
        self
    }

    /// Draws the arrival times in seconds: a renewal process of mean 1 on the rate's clock.
    #[must_use]
    pub fn arrivals(&self, random: &mut Random) -> Vec<f64> {
        let shape = 1.0 / (self.cv * self.cv);
        let mut arrivals = Vec::new();
        let mut next = random.gamma(shape) / shape;
        let mut passed = 0.0;
        for (second, rate) in self.rates.iter().enumerate() {
            while next <= passed + rate {
                arrivals.push(real(second) + (next - passed) / rate);
                next += random.gamma(shape) / shape;
            }
            passed += rate;
        }
        arrivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean_and_their_variation() {
        for cv in [0.5, 1.0, 3.0] {
            let mut random = Random::new(5);
            let trace = steps(&[(4000, 20.0)], cv);
            let arrivals = trace.arrivals(&mut random);
            let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / real(gaps.len());
            let squares = gaps.iter().map(|gap| (gap - mean) * (gap - mean));
            let measured = (squares.sum::<f64>() / real(gaps.len())).sqrt() / mean;
            assert!((mean * 20.0 - 1.0).abs() < 0.05, "{cv}: {mean}");
            assert!((measured / cv - 1.0).abs() < 0.05, "{cv}: {measured}");
        }
    }

    #[test]
    fn the_traces_are_what_they_say() {
        let of = |kind: Kind| kind.trace(&mut Random::new(1));
        assert_eq!(of(Kind::A).rates.len(), 28 * 60);
        let b = of(Kind::B);
        let most = b.rates.iter().copied().fold(0.0, f64::max);
        assert!((50.0..95.0).contains(&most), "{most}");
        assert_eq!(of(Kind::C).jumps, [600]);
        assert_eq!("steps".parse(), Ok(Kind::Steps));
        assert!("x".parse::<Kind>().is_err());
    }
}
