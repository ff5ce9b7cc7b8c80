//! Plan tokens: the planned state and the expected containers.
//!
//! The digest covers a decision's inputs (policy, nodes, tenants, live jobs, allocation), neither progress
//! nor clock, and changes only when the result may.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use dormouse_messages::{JobId, Sequence};
use dormouse_state::{Queues, Stand};
use serde::Serialize;
use sha2::{Digest, Sha256};

const FORM: &str = "plan1";

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The last relevant event.
    pub asof: Sequence,
    /// See [`state_digest`].
    pub state: String,
    /// 0: waits.
    pub containers: u32,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM}.{}.{}.{}", self.asof, self.state, self.containers)
    }
}

impl FromStr for Planned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no token of `dormouse plan`, such as {FORM}.4712.9f86d081884c7d65.4"
            )
        };
        let parts: Vec<&str> = text.split('.').collect();
        let [FORM, asof, state, containers] = parts.as_slice() else {
            return Err(wrong());
        };
        if state.is_empty() || !state.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        Ok(Self {
            asof: Sequence(asof.parse().map_err(|_| wrong())?),
            state: (*state).to_owned(),
            containers: containers.parse().map_err(|_| wrong())?,
        })
    }
}

/// Returns the digest of a decision's inputs.
#[must_use]
pub fn state_digest(queues: &Queues) -> String {
    #[derive(Serialize)]
    struct Job<'a> {
        demand: &'a dormouse_messages::Amounts,
        #[serde(skip_serializing_if = "dormouse_messages::AuxiliaryRoles::is_empty")]
        auxiliary: &'a dormouse_messages::AuxiliaryRoles,
        weight: u32,
        bounds: (u32, u32),
        adjustable: bool,
        /// Held, dependency failed, queued, released or ending.
        stand: u8,
        given: u32,
    }
    let jobs: BTreeMap<&JobId, Job<'_>> = queues
        .jobs
        .iter()
        .map(|(id, job)| {
            let (stand, given) = match job.stand {
                Stand::Held { .. } => (0, 0),
                Stand::DependencyFailed { .. } => (1, 0),
                Stand::Queued { .. } => (2, 0),
                Stand::Released { given, .. } => (3 + u8::from(queues.is_cancelled(id)), given),
            };
            let bounds = (job.containers.min, job.containers.max);
            let job = Job {
                demand: &job.demand,
                auxiliary: &job.auxiliary,
                weight: job.weight,
                bounds,
                adjustable: job.adjustable,
                stand,
                given,
            };
            (id, job)
        })
        .collect();
    let nodes: BTreeMap<_, _> = queues
        .cluster
        .nodes
        .usable()
        .map(|(name, node)| (name, &node.capacity))
        .collect();
    let seen = (&queues.cluster.policy, nodes, &queues.cluster.tenants, jobs);
    let bytes = rmp_serde::to_vec_named(&seen).unwrap_or_default();
    let digest = Sha256::digest(bytes);
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back() {
        let planned = Planned {
            asof: Sequence(4712),
            state: state_digest(&Queues::default()),
            containers: 4,
        };
        assert_eq!(planned.to_string().parse(), Ok(planned));
        for wrong in [
            "",
            "plan1.1.2",
            "plan1.x.ab.3",
            "plan2.1.ab.3",
            "plan1.1.xy.3",
        ] {
            assert!(wrong.parse::<Planned>().is_err(), "{wrong}");
        }
    }
}
