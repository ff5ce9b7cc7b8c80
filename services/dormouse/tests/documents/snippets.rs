//! Jobs, policies and problems in documents are accepted.

use dormouse_messages::TenantId;
use dormouse_messages::job::JobDocument;
use dormouse_messages::policy::Policy;
use dormouse_replay::scenario;
use serde_json::{Value, json};

use super::markdown::{Block, Page};
use super::{pages, read, root};

fn job(mut value: Value) -> Result<(), String> {
    if value["workdir"].is_string() {
        value["workdir"] = json!({"sha256": "0".repeat(64), "bytes": 1});
    }
    if value["python"]["requirements"].is_string() {
        value["python"]["requirements"] = json!(["numpy==1.26.4"]);
    }
    let tenant = value["tenant"].as_str().unwrap_or("ads").to_owned();
    let tenant: TenantId = tenant.parse().map_err(|error| format!("{error}"))?;
    let document: JobDocument = serde_json::from_value(value).map_err(|error| error.to_string())?;
    match dormouse_admission::parse_job(document, &tenant, "unnamed", 0) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// The fields show the kind of block.
fn problem(block: &Block) -> Option<String> {
    let value: Result<Value, String> = match block.language.as_str() {
        "yaml" => serde_norway::from_str(&block.text).map_err(|error| error.to_string()),
        "json" => serde_json::from_str(&block.text).map_err(|error| error.to_string()),
        _ => return None,
    };
    let checked = value.and_then(|value| {
        let has = |field: &str| !value[field].is_null();
        if has("command") {
            job(value)
        } else if has("scenario") {
            scenario::read_value(value)
                .map(drop)
                .map_err(|error| error.to_string())
        } else if has("nodes") && has("jobs") {
            let solved = dormouse_optimizer::solve_document(&block.text);
            solved.map(drop).map_err(|error| error.to_string())
        } else if has("policy") {
            let policy = value["policy"].clone();
            let policy: Policy =
                serde_json::from_value(policy).map_err(|error| error.to_string())?;
            policy.problem().map_or(Ok(()), Err)
        } else {
            Ok(())
        }
    });
    checked.err()
}

fn wrong(page: &Page) -> Vec<String> {
    let blocks = page.blocks().into_iter();
    let wrong = blocks.filter_map(|block| Some((block.line, problem(&block)?)));
    wrong
        .map(|(line, why)| format!("{}:{line}: {why}", page.path))
        .collect()
}

#[test]
fn documents_in_documents_are_accepted() {
    let wrong: Vec<String> = pages().iter().flat_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_document_is_found() {
    let page = Page {
        path: "x.md".to_owned(),
        text: "```yaml\ncommand: {start: [x]}\ndemand: {cpu: 1}\ngpus: 1\n```\n```yaml\npolicy: {theta1: 7}\n```\n```json\n{\n```\n```json\n{\"nodes\": [], \"jobs\": [{}]}\n```\n".to_owned(),
    };
    assert_eq!(wrong(&page).len(), 4, "{:?}", wrong(&page));
}

#[test]
fn the_examples_are_accepted() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("deploy/examples")).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        seen += 1;
        let block = Block {
            line: 1,
            language: "yaml".to_owned(),
            text: std::fs::read_to_string(&path).expect("a text"),
        };
        assert_eq!(problem(&block), None, "{}", path.display());
    }
    assert!(seen >= 12, "{seen} examples");
}

#[test]
fn the_first_job_is_the_example() {
    let readme = pages()
        .into_iter()
        .find(|page| page.path == "README.md")
        .expect("a README");
    let shown = readme
        .blocks()
        .into_iter()
        .find(|block| block.language == "yaml");
    let shown = shown.expect("a job");
    let parsed = |text: &str| serde_norway::from_str::<Value>(text).expect("YAML");
    assert_eq!(
        parsed(&shown.text),
        parsed(&read("deploy/examples/count.yaml"))
    );
}

#[test]
fn the_problem_is_solved_as_the_page_says() {
    let page = pages()
        .into_iter()
        .find(|page| page.path == "docs/simulation.md")
        .expect("the page");
    let problem = page
        .blocks()
        .into_iter()
        .find(|block| block.language == "json")
        .expect("a problem");
    let answer = dormouse_optimizer::solve_document(&problem.text).expect("a solution");
    let count = |job: &str| {
        let jobs = answer["jobs"].as_array().into_iter().flatten();
        jobs.filter(|row| row["job"] == job)
            .map(|row| row["containers"].clone())
            .next()
    };
    assert_eq!(count("ads/lr"), Some(4.into()), "{answer:#}");
    assert_eq!(count("search/new"), Some(2.into()), "{answer:#}");
}
