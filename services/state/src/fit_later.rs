//! The free capacity of the nodes at later times, when the jobs with time limits have ended.
//!
//! A question about one time builds only the nodes that it looks at, in the state that they have then; many
//! questions share the states. Every answer is that of [`FreeNodes::left_by`] without the ended jobs.

use std::cell::OnceCell;

use dormouse_messages::{JobId, Timestamp};

use crate::cluster::ClusterState;
use crate::fit::{Containers, FreeNode, FreeNodes, Gang, Placed};
use crate::job::Job;

/// A container on a node.
struct Kept {
    /// The end of its job by the time limit.
    ends: Option<Timestamp>,
    them: Containers,
    gpus: Vec<usize>,
}

struct Node<'a> {
    /// In the order of the jobs, in which they take GPUs.
    kept: Vec<Kept>,
    /// The ends of its containers, in order.
    ends: Vec<Timestamp>,
    /// By the number of ended containers.
    states: Vec<OnceCell<FreeNode<'a>>>,
}

/// The nodes for placement, by name, at the ends of the jobs on them.
pub struct FreeLater<'a> {
    empty: FreeNodes<'a>,
    nodes: Vec<Node<'a>>,
}

impl<'a> FreeLater<'a> {
    /// Starts from the `keeps` lowest ranks of each released job; a job ends at its time limit, as if started
    /// at `now` if not running.
    #[must_use]
    pub fn new(
        cluster: &'a ClusterState,
        placed: &Placed<'a>,
        keeps: impl Fn(&JobId, &Job) -> u64,
        now: Timestamp,
    ) -> Self {
        let empty = FreeNodes::empty(&cluster.nodes);
        let mut kept: Vec<Vec<Kept>> = empty.nodes().iter().map(|_| Vec::new()).collect();
        for (job, them, place) in placed.kept(keeps) {
            kept[place.node].push(Kept {
                ends: job.would_end_at(now),
                them: them.clone(),
                gpus: place.gpus.clone(),
            });
        }
        let nodes = kept.into_iter().map(|kept| {
            let mut ends: Vec<Timestamp> = kept.iter().filter_map(|one| one.ends).collect();
            ends.sort_unstable();
            let states = std::iter::repeat_with(OnceCell::new);
            let states = states.take(ends.len() + 1).collect();
            Node { kept, ends, states }
        });
        Self {
            nodes: nodes.collect(),
            empty,
        }
    }

    /// Returns the times at which a gang fits.
    #[must_use]
    pub fn of<'s>(&'s self, gang: &'s Gang) -> GangLater<'s, 'a> {
        let nodes = self.empty.nodes().iter().enumerate();
        let fitting = match gang.0.as_slice() {
            // A node that cannot hold it when empty never does.
            [them] => nodes
                .filter(|(_, node)| node.holds(them) > 0)
                .map(|(index, _)| index)
                .collect(),
            _ => Vec::new(),
        };
        GangLater {
            later: self,
            gang,
            fitting,
        }
    }

    fn node(&self, index: usize, at: Timestamp) -> &FreeNode<'a> {
        let node = &self.nodes[index];
        let ended = node.ends.partition_point(|ends| *ends <= at);
        node.states[ended].get_or_init(|| {
            let mut free = self.empty.nodes()[index].clone();
            let has_ended = |one: &&Kept| one.ends.is_some_and(|ends| ends <= at);
            for one in node.kept.iter().filter(|one| !has_ended(one)) {
                free.take(&one.them, &one.gpus);
            }
            free
        })
    }
}

/// A gang's question to [`FreeLater`].
pub struct GangLater<'s, 'a> {
    later: &'s FreeLater<'a>,
    gang: &'s Gang,
    /// The nodes that hold a container of one type when empty.
    fitting: Vec<usize>,
}

impl GangLater<'_, '_> {
    /// Reports whether the gang fits once the jobs limited to `at` have ended.
    #[must_use]
    pub fn fits(&self, at: Timestamp) -> bool {
        let [them] = self.gang.0.as_slice() else {
            let nodes = (0..self.later.nodes.len()).map(|index| self.later.node(index, at));
            return FreeNodes::new(nodes.cloned().collect()).fits(self.gang, &None);
        };
        let mut left = them.count;
        let mut nodes = self.fitting.iter();
        left == 0
            || nodes.any(|index| {
                let node = self.later.node(*index, at);
                left = left.saturating_sub(node.holds_allowed(them));
                left == 0
            })
    }
}
