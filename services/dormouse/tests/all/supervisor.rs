//! The dead man's switch of real agents: without its agent, a node's containers end before the lease.

use std::time::{Duration, Instant};

use crate::common::{Cluster, PATIENCE, count_job, poll};
use dormouse_messages::Event;
use nix::sys::signal::Signal;

const LEASE: Duration = Duration::from_secs(8);

fn running() -> Cluster {
    running_with(LEASE, &[])
}

fn running_with(lease: Duration, options: &[&str]) -> Cluster {
    let mut cluster = Cluster::new();
    let data = cluster.dir().to_owned();
    cluster.start("up", &["up", "--nodes", "0"], &data);
    let policy = data.join("policy.yaml");
    std::fs::write(
        &policy,
        format!("policy: {{lease_s: {}}}\n", lease.as_secs()),
    )
    .expect("written");
    poll("the broker", PATIENCE, || {
        let configured = cluster.run(&["policy", "set", &policy.display().to_string()]);
        (configured.code == 0).then_some(())
    });
    start_agent_with(&mut cluster, "a0", options);
    cluster.wait_for_nodes(1);
    cluster.submit(&count_job("a", 100_000, (2, 2), &[])).ok();
    poll("its programs", PATIENCE, || {
        (cluster.programs_below("a0").len() >= 2).then_some(())
    });
    cluster
}

fn start_agent(cluster: &mut Cluster) {
    start_agent_with(cluster, "a0", &[]);
}

fn start_agent_with(cluster: &mut Cluster, node: &str, options: &[&str]) {
    let (url, data) = (cluster.url(), cluster.dir().join(node));
    let agent = ["--server", &url, "serve", "agent", "--node", node];
    let offer = ["--capacity", "cpu=4,memory=4Gi"];
    let arguments = [&agent[..], &offer[..], options].concat();
    cluster.start(node, &arguments, &data);
}

#[track_caller]
fn until_gone(cluster: &Cluster, since: Instant) -> Duration {
    while !cluster.programs_below("a0").is_empty() {
        assert!(
            since.elapsed() < LEASE,
            "still running at the end of its lease"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    since.elapsed()
}

#[test]
fn the_containers_of_a_killed_agent_end_before_its_lease() {
    let mut cluster = running();
    cluster.kill("a0");
    let took = until_gone(&cluster, Instant::now());
    println!("gone {took:?} after the kill; the lease is {LEASE:?}");
    cluster.wait_event("node.lost", |event| match event {
        Event::NodeLost(_) => Some(()),
        _ => None,
    });
}

#[test]
fn the_containers_of_an_agent_that_stands_still_end_before_its_lease() {
    let mut cluster = running();
    cluster.signal("a0", Signal::SIGSTOP);
    let took = until_gone(&cluster, Instant::now());
    println!("gone {took:?} after the stop; the lease is {LEASE:?}");
    cluster.signal("a0", Signal::SIGCONT);
    let reason = cluster.wait_event("an exit", |event| match event {
        Event::ContainerExited(event) if event.evicted => event.reason.clone(),
        _ => None,
    });
    assert!(reason.contains("lease"), "{reason}");
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.wait_no_programs();
    cluster.kill("a0");
}

#[test]
fn an_agent_that_is_back_within_its_lease_adopts_all() {
    let mut cluster = running();
    let before = cluster.programs_below("a0");
    cluster.kill("a0");
    std::thread::sleep(LEASE / 4);
    start_agent(&mut cluster);
    std::thread::sleep(LEASE * 3 / 2);
    assert_eq!(cluster.programs_below("a0"), before);
    let log = cluster.log();
    let exits = log
        .iter()
        .filter(|it| matches!(it.event(), Some(Event::ContainerExited(_))));
    assert_eq!(exits.count(), 0);
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.wait_no_programs();
    cluster.check();
}

const LONG_LEASE: Duration = Duration::from_secs(600);

const GONE_AFTER: [&str; 2] = ["--gone-after", "3s"];

#[test]
fn what_a_dead_agent_ran_goes_on_elsewhere_before_its_lease_ends() {
    let mut cluster = running_with(LONG_LEASE, &GONE_AFTER);
    start_agent_with(&mut cluster, "b0", &GONE_AFTER);
    cluster.wait_for_nodes(2);
    cluster.kill("a0");
    poll("its programs on the other node", PATIENCE, || {
        (cluster.programs_below("b0").len() >= 2).then_some(())
    });
    assert!(cluster.programs_below("a0").is_empty());
    let (incarnation, reason) = cluster.wait_event("node.fenced", |event| match event {
        Event::NodeFenced(it) if it.node.as_str() == "a0" => {
            Some((it.incarnation, it.reason.clone()))
        }
        _ => None,
    });
    assert_eq!(incarnation, 1);
    assert!(reason.contains("agent died"), "{reason}");
    start_agent_with(&mut cluster, "a0", &GONE_AFTER);
    cluster.wait_event("another incarnation", |event| match event {
        Event::NodeJoined(it) if it.node.as_str() == "a0" && it.incarnation == 2 => Some(()),
        _ => None,
    });
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.wait_no_programs();
    cluster.check();
}

#[test]
fn an_agent_that_stops_in_order_is_waited_for() {
    let mut cluster = running_with(LONG_LEASE, &GONE_AFTER);
    let before = cluster.programs_below("a0");
    cluster.stop("a0");
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(cluster.programs_below("a0"), before);
    start_agent_with(&mut cluster, "a0", &GONE_AFTER);
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.wait_no_programs();
    cluster.check();
}

/// The broker is local, and only `up` restarts its agents.
#[test]
fn what_an_up_holds_has_no_deadline() {
    let mut cluster = Cluster::new();
    let data = cluster.dir().to_owned();
    let up = ["up", "--nodes", "1", "--capacity", "cpu=4,memory=4Gi"];
    cluster.start("up", &up, &data);
    cluster.wait_for_nodes(1);
    cluster.submit(&count_job("a", 100_000, (1, 1), &[])).ok();
    let programs = || cluster.programs_below("nodes/n0");
    poll("its program", PATIENCE, || {
        (!programs().is_empty()).then_some(())
    });
    let before = programs();
    cluster.kill("up");
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(cluster.programs_below("nodes/n0"), before);
}
