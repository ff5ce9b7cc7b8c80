//! The guide to `lab import` shows the real output of its commands: records become a scenario that simulates.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::root;

const PAGE: &str = "docs/import.md";
const RECORDS: &str = "deploy/scenarios/sacct-sample.txt";

fn dormouse(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .current_dir(folder)
        .env_remove("DORMOUSE_OUTPUT")
        .args(args)
        .output()
        .expect("it starts")
}

#[track_caller]
fn printed(folder: &Path, args: &[&str]) -> String {
    let run = dormouse(folder, args);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{args:?}: {said}");
    String::from_utf8(run.stdout).expect("text")
}

/// A folder with the records at their place.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().join(RECORDS);
    std::fs::create_dir_all(records.parent().expect("a parent")).expect("made");
    std::fs::copy(root().join(RECORDS), records).expect("copied");
    folder
}

#[test]
fn the_guide_shows_what_the_commands_print() {
    let folder = folder();
    let page = root().join(PAGE);
    let text = std::fs::read_to_string(&page).expect("the page");
    let mut whole = String::new();
    let mut parts = text.split("```\n$ ");
    whole.push_str(parts.next().expect("a beginning"));
    for part in parts {
        let (block, rest) = part.split_once("```").expect("its end");
        let command = block.lines().next().expect("a command");
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        let printed = printed(folder.path(), &args);
        // The page explains the rest itself.
        let rest_begins = ["\n\nAssumptions:", "\n\nAGAINST"].map(|it| printed.find(it));
        let end = rest_begins.into_iter().flatten().min();
        let table = &printed[..end.unwrap_or(printed.len())];
        let table: Vec<&str> = table.lines().map(str::trim_end).collect();
        let table = table.join("\n");
        whole.push_str(&format!(
            "```\n$ {command}\n{}\n```{rest}",
            table.trim_end()
        ));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, whole).expect("the page is written");
        return;
    }
    assert_eq!(
        text, whole,
        "run UPDATE_DOCS=1 cargo test -p dormouse --test all import"
    );
}

#[test]
fn a_scenario_on_the_standard_output_simulates_and_its_report_is_a_note() {
    let folder = folder();
    let import = ["lab", "import", "sacct", RECORDS, "--elastic", "gpu"];
    let run = dormouse(folder.path(), &import);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("60 of 64 rows became jobs"), "{said}");
    assert!(
        said.contains("the fewest whose sum holds the peak usage"),
        "{said}"
    );
    let scenario = folder.path().join("piped.json");
    std::fs::write(&scenario, &run.stdout).expect("written");
    let simulate = [
        "lab",
        "simulate",
        "piped.json",
        "--policy",
        "default",
        "-o",
        "json",
    ];
    let answer: Value = serde_json::from_str(&printed(folder.path(), &simulate)).expect("JSON");
    assert_eq!(answer["runs"][0]["completed"], 60);

    let again = ["--file", "again.json", "-o", "json"];
    let report = printed(folder.path(), &[&import[..], &again].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["left_out"]["never_started"], 2);
    assert!(report["recorded"]["waiting_s"]["p90"].as_f64() > Some(0.0));
    let written = std::fs::read(folder.path().join("again.json")).expect("there");
    assert!(written == run.stdout, "one scenario wherever it goes");
}

#[test]
fn mistakes_in_records_are_named() {
    let folder = folder();
    let wrong = |text: &str, args: &[&str], why: &str| {
        std::fs::write(folder.path().join("wrong.txt"), text).expect("written");
        let args = [&["lab", "import", "sacct", "wrong.txt"], args].concat();
        let run = dormouse(folder.path(), &args);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(why), "{said}");
    };
    wrong("", &[], "it is empty; make the file with `sacct --allusers");
    wrong(
        "JobID|User\n",
        &[],
        "no column ElapsedRaw or Elapsed or End; make the file",
    );
    let records = "JobID|Account|Submit|Start|End|AllocTRES\n1|a|5|6|now|cpu=1\n";
    wrong(
        records,
        &[],
        "line 2, column End: \"now\" is no time; write 2026-11-01T10:00:00",
    );
    wrong(records, &["--skip-bad"], "none of its 1 rows became a job");
    wrong(
        records,
        &["--nodes", "wrong.txt"],
        "nodes, line 1: the CPUs are no whole number",
    );
    wrong(records, &["--file", "wrong.txt"], "is read by this command");
}
