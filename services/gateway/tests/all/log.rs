//! Events of a gateway, and its work without the log.

use std::time::Duration;

use dormouse_gateway::{Config, Gateway, GatewayError, Keep};
use dormouse_messages::events::{GatewayLost, ServiceMeasured};
use dormouse_messages::{Event, Timestamp};

use crate::common::replica::Replica;
use crate::common::world::{World, get, until, until_status};

async fn measured(world: &World) -> ServiceMeasured {
    world
        .hear(|recorded| match recorded.event()? {
            Event::ServiceMeasured(it) => Some((**it).clone()),
            _ => None,
        })
        .await
}

async fn hear_joined(world: &World) {
    world
        .hear(|recorded| matches!(recorded.event()?, Event::GatewayJoined(_)).then_some(()))
        .await;
}

#[tokio::test]
async fn a_gateway_says_where_it_is_and_what_its_clients_saw() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let gateway = world.gateway("g0").await;
    let port = gateway.address.port();
    assert_eq!(gateway.url, format!("http://localhost:{port}"));
    let address = world
        .hear(|recorded| match recorded.event()? {
            Event::GatewayJoined(it) => Some(it.address.clone()),
            _ => None,
        })
        .await;
    assert_eq!(address, gateway.url);
    for _ in 0..10 {
        assert_eq!(get(gateway.address, "/ads/model/slow/30").await.0, 200);
    }
    assert_eq!(get(gateway.address, "/ads/model/status/500").await.0, 500);
    let (mut requests, mut answered, mut errors) = (0, 0, 0);
    while requests < 11 || answered < 11 {
        let window = measured(&world).await;
        assert_eq!((&window.job, window.ready), (&job, 1));
        assert_eq!(window.gateway.as_str(), "g0");
        assert!(window.latency_ms.is_sound() && window.service_ms.is_sound());
        requests += window.requests;
        answered += window.latency_ms.total();
        errors += window.errors;
    }
    assert_eq!((requests, answered, errors), (11, 11, 1));
}

#[tokio::test]
async fn a_request_without_a_replica_is_told_at_once() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let gateway = world.gateway("g0").await;
    let waiting = tokio::spawn(get(gateway.address, "/ads/model/"));
    let began = std::time::Instant::now();
    let window = measured(&world).await;
    assert_eq!((&window.job, window.queued, window.ready), (&job, 1, 0));
    assert!(began.elapsed() < Duration::from_secs(3));
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    assert_eq!(waiting.await.expect("no panic").0, 200);
}

#[tokio::test]
async fn without_the_log_the_last_routes_stay_and_what_was_missed_is_told_later() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let (first, second) = (Replica::start().await, Replica::start().await);
    world.add(&job, 0, &first).await;
    let gateway = world.gateway("g0").await;
    until_status(gateway.address, "/ads/model/", 200).await;
    let url = world.url.clone();
    world.stop_broker().await;
    for _ in 0..20 {
        assert_eq!(get(gateway.address, "/ads/model/").await.0, 200);
    }
    world.start_broker(&url).await;
    world.add(&job, 1, &second).await;
    let asked = world.leave(&job, &[0], 30).await;
    assert_eq!(world.hear_unrouted().await, (0, asked, 0));
    until_status(gateway.address, "/ads/model/", 200).await;
    assert!(second.began() > 0);
}

#[tokio::test]
async fn a_second_gateway_of_the_same_name_ends_the_first() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let first = world.gateway("g0").await;
    until_status(first.address, "/ads/model/", 200).await;
    let second = world.gateway("g0").await;
    until_status(second.address, "/ads/model/", 200).await;
    // The next append is refused.
    let _ = get(first.address, "/ads/model/").await;
    let error = first.ended().await.expect_err("superseded");
    assert!(matches!(error, GatewayError::Append(_)), "{error}");
}

#[tokio::test]
async fn two_gateways_each_give_their_own_word() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let (first, second) = (world.gateway("g0").await, world.gateway("g1").await);
    for gateway in [&first, &second] {
        until_status(gateway.address, "/ads/model/", 200).await;
    }
    let asked = world.leave(&job, &[0], 30).await;
    assert_eq!(world.hear_unrouted().await, (0, asked, 0));
    assert_eq!(world.hear_unrouted().await, (0, asked, 0));
}

#[tokio::test]
async fn a_restarted_gateway_gives_the_word_that_its_predecessor_owed() {
    let mut world = World::start().await;
    let job = world.service("ads/model", 4).await;
    let replica = Replica::start().await;
    world.add(&job, 0, &replica).await;
    let asked = world.leave(&job, &[0], 30).await;
    let gateway = world.gateway("g0").await;
    assert_eq!(world.hear_unrouted().await, (0, asked, 0));
    gateway.stop().await.expect("in order");
    let again = world.gateway("g0").await;
    let (_, more) = (again, world.leave(&job, &[0], 30).await);
    assert_eq!(world.hear_unrouted().await, (0, more, 0));
}

#[tokio::test]
async fn a_gateway_that_counts_as_lost_joins_again() {
    let mut world = World::start().await;
    let _gateway = world.gateway("g0").await;
    hear_joined(&world).await;
    let lost = GatewayLost {
        gateway: "g0".parse().expect("valid"),
        last_seen: Timestamp::default(),
    };
    world.append(Event::from(lost)).await;
    hear_joined(&world).await;
}

#[tokio::test]
async fn a_lease_is_held_before_the_gateway_joins_and_given_back_at_its_end() {
    let world = World::start().await;
    let gateway = world.gateway("g0").await;
    hear_joined(&world).await;
    let leases = world.log.leases();
    let holder = leases.holder("gateway.g0").await.expect("read");
    assert_eq!(holder.map(|it| it.holder), Some("g0".to_owned()));
    gateway.stop().await.expect("in order");
    assert_eq!(leases.holder("gateway.g0").await.expect("read"), None);
}

#[tokio::test]
async fn a_gateway_goes_on_from_the_routes_that_it_has_kept() {
    let mut world = World::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let keep = |config: &mut Config| {
        config.keep = Some(Keep {
            every: 2,
            ..Keep::new(folder.path().to_owned(), "test".to_owned())
        });
    };
    let job = world.service("ads/model", 4).await;
    let (first, second) = (Replica::start().await, Replica::start().await);
    world.add(&job, 0, &first).await;
    let gateway = world.gateway_with("g0", keep).await;
    until_status(gateway.address, "/ads/model/", 200).await;
    until("the routes are kept", || {
        let kept = std::fs::read_dir(folder.path()).expect("read").flatten();
        kept.map(|file| file.path())
            .any(|path| path.extension().is_some_and(|it| it == "snap"))
    })
    .await;
    gateway.stop().await.expect("in order");
    world.add(&job, 1, &second).await;
    let asked = world.leave(&job, &[0], 30).await;
    let gateway = world.gateway_with("g0", keep).await;
    assert_eq!(world.hear_unrouted().await, (0, asked, 0));
    for _ in 0..10 {
        assert_eq!(get(gateway.address, "/ads/model/").await.0, 200);
    }
    assert_eq!(second.began(), 10);
}

#[tokio::test]
async fn a_port_in_use_and_strangers_without_a_secret_are_refused() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let listen = taken.local_addr().expect("an address");
    let name = "g0".parse().expect("valid");
    let refused = Gateway::bind(Config::new(name, listen))
        .await
        .err()
        .expect("refused");
    assert!(matches!(refused, GatewayError::Listen { .. }), "{refused}");
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    let name = "g0".parse().expect("valid");
    let refused = Gateway::bind(Config::new(name, everywhere))
        .await
        .err()
        .expect("refused");
    assert!(refused.to_string().contains("--secret"), "{refused}");
}
