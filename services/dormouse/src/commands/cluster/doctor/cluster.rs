//! Checks the cluster: broker, streams, services, nodes.

use dormouse_messages::NodeId;
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{ClusterAnswer, NodesAnswer};
use dormouse_runtime::{Bounds, FoundStream, Log, StreamState};
use serde_json::{Value, json};

use super::machine::{LEAST_BROKER, is_older};
use super::report::Looks;
use super::{archive, builds};
use crate::commands::common::{agents, query};
use crate::context::Context;
use crate::render::bytes;
use crate::serve::service::Service;

/// Each needs one active copy.
const DECIDERS: [Service; 5] = [
    Service::Admission,
    Service::Optimizer,
    Service::Placer,
    Service::Checkpointer,
    Service::Autoscaler,
];

const FAR_BEHIND: u64 = 1_000;

const NEARLY_FULL: f64 = 0.9;

pub async fn look(context: &Context, looks: &mut Looks<'_>) {
    if !context.names_a_cluster() {
        let advice =
            "start one with `dormouse up`, or name its broker with --server nats://HOST:PORT";
        return looks.warn(
            "broker",
            "no cluster has run here, and none is named",
            advice,
        );
    }
    let log = match context.connect_as_holder().await {
        Ok(log) => log,
        Err(error) => {
            let advice = "the rest of the cluster could not be looked at";
            return looks.fail("broker", format!("{error:#}"), advice);
        }
    };
    broker(&log, looks).await;
    if context.is_unattended() {
        // Leases without renewal still hold for a while: checking them tells nothing.
        let data = context.data.display();
        return looks.fail(
            "up",
            format!(
                "the cluster in {data} has a broker, and no `dormouse up` that runs its services"
            ),
            format!("`dormouse up --data {data}` starts them again, and adopts what runs"),
        );
    }
    if let Some(tenant) = log.tenant() {
        looks.ok(
            "key",
            format!("it is tenant {tenant}'s; the rest is for operators"),
        );
        return answers(&log, looks).await;
    }
    if log.is_persons() {
        looks.ok(
            "key",
            "it is an operator's own; streams and leases are looked at with the key of the cluster (operator.creds)",
        );
    } else {
        let streams = log.streams().await;
        for stream in &streams {
            self::stream(stream, looks);
        }
        if streams.iter().all(|it| matches!(it.found, Ok(Some(_)))) {
            storing(&log, looks).await;
        }
        deciders(&log, looks).await;
    }
    queries(context, &log, looks).await;
}

async fn broker(log: &Log, looks: &mut Looks<'_>) {
    let it = log.broker().await;
    let took_ms = it.round_trip.as_secs_f64() * 1_000.0;
    let found = format!(
        "{} at {}, nats-server {}, answers in {took_ms:.1} ms",
        it.name, it.address, it.version
    );
    let (major, minor) = LEAST_BROKER;
    if is_older(&it.version, LEAST_BROKER) {
        looks.fail(
            "broker",
            found,
            format!("{major}.{minor} is the oldest that will do"),
        )
    } else {
        looks.ok("broker", found)
    }
}

async fn storing(log: &Log, looks: &mut Looks<'_>) {
    match log.try_storing().await {
        Ok(()) => looks.ok("storing", "the broker stores"),
        Err((broker, why)) => looks.fail(
            "storing",
            format!("broker {broker} answers, and stores nothing: {why}"),
            "its disk is full, or was (its log says so): free some room there; `up` then starts its broker again by itself, any other broker is to be restarted",
        ),
    }
}

fn stream(stream: &StreamState, looks: &mut Looks) {
    let StreamState { name, holds, found } = stream;
    let make = "`dormouse policy set FILE --ensure-streams` makes the streams";
    match found {
        Err(why) => looks.fail(holds, format!("{name}: {why}"), "a stream without a leader answers nobody: look at the brokers' logs; docs/troubleshooting.md"),
        Ok(None) => looks.fail(holds, format!("there is no stream {name}"), make),
        Ok(Some(found)) => there(name, holds, found, looks),
    }
}

fn there(name: &str, holds: &str, found: &FoundStream, looks: &mut Looks) {
    let mut said = format!(
        "{name}: {} messages, {}",
        found.messages,
        bytes(found.bytes)
    );
    if let Some(most) = found.max_bytes {
        said = format!("{said} of at most {}", bytes(most));
    }
    if found.replicas > 1 {
        let leader = found.leader.as_deref().unwrap_or("nobody");
        said = format!("{said}, {} copies, led by {leader}", found.replicas);
    }
    if !found.behind.is_empty() {
        return looks.warn(
            holds,
            format!("{said}; away or behind: {}", found.behind.join(", ")),
            "one copy more that is lost and the log stands still: look at these brokers",
        );
    }
    if !found.differs.is_empty() {
        return looks.warn(
            holds,
            format!(
                "{said}; {} is not as it should be",
                found.differs.join(", ")
            ),
            "`dormouse policy set FILE --ensure-streams` sets it right, and so does a start of `up`",
        );
    }
    if found.untrimmable {
        return looks.warn(
            holds,
            format!("{said}; nothing can ever be removed from it, since an older build made it so"),
            "it grows until the disk is full: move it with `dormouse log export` and `dormouse log import` into a new broker",
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "a share to compare")]
    let is_full = |most: u64| found.bytes as f64 > NEARLY_FULL * most as f64;
    if found.max_bytes.is_some_and(is_full) {
        looks.warn(
        holds,
        said,
        "what does not fit is refused: give the broker more room, or have what waits recorded (is admission there?)",
    )
    } else {
        looks.ok(holds, said)
    }
}

async fn deciders(log: &Log, looks: &mut Looks<'_>) {
    for service in DECIDERS {
        let name = service.name();
        match log.leases().holder(name).await {
            Err(error) => looks.fail(name, error.to_string(), "the leases cannot be read; docs/troubleshooting.md"),
            Ok(Some(lease)) => match lease.refused {
                None => looks.ok(name, format!("{} is active", lease.holder)),
                Some(why) => looks.fail(
                    name,
                    format!("{} is active, and the log refuses what it decided: {why}", lease.holder),
                    "nothing of this service goes on before that is mended: it tries again every 5 s; docs/troubleshooting.md",
                ),
            },
            Ok(None) => looks.fail(
                name,
                "no copy of it is active",
                format!("start it (`dormouse serve {name}`), or look into its log why it does not become active"),
            ),
        }
    }
}

async fn answers(log: &Log, looks: &mut Looks<'_>) {
    match query::<Value>(log, "jobs", json!({"limit": 1})).await {
        Ok(_) => looks.ok("queries", "they are answered"),
        Err(error) => looks.fail("queries", error.to_string(), "ask an operator"),
    }
}

async fn queries(context: &Context, log: &Log, looks: &mut Looks<'_>) {
    let asked = query::<ClusterAnswer>(log, "cluster", Value::Null).await;
    let cluster = match asked {
        Ok(cluster) => cluster,
        Err(error) => {
            let advice = "start it: `dormouse serve api`";
            return looks.fail("queries", error.to_string(), advice);
        }
    };
    let head = log.head().await.unwrap_or(cluster.log.head);
    let behind = head.0.saturating_sub(cluster.log.head.0);
    let read = format!("event {} of {head} is read", cluster.log.head);
    if behind > FAR_BEHIND {
        looks.warn(
            "queries",
            read,
            "the query service is behind: lists and timelines are old",
        )
    } else {
        looks.ok("queries", read)
    }
    builds::look(&cluster.builds, looks);
    let policy = cluster.policy.archive;
    archive::look(&cluster.archive, policy, looks);
    let disk = context.own_broker_dir();
    let room = log.room(Bounds {
        policy_bytes: policy.log_bytes(),
        disk: disk.as_deref(),
    });
    if let Ok(room) = room.await {
        archive::room(&room, &cluster.archive, looks);
    }
    if let Some(last) = &cluster.log.last_flagged {
        let found = format!(
            "{} events are not used, the last one is {}",
            cluster.log.flagged, last.sequence
        );
        looks.warn("flagged", found, last.reason.clone());
    }
    match query::<NodesAnswer>(log, "nodes", Value::Null).await {
        Ok(answer) => {
            nodes(&answer, looks);
            agents(log, &answer, looks).await;
        }
        Err(error) => looks.fail("nodes", error.to_string(), "start `dormouse serve api`"),
    }
}

fn nodes(answer: &NodesAnswer, looks: &mut Looks) {
    let of = |state: NodeState| -> Vec<&str> {
        let all = answer.nodes.iter().filter(|it| it.state == state);
        all.map(|it| it.node.as_str()).collect()
    };
    let up = of(NodeState::Up);
    if up.is_empty() {
        looks.fail(
            "nodes",
            "none takes containers",
            "start an agent: `dormouse serve agent --node NAME --capacity cpu=…,memory=…`",
        )
    } else {
        looks.ok("nodes", format!("{} take containers", up.len()))
    }
    let unwell = [
        (
            NodeState::Lost,
            "lost",
            "start their agents again, or `dormouse node remove NAME`",
        ),
        (
            NodeState::Quarantined,
            "quarantined",
            "`dormouse nodes` says why; it is tried again by itself",
        ),
        (
            NodeState::Drained,
            "drained",
            "`dormouse node restore NAME` takes one back",
        ),
    ];
    for (state, word, advice) in unwell {
        let names = of(state);
        if !names.is_empty() {
            looks.warn(word, names.join(", "), advice);
        }
    }
}

/// A node counts as up until its lease ends, so agents are asked.
async fn agents(log: &Log, answer: &NodesAnswer, looks: &mut Looks<'_>) {
    let up = answer.nodes.iter().filter(|it| it.state == NodeState::Up);
    let up: Vec<&NodeId> = up.map(|it| &it.node).collect();
    let silent = agents::silent(log, &up).await;
    if !silent.is_empty() {
        let names: Vec<&str> = silent.into_iter().map(NodeId::as_str).collect();
        looks.warn(
            "agents",
            format!("{} do not answer", names.join(", ")),
            "look at each agent and its way to the broker; its node is lost when its lease ends",
        );
    } else if !up.is_empty() {
        looks.ok("agents", "all of them answer");
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Report, State};
    use super::*;

    fn looked(found: Result<Option<FoundStream>, String>) -> (State, String) {
        let mut report = Report::default();
        let mut looks = Looks {
            of: "cluster",
            report: &mut report,
        };
        let it = StreamState {
            name: "DORMOUSE_LOG".to_owned(),
            holds: "the log",
            found,
        };
        stream(&it, &mut looks);
        let check = report.checks.remove(0);
        (check.state, check.found)
    }

    #[test]
    fn a_stream_is_judged_by_what_it_is() {
        let found = FoundStream {
            messages: 7,
            bytes: 95,
            replicas: 3,
            leader: Some("b1".to_owned()),
            ..FoundStream::default()
        };
        let (state, said) = looked(Ok(Some(found.clone())));
        assert_eq!(state, State::Ok);
        assert!(said.ends_with("3 copies, led by b1"), "{said}");
        assert_eq!(looked(Ok(None)).0, State::Failed);
        assert_eq!(looked(Err("no answer".to_owned())).0, State::Failed);
        let warned = [
            FoundStream {
                behind: vec!["b2".to_owned()],
                ..found.clone()
            },
            FoundStream {
                differs: vec!["that it is compressed".to_owned()],
                ..found.clone()
            },
            FoundStream {
                untrimmable: true,
                ..found.clone()
            },
            FoundStream {
                max_bytes: Some(100),
                ..found
            },
        ];
        for found in warned {
            assert_eq!(
                looked(Ok(Some(found.clone()))).0,
                State::Warning,
                "{found:?}"
            );
        }
    }
}
