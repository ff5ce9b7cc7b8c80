//! Invalid requests and their answers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::replica::Replica;
use crate::common::world::{Connection, Running, World, get, until};

async fn one(concurrency: u32) -> (World, Running, Replica) {
    let mut world = World::start().await;
    let job = world.service("ads/model", concurrency).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let gateway = world
        .gateway_with("g0", |it| it.wait = Duration::from_millis(700))
        .await;
    assert_eq!(get(gateway.address, "/ads/model/").await.0, 200);
    (world, gateway, replica)
}

/// Returns the start of the answer.
async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let _ = stream.write_all(bytes).await;
    let mut back = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut back)).await;
    let read = read.expect("an answer").unwrap_or(0);
    String::from_utf8_lossy(&back[..read]).into_owned()
}

#[tokio::test]
async fn each_malformed_request_has_its_answer_and_none_reaches_the_replica() {
    let (_world, gateway, replica) = one(4).await;
    let before = replica.began();
    let long = "a".repeat(100_000);
    let many: String = (0..300).map(|index| format!("x-{index}: y\r\n")).collect();
    let cases: [(String, &str); 13] = [
        ("GET /ads/model/ HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET /ads/model/ HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned(), "400"),
        ("GET /ads/model/ HTTP/1.1\r\nhost: a b\r\n\r\n".to_owned(), "400"),
        ("GET /ads/model/\x01 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "400"),
        ("GET /ads/model/ HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n".to_owned(), "400"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(), "400"),
        (format!("GET /ads/model/ HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"), "431"),
        (format!("GET /ads/model/ HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"), "431"),
        (format!("GET /ads/model/{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"), "4"),
        ("CONNECT evil.example.org:443 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "405"),
        ("GET /ads/model/ HTTP/1.1\r\nhost: evil.example.org\r\n\r\n".to_owned(), "421"),
        ("GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "404"),
        (
            "POST /ads/model/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabc".to_owned(),
            "400",
        ),
    ];
    for (bytes, status) in cases {
        let said = raw(gateway.address, bytes.as_bytes()).await;
        let asked: String = bytes.chars().take(60).collect();
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status}")),
            "{asked:?}: {said:?}"
        );
    }
    assert_eq!(replica.began(), before);
}

#[tokio::test]
async fn a_second_request_cannot_be_smuggled_in_a_body() {
    let (_world, gateway, replica) = one(4).await;
    let before = replica.began();
    let smuggled = "POST /ads/model/back HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\nGET /ads/model/admin HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let _ = raw(gateway.address, smuggled.as_bytes()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(
        replica.began() <= before + 1,
        "the body was taken for a request"
    );
}

#[tokio::test]
async fn a_flood_is_bounded_and_shed_in_words_and_the_rest_is_answered() {
    let (_world, gateway, replica) = one(1).await;
    let address = gateway.address;
    let flood: Vec<_> = (0..1_300)
        .map(|_| {
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                connection
                    .get("/ads/model/slow/20")
                    .await
                    .expect("an answer")
                    .0
            })
        })
        .collect();
    let mut counts = std::collections::BTreeMap::new();
    for asked in flood {
        *counts.entry(asked.await.expect("no panic")).or_insert(0) += 1;
    }
    println!("{counts:?}");
    assert!(counts[&200] >= 10 && counts[&503] > 0, "{counts:?}");
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert_eq!(
        replica.seen.most.load(std::sync::atomic::Ordering::SeqCst),
        1
    );
    assert_eq!(get(address, "/ads/model/").await.0, 200);
}

#[tokio::test]
async fn slow_heads_hold_up_nobody_else() {
    let (_world, gateway, replica) = one(1).await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(gateway.address).await.expect("connects");
        let _ = stream
            .write_all(b"GET /ads/model/ HTTP/1.1\r\nhost: loc")
            .await;
        slow.push(stream);
    }
    assert_eq!(get(gateway.address, "/ads/model/").await.0, 200);
    drop(slow);
    // An abandoned upload frees its replica.
    let mut stream = TcpStream::connect(gateway.address).await.expect("connects");
    let half =
        b"POST /ads/model/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf";
    stream.write_all(half).await.expect("written");
    until("the upload's beginning", || replica.inside() == 1).await;
    drop(stream);
    until("the replica's freedom", || replica.inside() == 0).await;
    assert_eq!(get(gateway.address, "/ads/model/").await.0, 200);
}
