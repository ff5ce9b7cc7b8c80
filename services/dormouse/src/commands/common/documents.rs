//! Reads job documents, applies changes, and makes one per table row or combination of values.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dormouse_messages::sanitize;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::workdir;
use crate::context::{finite, read_text, shown};

/// More tasks belong in a task set.
const MOST: usize = 100_000;

const NAMED: usize = 8;

const ENDINGS: [&str; 5] = ["yaml", "yml", "json", "jsonl", "ndjson"];

/// A change of a document: a path and its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    path: String,
    values: Vec<Value>,
}

impl std::str::FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((path, values)) = text.split_once('=') else {
            return Err(format!("{text:?} is no change such as env.LR=0.1"));
        };
        let path = path.trim();
        let values = split(values).into_iter().map(|text| value(path, text));
        let values: Result<Vec<Value>, String> = values.collect();
        Ok(Self {
            path: path.to_owned(),
            values: values?,
        })
    }
}

/// Fields that hold text keep their spelling: a commit such as `12345e6` is no number there.
fn value(path: &str, text: &str) -> Result<Value, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Value::String(String::new()));
    }
    let read = serde_norway::from_str::<serde_norway::Value>(text);
    let is_number = match &read {
        Ok(value) => value.is_number(),
        Err(_) => text.parse::<f64>().is_ok(),
    };
    if is_number && is_text(path) {
        return Ok(Value::String(text.to_owned()));
    }
    let bad = |error| format!("{text:?}: {error}");
    let read = read.map_err(bad)?;
    finite(&read).map_err(|error| error.to_string())?;
    serde_norway::from_value(read).map_err(bad)
}

fn is_text(path: &str) -> bool {
    let of_environment = |(map, _): (&str, &str)| map == "env" || map.ends_with(".env");
    matches!(path, "name" | "tenant" | "image") || path.rsplit_once('.').is_some_and(of_environment)
}

fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// A job document and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub document: Value,
    /// For people: `jobs.yaml, document 2, row 3 of table.csv`.
    pub place: String,
    /// For people: `env.LR=0.1, env.SEED=2`.
    pub values: String,
}

type Row = Vec<(String, Value)>;

fn combinations(sets: &[Set]) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = vec![Vec::new()];
    for set in sets {
        if rows.len().saturating_mul(set.values.len()) > MOST {
            bail!("these values make more than {MOST} jobs");
        }
        let longer = rows.iter().flat_map(|row| {
            set.values.iter().map(|value| {
                let mut row = row.clone();
                row.push((set.path.clone(), value.clone()));
                row
            })
        });
        rows = longer.collect();
    }
    Ok(rows)
}

fn table(path: &Path) -> anyhow::Result<Vec<Row>> {
    let text = read_text(path)?;
    let of = || shown(path);
    if path.extension().is_none_or(|ending| ending != "csv") {
        let read = serde_norway::from_str::<serde_norway::Value>(&text).with_context(of)?;
        finite(&read).with_context(of)?;
        let rows: Vec<Map<String, Value>> = serde_norway::from_value(read).with_context(|| {
            format!(
                "{}: a table is a list of maps such as {{env.LR: 0.1}}, or a .csv",
                of()
            )
        })?;
        return Ok(rows
            .into_iter()
            .map(|row| row.into_iter().collect())
            .collect());
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let paths = split(lines.next().with_context(|| format!("{} is empty", of()))?);
    let row = |(number, line): (usize, &str)| {
        let cells = split(line);
        if cells.len() != paths.len() {
            let (has, wants) = (cells.len(), paths.len());
            bail!(
                "{}: row {} has {has} cells, the first line {wants}",
                of(),
                number + 1
            );
        }
        let cell = |(path, cell): (&&str, &str)| {
            let path = path.trim();
            let value = value(path, cell).map_err(anyhow::Error::msg);
            let value = value.with_context(|| format!("{}: row {}", of(), number + 1))?;
            Ok((path.to_owned(), value))
        };
        paths.iter().zip(cells).map(cell).collect()
    };
    lines.enumerate().map(row).collect()
}

fn put(document: &mut Value, path: &str, value: &Value) -> anyhow::Result<()> {
    let mut place = document;
    for step in path.split('.') {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = match place {
            Value::Object(fields) => fields.entry(step).or_insert(Value::Null),
            Value::Array(values) => {
                let index: Option<usize> = step.parse().ok();
                let found = index.and_then(|index| values.get_mut(index));
                found.with_context(|| format!("{path}: there is no {step} in that list"))?
            }
            _ => bail!("{path}: what is before {step} is neither a map nor a list"),
        };
    }
    value.clone_into(place);
    Ok(())
}

/// Changes one document.
///
/// # Errors
/// If a change has several values, or its path cannot exist.
pub fn change(document: &mut Value, sets: &[Set]) -> anyhow::Result<()> {
    for Set { path, values } in sets {
        match values.as_slice() {
            [value] => put(document, path, value)?,
            _ => bail!(
                "--set {path}: several values make several jobs, and here is one; write a list as {path}=[a, b]"
            ),
        }
    }
    Ok(())
}

fn in_file(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = read_text(path)?;
    let ending = path.extension().and_then(|ending| ending.to_str());
    let mut documents = Vec::new();
    if matches!(ending, Some("jsonl" | "ndjson")) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            documents.push(serde_json::from_str(line).with_context(|| shown(path))?);
        }
    } else {
        let form = if text.trim_start().starts_with(['{', '[']) {
            "JSON"
        } else {
            "YAML"
        };
        let bad = || format!("{}: not valid {form}", shown(path));
        for document in serde_norway::Deserializer::from_str(&text) {
            // Parsing into a mapping rejects duplicate keys.
            let value = serde_norway::Value::deserialize(document).with_context(bad)?;
            match value {
                serde_norway::Value::Null => continue,
                serde_norway::Value::Mapping(_) => {}
                _ => bail!(
                    "{}: no job document: one is a map that begins with such a line as `name: train`; `dormouse schema` prints what it may have",
                    shown(path)
                ),
            }
            finite(&value).with_context(|| shown(path))?;
            documents.push(serde_norway::from_value(value).with_context(bad)?);
        }
    }
    let beside = path.parent().unwrap_or(Path::new(""));
    for document in &mut documents {
        workdir::resolve(document, beside);
    }
    if documents.is_empty() {
        if path.as_os_str() == "-" {
            bail!("the standard input is empty; give it a document, or name a file")
        } else {
            bail!("{} is empty", path.display())
        }
    }
    Ok(documents)
}

/// Folders are not read recursively; `notes` reports omitted files.
fn files(named: &[PathBuf], notes: &mut Vec<String>) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let (mut found, mut others): (Vec<PathBuf>, Vec<PathBuf>) = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .partition(|file| {
                let ending = file.extension().and_then(|ending| ending.to_str());
                file.is_file() && ending.is_some_and(|ending| ENDINGS.contains(&ending))
            });
        if found.is_empty() {
            bail!(
                "{} has no file that ends in {}",
                path.display(),
                ENDINGS.join(", ")
            );
        }
        found.sort();
        others.sort();
        notes.extend(left_out(path, &others));
        files.extend(found);
    }
    Ok(files)
}

fn left_out(folder: &Path, others: &[PathBuf]) -> Option<String> {
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            format!("{name}/")
        } else {
            name.into_owned()
        }
    };
    let below = if others.iter().any(|path| path.is_dir()) {
        "; a folder below is submitted where it is named itself"
    } else {
        ""
    };
    let (folder, named) = (
        folder.display(),
        sanitize::listed(others.iter().map(name), NAMED),
    );
    (!others.is_empty()).then(|| format!("{folder}: left out {named}{below}"))
}

fn in_words<'a>(row: impl Iterator<Item = &'a (String, Value)>) -> String {
    let words = row.map(|(path, value)| match value {
        Value::String(text) => format!("{path}={text}"),
        value => format!("{path}={value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn read_all(files: &[PathBuf]) -> anyhow::Result<Vec<(Value, String)>> {
    let mut read = Vec::new();
    let mut wrong = Vec::new();
    for file in files {
        let documents = match in_file(file) {
            Ok(documents) => documents,
            Err(error) => {
                wrong.push(format!("{error:#}"));
                continue;
            }
        };
        let (file, several) = (shown(file), documents.len() > 1);
        let place = |number: usize| {
            if several {
                format!("{file}, document {number}")
            } else {
                file.clone()
            }
        };
        let documents = documents.into_iter().zip(1..);
        read.extend(documents.map(|(document, number)| (document, place(number))));
    }
    if wrong.is_empty() {
        return Ok(read);
    }
    let more = wrong.len().saturating_sub(NAMED);
    wrong.truncate(NAMED);
    if more > 0 {
        wrong.push(format!("and {more} files more"));
    }
    bail!(wrong.join("\n"))
}

/// Returns the documents to submit, and notes.
///
/// # Errors
/// If a file cannot be read, or a change does not fit.
pub fn documents(
    named: &[PathBuf],
    sets: &[Set],
    sweep: Option<&Path>,
    name: Option<&str>,
) -> anyhow::Result<(Vec<Written>, Vec<String>)> {
    let mut notes = Vec::new();
    let rows = sweep.map(table).transpose()?;
    let rows = rows.unwrap_or_else(|| vec![Vec::new()]);
    let changes = combinations(sets)?;
    let read = read_all(&files(named, &mut notes)?)?;
    let each = rows.len() * changes.len();
    if read.len().saturating_mul(each) > MOST {
        bail!("that is more than {MOST} jobs; a task set runs many tasks as one job");
    }
    if name.is_some() && read.len() > 1 {
        bail!(
            "--name names one job, and here are {} documents",
            read.len()
        );
    }
    let mut all = Vec::with_capacity(read.len() * each);
    let digits = each.to_string().len();
    for (document, place) in &read {
        let mut number = 0;
        for (row, line) in rows.iter().zip(1..) {
            let place = match sweep {
                Some(table) => format!("{place}, row {line} of {}", shown(table)),
                None => place.clone(),
            };
            for change in &changes {
                number += 1;
                let mut document = document.clone();
                if let Some(name) = name {
                    put(&mut document, "name", &name.into())?;
                }
                let base = document["name"].as_str().map(str::to_owned);
                for (path, value) in row.iter().chain(change) {
                    put(&mut document, path, value).with_context(|| place.clone())?;
                }
                let named = row.iter().chain(change).any(|(path, _)| path == "name");
                if let Some(base) = base.filter(|_| each > 1 && !named) {
                    document["name"] = format!("{base}-{number:0digits$}").into();
                }
                workdir::resolve(&mut document, Path::new(""));
                all.push(Written {
                    document,
                    place: place.clone(),
                    values: in_words(row.iter().chain(change)),
                });
            }
        }
    }
    Ok((all, notes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    #[test]
    fn a_folder_of_documents_times_a_table_times_values() {
        let folder = tempfile::tempdir().expect("a folder");
        file(&folder, "b.yaml", "name: b\nenv: {LR: 1}\n---\nname: c\n");
        file(&folder, "a.json", r#"{"name": "a"}"#);
        file(&folder, "notes.txt", "not a document: [");
        let named = [folder.path().to_owned()];
        std::fs::create_dir(folder.path().join("below")).expect("made");
        let names = |all: &[Written]| -> Vec<String> {
            let name = |it: &Written| it.document["name"].as_str().unwrap_or_default().to_owned();
            all.iter().map(name).collect()
        };
        let (plain, notes) = documents(&named, &[], None, None).expect("read");
        assert_eq!(names(&plain), ["a", "b", "c"]);
        assert!(plain[0].place.ends_with("/a.json"), "{plain:?}");
        assert!(plain[2].place.ends_with("/b.yaml, document 2"), "{plain:?}");
        let said = "left out below/, notes.txt; a folder below is submitted where it is named";
        assert!(notes.len() == 1 && notes[0].contains(said), "{notes:?}");
        let table = file(
            &folder,
            "t.csv",
            "env.LR,command.start.1\n0.1,\"x,y\"\n0.2,z\n",
        );
        let base = file(
            &folder,
            "base.yml",
            "name: lr\ncommand: {start: [train, a]}\n",
        );
        let sets: Vec<Set> = ["env.SEED=1,2", "containers={min: 1, max: 4}"]
            .iter()
            .map(|set| set.parse().expect("a change"))
            .collect();
        let (swept, _) = documents(&[base], &sets, Some(&table), Some("s")).expect("made");
        assert_eq!(names(&swept), ["s-1", "s-2", "s-3", "s-4"]);
        let expected = json!({"name": "s-2", "command": {"start": ["train", "x,y"]},
            "env": {"LR": "0.1", "SEED": "2"}, "containers": {"min": 1, "max": 4}});
        assert_eq!(swept[1].document, expected);
        let (place, values) = (&swept[2].place, &swept[2].values);
        assert!(place.contains("base.yml, row 2 of "), "{place}");
        assert_eq!(
            values,
            r#"env.LR=0.2, command.start.1=z, env.SEED=1, containers={"max":4,"min":1}"#
        );
    }

    #[test]
    fn a_commit_stays_as_it_is_written() {
        let set = |text: &str| {
            let set = text.parse::<Set>().expect("a change");
            set.values.into_iter().next().expect("one")
        };
        for path in ["env.COMMIT", "roles.ps.env.COMMIT", "name"] {
            for commit in ["12345e6", "0123456", "8812345678901234567890"] {
                assert_eq!(set(&format!("{path}={commit}")), json!(commit), "{path}");
            }
        }
        assert_eq!(set("containers.max=4"), json!(4));
        assert_eq!(set("env.DEBUG=true"), json!(true));
    }

    #[test]
    fn what_cannot_be_made_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let twice = file(&folder, "twice.yaml", "name: a\nname: b\n");
        let good = file(&folder, "good.yaml", "name: a\n");
        let rows = file(&folder, "rows.csv", "env.A,env.B\n1\n");
        let said = |named: &[PathBuf], sets: &[&str], sweep: Option<&Path>| {
            let sets: Vec<Set> = sets.iter().map(|set| set.parse().expect("one")).collect();
            format!(
                "{:#}",
                documents(named, &sets, sweep, None).expect_err("wrong")
            )
        };
        let text = file(&folder, "passwd.yaml", "root:x:0:0\ndaemon:x:1:1\n");
        let wrong = said(&[twice, text, good.clone()], &[], None);
        assert!(
            wrong.contains("duplicate") && wrong.contains("no job document"),
            "{wrong}"
        );
        assert!(!wrong.contains("daemon"), "{wrong}");
        let named = std::slice::from_ref(&good);
        assert!(said(named, &["name.x=1"], None).contains("neither a map nor a list"));
        assert!(said(named, &[], Some(&rows)).contains("row 1 has 1 cells"));
        let places = file(&folder, "places.csv", "retries,name.x\n1,2\n");
        let wrong = said(named, &[], Some(&places));
        assert!(wrong.contains("good.yaml, row 1 of "), "{wrong}");
        assert!("nothing".parse::<Set>().is_err());
        let infinite = file(&folder, "inf.yaml", "name: a\ntime_limit_s: .inf\n");
        let wrong = said(&[infinite], &[], None);
        assert!(wrong.contains("inf.yaml: time_limit_s: .inf is"), "{wrong}");
        let wrong = "priority=.nan".parse::<Set>().expect_err("no number");
        assert!(wrong.contains(".nan is no number"), "{wrong}");
        assert!("env.RATE=.inf".parse::<Set>().is_ok());
    }
}
