//! Requests through a real gateway to real servers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse_gateway::{Key, Trust};
use dormouse_messages::job::Kind;
use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::replica::Replica;
use crate::common::world::{Connection, Running, World, get, read, until, until_status};

async fn one(concurrency: u32) -> (World, Running, Replica) {
    let mut world = World::start().await;
    let job = world.service("ads/model", concurrency).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let gateway = world.gateway("g0").await;
    (world, gateway, replica)
}

#[tokio::test]
async fn a_request_is_passed_without_its_prefix_and_connections_are_kept() {
    let (_world, gateway, replica) = one(4).await;
    let mut connection = Connection::open(gateway.address).await;
    for _ in 0..20 {
        let (status, seen) = connection
            .get("/ads/model/v1/it?q=1")
            .await
            .expect("an answer");
        assert_eq!(status, 200, "{seen}");
        assert!(seen.starts_with("GET /v1/it?q=1\n"), "{seen}");
        assert!(seen.contains("x-forwarded-prefix: /ads/model"), "{seen}");
    }
    assert_eq!(replica.began(), 20);
    assert_eq!(replica.seen.connections.load(Ordering::SeqCst), 1);
    connection.host = "model.ads.localhost:8080".to_owned();
    let (_, seen) = connection.get("/v1/it").await.expect("an answer");
    assert!(seen.starts_with("GET /v1/it\n"), "{seen}");
    assert!(!seen.contains("prefix"), "{seen}");
    assert!(seen.contains("host: model.ads.localhost:8080"), "{seen}");
    for (host, cookies) in [("model.ads.localhost", 1), ("localhost", 0)] {
        let path = if cookies == 1 {
            "/cookie"
        } else {
            "/ads/model/cookie"
        };
        let request = Request::get(path).header("host", host);
        let request = request.body(Full::default()).expect("a request");
        let response = connection.send(request).await.expect("an answer");
        assert_eq!(
            response.headers().get_all("set-cookie").iter().count(),
            cookies
        );
        let _ = read(response).await;
    }
    let request = Request::get("/ads/model").header("host", "localhost");
    let request = request.body(Full::default()).expect("a request");
    let moved = connection.send(request).await.expect("an answer");
    assert_eq!(moved.status(), 308);
    assert_eq!(moved.headers()["location"], "/ads/model/");
}

#[tokio::test]
async fn an_upload_streams_through_in_chunks() {
    let (_world, gateway, _replica) = one(4).await;
    let stream = TcpStream::connect(gateway.address).await.expect("connects");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("a connection");
    tokio::spawn(connection);
    let chunks = futures::stream::iter((0..640).map(|_| {
        let chunk = Bytes::from(vec![b'x'; 16 * 1024]);
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(chunk))
    }));
    let request = Request::post("/ads/model/count").header("host", "localhost");
    let request = request.body(StreamBody::new(chunks)).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    assert_eq!(
        read(response).await.expect("read"),
        (200, (640 * 16 * 1024).to_string())
    );
}

#[tokio::test]
async fn events_arrive_one_by_one_and_hold_their_place_until_the_end() {
    let (mut world, gateway, replica) = one(1).await;
    let mut connection = Connection::open(gateway.address).await;
    let request = Request::get("/ads/model/sse/10").header("host", "localhost");
    let request = request.body(Full::default()).expect("a request");
    let mut body = connection
        .send(request)
        .await
        .expect("an answer")
        .into_body();
    let mut times = Vec::new();
    let began = Instant::now();
    let mut other = None;
    while let Some(frame) = body.frame().await {
        frame.expect("an event");
        times.push(began.elapsed());
        if other.is_none() {
            // Concurrency one: the request waits for the end of the stream.
            other = Some(tokio::spawn(get(gateway.address, "/ads/model/")));
        }
    }
    assert_eq!(times.len(), 10);
    let spread = times[9] - times[0];
    assert!(spread >= Duration::from_millis(150), "gathered: {spread:?}");
    let (status, _) = other.expect("asked").await.expect("no panic");
    assert_eq!(status, 200);
    assert_eq!(replica.seen.most.load(Ordering::SeqCst), 1);
    let _ = &mut world;
}

/// A raw WebSocket, which the gateway does not parse.
pub async fn websocket(gateway: &Running, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.expect("connects");
    let asked = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("upgrade: websocket"), "{head}");
    stream
}

pub async fn echo(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    assert_eq!(back, text.as_bytes());
    Ok(())
}

#[tokio::test]
async fn a_websocket_passes_both_ways_and_its_end_reaches_the_replica() {
    let (_world, gateway, replica) = one(4).await;
    let mut stream = websocket(&gateway, "/ads/model/ws").await;
    for text in ["hello", "again"] {
        echo(&mut stream, text).await.expect("passed");
    }
    assert_eq!(replica.inside(), 1);
    drop(stream);
    until("the replica's end", || replica.inside() == 0).await;
}

#[tokio::test]
async fn http2_in_front_is_http1_at_the_replica() {
    let (_world, gateway, replica) = one(100).await;
    let stream = TcpStream::connect(gateway.address).await.expect("connects");
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.expect("a connection");
    tokio::spawn(connection);
    let ask = |path: &'static str| {
        let mut sender = sender.clone();
        async move {
            let request = Request::post(format!("http://localhost{path}"));
            let body = Full::new(Bytes::from_static(b"body"));
            let response = sender.send_request(request.body(body).expect("a request"));
            let (parts, body) = response.await.expect("an answer").into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            (parts.status.as_u16(), body)
        }
    };
    let all = futures::future::join_all((0..50).map(|_| ask("/ads/model/back"))).await;
    for (status, body) in all {
        assert_eq!((status, &body[..]), (200, &b"body"[..]));
    }
    let slow = (0..50).map(|_| ask("/ads/model/slow/50"));
    assert!(
        futures::future::join_all(slow)
            .await
            .iter()
            .all(|it| it.0 == 200)
    );
    let (_, seen) = ask("/ads/model/").await;
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(seen.contains("host: localhost"), "{seen}");
    assert!(replica.seen.most.load(Ordering::SeqCst) > 1);
}

#[tokio::test]
async fn a_client_that_goes_away_frees_the_replica_within_100_ms() {
    let (_world, gateway, replica) = one(1).await;
    // The minimum excludes pauses of the machine.
    let mut soonest = BTreeMap::new();
    let paths = ["/ads/model/hang", "/ads/model/sse/100000"];
    for path in paths.into_iter().cycle().take(6) {
        let mut connection = Connection::open(gateway.address).await;
        let request = Request::get(path).header("host", "localhost");
        let request = request.body(Full::default()).expect("a request");
        if path.ends_with("hang") {
            let sending = connection.send(request);
            let waited = tokio::time::timeout(Duration::from_millis(300), sending).await;
            assert!(waited.is_err());
        } else {
            let response = connection.send(request).await.expect("an answer");
            assert_eq!(response.status(), 200);
        }
        until("the request's arrival", || replica.inside() == 1).await;
        connection.cut();
        let cut = Instant::now();
        until("the replica's freedom", || replica.inside() == 0).await;
        let soonest = soonest.entry(path).or_insert(Duration::MAX);
        *soonest = (*soonest).min(cut.elapsed());
    }
    let late = |took: &Duration| *took > Duration::from_millis(100);
    assert!(!soonest.values().any(late), "{soonest:?}");
    assert_eq!(replica.seen.dropped.load(Ordering::SeqCst), 6);
    assert_eq!(get(gateway.address, "/ads/model/").await.0, 200);
}

#[tokio::test]
async fn a_request_waits_for_a_replica_that_starts_and_is_turned_away_in_words_if_none_comes() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 1).await;
    let gateway = world
        .gateway_with("g0", |it| it.wait = Duration::from_millis(1_500))
        .await;
    let mut connection = Connection::open(gateway.address).await;
    let request = Request::get("/ads/model/").header("host", "localhost");
    let request = request.body(Full::default()).expect("a request");
    let response = connection.send(request).await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
    assert!(
        read(response)
            .await
            .expect("read")
            .1
            .contains("\"starting\"")
    );
    let waiting = tokio::spawn(get(gateway.address, "/ads/model/"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    assert_eq!(waiting.await.expect("no panic").0, 200);
    assert_eq!(get(gateway.address, "/ads/other/").await.0, 404);
    world.append(crate::common::completed(&job)).await;
    until_status(gateway.address, "/ads/model/", 404).await;
}

#[tokio::test]
async fn a_replica_that_refuses_is_passed_over_and_a_killed_one_loses_only_what_may_not_be_repeated()
 {
    let (mut world, gateway, first) = one(4).await;
    let job = crate::common::job("ads/model");
    let second = Replica::start().await;
    world.add(&job, 1, &second).await;
    // The third replica's port is closed.
    let closed = Replica::start().await;
    closed.kill();
    world.place(&job, 2, closed.port()).await;
    until_status(gateway.address, "/ads/model/", 200).await;
    let mut asked = Vec::new();
    for index in 0..8 {
        let address = gateway.address;
        asked.push(tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            // Each gets four, with non-repeatable requests at the killed one.
            let posted = index % 4 != 0;
            let answer = if posted {
                connection.post("/ads/model/slow/500", "x").await
            } else {
                connection.get("/ads/model/slow/500").await
            };
            (posted, answer.expect("an answer").0)
        }));
    }
    until("all requests under way", || {
        first.inside() + second.inside() == 8
    })
    .await;
    let lost = first.inside();
    assert!(lost > 0 && second.inside() > 0);
    first.kill();
    let mut broken = 0;
    for asked in asked {
        let (posted, status) = asked.await.expect("no panic");
        match status {
            200 => {}
            502 => {
                assert!(posted, "a GET was lost");
                broken += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!((1..=lost).contains(&broken), "{broken} of {lost}");
    let mut connection = Connection::open(gateway.address).await;
    for _ in 0..50 {
        let (status, text) = connection
            .post("/ads/model/", "x")
            .await
            .expect("an answer");
        assert_eq!(status, 200, "{text}");
    }
}

#[tokio::test]
async fn who_shows_no_key_is_refused_and_notebooks_have_an_origin_of_their_own() {
    let mut world = World::start().await;
    let secret = [3; 32];
    let replica = Replica::start().await;
    for (name, kind, access) in [
        ("ads/tenant", Kind::Inference, "tenant"),
        ("ads/token", Kind::Inference, "token"),
        ("ads/lab", Kind::Notebook, "tenant"),
    ] {
        let job = world.admit(name, kind, json!({"access": access})).await;
        world.add(&job, 0, &replica).await;
    }
    let gateway = world
        .gateway_with("g0", |it| it.trust = Trust::Secret(secret))
        .await;
    let ads = Key::of_tenant(&secret, &"ads".parse().expect("valid"));
    let token = ads.token_of(&crate::common::job("ads/token"));
    let ask = |path: &str, host: &str, key: Option<Key>| {
        let (path, host) = (path.to_owned(), host.to_owned());
        async move {
            let mut connection = Connection::open(gateway.address).await;
            let mut request = Request::get(path).header("host", host);
            if let Some(key) = key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            let request = request.body(Full::default()).expect("a request");
            let response = connection.send(request).await.expect("an answer");
            let asks = response.headers().get("www-authenticate").cloned();
            (read(response).await.expect("read"), asks)
        }
    };
    let ((status, text), asks) = ask("/ads/tenant/", "localhost", None).await;
    assert_eq!(status, 401, "{text}");
    assert!(
        asks.expect("a scheme")
            .to_str()
            .expect("text")
            .starts_with("Bearer")
    );
    let ((status, seen), _) = ask("/ads/tenant/", "localhost", Some(ads)).await;
    assert_eq!(status, 200);
    assert!(!seen.contains(&ads.to_string()), "the replica sees the key");
    assert_eq!(ask("/ads/tenant/", "localhost", Some(token)).await.0.0, 401);
    assert_eq!(ask("/ads/token/", "localhost", Some(token)).await.0.0, 200);
    assert_eq!(ask("/ads/lab/", "localhost", Some(ads)).await.0.0, 421);
    let ((status, _), asks) = ask("/", "lab.ads.localhost", None).await;
    assert_eq!(status, 401);
    assert!(
        asks.expect("a scheme")
            .to_str()
            .expect("text")
            .starts_with("Basic")
    );
    assert_eq!(ask("/", "lab.ads.localhost", Some(ads)).await.0.0, 200);
}
