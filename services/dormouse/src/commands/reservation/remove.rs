//! `reservation remove`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::ReservationRemoved;

use super::{ReservationArg, folded};
use crate::commands::common::operator;
use crate::context::Context;
use crate::error::Coded;

/// End a reservation now, and all its later occurrences
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse reservation remove maintenance")]
pub struct RemoveArgs {
    #[command(flatten)]
    pub reservation: ReservationArg,
}

/// Runs `reservation remove NAME`.
///
/// # Errors
/// If there is no such reservation, or the event cannot be appended.
pub async fn run(context: &Context, args: &RemoveArgs) -> anyhow::Result<u8> {
    let reservation = args.reservation.name.clone();
    if folded(context)
        .await?
        .reservations
        .get(&reservation)
        .is_none()
    {
        let message = format!(
            "there is no reservation {reservation}; `dormouse reservation list` shows them"
        );
        return Err(Coded::new("not_found", message).into());
    }
    let said = format!("reservation {reservation} is removed");
    operator::append(
        context,
        Event::from(ReservationRemoved { reservation }),
        &said,
    )
    .await
}
