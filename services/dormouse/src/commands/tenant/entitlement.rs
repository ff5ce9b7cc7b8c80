//! Weight, quota, budget and priority of a tenant.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::{Args, ValueEnum};
use dormouse_messages::budget::{AtLimit, TenantBudget};
use dormouse_messages::events::{BudgetConfigured, TenantConfigured};
use dormouse_messages::policy::MAX_PRIORITY;
use dormouse_messages::quantity::lacks_unit;
use dormouse_messages::{Quota, Resource, TenantId};
use dormouse_projections::queries::TenantRow;

use crate::cli::weight::weight;

/// Entitlement of a tenant.
#[derive(Debug, Clone, Default, Args)]
pub struct EntitlementArgs {
    /// Weight among the tenants.
    #[arg(long, allow_negative_numbers = true, value_parser = weight)]
    pub weight: Option<u32>,
    /// Quota, such as cpu=20,memory=64Gi; unnamed resources stay, cpu=none lifts one, none all.
    #[arg(long, value_name = "AMOUNTS")]
    pub quota: Option<String>,
    /// Budget, such as gpu=10000h/month or cpu=500h,gpu=20h/week; periods: day, week, month, year, once; none
    /// lifts it.
    #[arg(long, value_name = "HOURS")]
    pub budget: Option<String>,
    /// When the budget is used: warn, start no further job, or also stop training and batch jobs.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub at_limit: Option<AtLimitArg>,
    /// Add a period's unused hours, at most one period's, to the next.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub carry: Option<bool>,
    /// Largest weight that a job of the tenant may request.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    pub max_job_weight: Option<u32>,
    /// Priority in its queue of jobs that request none.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
}

/// The consequence of a used budget.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AtLimitArg {
    Warn,
    Queue,
    Preempt,
}

impl From<AtLimitArg> for AtLimit {
    fn from(arg: AtLimitArg) -> Self {
        match arg {
            AtLimitArg::Warn => Self::Warn,
            AtLimitArg::Queue => Self::Queue,
            AtLimitArg::Preempt => Self::Preempt,
        }
    }
}

impl EntitlementArgs {
    /// True if no value is named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.is_of_entitlement() && !self.is_of_budget()
    }

    /// True if a value other than the budget's is named.
    #[must_use]
    pub const fn is_of_entitlement(&self) -> bool {
        self.weight.is_some()
            || self.quota.is_some()
            || self.max_job_weight.is_some()
            || self.priority.is_some()
    }

    const fn is_of_budget(&self) -> bool {
        self.budget.is_some() || self.at_limit.is_some() || self.carry.is_some()
    }
}

/// Merges the named values into the former ones.
///
/// # Errors
/// If a number is wrong.
pub fn configured(
    tenant: &TenantId,
    args: &EntitlementArgs,
    before: Option<&TenantRow>,
) -> anyhow::Result<TenantConfigured> {
    let weight = args.weight.or(before.map(|row| row.weight)).unwrap_or(1);
    let max_job_weight = args
        .max_job_weight
        .or(before.and_then(|row| row.max_job_weight));
    let quota = match args.quota.as_deref() {
        None => before.map(|row| row.quota.clone()).unwrap_or_default(),
        Some("none") => Quota::new(),
        Some(text) => bounded(
            before.map(|row| row.quota.clone()).unwrap_or_default(),
            text,
        )?,
    };
    let priority = args.priority.or(before.map(|row| row.priority));
    if priority.is_some_and(|priority| !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority)) {
        bail!("--priority must lie between -{MAX_PRIORITY} and {MAX_PRIORITY}");
    }
    Ok(TenantConfigured {
        tenant: tenant.clone(),
        weight,
        quota,
        max_job_weight,
        priority: priority.filter(|priority| *priority != 0),
    })
}

/// Merges the named values into the former budget; `None` if none is named.
///
/// # Errors
/// If the budget cannot be read, or there is none to change.
pub fn budgeted(
    tenant: &TenantId,
    args: &EntitlementArgs,
    before: Option<&TenantBudget>,
) -> anyhow::Result<Option<BudgetConfigured>> {
    if !args.is_of_budget() {
        return Ok(None);
    }
    let event = |budget| BudgetConfigured {
        tenant: tenant.clone(),
        budget,
    };
    let mut budget = match (args.budget.as_deref(), before) {
        (Some("none"), _) => return Ok(Some(event(None))),
        (Some(text), _) => text.parse::<TenantBudget>().map_err(anyhow::Error::msg)?,
        (None, Some(before)) => before.clone(),
        (None, None) => {
            bail!("{tenant} has no budget yet; name it, such as --budget gpu=10000h/month")
        }
    };
    let memory = budget.hours.iter().find(|it| *it.0 == Resource::Memory);
    if let Some(why) = memory.and_then(|it| lacks_unit(it.1)) {
        bail!("--budget: {why}");
    }
    budget.at_limit = args
        .at_limit
        .map(AtLimit::from)
        .or(before.map(|it| it.at_limit))
        .unwrap_or_default();
    budget.carry = args.carry.or(before.map(|it| it.carry)).unwrap_or(false);
    Ok(Some(event(Some(budget))))
}

/// Describes a budget.
#[must_use]
pub fn budget(event: &BudgetConfigured) -> String {
    let Some(budget) = &event.budget else {
        return "no budget".to_owned();
    };
    let carry = if budget.carry {
        ", the rest carried over"
    } else {
        ""
    };
    let then = budget.at_limit.words();
    format!("budget {budget}{carry}, {then}")
}

/// Describes an entitlement.
#[must_use]
pub fn entitled(event: &TenantConfigured) -> String {
    let mut said = format!("weight {}", event.weight);
    if event.quota.is_empty() {
        said.push_str(", no quota")
    } else {
        said.push_str(&format!(", quota {}", event.quota))
    }
    if let Some(most) = event.max_job_weight {
        said.push_str(&format!(", a job's weight at most {most}"));
    }
    if let Some(priority) = event.priority {
        said.push_str(&format!(", priority {priority}"));
    }
    said
}

/// `cpu=none` lifts one bound.
fn bounded(before: Quota, text: &str) -> anyhow::Result<Quota> {
    let parts = text.split(',').map(str::trim);
    let (lifted, set): (Vec<&str>, Vec<&str>) = parts
        .filter(|part| !part.is_empty())
        .partition(|part| part.ends_with("=none"));
    let lifted: Vec<Resource> = lifted
        .iter()
        .map(|part| Resource::from_name(part.trim_end_matches("=none")))
        .collect::<Result<_, _>>()?;
    let named: Quota = set.join(",").parse()?;
    let memory = named.iter().find(|it| *it.0 == Resource::Memory);
    if let Some(why) = memory.and_then(|it| lacks_unit(it.1)) {
        bail!("--quota {text}: {why}");
    }
    let distinct: BTreeSet<&Resource> = lifted.iter().chain(named.iter().map(|it| it.0)).collect();
    if distinct.is_empty() || distinct.len() != lifted.len() + set.len() {
        bail!(
            "--quota {text}: name each resource once (one with 0 may not be had; cpu=none lifts a bound, --quota none all of them)"
        );
    }
    let mut quota = Quota::new();
    let stays = before
        .iter()
        .filter(|(resource, _)| !lifted.contains(resource));
    for (resource, most) in stays.chain(named.iter()) {
        quota.set(resource.clone(), most);
    }
    Ok(quota)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ads() -> TenantId {
        "ads".parse().expect("valid")
    }

    fn args(quota: Option<&str>, weight: Option<u32>) -> EntitlementArgs {
        EntitlementArgs {
            weight,
            quota: quota.map(str::to_owned),
            ..EntitlementArgs::default()
        }
    }

    #[test]
    fn what_is_not_named_has_its_default() {
        let event =
            configured(&ads(), &args(Some("cpu=20,memory=64Gi"), None), None).expect("valid");
        assert_eq!(
            (event.weight, event.quota.to_string().as_str()),
            (1, "cpu=20,memory=64Gi")
        );
        assert_eq!((event.max_job_weight, event.priority), (None, None));
    }

    #[test]
    fn bounds_that_are_not_named_stay() {
        let bounds = |before: &str, text| {
            let quota = bounded(before.parse().expect("valid"), text).expect("valid");
            quota.to_string()
        };
        assert_eq!(bounds("cpu=3", "memory=1Gi"), "cpu=3,memory=1Gi");
        assert_eq!(bounds("cpu=3,memory=1Gi", "cpu=5"), "cpu=5,memory=1Gi");
        assert_eq!(
            bounds("cpu=3,memory=1Gi", "cpu=none,gpu=0"),
            "gpu=0,memory=1Gi"
        );
        assert!(bounded(Quota::new(), "cpu=none,cpu=2").is_err());
    }

    #[test]
    fn bad_quotas_are_refused() {
        for quota in ["", "cpu=1,cpu=2", "cpu"] {
            assert!(
                configured(&ads(), &args(Some(quota), None), None).is_err(),
                "{quota}"
            );
        }
        let lifted = configured(&ads(), &args(Some("none"), None), None).expect("valid");
        assert!(lifted.quota.is_empty());
    }
}
