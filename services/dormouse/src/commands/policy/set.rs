//! `policy set`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::grants::GrantsRule;
use dormouse_messages::policy::{MIN_REPLICATED_LEASE_S, Policy};
use dormouse_messages::{Event, Sequence, Writer, suggest};
use dormouse_projections::ReadModel;
use dormouse_runtime::Log;
use serde::Deserialize;
use serde_json::Value;

use super::show::in_words;
use crate::cli::streams::StreamArgs;
use crate::commands::common::operator::{self, Change};
use crate::context::{Context, read_map, shown};

/// Set the cluster's policy from a YAML or JSON file, or - for standard input
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse policy set policy.yaml\n  echo 'policy: {theta1: 0.2, theta2: 0.1}' | dormouse policy set -\n  dormouse policy set policy.yaml --ensure-streams --replicas 3     # a new cluster\n\nWhat the file does not name keeps its default."
)]
pub struct SetArgs {
    /// Policy document; - is standard input.
    pub file: PathBuf,
    #[command(flatten)]
    pub streams: StreamArgs,
    /// Make the log reader for an agent or gateway whose key may not: node-NAME or gateway-NAME.
    #[arg(long, value_name = "NAME")]
    pub reader: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {policy: {theta1: 0.2}}"
)]
struct ClusterDocument {
    policy: Policy,
}

fn read_policy(file: &Path) -> anyhow::Result<Policy> {
    let document = read_map(file)?;
    if document.is_array() || document.get("policy").is_some_and(Value::is_array) {
        bail!(
            "{}: a list where a map is meant; write policy: {{allocation: dorm, theta1: 0.1}}",
            shown(file)
        );
    }
    if document.is_object() && document.get("policy").is_none() {
        bail!(
            "{}: the fields of the policy stand below `policy`; write policy: {{theta1: 0.2}}",
            shown(file)
        );
    }
    // Deserialized again, so that an error names its field.
    let document: Result<ClusterDocument, _> = serde_path_to_error::deserialize(document);
    let document = document.map_err(|error| {
        let (file, inner) = (shown(file), error.inner().to_string());
        let meant = suggest::hint(suggest::of_error(&inner).as_deref());
        match error.path().to_string().as_str() {
            "." => anyhow::anyhow!("{file}: {inner}{meant}"),
            place => anyhow::anyhow!("{file}: {place}: {inner}{meant}"),
        }
    })?;
    match document.policy.problem() {
        Some(problem) => bail!("{}: {problem}", shown(file)),
        None => Ok(document.policy),
    }
}

/// Runs `policy set`.
///
/// # Errors
/// If the document is wrong or the event cannot be appended.
pub async fn run(context: &Context, args: &SetArgs) -> anyhow::Result<u8> {
    let file = &args.file;
    let policy = read_policy(file)?;
    let log = context.connect_with(args.streams.replicas).await?;
    if args.streams.ensure_streams {
        log.ensure_streams().await?;
    }
    log.ensure_readers(&args.reader).await?;
    // The broker's own setting counts: `--replicas` applies only to new streams.
    log.head().await?;
    if log.is_replicated() && policy.lease_s < MIN_REPLICATED_LEASE_S {
        bail!(
            "{}: lease_s is {}; with several brokers it must be at least {MIN_REPLICATED_LEASE_S}, so that no election ends a container",
            shown(file),
            policy.lease_s
        );
    }
    operator::change(context, &log, async || {
        let before = before(&log).await?;
        let mut policy = policy.clone();
        if policy.grants.is_none() {
            policy.grants = rule_in_force(before.as_ref(), context);
        }
        let changed = before.and_then(|before| changed(&before, &policy));
        let notes = changed.map(|it| format!("the document is the whole policy; {it}"));
        Ok(Change {
            said: format!("in force from{}", in_words(&policy)),
            events: vec![Event::from(ClusterConfigured { policy })],
            notes: notes.into_iter().collect(),
        })
    })
    .await
}

/// The rule stays if the document names none. At first, an operator's key shows that the broker has accounts,
/// so grants are required; without keys anybody may publish anything.
fn rule_in_force(before: Option<&Policy>, context: &Context) -> Option<GrantsRule> {
    let said = before.and_then(|policy| policy.grants);
    said.or(context.has_key().then_some(GrantsRule::Required))
}

async fn before(log: &Log) -> anyhow::Result<Option<Policy>> {
    let last = log.last_event_of(Writer::Operator, "cluster.configured");
    match last.await? {
        Some(Event::ClusterConfigured(event)) => Ok(Some(event.policy)),
        _ if log.first() > Sequence(1) => {
            let model = log.folded::<ReadModel>().await?.state;
            let is_set = model.cluster.policy_sequence > Sequence(0);
            Ok(is_set.then(|| model.queues.cluster.policy.clone()))
        }
        _ => Ok(None),
    }
}

/// Lists the changed fields: fields that the document leaves out return to their defaults.
fn changed(before: &Policy, after: &Policy) -> Option<String> {
    let fields = |policy: &Policy| match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let shown = |fields: &serde_json::Map<String, Value>, name: &str| match fields.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "none".to_owned(),
    };
    let changes = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let changes = changes.map(|name| {
        let (was, is) = (shown(&before, name), shown(&after, name));
        format!("{name}: {was} → {is}")
    });
    let changes: Vec<String> = changes.collect();
    (!changes.is_empty()).then(|| format!("changed: {}", changes.join("; ")))
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Shares;

    use super::*;

    #[test]
    fn what_a_document_leaves_out_is_said() {
        let before = Policy {
            theta1: 0.1,
            shares: Shares::Tenant,
            ..Policy::default()
        };
        assert_eq!(changed(&before, &before), None);
        let after = Policy {
            theta1: 0.2,
            ..Policy::default()
        };
        let said = changed(&before, &after).expect("two fields");
        assert_eq!(said, "changed: shares: tenant → job; theta1: 0.1 → 0.2");
    }
}
