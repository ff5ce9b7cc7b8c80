//! The tenants' budgets: amount-milliseconds of a calendar period, exact by the log's time.
//!
//! 1. Rates. A tenant uses the amounts that its containers hold, as in the ledger.
//! 2. Sums. Rates are constant between two events, so every sum grows by rate · time. At the end of a period
//!    the sum begins again; with `carry`, the rest adds to the next limit and the excess to the next sum.
//! 3. Level. Admission reports changes of the level as `budget.level_changed`; deciders act on the level that
//!    the log names.
//!
//! Invariant: the held amounts are those of the cluster's jobs.

use std::collections::BTreeMap;

use dormouse_messages::budget::{
    AtLimit, BudgetLevel, HOUR_MS, Period, TenantBudget, WARNED_PERCENT, hours,
};
use dormouse_messages::events::{BudgetConfigured, BudgetLevelChanged};
use dormouse_messages::{Amounts, Resource, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::total::Total;
use crate::usage::Load;

/// A tenant's budget and its use in the present period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    pub budget: TenantBudget,
    pub level: BudgetLevel,
    /// The event that configured the budget.
    pub configured: Sequence,
    pub from: Timestamp,
    /// The end of the period, if there is one.
    pub until: Option<Timestamp>,
    pub held: Amounts,
    /// Amount-milliseconds.
    used: Total,
    carried: Total,
    settled: Timestamp,
}

/// Use and limit of one resource, in amount-milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    pub resource: Resource,
    pub used: u128,
    pub limit: u128,
    /// Held now, in the log's units.
    pub rate: u64,
}

impl Spent {
    /// Returns the used part, in percent rounded down.
    #[must_use]
    pub fn percent(&self) -> u128 {
        let part = self.used.saturating_mul(100).checked_div(self.limit);
        part.unwrap_or(100)
    }

    /// Returns the unused amount.
    #[must_use]
    pub const fn left(&self) -> u128 {
        self.limit.saturating_sub(self.used)
    }

    /// Returns the milliseconds until `percent` are used at the present rate; `None` if it is not to come.
    #[must_use]
    pub fn reaches_in_ms(&self, percent: u128) -> Option<u64> {
        let mark = self.limit.saturating_mul(percent).div_ceil(100);
        let left = mark.checked_sub(self.used).filter(|left| *left > 0)?;
        let after = left.div_ceil(u128::from(self.rate).max(1));
        u64::try_from(after).ok().filter(|_| self.rate > 0)
    }

    const fn level(&self) -> BudgetLevel {
        if self.used >= self.limit {
            BudgetLevel::Used
        } else if self.used.saturating_mul(100) >= self.limit.saturating_mul(WARNED_PERCENT) {
            BudgetLevel::Warned
        } else {
            BudgetLevel::Open
        }
    }
}

impl Spending {
    fn new(budget: TenantBudget, (now, configured): (Timestamp, Sequence)) -> Self {
        let (from, until) = budget.period.around(now);
        Self {
            budget,
            level: BudgetLevel::Open,
            configured,
            from,
            until,
            held: Amounts::new(),
            used: Total::default(),
            carried: Total::default(),
            settled: now,
        }
    }

    /// Iterates over the budget's resources.
    pub fn spent(&self) -> impl Iterator<Item = Spent> {
        self.budget.hours.iter().map(|(resource, _)| Spent {
            resource: resource.clone(),
            used: self.used.sum(resource),
            limit: self.limit(resource),
            rate: self.held.get(resource),
        })
    }

    /// Returns the resource with the largest used part.
    #[must_use]
    pub fn most_spent(&self) -> Option<Spent> {
        let mut spent: Vec<Spent> = self.spent().collect();
        spent.sort_by_key(|it| (it.level(), it.percent()));
        spent.pop()
    }

    /// Returns the level by the sums.
    #[must_use]
    pub fn level_now(&self) -> BudgetLevel {
        let levels = self.spent().map(|it| it.level());
        levels.max().unwrap_or_default()
    }

    /// Reports whether no further job may start and no running job may grow.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.level == BudgetLevel::Used && self.budget.at_limit != AtLimit::Warn
    }

    /// Reports whether training and batch jobs stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.level == BudgetLevel::Used && self.budget.at_limit == AtLimit::Preempt
    }

    /// Describes the use of one resource: `ads has used 9,000 of 10,000 gpu hours of this month`.
    #[must_use]
    pub fn words(&self, tenant: &str, resource: &Resource) -> String {
        let spent = self.spent().find(|it| it.resource == *resource);
        let (used, limit) = spent.map_or((0, 0), |it| (it.used, it.limit));
        let when = match (self.budget.period, self.until) {
            (Period::Once, _) | (_, None) => {
                "it waits until the operator raises the budget".to_owned()
            }
            (_, Some(until)) => format!(
                "it waits until less is reserved by running jobs, or the budget begins again at {}",
                until.to_words()
            ),
        };
        format!(
            "{tenant} has used {} of {} {} hours of its budget a {}, and what is left does not suffice: {when}",
            hours(resource, used),
            hours(resource, limit),
            resource.name(),
            self.budget.period.as_str()
        )
    }

    /// Returns a copy with the use until `now`.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        let mut then = self.clone();
        then.settle(now);
        then
    }

    /// Returns the next time at which the level may change at the present rates.
    #[must_use]
    pub fn next_change(&self) -> Option<Timestamp> {
        let mark = match self.level_now() {
            BudgetLevel::Open => Some(WARNED_PERCENT),
            BudgetLevel::Warned => Some(100),
            BudgetLevel::Used => None,
        };
        let reached = self
            .spent()
            .filter_map(|it| it.reaches_in_ms(mark?))
            .map(|after| self.settled.plus_ms(after));
        reached.chain(self.until).min()
    }

    /// Returns the first resource whose need, with these amounts and this time limit, exceeds every
    /// period, with the need in amount-milliseconds.
    #[must_use]
    pub fn never_allows(&self, needs: &Amounts, limit_ms: Option<u64>) -> Option<(Resource, u128)> {
        if self.budget.at_limit == AtLimit::Warn {
            return None;
        }
        let length_ms = self.until.map(|until| until.ms_since(self.from));
        let over = |(resource, _): (&Resource, u64)| {
            let amount = needs.get(resource);
            let needs = at_least(amount, limit_ms, length_ms);
            let most = self.hours(resource) * if self.budget.carry { 2 } else { 1 };
            let is_over = needs > most || (amount > 0 && most == 0);
            is_over.then(|| (resource.clone(), needs))
        };
        self.budget.hours.iter().find_map(over)
    }

    fn hours(&self, resource: &Resource) -> u128 {
        let hours = self.budget.hours.iter().find(|(it, _)| *it == resource);
        u128::from(hours.map_or(0, |(_, hours)| hours)) * u128::from(HOUR_MS)
    }

    fn limit(&self, resource: &Resource) -> u128 {
        self.hours(resource)
            .saturating_add(self.carried.sum(resource))
    }

    fn settle(&mut self, now: Timestamp) {
        while let Some(until) = self.until.filter(|until| *until <= now) {
            self.accrue(until);
            self.renew(until);
        }
        self.accrue(now);
    }

    fn accrue(&mut self, to: Timestamp) {
        self.used.add_times(&self.held, to.ms_since(self.settled));
        // A remainder below a millisecond counts at the next event.
        let whole = self.settled.plus_ms(to.ms_since(self.settled));
        self.settled = self.settled.max(whole);
    }

    fn renew(&mut self, at: Timestamp) {
        let mut used = Total::default();
        let mut carried = Total::default();
        for spent in self.spent().filter(|_| self.budget.carry) {
            carried.set(
                &spent.resource,
                spent.left().min(self.hours(&spent.resource)),
            );
            used.set(&spent.resource, spent.used.saturating_sub(spent.limit));
        }
        (self.used, self.carried) = (used, carried);
        (self.from, self.until) = self.budget.period.around(at);
    }
}

/// The part of a tenant's budget that running jobs leave to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// The used resource: nothing starts.
    closed: Option<Resource>,
    left: BTreeMap<Resource, u128>,
    now: Timestamp,
    until: Option<Timestamp>,
}

impl Allowance {
    pub(crate) fn new(spending: &Spending, now: Timestamp) -> Self {
        let spending = spending.at(now);
        let used = spending.spent().find(|it| it.level() == BudgetLevel::Used);
        Self {
            closed: used.map(|it| it.resource),
            left: spending
                .spent()
                .map(|it| (it.resource.clone(), it.left()))
                .collect(),
            now,
            until: spending.until,
        }
    }

    /// Returns the exhausted resource, or the first with too little left for a job with these amounts, for its
    /// remaining time limit or until the period ends.
    #[must_use]
    pub fn over(&self, needs: &Amounts, limit_ms: Option<u64>) -> Option<&Resource> {
        let over = |(resource, left): &(&Resource, &u128)| {
            self.at_least(needs.get(resource), limit_ms) > **left
        };
        let over = self.left.iter().find(over).map(|(resource, _)| resource);
        self.closed.as_ref().or(over)
    }

    /// Returns the end of the period.
    #[must_use]
    pub const fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// Reserves the least that a job may use.
    pub fn take(&mut self, needs: &Amounts, limit_ms: Option<u64>) {
        for (resource, amount) in needs.iter() {
            let least = self.at_least(amount, limit_ms);
            if let Some(left) = self.left.get_mut(resource) {
                *left = left.saturating_sub(least);
            }
        }
    }

    fn at_least(&self, amount: u64, limit_ms: Option<u64>) -> u128 {
        let until = self.until.map(|until| until.ms_since(self.now));
        at_least(amount, limit_ms, until)
    }
}

/// A job without a time limit may end at once.
fn at_least(amount: u64, limit_ms: Option<u64>, until_ms: Option<u64>) -> u128 {
    let ms = limit_ms.map(|limit_ms| until_ms.map_or(limit_ms, |until| until.min(limit_ms)));
    u128::from(amount) * u128::from(ms.unwrap_or(0))
}

/// The budgets by tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets(BTreeMap<TenantId, Spending>);

impl Budgets {
    /// Reports whether no tenant has a budget.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a tenant's budget with its use until the newest change of the tenant's containers.
    #[must_use]
    pub fn get(&self, tenant: &str) -> Option<&Spending> {
        self.0.get(tenant)
    }

    /// Iterates by tenant.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Spending)> {
        self.0.iter()
    }

    /// Reports whether the tenant's budget keeps it from starting and growing jobs.
    #[must_use]
    pub fn holds(&self, tenant: &str) -> bool {
        self.get(tenant).is_some_and(Spending::holds)
    }

    /// Reports whether the tenant's training and batch jobs stop.
    #[must_use]
    pub fn stops(&self, tenant: &str) -> bool {
        self.get(tenant).is_some_and(Spending::stops)
    }

    /// A changed budget of the same period keeps its use.
    pub(crate) fn configured(
        &mut self,
        event: &BudgetConfigured,
        load: &Load,
        (now, sequence): (Timestamp, Sequence),
    ) {
        let Some(budget) = &event.budget else {
            self.0.remove(&event.tenant);
            return;
        };
        let mut spending = Spending::new(budget.clone(), (now, sequence));
        spending.held = load
            .get(&event.tenant)
            .map_or_else(Amounts::new, |(_, held)| held.clone());
        if let Some(before) = self.0.get(&event.tenant) {
            let before = before.at(now);
            spending.level = before.level;
            if before.budget.period == budget.period {
                (spending.used, spending.carried) = (before.used, before.carried);
                (spending.from, spending.until) = (before.from, before.until);
            }
        }
        self.0.insert(event.tenant.clone(), spending);
    }

    pub(crate) fn removed(&mut self, tenant: &TenantId) {
        self.0.remove(tenant);
    }

    pub(crate) fn level_changed(&mut self, event: &BudgetLevelChanged) {
        if let Some(spending) = self.0.get_mut(&event.tenant) {
            spending.level = event.level;
        }
    }

    /// Takes one job's change, as held amounts before and after.
    pub(crate) fn change(
        &mut self,
        tenant: &str,
        (before, after): (&Amounts, &Amounts),
        now: Timestamp,
    ) {
        if let Some(spending) = self.0.get_mut(tenant).filter(|_| before != after) {
            spending.settle(now);
            spending.held.subtract(before, 1);
            spending.held.add(after, 1);
        }
    }

    /// Takes every tenant's load.
    pub(crate) fn reset(&mut self, load: &Load, now: Timestamp) {
        for (tenant, spending) in &mut self.0 {
            spending.settle(now);
            spending.held = load
                .get(tenant)
                .map_or_else(Amounts::new, |(_, held)| held.clone());
        }
    }

    /// Returns the first contradiction to the jobs' own amounts.
    pub(crate) fn check(&self, load: &Load) -> Result<(), String> {
        let none = Amounts::new();
        for (tenant, spending) in &self.0 {
            let held = load.get(tenant).map_or(&none, |(_, held)| held);
            if *held != spending.held {
                return Err(format!(
                    "the budget of {tenant} counts {} instead of {held}",
                    spending.held
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn tenant() -> TenantId {
        "ads".parse().expect("a tenant")
    }

    fn budgets(text: &str, carry: bool, now: &str) -> Budgets {
        let budget = TenantBudget {
            carry,
            ..text.parse().expect("a budget")
        };
        let event = BudgetConfigured {
            tenant: tenant(),
            budget: Some(budget),
        };
        let mut budgets = Budgets::default();
        budgets.configured(&event, &Load::new(), (at(now), Sequence(1)));
        budgets
    }

    fn holds(budgets: &mut Budgets, gpus: &str, now: &str) {
        let held = budgets.get("ads").expect("a budget").held.clone();
        let more = gpus.parse().expect("amounts");
        budgets.change("ads", (&held, &more), at(now));
    }

    fn gpu(budgets: &Budgets, now: &str) -> (u128, u128) {
        let then = budgets.get("ads").expect("a budget").at(at(now));
        let spent = then.most_spent().expect("a resource");
        let hour = u128::from(HOUR_MS) * 1000;
        (spent.used / hour, spent.limit / hour)
    }

    #[test]
    fn use_is_rate_times_time_and_begins_again() {
        let mut budgets = budgets("gpu=100h/day", false, "2026-11-20T06:00:00Z");
        holds(&mut budgets, "gpu=10", "2026-11-20T07:00:00Z");
        let marks = |budgets: &Budgets, now: &str| {
            let then = budgets.get("ads").expect("a budget").at(at(now));
            (then.level_now(), then.next_change())
        };
        let warned = Some(at("2026-11-20T15:00:00Z"));
        let used = Some(at("2026-11-20T17:00:00Z"));
        let renewed = Some(at("2026-11-21T00:00:00Z"));
        assert_eq!(
            marks(&budgets, "2026-11-20T08:00:00Z"),
            (BudgetLevel::Open, warned)
        );
        assert_eq!(
            marks(&budgets, "2026-11-20T15:00:00Z"),
            (BudgetLevel::Warned, used)
        );
        assert_eq!(
            marks(&budgets, "2026-11-20T17:00:00Z"),
            (BudgetLevel::Used, renewed)
        );
        assert_eq!(gpu(&budgets, "2026-11-20T23:00:00Z"), (160, 100));
        assert_eq!(gpu(&budgets, "2026-11-21T02:00:00Z"), (20, 100));
        assert_eq!(gpu(&budgets, "2026-11-30T01:00:00Z"), (10, 100));
    }

    #[test]
    fn what_is_carried_over_is_at_most_one_period_and_excess_is_taken_off() {
        let mut budgets = budgets("gpu=100h/day", true, "2026-11-20T00:00:00Z");
        assert_eq!(gpu(&budgets, "2026-11-25T00:00:00Z"), (0, 200));
        holds(&mut budgets, "gpu=10", "2026-11-25T00:00:00Z");
        // 240 of 200 hours are used.
        assert_eq!(gpu(&budgets, "2026-11-26T01:00:00Z"), (50, 100));
    }

    #[test]
    fn another_amount_keeps_the_use() {
        let mut budgets = budgets("gpu=100h/week", false, "2026-11-20T00:00:00Z");
        holds(&mut budgets, "gpu=10", "2026-11-20T00:00:00Z");
        let more = BudgetConfigured {
            tenant: tenant(),
            budget: Some("gpu=500h/week".parse().expect("a budget")),
        };
        let load = Load::from([(tenant(), (1, "gpu=10".parse().expect("amounts")))]);
        budgets.configured(&more, &load, (at("2026-11-20T05:00:00Z"), Sequence(2)));
        assert_eq!(gpu(&budgets, "2026-11-20T06:00:00Z"), (60, 500));
        assert_eq!(budgets.check(&load), Ok(()));
        assert!(budgets.check(&Load::new()).is_err());
    }
}
