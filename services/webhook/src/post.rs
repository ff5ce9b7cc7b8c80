//! Posts a CloudEvents event in structured mode over HTTP.

use std::time::Duration;

use crate::signature::Secret;

const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";
/// Shortest and longest pause between tries.
const PAUSES_S: (u64, u64) = (1, 300);
/// An event is dropped after this time; it stays on the log.
const GIVE_UP: Duration = Duration::from_secs(86_400);
/// A receiver accepts an event first and works on it later.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An event to post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// Equal in every try.
    pub id: String,
    /// JSON.
    pub body: String,
}

/// Returns the HTTP client. It follows no redirects: the operator named this address alone.
pub fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent("dormouse-webhook")
        .build()
        .into()
}

/// Posts once. `now` is in seconds since 1970.
///
/// # Errors
/// No answer, or an answer without success.
pub fn once(
    agent: &ureq::Agent,
    url: &str,
    secret: &Secret,
    post: &Post,
    now: i64,
) -> Result<(), String> {
    let answer = agent
        .post(url)
        .header("content-type", CONTENT_TYPE)
        .header("webhook-id", &post.id)
        .header("webhook-timestamp", now.to_string())
        .header(
            "webhook-signature",
            secret.sign(&post.id, now, post.body.as_bytes()),
        )
        .send(post.body.as_bytes())
        .map_err(|error| error.to_string())?;
    if answer.status().is_success() {
        Ok(())
    } else {
        Err(format!("it answered {}", answer.status()))
    }
}

/// Returns the pause after `tries` tries, or `None` to give up after `spent`.
pub fn pause(tries: u32, spent: Duration) -> Option<Duration> {
    let (least, most) = PAUSES_S;
    let seconds = least.saturating_mul(1 << tries.saturating_sub(1).min(16));
    (spent < GIVE_UP).then(|| Duration::from_secs(seconds.min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes_for_a_day() {
        let seconds = |tries| pause(tries, Duration::ZERO).map(|pause| pause.as_secs());
        let first: Vec<_> = (1..=10).filter_map(seconds).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(seconds(u32::MAX), Some(300));
        assert_eq!(pause(5, GIVE_UP), None);
    }
}
