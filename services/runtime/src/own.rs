//! Clients in accounts of their own: agents and gateways, each with a reader of the log made in
//! advance, and operators, who read it by requests for ranges (`ranges`).
//!
//! Who may create consumers of the log may have one deliver to any subject of the account, and the
//! broker checks no reply subject: such a key could write in anybody's name. So an agent's user is in
//! an account of its own, where the imports rewrite every reply. Of the broker's interface it imports
//! a few requests, under a prefix of their own (the broker answers `$JS.API` for each account by
//! itself), and it fetches through one consumer that the operator made. Where the reading begins it
//! says by a reset of that consumer. A person runs several commands at once, which would reset each
//! other's reading: a request for a range needs no consumer.

use async_nats::Request;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, ReplayPolicy, pull};
use serde::Deserialize;

use crate::connection::{Connection, NoAnswer};
use crate::error::LogError;
use crate::log::{Log, within};
use dormouse_messages::Prefix;

/// A client's own reader of the log.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    /// The consumer; `None`: the log is read by ranges.
    pub name: Option<String>,
    /// What stands in place of `$JS.API`.
    pub api: String,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    description: String,
}

/// The broker's answer where the asker's account holds no streams.
const NOT_ENABLED_FOR_ACCOUNT: u64 = 10_039;

/// Whether the broker has requests of its own for the client `name`: then it is in an account of its
/// own, and reads through the consumer of that name.
pub(crate) async fn find(connection: &Connection, prefix: &Prefix, name: &str) -> Option<Own> {
    let api = prefix.own_api();
    let subject = format!("{api}.CONSUMER.INFO.{}.{name}", prefix.log_stream());
    match connection.ask(&subject, Request::new()).await {
        Ok(_) => {
            let name = Some(name.to_owned());
            Some(Own { name, api })
        }
        // Nobody answers there, or a key of the log's own account may not ask.
        Err(
            NoAnswer::Nobody | NoAnswer::Doubt(_) | NoAnswer::Denied | NoAnswer::TooLarge { .. },
        ) => None,
    }
}

/// A key that may not ask for the log's state at all: no operator's.
pub(crate) struct NoLog;

/// Whether a person's account is one of their own: it holds no streams, and asks for the log
/// elsewhere.
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
    let answer: Option<Answer> = serde_json::from_slice(&answer.payload).ok();
    let error = answer.and_then(|answer| answer.error);
    let elsewhere = error.is_some_and(|error| error.err_code == NOT_ENABLED_FOR_ACCOUNT);
    Ok(elsewhere.then(|| Own {
        name: None,
        api: prefix.own_api(),
    }))
}

impl Own {
    /// The consumer, that delivers from sequence `from` on.
    pub async fn reset(&self, log: &Log, stream: &str, from: u64) -> Result<PullConsumer, String> {
        let name = self.name.as_deref().unwrap_or_default();
        let subject = format!("{}.CONSUMER.RESET.{stream}.{name}", self.api);
        let asked = format!(r#"{{"seq":{from}}}"#);
        let request = Request::new().payload(asked.into());
        let answer = log.inner.connection.ask(&subject, request).await;
        let answer = answer.map_err(|error| self.absent(&format!("{error:?}")))?;
        let answer: Answer =
            serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())?;
        if let Some(error) = answer.error {
            return Err(self.absent(&error.description));
        }
        let stream = within(log.inner.jetstream.get_stream_no_info(stream)).await?;
        within(stream.get_consumer(name)).await
    }
}

impl Own {
    fn absent(&self, why: &str) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        format!(
            "the reader {name} of the log: {why}; where there is none, the operator makes it with `dormouse configure FILE --reader {name}`"
        )
    }
}

impl Log {
    /// Makes the readers of the log for the agents and gateways whose keys may make none themselves:
    /// `node-n0`, `gateway-g0`. What exists stays.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer.
    pub async fn ensure_readers(&self, names: &[String]) -> Result<(), LogError> {
        let stream = self.prefix().log_stream();
        for name in names {
            let config = pull::Config {
                durable_name: Some(name.clone()),
                deliver_policy: DeliverPolicy::All,
                ack_policy: AckPolicy::None,
                replay_policy: ReplayPolicy::Instant,
                ..pull::Config::default()
            };
            let jetstream = &self.inner.jetstream;
            within(jetstream.create_consumer_on_stream(config, &stream))
                .await
                .map_err(|why| LogError::request("make the reader", name, why))?;
        }
        Ok(())
    }
}
