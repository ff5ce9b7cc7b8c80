//! Divisible progressive filling: after the floors, every active user's key rises at one speed until a
//! demanded resource saturates or the user reaches its cap.
//!
//! s_i(t) = clip(w_i t, ρ_i + floor_i δ_i, ρ_i + cap_i δ_i), with δ_i the dominant share of one task and ρ_i
//! the roles' share of that resource. The level t jumps from event to event (floor left, cap reached,
//! resource saturated).
//!
//! Exactness: with L the least common multiple of the dominant demands, every rate is an integer over L, and
//! every remainder an integer over a scale S that grows only at saturations. Floats order two events; near
//! ties (1e-9), exact products do.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::User;

/// The reason why a user's filling stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Nothing,
    Floor,
    Cap,
    Saturated(usize),
}

/// The outcome of [`fill`].
#[derive(Debug, Clone)]
pub struct Filling {
    users: Vec<Filled>,
    levels: Vec<Option<Level>>,
}

#[derive(Debug, Clone)]
struct Filled {
    stop: Stop,
    weight: u32,
    /// As (demand, total); (0, 1) without a dominant share.
    unit: (u64, u64),
    tasks: u32,
    /// Held by roles, of the dominant resource.
    auxiliary: u64,
}

#[derive(Debug, Clone)]
struct Level {
    numerator: BigInt,
    denominator: BigInt,
    approximate: f64,
}

impl Filling {
    #[must_use]
    pub fn stop(&self, index: usize) -> Stop {
        self.users
            .get(index)
            .map_or(Stop::Nothing, |user| user.stop)
    }

    #[must_use]
    pub fn share(&self, index: usize) -> f64 {
        let Some(user) = self.users.get(index) else {
            return 0.0;
        };
        match user.stop {
            Stop::Nothing => 0.0,
            Stop::Floor | Stop::Cap => {
                let tasks = f64::from(user.tasks) * (user.unit.0 as f64 / user.unit.1 as f64);
                tasks + user.auxiliary as f64 / user.unit.1 as f64
            }
            Stop::Saturated(resource) => {
                let level = self.levels.get(resource).and_then(Option::as_ref);
                f64::from(user.weight) * level.map_or(0.0, |level| level.approximate)
            }
        }
    }

    #[must_use]
    pub fn exact_share(&self, index: usize) -> BigRational {
        let Some(user) = self.users.get(index) else {
            return BigRational::zero();
        };
        match user.stop {
            Stop::Nothing => BigRational::zero(),
            Stop::Floor | Stop::Cap => BigRational::new(
                BigInt::from(user.tasks) * user.unit.0 + user.auxiliary,
                BigInt::from(user.unit.1),
            ),
            Stop::Saturated(resource) => {
                let level = self.levels.get(resource).and_then(Option::as_ref);
                level.map_or_else(BigRational::zero, |level| {
                    let numerator = &level.numerator * user.weight;
                    BigRational::new(numerator, level.denominator.clone())
                })
            }
        }
    }

    #[must_use]
    pub fn exact_tasks(&self, index: usize) -> BigRational {
        match self.users.get(index) {
            Some(user) if user.unit.0 > 0 => {
                let unit = BigRational::new(user.unit.0.into(), user.unit.1.into());
                let auxiliary = BigRational::new(user.auxiliary.into(), user.unit.1.into());
                (self.exact_share(index) - auxiliary) / unit
            }
            _ => BigRational::zero(),
        }
    }
}

/// Fills `totals` (by resource index) with the users' divisible tasks.
#[must_use]
pub fn fill(totals: &[u64], users: &[User]) -> Filling {
    fill_within(totals, totals.len(), users)
}

/// Counts only the first `shared` resources in dominant shares; the others are pools that bound the users
/// confined to them.
#[must_use]
pub fn fill_within(totals: &[u64], shared: usize, users: &[User]) -> Filling {
    let mut run = Run::new(totals, shared, users);
    let events = run.events();
    run.freeze_overfull();
    let mut next = 0;
    loop {
        let saturation = run.next_saturation();
        let event = events.get(next);
        match (saturation, event) {
            (None, None) => break,
            (Some(resource), None) => run.saturate(resource),
            (Some(resource), Some(event)) if run.saturates_by(resource, &event.level) => {
                run.saturate(resource);
            }
            (_, Some(event)) => {
                run.pass(event);
                next += 1;
            }
        }
    }
    run.outcome
}

struct Event {
    level: Ratio<u128>,
    user: usize,
    leaves_floor: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Rising,
    Done,
}

struct Run<'a> {
    totals: &'a [u64],
    users: &'a [User],
    outcome: Filling,
    phases: Vec<Phase>,
    common: BigInt,
    scale: BigInt,
    /// Per resource: S · (total − amounts held by users that do not rise).
    rest: Vec<BigInt>,
    /// Per resource: L · Σ over rising users of w_i d_ik / δ_i.
    rate: Vec<BigInt>,
}

impl<'a> Run<'a> {
    fn new(totals: &'a [u64], shared: usize, users: &'a [User]) -> Self {
        let mut common = BigInt::one();
        let mut filled = Vec::with_capacity(users.len());
        let mut rest: Vec<BigInt> = totals.iter().map(|total| BigInt::from(*total)).collect();
        // S must be divisible by the unit demand of users with roles: see `offset`.
        let mut scale = BigInt::one();
        for user in users {
            let dominant = user
                .dominant(&totals[..shared])
                .filter(|_| user.takes_part(totals));
            let unit = dominant.map_or((0, 1), |k| (user.demand[k], totals[k]));
            if unit.0 > 0 {
                common = common.lcm(&BigInt::from(unit.0));
                for (rest, amount) in rest.iter_mut().zip(&user.demand) {
                    *rest -= BigInt::from(*amount) * user.floor;
                }
                for (rest, amount) in rest.iter_mut().zip(&user.auxiliary) {
                    *rest -= *amount;
                }
            }
            let auxiliary = dominant.and_then(|k| user.auxiliary.get(k)).copied();
            let auxiliary = auxiliary.unwrap_or(0);
            if auxiliary > 0 {
                scale = scale.lcm(&BigInt::from(unit.0));
            }
            filled.push(Filled {
                stop: if unit.0 > 0 {
                    Stop::Floor
                } else {
                    Stop::Nothing
                },
                weight: user.weight(),
                unit,
                tasks: if unit.0 > 0 { user.floor } else { 0 },
                auxiliary,
            });
        }
        rest.iter_mut().for_each(|rest| *rest *= &scale);
        let phase = |user: &Filled| {
            if user.unit.0 > 0 {
                Phase::Waiting
            } else {
                Phase::Done
            }
        };
        Run {
            totals,
            users,
            phases: filled.iter().map(phase).collect(),
            outcome: Filling {
                users: filled,
                levels: vec![None; totals.len()],
            },
            common,
            scale,
            rest,
            rate: vec![BigInt::zero(); totals.len()],
        }
    }

    /// At one level, users leave their floors before others reach caps.
    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::with_capacity(2 * self.users.len());
        for (index, user) in self.users.iter().enumerate() {
            let (demand, total) = self.outcome.users[index].unit;
            if demand == 0 {
                continue;
            }
            if user.cap.is_some_and(|cap| cap <= user.floor) {
                self.outcome.users[index].stop = Stop::Cap;
                self.phases[index] = Phase::Done;
                continue;
            }
            // (tasks · δ_i + ρ_i) / w_i: at most 2^32 · 2^64 over 2^64 · 2^32.
            let auxiliary = u128::from(self.outcome.users[index].auxiliary);
            let level = |tasks: u32| {
                Ratio::new(
                    u128::from(tasks) * u128::from(demand) + auxiliary,
                    u128::from(total) * u128::from(user.weight()),
                )
            };
            let mut push = |tasks, leaves_floor| {
                events.push(Event {
                    level: level(tasks),
                    user: index,
                    leaves_floor,
                });
            };
            push(user.floor, true);
            if let Some(cap) = user.cap {
                push(cap, false);
            }
        }
        events.sort_by(|left, right| {
            let order = left.level.cmp(&right.level);
            order
                .then(right.leaves_floor.cmp(&left.leaves_floor))
                .then(left.user.cmp(&right.user))
        });
        events
    }

    /// L · w_i d_ik / δ_i, an integer.
    fn rate_of(&self, user: usize) -> Vec<BigInt> {
        let (demand, total) = self.outcome.users[user].unit;
        let factor = &self.common / demand * total * self.outcome.users[user].weight;
        let demands = self.users[user].demand.iter();
        demands.map(|amount| &factor * amount).collect()
    }

    /// S · ρ_i d_ik / δ_i: the roles' part of the level w_i t. While the user rises, its tasks are fewer by
    /// that amount.
    fn offset(&self, user: usize, amount: u64) -> BigInt {
        let Filled {
            auxiliary, unit, ..
        } = &self.outcome.users[user];
        match auxiliary {
            0 => BigInt::zero(),
            auxiliary => &self.scale / unit.0 * *auxiliary * amount,
        }
    }

    fn freeze_overfull(&mut self) {
        for resource in 0..self.rest.len() {
            if self.totals[resource] > 0 && !self.rest[resource].is_positive() {
                self.freeze(resource);
            }
        }
    }

    fn next_saturation(&self) -> Option<usize> {
        let mut first: Option<usize> = None;
        for resource in (0..self.rate.len()).filter(|k| self.rate[*k].is_positive()) {
            let earlier = first.is_none_or(|best| {
                let left = (&self.rest[resource], &self.rate[best]);
                less(left, (&self.rest[best], &self.rate[resource]))
            });
            if earlier {
                first = Some(resource);
            }
        }
        first
    }

    /// rest · L / (S · rate) ≤ level.
    fn saturates_by(&self, resource: usize, level: &Ratio<u128>) -> bool {
        let level_near = ratio_f64(level);
        let near = self.level_of(resource);
        if (near - level_near).abs() > 1e-9 * (near.abs() + level_near) {
            return near < level_near;
        }
        &self.rest[resource] * &self.common * level.denom()
            <= &self.rate[resource] * &self.scale * level.numer()
    }

    fn level_of(&self, resource: usize) -> f64 {
        let over = Magnitude::of(&self.rest[resource]).times(Magnitude::of(&self.common));
        let under = Magnitude::of(&self.scale).times(Magnitude::of(&self.rate[resource]));
        over.over(under)
    }

    fn pass(&mut self, event: &Event) {
        let user = event.user;
        let expected = if event.leaves_floor {
            Phase::Waiting
        } else {
            Phase::Rising
        };
        if self.phases[user] != expected {
            return;
        }
        let rate = self.rate_of(user);
        let demand = &self.users[user].demand;
        let tasks = if event.leaves_floor {
            self.users[user].floor
        } else {
            self.users[user].cap.unwrap_or(u32::MAX)
        };
        for (resource, amount) in demand.iter().enumerate() {
            let held = &self.scale * *amount * tasks + self.offset(user, *amount);
            if event.leaves_floor {
                self.rest[resource] += held;
                self.rate[resource] += &rate[resource];
            } else {
                self.rest[resource] -= held;
                self.rate[resource] -= &rate[resource];
            }
        }
        if event.leaves_floor {
            self.phases[user] = Phase::Rising;
        } else {
            self.phases[user] = Phase::Done;
            self.outcome.users[user].stop = Stop::Cap;
            self.outcome.users[user].tasks = tasks;
        }
    }

    fn saturate(&mut self, resource: usize) {
        let approximate = self.level_of(resource);
        let numerator = &self.rest[resource] * &self.common;
        let denominator = &self.rate[resource] * &self.scale;
        self.outcome.levels[resource] = Some(Level {
            numerator,
            denominator,
            approximate: approximate.max(0.0),
        });
        // Frozen users hold (their rate / L) · level = their rate · rest / (S · rate).
        let rest = self.rest[resource].clone();
        let whole = self.rate[resource].clone();
        let frozen = self.freeze(resource);
        for (other, frozen) in frozen.into_iter().enumerate() {
            self.rest[other] = &self.rest[other] * &whole - frozen * &rest;
        }
        self.scale *= whole;
    }

    fn freeze(&mut self, resource: usize) -> Vec<BigInt> {
        let mut frozen = vec![BigInt::zero(); self.totals.len()];
        for index in 0..self.users.len() {
            let demands = self.users[index]
                .demand
                .get(resource)
                .is_some_and(|d| *d > 0);
            if !demands || self.phases[index] == Phase::Done {
                continue;
            }
            if self.phases[index] == Phase::Rising {
                self.outcome.users[index].stop = Stop::Saturated(resource);
                for (k, rate) in self.rate_of(index).into_iter().enumerate() {
                    self.rate[k] -= &rate;
                    frozen[k] += rate;
                }
            }
            self.phases[index] = Phase::Done;
        }
        frozen
    }
}

fn less(left: (&BigInt, &BigInt), right: (&BigInt, &BigInt)) -> bool {
    let near_left = Magnitude::of(left.0).times(Magnitude::of(left.1));
    let near_right = Magnitude::of(right.0).times(Magnitude::of(right.1));
    let ratio = near_left.over(near_right);
    if (ratio - 1.0).abs() > 1e-9 {
        return ratio < 1.0;
    }
    left.0 * left.1 < right.0 * right.1
}

fn ratio_f64(ratio: &Ratio<u128>) -> f64 {
    let numerator = ratio.numer().to_f64().unwrap_or(f64::INFINITY);
    numerator / ratio.denom().to_f64().unwrap_or(1.0)
}

const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// mantissa · 2^exponent: a float that does not overflow.
#[derive(Clone, Copy)]
struct Magnitude {
    mantissa: f64,
    exponent: i64,
}

impl Magnitude {
    fn of(value: &BigInt) -> Self {
        let mut digits = value.magnitude().iter_u64_digits();
        let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let high = digits.next_back().unwrap_or(0) as f64;
        let low = digits.next_back().unwrap_or(0) as f64;
        let sign = if value.is_negative() { -1.0 } else { 1.0 };
        // 2^64 · high + low, of a number of `count` digits.
        Self {
            mantissa: sign * (high + low / TWO_64),
            exponent: 64 * (count - 1),
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            mantissa: self.mantissa * other.mantissa,
            exponent: self.exponent + other.exponent,
        }
    }

    fn over(self, other: Self) -> f64 {
        let exponent = self.exponent - other.exponent;
        let clamped = i32::try_from(exponent.clamp(-1000, 1000)).unwrap_or(0);
        libm::ldexp(self.mantissa / other.mantissa, clamped)
    }
}
