//! A tenant's client, held to the suite of `messages/clients`.
//!
//! 1. The broker's acknowledgement of a message means stored. After a lost connection the message is sent
//!    again, which the job's name makes safe.
//! 2. The status subjects, subscribed beforehand, carry the outcome.
//! 3. Status messages can be lost: the query `job` tells about a silent submission.

mod types;

use std::time::Duration;

use async_nats::{HeaderMap, Request, Subscriber};
use bytes::Bytes;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{Envelope, Event, JobId, TenantId};
use futures::StreamExt;
use futures::stream::{SelectAll, select_all};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::accounts::plan::PAYLOAD_BYTES;
use crate::answer::Reply;
use crate::api::FULL_PAUSE;
use crate::connection::{Connection, NoAnswer};
use crate::error::LogError;
use crate::retry::retry;
use crate::settings::Settings;
pub use types::{Encoding, Submission, TenantError, Wait, sha256};

const SILENCE: Duration = Duration::from_secs(2);

/// Limit of unacknowledged messages.
const AT_ONCE: usize = 256;

type Decisions = SelectAll<Subscriber>;

/// A tenant's connection.
pub struct Tenant {
    connection: Connection,
    prefix: dormouse_messages::Prefix,
    tenant: TenantId,
    encoding: Encoding,
    patience: Duration,
    publishing: Semaphore,
}

impl Tenant {
    /// Connects as `tenant`, with `patience` for each answer.
    ///
    /// # Errors
    /// When there is no broker.
    pub async fn connect(
        settings: &Settings,
        tenant: TenantId,
        encoding: Encoding,
        patience: Duration,
    ) -> Result<Self, TenantError> {
        Ok(Self {
            connection: Connection::open(settings).await?,
            prefix: settings.prefix.clone(),
            tenant,
            encoding,
            patience,
            publishing: Semaphore::new(AT_ONCE),
        })
    }

    /// Submits a document; an equal one under the same name is the same job.
    ///
    /// # Errors
    /// The refusal, among others.
    pub async fn submit(
        &self,
        document: &Value,
        wait: Wait,
        traceparent: Option<&str>,
    ) -> Result<Submission, TenantError> {
        let limit = Instant::now() + self.patience;
        let payload = self.encoding.encode(document);
        let name = document["name"].as_str().unwrap_or_default();
        let mut submission = Submission {
            job: format!("{}/{name}", self.tenant),
            ingress_sequence: 0,
            state: "stored".to_owned(),
            existing: false,
        };
        if wait == Wait::Accepted {
            let sent = self.publish("submit", &payload, traceparent, limit);
            submission.ingress_sequence = sent.await?;
            return Ok(submission);
        }
        let mut decisions = self.decisions("submit").await?;
        // An invalid name has no status subject.
        let follows = matches!(wait, Wait::Started | Wait::Ended);
        let mut events = match JobId::new(&self.tenant, name) {
            Ok(_) if follows => Some(self.listen(&format!("{name}.>")).await?),
            _ => None,
        };
        submission.ingress_sequence = self.publish("submit", &payload, traceparent, limit).await?;
        let sha256 = sha256(&payload);
        let decided = loop {
            let silence = limit.min(Instant::now() + SILENCE);
            match self
                .decision(&mut decisions, submission.ingress_sequence, silence)
                .await
            {
                Err(TenantError::TimedOut { .. }) if Instant::now() < limit => {
                    if let Some(known) = self.known(&submission, &sha256).await {
                        break Ok(known);
                    }
                }
                decided => break decided.map(|_| submission.clone()),
            }
        };
        let mut submission = match decided {
            Err(TenantError::Refused { code, reason }) if code == "name_in_use" => {
                let known = self.known(&submission, &sha256).await;
                known.ok_or(TenantError::Refused { code, reason })?
            }
            decided => decided?,
        };
        submission.state = "admitted".to_owned();
        match &mut events {
            Some(events) => self.follow(submission, events, wait).await,
            None => Ok(submission),
        }
    }

    /// Changes a job by a [`ReviseDocument`](dormouse_messages::ReviseDocument) as JSON.
    ///
    /// # Errors
    /// The refusal, among others.
    pub async fn revise(&self, document: &Value) -> Result<Event, TenantError> {
        self.change("revise", document).await
    }

    /// Reports latencies measured at the tenant's own proxy: a
    /// [`MeasuredDocument`](dormouse_messages::MeasuredDocument) as JSON. A timed-out report may still count.
    ///
    /// # Errors
    /// The refusal, among others.
    pub async fn measure(&self, document: &Value) -> Result<Event, TenantError> {
        self.change(MEASURED, document).await
    }

    /// Publishes a change and returns the resulting event.
    ///
    /// # Errors
    /// The refusal, among others.
    pub async fn change(&self, verb: &str, document: &Value) -> Result<Event, TenantError> {
        let limit = Instant::now() + self.patience;
        let mut decisions = self.decisions(verb).await?;
        let payload = self.encoding.encode(document);
        let sequence = self.publish(verb, &payload, None, limit).await?;
        self.decision(&mut decisions, sequence, limit).await
    }

    /// Follows a job's events from now on.
    ///
    /// # Errors
    /// When the broker denies it.
    pub async fn watch(&self, name: &str) -> Result<Watched, TenantError> {
        let events = self.listen(&format!("{name}.>")).await?;
        Ok(Watched { events, last: 0 })
    }

    /// Sends a query about this tenant.
    ///
    /// # Errors
    /// The refusal, among others.
    pub async fn query(&self, name: &str, request: &Value) -> Result<Value, TenantError> {
        let subject = self.prefix.tenant_api(self.tenant.as_str(), name);
        let payload = match request {
            Value::Null => Vec::new(),
            request => request.to_string().into_bytes(),
        };
        let limit = Instant::now() + self.patience;
        let answer = self
            .ask(&subject, &payload, HeaderMap::new(), limit)
            .await?;
        let headers = answer.headers.as_ref();
        if let Some(refused) = headers.and_then(|headers| headers.get("Nats-Service-Error")) {
            let (code, reason) = refused.as_str().split_once(": ").unwrap_or_default();
            return Err(TenantError::refused(code, reason));
        }
        let read = serde_json::from_slice(&answer.payload);
        Ok(read.map_err(|why| LogError::request("ask", &subject, why))?)
    }

    async fn decisions(&self, verb: &str) -> Result<Decisions, TenantError> {
        let decisions: &[&str] = match verb {
            MEASURED => &[
                "service.measured",
                "job.refused",
                "submissions.rate_limited",
            ],
            _ => &["job.*", "submissions.rate_limited"],
        };
        let mut all = Vec::with_capacity(decisions.len());
        for decision in decisions {
            all.push(self.listen(&format!("_in.*.{decision}")).await?);
        }
        Ok(select_all(all))
    }

    async fn listen(&self, tail: &str) -> Result<Subscriber, TenantError> {
        let subject = self.prefix.status(&format!("{}.{tail}", self.tenant));
        let failed = |why: String| LogError::request("listen to", &subject, why);
        let subscriber = self.connection.client.subscribe(subject.clone()).await;
        Ok(subscriber.map_err(|error| failed(error.to_string()))?)
    }

    async fn publish(
        &self,
        verb: &str,
        payload: &[u8],
        traceparent: Option<&str>,
        limit: Instant,
    ) -> Result<u64, TenantError> {
        let mut headers = HeaderMap::new();
        headers.insert("Content-Type", self.encoding.content_type());
        if let Some(traceparent) = traceparent {
            headers.insert("traceparent", traceparent);
        }
        let subject = self.prefix.submit(&self.tenant, verb);
        let _turn = self.publishing.acquire().await.ok();
        let store = || async {
            let answer = self.ask(&subject, payload, headers.clone(), limit).await?;
            let failed = |why: String| LogError::request("publish on", &subject, why);
            match Reply::read(&answer).map_err(failed)? {
                Ok(reply) => Ok(reply.seq),
                Err(error) if error.is_full() => Err(TenantError::Full(subject.clone())),
                Err(error) => Err(TenantError::Log(failed(error.description))),
            }
        };
        let is_full = |error: &TenantError| matches!(error, TenantError::Full(_));
        let patience = limit.saturating_duration_since(Instant::now() + FULL_PAUSE);
        retry(FULL_PAUSE, patience, is_full, store).await
    }

    async fn ask(
        &self,
        subject: &str,
        payload: &[u8],
        headers: HeaderMap,
        limit: Instant,
    ) -> Result<async_nats::Message, TenantError> {
        let late = || TenantError::TimedOut {
            what: format!("no answer on {subject} in time"),
            stored: false,
        };
        let payload = Bytes::copy_from_slice(payload);
        let too_large = |most: usize| {
            let bytes = payload.len();
            let reason = format!("the document has {bytes} bytes; the broker takes {most}");
            TenantError::refused("too_large", &reason)
        };
        if payload.len() > PAYLOAD_BYTES as usize {
            return Err(too_large(PAYLOAD_BYTES as usize));
        }
        loop {
            let request = Request::new()
                .headers(headers.clone())
                .payload(payload.clone());
            let asked = timeout_at(limit, self.connection.ask(subject, request));
            match asked.await.map_err(|_| late())? {
                Ok(answer) => return Ok(answer),
                Err(NoAnswer::Denied) => return Err(TenantError::Denied(subject.to_owned())),
                Err(NoAnswer::TooLarge { limit }) => return Err(too_large(limit)),
                Err(NoAnswer::Nobody) => {
                    return Err(TenantError::Unavailable(subject.to_owned()));
                }
                Err(NoAnswer::Doubt(_)) if Instant::now() < limit => {}
                Err(NoAnswer::Doubt(_)) => return Err(late()),
            }
        }
    }

    async fn decision(
        &self,
        decisions: &mut Decisions,
        sequence: u64,
        limit: Instant,
    ) -> Result<Event, TenantError> {
        let undecided = || TenantError::TimedOut {
            what: format!("message {sequence} is stored, but nothing has decided on it yet"),
            stored: true,
        };
        let token = sequence.to_string();
        loop {
            let next = timeout_at(limit, decisions.next()).await;
            let message = next.ok().flatten().ok_or_else(undecided)?;
            if message.subject.rsplit('.').nth(2) != Some(&token) {
                continue;
            }
            return match event_of(&message) {
                Some(Event::JobRefused(refused)) => {
                    Err(TenantError::refused(&refused.code, &refused.reason))
                }
                Some(Event::SubmissionsRateLimited(refused)) => {
                    let what = refused.verb.map_or("messages", |_| "measurements");
                    let reason =
                        format!("more than {} {what} a second; send fewer", refused.max_rate);
                    Err(TenantError::refused("too_fast", &reason))
                }
                Some(event) => Ok(event),
                None => continue,
            };
        }
    }

    async fn known(&self, submission: &Submission, sha256: &str) -> Option<Submission> {
        let row = self
            .query("job", &json!({"job": submission.job}))
            .await
            .ok()?;
        let ingress_sequence = row["ingress_sequence"].as_u64()?;
        (row["sha256"] == sha256).then(|| Submission {
            ingress_sequence,
            existing: ingress_sequence != submission.ingress_sequence,
            ..submission.clone()
        })
    }

    async fn follow(
        &self,
        mut submission: Submission,
        events: &mut Subscriber,
        wait: Wait,
    ) -> Result<Submission, TenantError> {
        let mut silence = if submission.existing {
            Duration::ZERO
        } else {
            SILENCE
        };
        loop {
            let next = tokio::time::timeout(silence, events.next()).await;
            silence = SILENCE;
            let state = match next.ok().flatten().as_ref().and_then(event_of) {
                Some(Event::JobCompleted(_)) => Some("completed"),
                Some(Event::JobFailed(_)) => Some("failed"),
                Some(Event::JobCancelled(_)) => Some("cancelled"),
                Some(Event::PartitionStarted(_)) if wait == Wait::Started => Some("started"),
                Some(_) => continue,
                None => None,
            };
            if let Some(state) = state {
                submission.state = state.to_owned();
                return Ok(submission);
            }
            let row = self.query("job", &json!({"job": submission.job})).await?;
            let phase = row["phase"].as_str().unwrap_or_default();
            if ["completed", "failed", "cancelled"].contains(&phase) {
                submission.state = phase.to_owned();
                return Ok(submission);
            }
            if wait == Wait::Started && !row["first_started_at"].is_null() {
                submission.state = "started".to_owned();
                return Ok(submission);
            }
        }
    }
}

/// A job's events.
pub struct Watched {
    events: Subscriber,
    last: u64,
}

impl Watched {
    /// Returns the next event; `None` when closed.
    pub async fn next(&mut self) -> Option<Envelope> {
        loop {
            let message = self.events.next().await?;
            let sequence = message.headers.as_ref()?.get("Nats-Sequence")?;
            let sequence: u64 = sequence.as_str().parse().ok()?;
            // A new copy of the publisher may repeat events.
            if sequence > self.last
                && let Ok(envelope) = Envelope::from_msgpack(&message.payload)
            {
                self.last = sequence;
                return Some(envelope);
            }
        }
    }
}

fn event_of(message: &async_nats::Message) -> Option<Event> {
    match Envelope::from_msgpack(&message.payload).ok()?.body {
        dormouse_messages::Body::Event(event) => Some(event),
        dormouse_messages::Body::Unknown { .. } => None,
    }
}
