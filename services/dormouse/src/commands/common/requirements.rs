//! Replaces the file of `python.requirements` in documents by the file's lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dormouse_messages::Python;
use serde_json::{Value, json};

use crate::print;

fn file(document: &Value) -> Option<PathBuf> {
    let file = document.get("python")?.get("requirements")?.as_str()?;
    Some(PathBuf::from(file))
}

/// Makes the file's path absolute, from `base`.
pub fn resolve(document: &mut Value, base: &Path) {
    if let Some(file) = file(document) {
        let file = base.join(file);
        let file = std::path::absolute(&file).unwrap_or(file);
        document["python"]["requirements"] = file.display().to_string().into();
    }
}

/// Replaces files by their lines; notes packages without a version.
///
/// # Errors
/// If a file cannot be read, or a line is no package.
pub fn read<'a>(documents: impl Iterator<Item = (&'a str, &'a mut Value)>) -> anyhow::Result<()> {
    let mut unpinned = BTreeSet::new();
    for (place, document) in documents {
        let Some(file) = file(document) else {
            continue;
        };
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("{place}: python.requirements {}", file.display()))?;
        let python = Python {
            requirements: Python::lines(&text),
            version: None,
        };
        if let Err(error) = python.check() {
            bail!("{place}: {}: {error}", file.display());
        }
        unpinned.extend(python.unpinned().map(str::to_owned));
        document["python"]["requirements"] = json!(python.requirements);
    }
    let named: Vec<_> = unpinned.iter().take(5).map(String::as_str).collect();
    if !named.is_empty() {
        print::aside(format!(
            "── no version is named of {}{}: a node takes the newest when it makes the environment; name one, such as numpy==1.26.4 (`uv pip compile` does for all)",
            named.join(", "),
            if unpinned.len() > named.len() {
                " and others"
            } else {
                ""
            },
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beside_the_document_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |text: &str| {
            std::fs::write(folder.path().join("all.txt"), text).expect("written");
        };
        let read = || {
            let mut document = json!({"python": {"requirements": "all.txt", "version": "3.11"}});
            resolve(&mut document, folder.path());
            read(std::iter::once(("a.yaml", &mut document))).map(|()| document)
        };
        write("# ours\nsix==1.16.0\n\nnumpy\n");
        let lines = json!({"requirements": ["six==1.16.0", "numpy"], "version": "3.11"});
        assert_eq!(read().expect("read")["python"], lines);
        write("-r more.txt\n");
        let error = read().expect_err("an option").to_string();
        assert!(
            error.contains("all.txt") && error.contains("option"),
            "{error}"
        );
        write("# nothing\n");
        assert!(read().is_err());
        std::fs::remove_file(folder.path().join("all.txt")).expect("removed");
        assert!(read().is_err());
        let mut others = [json!({"python": {"requirements": ["six"]}}), json!({})];
        let before = others.clone();
        super::read(others.iter_mut().map(|it| ("a.yaml", it))).expect("nothing to read");
        assert_eq!(others, before);
    }
}
