//! Who is on a shared GPU by the driver's word, held against who has a part of it.
//!
//! 1. A process that computes there and is connected to nobody's scheduler is a *stranger*: the library was
//!    not loaded before it, or it goes around it.
//! 2. A container whose processes have more than its cap, and what the driver may take for itself, is
//!    *beyond* it.
//! 3. The two lists are not made at the same moment: what counts is what is so twice in a row.
//!
//! What is left to others: nothing is ended for that. It is told, and people decide.

use std::collections::BTreeMap;

use dormouse_messages::ContainerId;
use dormouse_messages::events::GpuBeyond;

use crate::nvml::Computing;

/// What the driver may take for itself in one process: its context, modules and the kernels of libraries.
/// Some 300 to 800 MB with the frameworks of today.
const HIDDEN_BYTES: u64 = 1 << 30;

/// A container with a part of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The container.
    pub container: ContainerId,
    /// Its processes that are held.
    pub processes: Vec<u32>,
    /// Its cap on memory.
    pub cap_bytes: Option<u64>,
    /// What the library has counted.
    pub counted_bytes: u64,
}

/// What a container has by the driver's word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Had {
    /// All of it.
    pub bytes: u64,
    /// What goes beyond the cap and what the driver may take for itself.
    pub beyond_bytes: u64,
}

/// What was found on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Processes that are under no part, by number.
    pub strangers: Vec<Computing>,
    /// Containers beyond their caps.
    pub beyond: Vec<GpuBeyond>,
    /// What each container has, where the driver says so of all its processes there.
    pub had: BTreeMap<ContainerId, Had>,
}

/// Holds the driver's word against who has a part.
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

/// What was found before, by device.
#[derive(Debug, Default)]
pub struct Twice(BTreeMap<String, Found>);

impl Twice {
    /// Of what was found now, what was found before, too.
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
        // Two processes: the driver may take two gigabytes for itself.
        let capped = [held("ads/a/1/0", &[10, 11], Some(4 * GIB))];
        let all = |second: u64| [computing(10, 3 * GIB), computing(11, second)];
        assert_eq!(compare(&all(3 * GIB), &capped).beyond, []);
        let found = compare(&all(3 * GIB + 5), &capped);
        assert_eq!(found.beyond[0].driver_bytes, 6 * GIB + 5);
        let had = found.had.values().next().expect("one");
        assert_eq!((had.bytes, had.beyond_bytes), (6 * GIB + 5, 5));
        // Without a cap nothing is beyond it, and what the driver does not say is not guessed.
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
        // Of another device it is the first time.
        assert_eq!(twice.seen("GPU-b", one(7)), Found::default());
        assert_eq!(twice.seen("GPU-a", one(7)), one(7));
        assert_eq!(twice.seen("GPU-a", one(8)), Found::default());
    }
}
