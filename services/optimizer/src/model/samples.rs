//! Small random instances for tests of the methods for large clusters.

use std::ops::Range;

use dormouse_messages::Needs;

use crate::model::cluster::Cluster;
use crate::model::instance::{Instance, State};
use crate::problem::{Problem, ProblemJob, ProblemNode};
use crate::useful::Useful;

pub(crate) fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    }
}

pub(crate) fn samples(seeds: Range<u64>) -> impl Iterator<Item = (u64, Instance)> {
    seeds.filter_map(|seed| Some((seed, random(seed, false)?)))
}

/// Half of the jobs are confined; some run on ineligible nodes.
pub(crate) fn bound_samples(seeds: Range<u64>) -> impl Iterator<Item = (u64, Instance)> {
    seeds.filter_map(|seed| Some((seed, random(seed, true)?)))
}

fn needs(bound: bool, below: &mut impl FnMut(u64) -> u64) -> Needs {
    let constraints = match below(6) {
        0 => r#"{"zone": "x"}"#,
        1 => r#"{"zone": "y"}"#,
        2 => r#"{"node": {"not": "b"}}"#,
        _ => "{}",
    };
    let mut needs = Needs::default();
    if bound {
        needs.constraints = serde_json::from_str(constraints).expect("constraints");
    }
    needs
}

pub(crate) fn all_restarted(instance: &Instance) -> Vec<bool> {
    let jobs = instance.jobs.iter();
    jobs.map(|job| job.state == State::Running).collect()
}

fn node((name, capacity): (&str, &str)) -> ProblemNode {
    ProblemNode {
        name: name.parse().expect("a name"),
        capacity: capacity.parse().expect("amounts"),
        reserved: Default::default(),
        closed: false,
        labels: [
            (
                "zone".to_owned(),
                if name < "c" { "x" } else { "y" }.to_owned(),
            ),
            ("node".to_owned(), name.to_owned()),
        ]
        .into(),
        taints: Default::default(),
        gpus: Vec::new(),
    }
}

pub(crate) fn job(id: &str, demand: &str) -> ProblemJob {
    ProblemJob {
        job: id.parse().expect("an id"),
        demand: demand.parse().expect("amounts"),
        weight: 1,
        min: 1,
        max: 1,
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
        needs: Needs::default(),
        gpu_parts: 0,
    }
}

/// A speed that bends, and falls from the fifth container on.
fn bends(index: u64, max: u32) -> Useful {
    let speed = |count: u32| match count {
        0..=4 => libm::pow(f64::from(count), 0.3 + index as f64 / 30.0),
        count => 2.0 - f64::from(count) / 10.0,
    };
    let mut useful = Useful::new(speed, max, &[]);
    useful.peak = (max > 4).then_some(4);
    useful
}

/// Four nodes, two thirds of the jobs running; the last node runs more of them than the dual tabulates.
fn random(seed: u64, bound: bool) -> Option<Instance> {
    let mut below = chance(seed);
    let mut asked = chance(seed + 999);
    let names = ["a", "b", "c", "d"];
    let capacities = [
        "cpu=8,gpu=1,memory=16Gi",
        "cpu=8,memory=16Gi",
        "cpu=6,memory=24Gi",
        "cpu=16,memory=32Gi",
    ];
    let mut problem = Problem {
        nodes: names.into_iter().zip(capacities).map(node).collect(),
        ..Problem::default()
    };
    for index in 0..18u64 {
        let small = index < 13;
        let demand = match (small, below(6)) {
            (true, _) => "cpu=1,memory=1Gi".to_owned(),
            (false, 0) => "cpu=2,gpu=1,memory=4Gi".to_owned(),
            (false, _) => format!("cpu={},memory={}Gi", 1 + below(4), 1 + below(8)),
        };
        let (min, span) = (1 + (below(2) as u32) * u32::from(!small), below(5) as u32);
        let runs = small || below(3) > 0;
        let at = if small { "d" } else { names[below(4) as usize] };
        let previous = runs.then(|| [(at.parse().expect("a name"), min)].into());
        problem.jobs.push(ProblemJob {
            weight: 1 + below(3) as u32,
            min,
            max: min + span,
            adjustable: below(8) > 0,
            previous,
            needs: needs(bound, &mut asked),
            useful: (seed % 3 == 2).then(|| bends(index, min + span)),
            ..job(&format!("t/j{index:02}"), &demand)
        });
    }
    let cluster = Cluster::new(&problem);
    let members: Vec<usize> = (0..problem.jobs.len()).collect();
    let instance = Instance::new(&problem, &cluster, &members);
    let held = |node: usize| {
        instance.jobs.iter().flat_map(move |job| {
            job.previous
                .iter()
                .filter(move |(at, _)| *at == node)
                .map(move |(_, count)| (job.ty, *count))
        })
    };
    let fits = (0..4).all(|node| {
        (0..instance.totals.len()).all(|k| {
            let used: u64 = held(node)
                .map(|(ty, count)| instance.types[ty].demand[k] * u64::from(count))
                .sum();
            used <= instance.rooms[node][k]
        })
    });
    fits.then_some(instance)
}
