//! Appending for a writer that folds nothing: an agent, a gateway, the operator's command line.
//!
//! The shell fences with its folded state. A writer without one reads its last own message once
//! and then trusts its acknowledgements; what was never acknowledged is settled like this:
//!
//! 1. A message is sent again, with the same id and the same fence, until it is answered.
//! 2. A refusal by the fence is ambiguous: the first sending may have been stored. A message
//!    stored under the fence `expected` is by construction the first own one after `expected`,
//!    so one read tells: the same id, it was stored; another id, someone else wrote. Bytes that are
//!    no event count as nobody's.
//! 3. For an agent or a gateway that is a second one of the same name: an error. The operators' command
//!    lines share their name: they take the new fence and append again.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use dormouse_messages::{Body, Envelope, Event, GatewayId, NodeId, Sequence, Writer};

use crate::clock::{Clock, WakefulClock};
use crate::error::AppendError;
use crate::lease::token;
use crate::log::{Log, within};
use crate::publish::{self, Fence, Outgoing, Place, PublishError};

/// Between two attempts while the broker is away.
const RETRY: Duration = Duration::from_millis(200);

/// Appends events as `writer`.
pub struct Appender {
    log: Log,
    writer: Writer,
    /// Whether nobody else writes under its filter: an agent's and a gateway's is their own.
    sole: bool,
    /// The writer and a token of its own.
    name: String,
    filter: String,
    /// The last own sequence; `None` until it has been read.
    last: Option<u64>,
}

impl Appender {
    pub(crate) fn new(log: Log, writer: Writer, node: Option<NodeId>) -> Self {
        let filter = log.prefix().writer(writer, node.as_ref());
        let own = node.as_ref().map(NodeId::as_str);
        Self::under(log, writer, own, filter)
    }

    pub(crate) fn of_gateway(log: Log, gateway: &GatewayId) -> Self {
        let filter = log.prefix().gateway(gateway);
        Self::under(log, Writer::Gateway, Some(gateway.as_str()), filter)
    }

    fn under(log: Log, writer: Writer, own: Option<&str>, filter: String) -> Self {
        let token = token();
        Self {
            log,
            writer,
            sole: own.is_some(),
            name: match own {
                Some(own) => format!("{writer}.{own}.{token}"),
                None => format!("{writer}.{token}"),
            },
            filter,
            last: None,
        }
    }

    /// Appends `event`, caused by the events at `causes` (the main one first). Waits through
    /// outages for as long as they last.
    ///
    /// # Errors
    /// When the broker denies or refuses it, when it is too large, or when someone else writes
    /// under the same name.
    pub async fn append(
        &mut self,
        event: Event,
        causes: &[Sequence],
    ) -> Result<Sequence, AppendError> {
        let span = self.log.append_span(self.writer, &event, causes);
        let time = WakefulClock.now();
        loop {
            let expected = self.last().await;
            let place = Place {
                writer: self.writer,
                name: &self.name,
                expected,
                index: 0,
            };
            let traceparent = Some(span.traceparent());
            let message =
                publish::outgoing(self.log.prefix(), &place, time, traceparent, event.clone())?;
            if let Some(stored) = self.store(&message, expected).await? {
                self.last = Some(stored);
                span.stored(stored);
                return Ok(Sequence(stored));
            }
            self.last = None;
        }
    }

    /// Stores the message; `None` when the fence was overtaken and may be read anew.
    async fn store(&self, message: &Outgoing, expected: u64) -> Result<Option<u64>, AppendError> {
        let fence = Fence {
            filter: self.filter.clone(),
            last: expected,
        };
        let mut patience = Patience::new("append");
        loop {
            let doubt = match self.log.publish(message, &fence).await {
                Ok(sequence) => return Ok(Some(sequence)),
                Err(PublishError::Conflict) => match self.first_event_after(expected).await {
                    Ok(Some(found)) if found.id == message.id => return Ok(Some(found.sequence)),
                    Ok(Some(found)) if self.sole => {
                        return Err(AppendError::Superseded {
                            filter: self.filter.clone(),
                            expected: Sequence(expected),
                            found: Sequence(found.sequence),
                        });
                    }
                    Ok(_) => return Ok(None),
                    Err(why) => why,
                },
                Err(PublishError::Doubt(why)) => why,
                Err(PublishError::Refused(error)) => return Err(error),
            };
            patience.wait(&doubt).await;
        }
    }

    /// The last own sequence, from the log's leader where it is not known.
    async fn last(&mut self) -> u64 {
        let mut patience = Patience::new("read the last own event");
        loop {
            if let Some(last) = self.last {
                return last;
            }
            match self.read_last().await {
                Ok(last) => self.last = Some(last),
                Err(why) => patience.wait(&why).await,
            }
        }
    }

    async fn read_last(&self) -> Result<u64, String> {
        let stream = self.log.stream().await?;
        let read = async {
            match stream.get_last_raw_message_by_subject(&self.filter).await {
                Ok(message) => Ok(message.sequence),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(0),
                Err(error) => Err(error),
            }
        };
        within(read).await
    }

    /// The first event under the own subjects after `expected` that a second one of the name wrote.
    /// What is no event is not: where a broker has no accounts anybody may put bytes there. Nor is the
    /// word of a node's keeper that a dead agent's containers have ended.
    async fn first_event_after(&self, expected: u64) -> Result<Option<Found>, String> {
        let mut after = expected;
        loop {
            match self.first_after(after).await? {
                Some(found) if !found.is_of_a_second => after = found.sequence,
                found => return Ok(found),
            }
        }
    }

    /// The first message under the own subjects after `expected`.
    async fn first_after(&self, expected: u64) -> Result<Option<Found>, String> {
        let stream = self.log.stream().await?;
        let read = async {
            let message = stream
                .get_first_raw_message_by_subject(&self.filter, expected + 1)
                .await;
            match message {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let message = within(read).await?;
        Ok(message.map(|message| {
            let id = message.headers.get("Nats-Msg-Id");
            Found {
                sequence: message.sequence,
                id: id.map(|id| id.as_str().to_owned()).unwrap_or_default(),
                is_of_a_second: Envelope::from_msgpack(&message.payload)
                    .is_ok_and(|it| !matches!(it.body, Body::Event(Event::NodeFenced(_)))),
            }
        }))
    }
}

/// A message under the own subjects.
struct Found {
    sequence: u64,
    id: String,
    is_of_a_second: bool,
}

/// Waits between attempts, and says every ten seconds that it still does.
struct Patience {
    what: &'static str,
    said: Option<Instant>,
}

impl Patience {
    fn new(what: &'static str) -> Self {
        Self { what, said: None }
    }

    async fn wait(&mut self, why: &str) {
        if self
            .said
            .is_none_or(|said| said.elapsed() > Duration::from_secs(10))
        {
            self.said = Some(Instant::now());
            tracing::warn!(
                what = self.what,
                why,
                "the broker does not answer; trying on"
            );
        }
        tokio::time::sleep(RETRY).await;
    }
}
