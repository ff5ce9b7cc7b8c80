//! A tenant's events, posted and signed, retried, in order per job, and as JSON over the broker. CloudEvents'
//! libraries of two languages read them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine;
use dormouse_webhook::Secret;
use futures::StreamExt;
use serde_json::Value;

use crate::clients::{skipped, tools};
use crate::common::{Cluster, PATIENCE, count_job, poll, root};

#[derive(Clone)]
struct Post {
    headers: BTreeMap<String, String>,
    body: String,
    taken: bool,
}

const REFUSED: usize = 4;

fn receiver() -> (String, Arc<Mutex<Vec<Post>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let posts = Arc::new(Mutex::new(Vec::new()));
    let (received, refused) = (Arc::clone(&posts), Arc::new(Mutex::new(BTreeSet::new())));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (received, refused) = (Arc::clone(&received), Arc::clone(&refused));
            std::thread::spawn(move || {
                let mut answers = stream.try_clone().expect("cloned");
                let mut reader = BufReader::new(stream);
                while let Some((headers, body)) = request(&mut reader) {
                    let id = headers["webhook-id"].clone();
                    let mut refused = refused.lock().expect("unpoisoned");
                    let taken = refused.len() >= REFUSED || !refused.insert(id);
                    drop(refused);
                    let status = if taken {
                        "204 No Content"
                    } else {
                        "503 Not Now"
                    };
                    let post = Post {
                        headers,
                        body,
                        taken,
                    };
                    received.lock().expect("unpoisoned").push(post);
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    if answers.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, posts)
}

fn request(reader: &mut impl BufRead) -> Option<(BTreeMap<String, String>, String)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((headers, String::from_utf8(body).ok()?))
}

fn secret_of(text: &str) -> Secret {
    let text = text.strip_prefix("whsec_").expect("a webhook's secret");
    let engine = base64::engine::general_purpose::STANDARD;
    let bytes = engine.decode(text).expect("base64");
    Secret::new(bytes.try_into().expect("32 bytes"))
}

async fn mirrored(url: String, into: Arc<Mutex<Vec<String>>>) {
    let client = async_nats::connect(url).await.expect("connects");
    let subject = "dormouse.status.ads._json.>";
    let mut messages = client.subscribe(subject).await.expect("subscribes");
    client.flush().await.expect("flushed");
    while let Some(message) = messages.next().await {
        let headers = message.headers.expect("headers");
        assert_eq!(
            headers.get("content-type").expect("one").as_str(),
            "application/cloudevents+json"
        );
        let text = String::from_utf8(message.payload.to_vec()).expect("UTF-8");
        into.lock().expect("unpoisoned").push(text);
    }
}

#[test]
fn a_tenants_events_are_posted_signed_again_and_in_order() {
    let mut cluster = Cluster::new();
    cluster.env("DORMOUSE_JSON_STATUS", "true");
    cluster.start_up(1, "cpu=2,memory=4Gi");
    let file = cluster.dir().join("gateway.secret");
    std::fs::write(&file, "5f".repeat(32)).expect("written");
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("set");
    let file = file.to_str().expect("UTF-8").to_owned();
    let (url, posts) = receiver();
    let json = Arc::new(Mutex::new(Vec::new()));
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    runtime.spawn(mirrored(cluster.url(), Arc::clone(&json)));

    assert_eq!(
        cluster
            .run(&["webhook", "set", "ads", "ftp://example.org"])
            .code,
        1
    );
    assert_eq!(cluster.run(&["webhook", "set", "ads", &url]).code, 0);
    assert_eq!(cluster.run(&["webhook", "list"]).json()["ads"], url);
    let dir = cluster.dir().to_path_buf();
    let args = ["serve", "webhook", "--secret", &file];
    cluster.start("webhook", &args, &dir);
    for job in ["a", "b"] {
        assert_ne!(cluster.submit(&count_job(job, 5, (1, 1), &[])).code, 1);
    }
    cluster.wait_completed("ads/a");
    cluster.wait_completed("ads/b");

    let taken = || {
        let posts = posts.lock().expect("unpoisoned").clone();
        posts
            .into_iter()
            .filter(|post| post.taken)
            .collect::<Vec<_>>()
    };
    let ended = poll("the ends of both jobs", PATIENCE, || {
        let taken = taken();
        let ends = taken.iter().filter(|post| {
            let event: Value = serde_json::from_str(&post.body).expect("JSON");
            event["type"] == "dormouse.job.completed.v1"
        });
        (ends.count() == 2).then_some(taken)
    });
    let said = cluster.run(&["webhook", "secret", "ads", "--secret", &file]);
    let secret = secret_of(said.json()["secret"].as_str().expect("a text"));
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut bodies = Vec::new();
    for post in &ended {
        let header = |name: &str| post.headers[name].as_str();
        let time = header("webhook-timestamp").parse().expect("seconds");
        let signature = secret.sign(header("webhook-id"), time, post.body.as_bytes());
        assert_eq!(header("webhook-signature"), signature);
        let event: Value = serde_json::from_str(&post.body).expect("JSON");
        let sequence = event["sequence"].as_str().expect("a text");
        let sequence: u64 = sequence.parse().expect("a number");
        let job = header("webhook-id").rsplit('.').next().expect("a job");
        let before = last.insert(job.to_owned(), sequence).unwrap_or(0);
        assert!(before < sequence, "{job}: {before}, then {sequence}");
        bodies.push(post.body.clone());
    }
    let refused = posts.lock().expect("unpoisoned").len() - ended.len();
    assert_eq!(refused, REFUSED, "each of these came again");
    bodies.extend(json.lock().expect("unpoisoned").clone());
    assert!(bodies.len() > 2 * ended.len() - 4, "the same in JSON");
    read_by_others(&cluster, &bodies);
    assert_eq!(cluster.run(&["webhook", "remove", "ads"]).code, 0);
    cluster.check();
}

fn read_by_others(cluster: &Cluster, bodies: &[String]) {
    let file = cluster.dir().join("cloudevents.jsonl");
    std::fs::write(&file, bodies.join("\n") + "\n").expect("written");
    let expected: Vec<String> = bodies
        .iter()
        .map(|body| {
            let event: Value = serde_json::from_str(body).expect("JSON");
            let text = |field: &str| event[field].as_str().expect("a text").to_owned();
            format!("{} {} {}", text("type"), text("id"), text("sequence"))
        })
        .collect();
    let clients = root().join("messages/clients");
    let python = tools().join("python/bin/python3");
    let readers = [
        (python, clients.join("python/read_cloudevents.py")),
        (
            "node".into(),
            clients.join("typescript/read_cloudevents.mjs"),
        ),
    ];
    for (program, script) in readers {
        let ran = Command::new(&program).arg(&script).arg(&file).output();
        let Ok(ran) = ran else {
            skipped(&format!(
                "no {}; run scripts/install.sh clients",
                program.display()
            ));
            continue;
        };
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{}: {errors}", script.display());
        let said = String::from_utf8_lossy(&ran.stdout);
        let read: Vec<&str> = said.lines().collect();
        assert_eq!(read, expected, "{}", script.display());
    }
}
