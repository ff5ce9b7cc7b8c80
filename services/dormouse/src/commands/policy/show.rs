//! `policy show`.

use clap::Args;
use dormouse_messages::grants::GrantsRule;
use dormouse_messages::policy::{Policy, UnknownTenants};
use dormouse_messages::{Sequence, Shares};
use dormouse_projections::queries::ClusterAnswer;
use serde_json::{Value, json};

use crate::commands::common::query;
use crate::context::Context;
use crate::describe::{self, name};
use crate::error::DONE;
use crate::print;

/// Show the policy in force
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse policy show\n  dormouse policy show -o yaml > policy.yaml"
)]
pub struct ShowArgs;

/// Runs `policy show`.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let cluster: ClusterAnswer = query(&log, "cluster", Value::Null).await?;
    let document = json!({"policy": cluster.policy});
    print::ours(context.output()?, &document, |_| {
        let since = match cluster.policy_sequence {
            Sequence(0) => "in force: nobody has set a policy, these are the defaults".to_owned(),
            sequence => format!("in force since event {sequence}"),
        };
        format!(
            "{since}{}\n`dormouse policy show -o yaml` prints it as a document for `dormouse policy set`",
            in_words(&cluster.policy)
        )
    })?;
    Ok(DONE)
}

/// Describes a policy, a line each field.
#[must_use]
pub fn in_words(policy: &Policy) -> String {
    let amortise = match policy.objective.amortise_s {
        Some(seconds) => format!("a restart pays back over {seconds} s"),
        None => "restarts cost only as a tie-break".to_owned(),
    };
    let unknown = match policy.unknown_tenants {
        UnknownTenants::Accept => format!("accepted with weight {}", policy.unknown_weight),
        UnknownTenants::Refuse => "refused".to_owned(),
    };
    let among = match policy.shares {
        Shares::Job => "jobs".to_owned(),
        Shares::Tenant => "tenants".to_owned(),
        Shares::Remembered(memory) => format!(
            "tenants, by their use with half-life {} (a weight counts {} to {} times)",
            memory.half_life(),
            memory.floor,
            1.0 / memory.floor
        ),
    };
    let granted = match policy.grants.unwrap_or_default() {
        GrantsRule::Open => "not asked for",
        GrantsRule::Required => "refused",
    };
    let lines = [
        (
            "allocation",
            format!(
                "{}, θ1 {} ({} fairness bound), θ2 {}",
                name(&policy.allocation),
                policy.theta1,
                name(&policy.fairness_bound),
                policy.theta2
            ),
        ),
        (
            "objective",
            format!(
                "utilization × {}, fairness loss × {}; {amortise}",
                policy.objective.utilization, policy.objective.loss
            ),
        ),
        (
            "queue",
            format!(
                "{}; room is kept for a head that others passed for {} s",
                policy.queue.as_str(),
                policy.reserve_after_s
            ),
        ),
        ("preemption", describe::preemption(policy)),
        (
            "leases",
            format!(
                "a silent node is lost after {} s; its containers end by themselves after {} s",
                policy.lease_s,
                policy.lease().fence_ms / 1_000
            ),
        ),
        (
            "tenants",
            format!(
                "shares among {among}; unknown ones are {unknown}; what was not granted to one is {granted}"
            ),
        ),
    ];
    let lines = lines.map(|(name, text)| format!("\n  {name:<11} {text}"));
    lines.concat()
}
