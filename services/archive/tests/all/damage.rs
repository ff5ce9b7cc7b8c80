//! Changes in an archive are found and named.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_archive::ArchiveError;
use tokio_util::sync::CancellationToken;

use crate::common::{Cluster, open, simulated};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("reads").flatten() {
        if entry.path().is_dir() {
            files.extend(self::files(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

async fn verified(folder: &Path) -> Result<u64, ArchiveError> {
    Ok(open(folder).verify(|_| {}).await?.segments)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_changed_object_is_named() {
    let cluster = Cluster::start(&simulated(150)).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    cluster.archived(2).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let folder = cluster.archive_folder();
    assert_eq!(verified(&folder).await.expect("verifies"), 2);
    let files = files(&folder);
    // Two segments with eight states and a manifest each.
    assert_eq!(files.len(), 20, "{files:?}");
    // One state of the first segment stands for all.
    let stands_for_others = |file: &&PathBuf| {
        let path = file.display().to_string();
        !path.contains("/states/") || path.contains("00001000/cluster-v")
    };
    for file in files.iter().filter(stands_for_others) {
        let whole = fs::read(file).expect("reads");
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let newest = name == "0000000002.json";
        let mut bytes = whole.clone();
        let place = bytes.len() / 2;
        bytes[place] ^= 1;
        fs::write(file, &bytes).expect("writes");
        let found = verified(&folder).await;
        // The newest manifest is named by the log alone.
        assert!(found.is_err() || newest, "{name}: {found:?}");
        fs::remove_file(file).expect("removes");
        match verified(&folder).await {
            // Without its newest manifest an archive is a shorter one.
            Ok(segments) => assert!(newest && segments == 1, "{name}"),
            Err(error) => {
                let number = name.trim_end_matches(".json").trim_start_matches('0');
                let text = error.to_string();
                assert!(
                    text.contains(&name) || text.contains(number),
                    "{name}: {text}"
                );
            }
        }
        fs::write(file, &whole).expect("writes");
    }
    assert_eq!(verified(&folder).await.expect("verifies"), 2);
}

#[tokio::test]
async fn an_empty_folder_is_no_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = verified(folder.path()).await.expect_err("empty");
    assert!(error.to_string().contains("holds no archive"), "{error}");
}
