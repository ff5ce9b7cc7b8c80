//! A job's use of its shared GPUs.

use dormouse_messages::Timestamp;
use dormouse_messages::events::ContainerGpuUsed;
use serde::{Deserialize, Serialize};

/// Sums and last window of a job's containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUsed {
    pub busy_us: u64,
    /// Busy time plus pauses too short for others.
    pub charged_us: u64,
    /// Waiting time for device tokens.
    pub waited_us: u64,
    pub refused: u64,
    /// Largest memory of one container.
    pub peak_bytes: u64,
    /// In thousandths of a device.
    pub last_milli: u64,
    pub last_bytes: u64,
    /// By the driver's count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_driver_bytes: Option<u64>,
    /// Beyond the cap and the driver's allowance.
    #[serde(default)]
    pub last_beyond_bytes: u64,
    pub at: Timestamp,
}

impl GpuUsed {
    pub(super) fn add(&mut self, event: &ContainerGpuUsed, at: Timestamp) {
        let sum = |of: fn(&dormouse_messages::events::GpuUse) -> u64| -> u64 {
            event.devices.iter().map(of).sum()
        };
        let busy_us = sum(|it| it.busy_us);
        self.busy_us += busy_us;
        self.charged_us += sum(|it| it.charged_us);
        self.waited_us += sum(|it| it.waited_us);
        self.refused += sum(|it| it.refused);
        self.last_bytes = sum(|it| it.memory_bytes);
        self.last_driver_bytes = event.devices.iter().map(|it| it.driver_bytes).sum();
        self.last_beyond_bytes = sum(|it| it.beyond_bytes);
        self.peak_bytes = self.peak_bytes.max(self.last_bytes);
        self.last_milli = busy_us.checked_div(event.window_ms).unwrap_or(0);
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::ContainerId;
    use dormouse_messages::events::GpuUse;

    use super::*;

    fn window(busy_us: u64, memory_bytes: u64) -> ContainerGpuUsed {
        let container: ContainerId = "ads/lr/1/0".parse().expect("a container");
        ContainerGpuUsed {
            container,
            node: "n0".parse().expect("a node"),
            window_ms: 10_000,
            devices: vec![GpuUse {
                uuid: "GPU-0".to_owned(),
                busy_us,
                charged_us: busy_us,
                launches: 1,
                waits: 1,
                waited_us: 5,
                memory_bytes,
                refused: 1,
                driver_bytes: None,
                beyond_bytes: 0,
            }],
        }
    }

    #[test]
    fn windows_add_up_and_the_last_one_is_a_share() {
        let mut used = GpuUsed::default();
        used.add(&window(3_000_000, 7), Timestamp::default());
        used.add(&window(6_000_000, 4), Timestamp::default());
        assert_eq!((used.busy_us, used.last_milli), (9_000_000, 600));
        assert_eq!((used.peak_bytes, used.last_bytes), (7, 4));
        assert_eq!((used.refused, used.waited_us), (2, 10));
    }
}
