//! Commands never overwrite files unasked, and never their own input.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Cluster, count_job, root};

fn dormouse(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .current_dir(folder)
        .env_remove("DORMOUSE_OUTPUT")
        .args(args)
        .output()
        .expect("it starts")
}

#[track_caller]
fn refused(folder: &Path, file: &str, args: &[&str], why: &str) {
    let before = std::fs::read(folder.join(file)).expect("there");
    let said = dormouse(folder, args);
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(1), "{args:?}: {err}");
    assert!(err.contains(why), "{args:?}: {err}");
    assert!(
        std::fs::read(folder.join(file)).expect("there") == before,
        "{args:?} has changed {file}"
    );
}

#[test]
fn no_command_writes_over_a_file_unasked_or_over_what_it_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let scenario = root().join("deploy/scenarios/dorm-seed1.json");
    std::fs::copy(scenario, folder.join("sc.json")).expect("copied");
    std::fs::write(folder.join("mine"), "mine").expect("written");
    let made = dormouse(
        folder,
        &["lab", "simulate", "sc.json", "--write-log", "log.jsonl"],
    );
    assert!(made.status.success(), "{made:?}");

    let (exists, is_read) = ("exists already", "is read by this command");
    let simulate = ["lab", "simulate", "sc.json", "--write-log"];
    let of_log = ["--log", "log.jsonl"];
    for (args, option, file) in [
        (&simulate[..], "", "mine"),
        (&["lab", "simulate", "sc.json"], "--report", "mine"),
        (&["log", "export"], "--file", "mine"),
        (
            &["log", "slice", "--from", "5", "--to", "9"],
            "--file",
            "mine",
        ),
        (&["log", "trace"], "--file", "mine"),
        (&["timeline", "jobs"], "--file", "mine"),
        (&["ledger", "-o", "csv"], "--file", "mine"),
        (&["whatif", "--drop-node", "n0"], "--report", "mine"),
    ] {
        let mut args = args.to_vec();
        if args[0] != "lab" {
            args.extend(of_log);
        }
        args.extend(Some(option).filter(|it| !it.is_empty()));
        args.push(file);
        refused(folder, file, &args, exists);
        let own = if args[0] == "lab" {
            "sc.json"
        } else {
            "log.jsonl"
        };
        if file == "mine" {
            *args.last_mut().expect("one") = own;
            args.push("--overwrite");
            refused(folder, own, &args, is_read);
        }
    }
    let again = dormouse(
        folder,
        &[
            "lab",
            "simulate",
            "sc.json",
            "--write-log",
            "mine",
            "--overwrite",
        ],
    );
    assert!(again.status.success(), "{again:?}");
    let read = |file: &str| std::fs::read(folder.join(file)).expect("there");
    assert!(read("mine") == read("log.jsonl"));
    let left = std::fs::read_dir(folder).expect("there").count();
    assert_eq!(left, 3, "partial files are left");
}

#[test]
fn a_program_that_is_not_where_jobs_start_is_named_when_the_job_is_submitted() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    let mut job = count_job("gone", 1, (1, 1), &[]);
    assert_eq!(cluster.submit(&job).ok().err, "");
    job["name"] = "away".into();
    job["command"]["start"][1] = "deploy/not-there/count.py".into();
    let said = cluster.submit(&job).ok();
    let expected = format!(
        "there is no deploy/not-there/count.py in {}",
        root().display()
    );
    assert!(said.err.contains(&expected), "{said:?}");
}
