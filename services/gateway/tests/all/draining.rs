//! Scale-downs lose no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::AsyncReadExt;

use crate::common::exited;
use crate::common::replica::Replica;
use crate::common::world::{Connection, World, get, until};
use crate::passing::{echo, websocket};

#[tokio::test]
async fn a_leaving_replica_ends_what_it_has_gets_nothing_new_and_is_told_of_once() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let (first, second) = (Replica::start().await, Replica::start().await);
    world.add(&job, 0, &first).await;
    world.add(&job, 1, &second).await;
    let gateway = world.gateway("g0").await;
    let address = gateway.address;
    let slow: Vec<_> = (0..4)
        .map(|_| tokio::spawn(get(address, "/ads/model/slow/700")))
        .collect();
    until("both are busy", || {
        first.inside() == 2 && second.inside() == 2
    })
    .await;
    let asked = world.leave(&job, &[0], 30).await;
    let began = Instant::now();
    let before = first.began();
    for _ in 0..20 {
        assert_eq!(get(address, "/ads/model/").await.0, 200);
    }
    let (rank, answers, closed) = world.hear_unrouted().await;
    assert_eq!((rank, answers, closed), (0, asked, 0));
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "told too early"
    );
    assert_eq!(first.inside(), 0);
    // May include requests placed before the log's change.
    assert!(first.began() <= before + 20);
    let routed = first.began();
    for _ in 0..20 {
        assert_eq!(get(address, "/ads/model/").await.0, 200);
    }
    assert_eq!(first.began(), routed);
    for slow in slow {
        assert_eq!(slow.await.expect("no panic").0, 200);
    }
    // Reported once: the next report is the next replica's.
    world
        .append(exited(&crate::common::container(&job, 1, 0), "n0"))
        .await;
    let asked = world.leave(&job, &[1], 30).await;
    assert_eq!(world.hear_unrouted().await, (1, asked, 0));
}

#[tokio::test]
async fn a_connection_that_outlasts_drain_s_is_closed_and_counted() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let gateway = world.gateway("g0").await;
    let mut stream = websocket(&gateway, "/ads/model/ws").await;
    let mut events = Connection::open(gateway.address).await;
    let request = Request::get("/ads/model/sse/100000").header("host", "localhost");
    let request = request.body(Full::default()).expect("a request");
    let events = events.send(request).await.expect("an answer");
    let asked = world.leave(&job, &[0], 5).await;
    let began = Instant::now();
    echo(&mut stream, "still here").await.expect("passed");
    assert_eq!(world.hear_unrouted().await, (0, asked, 2));
    let took = began.elapsed();
    // Within the five seconds of grace, so that the report precedes the stop.
    assert!(
        took > Duration::from_secs(4) && took < Duration::from_secs(5),
        "{took:?}"
    );
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(
        events.into_body().collect().await.is_err(),
        "it looked whole"
    );
    until("the replica's freedom", || replica.inside() == 0).await;
}

#[derive(Default)]
struct Counts {
    done: AtomicUsize,
    stop: AtomicBool,
}

async fn clients(
    address: std::net::SocketAddr,
    kind: &'static str,
    counts: Arc<Counts>,
) -> Vec<String> {
    let mut lost = Vec::new();
    let mut connection = Connection::open(address).await;
    while !counts.stop.load(Ordering::SeqCst) {
        let answer = match kind {
            "get" => connection.get("/ads/model/").await.map(|it| it.0 == 200),
            "post" => connection
                .post("/ads/model/back", "body")
                .await
                .map(|it| it == (200, "body".to_owned())),
            "slow" => connection
                .get("/ads/model/slow/5")
                .await
                .map(|it| it.0 == 200),
            "upload" => {
                let body = Full::new(Bytes::from(vec![0; 200_000]));
                let request = Request::post("/ads/model/count").header("host", "localhost");
                let request = request.body(body).expect("a request");
                match connection.send(request).await {
                    Ok(response) => crate::common::world::read(response)
                        .await
                        .map(|it| it.1 == "200000"),
                    Err(error) => Err(error),
                }
            }
            _ => connection
                .get("/ads/model/sse/3")
                .await
                .map(|it| it.1.matches("data").count() == 3),
        };
        match answer {
            Ok(true) => drop(counts.done.fetch_add(1, Ordering::SeqCst)),
            Ok(false) => lost.push(format!("{kind}: another answer")),
            Err(error) => lost.push(format!("{kind}: {error}")),
        }
    }
    lost
}

/// Number of scale-downs; more by hand: `DORMOUSE_DRAINS=1000`.
fn drains() -> u32 {
    let given = std::env::var("DORMOUSE_DRAINS").ok();
    given.and_then(|it| it.parse().ok()).unwrap_or(60)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_scale_downs_under_every_kind_of_client_lose_nothing() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 8).await;
    let mut replicas = Vec::new();
    for rank in 0..2 {
        let replica = Replica::start().await;
        world.add(&job, rank, &replica).await;
        replicas.push((rank, replica));
    }
    let gateway = world.gateway("g0").await;
    let counts = Arc::new(Counts::default());
    let running: Vec<_> = ["get", "post", "slow", "upload", "sse", "get", "post"]
        .into_iter()
        .map(|kind| tokio::spawn(clients(gateway.address, kind, Arc::clone(&counts))))
        .collect();
    for next in 2..2 + drains() {
        let replica = Replica::start().await;
        world.add(&job, next, &replica).await;
        replicas.push((next, replica));
        let mut socket = websocket(&gateway, "/ads/model/ws").await;
        let (rank, leaving) = replicas.remove(0);
        let asked = world.leave(&job, &[rank], 30).await;
        echo(&mut socket, "while it drains").await.expect("passed");
        drop(socket);
        let (told, answers, closed) = world.hear_unrouted().await;
        assert_eq!((told, answers, closed), (rank, asked, 0));
        assert_eq!(leaving.inside(), 0);
        leaving.kill();
        world
            .append(exited(&crate::common::container(&job, 1, rank), "n0"))
            .await;
    }
    counts.stop.store(true, Ordering::SeqCst);
    let mut lost = Vec::new();
    for client in running {
        lost.extend(client.await.expect("no panic"));
    }
    let done = counts.done.load(Ordering::SeqCst);
    println!(
        "{done} requests over {} scale-downs, {} lost",
        drains(),
        lost.len()
    );
    assert_eq!(lost, Vec::<String>::new());
    assert!(done > 10 * drains() as usize, "{done}");
}

#[tokio::test]
async fn a_gateway_that_stops_ends_what_is_under_way_and_says_so() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let gateway = world.gateway("g0").await;
    let slow = tokio::spawn(get(gateway.address, "/ads/model/slow/500"));
    until("it is under way", || replica.inside() == 1).await;
    gateway.stop().await.expect("in order");
    assert_eq!(slow.await.expect("no panic").0, 200);
    world
        .hear(|it| matches!(it.event()?, dormouse_messages::Event::GatewayLeft(_)).then_some(()))
        .await;
}
