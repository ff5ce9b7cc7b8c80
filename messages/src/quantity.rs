//! Resource quantities. On the log every amount is an integer with its unit in the name (`cpu_milli`,
//! `gpu_milli`, `<name>_milli`, `memory_bytes`); documents have `cpu: 2`, `500m`, `gpu: 0.25`, `memory: 8Gi`.
//! Arithmetic is exact, without `f64`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::suggest;

/// A resource, ordered: CPU, GPU, memory, others by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Thousandths of a core.
    Cpu,
    /// Thousandths of a device.
    Gpu,
    Memory,
    Other(String),
}

impl Resource {
    /// Returns `cpu`, `gpu`, `memory`, or another `[a-z0-9-]` name.
    ///
    /// # Errors
    /// When the name is empty or has other characters.
    pub fn from_name(name: &str) -> Result<Self, QuantityError> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            "memory" => Ok(Self::Memory),
            other => {
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                if other.is_empty() || other.len() > 63 || !other.chars().all(plain) {
                    return Err(QuantityError::ResourceName(other.to_owned()));
                }
                Ok(Self::Other(other.to_owned()))
            }
        }
    }

    /// Returns the name in documents.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Memory => "memory",
            Self::Other(name) => name,
        }
    }

    /// Returns the field name on the log.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::Cpu => "cpu_milli".to_owned(),
            Self::Gpu => "gpu_milli".to_owned(),
            Self::Memory => "memory_bytes".to_owned(),
            Self::Other(name) => format!("{name}_milli"),
        }
    }

    fn from_field(field: &str) -> Option<Self> {
        match field {
            "cpu_milli" => Some(Self::Cpu),
            "gpu_milli" => Some(Self::Gpu),
            "memory_bytes" => Some(Self::Memory),
            other => Self::from_name(other.strip_suffix("_milli")?)
                .ok()
                .filter(|resource| matches!(resource, Self::Other(_))),
        }
    }

    /// Parses an amount into the log's unit.
    ///
    /// # Errors
    /// When it is not a number with a known suffix, negative, finer than the unit, or too large.
    pub fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let error = |why: &str| QuantityError::Amount {
            resource: self.name().to_owned(),
            text: text.to_owned(),
            why: why.to_owned(),
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
            .unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        let (numerator, denominator): (u128, u128) = match (self, suffix) {
            (Self::Memory, "") => (1, 1),
            (Self::Memory, suffix) => (
                memory_suffix(suffix).ok_or_else(|| error(&bad_memory(number, suffix)))?,
                1,
            ),
            (_, "") => (1000, 1),
            (_, "m") => (1, 1),
            _ => return Err(error(&self.bad_milli(suffix))),
        };
        let (digits, scale) = decimal(number).map_err(error)?;
        let scaled = digits
            .checked_mul(numerator)
            .ok_or_else(|| error(TOO_LARGE))?;
        let divisor = scale * denominator;
        if scaled % divisor != 0 {
            return Err(error("is finer than the unit (a thousandth, or a byte)"));
        }
        u64::try_from(scaled / divisor)
            .ok()
            .filter(|amount| *amount <= MAX_AMOUNT)
            .ok_or_else(|| error(TOO_LARGE))
    }

    fn bad_milli(&self, suffix: &str) -> String {
        let is_bytes = memory_suffix(suffix.trim_end_matches(['B', 'b'])).is_some();
        let other = suggest::resource(self.name(), ["memory"]).filter(|_| is_bytes);
        format!("{BAD_MILLI}{}", suggest::hint(other))
    }

    /// Formats `2`, `500m`, `8Gi`, as read by [`Resource::parse`].
    #[must_use]
    pub fn display(&self, amount: u64) -> String {
        if *self == Self::Memory {
            for (suffix, shift) in [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
                if amount != 0 && amount.trailing_zeros() >= shift {
                    return format!("{}{suffix}", amount >> shift);
                }
            }
            amount.to_string()
        } else if amount.is_multiple_of(1000) {
            (amount / 1000).to_string()
        } else {
            format!("{amount}m")
        }
    }
}

/// Exact as a double, and a sum of a thousand does not overflow.
const MAX_AMOUNT: u64 = 1 << 53;
const TOO_LARGE: &str = "is too large";
const BAD_MEMORY: &str =
    "has an unknown suffix; write bytes or Ki, Mi, Gi, Ti (1024) or k, M, G, T (1000)";
const BAD_MILLI: &str = "has an unknown suffix; write 2, 0.5 or 500m";

/// Suggests a suffix for `4GB`, `4gb`, `4gib`.
fn bad_memory(number: &str, suffix: &str) -> String {
    let lower = suffix.trim().to_lowercase();
    let mut letters = lower.chars();
    let binary = match letters.next() {
        Some('k') => "K",
        Some('m') => "M",
        Some('g') => "G",
        Some('t') => "T",
        Some('p') => "P",
        _ => return BAD_MEMORY.to_owned(),
    };
    let decimal = if binary == "K" { "k" } else { binary };
    match letters.as_str() {
        "" | "b" => format!(
            "has an unknown suffix; did you mean {number}{binary}i (of 1024) or {number}{decimal} (of 1000)?"
        ),
        "i" | "ib" => format!("has an unknown suffix; did you mean {number}{binary}i?"),
        _ => BAD_MEMORY.to_owned(),
    }
}

fn memory_suffix(suffix: &str) -> Option<u128> {
    Some(match suffix {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        _ => return None,
    })
}

fn decimal(number: &str) -> Result<(u128, u128), &'static str> {
    if number.starts_with('-') {
        return Err("is negative");
    }
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 18 || fraction.len() > 12 {
        return Err("is not a number in range");
    }
    let places = u32::try_from(fraction.len()).unwrap_or(12);
    let digits = format!("{whole}{fraction}")
        .parse::<u128>()
        .map_err(|_| "is not a number")?;
    Ok((digits, 10u128.pow(places)))
}

/// An invalid quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("resource name {0:?} is not lower-case letters, digits and '-'")]
    ResourceName(String),
    #[error("{resource}: {text:?} {why}")]
    Amount {
        resource: String,
        text: String,
        why: String,
    },
    #[error("{0:?} is not of the form cpu=8,memory=16Gi")]
    List(String),
}

/// Amounts in log units; an absent resource is 0. No entry is zero, so equal amounts compare equal. For few
/// resources a sorted list is faster than a map.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amounts(Vec<(Resource, u64)>);

/// No program needs less: the unit is missing.
const LEAST_MEMORY: u64 = 1 << 20;

/// Describes an amount that lacks its unit.
#[must_use]
pub fn lacks_unit(memory: u64) -> Option<String> {
    (1..LEAST_MEMORY).contains(&memory).then(|| {
        format!("memory {memory} is {memory} bytes, in which nothing starts; with a unit it is {memory}Gi or {memory}Mi")
    })
}

impl Amounts {
    /// Describes a memory amount that lacks its unit.
    #[must_use]
    pub fn lacks_unit(&self) -> Option<String> {
        lacks_unit(self.get(&Resource::Memory))
    }

    /// Returns empty amounts.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns one amount.
    #[must_use]
    pub fn get(&self, resource: &Resource) -> u64 {
        let entry = self.0.iter().find(|(name, _)| name == resource);
        entry.map_or(0, |(_, amount)| *amount)
    }

    /// Sets one amount.
    pub fn set(&mut self, resource: Resource, amount: u64) {
        match self.position(&resource) {
            Ok(index) if amount == 0 => drop(self.0.remove(index)),
            Ok(index) => self.0[index].1 = amount,
            Err(_) if amount == 0 => {}
            Err(index) => self.0.insert(index, (resource, amount)),
        }
    }

    fn position(&self, resource: &Resource) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| name.cmp(resource))
    }

    fn change(&mut self, resource: &Resource, change: impl FnOnce(u64) -> u64) {
        match self.position(resource) {
            Ok(index) => match change(self.0[index].1) {
                0 => drop(self.0.remove(index)),
                amount => self.0[index].1 = amount,
            },
            Err(_) => self.set(resource.clone(), change(0)),
        }
    }

    /// Returns the amounts above 0, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, u64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    /// True if every amount is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `times` × `other`, saturating.
    pub fn add(&mut self, other: &Self, times: u64) {
        for (resource, amount) in &other.0 {
            let more = amount.saturating_mul(times);
            self.change(resource, |amount| amount.saturating_add(more));
        }
    }

    /// Subtracts `times` × `other`, down to 0.
    pub fn subtract(&mut self, other: &Self, times: u64) {
        for (resource, amount) in &other.0 {
            let less = amount.saturating_mul(times);
            self.change(resource, |amount| amount.saturating_sub(less));
        }
    }

    /// Returns the first resource that `times` × `self` exceeds in `room`.
    #[must_use]
    pub fn first_short(&self, room: &Self, times: u64) -> Option<&Resource> {
        self.0
            .iter()
            .find(|(resource, amount)| amount.saturating_mul(times) > room.get(resource))
            .map(|(resource, _)| resource)
    }

    /// Returns how often `self` fits into `room` (`u64::MAX` when empty).
    #[must_use]
    pub fn times_in(&self, room: &Self) -> u64 {
        self.0
            .iter()
            .map(|(resource, amount)| room.get(resource) / amount)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Parses a map, also with `cpu_milli`-style fields of a normalised spec.
    ///
    /// # Errors
    /// The first invalid quantity.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a Written)>,
    ) -> Result<Self, QuantityError> {
        let mut amounts = Self::new();
        let mut named = BTreeSet::new();
        for (name, written) in entries {
            let wrong = |why: &str| QuantityError::Amount {
                resource: name.to_owned(),
                text: written.0.clone(),
                why: why.to_owned(),
            };
            let (resource, amount) = match name.parse()? {
                Name::Field(resource) => {
                    let amount = written.0.parse::<u64>();
                    let amount = amount.map_err(|_| wrong("is not a whole number"))?;
                    if amount > MAX_AMOUNT {
                        return Err(wrong(TOO_LARGE));
                    }
                    (resource, amount)
                }
                Name::Plain(resource) => {
                    let amount = resource.parse(&written.0)?;
                    (resource, amount)
                }
            };
            if !named.insert(resource.clone()) {
                return Err(wrong("says the same resource once more"));
            }
            amounts.set(resource, amount);
        }
        Ok(amounts)
    }
}

impl FromStr for Amounts {
    type Err = QuantityError;

    /// Parses `cpu=8,memory=16Gi`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        text.parse().map(|entries: Entries| entries.into())
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Entries(pub Vec<(Resource, u64)>);

impl From<Entries> for Amounts {
    fn from(Entries(entries): Entries) -> Self {
        // The usual form on the log.
        let in_order = entries.is_sorted_by(|(a, _), (b, _)| a < b);
        if in_order && entries.iter().all(|(_, amount)| *amount > 0) {
            return Self(entries);
        }
        let mut amounts = Self::new();
        for (resource, amount) in entries {
            amounts.set(resource, amount);
        }
        amounts
    }
}

impl FromStr for Entries {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let mut entries = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| QuantityError::List(text.to_owned()))?;
            let resource = Resource::from_name(name.trim())?;
            let amount = resource.parse(value)?;
            entries.push((resource, amount));
        }
        Ok(Self(entries))
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_entries(f, self.iter())
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_entries(serializer, self.0.len(), self.iter())
    }
}

pub(crate) fn write_entries<'a>(
    f: &mut fmt::Formatter<'_>,
    entries: impl Iterator<Item = (&'a Resource, u64)>,
) -> fmt::Result {
    for (index, (resource, amount)) in entries.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{}={}", resource.name(), resource.display(amount))?;
    }
    Ok(())
}

pub(crate) fn serialize_entries<'a, S: Serializer>(
    serializer: S,
    count: usize,
    entries: impl Iterator<Item = (&'a Resource, u64)>,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(count))?;
    for (resource, amount) in entries {
        map.serialize_entry(&resource.field(), &amount)?;
    }
    map.end()
}

/// An amount's name: with its unit, as on the log, or plain.
enum Name {
    Field(Resource),
    Plain(Resource),
}

impl FromStr for Name {
    type Err = QuantityError;

    fn from_str(name: &str) -> Result<Self, QuantityError> {
        match Resource::from_field(name) {
            Some(resource) => Ok(Self::Field(resource)),
            None => Resource::from_name(name).map(Self::Plain),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parsed(deserializer)
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Entries::deserialize(deserializer).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a map of amounts such as cpu_milli, memory_bytes, or cpu: 2, memory: 8Gi",
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<Name>()? {
                    match name {
                        Name::Field(resource) => entries.push((resource, map.next_value()?)),
                        Name::Plain(resource) => {
                            let written = map.next_value::<Written>()?;
                            let amount = resource.parse(&written.0).map_err(de::Error::custom)?;
                            entries.push((resource, amount));
                        }
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

impl schemars::JsonSchema for Amounts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amounts".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "amounts in log units: cpu_milli, gpu_milli, <name>_milli, memory_bytes",
            "additionalProperties": {"type": "integer", "minimum": 0}
        })
    }
}

/// A quantity as written: a number or a string.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Written(pub String);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WrittenVisitor;
        impl Visitor<'_> for WrittenVisitor {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 2, 0.5, \"500m\" or \"8Gi\"")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Written, E> {
                Ok(Written(value.to_owned()))
            }
        }
        deserializer.deserialize_any(WrittenVisitor)
    }
}

impl schemars::JsonSchema for Written {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "a quantity: 2, 0.5, \"500m\", \"8Gi\"",
            "type": ["number", "string"]
        })
    }
}

#[cfg(test)]
mod tests;
