//! Limits of tenants' and persons' accounts: connections, subscriptions, message length.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use dormouse_messages::TenantId;
use dormouse_runtime::LogError;
use tokio::time::timeout;

use crate::accounts::{Form, Secured};
use crate::common::PATIENCE;

/// A person's limit; a tenant's key has four times as many.
const CONNECTIONS: usize = 64;
const SUBSCRIPTIONS: usize = 1_000;
const PAYLOAD_BYTES: usize = 2 << 20;

const LOOK: Duration = Duration::from_millis(50);

/// A client that does not reconnect.
async fn once(secured: &Secured, user: &str, form: Form) -> Result<Client, async_nats::Error> {
    let key = std::fs::read_to_string(secured.key(user)).expect("a key");
    let options = match form {
        Form::File => ConnectOptions::with_nkey(key.trim().to_owned()),
        Form::Claims => ConnectOptions::with_credentials(&key)?,
    };
    Ok(options.max_reconnects(1).connect(secured.url()).await?)
}

async fn bounded(form: Form) {
    let secured = Secured::start_as(form).await;
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let client = once(&secured, "user-ads.alice", form).await;
        clients.push(client.unwrap_or_else(|error| panic!("{form:?}, {number}: {error}")));
    }
    let more = once(&secured, "user-ads.alice", form).await;
    assert!(more.is_err(), "{form:?}: one more than it may have");
    let mut others = Vec::new();
    for user in ["user-ads.vera", "tenant-ads", "tenant-search", "node-n0"] {
        others.push(once(&secured, user, form).await.expect("connects"));
    }
    for _ in 0..=CONNECTIONS {
        others.push(
            once(&secured, "operator-olga", form)
                .await
                .expect("connects"),
        );
    }
    clients.clear();

    let (client, mut reports) = secured.client("tenant-ads").await;
    let mut subscriptions = Vec::new();
    for number in 0..=SUBSCRIPTIONS {
        let subject = format!("_INBOX.{number}");
        subscriptions.push(client.subscribe(subject).await.expect("asked"));
    }
    let report = timeout(PATIENCE, reports.recv()).await.expect("in time");
    let report = report.expect("connected").to_lowercase();
    assert!(
        report.contains("maximum subscriptions"),
        "{form:?}: {report}"
    );

    too_long(&secured, form).await;
}

/// The broker closes the connection after an oversized message.
async fn too_long(secured: &Secured, form: Form) {
    let subject = "dormouse.in.ads.submit";
    let long = Bytes::from(vec![b' '; PAYLOAD_BYTES + 1]);
    for user in ["tenant-ads", "user-ads.alice"] {
        let (client, mut reports) = secured.client(user).await;
        let sent = client.publish(subject, long.clone()).await;
        sent.expect("its client does not know");
        // The broker reports and disconnects; a client that still sends may see only the second.
        let connects = || client.statistics().connects.load(Ordering::Relaxed);
        let is_over = async {
            loop {
                match timeout(LOOK, reports.recv()).await {
                    Ok(report) => {
                        let report = report.expect("connected").to_lowercase();
                        break assert!(report.contains("maximum payload"), "{user}: {report}");
                    }
                    Err(_) if connects() > 1 => break,
                    Err(_) => {}
                }
            }
        };
        timeout(PATIENCE, is_over).await.expect("in time");
    }
    let operator = secured.log("operator").await;
    let tenant = TenantId::new("ads").expect("valid");
    let refused = operator
        .publish_ingress(&tenant, "submit", "", long.clone())
        .await;
    assert!(
        matches!(refused, Err(LogError::TooLarge { .. })),
        "{refused:?}"
    );
    let (client, mut reports) = secured.client("operator").await;
    client.publish(subject, long).await.expect("sent");
    client.flush().await.expect("still there");
    assert!(reports.try_recv().is_err(), "{form:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_of_a_file_of_accounts_takes_no_more_than_it_may() {
    bounded(Form::File).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_of_accounts_by_claims_takes_no_more_than_it_may() {
    bounded(Form::Claims).await;
}
