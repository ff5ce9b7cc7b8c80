//! Roles: containers next to a job's workers, such as parameter servers, in fixed numbers with a demand of
//! their own. All containers of a job start together.
//!
//! Rank 0 is the coordinator, a worker. The roles' ranks follow, ordered by name, then the other workers':
//! the roles' ranks never change.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ids::Rank;
use crate::job::JobSpec;
use crate::needs::{ContainerType, Needs};
use crate::quantity::Amounts;

pub use crate::container::{RoleDocument, RoleSpec};

/// The role name of the containers in `containers`.
pub const WORKER: &str = "worker";

/// The possible roles.
pub const ROLES: [&str; 2] = ["evaluator", "ps"];

/// A role's containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub role: String,
    pub count: u32,
    pub demand: Amounts,
    pub needs: Needs,
}

impl Part {
    /// Returns the containers' type.
    #[must_use]
    pub fn container_type(&self) -> ContainerType {
        ContainerType {
            demand: self.demand.clone(),
            needs: self.needs.clone(),
        }
    }
}

/// A job's roles, by rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuxiliaryRoles(Vec<Part>);

impl AuxiliaryRoles {
    /// Returns a job's roles.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        let part = |(role, it): (&String, &RoleSpec)| Part {
            role: role.clone(),
            count: it.count,
            demand: it.demand.clone(),
            needs: Needs {
                constraints: it
                    .constraints
                    .clone()
                    .unwrap_or_else(|| spec.constraints.clone()),
                tolerations: spec.tolerations.clone(),
                gpu_memory_bytes: 0,
            },
        };
        Self(spec.roles.iter().map(part).collect())
    }

    /// True without roles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the roles.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Changes the tolerations of every role.
    pub fn tolerate(&mut self, change: impl Fn(&mut BTreeSet<String>)) {
        for part in &mut self.0 {
            change(&mut part.needs.tolerations);
        }
    }

    /// Returns the containers of all roles.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|part| part.count).sum()
    }

    /// Returns a role's ranks, by index.
    #[must_use]
    pub fn ranks(&self, index: usize) -> Range<u32> {
        let before: u32 = self.0.iter().take(index).map(|part| part.count).sum();
        let count = self.0.get(index).map_or(0, |part| part.count);
        1 + before..1 + before + count
    }

    /// Returns a rank's role by index; `None` for a worker.
    #[must_use]
    pub fn index_at(&self, rank: Rank) -> Option<usize> {
        (0..self.0.len()).find(|index| self.ranks(*index).contains(&rank.0))
    }

    /// Returns a rank's role; `None` for a worker.
    #[must_use]
    pub fn at(&self, rank: Rank) -> Option<&Part> {
        self.0.get(self.index_at(rank)?)
    }

    /// True for a worker.
    #[must_use]
    pub fn is_worker(&self, rank: Rank) -> bool {
        self.index_at(rank).is_none()
    }

    /// Returns the workers among these containers.
    #[must_use]
    pub fn workers(&self, containers: u32) -> u32 {
        containers.saturating_sub(self.count())
    }

    /// Returns the containers of a job with these workers; none without workers.
    #[must_use]
    pub fn containers(&self, workers: u32) -> u32 {
        match workers {
            0 => 0,
            workers => workers.saturating_add(self.count()),
        }
    }

    /// Returns the roles' demand.
    #[must_use]
    pub fn amounts(&self) -> Amounts {
        let mut amounts = Amounts::new();
        for part in &self.0 {
            amounts.add(&part.demand, u64::from(part.count));
        }
        amounts
    }

    /// Adds a job with these containers, roles included, and worker demand.
    pub fn add_to(&self, sum: &mut Amounts, demand: &Amounts, containers: u64) {
        if containers == 0 {
            return;
        }
        sum.add(demand, containers.saturating_sub(u64::from(self.count())));
        for part in &self.0 {
            sum.add(&part.demand, u64::from(part.count));
        }
    }

    /// Returns a partition's amounts.
    #[must_use]
    pub fn partition(&self, demand: &Amounts, workers: u32) -> Amounts {
        let mut needs = Amounts::new();
        self.add_to(&mut needs, demand, u64::from(self.containers(workers)));
        needs
    }
}

/// A job's demands by rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demands {
    worker: Amounts,
    auxiliary: AuxiliaryRoles,
}

impl Demands {
    /// Returns demands from the workers' and the roles'.
    #[must_use]
    pub fn new(worker: &Amounts, auxiliary: &AuxiliaryRoles) -> Self {
        Self {
            worker: worker.clone(),
            auxiliary: auxiliary.clone(),
        }
    }

    /// Returns a job's demands.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        Self::new(&spec.demand, &AuxiliaryRoles::of(spec))
    }

    /// Returns a rank's demand.
    #[must_use]
    pub fn at(&self, rank: Rank) -> &Amounts {
        self.auxiliary
            .at(rank)
            .map_or(&self.worker, |part| &part.demand)
    }
}

impl JobSpec {
    /// Returns a rank's container as a job without roles.
    #[must_use]
    pub fn of_rank(&self, rank: Rank) -> Self {
        let mut own = self.clone();
        let auxiliary = AuxiliaryRoles::of(self);
        let Some((part, role)) = auxiliary
            .at(rank)
            .and_then(|part| Some((part, self.roles.get(&part.role)?)))
        else {
            return own;
        };
        own.demand.clone_from(&part.demand);
        own.constraints.clone_from(&part.needs.constraints);
        (own.gpu_limit_milli, own.gpu_memory_bytes) = (None, None);
        if let Some(command) = &role.command {
            own.command.clone_from(command);
        }
        own.env.extend(role.env.clone());
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::EnvValue;

    fn spec() -> JobSpec {
        serde_json::from_value(serde_json::json!({
            "name": "a", "tenant": "ads", "command": {"start": ["train"]},
            "demand": {"cpu_milli": 1000, "gpu_milli": 1000}, "weight": 1,
            "containers": {"min": 2, "max": 8}, "checkpoint": {"mode": "exit"},
            "env": {"A": "1", "B": "1"},
            "roles": {
                "ps": {"count": 2, "demand": {"cpu_milli": 500}, "command": {"start": ["serve"]},
                       "env": {"B": "2"}},
                "evaluator": {"count": 1, "demand": {"cpu_milli": 250}},
            },
        }))
        .expect("valid")
    }

    #[test]
    fn roles_have_the_ranks_behind_the_coordinator_and_before_the_other_workers() {
        let auxiliary = AuxiliaryRoles::of(&spec());
        let role = |rank| auxiliary.at(Rank(rank)).map_or(WORKER, |part| &part.role);
        let roles: Vec<&str> = (0..6).map(role).collect();
        assert_eq!(
            roles,
            ["worker", "evaluator", "ps", "ps", "worker", "worker"]
        );
        assert_eq!((auxiliary.count(), auxiliary.ranks(1)), (3, 2..4));
        assert_eq!((auxiliary.containers(2), auxiliary.workers(5)), (5, 2));
        assert_eq!(auxiliary.containers(0), 0);
    }

    #[test]
    fn a_partition_holds_its_workers_and_its_roles() {
        let spec = spec();
        let auxiliary = AuxiliaryRoles::of(&spec);
        let needs = auxiliary.partition(&spec.demand, 2);
        assert_eq!(needs, "cpu=3250m,gpu=2".parse().expect("amounts"));
        assert!(auxiliary.partition(&spec.demand, 0).is_empty());
    }

    #[test]
    fn a_rank_of_a_role_has_its_demand_command_and_environment() {
        let spec = spec();
        let ps = spec.of_rank(Rank(2));
        assert_eq!(ps.command.start, ["serve"]);
        assert_eq!(ps.demand, "cpu=500m".parse().expect("amounts"));
        assert_eq!(ps.env["B"], EnvValue::Plain("2".to_owned()));
        assert_eq!(ps.env["A"], EnvValue::Plain("1".to_owned()));
        assert_eq!(spec.of_rank(Rank(1)).command.start, ["train"]);
        assert_eq!(spec.of_rank(Rank(4)), spec);
    }
}
