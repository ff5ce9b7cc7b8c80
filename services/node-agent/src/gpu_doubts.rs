//! Compares the driver's list of processes on a shared GPU with the shares.
//!
//! 1. A process without a connection to the scheduler is a *stranger*: it lacks or bypasses the library.
//! 2. A container above its cap and the driver's overhead is *beyond*.
//! 3. A finding must appear twice in a row, because the lists are not simultaneous. Nothing is ended: people
//!    decide.

use std::collections::BTreeMap;

use dormouse_messages::ContainerId;
use dormouse_messages::events::GpuBeyond;

use crate::nvml::Computing;

/// The driver's overhead per process. Current frameworks use 300 to 800 MB.
const HIDDEN_BYTES: u64 = 1 << 30;

/// A container with a share of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub container: ContainerId,
    pub processes: Vec<u32>,
    pub cap_bytes: Option<u64>,
    pub counted_bytes: u64,
}

/// A container's memory according to the driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Had {
    pub bytes: u64,
    pub beyond_bytes: u64,
}

/// The findings on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub strangers: Vec<Computing>,
    pub beyond: Vec<GpuBeyond>,
    pub had: BTreeMap<ContainerId, Had>,
}

/// Compares the driver's list with the containers' shares.
#[must_use]
pub fn compare(computing: &[Computing], held: &[Held]) -> Found {
    let mut found = Found::default();
    let is_held = |pid: u32| held.iter().any(|it| it.processes.contains(&pid));
    let strangers = computing.iter().filter(|it| !is_held(it.pid));
    found.strangers = strangers.copied().collect();
    found.strangers.sort_unstable_by_key(|it| it.pid);
    for one in held {
        let its = computing
            .iter()
            .filter(|it| one.processes.contains(&it.pid));
        let its: Vec<&Computing> = its.collect();
        let bytes: Option<u64> = its.iter().map(|it| it.memory_bytes).sum();
        let Some(driver_bytes) = bytes else {
            continue;
        };
        let hidden_bytes = HIDDEN_BYTES.saturating_mul(its.len() as u64);
        let most = one.cap_bytes.map(|cap| cap.saturating_add(hidden_bytes));
        let beyond_bytes = most.map_or(0, |most| driver_bytes.saturating_sub(most));
        let had = Had {
            bytes: driver_bytes,
            beyond_bytes,
        };
        found.had.insert(one.container.clone(), had);
        if let (Some(cap_bytes), true) = (one.cap_bytes, beyond_bytes > 0) {
            found.beyond.push(GpuBeyond {
                container: one.container.clone(),
                cap_bytes,
                counted_bytes: one.counted_bytes,
                driver_bytes,
            });
        }
    }
    found
}

/// The previous findings by device.
#[derive(Debug, Default)]
pub struct Twice(BTreeMap<String, Found>);

impl Twice {
    /// Returns the findings that the previous call also had.
    pub fn seen(&mut self, uuid: &str, now: Found) -> Found {
        let before = self.0.insert(uuid.to_owned(), now.clone());
        let before = before.unwrap_or_default();
        let mut both = now;
        let again = |pid: u32| before.strangers.iter().any(|it| it.pid == pid);
        both.strangers.retain(|it| again(it.pid));
        let again = |id: &ContainerId| before.beyond.iter().any(|it| it.container == *id);
        both.beyond.retain(|it| again(&it.container));
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn computing(pid: u32, memory_bytes: impl Into<Option<u64>>) -> Computing {
        Computing {
            pid,
            memory_bytes: memory_bytes.into(),
        }
    }

    fn held(name: &str, processes: &[u32], cap_bytes: Option<u64>) -> Held {
        Held {
            container: name.parse().expect("a container"),
            processes: processes.to_vec(),
            cap_bytes,
            counted_bytes: GIB,
        }
    }

    #[test]
    fn who_is_connected_is_no_stranger() {
        let held = [
            held("ads/a/1/0", &[10, 11], None),
            held("ads/b/1/0", &[20], None),
        ];
        let on_it = [30, 20, 10, 29].map(|pid| computing(pid, GIB));
        let strangers = compare(&on_it, &held).strangers;
        assert_eq!(strangers, [computing(29, GIB), computing(30, GIB)]);
    }

    #[test]
    fn beyond_is_what_the_cap_and_the_drivers_own_do_not_hold() {
        let capped = [held("ads/a/1/0", &[10, 11], Some(4 * GIB))];
        let all = |second: u64| [computing(10, 3 * GIB), computing(11, second)];
        assert_eq!(compare(&all(3 * GIB), &capped).beyond, []);
        let found = compare(&all(3 * GIB + 5), &capped);
        assert_eq!(found.beyond[0].driver_bytes, 6 * GIB + 5);
        let had = found.had.values().next().expect("one");
        assert_eq!((had.bytes, had.beyond_bytes), (6 * GIB + 5, 5));
        let free = [held("ads/a/1/0", &[10, 11], None)];
        assert_eq!(compare(&all(30 * GIB), &free).beyond, []);
        let silent = [computing(10, 30 * GIB), computing(11, None)];
        let found = compare(&silent, &capped);
        assert!(found.had.is_empty() && found.beyond.is_empty());
    }

    #[test]
    fn what_is_there_once_is_not_told() {
        let mut twice = Twice::default();
        let one = |pid: u32| Found {
            strangers: vec![computing(pid, None)],
            ..Found::default()
        };
        assert_eq!(twice.seen("GPU-a", one(7)), Found::default());
        assert_eq!(twice.seen("GPU-b", one(7)), Found::default());
        assert_eq!(twice.seen("GPU-a", one(7)), one(7));
        assert_eq!(twice.seen("GPU-a", one(8)), Found::default());
    }
}
