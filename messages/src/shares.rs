//! The parties among which the cluster is shared, and the memory of their past use.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::span::Span;

/// A shorter memory answers to single jobs.
const MIN_HALF_LIFE_S: u64 = 600;

/// A longer memory answers to nothing that a user remembers.
const MAX_HALF_LIFE_S: u64 = 366 * 86_400;

/// A smaller factor starves a tenant.
const MIN_FLOOR: f64 = 0.01;

/// The parties among which the optimizer shares the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Shares {
    /// Jobs, each with its own weight, as in Dorm.
    #[default]
    Job,
    /// Tenants: a tenant's weight is divided among its released jobs by their weights.
    Tenant,
    /// Tenants, whose weights move with their past use.
    Remembered(Memory),
}

/// The memory of the tenants' use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {half_life: 7d, floor: 0.25}"
)]
pub struct Memory {
    /// Time after which past use counts half, such as `7d`.
    #[serde(serialize_with = "write_span", deserialize_with = "read_span")]
    #[schemars(with = "String")]
    half_life: Duration,
    /// A tenant's weight counts at least this fraction, and at most its inverse.
    #[serde(default = "default_floor")]
    pub floor: f64,
}

const fn default_floor() -> f64 {
    0.25
}

fn write_span<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Span(*span))
}

fn read_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    crate::text::parsed::<Span, D>(deserializer).map(|span| span.0)
}

impl Memory {
    /// Returns a memory with the default floor.
    #[must_use]
    pub const fn of_days(days: u64) -> Self {
        Self {
            half_life: Duration::from_secs(days * 86_400),
            floor: default_floor(),
        }
    }

    /// Returns the half-life.
    #[must_use]
    pub const fn half_life(&self) -> Span {
        Span(self.half_life)
    }

    /// Returns the half-life in whole seconds.
    #[must_use]
    pub const fn half_life_s(&self) -> u64 {
        self.half_life.as_secs()
    }

    /// Returns the floor in thousandths.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the floor lies between 0.01 and 1"
    )]
    pub fn floor_permille(&self) -> u64 {
        (self.floor.clamp(MIN_FLOOR, 1.0) * 1000.0) as u64
    }

    fn problem(&self) -> Option<String> {
        let seconds = self.half_life_s();
        if !(MIN_HALF_LIFE_S..=MAX_HALF_LIFE_S).contains(&seconds) {
            return Some(format!(
                "shares.half_life is {}; it must lie between 10m and 366d",
                Span(self.half_life)
            ));
        }
        (!(MIN_FLOOR..=1.0).contains(&self.floor)).then(|| {
            format!(
                "shares.floor is {}; it must lie between {MIN_FLOOR} and 1",
                self.floor
            )
        })
    }
}

impl Shares {
    /// Returns the memory, if past use counts.
    #[must_use]
    pub const fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Remembered(memory) => Some(memory),
            Self::Job | Self::Tenant => None,
        }
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.memory()?.problem()
    }
}

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Job => serializer.serialize_str("job"),
            Self::Tenant => serializer.serialize_str("tenant"),
            Self::Remembered(memory) => memory.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = Shares;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("job, tenant, or a map such as {half_life: 7d, floor: 0.25}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Shares, E> {
                match text {
                    "job" => Ok(Shares::Job),
                    "tenant" => Ok(Shares::Tenant),
                    other => Err(E::unknown_variant(other, &["job", "tenant"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shares, A::Error> {
                Memory::deserialize(MapAccessDeserializer::new(map)).map(Shares::Remembered)
            }
        }

        deserializer.deserialize_any(Written)
    }
}

impl JsonSchema for Shares {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Shares".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let memory = generator.subschema_for::<Memory>();
        schemars::json_schema!({
            "description": "The parties among which the optimizer shares the cluster: jobs, tenants, or tenants whose weights move with their past use.",
            "oneOf": [{"type": "string", "enum": ["job", "tenant"]}, memory]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_read_and_written() {
        for text in [
            r#""job""#,
            r#""tenant""#,
            r#"{"half_life":"7d","floor":0.5}"#,
        ] {
            let shares: Shares = serde_json::from_str(text).expect(text);
            assert_eq!(serde_json::to_string(&shares).expect("writes"), text);
            assert_eq!(shares.problem(), None);
        }
        let short: Shares = serde_json::from_str(r#"{"half_life":"36h"}"#).expect("a memory");
        let memory = short.memory().expect("a memory");
        assert_eq!(
            (memory.half_life_s(), memory.floor_permille()),
            (129_600, 250)
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            r#""jobs""#,
            "7",
            r#"{"floor":0.5}"#,
            r#"{"half_life":"7d","root":1}"#,
        ] {
            assert!(serde_json::from_str::<Shares>(text).is_err(), "{text}");
        }
        for text in [
            r#"{"half_life":"5m"}"#,
            r#"{"half_life":"400d"}"#,
            r#"{"half_life":"7d","floor":0}"#,
            r#"{"half_life":"7d","floor":1.5}"#,
        ] {
            let shares: Shares = serde_json::from_str(text).expect(text);
            assert!(shares.problem().is_some(), "{text}");
        }
    }
}
