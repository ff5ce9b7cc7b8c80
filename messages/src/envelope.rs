//! The CloudEvents 1.0 envelope and its codecs: MessagePack with field names on the log, JSON lines in
//! exports. `type` before `data` lets decoding take one pass instead of two.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::events::{Event, EventType, Key, Writer};
use crate::format::{Format, NewerFormat};
use crate::ids::{GatewayId, NodeId, QueueId, ReservationId, Sequence};
use crate::subject::SHARD;
use crate::text::{self, Text};
use crate::time::Timestamp;
use crate::who::{By, is_user};

/// The media type of an event on the log.
pub const CONTENT_TYPE: &str = "application/cloudevents+msgpack";

/// An event in its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// Equal appends have equal ids.
    pub id: Text,
    /// `/dormouse/<writer>`, then the node, the gateway, or the operator's own account.
    pub source: Text,
    pub subject: Text,
    /// By the writer's clock.
    pub time: Timestamp,
    pub traceparent: Option<String>,
    pub body: Body,
}

/// An envelope's content.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Event(Event),
    /// A type that this build does not know.
    Unknown {
        type_name: String,
    },
}

/// An event as recorded on the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub sequence: Sequence,
    /// The leading broker's stamp, which steps with the leader. [`crate::Fact`] has the event's time.
    pub stored_at: Timestamp,
    pub writer: Writer,
    pub envelope: Envelope,
}

impl Recorded {
    /// Returns the event, if its type is known.
    #[must_use]
    pub fn event(&self) -> Option<&Event> {
        match &self.envelope.body {
            Body::Event(event) => Some(event),
            Body::Unknown { .. } => None,
        }
    }

    /// Returns the user that the broker vouches for, if there is one: the submission's author or the
    /// operator.
    #[must_use]
    pub fn by(&self) -> Option<By> {
        if let Some(by) = self.event().and_then(Event::by) {
            return Some(by.clone());
        }
        let user = self.envelope.source.strip_prefix(OPERATORS)?;
        (self.writer == Writer::Operator).then(|| By::operator(user))
    }
}

/// Sources of operators with their own accounts.
const OPERATORS: &str = "/dormouse/operator/";

/// An invalid encoded event.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("not an event in MessagePack: {0}")]
    MessagePack(#[from] rmp_serde::decode::Error),
    #[error("cannot encode: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("not an event in JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{type_name} may not be written by {writer} under {key:?}")]
    Writer {
        type_name: String,
        writer: Writer,
        key: String,
    },
    /// An observation in an unknown version.
    #[error(
        "{type_name} by {writer} {key} is in a version that this build does not know; agents and gateways are upgraded after the services"
    )]
    NewerFact {
        type_name: String,
        writer: Writer,
        key: String,
    },
    #[error("{0}")]
    Line(String),
}

impl Envelope {
    /// Wraps `event`, written by `writer` at `time`.
    #[must_use]
    pub fn new(
        id: impl Into<Text>,
        writer: Writer,
        time: Timestamp,
        traceparent: Option<String>,
        event: Event,
    ) -> Self {
        let (source, subject) = match (&event, event.key()) {
            (Event::AllocationDecided(decided), _) => (
                format!("/dormouse/{writer}"),
                format!("epoch/{}", decided.epoch),
            ),
            (_, Key::Job(job)) => (format!("/dormouse/{writer}"), job.to_string()),
            (_, Key::Node(node)) => match writer {
                Writer::Node => (writer.source(node.as_str()), node.to_string()),
                _ => (format!("/dormouse/{writer}"), format!("node/{node}")),
            },
            (_, Key::Gateway(gateway)) => (
                writer.source(gateway.as_str()),
                measured_subject(&event, gateway),
            ),
            (_, Key::Shard) => (format!("/dormouse/{writer}"), shard_subject(&event)),
        };
        Self {
            id: id.into(),
            source: source.into(),
            subject: subject.into(),
            time,
            traceparent,
            body: Body::Event(event),
        }
    }

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

    /// Makes the record of an event of an export, whose source names its writer.
    ///
    /// # Errors
    /// When the writer is unknown or not permitted.
    pub fn exported(
        sequence: Sequence,
        stored_at: Timestamp,
        envelope: Envelope,
    ) -> Result<Self, CodecError> {
        let (writer, key) = source_writer(&envelope.source)?;
        let recorded = Self {
            sequence,
            stored_at,
            writer,
            envelope,
        };
        recorded.check_writer(&key)?;
        Ok(recorded)
    }

    /// Returns the type, if skipping it could change decisions: another version of a known type, or an
    /// operator's or decider's unknown type.
    #[must_use]
    pub fn too_new(&self) -> Option<&str> {
        match &self.envelope.body {
            Body::Unknown { type_name }
                if !self.writer.is_outside() || Event::is_other_version(type_name) =>
            {
                Some(type_name)
            }
            Body::Unknown { .. } | Body::Event(_) => None,
        }
    }

    /// Returns the format that the cluster was upgraded to, if this build does not read it.
    #[must_use]
    pub fn newer_format(&self) -> Option<NewerFormat> {
        match self.event() {
            Some(Event::ClusterUpgraded(event)) if event.format > Format::NEWEST => {
                Some(NewerFormat {
                    sequence: self.sequence,
                    format: event.format,
                    by: event.basis.as_ref().map(|basis| basis.build.clone()),
                })
            }
            _ => None,
        }
    }

    /// Adds the operator's name from the subject, known only to the broker, to the source. Another name stays
    /// and fails the check.
    pub fn vouch(&mut self, first_key: &str) {
        let is_named = self.writer == Writer::Operator && is_user(first_key);
        if is_named && OPERATORS.strip_suffix('/') == Some(self.envelope.source.as_str()) {
            self.envelope.source = format!("{OPERATORS}{first_key}").into();
        }
    }

    /// A key has one source, since the log clock keeps a word per source.
    fn is_vouched(&self, first_key: &str) -> bool {
        let source = self.envelope.source.as_str();
        match self.writer {
            Writer::Operator => source.strip_prefix(OPERATORS).unwrap_or(SHARD) == first_key,
            Writer::Node | Writer::Gateway => source == self.writer.source(first_key),
            _ => true,
        }
    }

    /// Checks the writer; `first_key` is the subject's first key token.
    ///
    /// # Errors
    /// When it may not write the event.
    pub fn check_writer(&self, first_key: &str) -> Result<(), CodecError> {
        let (type_name, may_write) = match &self.envelope.body {
            Body::Event(event) => {
                let own_key = match event.key() {
                    Key::Node(node) if self.writer == Writer::Node => node.as_str() == first_key,
                    Key::Gateway(gateway) if self.writer == Writer::Gateway => {
                        gateway.as_str() == first_key
                    }
                    Key::Job(_) | Key::Shard | Key::Node(_) | Key::Gateway(_) => true,
                };
                let own_key = own_key && self.is_vouched(first_key);
                let may_write = own_key && event.writers().contains(&self.writer);
                (event.type_name(), may_write)
            }
            // Another version stops every service that folds the type. A node's key must not have that power.
            Body::Unknown { type_name } => {
                let writers = Event::writers_of_other_version(type_name);
                let is_vouched = !self.writer.is_outside() || self.is_vouched(first_key);
                let may_write =
                    is_vouched && writers.is_none_or(|writers| writers.contains(&self.writer));
                if may_write && writers.is_some() && self.writer.is_outside() {
                    return Err(CodecError::NewerFact {
                        type_name: type_name.to_owned(),
                        writer: self.writer,
                        key: first_key.to_owned(),
                    });
                }
                (type_name.as_str(), may_write)
            }
        };
        if may_write {
            return Ok(());
        }
        Err(CodecError::Writer {
            type_name: type_name.to_owned(),
            writer: self.writer,
            key: first_key.to_owned(),
        })
    }
}

fn missing(field: &str) -> CodecError {
    CodecError::Line(format!("the line has no {field}"))
}

fn missing_data() -> CodecError {
    CodecError::Line("the event has no type or no data".to_owned())
}

fn source_writer(source: &str) -> Result<(Writer, String), CodecError> {
    let mut parts = source.trim_start_matches("/dormouse/").splitn(2, '/');
    let writer = parts.next().unwrap_or_default();
    let writer = writer.parse().map_err(CodecError::Line)?;
    Ok((writer, parts.next().unwrap_or("0").to_owned()))
}

fn measured_subject(event: &Event, gateway: &GatewayId) -> String {
    match event {
        Event::ServiceMeasured(event) => event.job.to_string(),
        Event::GatewayUnrouted(event) => event.container.job.to_string(),
        _ => format!("gateway/{gateway}"),
    }
}

fn shard_subject(event: &Event) -> String {
    let node = |node: &NodeId| format!("node/{node}");
    let queue = |queue: &QueueId| format!("queue/{queue}");
    let reservation = |it: &ReservationId| format!("reservation/{it}");
    match event {
        Event::NodeLabelled(event) => node(&event.node),
        Event::NodeRestored(event) => node(&event.node),
        Event::NodeLost(event) => node(&event.node),
        Event::NodeRecovered(event) => node(&event.node),
        Event::NodeQuarantined(event) => node(&event.node),
        Event::NodeReadmitted(event) => node(&event.node),
        Event::SlurmQueueConfigured(event) => queue(&event.queue),
        Event::SlurmQueueRemoved(event) => queue(&event.queue),
        Event::SlurmRequested(event) => queue(&event.queue),
        Event::SlurmSubmitted(event) => queue(&event.queue),
        Event::SlurmRefused(event) => queue(&event.queue),
        Event::SlurmEstimated(event) => queue(&event.queue),
        Event::SlurmGranted(event) => queue(&event.queue),
        Event::SlurmReleased(event) => queue(&event.queue),
        Event::SlurmEnded(event) => queue(&event.queue),
        Event::PlacementDecided(event) => format!("epoch/{}", event.epoch),
        Event::PlacementRefused(event) => format!("epoch/{}", event.epoch),
        Event::SubmissionReceived(event) => format!("submission/{}", event.ingress_sequence),
        Event::SubmissionsShed(event) => format!("submission/{}", event.last),
        Event::BudgetConfigured(event) => format!("tenant/{}", event.tenant),
        Event::BudgetLevelChanged(event) => format!("tenant/{}", event.tenant),
        Event::ReservationConfigured(event) => reservation(&event.reservation),
        Event::ReservationRemoved(event) => reservation(&event.reservation),
        Event::ReservationPhaseChanged(event) => reservation(&event.reservation),
        Event::TenantGranted(event) => format!("tenant/{}", event.tenant),
        Event::TenantRemoved(event) => format!("tenant/{}", event.tenant),
        Event::KeyCreated(event) => format!("key/{}", event.name),
        Event::KeyRotated(event) => format!("key/{}", event.name),
        Event::KeyRevoked(event) => format!("key/{}", event.name),
        Event::BuildJoined(event) => format!("build/{}", event.process),
        Event::BuildLeft(event) => format!("build/{}", event.process),
        Event::JobRefused(event) => event.job.as_ref().map_or_else(
            || format!("submission/{}", event.ingress_sequence),
            ToString::to_string,
        ),
        Event::JobAdmitted(event) => event.job.to_string(),
        Event::JobReleased(event) => event.job.to_string(),
        Event::JobRevised(event) => event.job.to_string(),
        Event::JobRequeued(event) => event.job.to_string(),
        Event::JobCancelRequested(event) => event.job.to_string(),
        Event::PlanAccepted(event) => event.job.to_string(),
        Event::PlanMissed(event) => event.job.to_string(),
        _ => "cluster".to_owned(),
    }
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

impl Event {
    /// True if another version of the type is known; deciders stop there.
    #[must_use]
    pub fn is_other_version(type_name: &str) -> bool {
        Self::writers_of_other_version(type_name).is_some()
    }

    fn writers_of_other_version(type_name: &str) -> Option<&'static [Writer]> {
        let stem = |name: &str| name.rsplit_once(".v").map(|(stem, _)| stem.to_owned());
        let name = stem(type_name).filter(|_| EventType::of(type_name).is_none())?;
        let mut table = Self::writer_table().into_iter();
        let known = table.find(|(known, _)| stem(known).as_ref() == Some(&name));
        known.map(|(_, writers)| writers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::JobReleased;

    fn released() -> Recorded {
        let job = "ads/lr".parse().expect("valid");
        let event = Event::from(JobReleased {
            job,
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
        let time = Timestamp::from_micros(1_000_000);
        Recorded {
            sequence: Sequence(7),
            stored_at: time.plus_ms(4),
            writer: Writer::Admission,
            envelope: Envelope::new("id-1".to_owned(), Writer::Admission, time, None, event),
        }
    }

    #[test]
    fn both_codecs_read_back() {
        let recorded = released();
        let bytes = recorded.envelope.to_msgpack().expect("encodes");
        assert_eq!(
            Envelope::from_msgpack(&bytes).expect("decodes"),
            recorded.envelope
        );
        let line = recorded.to_json("log-1").expect("encodes");
        let (log, back) = Recorded::from_json(&line).expect("decodes");
        assert_eq!((log.as_str(), back), ("log-1", recorded));
    }

    #[test]
    fn a_number_reads_back_to_the_last_bit() {
        // Once broke the verification of an exported log.
        let gap = 2.155_380_391_424_781_8e-16_f64;
        let text = serde_json::to_string(&gap).expect("encodes");
        let back: f64 = serde_json::from_str(&text).expect("decodes");
        assert_eq!(back.to_bits(), gap.to_bits());
    }

    #[test]
    fn type_after_data_takes_a_second_pass() {
        let line = r#"{"data":{"job":"ads/lr","later":1},"specversion":"1.0","id":"x","source":"/dormouse/admission","time":"2026-11-21T10:00:00Z","type":"dormouse.job.released.v1","sequence":"7","storedat":"2026-11-21T10:00:00Z"}"#;
        let (_, recorded) = Recorded::from_json(line).expect("decodes");
        assert!(matches!(recorded.event(), Some(Event::JobReleased(_))));
    }

    #[test]
    fn unknown_types_are_kept_apart_from_unknown_versions() {
        let line = r#"{"specversion":"1.0","id":"x","source":"/dormouse/admission","type":"dormouse.job.promoted.v1","time":"2026-11-21T10:00:00Z","data":{"a":[1]},"sequence":"7","storedat":"2026-11-21T10:00:00Z"}"#;
        let (_, recorded) = Recorded::from_json(line).expect("decodes");
        assert_eq!(recorded.event(), None);
        assert!(!Event::is_other_version("dormouse.job.promoted.v1"));
        assert!(Event::is_other_version("dormouse.job.released.v2"));
        assert!(!Event::is_other_version("dormouse.job.released.v1"));
    }

    #[test]
    fn the_wrong_writer_is_found() {
        let mut recorded = released();
        recorded.writer = Writer::Optimizer;
        assert!(recorded.check_writer("0").is_err());
        let type_name = "dormouse.job.released.v2".to_owned();
        recorded.envelope.body = Body::Unknown { type_name };
        assert!(recorded.check_writer("0").is_err());
        recorded.writer = Writer::Admission;
        assert!(recorded.check_writer("0").is_ok());
    }

    #[test]
    fn a_new_type_of_a_decider_asks_for_a_newer_build_and_that_of_a_node_does_not() {
        let mut recorded = released();
        assert_eq!(recorded.too_new(), None);
        let type_name = "dormouse.job.promoted.v1".to_owned();
        recorded.envelope.body = Body::Unknown { type_name };
        assert_eq!(recorded.too_new(), Some("dormouse.job.promoted.v1"));
        recorded.writer = Writer::Node;
        assert_eq!(recorded.too_new(), None);
    }

    #[test]
    fn an_operator_is_whom_the_subject_names() {
        let mut recorded = released();
        recorded.writer = Writer::Operator;
        let node: NodeId = "n0".parse().expect("valid");
        let restored = Event::from(crate::events::NodeRestored { node });
        let time = recorded.envelope.time;
        recorded.envelope = Envelope::new("id", Writer::Operator, time, None, restored);
        assert!(recorded.check_writer("0").is_ok() && recorded.by().is_none());
        // The name is only in the subject.
        assert!(recorded.check_writer("olga").is_err());
        let plain = recorded.clone();
        recorded.vouch("olga");
        assert!(recorded.check_writer("olga").is_ok());
        assert_eq!(recorded.by(), Some(By::operator("olga")));
        let line = recorded.to_json("log-1").expect("encodes");
        assert_eq!(Recorded::from_json(&line).expect("decodes").1, recorded);
        // Another user's name fails under every subject.
        recorded.vouch("otto");
        assert!(recorded.check_writer("otto").is_err());
        recorded.vouch("0");
        assert!(recorded.check_writer("0").is_err());
        let mut plain = plain;
        plain.vouch("0");
        assert!(plain.check_writer("0").is_ok() && plain.by().is_none());
    }

    #[test]
    fn a_node_stops_nobody_with_a_version_of_its_own() {
        let mut recorded = released();
        recorded.writer = Writer::Node;
        recorded.envelope.source = Writer::Node.source("n0").into();
        let type_name = "dormouse.container.exited.v2".to_owned();
        recorded.envelope.body = Body::Unknown { type_name };
        let error = recorded.check_writer("n0").expect_err("flagged");
        assert!(error.to_string().contains("upgraded after"), "{error}");
        let type_name = "dormouse.container.dreamt.v1".to_owned();
        recorded.envelope.body = Body::Unknown { type_name };
        assert!(recorded.check_writer("n0").is_ok());
    }

    /// A key could otherwise fill every log clock with sources.
    #[test]
    fn a_node_and_a_gateway_have_one_source_each() {
        let mut recorded = released();
        recorded.writer = Writer::Node;
        let type_name = "dormouse.container.dreamt.v1".to_owned();
        recorded.envelope.body = Body::Unknown { type_name };
        for source in [
            "/dormouse/node/n1",
            "/dormouse/node/n0/1",
            "/dormouse/node",
            "x",
        ] {
            recorded.envelope.source = source.into();
            assert!(recorded.check_writer("n0").is_err(), "{source}");
        }
        let node: NodeId = "n0".parse().expect("valid");
        let reason = String::new();
        let event = crate::events::NodeFenced {
            node,
            incarnation: 1,
            reason,
        };
        let time = recorded.envelope.time;
        recorded.envelope = Envelope::new("id", Writer::Node, time, None, event.into());
        assert!(recorded.check_writer("n0").is_ok());
        recorded.envelope.source = "/dormouse/node/n0-1".into();
        assert!(recorded.check_writer("n0").is_err());
        let gateway = "g0".parse().expect("valid");
        let event = crate::events::GatewayLeft { gateway };
        recorded.writer = Writer::Gateway;
        recorded.envelope = Envelope::new("id", Writer::Gateway, time, None, event.into());
        assert!(recorded.check_writer("g0").is_ok());
        recorded.envelope.source = "/dormouse/gateway/g1".into();
        assert!(recorded.check_writer("g0").is_err());
    }

    #[test]
    fn garbage_is_an_error() {
        for bytes in [&b""[..], b"\xc1", b"{}", b"\x80", b"\x81\xa1a\x01"] {
            assert!(Envelope::from_msgpack(bytes).is_err());
        }
    }
}
