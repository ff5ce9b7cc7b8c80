//! Appends operators' events.

use dormouse_messages::{Event, Sequence, Writer};
use dormouse_runtime::{AppendError, Appender, Log};
use serde_json::json;

use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

const ATTEMPTS: u32 = 100;

/// Appends an operator's event.
///
/// # Errors
/// If the event cannot be appended.
pub async fn append(context: &Context, event: Event, said: &str) -> anyhow::Result<u8> {
    append_to(context.connect().await?, context, vec![event], said).await
}

/// Appends an operator's events in order.
///
/// # Errors
/// If an event cannot be appended.
pub async fn append_to(
    log: Log,
    context: &Context,
    events: Vec<Event>,
    said: &str,
) -> anyhow::Result<u8> {
    // Without its stream, an append would wait without end.
    log.head().await?;
    let appender = log.appender(Writer::Operator, None);
    shown_at(context, append_all(appender, events).await?, said)
}

async fn append_all(mut appender: Appender, events: Vec<Event>) -> Result<Sequence, AppendError> {
    let mut sequence = Sequence(0);
    for event in events {
        sequence = appender.append(event, &[]).await?;
    }
    Ok(sequence)
}

/// Events derived from the operators' earlier events.
#[derive(Debug, Default)]
pub struct Change {
    pub events: Vec<Event>,
    pub said: String,
    pub notes: Vec<String>,
}

/// Appends the events that `make` derives from the operators' events so far. If another operator appends
/// meanwhile, `make` runs again.
///
/// # Errors
/// If the events cannot be made or appended.
pub async fn change(
    context: &Context,
    log: &Log,
    make: impl AsyncFn() -> anyhow::Result<Change>,
) -> anyhow::Result<u8> {
    for _ in 0..ATTEMPTS {
        // Read first: any later operator event is a conflict.
        let last = log.last_of_operators().await?;
        let change = make().await?;
        match append_all(log.operator_after(last), change.events).await {
            Ok(sequence) => {
                for note in change.notes {
                    print::aside(format!("note: {note}"));
                }
                return shown_at(context, sequence, &change.said);
            }
            Err(AppendError::Superseded { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let why = "other operators' commands change the cluster all the time; try again";
    Err(Coded::new("busy", why).into())
}

fn shown_at(context: &Context, sequence: Sequence, said: &str) -> anyhow::Result<u8> {
    let answer = json!({"sequence": sequence});
    print::value(context.output()?, &answer, |_, _| {
        match said.split_once('\n') {
            Some((first, rest)) => format!("{first} event {sequence}\n{rest}"),
            None => format!("{said} (event {sequence})"),
        }
    })?;
    Ok(DONE)
}
