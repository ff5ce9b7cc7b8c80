//! The containers that an allocation gives a job: its workers, and each of its roles.

use std::collections::BTreeMap;

use dormouse_messages::events::JobAllocation;
use dormouse_messages::needs::ContainerType;
use dormouse_messages::roles::Part;
use dormouse_messages::{Amounts, JobId, Needs, NodeId, Rank};
use dormouse_state::{Job, Place};

/// The workers of a listed job, or one of its roles.
pub struct Wanted<'a> {
    pub id: &'a JobId,
    pub job: &'a Job,
    pub part: Option<usize>,
    pub nodes: BTreeMap<NodeId, u32>,
}

impl<'a> Wanted<'a> {
    pub fn all(job: &'a Job, allocated: &'a JobAllocation) -> Vec<Self> {
        let wanted = |part, role: Option<&str>| Self {
            id: &allocated.job,
            job,
            part,
            nodes: allocated.by_node(role),
        };
        let parts = job.auxiliary.parts().iter().enumerate();
        let parts = parts.map(|(index, part)| wanted(Some(index), Some(&part.role)));
        std::iter::once(wanted(None, None)).chain(parts).collect()
    }

    fn role(&self) -> Option<&'a Part> {
        self.job.auxiliary.parts().get(self.part?)
    }

    pub fn demand(&self) -> &'a Amounts {
        self.role().map_or(&self.job.demand, |part| &part.demand)
    }

    pub fn needs(&self) -> &'a Needs {
        self.role().map_or(&self.job.needs, |part| &part.needs)
    }

    pub fn container_type(&self) -> ContainerType {
        let role = self.role();
        role.map_or_else(|| self.job.container_type(), Part::container_type)
    }

    pub fn present(&self) -> impl Iterator<Item = (&'a Rank, &'a Place)> {
        let (job, part) = (self.job, self.part);
        let places = job.assignment.iter().flat_map(|it| &it.places);
        places.filter(move |(rank, _)| job.auxiliary.index_at(**rank) == part)
    }

    pub fn present_by_node(&self) -> BTreeMap<NodeId, u32> {
        let assignment = self.job.assignment.as_ref();
        let is_own = |rank| self.job.auxiliary.index_at(rank) == self.part;
        assignment.map_or_else(BTreeMap::new, |it| it.by_node_of(is_own))
    }
}
