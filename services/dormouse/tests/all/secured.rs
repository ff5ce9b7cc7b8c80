//! A cluster as `deploy/` sets one up: three brokers with TLS, an nkey and an account for each process. A
//! broker dies meanwhile.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Cluster, PATIENCE, count_job, free_port, key_file, poll};
use dormouse_messages::TenantId;
use dormouse_runtime::tenant::{Encoding, Tenant, Wait};
use dormouse_runtime::{Settings, Tls};
use serde_json::json;

const SERVERS: [&str; 3] = ["nats-1", "nats-2", "nats-3"];
const SERVICES: [&str; 5] = ["admission", "optimizer", "placer", "checkpointer", "api"];

fn nats(file: &str) -> PathBuf {
    crate::common::root().join("deploy/nats").join(file)
}

fn configure(cluster: &Cluster) {
    let dir = cluster.dir();
    let mut tls = Command::new(nats("make-tls.sh"));
    let output = tls.arg(dir.join("tls")).args(SERVERS).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{output:?}");
    let keys = dir.join("keys").display().to_string();
    let accounts = [
        "account",
        "file",
        "--keys",
        &keys,
        "tenant-ads",
        "node-n0",
        "node-n1",
        "gateway-g0",
    ];
    let accounts = cluster.run_with(&accounts, &[]).ok().out;
    std::fs::write(dir.join("accounts.conf"), accounts).expect("writes");
    for file in [
        "cluster.conf",
        "cluster-1.conf",
        "cluster-2.conf",
        "cluster-3.conf",
    ] {
        std::fs::copy(nats(file), dir.join(file)).expect("copies");
    }
}

fn start_brokers(cluster: &mut Cluster) {
    let dir = cluster.dir().to_path_buf();
    let routes: Vec<u16> = SERVERS.iter().map(|_| free_port()).collect();
    let mut urls = Vec::new();
    for (index, server) in SERVERS.iter().enumerate() {
        let port = free_port();
        urls.push(format!("tls://127.0.0.1:{port}"));
        let file = |name: String| dir.join("tls").join(name).display().to_string();
        let mut environment = vec![
            (
                "DORMOUSE_NATS_LISTEN".to_owned(),
                format!("127.0.0.1:{port}"),
            ),
            (
                "DORMOUSE_NATS_MONITOR".to_owned(),
                format!("127.0.0.1:{}", free_port()),
            ),
            (
                "DORMOUSE_NATS_CLUSTER_LISTEN".to_owned(),
                format!("127.0.0.1:{}", routes[index]),
            ),
            (
                "DORMOUSE_NATS_CLUSTER_ADVERTISE".to_owned(),
                format!("127.0.0.1:{}", routes[index]),
            ),
            (
                "DORMOUSE_NATS_STORE".to_owned(),
                dir.join(server).display().to_string(),
            ),
            (
                "DORMOUSE_NATS_CERT".to_owned(),
                file(format!("{server}.pem")),
            ),
            (
                "DORMOUSE_NATS_KEY".to_owned(),
                file(format!("{server}.key")),
            ),
            ("DORMOUSE_NATS_CA".to_owned(), file("ca.pem".to_owned())),
        ];
        environment.extend((1..).zip(&routes).map(|(number, port)| {
            (
                format!("DORMOUSE_NATS_ROUTE_{number}"),
                format!("tls://127.0.0.1:{port}"),
            )
        }));
        let config = dir.join(format!("cluster-{}.conf", index + 1));
        cluster.start_broker_of(server, &config, &environment);
    }
    cluster.set_url(urls.join(","));
}

fn start(cluster: &mut Cluster, user: &str, arguments: &[&str]) {
    let dir = cluster.dir().to_path_buf();
    let key = key_file(&dir, &format!("{user}.nk"));
    let arguments = [&["serve"], arguments, &["--nkey", &key]].concat();
    cluster.start(user, &arguments, &dir.join(user));
}

fn start_gateway(cluster: &mut Cluster) {
    let secret = cluster
        .dir()
        .join("keys/gateway.secret")
        .display()
        .to_string();
    let listen = format!("127.0.0.1:{}", free_port());
    let gateway = [
        "gateway", "--name", "g0", "--listen", &listen, "--secret", &secret,
    ];
    start(cluster, "gateway-g0", &gateway);
    let refused = poll("the gateway", PATIENCE, || {
        let mut stream = std::net::TcpStream::connect(&listen).ok()?;
        let asked = "GET /ads/model/ HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(asked.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    });
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
}

fn a_tenant_submits(cluster: &Cluster, job: &serde_json::Value) {
    let dir = cluster.dir();
    let settings = |ca: bool| Settings {
        nkey: Some(dir.join("keys/tenant-ads.nk")),
        tls: Tls {
            required: true,
            ca: ca.then(|| dir.join("tls/ca.pem")),
            client: None,
        },
        connect_timeout: std::time::Duration::from_secs(5),
        ..Settings::new(cluster.url(), "ads")
    };
    let ads = || TenantId::new("ads").expect("valid");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let unknown = Tenant::connect(&settings(false), ads(), Encoding::Json, PATIENCE).await;
        assert!(unknown.is_err(), "it trusts whoever listens there");
        let tenant = Tenant::connect(&settings(true), ads(), Encoding::Json, PATIENCE).await;
        let tenant = tenant.expect("connects");
        let submitted = tenant.submit(job, Wait::Decided, None).await;
        assert_eq!(submitted.expect("admitted").job, "ads/own");
    });
}

#[test]
fn three_secured_brokers_carry_a_cluster_and_one_may_die() {
    let mut cluster = Cluster::new();
    let dir = cluster.dir().to_path_buf();
    configure(&cluster);
    start_brokers(&mut cluster);
    let file = |name: &str| dir.join(name).display().to_string();
    cluster.env("DORMOUSE_TLS_CA", &file("tls/ca.pem"));
    cluster.env("DORMOUSE_CHECKPOINTS", &file("checkpoints"));
    cluster.env("DORMOUSE_NKEY", &file("keys/operator.nk"));
    let policy = file("policy.yaml");
    std::fs::write(&policy, "policy: {theta1: 0.2}").expect("writes");
    let configure = [
        "policy",
        "set",
        &policy,
        "--ensure-streams",
        "--replicas",
        "3",
        "--reader",
        "node-n0",
        "--reader",
        "node-n1",
        "--reader",
        "gateway-g0",
    ];
    poll("the streams", PATIENCE, || {
        (cluster.run(&configure).code == 0).then_some(())
    });
    for service in SERVICES {
        start(&mut cluster, service, &[service]);
    }
    for node in ["n0", "n1"] {
        let agent = ["agent", "--node", node, "--capacity", "cpu=4,memory=8Gi"];
        start(&mut cluster, &format!("node-{node}"), &agent);
    }
    start_gateway(&mut cluster);
    cluster.wait_for_nodes(2);
    cluster.run(&["tenant", "set", "ads", "--weight", "1"]).ok();
    cluster.submit(&count_job("first", 200, (1, 8), &[])).ok();
    a_tenant_submits(&cluster, &count_job("own", 5, (1, 1), &[]));
    cluster.kill("nats-1");
    let mut second = count_job("second", 20, (1, 4), &[]);
    second["weight"] = json!(2);
    poll("the submission", PATIENCE, || {
        let said = cluster.submit(&second);
        (said.code != 1 || said.error()["code"] == "name_in_use").then_some(())
    });
    cluster.wait_completed("ads/second");
    cluster.wait_completed("ads/own");
    cluster.wait_completed("ads/first");
    cluster.check();
}

fn given() -> std::collections::BTreeMap<String, Vec<String>> {
    let path = crate::common::root().join("deploy/compose.yaml");
    let text = std::fs::read_to_string(path).expect("it ships");
    let mut document: serde_norway::Value = serde_norway::from_str(&text).expect("YAML");
    document.apply_merge().expect("anchors");
    let document = serde_json::to_value(document).expect("names are text");
    let services = document["services"].as_object().expect("services");
    let of = |service: &serde_json::Value| {
        let volumes = service["volumes"].as_array().into_iter().flatten();
        let sources = volumes.map(|it| it.as_str().expect("source:target"));
        let sources = sources.map(|it| it.split(':').next().unwrap_or_default().to_owned());
        let secret = |it: &String| it.starts_with("./keys") || it.starts_with("./tls");
        let mut secret: Vec<String> = sources.filter(secret).collect();
        secret.sort();
        secret
    };
    let services = services.iter();
    services.map(|(name, it)| (name.clone(), of(it))).collect()
}

#[test]
fn each_service_of_the_compose_file_has_its_own_key_only() {
    let given = given();
    assert!(given.len() > 12, "{given:?}");
    for (name, has) in given {
        let mut own = match name.as_str() {
            "jaeger" | "prometheus" => Vec::new(),
            "streams" => vec!["./keys/operator.nk".to_owned()],
            "gateway-g0" => vec![
                "./keys/gateway-g0.nk".to_owned(),
                "./keys/gateway.secret".to_owned(),
            ],
            agent if agent.starts_with("agent-") => {
                vec![format!("./keys/{}.nk", agent.replace("agent-", "node-"))]
            }
            nats if nats.starts_with("nats-") => {
                vec![format!("./tls/{nats}.key"), format!("./tls/{nats}.pem")]
            }
            service => vec![format!("./keys/{service}.nk")],
        };
        if !["jaeger", "prometheus"].contains(&name.as_str()) {
            own.push("./tls/ca.pem".to_owned());
            own.sort();
        }
        assert_eq!(has, own, "{name}");
    }
}

/// Monitoring needs no key and names every account.
#[test]
fn the_brokers_monitoring_listens_on_its_own_machine() {
    let environment = std::fs::read_to_string(nats("cluster.env")).expect("it ships");
    let line = |line: &&str| line.starts_with("DORMOUSE_NATS_MONITOR=");
    let monitor: Vec<&str> = environment.lines().filter(line).collect();
    assert_eq!(monitor, ["DORMOUSE_NATS_MONITOR=127.0.0.1:8222"]);
    for server in ["cluster-1.conf", "cluster-2.conf", "cluster-3.conf"] {
        let configuration = std::fs::read_to_string(nats(server)).expect("it ships");
        let of_monitoring = configuration.lines().filter(|it| it.starts_with("http"));
        let of_monitoring: Vec<&str> = of_monitoring.collect();
        assert_eq!(of_monitoring, ["http: $DORMOUSE_NATS_MONITOR"], "{server}");
    }
}
