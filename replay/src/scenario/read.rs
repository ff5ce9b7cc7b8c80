//! Reads and checks a scenario. Every possible fault has an error that names the job or node and the
//! remedy.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_admission::parse_job;
use dormouse_messages::events::{NodeLabelled, TenantGranted};
use dormouse_messages::grants::Grants;
use dormouse_messages::job::{self, Kind};
use dormouse_messages::{Amounts, JobId, NodeId, TenantId};
use serde_json::{Map, Value, json};

use super::document::{
    ClientsDocument, CostsDocument, JobDocument, ModelDocument, NodeDocument, ScalingDocument,
    ScenarioDocument, TasksDocument,
};
use super::{Scenario, Submission};
use crate::engine::{Asking, Clients, ModelJob, Scaling};

/// The most submissions; their log still fits on a disk.
const MOST_SUBMISSIONS: u64 = 10_000_000;
const DEFAULT_TENANT: &str = "default";

/// A fault of a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("it is not a scenario in JSON")]
    Document(#[from] serde_json::Error),
    #[error("{field} is {value}; it must be {must}")]
    Number {
        field: String,
        value: f64,
        must: &'static str,
    },
    #[error("policy: {0}")]
    Policy(String),
    #[error("it has no {0}; add at least one")]
    Empty(&'static str),
    #[error("node {name:?}: {what}")]
    Node {
        name: String,
        /// A sentence.
        what: String,
    },
    #[error("job {number} ({name}): {what}")]
    Job {
        number: usize,
        name: String,
        what: String,
    },
    #[error("--set {setting}: {what}")]
    Setting {
        setting: String,
        /// A sentence.
        what: String,
    },
}

/// Reads a scenario from JSON.
///
/// # Errors
/// The first fault.
pub fn read(text: &str) -> Result<Scenario, ScenarioError> {
    // Parses the text directly, so that the error names the line.
    check(serde_json::from_str(text)?)
}

/// Reads a scenario from a JSON value.
///
/// # Errors
/// The first fault.
pub fn read_value(value: Value) -> Result<Scenario, ScenarioError> {
    check(serde_json::from_value(value)?)
}

fn check_costs(costs: &CostsDocument) -> Result<(), ScenarioError> {
    for (field, value) in [
        ("costs.adjustment_s", costs.adjustment_s),
        ("costs.start_s", costs.start_s),
        ("costs.save_s", costs.save_s),
        ("costs.resize_s", costs.resize_s),
        ("costs.ready_s", costs.ready_s),
    ] {
        not_negative(field, value)?;
    }
    if let Some(every_s) = costs.progress_s {
        positive("costs.progress_s", every_s)?;
    }
    if costs.save_s > costs.adjustment_s {
        return Err(ScenarioError::Number {
            field: "costs.save_s".to_owned(),
            value: costs.save_s,
            must: "at most costs.adjustment_s, of which it is a part",
        });
    }
    Ok(())
}

fn check(document: ScenarioDocument) -> Result<Scenario, ScenarioError> {
    positive("horizon_s", document.horizon_s)?;
    if let Some(problem) = document.policy.problem() {
        return Err(ScenarioError::Policy(problem));
    }
    let costs = &document.costs;
    check_costs(costs)?;
    if document.nodes.is_empty() {
        return Err(ScenarioError::Empty("nodes"));
    }
    if document.jobs.is_empty() {
        return Err(ScenarioError::Empty("jobs"));
    }
    let nodes = nodes(&document.nodes)?;
    let mut names = BTreeSet::new();
    let mut submissions = Vec::new();
    for (index, job) in document.jobs.iter().enumerate() {
        let name = job
            .spec
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("unnamed");
        let wrong = |what: String| ScenarioError::Job {
            number: index + 1,
            name: name.to_owned(),
            what,
        };
        let class = job.spec.get("priority_class").and_then(Value::as_str);
        let classes = &document.policy.priority_classes;
        if let Some(class) = class.filter(|class| !classes.contains_key(*class)) {
            return Err(wrong(format!(
                "spec.priority_class {class} is none of policy.priority_classes; define it there, such as {class}: {{\"value\": 100}}"
            )));
        }
        for submission in read_job(index, job, costs).map_err(wrong)? {
            if !names.insert(submission.job.clone()) {
                return Err(wrong(format!(
                    "{} is submitted twice; names are unique",
                    submission.job
                )));
            }
            submissions.push(submission);
        }
        if submissions.len() as u64 > MOST_SUBMISSIONS {
            return Err(wrong(format!(
                "more than {MOST_SUBMISSIONS} submissions in all"
            )));
        }
    }
    // A stable sort: jobs of one instant keep the document's order.
    submissions.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let granted = granted(&document);
    Ok(Scenario {
        name: document.scenario,
        horizon_s: document.horizon_s,
        labels: labels(&document.nodes),
        granted,
        policy: document.policy,
        nodes,
        submissions,
    })
}

/// Grants the tenants the classes that their jobs name.
fn granted(document: &ScenarioDocument) -> Vec<TenantGranted> {
    let mut classes: BTreeMap<TenantId, BTreeSet<String>> = BTreeMap::new();
    for job in &document.jobs {
        let text = |field: &str| job.spec.get(field).and_then(Value::as_str);
        let class = text("priority_class");
        let class = class.filter(|class| document.policy.priority_classes.contains_key(*class));
        let tenant = TenantId::new(text("tenant").unwrap_or(DEFAULT_TENANT));
        if let (Some(class), Ok(tenant)) = (class, tenant) {
            classes.entry(tenant).or_default().insert(class.to_owned());
        }
    }
    let granted = classes.into_iter();
    let granted = granted.map(|(tenant, priority_classes)| TenantGranted {
        tenant,
        grants: Grants {
            priority_classes,
            ..Grants::default()
        },
    });
    granted.collect()
}

fn number(field: &str, value: f64, ok: bool, must: &'static str) -> Result<(), ScenarioError> {
    if ok && value.is_finite() {
        Ok(())
    } else {
        Err(ScenarioError::Number {
            field: field.to_owned(),
            value,
            must,
        })
    }
}

fn positive(field: &str, value: f64) -> Result<(), ScenarioError> {
    number(field, value, value > 0.0, "above 0")
}

fn not_negative(field: &str, value: f64) -> Result<(), ScenarioError> {
    number(field, value, value >= 0.0, "0 or more")
}

fn nodes(documents: &[NodeDocument]) -> Result<Vec<(NodeId, Amounts)>, ScenarioError> {
    let mut seen = BTreeSet::new();
    let mut nodes = Vec::new();
    for document in documents {
        let wrong = |what: String| ScenarioError::Node {
            name: document.name.clone(),
            what,
        };
        let name = NodeId::new(document.name.as_str()).map_err(|error| wrong(error.to_string()))?;
        let entries = document.capacity.iter();
        let entries = entries.map(|(name, written)| (name.as_str(), written));
        let capacity =
            Amounts::parse(entries).map_err(|error| wrong(format!("capacity: {error}")))?;
        if capacity.is_empty() {
            return Err(wrong(
                "its capacity is empty; say what it has, such as {\"cpu\": 8}".to_owned(),
            ));
        }
        if !seen.insert(name.clone()) {
            return Err(wrong("there are two of this name".to_owned()));
        }
        nodes.push((name, capacity));
    }
    Ok(nodes)
}

fn read_job(
    index: usize,
    document: &JobDocument,
    costs: &CostsDocument,
) -> Result<Vec<Submission>, String> {
    not_negative("at_s", document.at_s).map_err(|error| error.to_string())?;
    let tenant = match document.spec.get("tenant") {
        None => DEFAULT_TENANT,
        Some(tenant) => tenant.as_str().ok_or("spec.tenant must be a text")?,
    };
    let tenant = TenantId::new(tenant).map_err(|error| error.to_string())?;
    let name = match document.spec.get("name") {
        None => format!("job-{index}"),
        Some(name) => name.as_str().ok_or("spec.name must be a text")?.to_owned(),
    };
    match (&document.model.tasks, document.model.work_container_s) {
        (Some(_), Some(_)) => Err("model has work_container_s and tasks; give one".to_owned()),
        (Some(tasks), None) => read_tasks(document, tasks, &tenant, &name, costs),
        (None, work_container_s) => {
            let (job, payload, kind) = submission(document, &tenant, &name)?;
            let work_container_s = work(kind, work_container_s, &document.model)?;
            let at_s = document.at_s;
            Ok(vec![Submission {
                at_s,
                job,
                payload,
                model: model(&document.model, work_container_s, costs)?,
                kind,
                clients: document.model.clients.as_ref().map(clients).transpose()?,
            }])
        }
    }
}

fn work(kind: Kind, work_container_s: Option<f64>, model: &ModelDocument) -> Result<f64, String> {
    match (kind.is_served(), work_container_s) {
        (true, Some(_)) => Err(
            "model.work_container_s is of what ends; services and notebooks run until they are cancelled".to_owned(),
        ),
        (true, None) => Ok(f64::INFINITY),
        (false, _) if model.clients.is_some() => {
            Err("model.clients is for jobs with `kind: inference`".to_owned())
        }
        (false, None) => Err("model has neither work_container_s nor tasks; give one".to_owned()),
        (false, Some(work)) => {
            positive("model.work_container_s", work).map_err(|error| error.to_string())?;
            Ok(work)
        }
    }
}

fn model(
    document: &ModelDocument,
    work_container_s: f64,
    costs: &CostsDocument,
) -> Result<ModelJob, String> {
    let own = &document.costs;
    for (field, value) in [
        ("model.costs.start_s", own.start_s),
        ("model.costs.join_s", own.join_s),
        ("model.costs.resize_s", own.resize_s),
        ("model.costs.ready_s", own.ready_s),
    ] {
        not_negative(field, value.unwrap_or(0.0)).map_err(|error| error.to_string())?;
    }
    let crossing = document.crossing.unwrap_or(1.0);
    number(
        "model.crossing",
        crossing,
        crossing > 0.0 && crossing <= 1.0,
        "above 0 and at most 1",
    )
    .map_err(|error| error.to_string())?;
    Ok(ModelJob {
        scaling: scaling(document.scaling.as_ref())?,
        save_s: costs.save_s,
        resume_s: costs.adjustment_s - costs.save_s,
        start_s: own.start_s.unwrap_or(costs.start_s),
        join_s: own.join_s,
        resize_s: own.resize_s.unwrap_or(costs.resize_s),
        ready_s: own.ready_s.unwrap_or(costs.ready_s),
        crossing,
        progress_s: costs.progress_s,
        ..ModelJob::linear(work_container_s)
    })
}

fn clients(document: &ClientsDocument) -> Result<Clients, String> {
    let (asking, table) = match (&document.clients, &document.rate) {
        (Some(table), None) => (Asking::ClosedLoop, table),
        (None, Some(table)) => (Asking::Rate, table),
        _ => return Err("model.clients has clients (a closed loop) or rate; give one".to_owned()),
    };
    if table.is_empty() {
        return Err("model.clients must list at least one number".to_owned());
    }
    for number in table {
        not_negative("model.clients: a number", *number).map_err(|error| error.to_string())?;
    }
    for (field, value) in [
        ("model.clients.every_s", document.every_s),
        ("model.clients.work_ms", document.work_ms),
    ] {
        positive(field, value).map_err(|error| error.to_string())?;
    }
    Ok(Clients {
        asking,
        table: table.clone(),
        every_s: document.every_s,
        work_ms: document.work_ms,
    })
}

fn read_tasks(
    document: &JobDocument,
    tasks: &TasksDocument,
    tenant: &TenantId,
    name: &str,
    costs: &CostsDocument,
) -> Result<Vec<Submission>, String> {
    let check = |result: Result<(), ScenarioError>| result.map_err(|error| error.to_string());
    check(not_negative("model.tasks.interval_s", tasks.interval_s))?;
    check(positive("model.tasks.duration_s", tasks.duration_s))?;
    if u64::from(tasks.count) > MOST_SUBMISSIONS {
        return Err(format!("model.tasks.count is more than {MOST_SUBMISSIONS}"));
    }
    if document.model.scaling.is_some() {
        return Err(
            "model.scaling is for work_container_s; a task runs in one container".to_owned(),
        );
    }
    let model = ModelJob {
        start_s: costs.start_s,
        ..ModelJob::linear(tasks.duration_s)
    };
    let digits = tasks.count.to_string().len();
    let task = |k: u32| {
        let (job, payload, kind) = submission(document, tenant, &format!("{name}-{k:0digits$}"))?;
        if kind != Kind::Batch {
            return Err("model.tasks is for jobs with `kind: batch`".to_owned());
        }
        Ok(Submission {
            at_s: document.at_s + f64::from(k) * tasks.interval_s,
            job,
            payload,
            model: model.clone(),
            kind,
            clients: None,
        })
    };
    (0..tasks.count).map(task).collect()
}

fn submission(
    document: &JobDocument,
    tenant: &TenantId,
    name: &str,
) -> Result<(JobId, Vec<u8>, Kind), String> {
    let mut spec: Map<String, Value> = document.spec.clone();
    spec.insert("name".to_owned(), json!(name));
    spec.insert("tenant".to_owned(), json!(tenant));
    if let Some(containers) = document.static_containers {
        spec.insert("static_containers".to_owned(), json!(containers));
    }
    let spec = Value::Object(spec);
    let payload = serde_json::to_vec(&spec).map_err(|error| error.to_string())?;
    let parsed: job::JobDocument =
        serde_json::from_value(spec).map_err(|error| format!("spec: {error}"))?;
    let kind = parsed.kind;
    let (job, _) =
        parse_job(parsed, tenant, name, 0).map_err(|refusal| format!("spec: {refusal}"))?;
    Ok((job, payload, kind))
}

fn scaling(document: Option<&ScalingDocument>) -> Result<Scaling, String> {
    let usable = |value: f64| value.is_finite() && value > 0.0;
    match document {
        None | Some(ScalingDocument::Linear) => Ok(Scaling::Linear),
        Some(ScalingDocument::Table { speed, spread }) => {
            for speed in std::iter::once(speed).chain(spread.iter().map(|it| &it.speed)) {
                // Speed 0: a program waits for its whole world.
                let known = speed.iter().all(|speed| *speed == 0.0 || usable(*speed));
                if !known || !speed.last().is_some_and(|last| usable(*last)) {
                    return Err(
                        "model.scaling.speed must list at least one speed, none below 0, the last one above".to_owned(),
                    );
                }
            }
            Ok(match spread {
                None => Scaling::Table(speed.clone()),
                Some(spread) => Scaling::Placed {
                    packed: speed.clone(),
                    spread: spread.speed.clone(),
                    per_node: spread.per_node.max(1),
                },
            })
        }
        Some(ScalingDocument::Efficiency { per_doubling }) => {
            if !usable(*per_doubling) || *per_doubling > 1.0 {
                return Err(format!(
                    "model.scaling.per_doubling is {per_doubling}; it must be above 0 and at most 1"
                ));
            }
            Ok(Scaling::Efficiency(*per_doubling))
        }
    }
}

fn labels(documents: &[NodeDocument]) -> Vec<NodeLabelled> {
    let labelled = documents.iter().filter_map(|document| {
        let labels = document.labels.iter();
        let taints = document.taints.iter();
        let event = NodeLabelled {
            node: NodeId::new(document.name.as_str()).ok()?,
            labels: labels.map(|(k, v)| (k.clone(), Some(v.clone()))).collect(),
            taints: taints.map(|taint| (taint.clone(), true)).collect(),
        };
        (!event.labels.is_empty() || !event.taints.is_empty()).then_some(event)
    });
    labelled.collect()
}
