//! Credited arrivals: a tenant's jobs count as arriving no faster than the whole cluster could run them, so a
//! flood earns no more than steady work.
//!
//! A job's credited arrival is its arrival, or one gap after the tenant's previous credited arrival if later.
//! The gap is the mean time between releases of a full cluster. A simulated FIFO queue orders jobs by
//! credited arrival; each release pops the front.

use std::collections::BTreeSet;

use dormouse_messages::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// All tenants' credited arrivals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    pub(super) to_come: BTreeSet<(Timestamp, Sequence)>,
    fifo: BTreeSet<(Timestamp, Sequence)>,
}

impl Credit {
    pub(super) fn join(&mut self, credited: Timestamp, admitted: Sequence, now: Timestamp) {
        self.fifo.insert((credited, admitted));
        if credited > now {
            self.to_come.insert((credited, admitted));
        }
    }

    /// Pops the front, whichever job was released.
    pub(super) fn release(&mut self) {
        self.fifo.pop_first();
    }

    /// The simulation may have released the job already: then pop the front.
    pub(super) fn leave(&mut self, credited: Timestamp, admitted: Sequence) {
        if !self.fifo.remove(&(credited, admitted)) {
            self.fifo.pop_first();
        }
    }

    /// Iterates in FIFO order.
    pub fn fifo(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.fifo.iter().map(|(credited, _)| *credited)
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }
}
