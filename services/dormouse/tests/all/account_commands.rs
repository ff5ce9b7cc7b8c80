//! Accounts made by commands while the broker runs: tenants, people, rotation, revocation.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Cluster, PATIENCE, count_job, free_port, key_file, poll};
use dormouse_messages::{Event, TenantId};
use dormouse_runtime::Settings;
use dormouse_runtime::tenant::{Encoding, Tenant, TenantError, Wait};
use serde_json::{Value, json};

fn creds(dir: &Path, name: &str) -> String {
    key_file(dir, &format!("{name}.creds"))
}

pub(crate) fn as_person(cluster: &mut Cluster, name: &str) {
    let creds = creds(cluster.dir(), name);
    cluster.env("DORMOUSE_CREDS", &creds);
}

fn serve(cluster: &mut Cluster, name: &str, arguments: &[&str]) {
    let dir = cluster.dir().to_path_buf();
    let creds = creds(&dir, name);
    let trust = arguments.starts_with(&["agent"]).then_some("--trust-jobs");
    let mut arguments = [&["serve"], arguments, &["--creds", &creds]].concat();
    arguments.extend(trust);
    cluster.start(name, &arguments, &dir.join(name));
}

pub(crate) fn start() -> Cluster {
    let mut cluster = Cluster::new();
    let dir = cluster.dir().to_path_buf();
    cluster.env("DORMOUSE_KEYS", &dir.join("keys").display().to_string());
    let folder = dir.join("accounts").display().to_string();
    let init = ["cluster", "init", "--folder", &folder];
    let accounts = cluster.run_with(&init, &[]).ok();
    assert_eq!(cluster.run(&["cluster", "init"]).error()["code"], "exists");
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
    poll("the streams", PATIENCE, || {
        (cluster
            .run(&["policy", "set", &policy, "--ensure-streams"])
            .code
            == 0)
            .then_some(())
    });
    for service in ["admission", "optimizer", "placer", "checkpointer", "api"] {
        serve(&mut cluster, service, &[service]);
    }
    cluster
        .run(&["account", "add", "node-n0", "operator-olga"])
        .ok();
    let agent = ["agent", "--node", "n0", "--capacity", "cpu=4,memory=8Gi"];
    serve(&mut cluster, "node-n0", &agent);
    cluster.wait_for_nodes(1);
    cluster
}

fn submit(cluster: &Cluster, name: &str, job: &Value) -> Result<(), TenantError> {
    let settings = Settings {
        creds: Some(creds(cluster.dir(), name).into()),
        connect_timeout: Duration::from_secs(3),
        ..Settings::new(cluster.url(), name)
    };
    let tenant = TenantId::new("ads").expect("valid");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let tenant = Tenant::connect(&settings, tenant, Encoding::Json, PATIENCE).await?;
        tenant.submit(job, Wait::Decided, None).await.map(|_| ())
    })
}

fn by(cluster: &Cluster, job: &str) -> Value {
    cluster.run(&["job", "show", job]).ok().json()["submitted_by"].clone()
}

fn a_tenant_comes(cluster: &Cluster) {
    let early = cluster.run(&["account", "add", "ads/alice", "--role", "submitter"]);
    assert_eq!(early.error()["code"], "not_found", "{early:?}");
    let create = [
        "tenant",
        "create",
        "ads",
        "--weight",
        "2",
        "--max-queued",
        "7",
    ];
    cluster.run(&create).ok();
    assert_eq!(cluster.run(&create).error()["code"], "exists");
    let shown = poll("the tenant", PATIENCE, || {
        let shown = cluster.run(&["tenant", "show", "ads"]);
        (shown.code == 0).then(|| shown.json())
    });
    assert_eq!(
        (&shown["weight"], &shown["grants"]["max_queued"]),
        (&json!(2), &json!(7))
    );
    for (person, role) in [("ads/alice", "submitter"), ("ads/vera", "viewer")] {
        cluster
            .run(&["account", "add", person, "--role", role])
            .ok();
    }
    submit(cluster, "tenant-ads", &count_job("plain", 2, (1, 1), &[])).expect("admitted");
    submit(
        cluster,
        "user-ads.alice",
        &count_job("hers", 2, (1, 1), &[]),
    )
    .expect("admitted");
    let viewer = submit(cluster, "user-ads.vera", &count_job("no", 2, (1, 1), &[]));
    assert!(matches!(viewer, Err(TenantError::Denied(_))), "{viewer:?}");
    cluster.wait_completed("ads/plain");
    cluster.wait_completed("ads/hers");
    assert_eq!(by(cluster, "ads/plain"), Value::Null);
    let alice = json!({"tenant": "ads", "user": "alice", "role": "submitter"});
    assert_eq!(by(cluster, "ads/hers"), alice);
}

fn keys_are_replaced(cluster: &Cluster) {
    let pids = ["node-n0", "placer", "admission"].map(|name| cluster.pid(name));
    for name in ["node-n0", "placer", "admission", "tenant-ads"] {
        let rotated = cluster.run(&["account", "rotate", name]).ok().json();
        assert_eq!(rotated["name"], name);
    }
    let old = std::fs::read(creds(cluster.dir(), "user-ads.alice")).expect("credentials");
    cluster.run(&["account", "rotate", "ads/alice"]).ok();
    assert_ne!(
        std::fs::read(creds(cluster.dir(), "user-ads.alice")).expect("new ones"),
        old
    );
    submit(
        cluster,
        "user-ads.alice",
        &count_job("after", 3, (1, 2), &[]),
    )
    .expect("admitted");
    cluster.wait_completed("ads/after");
    assert_eq!(
        ["node-n0", "placer", "admission"].map(|name| cluster.pid(name)),
        pids
    );
    let new = std::fs::read(creds(cluster.dir(), "user-ads.alice")).expect("credentials");
    std::fs::write(creds(cluster.dir(), "user-ads.alice"), old).expect("written");
    let refused = submit(cluster, "user-ads.alice", &count_job("old", 3, (1, 2), &[]));
    assert!(matches!(refused, Err(TenantError::Log(_))), "{refused:?}");
    std::fs::write(creds(cluster.dir(), "user-ads.alice"), new).expect("written");
}

#[test]
fn a_tenant_comes_keys_are_replaced_and_one_is_revoked_on_a_running_cluster() {
    let mut cluster = start();
    as_person(&mut cluster, "operator-olga");
    a_tenant_comes(&cluster);
    keys_are_replaced(&cluster);
    let begun = Instant::now();
    let revoked = cluster.run(&["account", "revoke", "ads/alice"]).ok().json();
    println!("revoked in {:?}", begun.elapsed());
    assert_eq!(revoked["revoked"], 1);
    let refused = submit(
        &cluster,
        "user-ads.alice",
        &count_job("late", 3, (1, 2), &[]),
    );
    assert!(matches!(refused, Err(TenantError::Log(_))), "{refused:?}");
    let again = cluster.run(&["account", "revoke", "ads/alice"]);
    assert_eq!(again.error()["code"], "not_found", "{again:?}");
    let listed = cluster.run(&["account", "list"]).ok().out;
    let keys = |name: &str| {
        let lines = listed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines
            .filter(|row| row["name"] == name)
            .map(|row| row["keys"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys("user-ads.alice"), [0], "{listed}");
    assert_eq!(
        (keys("node-n0"), keys("placer")),
        (vec![json!(1)], vec![json!(1)]),
        "{listed}"
    );
    let log = cluster.check();
    let olga = |name: &str| {
        let hers = log
            .iter()
            .filter(|it| it.by().is_some_and(|by| by.is("olga")));
        let hers = hers.filter_map(|it| it.event());
        hers.filter(|event| event.subject_name() == name).count()
    };
    assert_eq!((olga("tenant.configured"), olga("tenant.granted")), (1, 1));
    // Three created; four rotated, one of these twice; one revoked.
    let keys = ["key.created", "key.rotated", "key.revoked"].map(olga);
    assert_eq!(keys, [3, 5, 1]);
    assert!(log.iter().any(|it| matches!(it.event(), Some(Event::KeyRevoked(it))
        if it.name == "user-ads.alice" && it.tenant.as_ref().is_some_and(|it| it.as_str() == "ads"))));
    assert!(
        !log.iter().any(
            |it| matches!(it.event(), Some(Event::JobAdmitted(it)) if it.job.name() == "late")
        )
    );
}

#[test]
fn a_tenant_that_is_removed_has_no_key_and_submits_nothing() {
    let mut cluster = start();
    as_person(&mut cluster, "operator-olga");
    cluster.run(&["tenant", "create", "ads"]).ok();
    let add = ["account", "add", "ads/alice", "--role", "submitter"];
    cluster.run(&add).ok();
    submit(&cluster, "tenant-ads", &count_job("first", 2, (1, 1), &[])).expect("admitted");
    cluster.wait_completed("ads/first");
    let removed = cluster.run(&["tenant", "remove", "ads"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    for name in ["tenant-ads", "user-ads.alice"] {
        let refused = submit(&cluster, name, &count_job("late", 2, (1, 1), &[]));
        assert!(
            matches!(refused, Err(TenantError::Log(_))),
            "{name}: {refused:?}"
        );
    }
    let refused = cluster.submit(&count_job("late", 2, (1, 1), &[])).error();
    assert_eq!(refused["code"], "unknown_tenant", "{refused}");
    cluster.run(&["tenant", "create", "ads"]).ok();
    submit(&cluster, "tenant-ads", &count_job("again", 2, (1, 1), &[])).expect("admitted");
    cluster.wait_completed("ads/again");
    let log = cluster.check();
    let revoked = log.iter().filter_map(|it| match it.event() {
        Some(Event::KeyRevoked(it)) => Some(it.name.clone()),
        _ => None,
    });
    assert_eq!(Vec::from_iter(revoked), ["tenant-ads", "user-ads.alice"]);
    cluster.run(&["account", "revoke", "webhook"]).ok();
    let none = cluster.run(&["account", "rotate", "webhook"]).error();
    assert_eq!(none["code"], "not_found", "{none}");
    cluster.run(&["account", "add", "webhook"]).ok();
    cluster.run(&["account", "rotate", "webhook"]).ok();
}
