//! The owner of a person's key, by the permissions that `$SYS.REQ.USER.INFO` returns: an operator reads the
//! log, a tenant sees its own jobs.

use std::sync::Arc;

use async_nats::{Request, Subscriber};
use dormouse_messages::{Envelope, Prefix, Recorded, Sequence, TenantId};
use futures::StreamExt;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::connection::Connection;
use crate::decode::LogItem;
use crate::error::LogError;
use crate::log::Log;

pub(crate) const USER_INFO: &str = "$SYS.REQ.USER.INFO";

const SHOWN: usize = 1_024;

/// The owner of a client's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A reader of the log, or anybody without accounts.
    Operator,
    Tenant {
        tenant: TenantId,
        /// True if the key may submit, revise and cancel; false for viewers.
        submits: bool,
    },
    /// An agent, a gateway, or an old key without a tenant.
    Unknown,
}

#[derive(Deserialize)]
struct Answer {
    data: Option<Known>,
}

#[derive(Deserialize)]
struct Known {
    permissions: Option<Permissions>,
}

#[derive(Deserialize)]
struct Permissions {
    publish: Option<Allowed>,
}

#[derive(Deserialize)]
struct Allowed {
    #[serde(default)]
    allow: Vec<String>,
}

/// `Unknown` may still be a reader of the log.
pub(crate) async fn find(connection: &Connection, prefix: &Prefix) -> Holder {
    let Ok(answer) = connection.ask(USER_INFO, Request::new()).await else {
        return Holder::Unknown;
    };
    let known: Option<Answer> = serde_json::from_slice(&answer.payload).ok();
    let publish = known.and_then(|it| it.data?.permissions?.publish);
    publish.map_or(Holder::Unknown, |publish| of(prefix, &publish.allow))
}

fn of(prefix: &Prefix, allowed: &[String]) -> Holder {
    let mut queries = allowed
        .iter()
        .filter_map(|subject| prefix.parse_tenant_api(subject));
    let named = queries.find_map(|(tenant, name)| {
        TenantId::new(tenant)
            .ok()
            .filter(|_| matches!(name, ">" | "*"))
    });
    let Some(tenant) = named else {
        return Holder::Unknown;
    };
    let submit = [
        prefix.submit(&tenant, "submit"),
        prefix.submit(&tenant, "*"),
    ];
    let submits = allowed.iter().any(|subject| submit.contains(subject));
    Holder::Tenant { tenant, submits }
}

impl Log {
    /// Returns the owner of this client's key.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.inner.holder
    }

    /// Returns the tenant of this client's key.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        match self.holder() {
            Holder::Tenant { tenant, .. } => Some(tenant),
            Holder::Operator | Holder::Unknown => None,
        }
    }

    /// Reports whether a person's separate account reads the log and sends queries only.
    #[must_use]
    pub fn is_persons(&self) -> bool {
        let own = self.inner.own.as_ref();
        own.is_some_and(|own| own.name.is_none())
    }

    /// Follows events from now on: all, or the tenant's part.
    ///
    /// # Errors
    /// When the broker does not answer, or does not let this client listen.
    pub async fn events_from_now(&self) -> Result<mpsc::Receiver<LogItem>, LogError> {
        let Some(tenant) = self.tenant() else {
            let head = self.head().await?;
            return Ok(self.follow(head.next()));
        };
        let subject = self.prefix().status(&format!("{tenant}.>"));
        let failed = |why: String| LogError::request("listen to", &subject, why);
        let client = &self.inner.connection.client;
        let shown = client.subscribe(subject.clone()).await;
        let shown = shown.map_err(|error| failed(error.to_string()))?;
        // The subscription must exist before anything is published.
        client
            .flush()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let (events, receiver) = mpsc::channel(SHOWN);
        self.spawn(pass_on(shown, events));
        Ok(receiver)
    }
}

async fn pass_on(mut shown: Subscriber, events: mpsc::Sender<LogItem>) {
    loop {
        let message = tokio::select! {
            message = shown.next() => message,
            () = events.closed() => return,
        };
        let Some(message) = message else {
            return;
        };
        let Some(recorded) = recorded(&message) else {
            continue;
        };
        if events
            .send(LogItem::Event(Arc::new(recorded)))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn recorded(message: &async_nats::Message) -> Option<Recorded> {
    let place = message.headers.as_ref()?.get("Nats-Sequence")?;
    let envelope = Envelope::from_msgpack(&message.payload).ok()?;
    let mut source = envelope.source.split('/').skip(2);
    Some(Recorded {
        sequence: Sequence(place.as_str().parse().ok()?),
        stored_at: envelope.time,
        writer: source.next()?.parse().ok()?,
        envelope,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(allowed: &[&str]) -> Holder {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        of(&Prefix::default(), &allowed)
    }

    fn ads(submits: bool) -> Holder {
        let tenant = TenantId::new("ads").expect("valid");
        Holder::Tenant { tenant, submits }
    }

    #[test]
    fn what_a_key_may_publish_says_whose_it_is() {
        let queries = "dormouse.tenant.ads.api.>";
        assert_eq!(
            holder(&["dormouse.tenant.ads.api.*", USER_INFO]),
            ads(false)
        );
        assert_eq!(holder(&["dormouse.in.ads.submit", queries]), ads(true));
        assert_eq!(holder(&["dormouse.in.ads.*", queries]), ads(true));
        for other in [
            "mouse.tenant.ads.api.>",
            "dormouse.log.node.n0.>",
            "dormouse.tenant.*.api.>",
        ] {
            assert_eq!(holder(&[other]), Holder::Unknown, "{other}");
        }
        assert_eq!(holder(&[]), Holder::Unknown);
    }
}
