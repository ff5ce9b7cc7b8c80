//! Ungranted requests are refused with the granting command; decisions verify.

use crate::tenants::{assert_refused, at, cluster, refusals, run, send, submit, when};
use dormouse_messages::Event;
use dormouse_messages::events::{JobAdmitted, TenantGranted};
use dormouse_messages::grants::{Grants, GrantsRule, Network};
use dormouse_messages::policy::Policy;
use dormouse_replay::engine::{Action, Engine};

fn granting(rule: GrantsRule) -> Engine {
    let mut engine = cluster(Policy {
        grants: Some(rule),
        ..Policy::default()
    });
    if rule == GrantsRule::Required {
        for tenant in ["ads", "search"] {
            grant(&mut engine, 0, tenant, Grants::default());
        }
    }
    engine
}

fn grant(engine: &mut Engine, second: u64, tenant: &str, grants: Grants) {
    let granted = TenantGranted {
        tenant: tenant.parse().expect("a tenant"),
        grants,
    };
    engine.at(at(second), Action::Operator(granted.into()));
}

fn admitted(engine: &Engine) -> Vec<&JobAdmitted> {
    let events = engine.log().iter().filter_map(|recorded| recorded.event());
    let admitted = events.filter_map(|event| match event {
        Event::JobAdmitted(event) => Some(&**event),
        _ => None,
    });
    admitted.collect()
}

const SHADOW: &str = r#","env":{"K":{"from":{"file":"/etc/shadow"}}}"#;

#[test]
fn a_file_of_the_node_is_no_secret_of_a_tenant() {
    let mut engine = granting(GrantsRule::Required);
    submit(&mut engine, 1, "ads/thief", (1, 1), SHADOW);
    let agents = r#","env":{"K":{"from":{"env":"DORMOUSE_NKEY"}}}"#;
    submit(&mut engine, 1, "ads/second", (1, 1), agents);
    let folder = Grants {
        secrets: Some("/etc/dormouse/secrets/ads".to_owned()),
        ..Grants::default()
    };
    grant(&mut engine, 5, "ads", folder);
    submit(&mut engine, 10, "ads/again", (1, 1), SHADOW);
    let up = r#","env":{"K":{"from":{"file":"../search/token"}}}"#;
    submit(&mut engine, 10, "ads/up", (1, 1), up);
    let own = r#","env":{"K":{"from":{"file":"token"}}}"#;
    submit(&mut engine, 10, "ads/own", (1, 1), own);
    run(&mut engine, 300);
    assert_refused(
        &engine,
        "secret_not_granted",
        &["dormouse tenant grant ads --secrets /"],
    );
    assert_eq!(refusals(&engine).len(), 4);
    assert!(when(&engine, "ads/own", "completed").is_some());
}

#[test]
fn mounts_images_and_the_nodes_network_are_granted() {
    let mut engine = granting(GrantsRule::Required);
    let mounts = r#","mounts":[{"source":"/data","target":"/data"}]"#;
    let image = r#","image":"registry/ads/lr:1""#;
    let network = r#","network":"host""#;
    for (name, more) in [("m", mounts), ("i", image), ("n", network)] {
        submit(&mut engine, 1, &format!("ads/{name}"), (1, 1), more);
    }
    let grants = Grants {
        mounts: vec!["/data".parse().expect("a folder")],
        images: vec!["registry/ads/*".to_owned()],
        network: Some(Network::Host),
        ..Grants::default()
    };
    grant(&mut engine, 5, "ads", grants);
    for (name, more) in [("m2", mounts), ("i2", image), ("n2", network)] {
        submit(&mut engine, 10, &format!("ads/{name}"), (1, 1), more);
    }
    submit(&mut engine, 10, "search/m", (1, 1), mounts);
    run(&mut engine, 600);
    let grant = "dormouse tenant grant ads";
    for (code, flag) in [
        ("mount_not_granted", "--mount /data`"),
        ("image_not_granted", "--image registry/ads/lr:1`"),
        ("network_not_granted", "--network host`"),
    ] {
        assert_refused(&engine, code, &[grant, flag]);
    }
    let jobs: Vec<String> = admitted(&engine)
        .iter()
        .map(|it| it.job.to_string())
        .collect();
    assert_eq!(jobs, ["ads/m2", "ads/i2", "ads/n2"]);
    assert_eq!(refusals(&engine).len(), 4);
}

#[test]
fn a_cluster_that_trusts_its_users_asks_for_no_grants() {
    for rule in [None, Some(GrantsRule::Open)] {
        let mut engine = cluster(Policy {
            grants: rule,
            ..Policy::default()
        });
        submit(&mut engine, 1, "ads/a", (1, 1), SHADOW);
        run(&mut engine, 300);
        assert_eq!(refusals(&engine), []);
    }
}

#[test]
fn a_tenant_has_no_more_queued_than_it_may() {
    let mut engine = granting(GrantsRule::Open);
    let grants = Grants {
        max_queued: Some(3),
        ..Grants::default()
    };
    grant(&mut engine, 0, "ads", grants);
    // Two jobs run on all CPUs; the queue takes three more.
    for index in 0..8 {
        submit(
            &mut engine,
            1 + index / 4,
            &format!("ads/j{index}"),
            (8, 8),
            "",
        );
    }
    submit(&mut engine, 2, "search/j", (8, 8), "");
    run(&mut engine, 2_000);
    assert_refused(
        &engine,
        "too_many_queued",
        &["may have 3", "--max-queued 6"],
    );
    let of_ads = admitted(&engine);
    let of_ads = of_ads.iter().filter(|it| it.job.tenant() == "ads").count();
    assert_eq!((of_ads, refusals(&engine).len()), (5, 3));
    assert!(when(&engine, "search/j", "completed").is_some());
    send(&mut engine, 2_001, "ads", "cancel", r#"{"job":"j0"}"#);
    run(&mut engine, 2_100);
}

#[test]
fn what_a_tenant_has_queued_takes_no_more_bytes_than_it_may() {
    let mut engine = granting(GrantsRule::Open);
    let grants = Grants {
        max_queued_bytes: Some(8 << 10),
        ..Grants::default()
    };
    grant(&mut engine, 0, "ads", grants);
    let large = format!(r#","env":{{"DATA":"{}"}}"#, "x".repeat(3_000));
    // Two jobs run and do not count; the queue takes two more of 3 KiB each.
    for index in 0..8 {
        submit(
            &mut engine,
            1 + index,
            &format!("ads/j{index}"),
            (8, 8),
            &large,
        );
    }
    submit(&mut engine, 9, "ads/small", (8, 8), "");
    submit(&mut engine, 9, "search/j", (8, 8), &large);
    // Held jobs count too.
    send(
        &mut engine,
        10,
        "ads",
        "revise",
        r#"{"job":"j3","held":true}"#,
    );
    submit(&mut engine, 11, "ads/j8", (8, 8), &large);
    run(&mut engine, 50);
    let says = [
        "may take 8Ki",
        "dormouse tenant grant ads --max-queued-bytes 16Ki",
    ];
    assert_refused(&engine, "too_many_queued_bytes", &says);
    let jobs = |engine: &Engine| -> Vec<String> {
        let admitted = admitted(engine);
        let jobs = admitted.iter().map(|it| it.job.to_string());
        jobs.collect()
    };
    let queued = [
        "ads/j0",
        "ads/j1",
        "ads/j2",
        "ads/j3",
        "ads/small",
        "search/j",
    ];
    assert_eq!(jobs(&engine), queued);
    assert_eq!(refusals(&engine).len(), 5);
    // Started jobs make room in the queue.
    submit(&mut engine, 1_500, "ads/j9", (8, 8), &large);
    run(&mut engine, 2_000);
    assert_eq!(jobs(&engine).last().map(String::as_str), Some("ads/j9"));
}

#[test]
fn a_tenants_jobs_have_no_more_containers_together_than_it_is_granted() {
    let mut engine = granting(GrantsRule::Open);
    let grants = Grants {
        max_containers: Some(5),
        ..Grants::default()
    };
    grant(&mut engine, 0, "ads", grants);
    submit(&mut engine, 1, "ads/wide", (6, 8), "");
    submit(&mut engine, 1, "ads/a", (1, 16), "");
    submit(&mut engine, 2, "ads/b", (2, 16), "");
    submit(&mut engine, 3, "ads/c", (4, 4), "");
    run(&mut engine, 4_000);
    assert_refused(
        &engine,
        "above_max_containers",
        &["may have 5", "--max-containers 6"],
    );
    let mut running = std::collections::BTreeMap::new();
    for recorded in engine.log() {
        match recorded.event() {
            Some(Event::PartitionStarted(event)) => {
                running.insert(event.job.clone(), event.containers);
            }
            Some(Event::PartitionStopped(event)) => drop(running.remove(&event.job)),
            Some(Event::JobCompleted(event)) => drop(running.remove(&event.job)),
            _ => {}
        }
        assert!(running.values().sum::<u32>() <= 5, "{running:?}");
    }
    for job in ["ads/a", "ads/b", "ads/c"] {
        assert!(when(&engine, job, "completed").is_some(), "{job}");
    }
}
