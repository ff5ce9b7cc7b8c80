//! `cluster doctor` and `top` on a real cluster.

use async_nats::jetstream;
use async_nats::jetstream::stream::Compression;
use serde_json::Value;

use crate::common::{Cluster, PATIENCE, poll};

pub fn look(report: &Value, name: &str) -> (String, String) {
    let checks = report["checks"].as_array().expect("checks");
    let check = checks.iter().find(|it| it["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no look at {name}: {report}"));
    let text = |field: &str| check[field].as_str().expect("text").to_owned();
    (text("state"), text("found"))
}

#[test]
fn a_healthy_cluster_has_nothing_that_failed() {
    let cluster = Cluster::up(2, "cpu=4,memory=4Gi");
    let report = poll("all services", PATIENCE, || {
        let said = cluster.run(&["cluster", "doctor"]);
        (said.code == 0).then(|| said.json())
    });
    for name in ["nats-server", "broker", "the log", "optimizer", "queries"] {
        assert_eq!(look(&report, name).0, "ok", "{name}: {report}");
    }
    assert_eq!(look(&report, "nodes").1, "2 take containers");
    assert_eq!(look(&report, "agents").1, "all of them answer");
    let table = cluster.run_with(&["cluster", "doctor"], &[]).ok().out;
    assert!(table.contains("\ncluster\n  ok "), "{table}");
}

#[test]
fn what_is_wrong_is_named() {
    let nowhere = Cluster::new().run(&["cluster", "doctor"]);
    assert_eq!(look(&nowhere.json(), "broker").0, "warning");
    let mut cluster = Cluster::broker();
    let no_streams = cluster.run(&["cluster", "doctor"]);
    assert_eq!(no_streams.code, 1, "{no_streams:?}");
    let report = no_streams.json();
    assert_eq!(look(&report, "broker").0, "ok", "{report}");
    let (state, found) = look(&report, "the log");
    assert_eq!(
        (state.as_str(), found.as_str()),
        ("failed", "there is no stream DORMOUSE_LOG")
    );

    let policy = cluster.dir().join("policy.yaml");
    std::fs::write(&policy, "policy: {theta1: 0.2}\n").expect("written");
    let policy = policy.display().to_string();
    cluster
        .run(&["policy", "set", &policy, "--ensure-streams"])
        .ok();
    compress(&cluster.url());
    let report = cluster.run(&["cluster", "doctor"]).json();
    let (state, found) = look(&report, "the log");
    assert_eq!(state, "warning", "{found}");
    assert!(found.contains("compressed"), "{found}");
    assert_eq!(look(&report, "placer").1, "no copy of it is active");

    cluster.kill("nats-server");
    let gone = cluster.run(&["cluster", "doctor"]);
    assert_eq!(
        (gone.code, look(&gone.json(), "broker").0.as_str()),
        (1, "failed")
    );
}

/// Makes the log as an earlier build did.
fn compress(url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(url).await.expect("connects");
        let jetstream = jetstream::new(client);
        let stream = jetstream.get_stream("DORMOUSE_LOG").await.expect("there");
        let mut config = stream.cached_info().config.clone();
        config.compression = Some(Compression::S2);
        jetstream.update_stream(config).await.expect("updated");
    });
}

#[test]
fn top_shows_again_what_has_changed() {
    let mut cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    let data = cluster.dir().to_owned();
    cluster.start("top", &["top", "--every", "200ms", "-o", "json"], &data);
    let shown = data.join("top.log");
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&shown).unwrap_or_default();
        let whole = text.lines().filter_map(|it| serde_json::from_str(it).ok());
        whole.collect()
    };
    poll("the first look", PATIENCE, || lines().first().cloned());
    let job = crate::common::count_job("a", 100_000, (1, 1), &[]);
    cluster.submit(&job).ok();
    poll("the job", PATIENCE, || {
        let jobs = lines().last()?["jobs"]["jobs"].as_array()?.clone();
        jobs.iter().any(|it| it["job"] == "ads/a").then_some(())
    });
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.kill("top");
}
