//! All services at rest: a cluster that is stopped for a night, or killed and started again.

use dormouse_messages::Timestamp;

use super::{Action, Engine, EngineError};

impl Engine {
    /// Kills every service, to be started again at `until`.
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

    /// Whether nobody is there to record it.
    pub(super) fn waits(&self, action: &Action) -> bool {
        matches!(action, Action::Submit { .. }) && self.now < self.stopped
    }

    /// The time of the log: true, but for what was lost where a silence was taken for a step.
    #[must_use]
    pub fn log_time(&self) -> Timestamp {
        self.broker.clock.now()
    }

    /// By how many milliseconds that was behind when the last event was stored.
    #[must_use]
    pub fn log_behind_ms(&self) -> u64 {
        self.broker.passed.ms_since(self.broker.clock.now())
    }
}
