//! Queries by request and reply: the NATS service API, and the tenants' ingress.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_nats::service::endpoint::Endpoint;
use async_nats::service::error::Error as Refusal;
use async_nats::service::{Request as Query, ServiceExt};
use async_nats::{HeaderMap, Request};
use bytes::Bytes;
use dormouse_messages::{NodeId, Prefix, Sequence, TenantId};
use futures::StreamExt;
use futures::stream::select_all;
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::accounts::plan::PAYLOAD_BYTES;
use crate::connection::NoAnswer;
use crate::error::LogError;
use crate::log::Log;
use crate::turns::{Bounds, Desk};

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// It was refused.
    #[error("{message}")]
    Refused {
        /// For programs.
        code: String,
        /// For people.
        message: String,
    },
    /// Nobody answers.
    #[error(
        "nothing answers the query {name}: {why}; is `dormouse up`, or `dormouse serve api`, running, and under this --prefix?"
    )]
    Unanswered {
        /// The query.
        name: String,
        /// Why not.
        why: String,
    },
    /// A node's agent does not answer.
    #[error(
        "node {node} does not answer: {why}; is its agent running (`dormouse doctor` asks all of them), and may it answer requests?"
    )]
    NodeSilent {
        /// The node.
        node: NodeId,
        /// Why not.
        why: String,
    },
}

/// The broker's answer to a publish.
#[derive(Deserialize)]
pub(crate) struct Stored {
    /// Its sequence, unless there is an error.
    #[serde(default)]
    pub seq: u64,
    pub error: Option<StoredError>,
}

/// Why the broker has not stored a message.
#[derive(Deserialize)]
pub(crate) struct StoredError {
    #[serde(default)]
    pub description: String,
}

impl StoredError {
    /// Whether as many of the tenant's messages wait to be recorded as may: it may be sent again.
    pub fn is_full(&self) -> bool {
        self.description.contains(FULL)
    }
}

/// The broker's words where as many messages of a tenant wait as may.
const FULL: &str = "maximum messages per subject";
/// How long a message waits until there is room for it: admission takes thousands a second.
const FULL_PATIENCE: Duration = Duration::from_secs(30);
/// Until it is tried again.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(50);

/// The code of a refusal where as many questions wait as may: it may be asked again.
const BUSY: &str = "busy";
/// How long a question is asked again: eight are answered at once, most within milliseconds.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// Until it is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// The header of a query that names the last event its client has seen.
const AFTER: &str = "Dormouse-After";

/// The status of every refusal, as in HTTP.
const REFUSED: usize = 400;

/// A query that somebody asks.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its name.
    pub name: String,
    /// The tenant on whose subject it came: it asks about itself.
    pub tenant: Option<String>,
    /// The last event that the operator's client has seen: the answer should know it too. A tenant
    /// cannot hold up others by naming one that is far away.
    pub after: Option<Sequence>,
    /// The request.
    pub request: Bytes,
}

/// Tenants' queries that are answered at once, on a thread each: of all, and of one.
const TENANTS: Bounds = Bounds {
    at_once: 8,
    of_one: 2,
    // What a page of a dashboard asks at once, several times over.
    waiting_of_one: 64,
};

/// Operators' queries at once, and those that wait.
const OPERATORS: usize = 4;
const OPERATORS_WAITING: usize = 256;

/// A query that waits for its turn.
struct Question {
    request: Query,
    asked: Asked,
}

fn question(prefix: &Prefix, name: String, request: Query) -> Question {
    let tenant = prefix.parse_tenant_api(&request.message.subject);
    let headers = request.message.headers.as_ref();
    let after = headers.and_then(|headers| headers.get(AFTER)?.as_str().parse().ok());
    let asked = Asked {
        name,
        tenant: tenant.map(|(tenant, _)| tenant.to_owned()),
        after: after.map(Sequence).filter(|_| tenant.is_none()),
        request: request.message.payload.clone(),
    };
    Question { request, asked }
}

async fn respond(request: &Query, answered: Result<Vec<u8>, (String, String)>) {
    let answered = answered
        .map(Bytes::from)
        .map_err(|(code, message)| Refusal {
            status: format!("{code}: {}", message.replace(['\r', '\n'], " ")),
            code: REFUSED,
        });
    if let Err(error) = request.respond(answered).await {
        tracing::debug!(%error, "an answer was not sent");
    }
}

/// Answers queries, each asker's in its turn, until the connection is closed.
async fn serve<F, A>(endpoints: Vec<(String, Endpoint)>, prefix: Prefix, answer: F)
where
    F: Fn(Asked) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Vec<u8>, (String, String)>> + Send + 'static,
{
    let heard = endpoints.into_iter().map(|(name, endpoint)| {
        let prefix = prefix.clone();
        endpoint.map(move |request| question(&prefix, name.clone(), request))
    });
    let mut heard = select_all(heard);
    let mut desk = Desk::new(OPERATORS, OPERATORS_WAITING, TENANTS);
    let mut answering = JoinSet::new();
    // Whose each is: one that panics has been answered, too.
    let mut under_way = BTreeMap::new();
    loop {
        tokio::select! {
            question = heard.next() => {
                let Some(question) = question else { return };
                let tenant = question.asked.tenant.clone();
                if let Err(question) = desk.ask(tenant.as_deref(), question) {
                    let why = "as many of your queries wait as may; ask again in a moment";
                    let busy = (BUSY.to_owned(), why.to_owned());
                    respond(&question.request, Err(busy)).await;
                }
            }
            Some(answered) = answering.join_next_with_id() => {
                let id = match &answered {
                    Ok((id, ())) => *id,
                    Err(error) => error.id(),
                };
                let tenant = under_way.remove(&id).flatten();
                desk.done(tenant.as_deref());
            }
        }
        while let Some((tenant, Question { request, asked })) = desk.next() {
            let answer = answer.clone();
            let task = answering.spawn(async move { respond(&request, answer(asked).await).await });
            under_way.insert(task.id(), tenant);
        }
    }
}

impl Log {
    /// Serves the queries `names`, and `of_tenants` to tenants about themselves, until the
    /// connection is closed: some at once, and each tenant's in their turns. `answer` is given what was
    /// asked; a refusal is a code for programs and a message for people.
    ///
    /// # Errors
    /// When the broker does not let this client subscribe.
    pub async fn serve_api<F, A>(
        &self,
        names: &[&str],
        of_tenants: &[&str],
        answer: F,
    ) -> Result<(), LogError>
    where
        F: Fn(Asked) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Vec<u8>, (String, String)>> + Send + 'static,
    {
        let prefix = self.prefix();
        let failed = |why: async_nats::Error| LogError::request("serve", prefix.api(""), why);
        let client = &self.inner.connection.client;
        let service = client
            .service_builder()
            .description("Queries over the log's projections")
            .start("dormouse-api", env!("CARGO_PKG_VERSION"))
            .await
            .map_err(failed)?;
        let mut endpoints = Vec::new();
        for name in names {
            let builder = service.endpoint_builder().name(*name);
            let endpoint = builder.add(prefix.api(name)).await;
            endpoints.push(((*name).to_owned(), endpoint.map_err(failed)?));
        }
        for name in of_tenants {
            let builder = service.endpoint_builder().name(format!("tenant-{name}"));
            let endpoint = builder.add(prefix.tenant_api("*", name)).await;
            endpoints.push(((*name).to_owned(), endpoint.map_err(failed)?));
        }
        serve(endpoints, prefix.clone(), answer).await;
        Ok(())
    }

    /// Asks the query `name`, with a tenant's key about that tenant. The answer knows what this client
    /// has followed of the log, where the query service comes so far in time. Where as many questions
    /// wait as may, it is asked again for ten seconds.
    ///
    /// # Errors
    /// Its refusal, or that nobody answers.
    pub async fn request(&self, name: &str, request: Vec<u8>) -> Result<Bytes, ApiError> {
        let until = Instant::now() + BUSY_PATIENCE;
        loop {
            let answer = self.request_as(self.tenant(), name, request.clone()).await;
            match answer {
                Err(ApiError::Refused { code, .. }) if code == BUSY && Instant::now() < until => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// The same as a tenant about itself, where one is given; once.
    ///
    /// # Errors
    /// Its refusal, or that nobody answers.
    pub async fn request_as(
        &self,
        tenant: Option<&TenantId>,
        name: &str,
        request: Vec<u8>,
    ) -> Result<Bytes, ApiError> {
        let subject = match tenant {
            Some(tenant) => self.prefix().tenant_api(tenant.as_str(), name),
            None => self.prefix().api(name),
        };
        let mut headers = HeaderMap::new();
        let followed_to = self.inner.followed_to.load(Ordering::Relaxed);
        headers.insert(AFTER, followed_to.to_string());
        let request = Request::new().headers(headers).payload(request.into());
        let asked = self.inner.connection.ask(&subject, request);
        let unanswered = |why: &str| ApiError::Unanswered {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        let answer = asked
            .await
            .map_err(|error| unanswered(&error.into_words()))?;
        let refused = answer
            .headers
            .as_ref()
            .and_then(|headers| headers.get("Nats-Service-Error"));
        let Some(refused) = refused else {
            return Ok(answer.payload);
        };
        let refused = refused.as_str();
        let (code, message) = refused.split_once(": ").unwrap_or(("error", refused));
        Err(ApiError::Refused {
            code: code.to_owned(),
            message: message.to_owned(),
        })
    }

    /// Publishes on a tenant's ingress, as any client would; the ingress sequence. While the ingress
    /// is full, or has no leader, it is tried again for half a minute.
    ///
    /// # Errors
    /// When the broker does not store it.
    pub async fn publish_ingress(
        &self,
        tenant: &TenantId,
        verb: &str,
        content_type: &str,
        payload: Bytes,
    ) -> Result<u64, LogError> {
        let subject = self.prefix().submit(tenant, verb);
        let mut headers = HeaderMap::new();
        headers.insert("content-type", content_type);
        let (bytes, limit) = (payload.len(), PAYLOAD_BYTES as usize);
        if bytes > limit {
            return Err(LogError::TooLarge { bytes, limit });
        }
        let until = Instant::now() + FULL_PATIENCE;
        loop {
            let request = Request::new().headers(headers.clone());
            let asked = &self.inner.connection;
            let answer = asked.ask(&subject, request.payload(payload.clone())).await;
            // Nobody has it: the stream is between two leaders.
            if matches!(answer, Err(NoAnswer::Nobody)) && Instant::now() < until {
                tokio::time::sleep(FULL_PAUSE).await;
                continue;
            }
            let answer = answer.map_err(|error| match error {
                NoAnswer::Denied => LogError::Denied {
                    subject: subject.clone(),
                },
                NoAnswer::TooLarge { limit } => LogError::TooLarge { bytes, limit },
                error @ (NoAnswer::Nobody | NoAnswer::Doubt(_)) => {
                    LogError::request("publish on", &subject, error.into_words())
                }
            })?;
            let stored: Stored = serde_json::from_slice(&answer.payload)
                .map_err(|error| LogError::request("publish on", &subject, error))?;
            match stored.error {
                // As many of the tenant's wait as may: admission takes them from there.
                Some(error) if error.is_full() && Instant::now() < until => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Some(error) => {
                    return Err(LogError::request("publish on", &subject, error.description));
                }
                None => return Ok(stored.seq),
            }
        }
    }
}
