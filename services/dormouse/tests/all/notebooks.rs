//! A real Jupyter Server behind the gateway: opened, used, ended when idle, and started again.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use dormouse_messages::Event;
use dormouse_messages::events::NotebookActivity;
use serde_json::{Value, json};

use crate::common::{Cluster, PATIENCE, poll, root};

/// Installed by `scripts/install.sh notebook`.
fn jupyter() -> Option<PathBuf> {
    let tools =
        std::env::var_os("DORMOUSE_TOOLS").map_or_else(|| root().join(".tools"), Into::into);
    let program = tools.join("notebook/bin/jupyter-server");
    let is_there = program.is_file();
    let must = std::env::var_os("DORMOUSE_NO_SKIP").is_some();
    assert!(
        is_there || !must,
        "{program:?} is not there: scripts/install.sh notebook"
    );
    is_there.then_some(program)
}

fn ask(address: &str, method: &str, path: &str, lines: &[&str], body: &str) -> String {
    let authority = address.strip_prefix("http://").expect("http");
    let (host, port) = authority
        .trim_end_matches('/')
        .rsplit_once(':')
        .expect("a port");
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let asked = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\ncontent-length: {}\r\n{lines}\r\n{body}",
        body.len()
    );
    stream.write_all(asked.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn open(cluster: &Cluster) -> (String, String) {
    let opened = cluster
        .run(&["notebook", "open", "ads/analysis"])
        .ok()
        .json();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    (text(&opened["addresses"][0]), text(&opened["token"]))
}

fn state(cluster: &Cluster) -> Value {
    let listed = cluster.run(&["notebook", "list"]).ok().json();
    listed["notebooks"][0].clone()
}

fn warned_before_it_ended(cluster: &Cluster, token: &str) {
    let log = cluster.log();
    let events: Vec<&Event> = log.iter().filter_map(|it| it.event()).collect();
    let place = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(|event| wanted(event));
    let observed = place(
        &|event| matches!(event, Event::NotebookObserved(it) if it.activity == NotebookActivity::Idle),
    );
    let warned = place(&|event| matches!(event, Event::NotebookWarned(_)));
    let scaled = place(&|event| matches!(event, Event::ServiceScaled(it) if it.replicas == 0));
    assert!(
        observed.is_some() && observed < warned && warned < scaled,
        "{observed:?} {warned:?} {scaled:?}"
    );
    let exported = std::fs::read_to_string(cluster.log_file()).expect("exported");
    assert!(!exported.contains(token), "the log has the token");
}

#[test]
fn a_notebook_is_opened_used_ended_and_started_again() {
    let Some(jupyter) = jupyter() else {
        eprintln!("skipped: there is no Jupyter; scripts/install.sh notebook");
        return;
    };
    let cluster = Cluster::up(1, "cpu=2,memory=4Gi");
    let submitted = cluster.submit(&json!({
        "name": "analysis", "tenant": "ads", "kind": "notebook",
        "command": {"start": [jupyter]},
        "demand": {"cpu": 1, "memory": "1Gi"},
        "containers": {"min": 0, "max": 1},
        "service": {"idle_s": 8, "drain_s": 2},
    }));
    assert!(matches!(submitted.code, 0 | 2), "{submitted:?}");
    let (address, token) = open(&cluster);
    assert_eq!(token.len(), 64);
    assert!(
        address.starts_with("http://analysis.ads.localhost:"),
        "{address}"
    );
    let without = ask(&address, "GET", "/api/kernels", &[], "");
    assert!(without.starts_with("HTTP/1.1 403"), "{without}");
    let shown = format!("authorization: token {token}");
    let with = |method: &str, path: &str, body: &str| ask(&address, method, path, &[&shown], body);
    assert!(with("GET", "/api/kernels", "").starts_with("HTTP/1.1 200"));
    let saved = with(
        "PUT",
        "/api/contents/kept.txt",
        r#"{"type": "file", "format": "text", "content": "41 + 1"}"#,
    );
    assert!(saved.starts_with("HTTP/1.1 201"), "{saved}");
    let kernel = with("POST", "/api/kernels", r#"{"name": "python3"}"#);
    assert!(kernel.starts_with("HTTP/1.1 201"), "{kernel}");
    // An open page that polls does not keep the notebook alive.
    let polled = || with("GET", "/api/kernels", "");
    poll("its end", 2 * PATIENCE, || {
        polled();
        (state(&cluster)["state"] == "stopped").then_some(())
    });
    warned_before_it_ended(&cluster, &token);
    let stopped = poll("the last connection's end", PATIENCE, || {
        let answer = polled();
        answer.contains("\"stopped\"").then_some(answer)
    });
    assert!(stopped.starts_with("HTTP/1.1 503"), "{stopped}");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        state(&cluster)["state"],
        "stopped",
        "an open page does not start it"
    );
    let (_, again) = open(&cluster);
    assert_ne!(again, token);
    let shown = format!("authorization: token {again}");
    let kept = ask(&address, "GET", "/api/contents/kept.txt", &[&shown], "");
    assert!(
        kept.starts_with("HTTP/1.1 200") && kept.contains("41 + 1"),
        "{kept}"
    );
    cluster.check();
}

#[test]
fn a_token_that_would_stand_on_the_log_is_refused() {
    let cluster = Cluster::up(1, "cpu=1,memory=1Gi");
    let document = |start: Value, env: Value| {
        json!({
            "name": "open", "tenant": "ads", "kind": "notebook",
            "command": {"start": start}, "env": env, "demand": {"cpu": 1, "memory": "1Gi"},
        })
    };
    for (start, env) in [
        (
            json!(["jupyter", "server"]),
            json!({"JUPYTER_TOKEN": "s3cret"}),
        ),
        (json!(["jupyter", "server"]), json!({"JUPYTER_TOKEN": ""})),
        (
            json!(["jupyter", "server", "--IdentityProvider.token="]),
            json!({}),
        ),
        (
            json!(["jupyter", "server", "--NotebookApp.token=s3cret"]),
            json!({}),
        ),
        (
            json!([
                "jupyter",
                "server",
                "--PasswordIdentityProvider.hashed_password=x"
            ]),
            json!({}),
        ),
    ] {
        let said = cluster.submit(&document(start, env));
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(said.error()["code"], "bad_token", "{said:?}");
    }
}
