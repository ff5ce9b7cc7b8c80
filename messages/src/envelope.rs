//! The CloudEvents 1.0 envelope and its codecs: MessagePack with field names on the log, JSON lines in
//! exports. `type` before `data` lets decoding take one pass instead of two.
//!
//! - `codec.rs`: encodes and decodes

mod codec;

use crate::events::{Event, EventType, Key, Writer};
use crate::format::{Format, NewerFormat};
use crate::ids::{GatewayId, NodeId, QueueId, ReservationId, Sequence};
use crate::subject::SHARD;
use crate::text::Text;
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
}

impl Recorded {
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
        Event::SubmissionsRateLimited(event) => format!("submission/{}", event.last),
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
mod tests;
