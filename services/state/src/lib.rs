//! The folds that several services decide on: one interpretation of the log, not four.
//!
//! 1. [`membership`]: which nodes there are, what they offer, whether they may be used.
//!    [`health`]: starts that failed for reasons of theirs.
//! 2. [`job`]: one live job: what it asked for, where it is assigned, the life it lives.
//!    [`limits`]: how long it may run and wait.
//!    [`members`]: who takes part in a life whose containers come and go.
//! 3. [`tasks`]: how far a task set is.
//! 4. [`tenants`], [`queues`]: what each tenant is entitled to, has queued and runs, with exact
//!    dominant shares ([`share`]) and sums that do not saturate ([`total`]).
//! 5. [`cluster`]: nodes and jobs together, with the policy and the epochs; what the services embed.
//! 6. [`fit`]: whether a gang of containers fits on nodes, beside what is taken of them.
//!
//! [`id_map`] is the map that the read models find jobs and nodes in, [`shared_map`] that
//! of the live jobs, of which copies share what has not changed ([`shared`]).

pub mod cluster;
pub mod fit;
mod folded;
pub mod health;
#[cfg(any(test, feature = "history"))]
pub mod history;
pub mod id_map;
pub mod job;
pub mod limits;
pub mod members;
pub mod membership;
pub mod precedence;
pub mod queues;
pub mod share;
pub mod shared;
pub mod shared_map;
pub mod tasks;
pub mod tenants;
#[cfg(test)]
mod tests;
pub mod total;

pub use cluster::ClusterState;
pub use fit::{FreeNode, FreeNodes, Gang};
pub use health::{Fault, Health, Quarantine, StartFaults};
pub use id_map::IdMap;
pub use job::{
    Assignment, ContainerPhase, Job, Life, LifeContainer, LifePhase, Place, Readiness,
    SavedCheckpoint, Serving, Stop,
};
pub use limits::{Limits, queue_limit_over};
pub use members::{Change, Members};
pub use membership::{Membership, Node, NodeLabels, NodePhase};
pub use precedence::{Precedence, Protection};
pub use queues::{QueueJob, Queues, Stand, TenantQueue, Waits};
pub use share::Share;
pub use shared::Shared;
pub use shared_map::SharedMap;
pub use tasks::{Given, TaskSet};
pub use tenants::{Above, Tenant, Tenants};
pub use total::Total;
