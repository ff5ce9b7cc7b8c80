//! `tenant grant`.

use anyhow::bail;
use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::TenantGranted;
use dormouse_projections::queries::{ClusterAnswer, TenantsAnswer};
use dormouse_runtime::Log;
use serde_json::Value;

use super::TenantArg;
use super::grants::{GrantsArgs, granted, named};
use crate::commands::common::operator::{self, Change};
use crate::commands::common::{caught_up, known, query};
use crate::context::Context;
use crate::describe;

/// Grant a tenant's containers what they may have of the nodes; grants that are not named stay
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse tenant grant ads --run-as 10001:10001 --mount /data:ro --mount /scratch/ads --image 'registry/ads/*'\n  dormouse tenant grant ads --mount none --network host --max-queued 500 --max-rate 20\n  dormouse tenant grant ads --max-queued-bytes 64Mi --max-storage 200Gi\n  dormouse tenant grant ads --priority-class urgent\n\n--mount, --image and --priority-class add to those that there are; none lifts a grant."
)]
pub struct GrantArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    #[command(flatten)]
    pub grants: GrantsArgs,
}

/// Runs `tenant grant`.
///
/// # Errors
/// If a value cannot be granted, or the event cannot be appended.
pub async fn run(context: &Context, args: &GrantArgs) -> anyhow::Result<u8> {
    if !named(&args.grants) {
        bail!("nothing to grant; `dormouse tenant grant --help` lists the grants");
    }
    let log = context.connect().await?;
    operator::change(context, &log, async || changed(&log, args).await).await
}

async fn changed(log: &Log, args: &GrantArgs) -> anyhow::Result<Change> {
    let name = &args.tenant.name;
    caught_up(log).await?;
    let tenants: TenantsAnswer = query(log, "tenants", Value::Null).await?;
    let before = tenants.tenants.iter().find(|row| row.tenant == *name);
    let before = before.map(|row| row.grants.clone()).unwrap_or_default();
    let event = TenantGranted {
        tenant: name.clone(),
        grants: granted(&args.grants, before)?,
    };
    let new = known::new_tenant(name, &tenants.tenants);
    let mut notes: Vec<String> = new.into_iter().collect();
    let classes = &args.grants.priority_class;
    if !classes.is_empty() {
        let cluster: ClusterAnswer = query(log, "cluster", Value::Null).await?;
        notes.extend(known::undefined_classes(classes, &cluster.policy));
    }
    Ok(Change {
        said: format!("{name}: granted {}", describe::grants(&event.grants)),
        events: vec![Event::from(event)],
        notes,
    })
}
