//! Checks that several parts of a document share: amounts, bounds, and the words of a command.

use std::collections::BTreeMap;

use dormouse_messages::Amounts;
use dormouse_messages::job::{Containers, EnvValue};
use dormouse_messages::policy::{MAX_PRIORITY, MAX_WEIGHT};
use dormouse_messages::quantity::Written;

use crate::refusal::Refusal;

/// The largest planned cluster.
pub const MAX_CONTAINERS: u32 = 10_000;
/// Ten years: longer is no limit.
const MAX_LIMIT_S: u32 = 315_360_000;
/// Catchable and not stopping.
pub const SIGNALS: [&str; 7] = [
    "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM",
];

/// Parses the amounts of a field.
pub(crate) fn amounts(
    field: &str,
    written: &BTreeMap<String, Written>,
) -> Result<Amounts, Refusal> {
    let entries = written
        .iter()
        .map(|(name, written)| (name.as_str(), written));
    let demand = Amounts::parse(entries)
        .map_err(|error| Refusal::new("bad_demand", format!("{field}: {error}")))?;
    if let Some(why) = demand.lacks_unit() {
        return Err(Refusal::new("bad_demand", format!("{field}: {why}")));
    }
    if demand.is_empty() {
        return Err(Refusal::new(
            "bad_demand",
            format!(
                "{field} is empty; say what one container needs, such as {{cpu: 1, memory: 1Gi}}"
            ),
        ));
    }
    Ok(demand)
}

/// Checks bounds. A service may scale to zero.
pub fn check_containers(
    bounds: Containers,
    fixed: Option<u32>,
    is_service: bool,
) -> Result<(), Refusal> {
    let Containers { min, max, .. } = bounds;
    let bad = |reason| Err(Refusal::new("bad_containers", reason));
    let least = u32::from(!is_service);
    if min < least || min > max || max == 0 || max > MAX_CONTAINERS {
        return bad(format!(
            "containers: min {min} and max {max} must satisfy {least} ≤ min ≤ max ≤ {MAX_CONTAINERS}"
        ));
    }
    match fixed.filter(|fixed| !(min..=max).contains(fixed)) {
        None => Ok(()),
        Some(fixed) => bad(format!(
            "static_containers {fixed} must lie between containers.min {min} and .max {max}"
        )),
    }
}

/// Checks the bounds of a weight.
pub fn check_weight(weight: u32) -> Result<(), Refusal> {
    if (1..=MAX_WEIGHT).contains(&weight) {
        return Ok(());
    }
    let reason = format!("weight {weight} must lie between 1 and {MAX_WEIGHT}");
    Err(Refusal::new("bad_weight", reason))
}

/// Checks the bounds of a priority.
pub fn check_priority(priority: i32) -> Result<(), Refusal> {
    if (-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        return Ok(());
    }
    let reason = format!("priority {priority} must lie between -{MAX_PRIORITY} and {MAX_PRIORITY}");
    Err(Refusal::new("bad_priority", reason))
}

/// Checks a time limit; 0 means none.
pub fn check_limit(field: &str, limit_s: Option<u32>) -> Result<(), Refusal> {
    match limit_s.filter(|limit_s| *limit_s > MAX_LIMIT_S) {
        None => Ok(()),
        Some(limit_s) => {
            let reason = format!(
                "{field} {limit_s} must lie between 1 and {MAX_LIMIT_S}; leave it out for no limit"
            );
            Err(Refusal::new("bad_limit", reason))
        }
    }
}

/// Explains a command or environment that no program can receive.
pub(crate) fn unfit<'a>(
    mut words: impl Iterator<Item = &'a String>,
    env: &BTreeMap<String, EnvValue>,
) -> Option<String> {
    let nul = |text: &String| text.contains('\0');
    if let Some(word) = words.find(|word| nul(word)) {
        return Some(format!(
            "the word {word:?} of the command has a NUL byte, which no program can be given; take it out"
        ));
    }
    env.iter().find_map(|(name, value)| {
        if name.is_empty() || name.contains('=') || nul(name) {
            return Some(format!(
                "env has the name {name:?}: a name is not empty and has neither '=' nor a NUL byte"
            ));
        }
        let is_bad = matches!(value, EnvValue::Plain(text) if nul(text));
        is_bad.then(|| {
            format!("env.{name} has a NUL byte, which no program can be given; take it out")
        })
    })
}
