//! Three copies of the query service and of the gateway share the work.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Cluster, PATIENCE, free_port, poll};
use async_nats::service::Stats;
use dormouse_messages::Event;
use dormouse_runtime::{Log, Settings};
use futures::StreamExt;
use serde_json::{Value, json};

const COPIES: usize = 3;
const QUERIES: usize = 300;
const REQUESTS: u64 = 20;

async fn answered(url: &str) -> BTreeMap<String, usize> {
    let client = async_nats::connect(url).await.expect("connects");
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.expect("subscribes");
    let asked = client.publish_with_reply("$SRV.STATS.dormouse-api", inbox, "".into());
    asked.await.expect("asked");
    let mut counts = BTreeMap::new();
    while let Ok(Some(reply)) = tokio::time::timeout(Duration::from_secs(2), replies.next()).await {
        let stats: Stats = serde_json::from_slice(&reply.payload).expect("as NATS says");
        let jobs = stats.endpoints.iter().find(|it| it.name == "jobs");
        counts.insert(stats.id, jobs.map_or(0, |it| it.requests));
        if counts.len() == COPIES {
            break;
        }
    }
    counts
}

#[test]
fn three_copies_of_the_query_service_share_the_queries() {
    let mut cluster = Cluster::up(1, "cpu=1,memory=1Gi");
    let (dir, url) = (cluster.dir().to_path_buf(), cluster.url());
    for copy in 1..COPIES {
        let name = format!("api-{copy}");
        let args = ["serve", "api", "--server", &url];
        cluster.start(&name, &args, &dir.join(&name));
    }
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let counts = || runtime.block_on(answered(&url));
    poll("the copies", PATIENCE, || {
        (counts().len() == COPIES).then_some(())
    });
    let before: usize = counts().values().sum();
    runtime.block_on(async {
        let settings = Settings::new(url.clone(), "test");
        let log = Log::connect(&settings).await.expect("connects");
        for _ in 0..QUERIES {
            let answer = log.request("jobs", Vec::new()).await.expect("answered");
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            assert_eq!(answer["jobs"], json!([]));
        }
    });
    let after = counts();
    println!("answered: {after:?}");
    assert_eq!(after.values().sum::<usize>(), before + QUERIES);
    // The broker chooses at random: about a third each.
    let least = after.values().min().expect("three");
    assert!(*least >= QUERIES / COPIES / 2, "{after:?}");
}

fn status(address: &str, path: &str) -> Option<String> {
    let address = address.replace("http://localhost", "127.0.0.1");
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).ok()?;
    let asked = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split(' ').nth(1)?.to_owned())
}

#[test]
fn three_gateways_lead_to_the_same_replicas() {
    let mut cluster = Cluster::up(1, "cpu=2,memory=2Gi");
    let (dir, url) = (cluster.dir().to_path_buf(), cluster.url());
    for name in ["g1", "g2"] {
        let listen = format!("127.0.0.1:{}", free_port());
        let args = [
            "serve", "gateway", "--name", name, "--server", &url, "--listen", &listen,
        ];
        cluster.start(name, &args, &dir.join(name));
    }
    let start = ["python3", "deploy/examples/serve.py", "--work-ms", "1"];
    cluster.submit(&json!({
        "name": "line", "tenant": "ads", "kind": "inference", "command": {"start": start},
        "demand": {"cpu": 1, "memory": "64Mi"}, "containers": {"min": 1, "max": 1},
        "service": {"ready": {"path": "/healthz"}, "access": "open"},
    }));
    let gateways = poll("the gateways", PATIENCE, || {
        let log = cluster.log();
        let joined = log.iter().filter_map(|recorded| match recorded.event()? {
            Event::GatewayJoined(it) => Some((it.gateway.to_string(), it.address.clone())),
            _ => None,
        });
        let joined: BTreeMap<String, String> = joined.collect();
        (joined.len() == COPIES).then_some(joined)
    });
    for address in gateways.values() {
        poll("the replica", PATIENCE, || {
            (status(address, "/ads/line/predict?x=2")? == "200").then_some(())
        });
    }
    for address in gateways.values() {
        for _ in 0..REQUESTS {
            assert_eq!(
                status(address, "/ads/line/predict?x=2").as_deref(),
                Some("200")
            );
        }
    }
    let led = poll("what the gateways tell", PATIENCE, || {
        let mut led = BTreeMap::<String, u64>::new();
        for recorded in cluster.log() {
            if let Some(Event::ServiceMeasured(it)) = recorded.event() {
                *led.entry(it.gateway.to_string()).or_default() += it.requests;
            }
        }
        let all = led.len() == COPIES && led.values().all(|it| *it > REQUESTS);
        all.then_some(led)
    });
    println!("led: {led:?}");
}
