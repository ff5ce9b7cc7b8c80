//! A job spec kept encoded and decoded on use, since a decoded spec takes twenty times the memory.

use std::borrow::Cow;
use std::fmt;
use std::io;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::job::JobSpec;

/// A job spec, packed or open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SerializedSpec {
    /// As on the log.
    Packed(Packed),
    Open(Box<JobSpec>),
}

/// The bytes of a spec.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

impl SerializedSpec {
    /// Packs a spec.
    #[must_use]
    pub fn packed(spec: &JobSpec) -> Self {
        match rmp_serde::to_vec_named(spec) {
            Ok(bytes) => Self::Packed(Packed(bytes.into_boxed_slice())),
            // Impossible: decoded from such bytes.
            Err(_) => Self::Open(Box::new(spec.clone())),
        }
    }

    /// Returns the spec.
    #[must_use]
    pub fn get(&self) -> Option<Cow<'_, JobSpec>> {
        match self {
            Self::Open(spec) => Some(Cow::Borrowed(spec)),
            Self::Packed(packed) => packed.read().map(Cow::Owned),
        }
    }

    /// Returns the spec if it is open.
    #[must_use]
    pub fn opened(&self) -> Option<&JobSpec> {
        match self {
            Self::Open(spec) => Some(spec),
            Self::Packed(_) => None,
        }
    }

    /// Decodes the spec.
    pub fn open(&mut self) {
        if let Self::Packed(packed) = self
            && let Some(spec) = packed.read()
        {
            *self = Self::Open(Box::new(spec));
        }
    }

    /// Encodes the spec.
    pub fn pack(&mut self) {
        if let Self::Open(spec) = self {
            *self = Self::packed(spec);
        }
    }

    /// Changes the spec in its form.
    pub fn change(&mut self, change: impl FnOnce(&mut JobSpec)) {
        match self {
            Self::Open(spec) => change(spec),
            Self::Packed(packed) => {
                if let Some(mut spec) = packed.read() {
                    change(&mut spec);
                    *self = Self::packed(&spec);
                }
            }
        }
    }
}

impl Packed {
    fn read(&self) -> Option<JobSpec> {
        rmp_serde::from_slice(&self.0).ok()
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Packed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of a specification")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Packed, E> {
                Ok(Packed(bytes.into()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Packed, E> {
                Ok(Packed(bytes.into_boxed_slice()))
            }

            // For formats such as JSON.
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Packed, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = all.next_element()? {
                    bytes.push(byte);
                }
                Ok(Packed(bytes.into_boxed_slice()))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the bytes of a spec on the log.
#[must_use]
pub fn bytes_of(spec: &JobSpec) -> u64 {
    let mut counted = Counted(0);
    let mut writer = rmp_serde::Serializer::new(&mut counted).with_struct_map();
    // Cannot fail: the spec is on the log.
    let _ = spec.serialize(&mut writer);
    counted.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JobSpec {
        let document = serde_json::json!({
            "name": "lr", "tenant": "ads", "command": {"start": ["python3", "train.py"]},
            "demand": {"cpu_milli": 2000}, "weight": 1, "containers": {"min": 1, "max": 8},
            "checkpoint": {"mode": "exit"},
            "env": {"BATCH": "512", "KEY": {"from": {"file": "token"}}},
        });
        serde_json::from_value(document).expect("a job")
    }

    #[test]
    fn what_is_packed_says_the_same() {
        let mut kept = SerializedSpec::packed(&spec());
        assert!(kept.opened().is_none());
        assert_eq!(kept.get().expect("reads").into_owned(), spec());
        kept.change(|spec| spec.weight = 7);
        assert!(matches!(kept, SerializedSpec::Packed(_)));
        kept.open();
        assert_eq!(kept.opened().map(|spec| spec.weight), Some(7));
        kept.change(|spec| spec.weight = 1);
        kept.pack();
        assert_eq!(kept, SerializedSpec::packed(&spec()));
    }

    #[test]
    fn its_bytes_are_those_of_the_log() {
        let SerializedSpec::Packed(packed) = SerializedSpec::packed(&spec()) else {
            panic!("it is packed");
        };
        assert_eq!(bytes_of(&spec()), packed.bytes() as u64);
    }

    #[test]
    fn a_snapshot_keeps_it_in_every_format() {
        let kept = SerializedSpec::packed(&spec());
        let packed = rmp_serde::to_vec_named(&kept).expect("written");
        assert_eq!(
            rmp_serde::from_slice::<SerializedSpec>(&packed).expect("reads"),
            kept
        );
        let SerializedSpec::Packed(bytes) = &kept else {
            panic!("it is packed");
        };
        assert!(packed.len() < bytes.bytes() + 32, "{}", packed.len());
        let text = serde_json::to_string(&kept).expect("written");
        assert_eq!(
            serde_json::from_str::<SerializedSpec>(&text).expect("reads"),
            kept
        );
    }
}
