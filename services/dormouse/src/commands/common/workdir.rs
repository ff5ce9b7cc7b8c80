//! Packs, stores and names the `workdir` of documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use dormouse_messages::TenantId;
use dormouse_runtime::Log;
use serde_json::{Value, json};

use super::requirements;
use crate::pack::{Pack, pack};

/// The packed folders of some documents.
#[derive(Debug, Default)]
pub struct Packs(BTreeMap<String, Pack>);

/// Makes the document's paths absolute, from `base`.
pub fn resolve(document: &mut Value, base: &Path) {
    requirements::resolve(document, base);
    if let Some(folder) = document.get("workdir").and_then(Value::as_str) {
        let folder = base.join(folder);
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        document["workdir"] = folder.display().to_string().into();
    }
}

/// Packs each folder once; replaces folders by digests and files by lines. Nothing is stored yet.
///
/// # Errors
/// If a folder cannot be packed, or a file cannot be read.
pub async fn packed<'a>(
    documents: impl Iterator<Item = (&'a str, &'a mut Value)>,
) -> anyhow::Result<Packs> {
    let mut documents: Vec<_> = documents.collect();
    requirements::read(documents.iter_mut().map(|(place, it)| (*place, &mut **it)))?;
    let mut packs = Packs::default();
    let mut known: BTreeMap<PathBuf, Value> = BTreeMap::new();
    for (place, document) in documents {
        let Some(folder) = document.get("workdir").and_then(Value::as_str) else {
            continue;
        };
        let folder = PathBuf::from(folder);
        let named = match known.get(&folder) {
            Some(named) => named.clone(),
            None => {
                let at = folder.clone();
                let pack = tokio::task::spawn_blocking(move || pack(&at)).await?;
                let pack = pack.with_context(|| place.to_owned())?;
                let named = json!(pack.packed);
                tracing::debug!(
                    entries = pack.entries,
                    bytes = pack.packed.bytes,
                    "packed {}",
                    folder.display()
                );
                packs.0.insert(pack.packed.sha256.clone(), pack);
                known.insert(folder, named.clone());
                named
            }
        };
        document["workdir"] = named;
    }
    Ok(packs)
}

impl Packs {
    /// Stores the documents' packed folders, if new.
    ///
    /// # Errors
    /// If the store refuses a folder.
    pub async fn store(&self, log: &Log, documents: &[(TenantId, Value)]) -> anyhow::Result<()> {
        let mut done = BTreeSet::new();
        for (tenant, document) in documents {
            let digest = document["workdir"]["sha256"].as_str();
            let Some(pack) = digest.and_then(|digest| self.0.get(digest)) else {
                continue;
            };
            if done.insert((tenant, digest)) {
                let code = log.code();
                let stored = code.put(tenant.as_str(), &pack.packed, &pack.archive);
                stored
                    .await
                    .context("the folder of the job is not stored")?;
            }
        }
        Ok(())
    }
}
