//! The guide shows the real output of a command. (Other tests of documents are in `tests/documents`.)

use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/simulation.md";
const COMMAND: &str =
    "lab simulate deploy/scenarios/dorm-seed1.json --policy static,dorm-3,default";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn printed() -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(COMMAND.split(' '))
        .current_dir(root())
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let text = String::from_utf8(run.stdout).expect("text");
    let table = text.split("\n\n").next().unwrap_or_default();
    table.trim_end().to_owned()
}

#[test]
fn the_simulation_in_the_guide_prints_what_it_says() {
    let page = root().join(PAGE);
    let text = std::fs::read_to_string(&page).expect("the page");
    assert!(text.contains(COMMAND), "{PAGE} names {COMMAND}");
    let from = text.find("```\nSCENARIO").expect("its output") + 4;
    let to = from + text[from..].find("\n```").expect("its end");
    let printed = printed();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let whole = format!("{}{printed}{}", &text[..from], &text[to..]);
        std::fs::write(&page, whole).expect("the page is written");
        return;
    }
    assert_eq!(
        text[from..to],
        printed,
        "run UPDATE_DOCS=1 cargo test -p dormouse --test all documents"
    );
}
