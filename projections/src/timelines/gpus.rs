//! A job's use of shared GPUs over time.

use std::collections::BTreeMap;

use dormouse_messages::events::ContainerGpuUsed;
use dormouse_messages::{ContainerId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::steps::{JOB_POINTS, Steps, fraction};

/// A job's step function, with each container's present use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSteps {
    /// 1 is a whole device.
    pub used: Steps,
    now: BTreeMap<ContainerId, f64>,
    at: Timestamp,
}

impl GpuSteps {
    /// Adds a window, back to its start or the last point.
    pub fn add(&mut self, event: &ContainerGpuUsed, told_at: Timestamp) {
        let busy_us: u64 = event.devices.iter().map(|it| it.busy_us).sum();
        let used = fraction(busy_us, event.window_ms.saturating_mul(1000).max(1));
        self.now.insert(event.container.clone(), used);
        let began = told_at.minus_ms(event.window_ms);
        self.push(began.max(self.at));
    }

    /// Removes an ended container.
    pub fn end(&mut self, container: &ContainerId, at: Timestamp) {
        if self.now.remove(container).is_some() {
            self.push(at);
        }
    }

    /// Removes all containers.
    pub fn end_all(&mut self, at: Timestamp) {
        if !self.now.is_empty() {
            self.now.clear();
            self.push(at);
        }
    }

    /// Returns only the last point.
    pub fn tail(&self) -> Self {
        Self {
            used: self.used.tail(),
            ..self.clone()
        }
    }

    fn push(&mut self, at: Timestamp) {
        self.at = self.at.max(at);
        let sum: f64 = self.now.values().sum();
        // Sums are inexact.
        let rounded = (sum * 1e6).round() / 1e6;
        self.used.push(self.at, rounded, JOB_POINTS);
    }
}
