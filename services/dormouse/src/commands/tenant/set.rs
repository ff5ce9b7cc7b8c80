//! `tenant set`.

use anyhow::bail;
use clap::Args;
use dormouse_messages::Event;
use dormouse_projections::queries::{ClusterAnswer, NodesAnswer, TenantsAnswer};
use dormouse_runtime::Log;
use serde_json::{Value, json};

use super::TenantArg;
use super::entitlement::{EntitlementArgs, budget, budgeted, configured, entitled};
use crate::commands::common::operator::{self, Change};
use crate::commands::common::{caught_up, known, query};
use crate::context::Context;

/// Set a tenant's entitlement; values that are not named stay
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse tenant set ads --weight 3\n  dormouse tenant set ads --quota cpu=20,memory=64Gi --max-job-weight 4\n  dormouse tenant set ads --quota gpu=0\n  dormouse tenant set ads --quota none\n  dormouse tenant set ads --budget gpu=10000h/month --at-limit preempt\n\nA budget counts from its setting on. A quota bounds the tenant's jobs together; a job that needs more is refused."
)]
pub struct SetArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    #[command(flatten)]
    pub set: EntitlementArgs,
    /// Allow the quota to name resources that no node has yet.
    #[arg(long, requires = "quota")]
    pub ahead: bool,
}

/// Runs `tenant set`.
///
/// # Errors
/// If a number is wrong, or the event cannot be appended.
pub async fn run(context: &Context, args: &SetArgs) -> anyhow::Result<u8> {
    if args.set.is_empty() {
        bail!(
            "nothing to set: name --weight, --quota, --budget, --at-limit, --carry, --max-job-weight or --priority"
        );
    }
    let log = context.connect().await?;
    operator::change(context, &log, async || changed(&log, args).await).await
}

async fn changed(log: &Log, args: &SetArgs) -> anyhow::Result<Change> {
    let name = &args.tenant.name;
    caught_up(log).await?;
    let tenants: TenantsAnswer = query(log, "tenants", Value::Null).await?;
    let before = tenants.tenants.iter().find(|row| row.tenant == *name);
    let event = configured(name, &args.set, before.filter(|row| row.configured))?;
    let new = known::new_tenant(name, &tenants.tenants);
    let mut notes: Vec<String> = new.into_iter().collect();
    let nodes: NodesAnswer = query(log, "nodes", json!({"all": true})).await?;
    known::check_quota(&event.quota, &nodes.nodes, args.ahead)?;
    let below = before.filter(|_| args.set.quota.is_some());
    notes.extend(below.and_then(|row| known::quota_below_use(&event.quota, row)));
    if args.set.weight.is_some() {
        let cluster: ClusterAnswer = query(log, "cluster", Value::Null).await?;
        notes.extend(known::weight_without_effect(&cluster.policy));
    }
    let known = before.and_then(|row| row.budget.as_ref());
    let budgeted = budgeted(name, &args.set, known.map(|row| &row.budget))?;
    // A budget alone leaves the entitlement as it is.
    let is_new = before.is_none_or(|row| !row.configured);
    let entitles = args.set.is_of_entitlement() || is_new;
    let mut said: Vec<String> = entitles.then(|| entitled(&event)).into_iter().collect();
    said.extend(budgeted.as_ref().map(budget));
    let mut events: Vec<Event> = Vec::new();
    events.extend(entitles.then(|| Event::from(event)));
    events.extend(budgeted.map(Event::from));
    Ok(Change {
        said: format!("{name}: {}", said.join(", ")),
        events,
        notes,
    })
}
