//! The broker's answers: waits within a time, repeated until the broker can answer, and the form of replies.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::Message;
use serde::Deserialize;

use crate::error::LogError;

/// Covers the election of a stream leader.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const NO_ANSWER: &str = "no answer in time";

const FULL: &str = "maximum messages per subject";

/// A reply of JetStream, or of the brokers' own services.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    pub seq: u64,
    pub state: Option<Contents>,
    error: Option<ReplyError>,
}

/// The asked-for subjects of a stream, with their numbers of messages.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Contents {
    pub subjects: Option<BTreeMap<String, u64>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplyError {
    pub code: u64,
    pub err_code: u64,
    pub description: String,
}

impl Reply {
    /// Returns the reply or the broker's error; the outer error is that of an unreadable answer.
    pub fn read(answer: &Message) -> Result<Result<Self, ReplyError>, String> {
        let mut reply: Self =
            serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())?;
        Ok(reply.error.take().map_or(Ok(reply), Err))
    }
}

impl ReplyError {
    /// Reports whether the ingress is full for the tenant, so that a retry may succeed.
    pub fn is_full(&self) -> bool {
        self.description.contains(FULL)
    }
}

/// The library does not, while its buffer is full.
pub(crate) async fn within<T, E: std::fmt::Display>(
    request: impl IntoFuture<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(once(error.to_string())),
        Err(_) => Err(NO_ANSWER.to_owned()),
    }
}

/// Removes a repetition: the library's errors name kind and source, often in equal words.
pub(crate) fn once(why: String) -> String {
    let halves = why.len().checked_sub(2).map(|rest| rest / 2);
    match halves.and_then(|half| Some((why.get(..half)?, why.get(half..)?))) {
        Some((first, second)) if second.strip_prefix(": ") == Some(first) => first.to_owned(),
        _ => why,
    }
}

/// Retries, since a new cluster elects its leaders first.
pub(crate) async fn patiently<T, E, F>(
    operation: &'static str,
    name: &str,
    unrecoverable: impl Fn(&E) -> Option<LogError>,
    mut request: impl FnMut() -> F,
) -> Result<T, LogError>
where
    E: std::fmt::Display,
    F: IntoFuture<Output = Result<T, E>>,
{
    let mut attempts_left = 60_u32;
    loop {
        let why = match tokio::time::timeout(ANSWER_TIMEOUT, request()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => match unrecoverable(&error) {
                Some(error) => return Err(error),
                None => once(error.to_string()),
            },
            Err(_) => NO_ANSWER.to_owned(),
        };
        if attempts_left == 0 {
            return Err(LogError::request(operation, name, why));
        }
        if attempts_left.is_multiple_of(10) {
            tracing::info!(operation, name, why, "not yet; trying again");
        }
        attempts_left -= 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::once;

    #[test]
    fn what_is_said_twice_is_said_once() {
        let said = |why: &str| once(why.to_owned());
        assert_eq!(said("no responders: no responders"), "no responders");
        for why in ["", ":", "é: è", "no: responders"] {
            assert_eq!(said(why), why);
        }
    }
}
