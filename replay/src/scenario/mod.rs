//! Scenarios: a cluster, a policy and the arriving jobs, as a document.
//!
//! - [`read`] checks a `document` and explains its faults.
//! - [`settings`] and [`presets`] change a document.
//! - [`generate`] writes scenarios from a seed, [`dynamoml`] a published experiment, [`import`] the records
//!   of another cluster.

mod document;
pub mod dynamoml;
pub mod generate;
pub mod import;
pub mod presets;
mod read;
pub mod settings;

use dormouse_messages::events::{NodeLabelled, TenantGranted};
use dormouse_messages::job::Kind;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, JobId, NodeId};

use crate::engine::{Clients, ModelJob};
pub use document::{
    ClientsDocument, CostsDocument, JobDocument, ModelDocument, NodeDocument, OwnCostsDocument,
    ScalingDocument, ScenarioDocument, TasksDocument,
};
pub use read::{ScenarioError, read, read_value};

/// A checked scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: String,
    /// Averages over time end here, or at the last job's end if earlier.
    pub horizon_s: f64,
    pub policy: Policy,
    pub nodes: Vec<(NodeId, Amounts)>,
    pub labels: Vec<NodeLabelled>,
    /// Grants of the priority classes that the tenants' jobs name.
    pub granted: Vec<TenantGranted>,
    pub submissions: Vec<Submission>,
}

/// The submission of a job.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Seconds from the beginning.
    pub at_s: f64,
    pub job: JobId,
    pub payload: Vec<u8>,
    pub model: ModelJob,
    pub kind: Kind,
    pub clients: Option<Clients>,
}
