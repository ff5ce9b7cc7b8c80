//! Reading the log from a separate account: agents and gateways by a provisioned consumer, persons by ranges
//! (`ranges`).
//!
//! A consumer may deliver to any subject, so a key that creates consumers could write in any name. An agent's
//! account therefore imports only a few requests, with rewritten replies, and the agent resets its one
//! consumer. A person's concurrent commands would reset each other's consumer.

use async_nats::Request;
use async_nats::jetstream;
use async_nats::jetstream::consumer::PullConsumer;
use dormouse_messages::Prefix;

use crate::answer::{Reply, within};
use crate::connection::{Connection, NoAnswer};

#[derive(Debug, Clone)]
pub(crate) struct Own {
    /// The consumer; `None` for ranges.
    pub name: Option<String>,
    /// Replaces `$JS.API`.
    pub api: String,
}

/// The broker's answer to an account without streams.
const NOT_ENABLED_FOR_ACCOUNT: u64 = 10_039;

pub(crate) async fn find(connection: &Connection, prefix: &Prefix, name: &str) -> Option<Own> {
    let api = prefix.own_api();
    let subject = format!("{api}.CONSUMER.INFO.{}.{name}", prefix.log_stream());
    match connection.ask(&subject, Request::new()).await {
        Ok(_) => {
            let name = Some(name.to_owned());
            Some(Own { name, api })
        }
        Err(
            NoAnswer::Nobody | NoAnswer::Doubt(_) | NoAnswer::Denied | NoAnswer::TooLarge { .. },
        ) => None,
    }
}

/// The key is not an operator's.
pub(crate) struct NoLog;

pub(crate) async fn find_person(
    connection: &Connection,
    prefix: &Prefix,
) -> Result<Option<Own>, NoLog> {
    let of_the_account = format!("$JS.API.STREAM.INFO.{}", prefix.log_stream());
    let answer = match connection.ask(&of_the_account, Request::new()).await {
        Ok(answer) => answer,
        Err(NoAnswer::Denied) => return Err(NoLog),
        Err(NoAnswer::Nobody | NoAnswer::Doubt(_) | NoAnswer::TooLarge { .. }) => return Ok(None),
    };
    let error = Reply::read(&answer).ok().and_then(Result::err);
    let elsewhere = error.is_some_and(|error| error.err_code == NOT_ENABLED_FOR_ACCOUNT);
    Ok(elsewhere.then(|| Own {
        name: None,
        api: prefix.own_api(),
    }))
}

impl Own {
    pub async fn reset(
        &self,
        connection: &Connection,
        jetstream: &jetstream::Context,
        stream: &str,
        from: u64,
    ) -> Result<PullConsumer, String> {
        let name = self.name.as_deref().unwrap_or_default();
        let subject = format!("{}.CONSUMER.RESET.{stream}.{name}", self.api);
        let asked = format!(r#"{{"seq":{from}}}"#);
        let request = Request::new().payload(asked.into());
        let answer = connection.ask(&subject, request).await;
        let answer = answer.map_err(|error| self.absent(&format!("{error:?}")))?;
        Reply::read(&answer)?.map_err(|error| self.absent(&error.description))?;
        let stream = within(jetstream.get_stream_no_info(stream)).await?;
        within(stream.get_consumer(name)).await
    }

    fn absent(&self, why: &str) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        format!(
            "the reader {name} of the log: {why}; where there is none, the operator makes it with `dormouse policy set FILE --reader {name}`"
        )
    }
}
