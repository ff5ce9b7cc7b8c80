//! Attempts to act under another person's name, on a real broker with accounts.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap};
use dormouse_messages::events::{NodeDrained, NodeRestored};
use dormouse_messages::{Envelope, Event, NodeId, Recorded, Sequence, Timestamp, Writer};
use dormouse_runtime::{Log, LogItem};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::accounts::{Form, Secured};
use crate::common::PATIENCE;

fn node() -> NodeId {
    "n0".parse().expect("valid")
}

fn drained() -> Event {
    Event::from(NodeDrained {
        node: node(),
        reason: None,
        deadline_s: None,
    })
}

/// Headers that claim another identity.
fn forging() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("by", "bob"),
        (
            "Nats-Request-Info",
            r#"{"user":"bob","acc":"tenant-search"}"#,
        ),
        ("Nats-Subject", "dormouse.in.ads.submit.submitter.bob"),
    ] {
        headers.insert(name, value);
    }
    headers
}

/// Returns the ingress sequence.
async fn ask(client: &Client, subject: &str) -> u64 {
    let payload = r#"{"name":"a","by":{"user":"bob","role":"operator"}}"#;
    let asked = client.request_with_headers(subject.to_owned(), forging(), payload.into());
    let answer = timeout(PATIENCE, asked).await.expect("in time");
    let answer = answer.expect("stored").payload;
    let stored: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    stored["seq"].as_u64().expect("a place")
}

/// Returns the broker's report of the denial.
async fn denied(secured: &Secured, user: &str, subject: &str) -> String {
    let (client, mut reports) = secured.client(user).await;
    client
        .publish(subject.to_owned(), "{}".into())
        .await
        .expect("sent");
    let report = timeout(PATIENCE, reports.recv()).await.expect("in time");
    report.expect("connected")
}

async fn next(followed: &mut Receiver<LogItem>) -> LogItem {
    loop {
        let next = timeout(PATIENCE, followed.recv()).await.expect("in time");
        match next.expect("goes on") {
            LogItem::CaughtUp(_) => {}
            other => return other,
        }
    }
}

async fn event(followed: &mut Receiver<LogItem>) -> Arc<Recorded> {
    match next(followed).await {
        LogItem::Event(recorded) => recorded,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_is_stored_under_the_name_of_the_key_that_sent_it() {
    for form in [Form::File, Form::Claims] {
        submits(&Secured::start_as(form).await).await;
    }
}

async fn submits(secured: &Secured) {
    let (alice, _) = secured.client("user-ads.alice").await;
    let (olga, _) = secured.client("operator-olga").await;
    let (plain, _) = secured.client("tenant-ads").await;
    // One subject for all: only the broker knows the person.
    for (client, verb, expected) in [
        (&alice, "submit", "dormouse.in.ads.submit.submitter.alice"),
        (&alice, "cancel", "dormouse.in.ads.cancel.submitter.alice"),
        (&olga, "revise", "dormouse.in.ads.revise.operator.olga"),
        (&plain, "submit", "dormouse.in.ads.submit"),
    ] {
        let place = ask(client, &format!("dormouse.in.ads.{verb}")).await;
        let (owner, _) = secured.client("operator").await;
        let stream = async_nats::jetstream::new(owner);
        let stream = stream
            .get_stream_no_info("DORMOUSE_IN")
            .await
            .expect("there");
        let stored = stream.get_raw_message(place).await.expect("stored");
        assert_eq!(stored.subject.as_str(), expected);
    }
    for user in [
        "user-ads.alice",
        "user-ads.vera",
        "tenant-ads",
        "operator-otto",
        "operator",
        "api",
    ] {
        for subject in [
            "dormouse.in.ads.submit.submitter.alice",
            "dormouse.in.ads.submit.operator.olga",
        ] {
            let report = denied(secured, user, subject).await;
            assert!(report.contains(subject), "{user}: {report}");
        }
    }
    for (user, subject) in [
        ("user-ads.vera", "dormouse.in.ads.submit"),
        ("user-ads.alice", "dormouse.in.search.submit"),
        ("user-ads.alice", "dormouse.log.operator.0.node.drained"),
    ] {
        let report = denied(secured, user, subject).await;
        assert!(report.contains(subject), "{user}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_event_names_the_operator_whose_key_wrote_it() {
    for form in [Form::File, Form::Claims] {
        operates(&Secured::start_as(form).await).await;
    }
}

async fn operates(secured: &Secured) {
    let owner = secured.log("operator").await;
    let olga = secured.log("operator-olga").await;
    let mut followed = olga.follow(Sequence(1));
    let mut plain = owner.appender(Writer::Operator, None);
    plain.append(drained(), &[]).await.expect("appended");
    assert_eq!(event(&mut followed).await.by(), None);
    let mut by_olga = olga.appender(Writer::Operator, None);
    let stored = by_olga.append(drained(), &[]).await.expect("appended");
    assert_eq!(stored, Sequence(2));
    let recorded = event(&mut followed).await;
    assert_eq!(
        recorded.by().map(|by| by.to_string()),
        Some("operator olga".to_owned())
    );
    let mut by_otto = secured
        .log("operator-otto")
        .await
        .appender(Writer::Operator, None);
    by_otto.append(drained(), &[]).await.expect("appended");
    plain
        .append(drained(), &[])
        .await
        .expect("appended after another's");
    let names = [
        event(&mut followed).await.by(),
        event(&mut followed).await.by(),
    ];
    assert_eq!(
        names.map(|by| by.map(|by| by.user)),
        [Some("otto".to_owned()), None]
    );
    // A forged name under her own subject is flagged.
    let restored = Event::from(NodeRestored { node: node() });
    let mut envelope = Envelope::new("x", Writer::Operator, Timestamp::default(), None, restored);
    envelope.source = "/dormouse/operator/otto".into();
    let payload = envelope.to_msgpack().expect("encodes");
    let (client, _) = secured.client("operator-olga").await;
    let sent = client.request("dormouse.log.operator.0.node.restored", payload.into());
    sent.await.expect("stored");
    match next(&mut followed).await {
        LogItem::Flagged { sequence, why, .. } => {
            assert_eq!(sequence, Sequence(5));
            assert!(why.contains("operator") && why.contains("olga"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    for subject in [
        "dormouse.log.operator.otto.node.drained",
        "dormouse.log.operator.olga.node.drained",
        "dormouse.log.placer.0.node.lost",
    ] {
        let report = denied(secured, "operator-olga", subject).await;
        assert!(report.contains(subject), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_an_operators_key_asks_for_is_delivered_to_the_log() {
    for form in [Form::File, Form::Claims] {
        asks(&Secured::start_as(form).await).await;
    }
}

async fn asks(secured: &Secured) {
    let olga = secured.log("operator-olga").await;
    let mut operator = olga.appender(Writer::Operator, None);
    operator.append(drained(), &[]).await.expect("appended");
    let (client, _) = secured.client("operator-olga").await;
    for target in [
        "dormouse.log.operator.otto.node.drained",
        "dormouse.log.operator.0.node.drained",
        "dormouse.in.ads.submit.submitter.alice",
    ] {
        for (subject, payload) in [
            (
                "dormouse.js.DIRECT.GET.DORMOUSE_LOG",
                r#"{"seq":1,"batch":10}"#,
            ),
            ("dormouse.js.STREAM.MSG.GET.DORMOUSE_LOG", r#"{"seq":1}"#),
            ("dormouse.js.STREAM.INFO.DORMOUSE_LOG", ""),
            ("dormouse.in.ads.submit", "{}"),
        ] {
            let sent = client.publish_with_reply(subject, target, payload.into());
            sent.await.expect("sent");
        }
        let config = format!(
            r#"{{"stream_name":"DORMOUSE_LOG","config":{{"name":"x","deliver_subject":"{target}","ack_policy":"none"}}}}"#
        );
        for api in ["$JS.API", "dormouse.js"] {
            let subject = format!("{api}.CONSUMER.CREATE.DORMOUSE_LOG.x");
            client
                .publish(subject, config.clone().into())
                .await
                .expect("sent");
        }
    }
    // Ordered after all attempts: one event, and the regular submissions.
    client.flush().await.expect("flushed");
    assert_eq!(olga.head().await.expect("answered"), Sequence(1));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(olga.head().await.expect("answered"), Sequence(1));
    let (owner, _) = secured.client("operator").await;
    let jetstream = async_nats::jetstream::new(owner);
    let stream = jetstream
        .get_stream_no_info("DORMOUSE_IN")
        .await
        .expect("there");
    let info = stream.info_with_subjects(">").await;
    let subjects = info.expect("answered");
    use futures::TryStreamExt;
    let subjects: Vec<(String, usize)> = subjects.try_collect().await.expect("all");
    assert_eq!(
        subjects,
        [("dormouse.in.ads.submit.operator.olga".to_owned(), 3)]
    );
}

async fn sequences(log: &Log, from: u64, upto: u64) -> Vec<u64> {
    let mut followed = log.follow(Sequence(from));
    let mut found = Vec::new();
    while found.last().is_none_or(|last| *last < upto) {
        found.push(event(&mut followed).await.sequence.0);
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_reads_a_long_log_by_ranges() {
    let secured = Secured::start().await;
    let owner = secured.log("operator").await;
    let mut plain = owner.appender(Writer::Operator, None);
    for _ in 0..2_300 {
        plain.append(drained(), &[]).await.expect("appended");
    }
    let olga = secured.log("operator-olga").await;
    assert_eq!(sequences(&olga, 1, 2_300).await, Vec::from_iter(1..=2_300));
    let again = secured.log("operator-olga").await;
    let (first, second) = tokio::join!(
        sequences(&olga, 500, 2_300),
        sequences(&again, 1_100, 2_300)
    );
    assert_eq!(first, Vec::from_iter(500..=2_300));
    assert_eq!(second, Vec::from_iter(1_100..=2_300));
    let mut read = olga
        .read(Sequence(10), Sequence(1_200))
        .await
        .expect("reads");
    let mut count = 0;
    while let Some(item) = read.recv().await {
        count += usize::from(matches!(item, LogItem::Event(_)));
    }
    assert_eq!(count, 1_191);
}
