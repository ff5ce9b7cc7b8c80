//! Reading the log without a consumer, by requests for ranges, which any replica answers. A lagging replica
//! has fewer messages, never others. Each message names its predecessor, which reveals losses.

use std::time::Duration;

use async_nats::StatusCode;
use async_nats::jetstream::message::StreamMessage;
use futures::StreamExt;

use crate::answer::ANSWER_TIMEOUT;
use crate::decode::RawMessage;
use crate::log::Log;

pub(crate) const AGAIN: Duration = Duration::from_millis(50);

const RANGE: usize = 1_000;

/// Status at the end of a complete answer.
const END: u16 = 204;

pub(crate) async fn next(
    log: &Log,
    api: &str,
    stream: &str,
    from: u64,
) -> Result<Vec<RawMessage>, String> {
    let asked = asked(log, api, stream, from);
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
    answered.map_err(|_| "no answer in time".to_owned())?
}

async fn asked(log: &Log, api: &str, stream: &str, from: u64) -> Result<Vec<RawMessage>, String> {
    let client = &log.inner.connection.client;
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(|error| error.to_string())?;
    let request = format!(r#"{{"seq":{from},"batch":{RANGE}}}"#);
    let subject = format!("{api}.DIRECT.GET.{stream}");
    let sent = client.publish_with_reply(subject, inbox, request.into());
    sent.await.map_err(|error| error.to_string())?;
    let mut range: Vec<RawMessage> = Vec::new();
    loop {
        let answer = answers.next().await.ok_or("the connection was lost")?;
        match answer.status {
            None => {}
            Some(status) if status.as_u16() == END => return Ok(range),
            Some(StatusCode::NOT_FOUND) => return Ok(range),
            Some(status) => {
                let why = answer.description.unwrap_or_default();
                return Err(format!("the broker does not give the log: {status} {why}"));
            }
        }
        let message = raw(answer)?;
        let before = range.last().map_or(0, |last| last.sequence);
        if message.1 != before {
            return Err("a message of a range is missing".to_owned());
        }
        range.push(message.0);
    }
}

fn raw(answer: async_nats::Message) -> Result<(RawMessage, u64), String> {
    // The broker appends its headers; earlier ones may be the writer's.
    let number = |name: &str| {
        let value = answer.headers.as_ref()?.get_last(name)?;
        value.as_str().parse::<u64>().ok()
    };
    let before = number("Nats-Last-Sequence").unwrap_or_default();
    let pending = number("Nats-Num-Pending").unwrap_or_default();
    let stored = StreamMessage::try_from(answer).map_err(|error| error.to_string())?;
    let message = RawMessage {
        sequence: stored.sequence,
        stored_nanos: stored.time.unix_timestamp_nanos(),
        subject: stored.subject,
        headers: Some(stored.headers),
        payload: stored.payload,
        pending,
    };
    Ok((message, before))
}
