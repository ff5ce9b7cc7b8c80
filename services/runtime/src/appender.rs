//! The appender of a writer without a fold (`dormouse_shell::append_resolver`): an agent, a gateway, the operator.

use std::time::{Duration, Instant};

use dormouse_messages::{Body, Envelope, Event, GatewayId, NodeId, Sequence, Timestamp, Writer};

use dormouse_shell::append_resolver::{AppendResolver, AppendResult, Author, Found, Step};

use crate::clock::{Clock, WakefulClock};
use crate::error::AppendError;
use crate::lease::token;
use crate::log::Log;
use crate::publish::{self, Fence, Outgoing, Place, PublishError};

const RETRY: Duration = Duration::from_millis(200);

/// Appends events as one writer.
pub struct Appender {
    log: Log,
    writer: Writer,
    name: String,
    filter: String,
    settle: AppendResolver,
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

    pub(crate) fn of_operator_after(log: Log, last: Sequence) -> Self {
        Self {
            settle: AppendResolver::after(last),
            ..Self::new(log, Writer::Operator, None)
        }
    }

    fn under(log: Log, writer: Writer, own: Option<&str>, filter: String) -> Self {
        let token = token();
        Self {
            log,
            writer,
            name: match own {
                Some(own) => format!("{writer}.{own}.{token}"),
                None => format!("{writer}.{token}"),
            },
            filter,
            settle: AppendResolver::new(own.is_some()),
        }
    }

    /// Appends `event`, caused by the events at `causes` (the main one first). Waits through outages.
    ///
    /// # Errors
    /// When the broker denies or refuses the event, the event is too large, or another process writes under
    /// this name.
    pub async fn append(
        &mut self,
        event: Event,
        causes: &[Sequence],
    ) -> Result<Sequence, AppendError> {
        let span = self.log.append_span(self.writer, &event, causes);
        let time = WakefulClock.now();
        let mut patience = Patience::default();
        let mut sent: Option<(u64, Outgoing)> = None;
        self.settle.begin();
        loop {
            match self.settle.next_step() {
                Step::ReadLast => {
                    let read = self.read_last().await;
                    self.settle.begins_at(self.log.first());
                    self.settle.last(patience.answer(read).map(Sequence));
                }
                Step::Send(Sequence(expected)) => {
                    let message = match sent.take().filter(|(under, _)| *under == expected) {
                        Some((_, message)) => message,
                        None => {
                            let traceparent = Some(span.traceparent());
                            self.message(expected, time, traceparent, event.clone())?
                        }
                    };
                    let answer = self.send(&message, expected, &mut patience).await?;
                    self.settle.sent(answer);
                    sent = Some((expected, message));
                }
                Step::Read(Sequence(after)) => {
                    let id = sent.as_ref().map(|(_, message)| message.id.as_str());
                    let read = self.first_after(after, id.unwrap_or_default()).await;
                    match patience.answer(read) {
                        Some(found) => self.settle.found(found),
                        None => self.settle.unread(),
                    }
                }
                Step::Wait => patience.wait().await,
                Step::Stored(stored) => {
                    span.stored(stored.0);
                    return Ok(stored);
                }
                Step::Taken { expected, found } => {
                    return Err(AppendError::Superseded {
                        filter: self.filter.clone(),
                        expected,
                        found,
                    });
                }
            }
        }
    }

    fn message(
        &self,
        expected: u64,
        time: Timestamp,
        traceparent: Option<String>,
        event: Event,
    ) -> Result<Outgoing, AppendError> {
        let place = Place {
            writer: self.writer,
            name: &self.name,
            expected,
            index: 0,
        };
        let prefix = self.log.prefix();
        Ok(publish::outgoing(prefix, &place, time, traceparent, event)?)
    }

    async fn send(
        &self,
        message: &Outgoing,
        expected: u64,
        patience: &mut Patience,
    ) -> Result<AppendResult, AppendError> {
        let fence = Fence {
            filter: self.filter.clone(),
            last: expected,
            head: None,
        };
        match self.log.publish(message, &fence).await {
            Ok(sequence) => Ok(AppendResult::Stored(Sequence(sequence))),
            Err(PublishError::Conflict) => Ok(AppendResult::Conflict),
            Err(PublishError::Doubt(why)) => {
                patience.why = why;
                Ok(AppendResult::Doubt)
            }
            Err(PublishError::Refused(error)) => Err(error),
        }
    }

    async fn read_last(&self) -> Result<u64, String> {
        let last = self.log.last_message(&self.filter).await?;
        if last.is_none() {
            // Tells where the log begins.
            let head = self.log.head().await;
            head.map_err(|error| error.to_string())?;
        }
        Ok(last.map_or(0, |message| message.sequence))
    }

    /// Returns the first own message after `after`. Non-events count as nobody's, since without accounts anybody
    /// may write there; so does a supervisor's `NodeFenced`.
    async fn first_after(&self, after: u64, own_id: &str) -> Result<Option<Found>, String> {
        let message = self.log.first_message(&self.filter, after + 1).await?;
        Ok(message.map(|message| {
            let id = message.headers.get("Nats-Msg-Id");
            let is_anothers = Envelope::from_msgpack(&message.payload)
                .is_ok_and(|it| !matches!(it.body, Body::Event(Event::NodeFenced(_))));
            Found {
                sequence: Sequence(message.sequence),
                whose: if id.is_some_and(|id| id.as_str() == own_id) {
                    Author::Own
                } else if is_anothers {
                    Author::Another
                } else {
                    Author::Nobody
                },
            }
        }))
    }
}

#[derive(Default)]
struct Patience {
    why: String,
    said: Option<Instant>,
}

impl Patience {
    fn answer<T>(&mut self, answer: Result<T, String>) -> Option<T> {
        answer.map_err(|why| self.why = why).ok()
    }

    async fn wait(&mut self) {
        if self
            .said
            .is_none_or(|said| said.elapsed() > Duration::from_secs(10))
        {
            self.said = Some(Instant::now());
            let why = &self.why;
            tracing::warn!(why, "the broker does not answer an append; trying on");
        }
        tokio::time::sleep(RETRY).await;
    }
}

impl Log {
    /// Returns an appender for `writer`; an agent's names its node.
    #[must_use]
    pub fn appender(&self, writer: Writer, node: Option<NodeId>) -> Appender {
        Appender::new(self.clone(), writer, node)
    }

    /// Returns an operator's appender, fenced by `last`.
    #[must_use]
    pub fn operator_after(&self, last: Sequence) -> Appender {
        Appender::of_operator_after(self.clone(), last)
    }

    /// Returns an appender for the named gateway.
    #[must_use]
    pub fn gateway_appender(&self, gateway: &GatewayId) -> Appender {
        Appender::of_gateway(self.clone(), gateway)
    }
}
