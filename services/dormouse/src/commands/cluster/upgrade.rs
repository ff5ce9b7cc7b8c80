//! `cluster upgrade`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::UpgradeApproved;
use dormouse_projections::queries::ClusterAnswer;
use dormouse_state::Gate;
use serde_json::Value;

use crate::commands::common::{operator, query};
use crate::context::Context;
use crate::error::Coded;

/// Approve the newer format of the log that every process reads; older builds no longer run then
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse cluster doctor      # which builds run where, and what an upgrade waits for\n  dormouse cluster upgrade\n\nOnly the policy upgrades: manual waits for this command. Until then a downgrade is possible."
)]
pub struct UpgradeArgs;

/// Runs `cluster upgrade`.
///
/// # Errors
/// If there is no newer format, a process does not read it, or the append fails.
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let cluster: ClusterAnswer = query(&log, "cluster", Value::Null).await?;
    let now = cluster.builds.format;
    let format = match cluster.builds.gate {
        Gate::Unapproved { format } => format,
        Gate::Settles { format, .. } | Gate::Opens { format } => {
            let message = format!("the cluster begins to write format {format} by itself");
            return Err(Coded::new("not_needed", message).into());
        }
        Gate::Idle => {
            let message = format!("the log has format {now}, and no process reads a newer one");
            return Err(Coded::new("not_needed", message).into());
        }
        Gate::Waits { format, processes } => {
            let message = format!(
                "format {format} is not read by {}; start the newer build there, or stop them",
                processes.join(", ")
            );
            return Err(Coded::new("in_use", message).into());
        }
    };
    let said = format!("format {format} is approved; no older build runs once it is written");
    let event = Event::from(UpgradeApproved { format });
    operator::append_to(log, context, vec![event], &said).await
}
