//! Attacks with an agent's and a tenant's key, on a real broker with accounts.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::{Client, HeaderMap};
use dormouse_messages::events::{ContainerExited, NodeDrained};
use dormouse_messages::{Event, NodeId, Sequence, Writer};
use dormouse_runtime::{Log, LogItem, Settings};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::accounts::{Form, Secured};
use crate::common::PATIENCE;

const READER: &str = "node-n0";

const TARGETS: [&str; 4] = [
    "dormouse.in.ads.submit",
    "dormouse.log.operator.0.cluster.configured",
    "dormouse.log.node.n1.container.exited",
    "$KV.dormouse_leases.placer",
];

async fn drain(log: &Log, count: usize) {
    let mut operator = log.appender(Writer::Operator, None);
    for _ in 0..count {
        let node = NodeId::new("n0").expect("valid");
        let drained = operator.append(
            Event::from(NodeDrained {
                node,
                reason: None,
                deadline_s: None,
            }),
            &[],
        );
        drained.await.expect("appended");
    }
}

async fn sequences(followed: &mut Receiver<LogItem>, upto: u64) -> Vec<u64> {
    let mut found = Vec::new();
    while found.last().is_none_or(|last| *last < upto) {
        let next = timeout(PATIENCE, followed.recv()).await.expect("in time");
        if let LogItem::Event(recorded) = next.expect("goes on") {
            found.push(recorded.sequence.0);
        }
    }
    found
}

async fn agent(secured: &Secured) -> Log {
    let settings = Settings {
        reader: Some(READER.to_owned()),
        ..secured.settings(READER)
    };
    Log::connect(&settings).await.expect("connects")
}

async fn messages(operator: &Client) -> [u64; 3] {
    let jetstream = async_nats::jetstream::new(operator.clone());
    let mut counts = [0; 3];
    let streams = ["DORMOUSE_IN", "DORMOUSE_LOG", "KV_dormouse_leases"];
    for (count, name) in counts.iter_mut().zip(streams) {
        let stream = jetstream.get_stream_no_info(name).await.expect("there");
        *count = stream.get_info().await.expect("answered").state.messages;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_follows_the_log_through_the_reader_made_for_it() {
    for form in [Form::File, Form::Claims] {
        follows(&Secured::start_as(form).await).await;
    }
}

async fn follows(secured: &Secured) {
    let operator = secured.log("operator").await;
    operator
        .ensure_readers(&[READER.to_owned()])
        .await
        .expect("made");
    drain(&operator, 40).await;
    let agent = agent(secured).await;
    let mut followed = agent.follow(Sequence(1));
    assert_eq!(sequences(&mut followed, 40).await, Vec::from_iter(1..=40));
    drain(&operator, 2).await;
    assert_eq!(sequences(&mut followed, 42).await, [41, 42]);
    drop(followed);
    // A follower may start where a snapshot ends.
    let mut again = agent.follow(Sequence(31));
    assert_eq!(sequences(&mut again, 42).await, Vec::from_iter(31..=42));
    let exited: ContainerExited = serde_json::from_value(serde_json::json!({
        "container": "ads/lr/1/0", "node": "n0",
        "exit_code": 0, "out_of_memory": false,
    }))
    .expect("valid");
    let node = NodeId::new("n0").expect("valid");
    let mut facts = agent.appender(Writer::Node, Some(node));
    let stored = facts.append(Event::from(exited), &[]).await;
    assert_eq!(stored.expect("appended"), Sequence(43));
    assert_eq!(sequences(&mut again, 43).await, [43]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_an_agents_key_asks_for_is_delivered_to_anybody_else() {
    for form in [Form::File, Form::Claims] {
        asks(&Secured::start_as(form).await).await;
    }
}

async fn asks(secured: &Secured) {
    let operator = secured.log("operator").await;
    operator
        .ensure_readers(&[READER.to_owned()])
        .await
        .expect("made");
    drain(&operator, 5).await;
    let (asker, _) = secured.client("operator").await;
    let before = messages(&asker).await;
    let (agent, _) = secured.client(READER).await;
    for target in TARGETS {
        let asks = [
            ("dormouse.js.STREAM.MSG.GET.DORMOUSE_LOG", r#"{"seq":3}"#),
            ("dormouse.js.DIRECT.GET.DORMOUSE_LOG", r#"{"seq":3}"#),
            ("dormouse.js.CONSUMER.MSG.NEXT.DORMOUSE_LOG.node-n0", "3"),
            (
                "dormouse.js.CONSUMER.RESET.DORMOUSE_LOG.node-n0",
                r#"{"seq":1}"#,
            ),
            ("dormouse.js.STREAM.INFO.DORMOUSE_LOG", ""),
        ];
        for (subject, payload) in asks {
            let sent = agent.publish_with_reply(subject, target, payload.into());
            sent.await.expect("sent");
        }
        // A push consumer that would deliver to the target.
        for api in ["$JS.API", "dormouse.js"] {
            let config = format!(
                r#"{{"stream_name":"DORMOUSE_LOG","config":{{"name":"x","deliver_subject":"{target}","ack_policy":"none"}}}}"#
            );
            let subject = format!("{api}.CONSUMER.CREATE.DORMOUSE_LOG.x");
            let inbox = agent.new_inbox();
            let sent = agent.publish_with_reply(subject, inbox, config.into());
            sent.await.expect("sent");
        }
    }
    agent.flush().await.expect("flushed");
    // The answer is ordered after all attempts.
    let answer = agent.request("dormouse.js.STREAM.INFO.DORMOUSE_LOG", "".into());
    answer.await.expect("answered");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(messages(&asker).await, before);
    let jetstream = async_nats::jetstream::new(asker);
    let log = jetstream.get_stream("DORMOUSE_LOG").await.expect("there");
    let made = log.get_consumer::<pull::Config>("x").await;
    assert!(made.is_err(), "a consumer was made");
}

async fn publish(client: &Client, subject: &str, id: Option<&str>) -> serde_json::Value {
    let mut headers = HeaderMap::new();
    if let Some(id) = id {
        headers.insert("Nats-Msg-Id", id);
    }
    let answer = client.request_with_headers(subject.to_owned(), headers, "{}".into());
    let answer = timeout(PATIENCE, answer).await.expect("in time");
    serde_json::from_slice(&answer.expect("answered").payload).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_one_tenant_chose_makes_no_duplicate_of_anothers() {
    let secured = Secured::start().await;
    for (number, tenant) in (1..).zip(["ads", "search", "ads"]) {
        let (client, _) = secured.client(&format!("tenant-{tenant}")).await;
        let subject = format!("dormouse.in.{tenant}.submit");
        let stored = publish(&client, &subject, Some("the-same")).await;
        assert_eq!(stored["seq"], number, "{stored}");
        assert_eq!(stored["duplicate"], serde_json::Value::Null, "{stored}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_of_one_tenant_is_bounded_and_the_others_go_on() {
    let secured = Secured::start().await;
    let (flood, _) = secured.client("tenant-ads").await;
    let (other, _) = secured.client("tenant-search").await;
    for _ in 0..2_100 {
        let sent = flood.publish("dormouse.in.ads.submit", "{}".into());
        sent.await.expect("sent");
    }
    let refused = publish(&flood, "dormouse.in.ads.submit", None).await;
    assert_eq!(refused["error"]["err_code"], 10_077, "{refused}");
    let stored = publish(&other, "dormouse.in.search.submit", None).await;
    assert_eq!(stored["seq"], 1_025, "{stored}");
    // Another verb would have a bound of its own.
    let answer = flood.request("dormouse.in.ads.another", "{}".into()).await;
    assert!(answer.is_err(), "{answer:?}");
}
