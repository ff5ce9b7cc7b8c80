//! Encodes and decodes envelopes: MessagePack on the log, JSON lines in exports. Fields are written in one order
//! and read in any.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{Body, CodecError, Envelope, Recorded};
use crate::events::{Event, EventType};
use crate::ids::Sequence;
use crate::text::{self, Text};
use crate::time::Timestamp;

impl Envelope {
    /// Encodes as MessagePack.
    ///
    /// # Errors
    /// When a value cannot be represented; none of ours is.
    pub fn to_msgpack(&self) -> Result<Vec<u8>, CodecError> {
        Ok(rmp_serde::to_vec_named(&Wire::of(self, None))?)
    }

    /// Decodes MessagePack.
    ///
    /// # Errors
    /// When the bytes are not an event.
    pub fn from_msgpack(bytes: &[u8]) -> Result<Self, CodecError> {
        let read = |known_type| {
            let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
            EnvelopeSeed { known_type }.deserialize(&mut deserializer)
        };
        match read(None)? {
            Parsed::Whole(whole) => Ok(whole.envelope),
            Parsed::TypeCameLate(type_name) => match read(Some(type_name))? {
                Parsed::Whole(whole) => Ok(whole.envelope),
                Parsed::TypeCameLate(_) => Err(missing_data()),
            },
        }
    }
}

impl Recorded {
    /// Encodes a line of an export.
    ///
    /// # Errors
    /// When a value cannot be represented; none of ours is.
    pub fn to_json(&self, log: &str) -> Result<String, CodecError> {
        let place = Place {
            log: log.to_owned(),
            sequence: self.sequence,
            stored_at: self.stored_at,
        };
        Ok(serde_json::to_string(&Wire::of(
            &self.envelope,
            Some(place),
        ))?)
    }

    /// Decodes a line of an export: the log's identity and the event.
    ///
    /// # Errors
    /// When the line is no exported event, or its writer is not permitted.
    pub fn from_json(line: &str) -> Result<(String, Self), CodecError> {
        let read = |known_type| {
            let mut deserializer = serde_json::Deserializer::from_str(line);
            let parsed = EnvelopeSeed { known_type }.deserialize(&mut deserializer)?;
            deserializer.end().map(|()| parsed)
        };
        let whole = match read(None)? {
            Parsed::Whole(whole) => whole,
            Parsed::TypeCameLate(type_name) => match read(Some(type_name))? {
                Parsed::Whole(whole) => whole,
                Parsed::TypeCameLate(_) => return Err(missing_data()),
            },
        };
        let sequence = whole.sequence.ok_or_else(|| missing("sequence"))?;
        let stored_at = whole.stored_at.ok_or_else(|| missing("storedat"))?;
        let recorded = Self::exported(sequence, stored_at, whole.envelope)?;
        Ok((whole.log.unwrap_or_default(), recorded))
    }
}

fn missing(field: &str) -> CodecError {
    CodecError::Line(format!("the line has no {field}"))
}

fn missing_data() -> CodecError {
    CodecError::Line("the event has no type or no data".to_owned())
}

struct Place {
    log: String,
    sequence: Sequence,
    stored_at: Timestamp,
}

/// In the order written: `type` before `data`.
#[derive(Serialize)]
struct Wire<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    subject: &'a str,
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storedat: Option<Timestamp>,
    data: Option<&'a Event>,
}

impl<'a> Wire<'a> {
    fn of(envelope: &'a Envelope, place: Option<Place>) -> Self {
        let (type_name, data) = match &envelope.body {
            Body::Event(event) => (event.type_name(), Some(event)),
            Body::Unknown { type_name } => (type_name.as_str(), None),
        };
        let (log, sequence, storedat) = match place {
            Some(place) => (
                Some(place.log),
                Some(place.sequence.to_string()),
                Some(place.stored_at),
            ),
            None => (None, None, None),
        };
        Self {
            specversion: "1.0",
            id: &envelope.id,
            source: &envelope.source,
            type_name,
            subject: &envelope.subject,
            time: envelope.time,
            traceparent: envelope.traceparent.as_deref(),
            log,
            sequence,
            storedat,
            data,
        }
    }
}

enum Parsed {
    Whole(Whole),
    /// `data` came before `type`.
    TypeCameLate(TypeName),
}

struct Whole {
    envelope: Envelope,
    log: Option<String>,
    sequence: Option<Sequence>,
    stored_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Specversion,
    Id,
    Source,
    Type,
    Subject,
    Time,
    Traceparent,
    Log,
    Sequence,
    Storedat,
    Data,
    #[serde(other)]
    Other,
}

struct EnvelopeSeed {
    known_type: Option<TypeName>,
}

enum TypeName {
    Known(EventType),
    Unknown(String),
}

impl FromStr for TypeName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let unknown = || Self::Unknown(text.to_owned());
        Ok(EventType::of(text).map_or_else(unknown, Self::Known))
    }
}

impl<'de> Deserialize<'de> for TypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parsed(deserializer)
    }
}

struct Version;

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1.0" => Ok(Self),
            other => Err(format!("specversion {other:?} is not 1.0")),
        }
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parsed(deserializer)
    }
}

impl<'de> DeserializeSeed<'de> for EnvelopeSeed {
    type Value = Parsed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

#[derive(Default)]
struct Fields {
    id: Option<Text>,
    source: Option<Text>,
    type_name: Option<TypeName>,
    subject: Option<Text>,
    time: Option<Timestamp>,
    traceparent: Option<String>,
    log: Option<String>,
    sequence: Option<String>,
    stored_at: Option<Timestamp>,
    event: Option<Event>,
}

impl<'de> Visitor<'de> for EnvelopeSeed {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CloudEvents 1.0 event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut fields = Fields::default();
        let mut data_skipped = false;
        while let Some(field) = map.next_key::<Field>()? {
            match field {
                Field::Specversion => {
                    map.next_value::<Version>()?;
                }
                Field::Id => fields.id = Some(map.next_value()?),
                Field::Source => fields.source = Some(map.next_value()?),
                Field::Type => fields.type_name = Some(map.next_value()?),
                Field::Subject => fields.subject = Some(map.next_value()?),
                Field::Time => fields.time = Some(map.next_value()?),
                Field::Traceparent => fields.traceparent = map.next_value()?,
                Field::Log => fields.log = Some(map.next_value()?),
                Field::Sequence => fields.sequence = Some(map.next_value()?),
                Field::Storedat => fields.stored_at = Some(map.next_value()?),
                Field::Data => match fields.type_name.as_ref().or(self.known_type.as_ref()) {
                    Some(TypeName::Known(event_type)) => {
                        fields.event = Some(map.next_value_seed(DataSeed(*event_type))?);
                    }
                    Some(TypeName::Unknown(_)) => {
                        map.next_value::<IgnoredAny>()?;
                    }
                    None => {
                        data_skipped = true;
                        map.next_value::<IgnoredAny>()?;
                    }
                },
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (data_skipped, fields.type_name.take()) {
            (true, Some(type_name)) => Ok(Parsed::TypeCameLate(type_name)),
            (_, type_name) => fields.finish(type_name),
        }
    }
}

impl Fields {
    fn finish<E: de::Error>(self, type_name: Option<TypeName>) -> Result<Parsed, E> {
        let type_name = type_name.ok_or_else(|| E::missing_field("type"))?;
        let body = match (self.event, type_name) {
            (Some(event), _) => Body::Event(event),
            (None, TypeName::Known(_)) => return Err(E::missing_field("data")),
            (None, TypeName::Unknown(type_name)) => Body::Unknown { type_name },
        };
        let sequence = match self.sequence {
            Some(text) => Some(Sequence(text.parse().map_err(E::custom)?)),
            None => None,
        };
        Ok(Parsed::Whole(Whole {
            envelope: Envelope {
                id: self.id.ok_or_else(|| E::missing_field("id"))?,
                source: self.source.ok_or_else(|| E::missing_field("source"))?,
                subject: self.subject.unwrap_or_default(),
                time: self.time.ok_or_else(|| E::missing_field("time"))?,
                traceparent: self.traceparent,
                body,
            },
            log: self.log,
            sequence,
            stored_at: self.stored_at,
        }))
    }
}

struct DataSeed(EventType);

impl<'de> DeserializeSeed<'de> for DataSeed {
    type Value = Event;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer)
    }
}
