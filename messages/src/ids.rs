//! The ids of everything on the log.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sanitize;
use crate::text::{self, Text};

/// An invalid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind} {:?} is not 1 to 63 of a-z, 0-9 and '-'",
    sanitize::shortened(text)
)]
pub struct IdError {
    kind: &'static str,
    text: String,
}

/// One subject token, path component and DNS label.
fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

macro_rules! name_id {
    ($(#[$doc:meta])* $id:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $id(Text);

        impl $id {
            /// Checks and takes a name.
            ///
            /// # Errors
            /// When it is not 1 to 63 of `a-z`, `0-9` and `-`.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                if is_name(&text) {
                    Ok(Self(text.into()))
                } else {
                    Err(IdError { kind: $kind, text })
                }
            }

            /// Returns the name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $id {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

name_id!(
    /// A tenant: the third token of its ingress subject.
    TenantId, "tenant"
);
name_id!(
    /// A node's name, as its agent calls it.
    NodeId, "node"
);

name_id!(
    /// A queue of Slurm allocations.
    QueueId, "queue"
);

name_id!(
    /// A reservation.
    ReservationId, "reservation"
);

name_id!(
    /// A gateway's own name.
    GatewayId, "gateway"
);

impl GatewayId {
    /// Returns a tenant's own proxy, which no gateway can be called.
    ///
    /// # Errors
    /// When the name is not 1 to 63 of `a-z`, `0-9` and `-`.
    pub fn of_tenant(tenant: &TenantId, name: &str) -> Result<Self, IdError> {
        if is_name(name) {
            Ok(Self(format!("{tenant}/{name}").into()))
        } else {
            Err(IdError {
                kind: "gateway",
                text: name.to_owned(),
            })
        }
    }
}

/// Maps by tenant are searched by a job's tenant.
impl std::borrow::Borrow<str> for TenantId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A job: `tenant/name`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct JobId(Text);

impl JobId {
    /// Returns the job `name` of `tenant`.
    ///
    /// # Errors
    /// When the name is not 1 to 63 of `a-z`, `0-9` and `-`.
    pub fn new(tenant: &TenantId, name: &str) -> Result<Self, IdError> {
        if is_name(name) {
            Ok(Self(format!("{tenant}/{name}").into()))
        } else {
            Err(IdError {
                kind: "job name",
                text: name.to_owned(),
            })
        }
    }

    /// Names a role's containers where they are counted apart; never on the log.
    #[must_use]
    pub fn of_role(&self, role: &str) -> Self {
        Self(format!("{self}:{role}").into())
    }

    /// Returns `tenant/name`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.parts().0
    }

    /// Returns the name within the tenant.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// Byte by byte, as ids are short and this runs for every event.
    fn parts(&self) -> (&str, &str) {
        let slash = self.0.bytes().position(|byte| byte == b'/');
        slash.map_or(("", ""), |slash| (&self.0[..slash], &self.0[slash + 1..]))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (tenant, name) = text.split_once('/').ok_or_else(|| IdError {
            kind: "job id (tenant/name)",
            text: text.to_owned(),
        })?;
        if !is_name(tenant) || !is_name(name) {
            // The error names the invalid part.
            return Self::new(&TenantId::new(tenant)?, name);
        }
        Ok(Self(text.into()))
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $id:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $id(pub $inner);

        impl $id {
            /// Returns the successor.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(
    /// A sequence of the log stream, from 1.
    Sequence, u64
);
number_id!(
    /// The number of an allocation, from 1.
    Epoch, u64
);
number_id!(
    /// One incarnation of a job's partition, from 1; a restart begins the next.
    Incarnation, u32
);
number_id!(
    /// A container's rank in its gang, from 0; rank 0 writes the checkpoint.
    Rank, u32
);

/// A container: `tenant/name/incarnation/rank`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId {
    pub job: JobId,
    pub incarnation: Incarnation,
    pub rank: Rank,
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.job, self.incarnation, self.rank)
    }
}

impl FromStr for ContainerId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError {
            kind: "container (tenant/name/incarnation/rank)",
            text: text.to_owned(),
        };
        let mut parts = text.rsplitn(3, '/');
        let rank = parts.next().and_then(|part| part.parse().ok());
        let incarnation = parts.next().and_then(|part| part.parse().ok());
        let job = parts.next().ok_or_else(wrong)?.parse()?;
        match (incarnation, rank) {
            (Some(incarnation), Some(rank)) => Ok(Self {
                job,
                incarnation: Incarnation(incarnation),
                rank: Rank(rank),
            }),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for ContainerId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContainerId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parsed(deserializer)
    }
}

impl JsonSchema for ContainerId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ContainerId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "tenant/name/incarnation/rank"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back() {
        let job: JobId = "ads/lr-1".parse().expect("valid");
        assert_eq!((job.tenant(), job.name()), ("ads", "lr-1"));
        let container: ContainerId = "ads/lr-1/3/0".parse().expect("valid");
        assert_eq!(container.to_string(), "ads/lr-1/3/0");
        assert_eq!(container.job, job);
    }

    #[test]
    fn wrong_ids_are_refused() {
        for text in ["", "ads", "Ads/x", "ads/", "a.b/c", "ads/x y", "ads/x/1"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        assert!("ads/x/1/b".parse::<ContainerId>().is_err());
    }

    #[test]
    fn a_tenants_proxy_has_a_name_that_no_gateway_can_have() {
        let ads = TenantId::new("ads").expect("valid");
        let own = GatewayId::of_tenant(&ads, "envoy").expect("valid");
        assert_eq!(own.as_str(), "ads/envoy");
        assert!(GatewayId::new(own.as_str()).is_err());
        assert!(GatewayId::of_tenant(&ads, "search/envoy").is_err());
    }
}
