//! `reservation list`.

use clap::Args;
use dormouse_messages::reservation::{Reservation, ReservationPhase};
use dormouse_messages::{NodeId, ReservationId, Timestamp};
use serde::{Deserialize, Serialize};

use super::folded;
use crate::cli::filter::WatchArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::describe::entitlement::{span, whom};
use crate::render::{Style, date};

/// List the reservations and their nodes
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse reservation list\n  dormouse reservation list -o json"
)]
pub struct ListArgs {
    #[command(flatten)]
    pub watch: WatchArg,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationView {
    pub reservation: ReservationId,
    /// `None` until admission has answered.
    pub phase: Option<ReservationPhase>,
    pub nodes: Vec<NodeId>,
    /// Start of the present or next occurrence.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub settings: Reservation,
}

/// Runs `reservation list`.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(context: &Context, args: ListArgs) -> anyhow::Result<u8> {
    let ask = async || {
        let state = folded(context).await?;
        let views = state.reservations.iter().map(|(name, it)| ReservationView {
            reservation: name.clone(),
            phase: it.phase(),
            nodes: it.nodes.clone(),
            from: it.occurrence.map(|it| it.from),
            until: it.occurrence.map(|it| it.until),
            settings: it.settings.clone(),
        });
        Ok(views.collect::<Vec<_>>())
    };
    watched::repeat(context, args.watch, ask, table).await
}

fn table(views: &Vec<ReservationView>, style: &Style) -> String {
    if views.is_empty() {
        return "no reservations; `dormouse reservation set` makes one".to_owned();
    }
    let mut table = style.table(&[
        "RESERVATION",
        "PHASE",
        "NODES",
        "FROM",
        "UNTIL",
        "EVERY",
        "FOR",
        "WHY",
    ]);
    for view in views {
        let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), date);
        let settings = &view.settings;
        let nodes: Vec<&str> = view.nodes.iter().map(NodeId::as_str).collect();
        table.add_row(vec![
            view.reservation.to_string(),
            view.phase.map_or("-", ReservationPhase::as_str).to_owned(),
            nodes.join(", "),
            time(view.from),
            time(view.until),
            settings.every_s.map_or_else(|| "-".to_owned(), span),
            whom(settings),
            settings.reason.clone().unwrap_or_default(),
        ]);
    }
    style.write(table)
}
