//! A tenant's limits on resources.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::{
    Amounts, Entries, QuantityError, Resource, serialize_entries, write_entries,
};

/// Limits in log units: absent for none, 0 to forbid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota(BTreeMap<Resource, u64>);

impl Quota {
    /// Returns an empty quota.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Limits one resource.
    pub fn set(&mut self, resource: Resource, most: u64) {
        self.0.insert(resource, most);
    }

    /// True if nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the limits by resource.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, u64)> {
        self.0.iter().map(|(resource, most)| (resource, *most))
    }

    /// Returns the first exceeded limit.
    #[must_use]
    pub fn exceeded_by(&self, used: &Amounts) -> Option<(&Resource, u64)> {
        self.iter()
            .find(|(resource, most)| used.get(resource) > *most)
    }
}

impl From<Entries> for Quota {
    fn from(Entries(entries): Entries) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl FromStr for Quota {
    type Err = QuantityError;

    /// Parses `cpu=8,gpu=0`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        text.parse().map(|entries: Entries| entries.into())
    }
}

/// Writes `cpu=8,gpu=0`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_entries(f, self.iter())
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_entries(serializer, self.0.len(), self.iter())
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Entries::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for Quota {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Amounts::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Amounts::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_at_all_is_not_the_same_as_no_bound() {
        let quota: Quota = "cpu=8,gpu=0".parse().expect("a quota");
        let json = serde_json::to_string(&quota).expect("json");
        assert_eq!(json, r#"{"cpu_milli":8000,"gpu_milli":0}"#);
        assert_eq!(serde_json::from_str::<Quota>(&json).expect("read"), quota);
        assert_eq!(quota.to_string(), "cpu=8,gpu=0");
        let exceeded = |used: &str| {
            let used: Amounts = used.parse().expect("amounts");
            let (resource, most) = quota.exceeded_by(&used)?;
            Some((resource.name().to_owned(), most))
        };
        assert_eq!(exceeded("cpu=8,memory=999Gi"), None);
        assert_eq!(exceeded("gpu=0.5"), Some(("gpu".to_owned(), 0)));
        assert_eq!(exceeded("cpu=9"), Some(("cpu".to_owned(), 8000)));
        assert!(Quota::default().is_empty() && !quota.is_empty());
    }
}
