//! Checks of auxiliary roles.

use std::collections::BTreeMap;

use dormouse_messages::job::{Executor, JobDocument, Kind};
use dormouse_messages::roles::{ROLES, RoleDocument, RoleSpec, WORKER};
use dormouse_messages::{Amounts, Resource};

use crate::checks::{self, MAX_CONTAINERS};
use crate::refusal::Refusal;

/// A few parameter servers serve hundreds of workers.
const MAX_COUNT: u32 = 64;

/// Normalises the roles.
///
/// # Errors
/// The first wrong role.
pub fn normalise(document: &JobDocument) -> Result<BTreeMap<String, RoleSpec>, Refusal> {
    if document.roles.is_empty() {
        return Ok(BTreeMap::new());
    }
    if document.kind != Kind::Training {
        return refuse(
            "roles stand next to the workers of a training job; leave roles out, or use kind: training",
        );
    }
    if !matches!(document.executor, Executor::Plain | Executor::Tensorflow) {
        return refuse(
            "roles belong to executor: plain and tensorflow: MXNet starts its servers among its workers, MPI and torch know workers only; leave roles out",
        );
    }
    let roles = document.roles.iter();
    let roles = roles.map(|(name, role)| Ok((name.clone(), one(document, name, role)?)));
    let roles: BTreeMap<String, RoleSpec> = roles.collect::<Result<_, Refusal>>()?;
    let auxiliary: u32 = roles.values().map(|role| role.count).sum();
    if document.containers.max.saturating_add(auxiliary) > MAX_CONTAINERS {
        refuse(format!(
            "roles: {auxiliary} containers next to containers.max {} are more than {MAX_CONTAINERS}",
            document.containers.max
        ))
    } else {
        Ok(roles)
    }
}

fn refuse<T>(reason: impl AsRef<str>) -> Result<T, Refusal> {
    Err(Refusal::new("bad_roles", reason))
}

fn one(document: &JobDocument, name: &str, role: &RoleDocument) -> Result<RoleSpec, Refusal> {
    check_name(name)?;
    // TensorFlow's cluster knows one evaluator.
    let most = if name == "evaluator" { 1 } else { MAX_COUNT };
    if !(1..=most).contains(&role.count) {
        return refuse(format!(
            "roles.{name}.count {} must lie between 1 and {most}; leave the role out for none",
            role.count
        ));
    }
    let demand = demand(name, role)?;
    let start = role.command.as_ref().map(|command| &command.start);
    if start.is_some_and(|start| start.first().is_none_or(String::is_empty)) {
        return refuse(format!(
            "roles.{name}.command.start is empty; give the program and its arguments as a list, or leave command out for the job's"
        ));
    }
    check_text(name, role)?;
    let constraints = role.constraints.as_ref().unwrap_or(&document.constraints);
    Ok(RoleSpec {
        count: role.count,
        demand,
        command: role.command.clone(),
        env: role.env.clone(),
        constraints: (*constraints != document.constraints).then(|| constraints.clone()),
    })
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if ROLES.contains(&name) {
        return Ok(());
    }
    match name {
        WORKER => refuse(
            "roles.worker: the workers are what containers, demand and command of the job itself say; leave roles.worker out",
        ),
        "chief" | "master" => refuse(format!(
            "roles.{name}: a job has one chief already, the first of its workers (rank 0); leave roles.{name} out"
        )),
        _ => refuse(format!(
            "roles.{name} is no role; it must be one of {}",
            ROLES.join(", ")
        )),
    }
}

fn demand(name: &str, role: &RoleDocument) -> Result<Amounts, Refusal> {
    let demand = checks::amounts(&format!("roles.{name}.demand"), &role.demand)?;
    let gpu = demand.get(&Resource::Gpu);
    if gpu.is_multiple_of(1000) {
        Ok(demand)
    } else {
        refuse(format!(
            "roles.{name}.demand: gpu {} is a fraction; a role has GPUs whole, or none",
            Resource::Gpu.display(gpu)
        ))
    }
}

fn check_text(name: &str, role: &RoleDocument) -> Result<(), Refusal> {
    let commands = role.command.iter();
    let words = commands.flat_map(|it| it.start.iter().chain(&it.resume));
    match checks::unfit(words, &role.env) {
        Some(why) => refuse(format!("roles.{name}: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn normalised(more: &Value) -> Result<BTreeMap<String, RoleSpec>, Refusal> {
        let mut document = json!({
            "command": {"start": ["train"]}, "demand": {"cpu": 1, "gpu": 1},
            "containers": {"min": 1, "max": 4}, "constraints": {"zone": "a"},
            "roles": {"ps": {"count": 2, "demand": {"cpu": 1, "memory": "2Gi"}}},
        });
        let fields = document.as_object_mut().expect("a map");
        fields.extend(more.as_object().expect("a map").clone());
        normalise(&serde_json::from_value(document).expect("a document"))
    }

    #[test]
    fn a_parameter_server_has_its_own_demand() {
        let roles = normalised(&json!({})).expect("valid");
        let ps = &roles["ps"];
        let demand = "cpu=1,memory=2Gi".parse().expect("amounts");
        assert_eq!((ps.count, &ps.demand, &ps.constraints), (2, &demand, &None));
        let elsewhere = json!({"roles": {"ps": {"demand": {"cpu": 1}, "constraints": {}}}});
        let roles = normalised(&elsewhere).expect("valid");
        assert_eq!(roles["ps"].constraints, Some(Default::default()));
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_what_to_do() {
        let ps = |more: Value| {
            let mut ps = json!({"demand": {"cpu": 1}});
            let fields = ps.as_object_mut().expect("a map");
            fields.extend(more.as_object().expect("a map").clone());
            json!({"roles": {"ps": ps}})
        };
        let named = |name: &str| json!({"roles": {name: {"demand": {"cpu": 1}}}});
        for (more, reason) in [
            (named("chief"), "a job has one chief already"),
            (
                named("worker"),
                "the workers are what containers, demand and command",
            ),
            (
                named("scheduler"),
                "roles.scheduler is no role; it must be one of evaluator, ps",
            ),
            (ps(json!({"count": 0})), "must lie between 1 and 64"),
            (ps(json!({"count": 65})), "must lie between 1 and 64"),
            (
                json!({"roles": {"evaluator": {"count": 2, "demand": {"cpu": 1}}}}),
                "between 1 and 1",
            ),
            (ps(json!({"demand": {}})), "roles.ps.demand is empty"),
            (ps(json!({"demand": {"gpu": 0.5}})), "a role has GPUs whole"),
            (ps(json!({"demand": {"memory": 2}})), "2Gi"),
            (
                ps(json!({"command": {"start": []}})),
                "roles.ps.command.start is empty",
            ),
            (ps(json!({"env": {"A=B": "1"}})), "env has the name \"A=B\""),
            (json!({"kind": "inference"}), "training job"),
            (
                json!({"executor": "torch"}),
                "executor: plain and tensorflow",
            ),
            (
                json!({"containers": {"min": 1, "max": 9_999}}),
                "more than 10000",
            ),
        ] {
            let refusal = normalised(&more).expect_err("refused");
            assert!(refusal.reason.contains(reason), "{more}: {refusal}");
        }
    }
}
