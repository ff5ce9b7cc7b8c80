//! The scenario of past jobs: read, divide into containers, choose nodes, leave out the jobs that fit on
//! none, and write a document with a line a job.

use std::io::{self, Read, Write};

use dormouse_messages::{Amounts, Resource};
use serde_json::{Map, Value, json};

use super::names::Names;
use super::nodes::{Cluster, Node, Nodes};
use super::report::{Planned, Report, assumptions, f64_of, recorded};
use super::shape::shape;
use super::{Elastic, ImportError, Options, Past, PastJob, read};

/// Seconds without progress of an elastic job's resize, as in generated traces.
const ADJUSTMENT_S: u32 = 60;

/// A job that ran for longer than its limit was stopped within Slurm's `KillWait` and `OverTimeLimit`.
const LIMIT_MARGIN_S: u64 = 60;

/// The label of nodes whose GPUs are of one model.
const MODEL_LABEL: &str = "gpu.model";

/// A scenario and its report.
#[derive(Debug)]
pub struct Import {
    pub report: Report,
    name: String,
    /// In the order of their submission.
    jobs: Vec<Planned>,
    cluster: Cluster,
    elastic: Elastic,
    speed: Vec<f64>,
}

/// Makes a scenario of the records.
///
/// # Errors
/// Missing columns, unreadable rows unless they are skipped, and no job at all.
pub fn import(input: impl Read, options: &Options) -> Result<Import, ImportError> {
    let mut past = read(input, options)?;
    let dropped = drop_unknown(&mut past, &options.nodes);
    let shapes: Vec<_> = past
        .jobs
        .iter()
        .map(|job| shape(job, options.elastic))
        .collect();
    let with_shapes: Vec<_> = past.jobs.iter().zip(&shapes).collect();
    let cluster = Cluster::of(&options.nodes, &with_shapes);
    let assumptions = assumptions(options, &past, &cluster, &dropped);
    let (mut tenants, mut names) = (Names::default(), Names::default());
    let mut jobs = Vec::with_capacity(past.jobs.len());
    for (past_job, shape) in std::mem::take(&mut past.jobs).into_iter().zip(shapes) {
        if !cluster.holds(&past_job, &shape) {
            past.left_out.too_large += 1;
            continue;
        }
        jobs.push(Planned {
            name: names.next(&past_job.id),
            tenant: tenants.of(&past_job.tenant),
            past: past_job,
            shape,
        });
    }
    if jobs.is_empty() {
        return Err(ImportError::NoJobs {
            rows: past.rows,
            left_out: past.left_out,
        });
    }
    jobs.sort_by_key(|job| job.past.submitted_s);
    Ok(Import {
        report: Report {
            format: options.format.as_str().to_owned(),
            rows: past.rows,
            jobs: jobs.len() as u64,
            left_out: past.left_out,
            nodes: cluster.groups.clone(),
            recorded: recorded(&jobs, &cluster),
            assumptions,
        },
        name: options.name.clone(),
        jobs,
        cluster,
        elastic: options.elastic,
        speed: options.speed.clone(),
    })
}

/// Takes CPU and memory out of the jobs if the given nodes name none of it, so that a cluster can be
/// described by its GPUs alone. GPUs stay: a job without its GPUs is another job.
fn drop_unknown(past: &mut Past, nodes: &Nodes) -> Vec<Resource> {
    for job in &mut past.jobs {
        job.run_s = job.run_s.max(1);
    }
    let capacities: Vec<&Amounts> = match nodes {
        Nodes::Listed(nodes) => nodes.iter().map(|node| &node.capacity).collect(),
        Nodes::Equal { capacity, .. } => vec![capacity],
        Nodes::Peak { capacity } => capacity.iter().collect(),
    };
    if capacities.is_empty() {
        return Vec::new();
    }
    let mut dropped = Vec::new();
    for resource in [Resource::Cpu, Resource::Memory] {
        let is_known = capacities
            .iter()
            .any(|capacity| capacity.get(&resource) > 0);
        let is_asked = past.jobs.iter().any(|job| job.total.get(&resource) > 0);
        if is_known || !is_asked {
            continue;
        }
        for job in &mut past.jobs {
            job.total.set(resource.clone(), 0);
        }
        dropped.push(resource);
    }
    let before = past.jobs.len();
    past.jobs.retain(|job| !job.total.is_empty());
    past.left_out.without_resources += (before - past.jobs.len()) as u64;
    dropped
}

impl Import {
    /// Writes the scenario as JSON, a line a job.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let first_s = self.jobs.first().map_or(0, |job| job.past.submitted_s);
        let costs = match self.elastic {
            Elastic::None => json!({}),
            Elastic::Gpu => json!({"adjustment_s": ADJUSTMENT_S}),
        };
        writeln!(out, "{{\"scenario\": {},", json!(self.name))?;
        writeln!(out, "\"notes\": {},", json!(self.report.assumptions))?;
        let horizon_s = self.report.recorded.makespan_s.max(1.0);
        writeln!(out, "\"horizon_s\": {horizon_s}, \"costs\": {costs},")?;
        let models = self.cluster.knows_models();
        lines(out, "nodes", self.cluster.nodes.iter().map(node))?;
        writeln!(out, ",")?;
        let jobs = self.jobs.iter().map(|job| self.job(job, first_s, models));
        lines(out, "jobs", jobs)?;
        writeln!(out, "}}")
    }

    fn job(&self, job: &Planned, first_s: i64, models: bool) -> Value {
        let Planned { past, shape, .. } = job;
        let least = if shape.is_elastic {
            1
        } else {
            shape.containers
        };
        let mut spec = json!({
            "name": job.name, "tenant": job.tenant, "command": {"start": ["run"]},
            "demand": written(&shape.demand),
            "containers": {"min": least, "max": shape.containers},
        });
        let mut model = json!({"work_container_s": self.work_container_s(past, job)});
        if shape.is_elastic {
            spec["checkpoint"] = json!({"mode": "exit"});
            if !self.speed.is_empty() {
                spec["speed"] = json!(self.speed);
                model["scaling"] = json!({"kind": "table", "speed": self.speed});
            }
        } else if let Some(limit_s) = past.limit_s.filter(|limit_s| *limit_s > 0) {
            let limit_s = limit_s.max(past.run_s + LIMIT_MARGIN_S);
            spec["time_limit_s"] = json!(limit_s.min(u64::from(u32::MAX)));
        }
        if models && !past.gpu_models.is_empty() {
            spec["constraints"] = json!({MODEL_LABEL: past.gpu_models});
        }
        let at_s = past.submitted_s.abs_diff(first_s);
        json!({"at_s": at_s, "spec": spec, "model": model})
    }

    /// The work that takes the recorded run time with the recorded containers.
    fn work_container_s(&self, past: &PastJob, job: &Planned) -> f64 {
        let containers = job.shape.containers;
        let linear = f64::from(containers);
        let speed = match self.speed.last() {
            Some(last) if job.shape.is_elastic => {
                let index = containers as usize - 1;
                self.speed.get(index).copied().unwrap_or(*last)
            }
            _ => linear,
        };
        f64_of(past.run_s) * speed
    }
}

fn lines(out: &mut impl Write, name: &str, values: impl Iterator<Item = Value>) -> io::Result<()> {
    write!(out, "\"{name}\": [")?;
    for (index, value) in values.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\n{value}")?;
    }
    write!(out, "\n]")
}

fn node(node: &Node) -> Value {
    let mut document = json!({"name": node.name, "capacity": written(&node.capacity)});
    if let Some(model) = &node.gpu_model {
        document["labels"] = json!({MODEL_LABEL: model});
    }
    document
}

/// Amounts as people write them: whole numbers where they are whole.
fn written(amounts: &Amounts) -> Value {
    let fields = amounts.iter().map(|(resource, amount)| {
        let value = match resource {
            Resource::Memory => json!(resource.display(amount)),
            _ if amount.is_multiple_of(1_000) => json!(amount / 1_000),
            _ => json!(resource.display(amount)),
        };
        (resource.name().to_owned(), value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Tenants};
    use super::*;
    use crate::scenario;
    use crate::simulate::{Options as Simulation, simulate};

    const RECORDS: &str = "JobID|User|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES|NNodes|TimelimitRaw
1|ann|Vision|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T11:00:00|3600|COMPLETED|cpu=16,gres/gpu=8,mem=64G,node=1|1|120
1.batch|||2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T11:00:00|3600|COMPLETED|cpu=16,mem=64G,node=1|1|
2|bob|Speech|2026-11-01T09:30:00|2026-11-01T10:00:00|2026-11-01T12:00:00|7200|TIMEOUT|cpu=32,gres/gpu=16,mem=128G,node=2|2|119
3_1|bob|Speech|2026-11-01T10:10:00|2026-11-01T11:00:00|2026-11-01T11:00:00|0|FAILED|cpu=4,mem=8G,node=1|1|UNLIMITED
4|ann|Vision|2026-11-01T10:10:00|None|2026-11-01T11:00:00|0|CANCELLED by 7||1|60
5|ann|Vision|2026-11-01T10:10:00|soon|2026-11-01T11:00:00|0|COMPLETED|cpu=1|1|60
";

    fn options() -> Options {
        Options {
            format: Format::Sacct,
            name: "november".to_owned(),
            tenants: Tenants::Account,
            nodes: Nodes::Peak { capacity: None },
            elastic: Elastic::None,
            speed: Vec::new(),
            skip_bad: true,
        }
    }

    fn document(import: &Import) -> Value {
        let mut text = Vec::new();
        import.write(&mut text).expect("writes");
        serde_json::from_slice(&text).expect("JSON")
    }

    #[test]
    fn records_become_a_scenario_that_runs_as_recorded() {
        let import = import(RECORDS.as_bytes(), &options()).expect("imports");
        let report = &import.report;
        assert_eq!((report.rows, report.jobs), (6, 3));
        let left = report.left_out;
        assert_eq!((left.steps, left.never_started, left.unreadable), (1, 1, 1));
        assert_eq!(report.nodes.len(), 1);
        assert_eq!(report.nodes[0].count, 3);
        let recorded = &report.recorded;
        assert_eq!(recorded.waiting_s.max, 3_000.0);
        assert_eq!(recorded.makespan_s, 9_000.0);
        assert_eq!(recorded.tenants["speech"].jobs, 2);

        let document = document(&import);
        let first = &document["jobs"][0];
        assert_eq!(first["spec"]["name"], "j2");
        assert_eq!(first["spec"]["containers"], json!({"min": 2, "max": 2}));
        assert_eq!(
            first["spec"]["demand"],
            json!({"cpu": 16, "gpu": 8, "memory": "64Gi"})
        );
        assert_eq!(first["spec"]["time_limit_s"], 7_260);
        assert_eq!(first["model"]["work_container_s"], 14_400.0);
        let scenario = scenario::read_value(document).expect("a scenario");
        let simulation = Simulation::default();
        let outcome = simulate(&scenario, &simulation, |_| Ok(()), |_| {}).expect("it runs");
        assert_eq!(outcome.figures.completed, 3);
        assert_eq!(outcome.figures.makespan_s.round(), 7_200.0);
    }

    #[test]
    fn elastic_jobs_have_a_container_per_gpu_and_the_recorded_work() {
        let options = Options {
            elastic: Elastic::Gpu,
            speed: vec![1.0, 1.9, 3.5],
            ..options()
        };
        let import = import(RECORDS.as_bytes(), &options).expect("imports");
        let document = document(&import);
        let first = &document["jobs"][0];
        assert_eq!(first["spec"]["containers"], json!({"min": 1, "max": 16}));
        assert_eq!(first["spec"]["speed"], json!([1.0, 1.9, 3.5]));
        assert_eq!(first["spec"].get("time_limit_s"), None);
        assert_eq!(first["model"]["work_container_s"], 7_200.0 * 3.5);
        assert_eq!(document["costs"]["adjustment_s"], 60);
        let notes = document["notes"].to_string();
        assert!(notes.contains("1, 1.9, 3.5"), "{notes}");
        scenario::read_value(document).expect("a scenario");
    }

    #[test]
    fn nodes_without_memory_and_too_small_nodes_are_reported() {
        let options = Options {
            nodes: Nodes::Equal {
                capacity: "cpu=16,gpu=8".parse().expect("amounts"),
                count: 1,
            },
            ..options()
        };
        let import = import(RECORDS.as_bytes(), &options).expect("imports");
        assert_eq!(import.report.left_out.too_large, 1);
        let notes = import.report.assumptions.join("\n");
        assert!(notes.contains("No node has memory"), "{notes}");
        let document = document(&import);
        assert_eq!(
            document["jobs"][0]["spec"]["demand"],
            json!({"cpu": 16, "gpu": 8})
        );
        scenario::read_value(document).expect("a scenario");
    }

    #[test]
    fn an_unreadable_row_stops_a_strict_import() {
        let strict = Options {
            skip_bad: false,
            ..options()
        };
        let error = import(RECORDS.as_bytes(), &strict).expect_err("line 7 is wrong");
        let said = error.to_string();
        assert!(
            said.starts_with("line 7, column Start: \"soon\" is no time"),
            "{said}"
        );
        assert!(said.contains("--skip-bad"), "{said}");
        let nothing = import(&b"JobID|Account|Submit|Start|End|AllocTRES\n"[..], &strict);
        let said = nothing.expect_err("no rows").to_string();
        assert!(
            said.starts_with("none of its 0 rows became a job"),
            "{said}"
        );
        let empty = import(&b""[..], &strict).expect_err("empty").to_string();
        assert!(empty.contains("sacct --allusers"), "{empty}");
    }
}
