//! Fractions of GPUs are counted by device, not by their sum.

use std::collections::BTreeMap;

use dormouse_messages::needs::GPU_PARTS;
use dormouse_messages::{JobId, NodeId};
use dormouse_optimizer::problem::{Problem, ProblemGpu, ProblemJob};
use dormouse_optimizer::{Solution, solve_document};
use serde_json::json;

use crate::common::{Chance, carry_over, job, node, placed, solved};

fn containers(solution: &Solution, name: &str) -> u32 {
    let name = format!("t/{name}");
    let found = solution
        .jobs
        .iter()
        .find(|share| share.job.as_str() == name);
    found.map_or(0, |share| share.containers)
}

fn one_node(gpus: u32, jobs: Vec<ProblemJob>) -> Problem {
    Problem {
        nodes: vec![node("n0", &format!("cpu=64,gpu={gpus}"))],
        jobs,
        ..Problem::default()
    }
}

#[test]
fn two_devices_at_six_tenths_do_not_hold_eight_tenths() {
    let mut old = placed(job("old", "cpu=1,gpu=0.6", 1, 2, 2), &[("n0", 2)]);
    old.adjustable = false;
    let problem = one_node(2, vec![old, job("new", "cpu=1,gpu=0.8", 1, 1, 1)]);
    let solution = solved(&problem);
    assert_eq!(containers(&solution, "new"), 0, "{solution:#?}");
    assert_eq!(solution.waiting.len(), 1);
}

#[test]
fn quarters_share_a_device_and_whole_ones_stay_whole() {
    let quarters = job("quarters", "cpu=1,gpu=0.25", 1, 4, 4);
    let whole = job("whole", "cpu=1,gpu=1", 1, 1, 1);
    let solution = solved(&one_node(2, vec![quarters, whole.clone()]));
    assert_eq!(
        (
            containers(&solution, "quarters"),
            containers(&solution, "whole")
        ),
        (4, 1)
    );
    // A fifth quarter needs the second device.
    let five = job("quarters", "cpu=1,gpu=0.25", 1, 5, 5);
    let solution = solved(&one_node(2, vec![five, whole]));
    assert_eq!(
        (
            containers(&solution, "quarters"),
            containers(&solution, "whole")
        ),
        (5, 0)
    );
}

#[test]
fn memory_of_a_device_counts() {
    let document = |memory: &str| {
        let document = json!({
            "nodes": [
                {"name": "n0", "capacity": {"cpu": 8, "gpu": 1}, "gpu_memory": "16Gi"},
                {"name": "n1", "capacity": {"cpu": 8, "gpu": 1}},
            ],
            "jobs": [{"job": "t/a", "demand": {"cpu": 1, "gpu": 0.25}, "gpu_memory": memory,
                      "containers": {"min": 1, "max": 8}}],
        });
        let solved = solve_document(&document.to_string()).expect("a problem");
        solved["jobs"][0]["containers"].as_u64().unwrap_or(0)
    };
    // Four quarters of 4 GiB or two halves of 8; the other node's memory is unknown.
    assert_eq!(
        [
            document("4Gi"),
            document("8Gi"),
            document("16Gi"),
            document("17Gi")
        ],
        [4, 2, 1, 0]
    );
}

/// Containers and sizes on each device.
type Racks = BTreeMap<NodeId, Vec<Vec<(JobId, u64)>>>;

fn free(device: &[(JobId, u64)]) -> u64 {
    GPU_PARTS - device.iter().map(|(_, size)| size).sum::<u64>()
}

/// Changed jobs leave their devices and take new ones, large ones first.
fn rearranged(racks: &mut Racks, problem: &Problem, solution: &Solution) {
    let mut fresh: Vec<(u64, &JobId, &NodeId)> = Vec::new();
    for share in &solution.jobs {
        let posed = problem
            .jobs
            .iter()
            .find(|job| job.job == share.job)
            .expect("posed");
        if posed.previous.as_ref() == Some(&share.nodes) {
            continue;
        }
        racks
            .values_mut()
            .flatten()
            .for_each(|device| device.retain(|(id, _)| *id != share.job));
        let size = posed.gpu_parts.min(GPU_PARTS);
        for (node, count) in &share.nodes {
            let many = u64::from(*count) * posed.gpu_parts / size.max(1);
            fresh.extend((0..many).map(|_| (size, &share.job, node)));
        }
    }
    fresh.sort_by(|a, b| b.cmp(a));
    for (size, job, node) in fresh {
        let devices = racks.get_mut(node).expect("a node");
        let open = devices.iter_mut().filter(|device| free(device) >= size);
        let device = open.min_by_key(|device| free(device));
        device
            .unwrap_or_else(|| panic!("no device for {size} parts of {job} on {node}"))
            .push((job.clone(), size));
    }
}

#[test]
fn every_container_finds_its_device() {
    let demands = [
        "gpu=0.1",
        "gpu=0.25",
        "gpu=0.3",
        "gpu=0.5",
        "gpu=0.7",
        "gpu=1",
        "gpu=2",
        "memory=1Gi",
    ];
    let mut shared = 0;
    for seed in 0..40 {
        let mut chance = Chance::new(seed + 5);
        let made = |name: &str, chance: &mut Chance| {
            let demand = format!("cpu=1,{}", demands[chance.below(8) as usize]);
            let min = 1 + chance.below(3) as u32;
            job(name, &demand, 1, min, min + chance.below(4) as u32)
        };
        let nodes = (0..3).map(|index| node(&format!("n{index}"), "cpu=16,memory=64Gi,gpu=3"));
        let mut problem = Problem {
            nodes: nodes.collect(),
            jobs: (0..5)
                .map(|index| made(&format!("j{index}"), &mut chance))
                .collect(),
            ..Problem::default()
        };
        let mut racks: Racks = problem
            .nodes
            .iter()
            .map(|it| (it.name.clone(), vec![Vec::new(); 3]))
            .collect();
        for step in 0..6 {
            for node in &mut problem.nodes {
                let gpu = |device: &Vec<_>| ProblemGpu {
                    memory_bytes: 0,
                    taken: Some(GPU_PARTS - free(device)),
                };
                node.gpus = racks[&node.name].iter().map(gpu).collect();
            }
            let solution = solved(&problem);
            rearranged(&mut racks, &problem, &solution);
            carry_over(&mut problem, &solution);
            shared += racks
                .values()
                .flatten()
                .filter(|device| device.len() > 1)
                .count();
            problem.jobs.retain(|_| chance.below(5) > 0);
            let stay: Vec<JobId> = problem.jobs.iter().map(|job| job.job.clone()).collect();
            racks
                .values_mut()
                .flatten()
                .for_each(|device| device.retain(|(id, _)| stay.contains(id)));
            for fresh in 0..2 {
                problem
                    .jobs
                    .push(made(&format!("k{step}-{fresh}"), &mut chance));
            }
            problem.jobs.sort_by_key(|job| job.previous.is_none());
        }
    }
    assert!(shared > 50, "{shared}");
}
