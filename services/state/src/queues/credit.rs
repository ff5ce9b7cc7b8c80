//! Credited arrivals: a tenant's jobs count as arriving no faster than the whole cluster could run them.
//!
//! A job's credited arrival is the later of its arrival and one gap after the credited arrival of the
//! tenant's previous job. The gap is the mean time between two releases of a full cluster. Waiting counts
//! from the credited arrival, so a flood of jobs earns no more than steady work at the cluster's pace.
//!
//! A simulated FIFO queue orders the jobs by credited arrival; each release pops the front.

use std::collections::BTreeSet;

use dormouse_messages::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// Credited arrivals of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// Queued jobs with a future credited arrival.
    pub(super) to_come: BTreeSet<(Timestamp, Sequence)>,
    /// The simulated FIFO queue.
    fifo: BTreeSet<(Timestamp, Sequence)>,
}

impl Credit {
    pub(super) fn join(&mut self, credited: Timestamp, admitted: Sequence, now: Timestamp) {
        self.fifo.insert((credited, admitted));
        if credited > now {
            self.to_come.insert((credited, admitted));
        }
    }

    /// Pops the FIFO front, whichever job was released.
    pub(super) fn release(&mut self) {
        self.fifo.pop_first();
    }

    /// Removes a cancelled job, or the front if the simulation released the job already.
    pub(super) fn leave(&mut self, credited: Timestamp, admitted: Sequence) {
        if !self.fifo.remove(&(credited, admitted)) {
            self.fifo.pop_first();
        }
    }

    /// Iterates over the credited arrivals in FIFO order.
    pub fn fifo(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.fifo.iter().map(|(credited, _)| *credited)
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }
}
