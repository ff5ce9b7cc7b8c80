//! State that several services fold from the log, so that all interpret the log alike. The crate folds events
//! and does no I/O.
//!
//! - [`cluster`]: nodes, jobs, policy and epochs; services embed this state.
//! - [`builds`]: the builds that run, and the gate before a newer format.
//! - [`membership`], [`health`]: nodes, usability, failed starts.
//! - [`job`], [`incarnation`], [`limits`], [`members`], [`precedence`], [`protection`]: one job, its
//!   incarnation, limits, members, preemptions and protection from them.
//! - [`tasks`]: progress of a task set.
//! - [`speed`]: times of a step by containers, and curves through them.
//! - [`tenants`], [`usage`], [`budgets`], [`queues`], [`share`], [`total`]: entitlements, past use, budgets,
//!   queues, dominant shares, wide sums.
//! - [`reservations`]: nodes kept for tenants, jobs or nobody.
//! - [`routes`], [`hooks`]: the gateways' routes, the tenants' webhooks.
//! - [`fit`], [`fit_later`]: placement of gangs on free nodes, now and after jobs have ended.
//! - [`shared_map`]: a map for cheap copies.

pub mod budgets;
pub mod builds;
pub mod cluster;
pub mod fit;
pub mod fit_later;
pub mod health;
#[cfg(any(test, feature = "history"))]
pub mod history;
pub mod hooks;
pub mod incarnation;
pub mod job;
pub mod limits;
pub mod members;
pub mod membership;
pub mod precedence;
pub mod protection;
pub mod queues;
pub mod reservations;
pub mod routes;
pub mod share;
pub mod shared_map;
pub mod slurm;
pub mod speed;
pub mod tasks;
pub mod tenants;
#[cfg(test)]
mod tests;
pub mod total;
pub mod usage;

pub use budgets::{Allowance, Budgets, Spending, Spent};
pub use builds::{Builds, Gate};
pub use cluster::ClusterState;
pub use fit::{FreeNode, FreeNodes, Gang, Placed};
pub use fit_later::{FreeLater, GangLater};
pub use health::{Fault, Health, Quarantine, StartFaults};
pub use incarnation::{
    ContainerPhase, Partition, PartitionContainer, PartitionPhase, Place, Readiness,
};
pub use job::{Assignment, Job, SavedCheckpoint, Serving, Stop};
pub use limits::{Limits, queue_limit_over};
pub use members::{Change, Members};
pub use membership::{Membership, Node, NodeLabels, NodePhase};
pub use precedence::Precedence;
pub use protection::Protection;
pub use queues::{QueueJob, Queues, Stand, TenantQueue, Waits};
pub use reservations::{ReservationState, Reservations};
pub use share::Share;
pub use shared_map::SharedMap;
pub use slurm::{SlurmAllocation, SlurmPhase, SlurmQueueState, SlurmQueues};
pub use speed::Speeds;
pub use tasks::{Given, TaskSet};
pub use tenants::{Above, Tenant, Tenants};
pub use total::Total;
pub use usage::{Standing, Standings, Usage};
