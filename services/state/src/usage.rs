//! The tenants' past use of the cluster, with a half-life: who used less than its due counts more now.
//!
//! 1. Rates. A tenant uses the amounts that its containers hold. Its due is its weight's part of the usable
//!    nodes. Tenants that the operator named have a due at all times, others while they have jobs.
//! 2. Sums. Rates are constant between two events, so every sum grows by rate · time. At each 64th of the
//!    half-life all sums shrink by 2^(−1/64) in fixed point, on every machine alike.
//! 3. Balance. Use = largest share of a resource's sum, as time; time before the memory began counts as used by
//!    the due. Balance = use ÷ due.
//! 4. Factor = (balance of all with jobs ÷ own balance)^[`RESPONSE`], between the policy's floor and its
//!    inverse. The factor multiplies the tenant's weight.
//!
//! Invariant: the held amounts and the numbers of jobs are those of the cluster's jobs.

use std::collections::BTreeMap;

use dormouse_messages::events::Event;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, JobId, Memory, Resource, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::tenants::Tenants;
use crate::total::Total;

/// Steps of decay in a half-life: a step changes a sum by 1 %.
const STEPS: i64 = 64;

/// ⌊2^32 · 2^(−1/64)⌋.
const DECAY: u32 = 4_248_701_964;

/// After 64 half-lives nothing is left.
const FORGOTTEN_STEPS: i64 = 64 * STEPS;

/// Fixed point of times and shares.
const ONE: u128 = 1 << 16;

/// Whole containers need a strong response: with 1, a tenant with a third of the weights keeps 3 of 8 containers
/// without end; with 4, the mean of its use is within 4 % of its due.
const RESPONSE: u32 = 4;

/// A neutral factor.
pub const NEUTRAL: u64 = 1000;

/// A sum of 128 bits in the log's encodings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    high: u64,
    low: u64,
}

impl Sum {
    fn get(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "one half of the bits, then the other"
    )]
    fn set(&mut self, sum: u128) {
        (self.high, self.low) = ((sum >> 64) as u64, sum as u64);
    }

    fn add(&mut self, more: u128) {
        self.set(self.get().saturating_add(more));
    }

    fn decay(&mut self) {
        self.set(self.get().saturating_mul(DECAY.into()) >> 32);
    }
}

/// A tenant's rates and sums.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    held: Amounts,
    /// Not ended.
    jobs: u64,
    /// 0 without a due.
    weight: u32,
    used: Total,
    due: Sum,
    /// Time with a due.
    known: Sum,
}

/// The folded memory; empty while the policy has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// 0 while the policy has no memory.
    half_life_ms: i64,
    floor_permille: u64,
    settled_ms: i64,
    offer: Amounts,
    capacity: Total,
    time: Sum,
    tenants: BTreeMap<TenantId, Account>,
}

/// A tenant's balance and the factor of its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Use ÷ due in thousandths.
    pub balance: u64,
    /// Factor of the weight in thousandths.
    pub factor: u64,
}

/// All tenants' standings at one time; empty without a memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standings(BTreeMap<TenantId, Standing>);

impl Standings {
    /// Returns a tenant's standing, if the policy has a memory.
    #[must_use]
    pub fn get(&self, tenant: &str) -> Option<Standing> {
        self.0.get(tenant).copied()
    }

    /// Returns the factor of a tenant's weight in thousandths.
    #[must_use]
    pub fn factor(&self, tenant: &str) -> u64 {
        self.get(tenant).map_or(NEUTRAL, |it| it.factor)
    }

    /// Iterates by tenant.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Standing)> {
        self.0.iter()
    }
}

/// The jobs whose containers an event may change.
pub(crate) enum Touched<'a> {
    One(&'a JobId),
    All,
}

/// Returns the jobs whose held amounts or end depend on the event.
pub(crate) const fn touched(event: &Event) -> Option<Touched<'_>> {
    match event {
        Event::JobAdmitted(e) => Some(Touched::One(&e.job)),
        Event::PartitionStartRequested(e) => Some(Touched::One(&e.job)),
        Event::PartitionResizeRequested(e) => Some(Touched::One(&e.job)),
        Event::PartitionResized(e) => Some(Touched::One(&e.job)),
        Event::PartitionStopped(e) => Some(Touched::One(&e.job)),
        Event::JobCompleted(e) => Some(Touched::One(&e.job)),
        Event::JobFailed(e) => Some(Touched::One(&e.job)),
        Event::JobCancelled(e) => Some(Touched::One(&e.job)),
        Event::ContainerExited(e) => Some(Touched::One(&e.container.job)),
        Event::ClusterConfigured(_)
        | Event::TenantConfigured(_)
        | Event::TenantRemoved(_)
        | Event::NodeJoined(_)
        | Event::NodeLost(_)
        | Event::NodeFenced(_)
        | Event::NodeRecovered(_)
        | Event::NodeRemoved(_)
        | Event::NodeDrained(_)
        | Event::NodeRestored(_)
        | Event::NodeQuarantined(_)
        | Event::NodeReadmitted(_) => Some(Touched::All),
        _ => None,
    }
}

/// A tenant's jobs and held amounts.
pub(crate) type Load = BTreeMap<TenantId, (u64, Amounts)>;

impl Usage {
    /// Reports whether past use counts.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.half_life_ms > 0
    }

    /// Takes the policy's memory, the weights and every tenant's load.
    pub(crate) fn reset(
        &mut self,
        (policy, tenants): (&Policy, &Tenants),
        offer: Amounts,
        load: &Load,
        now: Timestamp,
    ) {
        let Some(memory) = policy.shares.memory() else {
            *self = Self::default();
            return;
        };
        self.settle(ms(now));
        self.begin(memory, ms(now));
        self.offer = offer;
        let named = tenants.iter().map(|(name, _)| name);
        for name in named.chain(load.keys()) {
            self.tenants.entry(name.clone()).or_default();
        }
        for (name, account) in &mut self.tenants {
            let (jobs, held) = load.get(name).cloned().unwrap_or_default();
            (account.jobs, account.held) = (jobs, held);
            account.weigh(name, tenants, policy);
        }
    }

    fn begin(&mut self, memory: &Memory, now_ms: i64) {
        if !self.is_on() {
            self.settled_ms = now_ms;
        }
        self.half_life_ms = i64::try_from(memory.half_life_s() * 1000).unwrap_or(i64::MAX);
        self.floor_permille = memory.floor_permille();
    }

    /// Takes one job's change, as live jobs and held amounts before and after.
    pub(crate) fn change(
        &mut self,
        tenant: &TenantId,
        (before, after): (&(bool, Amounts), &(bool, Amounts)),
        (policy, tenants): (&Policy, &Tenants),
        now: Timestamp,
    ) {
        if before == after {
            return;
        }
        self.settle(ms(now));
        let account = self.tenants.entry(tenant.clone()).or_default();
        account.jobs = (account.jobs + u64::from(after.0)).saturating_sub(u64::from(before.0));
        account.held.subtract(&before.1, 1);
        account.held.add(&after.1, 1);
        account.weigh(tenant, tenants, policy);
    }

    fn step_ms(&self) -> i64 {
        (self.half_life_ms / STEPS).max(1)
    }

    /// The sum of a constant rate of 1 after a long time.
    fn whole(&self) -> u128 {
        let step = u128::try_from(self.step_ms()).unwrap_or(1) * ONE;
        (step << 32) / ((1 << 32) - u128::from(DECAY))
    }

    fn settle(&mut self, to_ms: i64) {
        if !self.is_on() || to_ms <= self.settled_ms {
            return;
        }
        let step = self.step_ms();
        let mut number = self.settled_ms.div_euclid(step);
        let last = to_ms.div_euclid(step);
        if last - number > FORGOTTEN_STEPS {
            self.forget();
            number = last - FORGOTTEN_STEPS;
            self.settled_ms = number * step;
        }
        while number < last {
            number += 1;
            self.accrue(number * step);
            self.decay();
        }
        self.accrue(to_ms);
    }

    fn accrue(&mut self, to_ms: i64) {
        let elapsed_ms = u64::try_from(to_ms - self.settled_ms).unwrap_or(0);
        self.settled_ms = to_ms;
        if elapsed_ms == 0 {
            return;
        }
        self.capacity.add_times(&self.offer, elapsed_ms);
        let elapsed = u128::from(elapsed_ms) * ONE;
        self.time.add(elapsed);
        let weights = self.weights().max(1);
        for account in self.tenants.values_mut() {
            account.used.add_times(&account.held, elapsed_ms);
            if account.weight > 0 {
                let part = elapsed * u128::from(account.weight) / weights;
                account.due.add(part);
                account.known.add(elapsed);
            }
        }
    }

    fn decay(&mut self) {
        self.capacity.scale(DECAY);
        self.time.decay();
        for account in self.tenants.values_mut() {
            account.used.scale(DECAY);
            account.due.decay();
            account.known.decay();
        }
        let forgotten = |account: &Account| {
            account.weight == 0 && account.known.get() < ONE && account.held.is_empty()
        };
        self.tenants.retain(|_, account| !forgotten(account));
    }

    fn forget(&mut self) {
        self.capacity = Total::default();
        self.time = Sum::default();
        for account in self.tenants.values_mut() {
            account.used = Total::default();
            (account.due, account.known) = (Sum::default(), Sum::default());
        }
    }

    fn weights(&self) -> u128 {
        let weights = self.tenants.values().map(|it| u128::from(it.weight));
        weights.sum()
    }

    /// Returns the standings at `now`, without a further event.
    #[must_use]
    pub fn standings(&self, now: Timestamp) -> Standings {
        if !self.is_on() {
            return Standings::default();
        }
        let mut then = self.clone();
        then.settle(ms(now));
        let weights = then.weights().max(1);
        let whole = then.whole();
        let of = |account: &Account| {
            let share = |(resource, sum): (Resource, u128)| {
                (sum << 32).checked_div(then.capacity.sum(&resource))
            };
            let share = account.used.sums().filter_map(share).max().unwrap_or(0);
            let used = (share * then.time.get()) >> 32;
            let unknown = whole.saturating_sub(account.known.get());
            let assumed = unknown * u128::from(account.weight.max(1)) / weights;
            (used + assumed, account.due.get() + assumed)
        };
        let sums: Vec<(&TenantId, bool, (u128, u128))> = then
            .tenants
            .iter()
            .map(|(name, account)| (name, account.jobs > 0, of(account)))
            .collect();
        let (used, due) = sums
            .iter()
            .filter(|(_, competes, _)| *competes)
            .fold((0, 0), |sum, (_, _, it)| (sum.0 + it.0, sum.1 + it.1));
        let standing = |(name, _, own): (&TenantId, bool, (u128, u128))| {
            let standing = Standing {
                balance: permille(own.0, own.1),
                factor: factor((used, due), own, self.floor_permille),
            };
            (name.clone(), standing)
        };
        Standings(sums.iter().copied().map(standing).collect())
    }

    /// Returns the first contradiction to the jobs' own amounts.
    pub(crate) fn check(&self, load: &Load) -> Result<(), String> {
        let none = (0, Amounts::new());
        for name in self.tenants.keys().chain(load.keys()) {
            let (jobs, held) = load.get(name).unwrap_or(&none);
            let account = self.tenants.get(name);
            let same = account.map_or((0, None), |it| (it.jobs, Some(&it.held)));
            if same.0 != *jobs || same.1.is_some_and(|own| own != held) {
                return Err(format!(
                    "{name} is remembered with {same:?} instead of {jobs} jobs and {held}"
                ));
            }
        }
        Ok(())
    }
}

impl Account {
    fn weigh(&mut self, name: &TenantId, tenants: &Tenants, policy: &Policy) {
        let name = name.as_str();
        let has_due = self.jobs > 0 || tenants.get(name).is_some();
        self.weight = if has_due {
            tenants.weight(name, policy)
        } else {
            0
        };
    }
}

fn permille(over: u128, under: u128) -> u64 {
    let part = (over * 1000).checked_div(under);
    part.map_or(NEUTRAL, |part| u64::try_from(part).unwrap_or(u64::MAX))
}

/// (all used ÷ all due · own due ÷ own used)^RESPONSE, within the floor and its inverse.
fn factor(all: (u128, u128), own: (u128, u128), floor_permille: u64) -> u64 {
    let floor = floor_permille.max(1);
    let most = NEUTRAL * NEUTRAL / floor;
    // 44 bits of each are exact enough, and four factors fit into 128 bits with the fixed point.
    let [all_used, all_due, own_used, own_due] = shortened([all.0, all.1, own.0, own.1]);
    let under = all_due * own_used;
    let Some(ratio) = (all_used * own_due * ONE).checked_div(under) else {
        return if all.0 == 0 || own.1 == 0 {
            NEUTRAL
        } else {
            most
        };
    };
    // A ratio of 16 to either side exceeds every bound's fourth root.
    let ratio = ratio.clamp(ONE / 16, ONE * 16);
    let response = (1..RESPONSE).fold(ratio, |power, _| power * ratio / ONE);
    let factor = response * u128::from(NEUTRAL) / ONE;
    u64::try_from(factor).unwrap_or(most).clamp(floor, most)
}

fn shortened(sums: [u128; 4]) -> [u128; 4] {
    let bits = sums.iter().map(|sum| 128 - sum.leading_zeros()).max();
    let shift = bits.unwrap_or(0).saturating_sub(44);
    sums.map(|sum| sum >> shift)
}

fn ms(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1000)
}

#[cfg(test)]
mod tests;
