//! The questions of docs/archive.md in DuckDB, asked of a simulated log.

use std::path::Path;
use std::process::Command;

use crate::clients::tools;

const ASK: &str = "import duckdb, sys\n\
    rows = duckdb.sql(sys.argv[1]).fetchall()\n\
    print(len(rows), rows[0] if rows else '')\n";

#[test]
fn the_questions_of_the_page_have_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args([
            "lab",
            "simulate",
            "--generate",
            "trace",
            "--seed",
            "7",
            "--jobs",
            "100",
            "--nodes",
            "20",
        ])
        .output()
        .expect("runs");
    assert!(scenario.status.success(), "{scenario:?}");
    std::fs::write(folder.path().join("scenario.json"), scenario.stdout).expect("written");
    let simulated = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .current_dir(&folder)
        .args([
            "lab",
            "simulate",
            "scenario.json",
            "--write-log",
            "log.parquet",
        ])
        .output()
        .expect("runs");
    assert!(simulated.status.success(), "{simulated:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/archive.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let blocks = page.split("```sql\n").skip(1);
    let questions: Vec<&str> = blocks.filter_map(|it| it.split("```").next()).collect();
    assert_eq!(questions.len(), 3);
    for question in questions {
        let mut python = Command::new(tools().join("python/bin/python3"));
        let answer = python
            .current_dir(&folder)
            .args(["-c", ASK, question])
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&answer.stdout);
        assert!(
            answer.status.success() && !text.starts_with('0'),
            "{question}{answer:?}"
        );
    }
}
