//! `reservation set`.

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::ReservationConfigured;
use dormouse_messages::reservation::Reservation;
use dormouse_messages::{Amounts, Event, JobId, NodeId, TenantId, Timestamp};

use super::{ReservationArg, folded};
use crate::cli::duration::Span;
use crate::cli::job_name::job_id;
use crate::cli::log_range::At;
use crate::cli::node::capacity;
use crate::clock;
use crate::commands::common::operator;
use crate::context::Context;
use crate::describe::entitlement::reservation;

const LEAST_S: u64 = 60;

/// Make a reservation, or replace one
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse reservation set maintenance --nodes n3,n4 --from 2026-12-01T08:00:00Z --for 4h\n  dormouse reservation set course --amounts gpu=16 --from 2026-12-07T09:00:00Z --for 2h --every 7d --tenant students\n  dormouse reservation set rerun --nodes n1 --from 2026-12-01T00:00:00Z --for 1d --job ads/lr --lead 10m\n\nJobs with checkpoints leave --lead before the beginning. Other jobs start there only if their time limit ends before; a job that cannot move stays until it ends. Without --tenant and --job the nodes are for nobody."
)]
pub struct SetArgs {
    #[command(flatten)]
    pub reservation: ReservationArg,
    /// Nodes, separated by commas.
    #[arg(
        long,
        value_name = "NODES",
        value_delimiter = ',',
        conflicts_with = "amounts",
        required_unless_present = "amounts"
    )]
    pub nodes: Vec<NodeId>,
    /// Amounts, such as gpu=16; the cluster chooses nodes for each occurrence.
    #[arg(long, value_name = "AMOUNTS", value_parser = capacity)]
    pub amounts: Option<Amounts>,
    /// Beginning, such as 2026-12-01T08:00:00Z; of a repeated reservation, the first.
    #[arg(long, value_name = "TIME", value_parser = beginning)]
    pub from: Timestamp,
    /// Length.
    #[arg(long = "for", value_name = "TIME")]
    pub length: Span,
    /// Time from one beginning to the next, such as 7d. Default: once.
    #[arg(long, value_name = "TIME")]
    pub every: Option<Span>,
    /// Time before the beginning at which other jobs leave.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub lead: Span,
    /// Tenant whose jobs may run there; may be repeated.
    #[arg(long = "tenant", value_name = "TENANT")]
    pub tenants: Vec<TenantId>,
    /// Job that may run there; may be repeated.
    #[arg(long = "job", value_name = "JOB", value_parser = job_id)]
    pub jobs: Vec<JobId>,
    /// Reason, shown with the nodes.
    #[arg(long)]
    pub reason: Option<String>,
}

fn beginning(text: &str) -> Result<Timestamp, String> {
    match text.parse()? {
        At::Time(time) => Ok(time),
        _ => Err(format!(
            "{text:?} is no date; write a time such as 2026-12-01T08:00:00Z"
        )),
    }
}

impl SetArgs {
    fn settings(&self) -> anyhow::Result<Reservation> {
        let length_s = self.length.0.as_secs();
        if length_s < LEAST_S {
            bail!(
                "--for {} is shorter than a job starts and saves; write 1m or more",
                self.length
            );
        }
        let every_s = self.every.map(|every| every.0.as_secs());
        let lead_s = self.lead.0.as_secs();
        let end = self.from.plus_ms(length_s.saturating_mul(1_000));
        if every_s.is_none() && end <= clock::now() {
            bail!(
                "the reservation ended at {}; write a later --from",
                end.to_words()
            );
        }
        if every_s.is_some_and(|every_s| every_s < length_s + lead_s) {
            bail!("--every is shorter than --for and --lead together; write a longer time");
        }
        Ok(Reservation {
            nodes: self.nodes.iter().cloned().collect(),
            amounts: self.amounts.clone().unwrap_or_default(),
            from: self.from,
            length_s,
            every_s,
            lead_s,
            tenants: self.tenants.iter().cloned().collect(),
            jobs: self.jobs.iter().cloned().collect(),
            reason: self.reason.clone(),
        })
    }
}

/// Runs `reservation set NAME`.
///
/// # Errors
/// If the times make no sense, a node is not known, or the event cannot be appended.
pub async fn run(context: &Context, args: &SetArgs) -> anyhow::Result<u8> {
    let settings = args.settings()?;
    let state = folded(context).await?;
    let unknown = settings
        .nodes
        .iter()
        .find(|node| state.nodes.get(node).is_none());
    if let Some(node) = unknown {
        bail!("no node {node} has joined; `dormouse nodes` lists those that have");
    }
    let mut all = Amounts::new();
    state
        .nodes
        .iter()
        .for_each(|(_, node)| all.add(&node.capacity, 1));
    if let Some(resource) = settings.amounts.first_short(&all, 1) {
        bail!(
            "all nodes together have {} {}; reserve less, or nodes by name",
            resource.display(all.get(resource)),
            resource.name()
        );
    }
    let name = args.reservation.name.clone();
    let said = format!("{name}: {}", reservation(&settings));
    let event = ReservationConfigured {
        reservation: name,
        settings,
    };
    operator::append(context, Event::from(event), &said).await
}
