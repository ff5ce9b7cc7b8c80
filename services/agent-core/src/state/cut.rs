//! Takes one node's view out of every node's: the state that a fold for the node alone has at the same event.
//! An agent continues from such a state where the log's first events are gone.

use dormouse_messages::NodeId;

use super::{AgentState, Job, Partition};

impl AgentState {
    /// Returns the view of `node` out of every node's.
    #[must_use]
    pub fn cut(&self, node: &NodeId) -> Self {
        let facts = self.nodes.get_key_value(node).into_iter();
        let jobs = self.jobs.iter();
        let mut cut = Self {
            node: Some(node.clone()),
            folded: self.folded,
            nodes: facts
                .map(|(id, facts)| (id.clone(), facts.clone()))
                .collect(),
            addresses: self.addresses.clone(),
            jobs: jobs.map(|(id, job)| (id.clone(), job.cut(node))).collect(),
            here: self.here.clone(),
            lease: self.lease,
            tenants: self.tenants.clone(),
            grants: self.grants.clone(),
            authority: self.authority.clone(),
            too_new: self.too_new.clone(),
        };
        for id in &self.here {
            cut.prune(id);
        }
        cut
    }
}

impl Job {
    fn cut(&self, node: &NodeId) -> Self {
        let partitions = self.partitions.iter();
        let partitions = partitions
            .filter(|(_, partition)| self.in_place || partition.nodes_here().any(|it| it == node))
            .map(|(incarnation, partition)| (*incarnation, partition.cut(node)));
        Self {
            admitted: self.admitted,
            kept: self.kept.clone(),
            in_place: self.in_place,
            newest: self.newest,
            ended: self.ended,
            resumable: self.resumable.clone(),
            partitions: partitions.collect(),
        }
    }
}

impl Partition {
    fn cut(&self, node: &NodeId) -> Self {
        let mut cut = self.clone();
        cut.here.retain(|rank, _| self.is_on(*rank, node));
        cut.orders.retain(|rank, _| self.is_on(*rank, node));
        cut.forget_the_over();
        cut
    }
}
