//! Python packages of a job: a requirements file becomes an environment on the node.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::Cluster;
use dormouse_messages::{Event, Recorded};

const NODE: &str = "cpu=4,memory=8Gi";

#[test]
fn a_job_has_the_packages_of_its_file_and_its_document_has_their_lines() {
    if !has_uv() {
        return;
    }
    let cluster = Cluster::up(1, NODE);
    let folder = cluster.dir().join("project");
    std::fs::create_dir_all(&folder).expect("made");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("written");
    };
    // No network is needed if no marker holds.
    write(
        "requirements.txt",
        "# ours\nnowhere-at-all==1.0 ; python_version < \"3.0\"  # old\n",
    );
    write(
        "job.yaml",
        "tenant: ads\npython: {requirements: requirements.txt}\ncommand: {start: [python3, -c, 'import sys; print(sys.prefix)']}\ndemand: {cpu: 1}\n",
    );
    let file = folder.join("job.yaml").display().to_string();
    cluster.run(&["submit", &file, "--name", "one"]);
    cluster.wait_completed("ads/one");
    let document = cluster.run(&["job", "show", "ads/one", "--document"]).ok();
    let lines = &document.json()["python"]["requirements"];
    assert_eq!(
        lines[0], "nowhere-at-all==1.0 ; python_version < \"3.0\"",
        "{document:?}"
    );
    let sleeps = "command.start=[sleep, '1000']";
    cluster.run(&["submit", &file, "--name", "held", "--set", sleeps]);
    let shown = cluster.run_with(&["job", "show", "ads/held"], &["-o", "table"]);
    assert!(
        shown.out.contains("Packages    nowhere-at-all==1.0"),
        "{shown:?}"
    );
    cluster.run(&["job", "cancel", "ads/held"]).ok();
    let printed = cluster.run_with(&["job", "logs", "ads/one"], &[]).ok();
    let prefix = printed.out.trim();
    assert!(prefix.contains("/python/ads/"), "{printed:?}");
    assert!(Path::new(prefix).join("bin/python3").exists());
    let requirements = folder.join("requirements.txt").display().to_string();
    let command = ["--", "python3", "-c", "import sys; print(sys.prefix)"];
    let run = |file: &str| {
        let args = [
            &["run", "--tenant", "ads", "--requirements", file][..],
            &command,
        ]
        .concat();
        cluster.run_with(&args, &[])
    };
    assert_eq!(run(&requirements).ok().out.trim(), prefix);
    let said = run("/none/such");
    assert!(said.err.contains("/none/such"), "{said:?}");
    write("requirements.txt", "-e .\n");
    let said = run(&requirements);
    assert!(said.err.contains("is an option"), "{said:?}");
    write("requirements.txt", "nowhere-at-all @ 1.0\n");
    let said = cluster.run(&["submit", &file, "--name", "two"]);
    assert!(said.err.contains("no package of an index"), "{said:?}");
    let log = cluster.check();
    let started = |it: &&Arc<Recorded>| matches!(it.event(), Some(Event::ContainerStarted(_)));
    assert_eq!(log.iter().filter(started).count(), 3);
}

fn has_uv() -> bool {
    let has = Command::new("uv").arg("--version").output().is_ok();
    if !has {
        crate::clients::skipped("no uv; run scripts/install.sh trainers");
    }
    has
}
