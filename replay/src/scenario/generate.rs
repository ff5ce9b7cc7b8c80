//! Generates scenarios from a seed: the Dorm paper's testbed, and a trace of a larger cluster.

use serde_json::{Value, json};

use crate::random::Random;

/// A kind of scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The workload of the Dorm paper's evaluation (Sun et al. 2017, Table II).
    Table2,
    /// A heavy-tailed trace with tenants, GPUs and a daily rhythm.
    Trace,
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table2" => Ok(Self::Table2),
            "trace" => Ok(Self::Trace),
            other => Err(format!("{other:?} is not table2 or trace")),
        }
    }
}

/// The size of a trace; [`Kind::Table2`] has its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    pub jobs: u32,
    pub nodes: u32,
    pub days: f64,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            jobs: 2_000,
            nodes: 50,
            days: 7.0,
        }
    }
}

/// Generates a scenario.
#[must_use]
pub fn generate(kind: Kind, seed: u64, size: Size) -> Value {
    match kind {
        Kind::Table2 => table2(seed),
        Kind::Trace => trace(seed, size),
    }
}

/// A row of Table II: name, executor, CPU, GPU, GiB, weight, most containers, number of jobs, containers
/// of the static baseline.
type Row = (&'static str, &'static str, [u32; 3], u32, u32, u32, u32);

/// Table II of the Dorm paper. Petuum is not among the executors and runs as `plain`.
const TABLE_2: [Row; 7] = [
    ("lr", "mxnet", [2, 0, 8], 1, 32, 20, 8),
    ("mf", "tensorflow", [2, 0, 6], 2, 32, 20, 8),
    ("caffenet", "mpi", [4, 0, 6], 4, 8, 6, 4),
    ("vgg16", "mxnet", [4, 1, 32], 1, 5, 1, 2),
    ("googlenet", "tensorflow", [6, 1, 16], 1, 5, 1, 2),
    ("alexnet", "plain", [6, 1, 16], 2, 5, 1, 2),
    ("resnet50", "mpi", [4, 1, 32], 4, 5, 1, 3),
];

/// The paper's cluster and arrivals. The run times are unpublished; here lognormal under the static
/// baseline, median 4 hours, sigma 0.3.
fn table2(seed: u64) -> Value {
    let mut random = Random::new(seed);
    let nodes = (0..20).map(|index| {
        let gpu = u32::from(index < 5);
        json!({"name": format!("n{index:02}"), "capacity": {"cpu": 12, "gpu": gpu, "memory": "128Gi"}})
    });
    let mut rows: Vec<&Row> = TABLE_2
        .iter()
        .flat_map(|row| std::iter::repeat_n(row, row.5 as usize))
        .collect();
    for index in (1..rows.len()).rev() {
        let other = random.below(index as u64 + 1);
        rows.swap(index, usize::try_from(other).unwrap_or(0));
    }
    let mut at_s = 0.0;
    let mut jobs = Vec::new();
    for (number, (name, executor, [cpu, gpu, memory], weight, max, _, fixed)) in
        rows.into_iter().enumerate()
    {
        at_s += random.exponential(20.0 * 60.0);
        let static_s = random.lognormal(4.0 * 3600.0, 0.3);
        jobs.push(json!({
            "at_s": rounded(at_s),
            "spec": {
                "name": format!("a{number:02}-{name}"), "tenant": "testbed", "kind": "training", "executor": executor,
                "command": {"start": ["train"], "resume": ["train", "--resume"]},
                "demand": {"cpu": cpu, "gpu": gpu, "memory": format!("{memory}Gi")},
                "weight": weight, "containers": {"min": 1, "max": max},
                "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 60},
            },
            "static_containers": fixed,
            "model": {"work_container_s": rounded(static_s * f64::from(*fixed)), "scaling": {"kind": "linear"}},
        }));
    }
    json!({
        "scenario": format!("table2-{seed}"), "horizon_s": 86_400,
        "policy": {"allocation": "dorm", "theta1": 0.1, "theta2": 0.1, "fairness_bound": "paper"},
        "costs": {"adjustment_s": 180, "start_s": 0},
        "nodes": nodes.collect::<Vec<_>>(), "jobs": jobs,
    })
}

/// Few teams submit most jobs, as in published traces of shared GPU clusters (Jeon et al., USENIX ATC
/// 2019).
const TENANTS: [(&str, f64); 6] = [
    ("search", 0.35),
    ("ads", 0.25),
    ("vision", 0.16),
    ("speech", 0.12),
    ("maps", 0.08),
    ("interns", 0.04),
];

/// The load on the cluster's scarcest resource, as a fraction.
const LOAD: f64 = 0.7;

/// A daily rhythm, heavy-tailed sizes and run times (lognormal, sigma 1.5), one job in four on GPUs.
fn trace(seed: u64, size: Size) -> Value {
    let mut random = Random::new(seed);
    let gpu_nodes = size.nodes.div_ceil(4);
    let nodes = (0..size.nodes).map(|index| {
        let gpu = if index < gpu_nodes { 4 } else { 0 };
        json!({"name": format!("n{index:04}"), "capacity": {"cpu": 32, "gpu": gpu, "memory": "256Gi"}})
    });
    let mut arrivals: Vec<f64> = (0..size.jobs)
        .map(|_| arrival_s(&mut random, size.days))
        .collect();
    arrivals.sort_by(f64::total_cmp);
    let drawn: Vec<Drawn> = arrivals.iter().map(|_| draw(&mut random)).collect();
    let seconds = size.days * 86_400.0;
    let cpu: f64 = drawn.iter().map(|job| job.work * f64::from(job.cpu)).sum();
    let gpu: f64 = drawn.iter().map(|job| job.work * f64::from(job.gpu)).sum();
    let cpu_load = cpu / (f64::from(size.nodes) * 32.0 * seconds);
    let gpu_load = gpu / (f64::from(gpu_nodes) * 4.0 * seconds);
    let scale = LOAD / cpu_load.max(gpu_load).max(f64::MIN_POSITIVE);
    let jobs = drawn.iter().zip(&arrivals).enumerate();
    let jobs = jobs.map(|(number, (job, at_s))| job.document(number, *at_s, scale));
    json!({
        "scenario": format!("trace-{seed}"), "horizon_s": rounded(seconds),
        "policy": {"allocation": "dorm", "theta1": 0.1, "theta2": 0.1},
        "costs": {"adjustment_s": 60, "start_s": 5},
        "nodes": nodes.collect::<Vec<_>>(), "jobs": jobs.collect::<Vec<_>>(),
    })
}

/// Draws a time with the density 1 − 0.9 cos(2π (t − 3 h) / day) by rejection from the uniform.
fn arrival_s(random: &mut Random, days: f64) -> f64 {
    loop {
        let at_s = random.between(0.0, days * 86_400.0);
        let hour = (at_s / 3600.0 - 3.0) / 24.0;
        let density = 1.0 - 0.9 * libm::cos(std::f64::consts::TAU * hour);
        if random.unit() * 1.9 < density {
            return at_s;
        }
    }
}

struct Drawn {
    tenant: &'static str,
    cpu: u32,
    gpu: u32,
    memory_gi: u32,
    weight: u32,
    min: u32,
    max: u32,
    work: f64,
    efficiency: f64,
    batch: bool,
}

fn draw(random: &mut Random) -> Drawn {
    let mut part = random.unit();
    let tenant = TENANTS.iter().find(|(_, share)| {
        part -= share;
        part < 0.0
    });
    let on_gpu = random.chance(0.25);
    let batch = !on_gpu && random.chance(0.3);
    let max = match (batch, on_gpu) {
        (true, _) => 1,
        (false, true) => 1 << random.below(4),
        (false, false) => 1 << random.below(6),
    };
    Drawn {
        tenant: tenant.map_or("interns", |(name, _)| name),
        cpu: *random.choose(&[1, 2, 2, 4, 4, 8]),
        gpu: u32::from(on_gpu),
        memory_gi: *random.choose(&[2, 4, 8, 16]),
        weight: *random.choose(&[1, 1, 1, 2, 4]),
        min: if max >= 4 && random.chance(0.3) { 2 } else { 1 },
        max,
        work: f64::from(max) * random.lognormal(1.0, 1.5),
        efficiency: random.between(0.85, 1.0),
        batch,
    }
}

impl Drawn {
    fn document(&self, number: usize, at_s: f64, scale: f64) -> Value {
        let kind = if self.batch { "batch" } else { "training" };
        let mode = if self.batch { "none" } else { "exit" };
        let work_container_s = rounded((self.work * scale).max(10.0));
        json!({
            "at_s": rounded(at_s),
            "spec": {
                "name": format!("j{number:06}"), "tenant": self.tenant, "kind": kind, "executor": "plain",
                "command": {"start": ["run"]},
                "demand": {"cpu": self.cpu, "gpu": self.gpu, "memory": format!("{}Gi", self.memory_gi)},
                "weight": self.weight, "containers": {"min": self.min, "max": self.max},
                "checkpoint": {"mode": mode},
            },
            "static_containers": self.max.div_ceil(2).max(self.min),
            "model": {
                "work_container_s": work_container_s,
                "scaling": {"kind": "efficiency", "per_doubling": (self.efficiency * 1000.0).round() / 1000.0},
            },
        })
    }
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::read_value;

    #[test]
    fn a_seed_gives_one_scenario_and_it_reads() {
        for kind in [Kind::Table2, Kind::Trace] {
            let size = Size {
                jobs: 300,
                nodes: 8,
                days: 1.0,
            };
            let one = generate(kind, 7, size);
            assert_eq!(one, generate(kind, 7, size));
            assert_ne!(one, generate(kind, 8, size));
            let scenario = read_value(one).expect("reads");
            assert!(scenario.submissions.len() >= 50);
        }
    }

    #[test]
    fn a_trace_has_the_load_and_the_rhythm_that_it_claims() {
        let size = Size {
            jobs: 5000,
            nodes: 40,
            days: 5.0,
        };
        let scenario = read_value(generate(Kind::Trace, 1, size)).expect("reads");
        let hour = |at_s: f64| (at_s / 3600.0) % 24.0;
        let by_day = scenario
            .submissions
            .iter()
            .filter(|job| (9.0..21.0).contains(&hour(job.at_s)));
        let by_day = by_day.count();
        assert!((3500..4500).contains(&by_day), "{by_day} of 5000 by day");
        let work: f64 = scenario
            .submissions
            .iter()
            .map(|job| job.model.work_container_s)
            .sum();
        assert!(work > 0.0);
    }
}
