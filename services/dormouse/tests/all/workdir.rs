//! The job's folder is packed at submission, and runs as packed.

use std::path::{Path, PathBuf};

use crate::common::Cluster;
use dormouse_messages::Event;
use serde_json::{Value, json};

const NODE: &str = "cpu=4,memory=8Gi";

fn project(cluster: &Cluster, version: &str) -> PathBuf {
    let folder = cluster.dir().join("project");
    std::fs::create_dir_all(folder.join("data")).expect("made");
    let program = "#!/bin/sh\ncat version; ls\nwhile [ ! -e $SIGNS/go ]; do sleep 0.05; done\n[ -e $SIGNS/failed ] && exit 0\ntouch $SIGNS/failed; exit 1\n";
    write(&folder.join("train.sh"), program);
    write(&folder.join("version"), version);
    write(&folder.join(".gitignore"), "data/\n");
    write(&folder.join("data/large"), "left out");
    let mut mode = std::fs::metadata(folder.join("train.sh"))
        .expect("there")
        .permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(folder.join("train.sh"), mode).expect("set");
    let document = json!({"tenant": "ads", "workdir": ".", "command": {"start": ["./train.sh"]},
        "demand": {"cpu": 1}, "retries": 1, "env": {"SIGNS": cluster.dir()}});
    write(&folder.join("job.json"), &document.to_string());
    folder
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
}

fn digest(cluster: &Cluster, job: &str) -> String {
    let document = cluster.run(&["job", "show", job, "--document"]).ok().json();
    let sha256 = document["workdir"]["sha256"].as_str();
    sha256.expect("a digest").to_owned()
}

#[test]
fn a_retry_runs_what_was_submitted_and_a_changed_folder_is_another() {
    let cluster = Cluster::up(2, NODE);
    let folder = project(&cluster, "old\n");
    let file = folder.join("job.json");
    let submit = |name: &str| {
        let said = cluster.run(&["submit", file.to_str().expect("UTF-8"), "--name", name]);
        assert_eq!(said.code, 0, "{said:?}");
    };
    // Relative to the document, from any directory; a dry run stores nothing.
    let file_name = file.to_str().expect("UTF-8");
    let dry = cluster.run(&["submit", file_name, "--dry-run"]).ok().json();
    submit("one");
    let sha256 = digest(&cluster, "ads/one");
    assert_eq!(dry["workdir"]["sha256"], sha256.as_str());
    let shown = cluster
        .run_with(&["job", "show", "ads/one"], &["-o", "table"])
        .ok();
    let named = format!("packed, sha256 {sha256}");
    assert!(shown.out.contains(&named), "{shown:?}");
    cluster.wait_event("the start of ads/one", |event| match event {
        Event::ContainerStarted(_) => Some(()),
        _ => None,
    });
    write(&folder.join("version"), "new\n");
    write(&cluster.dir().join("go"), "");
    cluster.wait_completed("ads/one");
    let printed = cluster
        .run_with(&["job", "logs", "ads/one", "--all"], &[])
        .ok();
    assert_eq!(printed.out.matches("old").count(), 2, "{printed:?}");
    assert!(
        !printed.out.contains("new") && !printed.out.contains("data"),
        "{printed:?}"
    );
    submit("two");
    cluster.wait_completed("ads/two");
    assert_ne!(digest(&cluster, "ads/one"), digest(&cluster, "ads/two"));
    let printed = cluster
        .run_with(&["job", "logs", "ads/two", "--all"], &[])
        .ok();
    assert!(printed.out.contains("new"), "{printed:?}");
    let document = cluster.run(&["job", "show", "ads/one", "--document"]).ok();
    let again = cluster.dir().join("again.json");
    write(&again, &document.out);
    std::fs::remove_dir_all(&folder).expect("removed");
    let again = again.to_str().expect("UTF-8");
    cluster.run(&["submit", again, "--name", "again"]).ok();
    cluster.wait_completed("ads/again");
    let printed = cluster
        .run_with(&["job", "logs", "ads/again", "--all"], &[])
        .ok();
    assert!(printed.out.contains("old"), "{printed:?}");
    cluster.check();
    pruned(&cluster, again);
}

fn pruned(cluster: &Cluster, document: &str) {
    let prune = |more: &[&str]| {
        let args = [&["cluster", "prune", "--older-than", "0"], more].concat();
        cluster.run(&args).ok().json()
    };
    let stored = |answer: &Value| answer["workdirs"].as_array().map_or(0, Vec::len);
    assert_eq!(stored(&prune(&[])), 2);
    let sleeps = "command.start=[sleep, '1000']";
    let submit = ["submit", document, "--name", "held", "--set", sleeps];
    cluster.run(&submit).ok();
    assert_eq!(stored(&prune(&["--yes"])), 1);
    assert_eq!(stored(&prune(&[])), 0);
    cluster.run(&["job", "cancel", "ads/held"]).ok();
    cluster.wait_event("the end of ads/held", |event| match event {
        Event::JobCancelled(it) if it.job.name() == "held" => Some(()),
        _ => None,
    });
    assert_eq!(stored(&prune(&["--yes"])), 1);
    let logs = cluster.run(&["job", "logs", "ads/one"]).ok();
    assert!(logs.err.contains("is not kept any more"), "{logs:?}");
    let said = cluster.run(&["submit", document, "--name", "gone"]);
    assert_eq!(said.code, 0, "{said:?}");
    let why = cluster.wait_event("the failure of ads/gone", |event| match event {
        Event::ContainerExited(it) if it.container.job.name() == "gone" => it.reason.clone(),
        _ => None,
    });
    assert!(why.contains("is not in the cluster's store"), "{why}");
}

#[test]
fn run_takes_a_folder_along() {
    let cluster = Cluster::up(1, NODE);
    let folder = project(&cluster, "3\n");
    let folder = folder.to_str().expect("UTF-8");
    let command = ["--", "sh", "-c", "cat version; pwd"];
    let args = [&["run", "--workdir", folder][..], &command].concat();
    let said = cluster.run_with(&args, &[]).ok();
    assert!(
        said.out.starts_with("3\n") && said.out.contains("/code\n"),
        "{said:?}"
    );
    let args = [&["run", "--workdir", "/none/such"][..], &command].concat();
    let said = cluster.run(&args);
    assert!(said.err.contains("/none/such"), "{said:?}");
}
