//! Authorship on a cluster with accounts: every query names the people as the broker authenticated them.

use std::path::Path;

use crate::common::{Cluster, PATIENCE, free_port, key_file, poll};
use dormouse_messages::{Event, Recorded, TenantId, Writer};
use dormouse_runtime::Settings;
use dormouse_runtime::tenant::{Encoding, Tenant, TenantError, Wait};
use serde_json::{Value, json};

pub(crate) fn start() -> Cluster {
    let mut cluster = Cluster::new();
    let dir = cluster.dir().to_path_buf();
    let keys = dir.join("keys").display().to_string();
    let accounts = [
        "account",
        "file",
        "--keys",
        &keys,
        "tenant-ads",
        "ads/alice:submitter",
        "ads/vera:viewer",
        "operator-olga",
        "operator-otto",
        "node-n0",
    ];
    let accounts = cluster.run_with(&accounts, &[]).ok();
    let port = free_port();
    let config = format!(
        "listen: \"127.0.0.1:{port}\"\nmax_payload: 8388608\njetstream {{ store_dir: {:?} }}\n{}",
        dir.join("jetstream"),
        accounts.out
    );
    std::fs::write(dir.join("nats-server.conf"), config).expect("writes");
    cluster.set_url(format!("nats://127.0.0.1:{port}"));
    cluster.start_broker();
    as_person(&mut cluster, "operator");
    std::fs::write(dir.join("policy.yaml"), "policy: {theta1: 0.2}").expect("writes");
    let policy = dir.join("policy.yaml").display().to_string();
    let configure = [
        "policy",
        "set",
        &policy,
        "--ensure-streams",
        "--reader",
        "node-n0",
    ];
    poll("the streams", PATIENCE, || {
        (cluster.run(&configure).code == 0).then_some(())
    });
    for service in ["admission", "optimizer", "placer", "checkpointer", "api"] {
        serve(&mut cluster, service, &[service]);
    }
    let agent = ["agent", "--node", "n0", "--capacity", "cpu=4,memory=8Gi"];
    serve(&mut cluster, "node-n0", &agent);
    cluster.wait_for_nodes(1);
    // An operator's key makes grants required, so an unnamed tenant could submit nothing.
    cluster.run(&["tenant", "set", "ads", "--weight", "1"]).ok();
    cluster
}

fn serve(cluster: &mut Cluster, user: &str, arguments: &[&str]) {
    let dir = cluster.dir().to_path_buf();
    let key = key(&dir, user);
    let trust = arguments.starts_with(&["agent"]).then_some("--trust-jobs");
    let mut arguments = [&["serve"], arguments, &["--nkey", &key]].concat();
    arguments.extend(trust);
    cluster.start(user, &arguments, &dir.join(user));
}

fn key(dir: &Path, user: &str) -> String {
    key_file(dir, &format!("{user}.nk"))
}

pub(crate) fn as_person(cluster: &mut Cluster, user: &str) {
    let key = key(cluster.dir(), user);
    cluster.env("DORMOUSE_NKEY", &key);
}

fn submit(cluster: &Cluster, user: &str, document: &Value) -> Result<(), TenantError> {
    let settings = Settings {
        nkey: Some(key(cluster.dir(), user).into()),
        ..Settings::new(cluster.url(), user)
    };
    let tenant = TenantId::new("ads").expect("valid");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let tenant = Tenant::connect(&settings, tenant, Encoding::Json, PATIENCE).await?;
        tenant.query("jobs", &json!({})).await?;
        tenant
            .submit(document, Wait::Decided, None)
            .await
            .map(|_| ())
    })
}

fn words(cluster: &Cluster, question: &[&str]) -> String {
    let said = cluster.run(&[&["explain"], question].concat()).ok().json();
    said["words"].to_string()
}

fn by(user: &str, role: &str) -> Value {
    json!({"user": user, "role": role})
}

/// Claims in a document about its author are ignored.
fn alice_submits(cluster: &Cluster) {
    let sleep = json!({"name": "a", "command": {"start": ["sleep", "600"]}, "demand": {"cpu": 1}});
    let refused = submit(cluster, "user-ads.vera", &sleep);
    assert!(
        matches!(refused, Err(TenantError::Denied(_))),
        "{refused:?}"
    );
    let mut forged = sleep.clone();
    forged["by"] = by("olga", "operator");
    let refused = submit(cluster, "user-ads.alice", &forged);
    assert!(
        matches!(refused, Err(TenantError::Refused { .. })),
        "{refused:?}"
    );
    submit(cluster, "user-ads.alice", &sleep).expect("admitted");
    cluster.wait_event("the start", |event| match event {
        Event::PartitionStarted(_) => Some(()),
        _ => None,
    });
}

fn olga_drains_and_cancels(cluster: &Cluster) {
    let mut alice = by("alice", "submitter");
    alice["tenant"] = "ads".into();
    let job = cluster.run(&["job", "show", "ads/a"]).ok().json();
    assert_eq!(
        (&job["submitted_by"], &job["cancelled_by"]),
        (&alice, &Value::Null)
    );
    cluster.run(&["node", "drain", "n0"]).ok();
    let nodes = poll("the drain", PATIENCE, || {
        let nodes = cluster.run(&["nodes"]).ok().json();
        (nodes["nodes"][0]["state"] == "drained").then_some(nodes)
    });
    let reason = nodes["nodes"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("drained by operator olga at "),
        "{reason}"
    );
    assert!(words(cluster, &["node", "n0"]).contains("operator olga has drained it"));
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    let job = poll("the end", PATIENCE, || {
        let job = cluster.run(&["job", "show", "ads/a"]).ok().json();
        (job["phase"] == "cancelled").then_some(job)
    });
    let olga = by("olga", "operator");
    assert_eq!(
        (&job["submitted_by"], &job["cancelled_by"]),
        (&alice, &olga)
    );
    let why = words(cluster, &["ads/a"]);
    let named =
        why.contains("submitted by ads/alice") && why.contains("cancelled by operator olga");
    assert!(named, "{why}");
}

fn the_tail_shows_hers_alone(cluster: &mut Cluster) {
    let tail = ["log", "tail", "--from", "1", "--who", "olga"];
    let data = cluster.dir().join("tail");
    cluster.start("tail", &tail, &data);
    let tailed = poll("the tail", PATIENCE, || {
        let text = std::fs::read_to_string(cluster.dir().join("tail.log")).ok()?;
        text.contains("job.cancel_requested").then_some(text)
    });
    assert!(
        tailed
            .lines()
            .all(|line| line.ends_with("by operator olga")),
        "{tailed}"
    );
    assert!(tailed.contains("node.drained"), "{tailed}");
}

#[test]
fn what_people_do_stands_under_their_names() {
    let mut cluster = start();
    alice_submits(&cluster);
    as_person(&mut cluster, "operator-otto");
    let policy = cluster.dir().join("policy.yaml").display().to_string();
    cluster.run(&["policy", "set", &policy]).ok();
    as_person(&mut cluster, "operator-olga");
    olga_drains_and_cancels(&cluster);
    the_tail_shows_hers_alone(&mut cluster);
    let log = cluster.check();
    let did = |name: &str| {
        let of = log
            .iter()
            .filter(|it| it.by().is_some_and(|by| by.is(name)));
        of.filter_map(|it| it.event())
            .map(Event::subject_name)
            .collect::<Vec<_>>()
    };
    assert_eq!(did("otto"), ["cluster.configured"]);
    let (received, refused, admitted) = ("submission.received", "job.refused", "job.admitted");
    assert_eq!(did("ads/alice"), [received, refused, received, admitted]);
    assert_eq!(
        did("olga"),
        ["node.drained", received, "job.cancel_requested"]
    );
    // The owner's key names nobody.
    let of_the_owner = |it: &Recorded| it.by().is_none() && it.writer == Writer::Operator;
    assert!(log.iter().any(|it| of_the_owner(it)));
}

#[test]
fn no_operator_undoes_what_another_has_said() {
    let mut cluster = start();
    let configure = |cluster: &mut Cluster, operator: &str, policy: &str| {
        as_person(cluster, operator);
        let path = cluster.dir().join("said.yaml");
        std::fs::write(&path, format!("policy: {policy}")).expect("writes");
        let path = path.display().to_string();
        cluster.run(&["policy", "set", &path]).ok();
    };
    let rule = |cluster: &Cluster| {
        let policy = cluster.run(&["policy", "show"]).ok().json();
        policy["policy"]["grants"].clone()
    };
    configure(&mut cluster, "operator", "{grants: open}");
    configure(&mut cluster, "operator-olga", "{grants: required}");
    for operator in ["operator", "operator-otto", "operator-olga"] {
        configure(&mut cluster, operator, "{theta1: 0.3}");
        poll("the rule stays", PATIENCE, || {
            let policy = cluster.run(&["policy", "show"]).ok().json()["policy"].clone();
            (policy["theta1"] == 0.3).then_some(())
        });
        assert_eq!(rule(&cluster), "required", "{operator}");
    }
    std::thread::scope(|threads| {
        for number in 0..6 {
            let cluster = &cluster;
            threads.spawn(move || {
                let mount = format!("/data/{number}");
                let set = ["tenant", "grant", "ads", "--mount", &mount];
                cluster.run(&set).ok();
            });
        }
    });
    let granted = poll("what is granted", PATIENCE, || {
        let ads = cluster.run(&["tenant", "show", "ads"]).ok().json();
        let mounts = ads["grants"]["mounts"].as_array()?.clone();
        (mounts.len() >= 6).then_some(mounts)
    });
    assert_eq!(granted.len(), 6, "{granted:?}");
}
