//! Stops all services, as for a night or after a crash.

use dormouse_messages::Timestamp;

use super::{Action, Engine, EngineError};

impl Engine {
    pub(super) fn stop(
        &mut self,
        until: Timestamp,
        reboot: Option<i64>,
    ) -> Result<(), EngineError> {
        self.stopped = until;
        for service in &mut self.services {
            service.stop(until, reboot);
        }
        Ok(())
    }

    pub(super) fn waits(&self, action: &Action) -> bool {
        matches!(action, Action::Submit { .. }) && self.now < self.stopped
    }

    /// Returns the log's time: exact, except for silences taken for clock steps.
    #[must_use]
    pub fn log_time(&self) -> Timestamp {
        self.broker.clock.now()
    }

    /// Returns the delay of the log's time at the last event, in milliseconds.
    #[must_use]
    pub fn log_behind_ms(&self) -> u64 {
        self.broker.passed.ms_since(self.broker.clock.now())
    }
}
