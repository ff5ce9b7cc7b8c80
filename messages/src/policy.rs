//! The operator's policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classes::{self, PriorityClass};
use crate::grants::GrantsRule;
use crate::lenient_int::{maybe, whole};
use crate::shares::Shares;

pub use crate::objective::{Objective, Value};

/// Limit on weights; shares of more are meaningless.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// Limit of a day: a job that must not be resized has no checkpoint.
pub const MAX_MIN_RUN_S: u32 = 86_400;

/// Limit on a priority's absolute value.
pub const MAX_PRIORITY: i32 = 1_000;

/// Once a minute; a higher limit has no effect.
pub const MAX_PREEMPTIONS_PER_HOUR: u32 = 60;

/// The way in which jobs get containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// P2 of the Dorm paper: utilization under fairness and adjustment bounds.
    #[default]
    Dorm,
    /// DRF offers of whole containers; running jobs are not adjusted.
    Drf,
    /// A fixed number of containers per job, first in, first out, all or nothing, spread: the paper's
    /// baseline.
    Static,
}

/// The reading of the fairness bound Σ l ≤ θ1 · 2m (Dorm, eq. 15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FairnessBound {
    /// ⌈θ1 · 2m⌉, as printed.
    #[default]
    Paper,
    /// θ1 · 2m, without the ceiling.
    Exact,
}

/// The order of release among queued jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// First in, first out, over all tenants.
    #[default]
    Fifo,
    /// The tenant with the smallest dominant share in use (DRF; Tromino's DRF-aware).
    Drf,
    /// The tenant with the largest dominant share queued (Tromino's demand-aware).
    Demand,
    /// The tenant with the largest ratio of the two (Tromino's demand-DRF-aware).
    DemandDrf,
    /// The tenant with the longest projected mean waiting time, by the cluster's throughput.
    ProjectedWait,
    /// As `projected-wait`, with queued work credited at most at the cluster's speed, and no wait much longer
    /// than first in, first out.
    BalancedWait,
}

/// The jobs that may start while an earlier job waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// Jobs that need none of the blocked head's scarce resources, or use nodes unfit for it, and leave its
    /// next capacity alone.
    #[default]
    Backfill,
    /// None: the longest prefix of the queue that fits, as in the Dorm paper.
    Prefix,
}

impl Queue {
    /// Every queue policy.
    pub const ALL: [Self; 6] = [
        Self::Fifo,
        Self::Drf,
        Self::Demand,
        Self::DemandDrf,
        Self::ProjectedWait,
        Self::BalancedWait,
    ];

    /// Returns the name in a policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Drf => "drf",
            Self::Demand => "demand",
            Self::DemandDrf => "demand-drf",
            Self::ProjectedWait => "projected-wait",
            Self::BalancedWait => "balanced-wait",
        }
    }
}

/// The treatment of submissions of unconfigured tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownTenants {
    /// Accepted, with the policy's `unknown_weight` and without a quota.
    #[default]
    Accept,
    /// Refused.
    Refuse,
}

/// The choice of node among those with a slot for a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// A job's containers use as few nodes as possible.
    #[default]
    Pack,
    /// Each container goes to the node with the most slots, regardless of its gang: a baseline.
    Spread,
}

/// Limits on restarting or requeuing a job for others. Shrinking in place is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a map such as {max_per_hour: 2, min_run_s: 60}"
)]
pub struct Preemption {
    /// Limit on preemptions of a job within an hour; absent for no limit.
    #[serde(deserialize_with = "maybe", skip_serializing_if = "Option::is_none")]
    pub max_per_hour: Option<u32>,
    /// Seconds that a job's incarnation runs before a preemption; 0 if absent.
    #[serde(deserialize_with = "maybe", skip_serializing_if = "Option::is_none")]
    pub min_run_s: Option<u32>,
}

impl Preemption {
    /// True if nothing is limited.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn problem(&self) -> Option<String> {
        let most = MAX_PREEMPTIONS_PER_HOUR;
        if let Some(number) = self.max_per_hour.filter(|number| *number > most) {
            return Some(format!(
                "preemption.max_per_hour is {number}; it must lie between 0 and {most}, leave it out for no bound"
            ));
        }
        let number = self.min_run_s.filter(|number| *number > MAX_MIN_RUN_S)?;
        Some(format!(
            "preemption.min_run_s is {number}; it must lie between 0 and {MAX_MIN_RUN_S}, a day: a smaller one, or max_per_hour: 0 where only services may preempt"
        ))
    }
}

/// The moment at which the cluster begins to write a newer format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Upgrades {
    /// As soon as every living process reads the format.
    #[default]
    Auto,
    /// Also not before an operator says `dormouse cluster upgrade`; until then a downgrade is possible.
    Manual,
}

/// The sealing of the log's segments in the archive, and the time that the broker keeps them as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a map such as {segment_events: 200000, segment_hours: 24, keep_hours: 168, names_kept_days: 30, log_mib: 50000}"
)]
pub struct ArchivePolicy {
    /// A segment is sealed at this number of events.
    #[serde(deserialize_with = "whole")]
    pub segment_events: u32,
    /// A smaller segment is sealed this many hours after its first event.
    #[serde(deserialize_with = "whole")]
    pub segment_hours: u32,
    /// The broker keeps an archived event at least this many hours; null: for ever.
    #[serde(deserialize_with = "maybe")]
    pub keep_hours: Option<u32>,
    /// The name of an ended job is free again after this many days; null: never. Every state of admission
    /// holds the names: 720,000 in 30 days at a thousand jobs an hour.
    #[serde(deserialize_with = "maybe", skip_serializing_if = "is_month")]
    pub names_kept_days: Option<u32>,
    /// The brokers are to hold at most so much of the log, in MiB; null: what their streams and disks allow.
    #[serde(deserialize_with = "maybe", skip_serializing_if = "Option::is_none")]
    pub log_mib: Option<u32>,
}

const MONTH_DAYS: Option<u32> = Some(30);

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_month(days: &Option<u32>) -> bool {
    *days == MONTH_DAYS
}

/// A few thousand events and the largest one.
const LEAST_LOG_MIB: u32 = 16;

impl Default for ArchivePolicy {
    fn default() -> Self {
        Self {
            segment_events: 200_000,
            segment_hours: 24,
            keep_hours: Some(168),
            names_kept_days: MONTH_DAYS,
            log_mib: None,
        }
    }
}

impl ArchivePolicy {
    /// Returns the bound of the log on the brokers.
    #[must_use]
    pub fn log_bytes(&self) -> Option<u64> {
        Some(u64::from(self.log_mib?) << 20)
    }

    /// Returns the time for which an ended job's name stays taken.
    #[must_use]
    pub fn names_kept_ms(&self) -> Option<u64> {
        Some(u64::from(self.names_kept_days?) * 86_400_000)
    }

    /// Returns the time after which a segment is sealed at the latest, in seconds.
    #[must_use]
    pub fn segment_s(&self) -> f64 {
        3_600.0 * f64::from(self.segment_hours)
    }

    fn problem(&self) -> Option<String> {
        let (least, most) = (1_000, 10_000_000);
        if !(least..=most).contains(&self.segment_events) {
            return Some(format!(
                "archive.segment_events is {}; it must lie between {least} and {most}",
                self.segment_events
            ));
        }
        let hours = self.segment_hours;
        if !(1..=8_760).contains(&hours) {
            return Some(format!(
                "archive.segment_hours is {hours}; it must lie between 1 and 8760, a year"
            ));
        }
        if let Some(mib) = self.log_mib.filter(|mib| *mib < LEAST_LOG_MIB) {
            return Some(format!(
                "archive.log_mib is {mib}; it must be {LEAST_LOG_MIB} or more, or null: the events since the newest states must fit"
            ));
        }
        let days = self.names_kept_days;
        if let Some(days) = days.filter(|days| !(1..=3_650).contains(days)) {
            return Some(format!(
                "archive.names_kept_days is {days}; it must lie between 1 and 3650, ten years; null never frees a name"
            ));
        }
        let hours = self
            .keep_hours
            .filter(|hours| !(1..=87_600).contains(hours))?;
        Some(format!(
            "archive.keep_hours is {hours}; it must lie between 1 and 87600, ten years; null keeps every event"
        ))
    }
}

/// The cluster's policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a map such as {allocation: dorm, theta1: 0.1, theta2: 0.1}"
)]
pub struct Policy {
    /// The way in which jobs get containers.
    pub allocation: Allocation,
    /// Fairness threshold, 0 to 1.
    pub theta1: f64,
    /// Adjustment threshold, 0 to 1.
    pub theta2: f64,
    /// The reading of the fairness bound.
    pub fairness_bound: FairnessBound,
    /// Weights of the objective.
    pub objective: Objective,
    /// The choice of nodes for a job's containers.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub placement: Placement,
    /// True if a job starts whole or not at all. False lets a job resized in place start with the containers
    /// that fit: a baseline of `allocation: static`.
    #[serde(skip_serializing_if = "is_true")]
    pub gang: bool,
    /// The order of release among queued jobs.
    pub queue: Queue,
    /// The jobs that may start while an earlier job waits.
    pub admit: Admit,
    /// Seconds from a blocked head's first overtaking to its reservation.
    #[serde(deserialize_with = "whole")]
    pub reserve_after_s: u32,
    /// Default seconds between a start and the next resize; null for a few times the resizes' cost. Drains
    /// and losses do not wait.
    pub min_run_s: Option<u32>,
    /// The treatment of submissions of unconfigured tenants.
    pub unknown_tenants: UnknownTenants,
    /// Weight of an unconfigured tenant.
    #[serde(deserialize_with = "whole")]
    pub unknown_weight: u32,
    /// The parties among which the cluster is shared, and the memory of their use.
    pub shares: Shares,
    /// Seconds without a renewed lease until a node counts as lost. Nodes run by `up` itself have no lease.
    #[serde(deserialize_with = "whole")]
    pub lease_s: u32,
    /// Seconds after the last renewal until an agent ends its containers itself; null for three quarters of
    /// `lease_s`.
    pub fence_s: Option<u32>,
    /// The rule for aspects without a grant; `open` if never set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsRule>,
    /// Limits on preemptions of a job.
    #[serde(skip_serializing_if = "Preemption::is_unbounded")]
    pub preemption: Preemption,
    /// Priority classes that jobs may name, if granted to their tenants.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub priority_classes: BTreeMap<String, PriorityClass>,
    /// Sealing of the log's segments.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub archive: ArchivePolicy,
    /// The moment at which a newer format of the log is written.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub upgrades: Upgrades,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_true(flag: &bool) -> bool {
    *flag
}

/// A node's lease: containers end after `fence`, so that none runs at the loss after `lease`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTerm {
    pub lease_ms: u64,
    pub fence_ms: u64,
}

impl LeaseTerm {
    /// Returns the time from fence to kill: half of the remaining lease. The kill has the rest.
    #[must_use]
    pub const fn grace_ms(&self) -> u64 {
        (self.lease_ms - self.fence_ms) / 2
    }
}

impl Default for LeaseTerm {
    fn default() -> Self {
        Policy::default().lease()
    }
}

/// Outlasts a broker's restart.
const LEASE_S: u32 = 90;

/// Far above a broker's round trip.
const MIN_LEASE_S: u32 = 1;

/// No lease can be renewed during an election of some seconds.
pub const MIN_REPLICATED_LEASE_S: u32 = 20;

/// A node silent for a day is lost anyway.
const MAX_LEASE_S: u32 = 86_400;

/// Longer than a release, shorter than a training job.
const RESERVE_AFTER_S: u32 = 600;

impl Default for Policy {
    /// Dorm-3 of the paper.
    fn default() -> Self {
        Self {
            allocation: Allocation::Dorm,
            theta1: 0.1,
            theta2: 0.1,
            fairness_bound: FairnessBound::Paper,
            objective: Objective::default(),
            placement: Placement::Pack,
            gang: true,
            queue: Queue::Fifo,
            admit: Admit::Backfill,
            reserve_after_s: RESERVE_AFTER_S,
            min_run_s: None,
            unknown_tenants: UnknownTenants::Accept,
            unknown_weight: 1,
            shares: Shares::Job,
            lease_s: LEASE_S,
            fence_s: None,
            grants: None,
            preemption: Preemption::default(),
            priority_classes: BTreeMap::new(),
            archive: ArchivePolicy::default(),
            upgrades: Upgrades::Auto,
        }
    }
}

impl Policy {
    /// True if jobs may start before an earlier one. The static baseline is strictly first in, first out.
    #[must_use]
    pub fn backfills(&self) -> bool {
        self.admit == Admit::Backfill && self.allocation != Allocation::Static
    }

    /// Returns the lease term, whose fence leaves at least a quarter for the containers to end.
    #[must_use]
    pub fn lease(&self) -> LeaseTerm {
        let lease_ms = u64::from(self.lease_s.max(MIN_LEASE_S)) * 1_000;
        let latest = lease_ms / 4 * 3;
        let fence_ms = self.fence_s.map(|fence_s| u64::from(fence_s) * 1_000);
        LeaseTerm {
            lease_ms,
            fence_ms: fence_ms.map_or(latest, |fence_ms| fence_ms.min(latest)),
        }
    }

    fn lease_problem(&self) -> Option<String> {
        let (lease_s, fence_s) = (self.lease_s, self.fence_s);
        if !(MIN_LEASE_S..=MAX_LEASE_S).contains(&lease_s) {
            return Some(format!(
                "lease_s is {lease_s}; it must lie between {MIN_LEASE_S} and {MAX_LEASE_S}"
            ));
        }
        let latest = lease_s * 3 / 4;
        let fence_s = fence_s.filter(|fence_s| *fence_s == 0 || *fence_s > latest)?;
        Some(format!(
            "fence_s is {fence_s}; with lease_s {lease_s} it must lie between 1 and {latest}: a quarter of the lease is left for containers to end"
        ))
    }

    /// Returns the first error in the policy.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let problem = self.lease_problem();
        let problem = problem.or_else(|| self.preemption.problem());
        let problem = problem.or_else(|| self.archive.problem());
        let problem = problem.or_else(|| self.shares.problem());
        if let Some(problem) = problem.or_else(|| classes::problem(&self.priority_classes)) {
            return Some(problem);
        }
        for (name, theta) in [("theta1", self.theta1), ("theta2", self.theta2)] {
            if !(0.0..=1.0).contains(&theta) {
                return Some(format!("{name} is {theta}; it must lie between 0 and 1"));
            }
        }
        if !(1..=MAX_WEIGHT).contains(&self.unknown_weight) {
            return Some(format!(
                "unknown_weight is {}; it must lie between 1 and {MAX_WEIGHT}",
                self.unknown_weight
            ));
        }
        if self
            .min_run_s
            .is_some_and(|min_run_s| min_run_s > MAX_MIN_RUN_S)
        {
            return Some(format!(
                "min_run_s is above {MAX_MIN_RUN_S}, a day; a smaller one, or theta2 0 to resize nothing"
            ));
        }
        if !self.gang && self.allocation != Allocation::Static {
            return Some(
                "gang: false is a baseline of allocation: static; the others start gangs whole"
                    .to_owned(),
            );
        }
        self.objective.problem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(lease_s: u32, fence_s: Option<u32>) -> Policy {
        Policy {
            lease_s,
            fence_s,
            ..Policy::default()
        }
    }

    #[test]
    fn containers_have_ended_before_the_lease_has() {
        for (lease_s, fence_s) in [
            (90, None),
            (20, None),
            (1, None),
            (90, Some(30)),
            (8, Some(6)),
        ] {
            let policy = lasting(lease_s, fence_s);
            assert_eq!(policy.problem(), None);
            let term = policy.lease();
            let killed_ms = term.fence_ms + term.grace_ms();
            assert!(killed_ms < term.lease_ms, "{term:?}");
            assert!(term.lease_ms - killed_ms >= term.lease_ms / 8, "{term:?}");
        }
    }

    #[test]
    fn baselines_and_prices_that_make_no_sense_are_refused() {
        let policy = |text: &str| serde_json::from_str::<Policy>(text).expect("a policy");
        for wrong in [
            r#"{"gang": false}"#,
            r#"{"objective": {"crossing": 1}}"#,
            r#"{"objective": {"crossing": -0.1}}"#,
        ] {
            assert!(policy(wrong).problem().is_some(), "{wrong}");
        }
        let right = r#"{"allocation": "static", "gang": false, "placement": "spread", "objective": {"crossing": 0.7}}"#;
        assert_eq!(policy(right).problem(), None);
        assert_eq!(policy(right).placement, Placement::Spread);
    }

    #[test]
    fn a_fence_after_the_lease_is_refused_and_never_used() {
        for (lease_s, fence_s) in [(0, None), (100_000, None), (10, Some(60)), (10, Some(0))] {
            assert!(lasting(lease_s, fence_s).problem().is_some());
        }
        let term = lasting(10, Some(60)).lease();
        assert_eq!((term.lease_ms, term.fence_ms), (10_000, 7_500));
    }

    #[test]
    fn the_days_that_names_are_kept_are_bounded_and_null_keeps_them() {
        let policy = |days: &str| {
            let text = format!(r#"{{"archive": {{"names_kept_days": {days}}}}}"#);
            serde_json::from_str::<Policy>(&text).expect("a policy")
        };
        for days in ["1", "30", "3650", "null"] {
            assert_eq!(policy(days).problem(), None, "{days}");
        }
        for days in ["0", "3651"] {
            let problem = policy(days).problem().expect("out of bounds");
            assert!(problem.contains("names_kept_days"), "{problem}");
        }
        assert_eq!(policy("null").archive.names_kept_ms(), None);
        let again = serde_json::to_value(policy("null").archive).expect("written");
        assert!(again["names_kept_days"].is_null() && again.get("names_kept_days").is_some());
        assert_eq!(policy("30"), Policy::default());
    }
}
