//! What a job used of parts of GPUs over time: the sum over its containers, window by window.

use std::collections::BTreeMap;

use dormouse_messages::events::ContainerGpuUsed;
use dormouse_messages::{ContainerId, Timestamp};
use serde::{Deserialize, Serialize};

use super::JOB_POINTS;
use crate::steps::Steps;

/// A job's step function, and what each of its containers adds to it now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSteps {
    /// 1 is a whole device all the time.
    pub used: Steps,
    now: BTreeMap<ContainerId, f64>,
    /// The last point's time.
    at: Timestamp,
}

impl GpuSteps {
    /// A window was told at its end: what it says holds from its beginning on, as far as nothing
    /// was drawn yet.
    pub fn add(&mut self, event: &ContainerGpuUsed, told_at: Timestamp) {
        let busy_us: u64 = event.devices.iter().map(|it| it.busy_us).sum();
        let used = super::fraction(busy_us, event.window_ms.saturating_mul(1000).max(1));
        self.now.insert(event.container.clone(), used);
        let began = told_at.minus_ms(event.window_ms);
        self.push(began.max(self.at));
    }

    /// A container has ended.
    pub fn end(&mut self, container: &ContainerId, at: Timestamp) {
        if self.now.remove(container).is_some() {
            self.push(at);
        }
    }

    /// All of them have.
    pub fn end_all(&mut self, at: Timestamp) {
        if !self.now.is_empty() {
            self.now.clear();
            self.push(at);
        }
    }

    /// Without the past.
    pub fn tail(&self) -> Self {
        Self {
            used: self.used.tail(),
            ..self.clone()
        }
    }

    fn push(&mut self, at: Timestamp) {
        self.at = self.at.max(at);
        let sum: f64 = self.now.values().sum();
        // Sums of tenths are not exact: a millionth is nothing.
        let rounded = (sum * 1e6).round() / 1e6;
        self.used.push(self.at, rounded, JOB_POINTS);
    }
}
