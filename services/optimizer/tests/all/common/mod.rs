//! Instances for tests: the published testbed and random clusters.
#![allow(dead_code)]

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;
use dormouse_messages::policy::Placement;
use dormouse_messages::quantity::Amounts;
use dormouse_optimizer::problem::{InPlace, Problem, ProblemJob, ProblemNode};
use dormouse_optimizer::{Solution, check, solve};

/// A small deterministic generator: a seed names an instance.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

pub fn amounts(text: &str) -> Amounts {
    text.parse().expect("quantities")
}

pub fn node(name: &str, capacity: &str) -> ProblemNode {
    let name = name.parse().expect("a name");
    ProblemNode {
        name,
        capacity: amounts(capacity),
        reserved: Amounts::new(),
        closed: false,
        labels: Default::default(),
        taints: Default::default(),
        gpus: Vec::new(),
    }
}

pub fn job(name: &str, demand: &str, weight: u32, min: u32, max: u32) -> ProblemJob {
    ProblemJob {
        job: format!("t/{name}").parse().expect("an id"),
        demand: amounts(demand),
        gpu_parts: dormouse_messages::needs::ContainerType {
            demand: amounts(demand),
            needs: Default::default(),
        }
        .gpu_parts(u64::MAX),
        weight,
        min,
        max,
        adjustable: true,
        left_until: None,
        displaced: false,
        previous: None,
        stall_s: 0.0,
        may_be_overtaken: false,
        in_place: None,
        urgency: Default::default(),
        has_checkpoint: true,
        precedence: Default::default(),
        static_containers: None,
        useful: None,
        crossing: 0.0,
        ends_in_s: None,
        role: None,
        needs: Default::default(),
    }
}

pub fn service(name: &str, target: u32) -> ProblemJob {
    ProblemJob {
        in_place: Some(InPlace::default()),
        urgency: Urgency::Service,
        has_checkpoint: false,
        ..job(name, "gpu=1", 1, target, target)
    }
}

/// A training job resized in place, its coordinator on a node once it runs.
pub fn elastic(name: &str, coordinator: Option<&str>, min: u32, max: u32) -> ProblemJob {
    ProblemJob {
        in_place: Some(InPlace {
            coordinator: coordinator.map(|coordinator| coordinator.parse().expect("a node")),
        }),
        has_checkpoint: false,
        ..job(name, "gpu=1", 1, min, max)
    }
}

pub fn placed(job: ProblemJob, nodes: &[(&str, u32)]) -> ProblemJob {
    let at = |(node, count): &(&str, u32)| (node.parse().expect("a name"), *count);
    ProblemJob {
        previous: Some(nodes.iter().map(at).collect()),
        ..job
    }
}

/// 20 nodes with 240 CPU, 5 GPUs and 2.5 TB together.
pub fn testbed_nodes() -> Vec<ProblemNode> {
    (0..20)
        .map(|index| {
            let gpu = if index < 5 {
                "cpu=12,gpu=1,memory=128Gi"
            } else {
                "cpu=12,memory=128Gi"
            };
            node(&format!("n{index:02}"), gpu)
        })
        .collect()
}

/// Table II of the Dorm paper: demand, weight, most containers, and frequency among 50 jobs.
const TABLE: [(&str, u32, u32, u64); 7] = [
    ("cpu=2,memory=8Gi", 1, 32, 20),
    ("cpu=2,memory=6Gi", 2, 32, 20),
    ("cpu=4,memory=6Gi", 4, 8, 6),
    ("cpu=4,gpu=1,memory=32Gi", 1, 5, 1),
    ("cpu=6,gpu=1,memory=16Gi", 1, 5, 1),
    ("cpu=6,gpu=1,memory=16Gi", 2, 5, 1),
    ("cpu=4,gpu=1,memory=32Gi", 4, 5, 1),
];

pub fn testbed_jobs(count: usize, seed: u64) -> Vec<ProblemJob> {
    let mut bag: Vec<usize> = Vec::new();
    for (kind, row) in TABLE.iter().enumerate() {
        bag.extend((0..row.3).map(|_| kind));
    }
    let mut chance = Chance::new(seed);
    (0..count)
        .map(|index| {
            let at = chance.below(bag.len() as u64) as usize;
            let (demand, weight, max, _) = TABLE[bag.swap_remove(at)];
            job(&format!("j{index:03}"), demand, weight, 1, max)
        })
        .collect()
}

/// Turns a decision into the next problem's previous containers.
pub fn carry_over(problem: &mut Problem, solution: &Solution) {
    let nodes: BTreeMap<_, _> = solution
        .jobs
        .iter()
        .map(|share| (share.job.clone(), share.nodes.clone()))
        .collect();
    for job in &mut problem.jobs {
        let placed = nodes.get(&job.job).filter(|nodes| !nodes.is_empty());
        job.previous = placed.cloned();
    }
}

#[track_caller]
pub fn solved(problem: &Problem) -> Solution {
    let solution = solve(problem);
    if let Err(violation) = check(problem, &solution) {
        panic!("{violation}\n{problem:#?}\n{solution:#?}");
    }
    solution
}

pub fn large_nodes(count: usize) -> Vec<ProblemNode> {
    (0..count)
        .map(|index| {
            let capacity = match index % 20 {
                0..3 => "cpu=32,gpu=4,memory=256Gi",
                3..8 => "cpu=24,memory=192Gi",
                _ => "cpu=12,memory=128Gi",
            };
            node(&format!("n{index:05}"), capacity)
        })
        .collect()
}

/// Jobs with `shapes` distinct demands (0: all distinct) that want about twice the cluster.
pub fn large_jobs(count: usize, nodes: usize, shapes: u64, seed: u64) -> Vec<ProblemJob> {
    let mut chance = Chance::new(seed);
    let shape = |kind: u64| {
        let mut own = Chance::new(kind.wrapping_mul(977) + 13);
        own.below(7);
        if own.below(6) == 0 {
            format!(
                "cpu={},gpu=1,memory={}Gi",
                2 + own.below(7),
                8 + 4 * own.below(12)
            )
        } else {
            let cpu = 1 + own.below(6);
            format!("cpu={cpu},memory={}Mi", 1024 * cpu + 512 * own.below(26))
        }
    };
    let each = (nodes as u64 * 9 / count as u64).max(2);
    (0..count)
        .map(|index| {
            let kind = if shapes == 0 {
                chance.below(1 << 40)
            } else {
                chance.below(shapes)
            };
            let min = 1 + chance.below(2);
            let max = min + 1 + chance.below(2 * each);
            let weight = 1 + chance.below(4);
            let name = format!("j{seed}-{index:05}");
            job(&name, &shape(kind), weight as u32, min as u32, max as u32)
        })
        .collect()
}

/// Labels the nodes and constrains every third job, by its name.
pub fn bind(problem: &mut Problem) {
    for (index, node) in problem.nodes.iter_mut().enumerate() {
        let label = |name: &str, of: usize| (name.to_owned(), format!("{name}{}", index / 7 % of));
        node.labels = [label("zone", 4), label("disk", 3)].into();
    }
    for job in &mut problem.jobs {
        let name = job.job.as_str();
        let number: u64 = name.bytes().map(u64::from).sum();
        let constraints = match number % 12 {
            0 => r#"{"zone": "zone1"}"#,
            1 => r#"{"disk": ["disk0", "disk1"]}"#,
            2 => r#"{"zone": {"not": ["zone0", "zone3"]}}"#,
            3 => r#"{"zone": "zone2", "disk": "disk2"}"#,
            _ => continue,
        };
        job.needs.constraints = serde_json::from_str(constraints).expect("constraints");
    }
}

pub fn large_bound_problem(nodes: usize, jobs: usize, shapes: u64, seed: u64) -> Problem {
    let mut problem = large_problem_with(nodes, jobs, shapes, seed, Placement::Spread, bind);
    bind(&mut problem);
    problem
}

/// Returns a large problem with gangs on few nodes, as decisions of the policy `pack` leave them.
pub fn large_packed_problem(nodes: usize, jobs: usize, shapes: u64, seed: u64) -> Problem {
    let mut problem = large_problem_with(nodes, jobs, shapes, seed, Placement::Pack, bind);
    bind(&mut problem);
    problem
}

/// A busy cluster: DRF offers placed the first jobs, one in twenty has ended, new ones wait.
pub fn large_problem(nodes: usize, jobs: usize, shapes: u64, seed: u64) -> Problem {
    large_problem_with(nodes, jobs, shapes, seed, Placement::Spread, |_| {})
}

fn large_problem_with(
    nodes: usize,
    jobs: usize,
    shapes: u64,
    seed: u64,
    placement: Placement,
    bind: impl Fn(&mut Problem),
) -> Problem {
    use dormouse_optimizer::problem::Allocation;
    let mut problem = Problem {
        nodes: large_nodes(nodes),
        jobs: large_jobs(jobs, nodes, shapes, seed),
        ..Problem::default()
    };
    bind(&mut problem);
    let policy = problem.policy.clone();
    problem.policy.allocation = Allocation::Drf;
    problem.policy.placement = placement;
    let solution = solve(&problem);
    carry_over(&mut problem, &solution);
    problem.policy = policy;
    let mut chance = Chance::new(seed ^ 0xABCD);
    problem.jobs.retain(|_| chance.below(20) > 0);
    problem.jobs.sort_by_key(|job| job.previous.is_none());
    let missing = jobs - problem.jobs.len();
    problem.jobs.extend(large_jobs(
        missing.max(1),
        nodes * missing.max(1) / jobs + 1,
        shapes,
        seed + 7777,
    ));
    problem
}
