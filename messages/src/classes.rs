//! Priority classes. Admission copies a job's class into its spec, so that later changes of the class do not
//! affect the job (as in Kubernetes).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient_int::whole;

/// Limit on the absolute value; 0 without a class.
pub const MAX_CLASS_VALUE: i32 = 1_000_000;

/// Limit on classes: more than people tell apart.
pub const MAX_CLASSES: usize = 32;

/// As for a Kubernetes label.
const MAX_NAME: usize = 63;

/// A priority class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {value: 100, preempts: true}"
)]
pub struct PriorityClass {
    /// Jobs of the highest value go first, over all tenants; a job without a class has 0.
    #[serde(deserialize_with = "whole")]
    pub value: i32,
    /// True if jobs of a lower value give up capacity when the class's jobs find none.
    #[serde(default)]
    pub preempts: bool,
}

/// A job's class as of its admission.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {name: urgent, value: 100, preempts: true}"
)]
pub struct JobClass {
    /// Name of the class.
    pub name: String,
    /// Value of the class.
    #[serde(deserialize_with = "whole")]
    pub value: i32,
    /// True if the class preempts.
    #[serde(default)]
    pub preempts: bool,
}

/// A job's class by name; a resubmitted spec has the whole class, which is looked up again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "the name of a priority class, such as urgent")]
pub enum WrittenClass {
    /// Name of the class.
    Name(String),
    /// Class from a spec.
    Known(JobClass),
}

impl WrittenClass {
    /// Returns the class's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Known(class) => &class.name,
        }
    }
}

/// True for a valid class name.
#[must_use]
pub fn is_class(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name.chars().all(letters)
        && name != "none"
        && !name.starts_with('-')
}

pub(crate) fn problem(classes: &BTreeMap<String, PriorityClass>) -> Option<String> {
    if classes.len() > MAX_CLASSES {
        return Some(format!(
            "priority_classes has {} classes; the most is {MAX_CLASSES}: order a tenant's own jobs by their priority",
            classes.len()
        ));
    }
    if let Some(name) = classes.keys().find(|name| !is_class(name)) {
        return Some(format!(
            "priority_classes: {name:?} cannot be a class; its name has at most {MAX_NAME} of a-z, 0-9 and -, does not begin with -, and is not none"
        ));
    }
    let bounds = -MAX_CLASS_VALUE..=MAX_CLASS_VALUE;
    let wrong = |class: &&PriorityClass| !bounds.contains(&class.value);
    let (name, class) = classes.iter().find(|(_, class)| wrong(class))?;
    Some(format!(
        "priority_classes.{name}.value is {}; it must lie between -{MAX_CLASS_VALUE} and {MAX_CLASS_VALUE}",
        class.value
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn problem_of(text: &str) -> Option<String> {
        serde_json::from_str::<Policy>(text)
            .expect("a policy")
            .problem()
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_do() {
        for (text, says) in [
            (r#"{"preemption": {"max_per_hour": 61}}"#, "leave it out"),
            (r#"{"preemption": {"min_run_s": 86401}}"#, "max_per_hour: 0"),
            (
                r#"{"priority_classes": {"Urgent": {"value": 1}}}"#,
                "a-z, 0-9",
            ),
            (
                r#"{"priority_classes": {"none": {"value": 1}}}"#,
                "not none",
            ),
            (
                r#"{"priority_classes": {"high": {"value": 1000001}}}"#,
                "between -1000000",
            ),
        ] {
            let problem = problem_of(text).expect("refused");
            assert!(problem.contains(says), "{problem}");
        }
        let many: Vec<String> = (0..=MAX_CLASSES)
            .map(|number| format!(r#""c{number}": {{"value": {number}}}"#))
            .collect();
        let text = format!(r#"{{"priority_classes": {{{}}}}}"#, many.join(","));
        assert!(problem_of(&text).expect("refused").contains("the most is"));
        let right = r#"{"preemption": {"max_per_hour": 2, "min_run_s": 60},
            "priority_classes": {"urgent": {"value": 100, "preempts": true}, "idle": {"value": -1}}}"#;
        assert_eq!(problem_of(right), None);
        for wrong in [
            r#"{"preemption": {"per_hour": 1}}"#,
            r#"{"preemption": {"max_per_hour": -1}}"#,
            r#"{"preemption": {"max_per_hour": 1.5}}"#,
            r#"{"priority_classes": {"urgent": {"preempts": true}}}"#,
            r#"{"priority_classes": {"urgent": 100}}"#,
        ] {
            assert!(serde_json::from_str::<Policy>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_policy_without_them_is_written_as_before() {
        let written = serde_json::to_value(Policy::default()).expect("written");
        assert!(written.get("preemption").is_none());
        assert!(written.get("priority_classes").is_none());
    }

    #[test]
    fn a_class_is_read_as_it_is_written_and_as_it_stands_on_the_log() {
        let read = |text: &str| serde_json::from_str::<WrittenClass>(text);
        assert_eq!(read(r#""urgent""#).expect("a name").name(), "urgent");
        let known = JobClass {
            name: "urgent".to_owned(),
            value: 7,
            preempts: true,
        };
        let text = serde_json::to_string(&known).expect("written");
        assert_eq!(read(&text).expect("a class"), WrittenClass::Known(known));
        assert!(read("7").is_err());
    }
}
