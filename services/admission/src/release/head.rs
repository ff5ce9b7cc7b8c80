//! The first job of a tenant's queue, and the capacity that the tenant uses: both sides of a fit test.

use dormouse_messages::job::Urgency;
use dormouse_messages::quantity::Resource;
use dormouse_messages::{Amounts, AuxiliaryRoles, JobId, Sequence, Timestamp};
use dormouse_state::fit::NodeSet;
use dormouse_state::{Allowance, Gang, QueueJob};

/// A tenant's certain use, with this decision's releases.
pub struct Certain {
    pub amounts: Amounts,
    pub containers: u64,
    /// Left by the tenant's budget.
    pub allowance: Option<Allowance>,
}

impl Certain {
    /// Returns a resource whose budget has too little left for the head.
    pub fn over_budget(&self, head: &Head) -> Option<&Resource> {
        let allowance = self.allowance.as_ref()?;
        allowance.over(&head.needs, head.limit_ms)
    }
}

/// A queue's first job that could run.
#[derive(Debug, Clone)]
pub struct Head {
    pub id: JobId,
    pub demand: Amounts,
    pub auxiliary: AuxiliaryRoles,
    pub needs: Amounts,
    pub gang: Gang,
    /// Left open by earlier jobs.
    pub open: NodeSet,
    pub workers: u32,
    pub urgency: Urgency,
    pub class: i32,
    pub preempts: bool,
    /// The admission, or its submission in this decision.
    pub cause: Sequence,
    /// Order over all tenants.
    pub arrival: Sequence,
    pub since: Timestamp,
    pub credited: Timestamp,
    /// Remaining run time.
    pub limit_ms: Option<u64>,
}

/// Inputs for overtaking misfits.
pub struct Passing<'a> {
    pub demand: &'a Amounts,
    pub auxiliary: &'a AuxiliaryRoles,
    pub class: i32,
    limit_ms: Option<u64>,
}

/// Time for start and stop beyond the limit. More would leave short jobs waiting while capacity is free.
const UNCOUNTED_MS: u64 = 60_000;

impl Head {
    /// Returns the containers of the smallest partition.
    pub fn containers(&self) -> u64 {
        u64::from(self.auxiliary.containers(self.workers))
    }

    /// Returns the inputs for overtaking misfits.
    pub fn passing(&self) -> Passing<'_> {
        Passing {
            demand: &self.demand,
            auxiliary: &self.auxiliary,
            class: self.class,
            limit_ms: self.limit_ms,
        }
    }

    /// Reports whether a job released now ends by `time`.
    pub fn ends_by(&self, time: Option<Timestamp>, now: Timestamp) -> bool {
        self.passing().ends_by(time, now)
    }

    /// Iterates over the demanded resources.
    pub fn demanded(&self) -> impl Iterator<Item = &Resource> {
        demanded(&self.demand, &self.auxiliary)
    }
}

impl<'a> Passing<'a> {
    /// Returns the inputs of a queued job.
    pub fn of(job: &'a QueueJob, limit_ms: Option<u64>) -> Self {
        Self {
            demand: &job.demand,
            auxiliary: &job.auxiliary,
            class: job.class,
            limit_ms,
        }
    }

    /// Reports whether the job ends by `time` if released now.
    pub fn ends_by(&self, time: Option<Timestamp>, now: Timestamp) -> bool {
        let limit_ms = self.limit_ms;
        let ends = limit_ms.map(|limit_ms| now.plus_ms(limit_ms + UNCOUNTED_MS));
        ends.is_some_and(|ends| time.is_some_and(|time| ends <= time))
    }
}

/// Iterates over the resources that workers and roles demand.
pub fn demanded<'a>(
    workers: &'a Amounts,
    auxiliary: &'a AuxiliaryRoles,
) -> impl Iterator<Item = &'a Resource> {
    let roles = auxiliary.parts().iter().map(|part| &part.demand);
    let all = std::iter::once(workers).chain(roles);
    all.flat_map(Amounts::iter).map(|(resource, _)| resource)
}
