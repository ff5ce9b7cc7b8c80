//! The parts of a job document that describe one container: command lines, environment, mounts, network
//! access and roles.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient_int::whole;
use crate::needs::Constraints;
use crate::quantity::{Amounts, Written};

/// The command lines of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {start: [python3, train.py]}"
)]
pub struct Command {
    /// Starts the job from nothing.
    pub start: Vec<String>,
    /// Resumes the job from a checkpoint; `start` if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<String>,
}

/// An environment value: plain, or a reference to a secret on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, from = "WrittenValue")]
pub enum EnvValue {
    /// A literal value.
    Plain(String),
    /// Read by the agent when the container starts; never on the log.
    Secret(SecretFrom),
}

/// An environment value in a document: `BATCH: 512` needs no quotes.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "an environment value is text, a number, true or false, or a secret such as {from: {file: /run/token}}"
)]
enum WrittenValue {
    Text(String),
    Flag(bool),
    Whole(i64),
    /// A number beyond `i64`, such as a seed of 64 bits.
    #[schemars(skip)]
    Large(u64),
    Number(f64),
    Secret(SecretFrom),
}

impl From<WrittenValue> for EnvValue {
    fn from(written: WrittenValue) -> Self {
        match written {
            WrittenValue::Text(text) => Self::Plain(text),
            WrittenValue::Flag(flag) => Self::Plain(flag.to_string()),
            WrittenValue::Whole(number) => Self::Plain(number.to_string()),
            WrittenValue::Large(number) => Self::Plain(number.to_string()),
            WrittenValue::Number(number) => Self::Plain(number.to_string()),
            WrittenValue::Secret(secret) => Self::Secret(secret),
        }
    }
}

/// The location of a secret on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {from: {file: /run/token}}"
)]
pub struct SecretFrom {
    /// The source of the secret.
    pub from: SecretSource,
}

/// A secret's source on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretSource {
    /// The contents of a file on the node.
    File(String),
    /// A variable of the agent's own environment.
    Env(String),
}

/// A folder of the node in each container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {source: /data, target: /data}"
)]
pub struct Mount {
    /// Absolute path on the node.
    pub source: String,
    /// Absolute path in the container.
    pub target: String,
    /// True to forbid writing.
    #[serde(default)]
    pub read_only: bool,
}

/// A container's network access, in ascending order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No network.
    None,
    /// A network of its own; the container's ports are published on the node.
    Published,
    /// The node's own network.
    Host,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Published => "published",
            Self::Host => "host",
        })
    }
}

/// A role in a document.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {count: 1, demand: {cpu: 1, memory: 2Gi}}"
)]
pub struct RoleDocument {
    /// Number of containers.
    #[serde(default = "one", deserialize_with = "whole")]
    pub count: u32,
    /// Demand of one container.
    pub demand: BTreeMap<String, Written>,
    /// Command lines of the role; the job's if absent.
    #[serde(default)]
    pub command: Option<Command>,
    /// Environment in addition to the job's.
    #[serde(default)]
    pub env: BTreeMap<String, EnvValue>,
    /// Requirements on the nodes; the job's constraints if absent.
    #[serde(default)]
    pub constraints: Option<Constraints>,
}

const fn one() -> u32 {
    1
}

/// A role in a job's normalised spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleSpec {
    /// Number of containers.
    pub count: u32,
    /// Demand of one container.
    pub demand: Amounts,
    /// Command lines of the role; the job's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// Environment in addition to the job's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, EnvValue>,
    /// Requirements on the nodes; the job's constraints if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_values_need_no_quotes() {
        let written = r#"{"a": "text", "b": 512, "c": 0.5, "d": true, "e": {"from": {"env": "TOKEN"}}, "f": 12345678901234567891}"#;
        let env: BTreeMap<String, EnvValue> = serde_json::from_str(written).expect("read");
        let plain = |text: &str| EnvValue::Plain(text.to_owned());
        assert_eq!(env["a"], plain("text"));
        assert_eq!(env["b"], plain("512"));
        assert_eq!(env["c"], plain("0.5"));
        assert_eq!(env["d"], plain("true"));
        assert!(matches!(&env["e"], EnvValue::Secret(_)));
        assert_eq!(env["f"], plain("12345678901234567891"));
        let wrong = serde_json::from_str::<EnvValue>("[1]").expect_err("a list");
        assert!(wrong.to_string().contains("environment value"), "{wrong}");
    }
}
