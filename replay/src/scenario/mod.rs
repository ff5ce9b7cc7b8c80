//! Scenarios: a cluster, a policy and the jobs that come, as a document.
//!
//! [`read`] checks a document and says what is wrong with it in the words of the document;
//! [`settings`] changes one before it is read; [`generate`] writes new ones from a seed, [`dynamoml`] a
//! published experiment.

mod document;
pub mod dynamoml;
pub mod generate;
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
    /// Its name.
    pub name: String,
    /// Averages over time end here, or when the last job has ended if that is earlier.
    pub horizon_s: f64,
    /// The policy in force from the beginning.
    pub policy: Policy,
    /// The nodes.
    pub nodes: Vec<(NodeId, Amounts)>,
    /// Labels and taints of some of them.
    pub labels: Vec<NodeLabelled>,
    /// The priority classes that tenants are granted: those that their jobs name.
    pub granted: Vec<TenantGranted>,
    /// What is submitted, in order of time.
    pub submissions: Vec<Submission>,
}

/// A job that is submitted.
#[derive(Debug, Clone)]
pub struct Submission {
    /// When, from the beginning.
    pub at_s: f64,
    /// Its id.
    pub job: JobId,
    /// The document that is published, in JSON.
    pub payload: Vec<u8>,
    /// How it behaves.
    pub model: ModelJob,
    /// What it is.
    pub kind: Kind,
    /// Who asks it, of a service.
    pub clients: Option<Clients>,
}
