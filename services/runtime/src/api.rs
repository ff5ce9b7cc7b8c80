//! Queries (NATS service API), and publishing to the ingress.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::service::endpoint::Endpoint;
use async_nats::service::error::Error as Refusal;
use async_nats::service::{Request as Query, ServiceExt};
use async_nats::{HeaderMap, Request};
use bytes::Bytes;
use dormouse_messages::{NodeId, Prefix, Sequence, TenantId};
use futures::StreamExt;
use futures::stream::select_all;
use tokio::task::JoinSet;

use crate::accounts::plan::PAYLOAD_BYTES;
use crate::answer::Reply;
use crate::connection::NoAnswer;
use crate::error::LogError;
use crate::fair_queue::{Bounds, RequestScheduler};
use crate::log::Log;
use crate::retry::retry;

/// A failed query.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{message}")]
    Refused {
        /// A code for programs.
        code: String,
        /// A message for people.
        message: String,
    },
    #[error(
        "nothing answers the query {name}: {why}; is `dormouse up`, or `dormouse serve api`, running, and under this --prefix?"
    )]
    Unanswered { name: String, why: String },
    #[error(
        "node {node} does not answer: {why}; is its agent running (`dormouse cluster doctor` asks all of them), and may it answer requests?"
    )]
    NodeSilent { node: NodeId, why: String },
}

const FULL_PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(50);

/// Refusal of a full queue; a retry may succeed.
const BUSY: &str = "busy";
/// Limit of retries; most answers take milliseconds.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(100);

const AFTER: &str = "Dormouse-After";

/// Status of every refusal, as in HTTP.
const REFUSED: usize = 400;

/// A received query.
#[derive(Debug, Clone)]
pub struct Asked {
    pub name: String,
    /// The tenant whose subject received the query.
    pub tenant: Option<String>,
    /// The answer should include this event. `None` for tenants, who could delay others by a distant one.
    pub after: Option<Sequence>,
    pub request: Bytes,
}

const TENANTS: Bounds = Bounds {
    at_once: 8,
    of_one: 2,
    // Several times the queries of a dashboard's page.
    waiting_of_one: 64,
};

const OPERATORS: usize = 4;
const OPERATORS_WAITING: usize = 256;

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
    let mut desk = RequestScheduler::new(OPERATORS, OPERATORS_WAITING, TENANTS);
    let mut answering = JoinSet::new();
    // A panicked task frees its slot too.
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
    /// Serves the queries `names`, and `of_tenants` to tenants, until the connection closes. A refusal is a
    /// code and a message.
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

    /// Sends a query, about the key's tenant if any. The answer includes the events that this client has
    /// followed, if ready in time. Retries for ten seconds if busy.
    ///
    /// # Errors
    /// The refusal, or that nobody answers.
    pub async fn request(&self, name: &str, request: Vec<u8>) -> Result<Bytes, ApiError> {
        let is_busy =
            |error: &ApiError| matches!(error, ApiError::Refused { code, .. } if code == BUSY);
        let ask = || self.request_as(self.tenant(), name, request.clone());
        retry(BUSY_PAUSE, BUSY_PATIENCE, is_busy, ask).await
    }

    /// Sends a query once, about `tenant` if given.
    ///
    /// # Errors
    /// The refusal, or that nobody answers.
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

    /// Publishes on a tenant's ingress; returns the ingress sequence. Retries for half a minute.
    ///
    /// # Errors
    /// When the broker does not store the message.
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
        let failed = |why: String| LogError::request("publish on", &subject, why);
        let store = || async {
            let request = Request::new().headers(headers.clone());
            let asked = &self.inner.connection;
            let answer = asked.ask(&subject, request.payload(payload.clone())).await;
            let answer = answer.map_err(|error| match error {
                NoAnswer::Denied => {
                    let subject = subject.clone();
                    (false, LogError::Denied { subject })
                }
                NoAnswer::TooLarge { limit } => (false, LogError::TooLarge { bytes, limit }),
                NoAnswer::Nobody => (true, failed(error.into_words())),
                NoAnswer::Doubt(why) => (false, failed(why)),
            })?;
            let stored = Reply::read(&answer).map_err(|why| (false, failed(why)))?;
            let stored = stored.map(|reply| reply.seq);
            stored.map_err(|error| (error.is_full(), failed(error.description)))
        };
        let stored = retry(FULL_PAUSE, FULL_PATIENCE, |(again, _)| *again, store).await;
        stored.map_err(|(_, error)| error)
    }
}
