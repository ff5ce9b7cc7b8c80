//! Finds the holders of missing resources: by sums or, if the sums suffice, by node and GPU.

use std::collections::BTreeMap;

use dormouse_messages::needs::GPU_PARTS;
use dormouse_messages::sanitize::listed;
use dormouse_messages::{Amounts, JobId, NodeId, Resource};
use dormouse_projections::jobs::room::Room;
use dormouse_state::fit::{FreeNode, is_in, unplaced};
use dormouse_state::{FreeNodes, Gang, Job};

use super::answer::{Explanation, HeldBy};
use super::explainer::Explainer;

const MOST_LISTED: usize = 20;

pub(super) fn held(explainer: &Explainer, id: &JobId, answer: &mut Explanation) {
    let (_, now) = explainer.place();
    let room = Room::new(&explainer.model.queues, &explainer.model.jobs);
    let (Some(short), Some(words)) = (room.short(id), room.words(id, now)) else {
        return held_on_nodes(explainer, id, answer);
    };
    answer.words.push(format!("it {words}"));
    let name = short.resource.name();
    for holder in room.holders(id, &short).into_iter().take(MOST_LISTED) {
        let job = explainer.name(holder.job);
        let ends = holder.ends_at.map(|at| at.to_words());
        let ends = ends.map_or_else(String::new, |at| {
            format!(", and ends by its time limit at {at}")
        });
        let keeps = short.resource.display(holder.keeps);
        answer.words.push(if holder.waits {
            format!("{job} waits, too, and is to have {keeps} of {name}")
        } else {
            format!("{job} keeps {keeps} of {name}{ends}")
        });
        answer.held_by.push(HeldBy {
            job,
            resource: name.to_owned(),
            keeps: holder.keeps,
            ends_at: holder.ends_at,
        });
    }
}

/// A shortage on nodes although the sums suffice.
struct Lack<'a> {
    resources: Vec<Resource>,
    gang: Gang,
    nodes: Vec<(&'a NodeId, FreeNode<'a>)>,
}

impl<'a> Lack<'a> {
    /// Returns `None` if the job fits, or would not fit on empty nodes either.
    fn of(explainer: &'a Explainer, id: &JobId) -> Option<Self> {
        let cluster = &explainer.head.cluster;
        let job = cluster.job(id).filter(|job| unplaced(job))?;
        let gang = Gang::of(&cluster.nodes, job);
        let empty = FreeNodes::empty(&cluster.nodes);
        let free = FreeNodes::left_by(cluster, |_, _| u64::MAX);
        if free.fits(&gang, &None) || !empty.fits(&gang, &None) {
            return None;
        }
        let able = empty.eligible(&gang);
        let names = cluster.nodes.usable().map(|(name, _)| name);
        let nodes = names.zip(free.nodes().iter().cloned()).enumerate();
        let nodes = nodes.filter(|(index, _)| is_in(&able, *index));
        Some(Self {
            resources: free.lacks(&gang, &None).into_iter().collect(),
            nodes: nodes.map(|(_, node)| node).collect(),
            gang,
        })
    }

    fn words(&self) -> String {
        let names: Vec<&str> = self.resources.iter().map(Resource::name).collect();
        let each: Vec<String> = self
            .gang
            .0
            .iter()
            .map(|it| it.of_type.demand.to_string())
            .collect();
        let nodes: Vec<&str> = self.nodes.iter().map(|(name, _)| name.as_str()).collect();
        format!(
            "the sums have room for its minimum ({} each), and no nodes have: it lacks {} on {}",
            each.join(" and "),
            names.join(" and "),
            listed(nodes, MOST_NAMED)
        )
    }
}

const MOST_NAMED: usize = 5;

pub(super) fn no_nodes(explainer: &Explainer, id: &JobId) -> Option<String> {
    Lack::of(explainer, id).map(|lack| lack.words())
}

fn held_on_nodes(explainer: &Explainer, id: &JobId, answer: &mut Explanation) {
    let Some(lack) = Lack::of(explainer, id) else {
        return;
    };
    answer.words.push(lack.words());
    let cluster = &explainer.head.cluster;
    let mut listed = 0;
    for (node, free) in &lack.nodes {
        for resource in &lack.resources {
            if *resource == Resource::Gpu {
                answer.words.extend(devices(explainer, node, free));
            }
            for (holder, job) in &cluster.jobs {
                let keeps = on_node(job, node).get(resource);
                if keeps == 0 || listed == MOST_LISTED {
                    continue;
                }
                listed += 1;
                let ends_at = job.ends_at();
                let ends = ends_at.map_or_else(String::new, |at| {
                    format!(", and ends by its time limit at {}", at.to_words())
                });
                let holder = explainer.name(holder);
                let name = resource.name();
                answer.words.push(format!(
                    "{holder} keeps {} of {name} on {node}{ends}",
                    resource.display(keeps)
                ));
                answer.held_by.push(HeldBy {
                    job: holder,
                    resource: name.to_owned(),
                    keeps,
                    ends_at,
                });
            }
        }
    }
}

fn on_node(job: &Job, node: &NodeId) -> Amounts {
    let mut held = Amounts::new();
    let places = job.assignment.iter().filter(|_| !unplaced(job));
    for (rank, place) in places.flat_map(|it| &it.places) {
        if place.node == *node {
            held.add(job.demand_at(*rank), 1);
        }
    }
    held
}

fn devices(explainer: &Explainer, node: &NodeId, free: &FreeNode<'_>) -> Option<String> {
    let cluster = &explainer.head.cluster;
    let known = cluster.nodes.get(node)?;
    let mut holders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (id, job) in &cluster.jobs {
        let places = job.assignment.iter().filter(|_| !unplaced(job));
        for (_, place) in places
            .flat_map(|it| &it.places)
            .filter(|(_, it)| it.node == *node)
        {
            for uuid in &place.gpus {
                holders.entry(uuid).or_default().push(explainer.name(id));
            }
        }
    }
    let each = known.gpus.iter().zip(&free.gpus).enumerate();
    let each = each.map(|(index, (gpu, free))| {
        let by = holders.get(gpu.uuid.as_str());
        let by = by.map_or_else(|| "nobody".to_owned(), |by| by.join(", "));
        format!(
            "GPU {index} has {} of {GPU_PARTS} parts free ({by})",
            free.free
        )
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("of {node}, {}", each.join("; ")))
}
