//! Requirements on nodes besides capacity: labels and tolerated taints, checked at every start. With the
//! demand they form a container's type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Amounts, Resource};

/// A node's own labels, the operator's, `node`, and `gpu.model` if there is one.
pub type Labels = BTreeMap<String, String>;

/// The label with a node's name.
pub const NODE_LABEL: &str = "node";
/// The label set if all GPUs are of one model.
pub const GPU_MODEL_LABEL: &str = "gpu.model";

/// Not labels in `constraints`.
pub const RESERVED: [&str; 4] = ["spread", "pack", "prefer", "exclusive"];

/// A longer rule is a list of nodes in disguise.
const MAX_RULES: usize = 16;
const MAX_VALUES: usize = 64;
const MAX_TEXT: usize = 128;

/// A label's allowed values; `*` matches any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    In(BTreeSet<String>),
    /// The node may lack the label.
    NotIn(BTreeSet<String>),
}

impl Rule {
    /// True for an allowed value.
    #[must_use]
    pub fn allows(&self, value: Option<&str>) -> bool {
        let any = |values: &BTreeSet<String>| {
            value.is_some_and(|value| values.iter().any(|pattern| matches(pattern, value)))
        };
        match self {
            Self::In(values) => any(values),
            Self::NotIn(values) => !any(values),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, values) = match self {
            Self::In(values) => ("", values),
            Self::NotIn(values) => ("not ", values),
        };
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        write!(f, "{before}{}", values.join(" or "))
    }
}

/// Matches a text against a pattern with `*`.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Requirements and preferences of a job for its nodes.
///
/// `{zone: a, disk: [ssd, nvme], gpu.model: {not: K80}, spread: rack, prefer: {zone: b}}`.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    try_from = "BTreeMap<String, Written>",
    into = "BTreeMap<String, Written>"
)]
pub struct Constraints {
    /// Labels required on every node of the job.
    pub require: BTreeMap<String, Rule>,
    /// Labels preferred while capacity permits.
    pub prefer: BTreeMap<String, Rule>,
    /// Label whose values share the containers as evenly as capacity permits.
    pub spread: Option<String>,
    /// Label with one value for all containers, as far as capacity permits.
    pub pack: Option<String>,
    /// True if each container needs a node of its own.
    pub exclusive: bool,
}

/// A rule in a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a constraint is a value, a list of values, or a map such as {not: old}"
)]
enum Written {
    Flag(bool),
    Whole(i64),
    Text(String),
    Many(Vec<Value>),
    Not(Not),
    Rules(BTreeMap<String, Written>),
}

/// A label's value: text, a number, true or false.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a label's value is text, a whole number, true or false"
)]
enum Value {
    Flag(bool),
    Whole(i64),
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Not {
    not: Box<Written>,
}

impl Value {
    fn text(self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Whole(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

impl Written {
    fn rule(self, label: &str) -> Result<Rule, String> {
        let values = match self {
            Self::Not(Not { not }) => {
                return match not.rule(label)? {
                    Rule::In(values) => Ok(Rule::NotIn(values)),
                    Rule::NotIn(_) => Err(format!("constraints: {label}: not within not")),
                };
            }
            Self::Flag(flag) => vec![flag.to_string()],
            Self::Whole(number) => vec![number.to_string()],
            Self::Text(text) => vec![text],
            Self::Many(values) => values.into_iter().map(Value::text).collect(),
            Self::Rules(_) => {
                return Err(format!(
                    "constraints: {label} must be a value, a list of values, or {{not: value}}"
                ));
            }
        };
        if values.is_empty() || values.len() > MAX_VALUES {
            return Err(format!(
                "constraints: {label} must name 1 to {MAX_VALUES} values"
            ));
        }
        if let Some(wrong) = values.iter().find(|value| !is_value(value)) {
            return Err(format!(
                "constraints: {label}: {wrong:?} cannot be a label's value; it has 1 to {MAX_TEXT} characters and no control characters"
            ));
        }
        Ok(Rule::In(values.into_iter().collect()))
    }

    fn label(self, field: &str) -> Result<String, String> {
        match self {
            Self::Text(label) if is_label(&label) => Ok(label),
            _ => Err(format!(
                "constraints: {field} must name a label, such as `{field}: rack`"
            )),
        }
    }
}

/// True for letters, digits, `.`, `_`, `/` and `-`.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    (1..=MAX_TEXT).contains(&text.len()) && text.chars().all(known)
}

/// True for a valid label value.
#[must_use]
pub fn is_value(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// True for a valid taint: `maintenance`, or `owner=ads`.
#[must_use]
pub fn is_taint(text: &str) -> bool {
    let (key, value) = text.split_once('=').unwrap_or((text, "x"));
    is_label(key) && is_value(value)
}

impl TryFrom<BTreeMap<String, Written>> for Constraints {
    type Error = String;

    fn try_from(written: BTreeMap<String, Written>) -> Result<Self, String> {
        let mut constraints = Self::default();
        for (name, value) in written {
            match (name.as_str(), value) {
                ("spread", value) => constraints.spread = Some(value.label("spread")?),
                ("pack", value) => constraints.pack = Some(value.label("pack")?),
                ("exclusive", Written::Flag(flag)) => constraints.exclusive = flag,
                ("exclusive", _) => {
                    return Err("constraints: exclusive is true or false".to_owned());
                }
                ("prefer", Written::Rules(rules)) => constraints.prefer = read(rules)?,
                ("prefer", _) => {
                    let example = "constraints: prefer must be a map such as {zone: a}";
                    return Err(example.to_owned());
                }
                (_, value) => {
                    let rule = read([(name, value)].into())?;
                    constraints.require.extend(rule);
                }
            }
        }
        let rules = constraints.require.len() + constraints.prefer.len();
        if rules > MAX_RULES {
            Err(format!(
                "constraints name {rules} labels; the most is {MAX_RULES}"
            ))
        } else {
            Ok(constraints)
        }
    }
}

fn read(written: BTreeMap<String, Written>) -> Result<BTreeMap<String, Rule>, String> {
    let rule = |(label, written): (String, Written)| {
        if is_label(&label) {
            Ok((label.clone(), written.rule(&label)?))
        } else {
            Err(format!(
                "constraints: {label:?} cannot be a label; it has letters, digits, `.`, `_`, `/` and `-`"
            ))
        }
    };
    written.into_iter().map(rule).collect()
}

impl From<Constraints> for BTreeMap<String, Written> {
    fn from(constraints: Constraints) -> Self {
        let mut written = rules(constraints.require);
        let text = |label: Option<String>| label.map(Written::Text);
        let prefer =
            (!constraints.prefer.is_empty()).then(|| Written::Rules(rules(constraints.prefer)));
        let others = [
            ("spread", text(constraints.spread)),
            ("pack", text(constraints.pack)),
            ("prefer", prefer),
            (
                "exclusive",
                constraints.exclusive.then_some(Written::Flag(true)),
            ),
        ];
        let others = others.into_iter();
        written.extend(others.filter_map(|(name, it)| Some((name.to_owned(), it?))));
        written
    }
}

fn rules(rules: BTreeMap<String, Rule>) -> BTreeMap<String, Written> {
    let values = |values: BTreeSet<String>| {
        let mut values: Vec<String> = values.into_iter().collect();
        match values.len() {
            1 => Written::Text(values.remove(0)),
            _ => Written::Many(values.into_iter().map(Value::Text).collect()),
        }
    };
    let written = |rule: Rule| match rule {
        Rule::In(allowed) => values(allowed),
        Rule::NotIn(denied) => Written::Not(Not {
            not: Box::new(values(denied)),
        }),
    };
    let each = rules.into_iter();
    each.map(|(label, rule)| (label, written(rule))).collect()
}

/// Requirements of a job's containers on their nodes.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Needs {
    /// Labels required or preferred.
    #[serde(default, skip_serializing_if = "Constraints::is_empty")]
    pub constraints: Constraints,
    /// Tolerated taints.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tolerations: BTreeSet<String>,
    /// Memory of each of a container's GPUs.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub gpu_memory_bytes: u64,
}

/// Parts of a GPU. Shares are halves, quarters and so on, which fill a device without a rest, so that their
/// sum tells whether they fit.
pub const GPU_PARTS: u64 = 64;

/// Containers of one type are interchangeable.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerType {
    pub demand: Amounts,
    pub needs: Needs,
}

impl ContainerType {
    /// True for a share of a GPU.
    #[must_use]
    pub fn shares_gpu(&self) -> bool {
        (1..1000).contains(&self.demand.get(&Resource::Gpu))
    }

    /// Returns the parts of a GPU with this memory: a power of two, by fraction and memory. Whole GPUs count
    /// all parts.
    #[must_use]
    pub fn gpu_parts(&self, device_memory_bytes: u64) -> u64 {
        let milli = self.demand.get(&Resource::Gpu);
        if !self.shares_gpu() {
            return milli / 1000 * GPU_PARTS;
        }
        let by_fraction = (milli * GPU_PARTS).div_ceil(1000);
        let memory = u128::from(self.needs.gpu_memory_bytes) * u128::from(GPU_PARTS);
        let by_memory = memory.div_ceil(u128::from(device_memory_bytes.max(1)));
        let by_memory = u64::try_from(by_memory).unwrap_or(u64::MAX);
        let by_memory = if self.needs.gpu_memory_bytes > 0 {
            by_memory
        } else {
            0
        };
        by_fraction
            .max(by_memory)
            .min(2 * GPU_PARTS)
            .next_power_of_two()
    }
}

impl Constraints {
    /// True if nothing is required or preferred.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first unmet requirement.
    #[must_use]
    pub fn broken_by<'a>(&'a self, labels: &Labels) -> Option<(&'a str, &'a Rule)> {
        let broken =
            |(label, rule): &(&String, &Rule)| !rule.allows(labels.get(*label).map(String::as_str));
        let (label, rule) = self.require.iter().find(broken)?;
        Some((label, rule))
    }

    /// Counts the unmet preferences.
    #[must_use]
    pub fn dislikes(&self, labels: &Labels) -> usize {
        let unmet = self
            .prefer
            .iter()
            .filter(|(label, rule)| !rule.allows(labels.get(*label).map(String::as_str)));
        unmet.count()
    }
}

impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.require.iter();
        let mut parts: Vec<String> = rules
            .map(|(label, rule)| format!("{label}: {rule}"))
            .collect();
        if self.exclusive {
            parts.push("exclusive".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

impl Needs {
    /// True if nothing is required or tolerated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first taint not tolerated.
    #[must_use]
    pub fn kept_away_by<'a>(&self, taints: &'a BTreeSet<String>) -> Option<&'a String> {
        taints.iter().find(|taint| {
            let key = taint.split_once('=').map_or(taint.as_str(), |(key, _)| key);
            !self.tolerations.contains(*taint) && !self.tolerations.contains(key)
        })
    }

    /// True if containers may start on such a node.
    #[must_use]
    pub fn allow(&self, labels: &Labels, taints: &BTreeSet<String>) -> bool {
        self.constraints.broken_by(labels).is_none() && self.kept_away_by(taints).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraints(json: &str) -> Result<Constraints, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn every_written_form_is_read_and_written_again() {
        let text = r#"{"disk":["nvme","ssd"],"exclusive":true,"gpu.model":{"not":"K80"},"pack":"rack","prefer":{"zone":"b"},"rank":3,"spread":"zone","zone":"a"}"#;
        let read = constraints(text).expect("constraints");
        assert_eq!(read.spread.as_deref(), Some("zone"));
        assert!(read.exclusive && read.prefer.contains_key("zone"));
        let written = serde_json::to_string(&read).expect("writes");
        assert_eq!(written, text.replace("\"rank\":3", "\"rank\":\"3\""));
        assert_eq!(constraints(&written).expect("again"), read);
        let packed = rmp_serde::to_vec_named(&read).expect("packs");
        assert_eq!(
            rmp_serde::from_slice::<Constraints>(&packed).expect("reads"),
            read
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_place() {
        for (json, part) in [
            (r#"{"zone": []}"#, "zone must name 1 to 64 values"),
            (r#"{"zone": {"not": {"not": "a"}}}"#, "not within not"),
            (r#"{"zone": {"is": "a"}}"#, "zone must be a value"),
            (r#"{"a b": "c"}"#, "cannot be a label"),
            (r#"{"spread": 7}"#, "spread must name a label"),
            (r#"{"prefer": "a"}"#, "prefer must be a map"),
            (r#"{"exclusive": "yes"}"#, "exclusive is true or false"),
            (r#"{"zone": ""}"#, "cannot be a label's value"),
        ] {
            let refused = constraints(json).expect_err("wrong");
            assert!(refused.contains(part), "{part:?} in {refused:?}");
        }
    }

    #[test]
    fn rules_hold_on_the_nodes_that_they_name() {
        let read = constraints(r#"{"zone": ["a", "b"], "gpu.model": {"not": "*K80*"}}"#);
        let read = read.expect("constraints");
        assert_eq!(read.broken_by(&labels(&[("zone", "a")])), None);
        let old = labels(&[("zone", "b"), ("gpu.model", "NVIDIA K80 rev 2")]);
        assert_eq!(
            read.broken_by(&old).map(|(label, _)| label),
            Some("gpu.model")
        );
        assert_eq!(
            read.broken_by(&labels(&[])).map(|(label, _)| label),
            Some("zone")
        );
        assert!(matches("*", "any") && matches("a*c*e", "abcde") && !matches("a*c", "abcd"));
        assert!(matches("abc", "abc") && !matches("ab", "abc"));
    }

    #[test]
    fn a_fraction_takes_the_next_half_quarter_and_so_on() {
        let parts = |demand: &str, gpu_memory_bytes: u64| {
            let of_type = ContainerType {
                demand: demand.parse().expect("amounts"),
                needs: Needs {
                    gpu_memory_bytes,
                    ..Needs::default()
                },
            };
            of_type.gpu_parts(16 << 30)
        };
        assert_eq!(parts("gpu=0.25", 0), 16);
        assert_eq!(parts("gpu=0.3", 0), 32);
        assert_eq!(parts("gpu=0.6", 0), 64);
        assert_eq!(parts("gpu=0.001", 0), 1);
        assert_eq!(parts("gpu=2", 0), 128);
        assert_eq!(parts("cpu=1", 0), 0);
        assert_eq!(parts("gpu=0.25", 8 << 30), 32);
        assert!(parts("gpu=0.25", 32 << 30) > 64, "it fits no such device");
    }

    #[test]
    fn taints_keep_away_who_does_not_tolerate_them() {
        let taints: BTreeSet<String> = ["owner=ads".to_owned(), "old".to_owned()].into();
        let mut needs = Needs::default();
        assert!(!needs.allow(&Labels::new(), &taints));
        needs.tolerations = ["owner".to_owned(), "old".to_owned()].into();
        assert!(needs.allow(&Labels::new(), &taints));
        needs.tolerations = ["owner=vision".to_owned(), "old".to_owned()].into();
        assert_eq!(
            needs.kept_away_by(&taints).map(String::as_str),
            Some("owner=ads")
        );
        assert!(is_taint("owner=ads") && is_taint("old") && !is_taint("=x"));
    }
}
