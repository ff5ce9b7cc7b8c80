//! What one node is asked directly: requests that only its own agent can answer, such as what its
//! containers print. Under `<prefix>.api.<name>.<node>`, and for tenants under
//! `<prefix>.tenant.<tenant>.api.<name>.<node>`.
//!
//! Requests are answered side by side, so many at once: one that waits holds up no other.

use std::future::Future;
use std::sync::Arc;

use async_nats::{Client, HeaderMap, Message, Request};
use bytes::Bytes;
use dormouse_messages::{NodeId, Prefix, TenantId};
use futures::StreamExt;
use futures::stream::select_all;
use tokio::sync::Semaphore;

use crate::api::{ApiError, Asked};
use crate::error::LogError;
use crate::log::Log;

const REFUSED: &str = "Nats-Service-Error";

/// A node's answer: bytes as they are, and what there is to say of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAnswer {
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// The bytes.
    pub payload: Bytes,
}

impl NodeAnswer {
    /// Bytes without headers.
    #[must_use]
    pub fn plain(payload: Vec<u8>) -> Self {
        Self {
            headers: Vec::new(),
            payload: payload.into(),
        }
    }
}

/// A node's answer, as it came.
#[derive(Debug, Clone)]
pub struct NodeAnswered {
    headers: Option<HeaderMap>,
    /// The bytes.
    pub payload: Bytes,
}

impl NodeAnswered {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.as_ref()?.get(name)?;
        Some(value.as_str().to_owned())
    }
}

async fn respond(
    client: &Client,
    message: &Message,
    answered: Result<NodeAnswer, (String, String)>,
) {
    let Some(reply) = message.reply.clone() else {
        return;
    };
    let (mut headers, mut payload) = (HeaderMap::new(), Bytes::new());
    match answered {
        Ok(answer) => {
            for (name, value) in &answer.headers {
                headers.insert(*name, value.as_str());
            }
            payload = answer.payload;
        }
        Err((code, message)) => {
            let message = message.replace(['\r', '\n'], " ");
            headers.insert(REFUSED, format!("{code}: {message}").as_str());
        }
    }
    let sent = match headers.is_empty() {
        true => client.publish(reply, payload).await,
        false => client.publish_with_headers(reply, headers, payload).await,
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "an answer was not sent");
    }
}

/// The query and the tenant of a subject, where it is one of a node's.
fn asked(prefix: &Prefix, message: &Message) -> Option<Asked> {
    let subject = message.subject.as_str();
    let (tenant, rest) = match prefix.parse_tenant_api(subject) {
        Some((tenant, rest)) => (Some(tenant.to_owned()), rest),
        None => (None, subject.strip_prefix(&prefix.api(""))?),
    };
    let (name, _node) = rest.split_once('.')?;
    Some(Asked {
        after: None,
        name: name.to_owned(),
        tenant,
        request: message.payload.clone(),
    })
}

impl Log {
    /// Answers what `node` is asked under `names`, at most `limit` requests at once, until the
    /// connection is closed.
    ///
    /// # Errors
    /// When the broker cannot be told.
    pub async fn serve_node<F, A>(
        &self,
        node: &NodeId,
        names: &[&str],
        limit: usize,
        answer: F,
    ) -> Result<(), LogError>
    where
        F: Fn(Asked) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<NodeAnswer, (String, String)>> + Send + 'static,
    {
        let (prefix, client) = (self.prefix(), &self.inner.connection.client);
        let mut subscribed = Vec::new();
        for name in names {
            let name = format!("{name}.{node}");
            for subject in [prefix.api(&name), prefix.tenant_api("*", &name)] {
                let heard = client.subscribe(subject.clone()).await;
                subscribed.push(heard.map_err(|why| LogError::request("serve", subject, why))?);
            }
        }
        let slots = Arc::new(Semaphore::new(limit));
        let mut heard = select_all(subscribed);
        while let Some(message) = heard.next().await {
            let Some(asked) = asked(prefix, &message) else {
                continue;
            };
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                let why = format!("{node} answers {limit} requests at once; ask again in a moment");
                respond(client, &message, Err(("busy".to_owned(), why))).await;
                continue;
            };
            let (client, answer) = (client.clone(), answer.clone());
            tokio::spawn(async move {
                let answered = answer(asked).await;
                respond(&client, &message, answered).await;
                drop(slot);
            });
        }
        Ok(())
    }

    /// Asks `node` the query `name`: as `tenant`, as the one whose key this client has, or as the
    /// operator.
    ///
    /// # Errors
    /// Its refusal, or that nobody answers.
    pub async fn ask_node(
        &self,
        node: &NodeId,
        name: &str,
        tenant: Option<&TenantId>,
        request: Vec<u8>,
    ) -> Result<NodeAnswered, ApiError> {
        let of_node = format!("{name}.{node}");
        let subject = match tenant.or(self.tenant()) {
            Some(tenant) => self.prefix().tenant_api(tenant.as_str(), &of_node),
            None => self.prefix().api(&of_node),
        };
        let request = Request::new().payload(request.into());
        let answer = self.inner.connection.ask(&subject, request).await;
        let answer = answer.map_err(|error| ApiError::NodeSilent {
            node: node.clone(),
            why: error.into_words(),
        })?;
        let answered = NodeAnswered {
            headers: answer.headers,
            payload: answer.payload,
        };
        match answered.header(REFUSED) {
            None => Ok(answered),
            Some(refused) => {
                let (code, message) = refused.split_once(": ").unwrap_or(("error", &refused));
                Err(ApiError::Refused {
                    code: code.to_owned(),
                    message: message.to_owned(),
                })
            }
        }
    }
}
