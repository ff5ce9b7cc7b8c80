//! Credited arrivals: a tenant's queued work counts as having arrived no faster than the whole
//! cluster could run it.
//!
//! The credited arrival of a job is its arrival, or one gap after the credited arrival of the
//! tenant's job before, whichever is later; the gap is the mean time between two releases of a
//! full cluster. Waiting is credited from then on, so that a flood of jobs earns its tenant no
//! more than steady work at the cluster's own pace would. A tenant that never floods loses
//! nothing.
//!
//! Beside it stands the queue as it would be if jobs were released in the order of their
//! credited arrivals: `first` is the job that would be released now.

use std::collections::BTreeSet;

use dormouse_messages::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// Credited arrivals of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// Queued jobs whose credited arrival is still to come.
    pub(super) to_come: BTreeSet<(Timestamp, Sequence)>,
    /// What would be queued first in, first out: as many are taken from its front as were
    /// released.
    fifo: BTreeSet<(Timestamp, Sequence)>,
}

impl Credit {
    pub(super) fn join(&mut self, credited: Timestamp, admitted: Sequence, now: Timestamp) {
        self.fifo.insert((credited, admitted));
        if credited > now {
            self.to_come.insert((credited, admitted));
        }
    }

    /// A release: the front of the other queue goes, whichever job it is.
    pub(super) fn release(&mut self) {
        self.fifo.pop_first();
    }

    /// A queued job is cancelled: it never was in the other queue, or has left it already.
    pub(super) fn leave(&mut self, credited: Timestamp, admitted: Sequence) {
        if !self.fifo.remove(&(credited, admitted)) {
            self.fifo.pop_first();
        }
    }

    /// The credited arrivals in the order in which they would be released.
    pub fn fifo(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.fifo.iter().map(|(credited, _)| *credited)
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }
}
