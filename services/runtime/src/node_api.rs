//! Queries to a node's agent, at `<prefix>.api.<name>.<node>` and
//! `<prefix>.tenant.<tenant>.api.<name>.<node>`. They run concurrently, within limits per tenant and for
//! operators.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{Client, HeaderMap, Message, Request};
use bytes::Bytes;
use dormouse_messages::{NodeId, Prefix, TenantId};
use futures::StreamExt;
use futures::stream::select_all;

use crate::api::{ApiError, Asked};
use crate::error::LogError;
use crate::log::Log;

const REFUSED: &str = "Nats-Service-Error";

/// A node's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAnswer {
    pub headers: Vec<(&'static str, String)>,
    pub payload: Bytes,
}

impl NodeAnswer {
    /// Returns an answer without headers.
    #[must_use]
    pub fn plain(payload: Vec<u8>) -> Self {
        Self {
            headers: Vec::new(),
            payload: payload.into(),
        }
    }
}

/// A received answer of a node.
#[derive(Debug, Clone)]
pub struct NodeAnswered {
    headers: Option<HeaderMap>,
    pub payload: Bytes,
}

impl NodeAnswered {
    /// Returns a header's value.
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
    let sent = if headers.is_empty() {
        client.publish(reply, payload).await
    } else {
        client.publish_with_headers(reply, headers, payload).await
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "an answer was not sent");
    }
}

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

#[derive(Clone)]
struct Slots {
    under_way: Arc<Mutex<BTreeMap<Option<String>, usize>>>,
    of_operators: usize,
    of_tenant: usize,
}

struct Slot {
    slots: Slots,
    tenant: Option<String>,
}

impl Slots {
    fn new(of_operators: usize, of_tenant: usize) -> Self {
        Self {
            under_way: Arc::default(),
            of_operators,
            of_tenant,
        }
    }

    fn take(&self, tenant: Option<&str>) -> Option<Slot> {
        let limit = match tenant {
            Some(_) => self.of_tenant,
            None => self.of_operators,
        };
        let tenant = tenant.map(str::to_owned);
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = under_way.entry(tenant.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(under_way);
        Some(Slot {
            slots: self.clone(),
            tenant,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let under_way = self.slots.under_way.lock();
        let mut under_way = under_way.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = under_way.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.tenant);
            }
        }
    }
}

impl Log {
    /// Serves `names` until the connection closes, at most `limit` for operators at once and half as many per
    /// tenant.
    ///
    /// # Errors
    /// When the broker refuses the subscription.
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
        let of_tenant = (limit / 2).max(1);
        let slots = Slots::new(limit, of_tenant);
        let mut heard = select_all(subscribed);
        while let Some(message) = heard.next().await {
            let Some(asked) = asked(prefix, &message) else {
                continue;
            };
            let Some(slot) = slots.take(asked.tenant.as_deref()) else {
                let at_once = match asked.tenant {
                    Some(_) => format!("{of_tenant} requests of a tenant"),
                    None => format!("{limit} requests of operators"),
                };
                let why = format!("{node} answers {at_once} at once; ask again in a moment");
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

    /// Sends a query to `node`, as `tenant`, the key's tenant, or an operator.
    ///
    /// # Errors
    /// The refusal, or that nobody answers.
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
