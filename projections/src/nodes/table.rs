//! The past of the nodes.

use std::collections::BTreeMap;

use dormouse_messages::events::{GpuBeyond, GpuStranger, NodeGpuReconciled};
use dormouse_messages::{By, Event, Fact, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use dormouse_state::{ClusterState, NodePhase};

/// An operator's drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub at: Timestamp,
    pub reason: Option<String>,
    pub by: Option<By>,
}

/// A node's last loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub at: Timestamp,
    /// The last renewal of the lease.
    pub last_seen: Timestamp,
    /// Evidence, if fenced.
    pub fenced: Option<String>,
}

/// The past of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeHistory {
    pub joined: Option<Timestamp>,
    pub runtime: String,
    /// The last one, perhaps over.
    pub drain: Option<Drain>,
    /// The last one, perhaps over.
    pub loss: Option<Loss>,
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
}

/// Deviations of the driver's view of a shared GPU from the agent's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDoubt {
    pub strangers: Vec<GpuStranger>,
    pub beyond: Vec<GpuBeyond>,
    pub since: Timestamp,
}

impl NodeHistory {
    fn reconciled(&mut self, event: &NodeGpuReconciled, at: Timestamp) {
        if event.strangers.is_empty() && event.beyond.is_empty() {
            self.gpu_doubts.remove(&event.uuid);
            return;
        }
        let doubt = self.gpu_doubts.entry(event.uuid.clone());
        let doubt = doubt.or_insert_with(|| GpuDoubt {
            since: at,
            ..GpuDoubt::default()
        });
        doubt.strangers.clone_from(&event.strangers);
        doubt.beyond.clone_from(&event.beyond);
    }
}

/// The past of all nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeTable(BTreeMap<NodeId, NodeHistory>);

impl NodeTable {
    /// Returns the past of a node.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<&NodeHistory> {
        self.0.get(node)
    }

    /// Folds one event, after `state`.
    pub fn evolve(&mut self, fact: &Fact<'_>, state: &ClusterState) {
        let Some(event) = fact.event() else {
            return;
        };
        let at = fact.at;
        match event {
            Event::NodeJoined(e) => {
                let node = self.0.entry(e.node.clone()).or_default();
                node.joined = Some(at);
                node.runtime.clone_from(&e.runtime);
                if let Some(loss) = &mut node.loss {
                    loss.fenced = None;
                }
            }
            Event::NodeDrained(e) => {
                self.0.entry(e.node.clone()).or_default().drain = Some(Drain {
                    at,
                    reason: e.reason.clone(),
                    by: fact.by(),
                });
            }
            Event::NodeLost(e) => {
                let never = e.last_seen == Timestamp::default();
                let last_seen = if never {
                    e.last_seen
                } else {
                    fact.time_of(e.last_seen).min(at)
                };
                self.lost(
                    state,
                    (&e.node, e.incarnation),
                    Loss {
                        at,
                        last_seen,
                        fenced: None,
                    },
                );
            }
            Event::NodeFenced(e) => self.lost(
                state,
                (&e.node, e.incarnation),
                Loss {
                    at,
                    last_seen: at,
                    fenced: Some(e.reason.clone()),
                },
            ),
            Event::NodeRemoved(e) if state.nodes.get(&e.node).is_none() => {
                self.0.remove(&e.node);
            }
            Event::NodeGpuReconciled(e) => {
                if let Some(node) = self.0.get_mut(&e.node) {
                    node.reconciled(e, at);
                }
            }
            _ => {}
        }
    }

    /// Ignores losses of other incarnations.
    fn lost(&mut self, state: &ClusterState, (name, incarnation): (&NodeId, u64), loss: Loss) {
        let known = state.nodes.get(name);
        let is_lost = known.is_some_and(|node| {
            node.incarnation == incarnation && matches!(node.phase, NodePhase::Lost { .. })
        });
        if let Some(node) = self.0.get_mut(name).filter(|_| is_lost) {
            let before = node.loss.take().and_then(|it| it.fenced);
            node.loss = Some(Loss {
                fenced: loss.fenced.or(before),
                ..loss
            });
        }
    }
}
