//! The command line with a tenant's key of both forms, as a submitter and as a viewer.

use std::time::{Duration, Instant};

use crate::common::{Cluster, PATIENCE, poll};
use crate::{account_commands, who};
use dormouse_messages::Event;
use serde_json::{Value, json};

/// Less than any request timeout.
const AT_ONCE: Duration = Duration::from_secs(4);

type Person = fn(&mut Cluster, &str);

fn sleeps(name: &str) -> Value {
    json!({"name": name, "command": {"start": ["sh", "-c", "echo from $DORMOUSE_RANK; exec sleep 600"]},
        "demand": {"cpu": 1}})
}

fn echoes(name: &str) -> Value {
    json!({"name": name, "command": {"start": ["echo", "done"]}, "demand": {"cpu": 1}})
}

#[track_caller]
fn not_permitted(cluster: &Cluster, command: &[&str]) -> String {
    let begun = Instant::now();
    // Words after `--` belong to another command.
    let said = cluster.run_with(&[&["-o", "json"], command].concat(), &[]);
    let took = begun.elapsed();
    let error = said.error();
    assert_eq!(error["code"], "not_permitted", "{command:?} {said:?}");
    assert!(took < AT_ONCE, "{command:?} took {took:?}");
    error["message"].as_str().expect("text").to_owned()
}

fn phase(cluster: &Cluster, job: &str) -> Value {
    cluster.run(&["job", "show", job]).ok().json()["phase"].clone()
}

fn a_submitter_works(cluster: &Cluster) {
    let submitted = cluster.submit(&sleeps("long"));
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let submitted = submitted.json();
    assert_eq!(
        (&submitted["job"], &submitted["state"]),
        (&json!("ads/long"), &json!("allocated"))
    );
    let again = cluster.submit(&echoes("long")).error();
    assert_eq!(again["code"], "name_in_use", "{again}");
    let listed = cluster.run(&["jobs"]).ok().json();
    assert_eq!(listed["jobs"][0]["job"], "ads/long", "{listed}");
    let job = cluster.run(&["job", "show", "long"]).ok().json();
    assert_eq!(job["submitted_by"]["user"], "alice", "{job}");
    poll("the start", PATIENCE, || {
        (phase(cluster, "long") == "running").then_some(())
    });
    let inside = ["job", "exec", "long", "--", "echo", "inside"];
    let inside = cluster.run_with(&inside, &[]).ok();
    assert_eq!(inside.out, "inside\n");
    let printed = poll("what it prints", PATIENCE, || {
        let said = cluster.run_with(&["job", "logs", "long"], &[]).ok();
        said.out.contains("from 0").then_some(said.out)
    });
    assert_eq!(printed, "from 0\n");
    let revise = ["job", "update", "long", "--priority", "3"];
    let revised = cluster.run(&revise).ok().json();
    assert_eq!(revised["changes"], "priority 0 → 3", "{revised}");
    let revise = ["job", "update", "long", "--time-limit", "90m"];
    let said = cluster.run_with(&revise, &[]).ok().out;
    assert!(
        said.contains(" is revised: time limit none → 1h30m"),
        "{said}"
    );
    cluster.run(&["job", "cancel", "long"]).ok();
    let waited = cluster.run(&["job", "wait", "ads/long"]);
    assert_eq!(
        (waited.code, &waited.json()["phase"]),
        (4, &json!("cancelled"))
    );
    cluster.run(&["tenant", "show", "ads"]).ok();
    let nodes = cluster.run(&["nodes"]).ok().json();
    assert_eq!(nodes["nodes"][0]["node"], "n0", "{nodes}");
    assert_eq!(nodes["nodes"][0]["address"], "", "{nodes}");
}

fn a_submitter_waits(cluster: &Cluster) {
    let path = cluster.dir().join("two.yaml");
    let two = format!("{}\n---\n{}\n", echoes("one"), echoes("two"));
    std::fs::write(&path, two).expect("writes");
    let both = cluster.run(&["submit", path.to_str().expect("UTF-8")]).ok();
    assert_eq!(both.out.matches("\"admitted\"").count(), 2, "{both:?}");
    let path = cluster.dir().join("waited.json");
    std::fs::write(&path, echoes("waited").to_string()).expect("writes");
    let waited = cluster.run(&["submit", path.to_str().expect("UTF-8"), "--wait"]);
    assert_eq!(
        (waited.code, &waited.json()["phase"]),
        (0, &json!("completed"))
    );
    let ran = cluster.run_with(&["run", "--", "sh", "-c", "echo out; exit 7"], &[]);
    assert_eq!((ran.code, ran.out.as_str()), (7, "out\n"), "{ran:?}");
}

fn a_submitter_holds_to_a_plan(cluster: &mut Cluster, person: Person) {
    let path = cluster.dir().join("planned.json");
    std::fs::write(&path, echoes("planned").to_string()).expect("writes");
    let path = path.to_str().expect("UTF-8").to_owned();
    person(cluster, "operator-olga");
    let plan = cluster.run(&["plan", "--tenant", "ads", &path]).json();
    let token = plan["token"].as_str().expect("a token").to_owned();
    person(cluster, "user-ads.alice");
    let submitted = cluster.run(&["submit", &path, "--if-plan", &token]);
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let (_, digest) = token.split_once('.').expect("parts");
    let mut parts: Vec<&str> = digest.split('.').collect();
    parts[1] = "0000000000000000";
    let stale = format!("plan1.{}", parts.join("."));
    let again = path.replace("planned", "later");
    std::fs::write(&again, echoes("later").to_string()).expect("writes");
    let stale = cluster
        .run(&["submit", &again, "--if-plan", &stale])
        .error();
    assert_eq!(stale["code"], "plan_stale", "{stale}");
}

fn what_is_not_for_tenants_is_said_at_once(cluster: &Cluster) {
    let policy = cluster.dir().join("policy.yaml").display().to_string();
    let commands: [&[&str]; 10] = [
        &["node", "show", "n0"],
        &["node", "drain", "n0"],
        &["tenants"],
        &["cluster", "status"],
        &["policy", "set", &policy],
        &["log", "tail"],
        &["job", "events", "ads/long"],
        &["explain", "ads/long"],
        &["whatif"],
        &["submit", &policy, "--dry-run"],
    ];
    for command in commands {
        let why = not_permitted(cluster, command);
        assert!(why.contains("one of tenant ads"), "{command:?}: {why}");
    }
    let others: [&[&str]; 4] = [
        &["jobs", "--tenant", "web"],
        &["job", "cancel", "web/a"],
        &["run", "--tenant", "web", "--", "true"],
        &["tenant", "show", "web"],
    ];
    for command in others {
        let why = not_permitted(cluster, command);
        assert!(why.contains("speaks for no other"), "{command:?}: {why}");
    }
}

fn a_viewer_looks(cluster: &Cluster) {
    let listed = cluster.run(&["jobs"]).ok().json();
    assert!(
        listed["jobs"]
            .as_array()
            .is_some_and(|jobs| jobs.len() >= 5),
        "{listed}"
    );
    assert_eq!(phase(cluster, "waited"), "completed");
    let logs = cluster.run_with(&["job", "logs", "waited"], &[]).ok();
    assert_eq!(logs.out, "done\n");
    assert_eq!(cluster.run(&["job", "wait", "waited"]).code, 0);
    let policy = cluster.dir().join("waited.json").display().to_string();
    for command in [
        &["submit", &policy] as &[&str],
        &["job", "cancel", "waited"],
        &["job", "exec", "waited", "--", "true"],
        &["run", "--", "true"],
    ] {
        let why = not_permitted(cluster, command);
        assert!(why.contains("viewer's of tenant ads"), "{command:?}: {why}");
    }
}

fn holds(cluster: &mut Cluster, person: Person) {
    person(cluster, "user-ads.alice");
    a_submitter_works(cluster);
    a_submitter_waits(cluster);
    what_is_not_for_tenants_is_said_at_once(cluster);
    a_submitter_holds_to_a_plan(cluster, person);
    person(cluster, "user-ads.vera");
    a_viewer_looks(cluster);
    person(cluster, "tenant-ads");
    let submitted = cluster.submit(&echoes("plain"));
    assert_eq!(
        (submitted.code, &submitted.json()["job"]),
        (0, &json!("ads/plain"))
    );
    not_permitted(cluster, &["cluster", "status"]);
    person(cluster, "operator");
    let log = cluster.check();
    let hers = log
        .iter()
        .filter(|it| it.by().is_some_and(|by| by.is("ads/alice")));
    let hers = hers.filter_map(|it| it.event());
    let admitted = hers
        .filter(|event| matches!(event, Event::JobAdmitted(_)))
        .count();
    assert_eq!(admitted, 6);
}

#[test]
fn a_tenants_key_in_a_file_of_accounts_is_the_tenants_command_line() {
    holds(&mut who::start(), who::as_person);
}

#[test]
fn a_tenants_key_made_while_the_broker_runs_is_the_tenants_command_line() {
    let mut cluster = account_commands::start();
    cluster.run(&["tenant", "create", "ads"]).ok();
    for (person, role) in [("ads/alice", "submitter"), ("ads/vera", "viewer")] {
        cluster
            .run(&["account", "add", person, "--role", role])
            .ok();
    }
    holds(&mut cluster, account_commands::as_person);
}
