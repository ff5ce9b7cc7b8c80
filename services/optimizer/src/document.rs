//! The offline solve: one problem as JSON in, one complete decision as JSON out.
//!
//! An unknown field is an error that names the field. This crate has no clock:
//! the caller measures the time.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::ids::{IdError, JobId, NodeId};
use dormouse_messages::needs::{Constraints, Labels, NODE_LABEL};
use dormouse_messages::policy;
use dormouse_messages::quantity::{Amounts, Resource, Written};
use dormouse_messages::roles::Part;
use dormouse_messages::{Needs, PriorityClass, WrittenClass};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::model::devices::{has_memory, unnamed};
use crate::problem::{
    Budget, Misfit, Objective, Policy, Precedence, Problem, ProblemJob, ProblemNode,
};
use crate::solution::Solution;
use crate::useful::Useful;

/// An error in a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the document is not a problem in JSON: {0}")]
    Parse(#[from] serde_json::Error),
    #[error("the document has a wrong name: {0}")]
    Id(#[from] IdError),
    #[error("{0} is listed twice")]
    Twice(String),
    #[error("{0}")]
    Policy(String),
    #[error("{field} is {value}; {expected}")]
    Value {
        field: String,
        value: String,
        expected: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    nodes: Vec<Node>,
    #[serde(default)]
    jobs: Vec<Job>,
    #[serde(default)]
    policy: Map<String, Value>,
    #[serde(default)]
    budget: WrittenBudget,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: String,
    capacity: Amounts,
    #[serde(default)]
    reserved: Amounts,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    taints: BTreeSet<String>,
    #[serde(default)]
    gpu_memory: Option<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    job: String,
    demand: Amounts,
    #[serde(default)]
    constraints: Constraints,
    #[serde(default)]
    tolerations: BTreeSet<String>,
    #[serde(default)]
    gpu_memory: Option<Written>,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    containers: Containers,
    #[serde(default = "yes")]
    adjustable: bool,
    #[serde(default)]
    displaced: bool,
    #[serde(default)]
    previous: Option<BTreeMap<String, u32>>,
    #[serde(default)]
    stall_s: f64,
    #[serde(default)]
    static_containers: Option<u32>,
    #[serde(default)]
    roles: BTreeMap<String, Role>,
    /// By name, or written out.
    #[serde(default)]
    priority_class: Option<WrittenClass>,
    #[serde(default)]
    protected: bool,
    /// Seconds of work lost if the job is requeued; absent: the job saves first.
    #[serde(default)]
    at_risk_s: Option<f64>,
    /// Speed of 1, 2, … containers in speeds of one, for `objective.value: speed`; absent: linear.
    #[serde(default)]
    speed: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Role {
    #[serde(default = "one")]
    count: u32,
    demand: Amounts,
    #[serde(default)]
    constraints: Option<Constraints>,
    #[serde(default)]
    previous: Option<BTreeMap<String, u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Containers {
    #[serde(default = "one")]
    min: u32,
    max: Option<u32>,
}

impl Default for Containers {
    fn default() -> Self {
        Self { min: 1, max: None }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenBudget {
    gap: Option<f64>,
    nodes: Option<u64>,
    work: Option<u64>,
}

/// Reads a problem.
/// # Errors
/// The first error in the document.
pub fn read(text: &str) -> Result<Problem, DocumentError> {
    let document: Document = serde_json::from_str(text)?;
    let mut names = BTreeSet::new();
    let mut nodes = Vec::with_capacity(document.nodes.len());
    for node in document.nodes {
        let name = NodeId::new(node.name)?;
        if !names.insert(name.clone()) {
            return Err(DocumentError::Twice(format!("node {name}")));
        }
        let mut labels = node.labels;
        labels.insert(NODE_LABEL.to_owned(), name.to_string());
        let memory = memory(
            &format!("gpu_memory of node {name}"),
            node.gpu_memory.as_ref(),
        )?;
        nodes.push(ProblemNode {
            gpus: unnamed(node.capacity.get(&Resource::Gpu), memory),
            name,
            capacity: node.capacity,
            reserved: node.reserved,
            closed: false,
            labels,
            taints: node.taints,
        });
    }
    let (policy, misfit) = read_policy(document.policy)?;
    let mut known = BTreeSet::new();
    let mut jobs = Vec::with_capacity(document.jobs.len());
    for job in document.jobs {
        let posed = job.read(&names, &policy.priority_classes, &policy.objective)?;
        if !known.insert(posed[0].job.clone()) {
            return Err(DocumentError::Twice(format!("job {}", posed[0].job)));
        }
        jobs.extend(posed);
    }
    for job in &mut jobs {
        job.gpu_parts = gpu_parts(&nodes, job);
    }
    let budget = document.budget.read()?;
    Ok(Problem {
        nodes,
        jobs,
        policy,
        misfit,
        budget,
    })
}

fn read_policy(mut written: Map<String, Value>) -> Result<(Policy, Misfit), DocumentError> {
    let misfit = written.remove("drf").map(serde_json::from_value);
    let misfit = misfit.transpose()?.unwrap_or_default();
    let policy: Policy = serde_json::from_value(written.into())?;
    match policy.problem() {
        Some(problem) => Err(DocumentError::Policy(problem)),
        None => Ok((policy, misfit)),
    }
}

fn gpu_parts(nodes: &[ProblemNode], job: &ProblemJob) -> u64 {
    let able = nodes
        .iter()
        .filter(|node| has_memory(node, job) && job.needs.allow(&node.labels, &node.taints));
    let memories = able.flat_map(|node| node.gpus.iter().map(|gpu| gpu.memory_bytes));
    let least = memories.min().unwrap_or(job.needs.gpu_memory_bytes);
    job.container_type().gpu_parts(least)
}

fn memory(field: &str, written: Option<&Written>) -> Result<u64, DocumentError> {
    let Some(written) = written else {
        return Ok(0);
    };
    let amounts = Amounts::parse([("memory", written)]);
    let amounts = amounts.map_err(|error| DocumentError::Value {
        field: field.to_owned(),
        value: error.to_string(),
        expected: "it must be an amount of memory such as 16Gi",
    })?;
    Ok(amounts.get(&Resource::Memory))
}

fn number(field: &str, value: f64) -> Result<f64, DocumentError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    let (field, value) = (field.to_owned(), value.to_string());
    Err(DocumentError::Value {
        field,
        value,
        expected: "it must be a number of at least 0",
    })
}

impl Job {
    fn read(
        mut self,
        nodes: &BTreeSet<NodeId>,
        classes: &BTreeMap<String, PriorityClass>,
        objective: &Objective,
    ) -> Result<Vec<ProblemJob>, DocumentError> {
        let roles = std::mem::take(&mut self.roles);
        let precedence = self.precedence(classes)?;
        let head = self.head(nodes, precedence, objective)?;
        let mut posed = vec![head];
        for (name, role) in roles {
            let role = role.read(&name, &posed[0], nodes)?;
            posed.push(role);
        }
        Ok(posed)
    }

    fn precedence(
        &self,
        classes: &BTreeMap<String, PriorityClass>,
    ) -> Result<Precedence, DocumentError> {
        let (value, preempts) = match &self.priority_class {
            None => (0, false),
            Some(WrittenClass::Known(class)) => (class.value, class.preempts),
            Some(WrittenClass::Name(name)) => match classes.get(name) {
                Some(class) => (class.value, class.preempts),
                None => {
                    return Err(DocumentError::Value {
                        field: format!("priority_class of job {}", self.job),
                        value: name.clone(),
                        expected: "it must be one of policy.priority_classes, or {name, value, preempts}",
                    });
                }
            },
        };
        let at_risk_s = self.at_risk_s.unwrap_or(0.0);
        Ok(Precedence {
            class: value,
            preempts,
            protected: self.protected,
            at_risk_s: number(&format!("at_risk_s of job {}", self.job), at_risk_s)?,
        })
    }

    fn useful(&self, objective: &Objective, max: u32) -> Result<Option<Useful>, DocumentError> {
        if objective.value == policy::Value::Linear {
            return Ok(None);
        }
        for speed in &self.speed {
            number(&format!("speed of job {}", self.job), *speed)?;
        }
        let speed = |count: u32| match self.speed.last() {
            None => f64::from(count),
            Some(last) => {
                let at = usize::try_from(count).unwrap_or(usize::MAX).checked_sub(1);
                at.map_or(0.0, |at| *self.speed.get(at).unwrap_or(last))
            }
        };
        let value = |count: u32| libm::pow(speed(count), objective.concave);
        let stated = u32::try_from(self.speed.len()).unwrap_or(u32::MAX);
        Ok(Some(Useful::new(value, max, &[stated])))
    }

    fn head(
        self,
        nodes: &BTreeSet<NodeId>,
        precedence: Precedence,
        objective: &Objective,
    ) -> Result<ProblemJob, DocumentError> {
        let job: JobId = self.job.parse()?;
        let wrong = |field: &str, value: String, expected| {
            let field = format!("{field} of job {job}");
            DocumentError::Value {
                field,
                value,
                expected,
            }
        };
        let min = self.containers.min;
        let max = self.containers.max.unwrap_or(min);
        if min == 0 || max < min {
            let value = format!("{min} to {max}");
            return Err(wrong("containers", value, "it must be 1 ≤ min ≤ max"));
        }
        if self.weight == 0 {
            return Err(wrong("weight", "0".to_owned(), "it must be at least 1"));
        }
        let previous = located(&job, self.previous.as_ref(), nodes, self.displaced)?;
        let field = format!("gpu_memory of job {job}");
        let gpu_memory_bytes = memory(&field, self.gpu_memory.as_ref())?;
        let stall_s = number(&format!("stall_s of job {job}"), self.stall_s)?;
        let useful = self.useful(objective, max)?;
        Ok(ProblemJob {
            job,
            demand: self.demand,
            gpu_parts: 0,
            weight: self.weight,
            min,
            max,
            adjustable: self.adjustable,
            left_until: None,
            displaced: self.displaced,
            previous,
            stall_s,
            may_be_overtaken: false,
            in_place: None,
            urgency: Default::default(),
            has_checkpoint: self.at_risk_s.is_none(),
            precedence,
            static_containers: self.static_containers,
            useful,
            crossing: objective.crossing,
            ends_in_s: None,
            role: None,
            needs: Needs {
                constraints: self.constraints,
                tolerations: self.tolerations,
                gpu_memory_bytes,
            },
        })
    }
}

fn located(
    job: &JobId,
    previous: Option<&BTreeMap<String, u32>>,
    nodes: &BTreeSet<NodeId>,
    displaced: bool,
) -> Result<Option<BTreeMap<NodeId, u32>>, DocumentError> {
    let one = |(node, count): (&String, &u32)| {
        let node = NodeId::new(node.as_str())?;
        if nodes.contains(&node) || displaced {
            Ok((node, *count))
        } else {
            Err(DocumentError::Value {
                field: format!("previous of job {job}"),
                value: node.to_string(),
                expected: "it must be a listed node, or the job \"displaced\": true",
            })
        }
    };
    previous
        .map(|previous| previous.iter().map(one).collect())
        .transpose()
}

impl Role {
    fn read(
        self,
        name: &str,
        job: &ProblemJob,
        nodes: &BTreeSet<NodeId>,
    ) -> Result<ProblemJob, DocumentError> {
        let id = job.job.of_role(name);
        let previous = located(&id, self.previous.as_ref(), nodes, job.displaced)?;
        let stand: u32 = previous.iter().flat_map(BTreeMap::values).sum();
        if self.count == 0 || (job.previous.is_some() && !job.displaced && stand != self.count) {
            return Err(DocumentError::Value {
                field: format!("roles.{name} of job {}", job.job),
                value: format!("count {}, of which {stand} stand somewhere", self.count),
                expected: "count must be at least 1, and of a job with \"previous\" all of its roles must have theirs",
            });
        }
        let part = Part {
            role: name.to_owned(),
            count: self.count,
            demand: self.demand,
            needs: Needs {
                constraints: self
                    .constraints
                    .unwrap_or_else(|| job.needs.constraints.clone()),
                tolerations: job.needs.tolerations.clone(),
                gpu_memory_bytes: 0,
            },
        };
        Ok(job.role(&part, previous))
    }
}

impl WrittenBudget {
    fn read(self) -> Result<Budget, DocumentError> {
        let default = Budget::default();
        Ok(Budget {
            gap: number("gap", self.gap.unwrap_or(default.gap))?,
            nodes: self.nodes,
            work: self.work.unwrap_or(default.work),
        })
    }
}

/// Writes the data of `allocation.decided` or `allocation.unchanged` for all jobs. A role is listed as a job.
#[must_use]
pub fn write(solution: &Solution) -> Value {
    let jobs = solution.jobs.iter().map(|share| {
        json!({
            "job": share.job, "containers": share.containers, "previous": share.previous.unwrap_or(0),
            "new": share.previous.is_none(), "share": share.share, "fair_share": share.fair_share,
            "nodes": share.nodes,
        })
    });
    let listed: BTreeSet<&JobId> = solution.jobs.iter().map(|share| &share.job).collect();
    let unlisted = solution
        .waiting
        .iter()
        .filter(|waiting| !listed.contains(&waiting.job));
    let jobs = jobs.chain(unlisted.map(|waiting| {
        json!({
            "job": waiting.job, "containers": 0, "previous": 0,
            "new": true, "share": 0.0, "fair_share": waiting.fair_share, "nodes": {},
        })
    }));
    let waiting = solution.waiting.iter().map(|waiting| {
        json!({"job": waiting.job, "code": waiting.code.as_str(), "reason": waiting.reason})
    });
    let resources = solution.utilization.resources.iter();
    let resources: BTreeMap<&str, f64> =
        resources.map(|(name, part)| (name.name(), *part)).collect();
    let mut value = json!({
        "type": if solution.changed { "dormouse.allocation.decided.v1" } else { "dormouse.allocation.unchanged.v1" },
        "jobs": jobs.collect::<Vec<_>>(),
        "waiting": waiting.collect::<Vec<_>>(),
        "utilization": {"resources": resources, "total": solution.utilization.total},
        "fairness_loss": solution.fairness_loss,
        "fairness_loss_all": solution.fairness_loss_all,
        "fairness_loss_bound": solution.fairness_loss_bound,
        "adjusted_jobs": solution.adjusted_jobs,
        "adjustment_bound": solution.adjustment_bound,
        "forced_jobs": solution.forced_jobs,
        "unbounded": solution.unbounded,
        "made_room_for": solution.made_room_for, "forced": solution.forced,
        "solver": solution.solver,
    });
    if let (false, Some(object)) = (solution.changed, value.as_object_mut()) {
        object.insert("reason".to_owned(), kept_reason(solution).into());
    }
    value
}

/// Returns the reason why nothing changes.
#[must_use]
pub fn kept_reason(solution: &Solution) -> String {
    match solution.waiting.first() {
        _ if solution.solver.status == "infeasible" => {
            "no allocation keeps all bounds; what runs stays until a job ends".to_owned()
        }
        Some(waiting) => format!("nobody waiting can be admitted: {}", waiting.reason),
        None => "no change is worth it".to_owned(),
    }
}

/// Reads, solves and writes.
///
/// # Errors
/// The first error in the document.
pub fn solve_document(text: &str) -> Result<Value, DocumentError> {
    Ok(write(&crate::solve(&read(text)?)))
}
