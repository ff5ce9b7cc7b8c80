//! The owner of a person's key, by the permissions that `$SYS.REQ.USER.INFO` returns: an operator reads the
//! log, a tenant sees its own jobs.

use async_nats::Request;
use dormouse_messages::{Prefix, TenantId};
use serde::Deserialize;

use crate::connection::Connection;

pub(crate) const USER_INFO: &str = "$SYS.REQ.USER.INFO";

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
