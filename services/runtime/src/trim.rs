//! Removes the log's beginning, once it is archived.

use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use dormouse_messages::{Sequence, Timestamp};
use futures::TryStreamExt;

use crate::answer::within;
use crate::decode;
use crate::error::LogError;
use crate::log::Log;

/// A consumer that was quiet for longer is that of a reader that is gone.
const ALIVE: Duration = Duration::from_secs(3600);

impl Log {
    /// Removes every event before `first` that no reader waits for, and returns the log's first event then.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer.
    pub async fn trim(&self, first: Sequence, now: Timestamp) -> Result<Sequence, LogError> {
        let name = self.prefix().log_stream();
        let failed = |why: String| LogError::request("trim", &name, why);
        let head = self.head().await?;
        let slowest = self.slowest_reader(now).await.map_err(failed)?;
        // The last message stays: it says where the log goes on.
        let to = first.min(head).min(slowest.map_or(first, Sequence::next));
        if to > self.first() {
            let jetstream = &self.inner.jetstream;
            let stream = within(jetstream.get_stream(&name)).await.map_err(failed)?;
            if stream.cached_info().config.deny_purge {
                return Err(LogError::Untrimmable(name));
            }
            let purge = stream.purge().sequence(to.0);
            within(purge.into_future()).await.map_err(failed)?;
            self.head().await?;
        }
        Ok(self.first())
    }

    /// Returns the last event that each living consumer has read.
    async fn slowest_reader(&self, now: Timestamp) -> Result<Option<Sequence>, String> {
        let name = self.prefix().log_stream();
        let stream = within(self.inner.jetstream.get_stream_no_info(&name)).await?;
        let consumers: Vec<Info> = within(stream.consumers().try_collect()).await?;
        let is_alive = |consumer: &&Info| {
            let active = consumer.delivered.last_active;
            active.is_some_and(|active| {
                let active = decode::timestamp(active.unix_timestamp_nanos());
                Duration::from_millis(now.ms_since(active)) < ALIVE
            })
        };
        let living = consumers.iter().filter(is_alive);
        let read = living.map(|consumer| Sequence(consumer.delivered.stream_sequence));
        Ok(read.min())
    }
}
