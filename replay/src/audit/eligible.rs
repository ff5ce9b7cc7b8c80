//! Checks starting containers against labels and taints (rule 7), as of the decision's basis. Later
//! changes do not stop running containers.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::NodeLabelled;
use dormouse_messages::needs::{Labels, NODE_LABEL};
use dormouse_messages::{
    AuxiliaryRoles, Basis, Event, Incarnation, JobId, Needs, NodeId, Rank, Recorded, Sequence,
};

/// A node's labels and taints from an event on.
type Said = (Sequence, Labels, BTreeSet<String>);

/// The jobs' needs, their places, and the history of labels.
#[derive(Debug, Clone, Default)]
pub struct Starts {
    /// The needs of jobs that have any; taints apply to all jobs.
    needs: BTreeMap<JobId, (Needs, AuxiliaryRoles)>,
    placed: BTreeMap<JobId, BTreeMap<(Incarnation, Rank), NodeId>>,
    nodes: BTreeMap<NodeId, Vec<Said>>,
    /// Labels given since a node's removal, which replace all earlier ones when an agent joins.
    removed: BTreeMap<NodeId, (Labels, BTreeSet<String>)>,
}

fn label(event: &NodeLabelled, labels: &mut Labels, taints: &mut BTreeSet<String>) {
    for (label, value) in &event.labels {
        match value {
            Some(value) => drop(labels.insert(label.clone(), value.clone())),
            None => drop(labels.remove(label)),
        }
    }
    let set = event.taints.iter().filter(|it| *it.1);
    taints.extend(set.map(|it| it.0.clone()));
    taints.retain(|taint| event.taints.get(taint) != Some(&false));
}

impl Starts {
    pub fn read(&mut self, recorded: &Recorded) -> Vec<String> {
        let at = recorded.sequence;
        match recorded.event() {
            Some(Event::NodeJoined(event)) => {
                let mut labels = event.labels.clone();
                labels.insert(NODE_LABEL.to_owned(), event.node.to_string());
                let said = self.nodes.entry(event.node.clone()).or_default();
                // The operator's labels outlast a new join.
                let (_, before, taints) = said.last().cloned().unwrap_or_default();
                let since_removal = self.removed.remove(&event.node);
                let (before, taints) = since_removal.unwrap_or((before, taints));
                labels.extend(before);
                let taints = taints.union(&event.taints).cloned().collect();
                said.push((at, labels, taints));
            }
            Some(Event::NodeLabelled(event)) => {
                let said = self.nodes.entry(event.node.clone()).or_default();
                let (_, mut labels, mut taints) = said.last().cloned().unwrap_or_default();
                label(event, &mut labels, &mut taints);
                if let Some((labels, taints)) = self.removed.get_mut(&event.node) {
                    label(event, labels, taints);
                }
                said.push((at, labels, taints));
            }
            Some(Event::NodeRemoved(event)) => {
                let nothing = Default::default();
                self.removed.insert(event.node.clone(), nothing);
            }
            Some(Event::NodeRestored(event)) => {
                self.removed.remove(&event.node);
            }
            Some(Event::JobAdmitted(event)) => {
                let needs = (event.spec.needs(), AuxiliaryRoles::of(&event.spec));
                self.needs.insert(event.job.clone(), needs);
            }
            Some(Event::PlacementDecided(event)) => {
                for container in &event.create {
                    let placed = self.placed.entry(container.job.clone()).or_default();
                    let key = (container.incarnation, container.rank);
                    placed.insert(key, container.node.clone());
                }
            }
            Some(Event::PartitionStartRequested(event)) => {
                return self.check(&event.job, event.incarnation, None, event.basis.as_ref());
            }
            Some(Event::PartitionResizeRequested(event)) => {
                let join = Some(event.join.as_slice());
                return self.check(&event.job, event.incarnation, join, event.basis.as_ref());
            }
            Some(Event::JobCompleted(event)) => self.forget(&event.job),
            Some(Event::JobFailed(event)) => self.forget(&event.job),
            Some(Event::JobCancelled(event)) => self.forget(&event.job),
            _ => {}
        }
        Vec::new()
    }

    fn forget(&mut self, job: &JobId) {
        self.needs.remove(job);
        self.placed.remove(job);
    }

    fn check(
        &self,
        job: &JobId,
        incarnation: Incarnation,
        ranks: Option<&[Rank]>,
        basis: Option<&Basis>,
    ) -> Vec<String> {
        let (Some((needs, auxiliary)), Some(placed)) = (self.needs.get(job), self.placed.get(job))
        else {
            return Vec::new();
        };
        let asof = basis.map_or(Sequence(u64::MAX), |basis| basis.asof);
        let starts = placed.iter().filter(|((of, rank), _)| {
            *of == incarnation && ranks.is_none_or(|ranks| ranks.contains(rank))
        });
        let broken = starts.filter_map(|((_, rank), node)| {
            let said = self.nodes.get(node)?;
            let needs = auxiliary.at(*rank).map_or(needs, |part| &part.needs);
            let (_, labels, taints) = said.iter().rev().find(|(at, _, _)| *at <= asof)?;
            let why = match (
                needs.constraints.broken_by(labels),
                needs.kept_away_by(taints),
            ) {
                (Some((label, rule)), _) => format!("{label}: {rule}"),
                (None, Some(taint)) => format!("the taint {taint}"),
                (None, None) => return None,
            };
            Some(format!(
                "{job}/{incarnation}/{rank} starts on {node} against {why}"
            ))
        });
        broken.collect()
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::{NodeDrained, NodeRemoved};
    use dormouse_state::history::History;

    use super::*;

    fn found(removed: bool) -> Vec<String> {
        let name: NodeId = "n0".parse().expect("a node");
        let mut history = History::default();
        history.join("n0", 1);
        history.push(NodeLabelled {
            node: name.clone(),
            labels: BTreeMap::new(),
            taints: [("owner=vision".to_owned(), true)].into(),
        });
        history.push(NodeDrained {
            node: name.clone(),
            reason: None,
            deadline_s: None,
        });
        if removed {
            history.push(NodeRemoved { node: name });
        }
        history.join("n0", 2);
        history.run("ads/a", 1);
        let mut starts = Starts::default();
        let found = history.log.iter().flat_map(|it| starts.read(it));
        found.collect()
    }

    #[test]
    fn a_node_that_was_removed_comes_back_without_what_was_said_of_it() {
        assert_eq!(found(true), Vec::<String>::new());
        assert!(found(false)[0].contains("owner=vision"));
    }
}
