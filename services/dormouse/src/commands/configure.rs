//! `configure`: sets the policy, and appends operators' events.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::grants::GrantsRule;
use dormouse_messages::policy::{MIN_REPLICATED_LEASE_S, Policy, Shares, UnknownTenants};
use dormouse_messages::{Event, Sequence, Writer, suggest};
use dormouse_projections::queries::ClusterAnswer;
use dormouse_runtime::{AppendError, Appender, Log};
use serde::Deserialize;
use serde_json::{Value, json};

use super::query;
use crate::cli::streams::StreamArgs;
use crate::context::{Context, read_map, shown};
use crate::describe::{self, name};
use crate::error::{Coded, DONE};
use crate::print;

/// Set the cluster's policy from a YAML or JSON file, or - for standard input; without a file, show the
/// policy
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse configure                               # the policy in force\n  dormouse configure -o yaml > policy.yaml\n  dormouse configure policy.yaml\n  echo 'policy: {theta1: 0.2, theta2: 0.1}' | dormouse configure -\n  dormouse configure policy.yaml --ensure-streams --replicas 3     # a new cluster\n\nWhat the file does not name keeps its default."
)]
pub struct ConfigureArgs {
    /// Policy document; - is standard input. Without a document, the current policy is shown.
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub streams: StreamArgs,
    /// Make the log reader for an agent or gateway whose key may not: node-NAME or gateway-NAME.
    #[arg(long, value_name = "NAME")]
    pub reader: Vec<String>,
}

const ATTEMPTS: u32 = 100;

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {policy: {theta1: 0.2}}"
)]
struct ClusterDocument {
    policy: Policy,
}

/// Appends an operator's event.
///
/// # Errors
/// If the event cannot be appended.
pub async fn append(context: &Context, event: Event, said: &str) -> anyhow::Result<u8> {
    append_to(context.connect().await?, context, vec![event], said).await
}

/// Appends an operator's events in order.
///
/// # Errors
/// If an event cannot be appended.
pub async fn append_to(
    log: Log,
    context: &Context,
    events: Vec<Event>,
    said: &str,
) -> anyhow::Result<u8> {
    // Without its stream, an append would wait without end.
    log.head().await?;
    let appender = log.appender(Writer::Operator, None);
    shown_at(context, append_all(appender, events).await?, said)
}

async fn append_all(mut appender: Appender, events: Vec<Event>) -> Result<Sequence, AppendError> {
    let mut sequence = Sequence(0);
    for event in events {
        sequence = appender.append(event, &[]).await?;
    }
    Ok(sequence)
}

/// Events derived from the operators' earlier events.
#[derive(Debug, Default)]
pub struct Change {
    pub events: Vec<Event>,
    pub said: String,
    pub notes: Vec<String>,
}

/// Appends the events that `make` derives from the operators' events so far. If another operator appends
/// meanwhile, `make` runs again.
///
/// # Errors
/// If the events cannot be made or appended.
pub async fn change(
    context: &Context,
    log: &Log,
    make: impl AsyncFn() -> anyhow::Result<Change>,
) -> anyhow::Result<u8> {
    for _ in 0..ATTEMPTS {
        // Read first: any later operator event is a conflict.
        let last = log.last_of_operators().await?;
        let change = make().await?;
        match append_all(log.operator_after(last), change.events).await {
            Ok(sequence) => {
                for note in change.notes {
                    print::aside(format!("note: {note}"));
                }
                return shown_at(context, sequence, &change.said);
            }
            Err(AppendError::Superseded { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let why = "other operators' commands change the cluster all the time; try again";
    Err(Coded::new("busy", why).into())
}

fn shown_at(context: &Context, sequence: Sequence, said: &str) -> anyhow::Result<u8> {
    let answer = json!({"sequence": sequence});
    print::value(context.output()?, &answer, |_, _| {
        match said.split_once('\n') {
            Some((first, rest)) => format!("{first} event {sequence}\n{rest}"),
            None => format!("{said} (event {sequence})"),
        }
    })?;
    Ok(DONE)
}

fn read_policy(file: &Path) -> anyhow::Result<Policy> {
    let document = read_map(file)?;
    if document.is_array() || document.get("policy").is_some_and(Value::is_array) {
        bail!(
            "{}: a list where a map is meant; write policy: {{allocation: dorm, theta1: 0.1}}",
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

async fn in_force(context: &Context, args: &ConfigureArgs) -> anyhow::Result<u8> {
    if args.streams.ensure_streams || !args.reader.is_empty() {
        bail!("name the policy's document, or - for standard input");
    }
    let log = context.connect().await?;
    let cluster: ClusterAnswer = query(&log, "cluster", Value::Null).await?;
    let document = json!({"policy": cluster.policy});
    print::ours(context.output()?, &document, |_| {
        let since = match cluster.policy_sequence {
            Sequence(0) => "in force: nobody has set a policy, these are the defaults".to_owned(),
            sequence => format!("in force since event {sequence}"),
        };
        format!(
            "{since}{}\n`dormouse configure -o yaml` prints it as a document that can be changed and given again",
            in_words(&cluster.policy)
        )
    })?;
    Ok(DONE)
}

/// Runs `configure FILE`.
///
/// # Errors
/// If the document is wrong or the event cannot be appended.
pub async fn configure(context: &Context, args: &ConfigureArgs) -> anyhow::Result<u8> {
    let Some(file) = &args.file else {
        return in_force(context, args).await;
    };
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
    change(context, &log, async || {
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
    let last = log.last_event_of_operators("cluster.configured");
    Ok(match last.await? {
        Some(Event::ClusterConfigured(event)) => Some(event.policy),
        _ => None,
    })
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

fn in_words(policy: &Policy) -> String {
    let amortise = match policy.objective.amortise_s {
        Some(seconds) => format!("a restart pays back over {seconds} s"),
        None => "restarts cost only as a tie-break".to_owned(),
    };
    let unknown = match policy.unknown_tenants {
        UnknownTenants::Accept => format!("accepted with weight {}", policy.unknown_weight),
        UnknownTenants::Refuse => "refused".to_owned(),
    };
    let among = match policy.shares {
        Shares::Job => "jobs",
        Shares::Tenant => "tenants",
    };
    let granted = match policy.grants.unwrap_or_default() {
        GrantsRule::Open => "not asked for",
        GrantsRule::Required => "refused",
    };
    let lines = [
        (
            "allocation",
            format!(
                "{}, θ1 {} ({} fairness bound), θ2 {}",
                name(&policy.allocation),
                policy.theta1,
                name(&policy.fairness_bound),
                policy.theta2
            ),
        ),
        (
            "objective",
            format!(
                "utilization × {}, fairness loss × {}; {amortise}",
                policy.objective.utilization, policy.objective.loss
            ),
        ),
        (
            "queue",
            format!(
                "{}; room is kept for a head that others passed for {} s",
                policy.queue.as_str(),
                policy.reserve_after_s
            ),
        ),
        ("preemption", describe::preemption(policy)),
        (
            "leases",
            format!(
                "a silent node is lost after {} s; its containers end by themselves after {} s",
                policy.lease_s,
                policy.lease().fence_ms / 1_000
            ),
        ),
        (
            "tenants",
            format!(
                "shares among {among}; unknown ones are {unknown}; what was not granted to one is {granted}"
            ),
        ),
    ];
    let lines = lines.map(|(name, text)| format!("\n  {name:<11} {text}"));
    lines.concat()
}

#[cfg(test)]
mod tests {
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
