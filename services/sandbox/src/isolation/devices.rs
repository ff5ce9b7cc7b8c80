//! Selects the device files of a container's own GPUs. The driver maps GPUs to devices in
//! `/proc/driver/nvidia/gpus/<bus>/information`: `GPU UUID: GPU-…` and `Device Minor: 0`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const GPUS: &str = "proc/driver/nvidia/gpus";

const COMMON: [&str; 4] = [
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
];

/// Returns names in `/dev` for GPUs by UUID. Empty without GPUs or driver. `root` is the node's root.
///
/// # Errors
/// If the driver's files are unreadable or lack a GPU.
pub fn of(root: &Path, uuids: &[String]) -> io::Result<Vec<String>> {
    if uuids.is_empty() || !root.join(GPUS).exists() {
        return Ok(Vec::new());
    }
    let minors = minors(&root.join(GPUS))?;
    let own = uuids.iter().map(|uuid| match minors.get(uuid) {
        Some(minor) => Ok(format!("nvidia{minor}")),
        None => Err(io::Error::other(format!(
            "{uuid} is none of this node's GPUs (/{GPUS}); see the agent's --gpu"
        ))),
    });
    let common = COMMON.iter().map(|name| Ok((*name).to_owned()));
    own.chain(common).collect()
}

fn minors(folder: &Path) -> io::Result<BTreeMap<String, u32>> {
    let asked = |error: io::Error| {
        let why = format!("{} cannot be read: {error}", folder.display());
        io::Error::new(error.kind(), why)
    };
    let mut minors = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(asked)? {
        let text = std::fs::read_to_string(entry?.path().join("information")).map_err(asked)?;
        minors.extend(told(&text));
    }
    Ok(minors)
}

fn told(information: &str) -> Option<(String, u32)> {
    let value = |name: &str| {
        let mut lines = information.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| value.trim())
    };
    let minor = value("Device Minor")?.parse().ok()?;
    Some((value("GPU UUID")?.to_owned(), minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(gpus: &[(&str, &str, u32)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (bus, uuid, minor) in gpus {
            let folder = root.path().join(GPUS).join(bus);
            std::fs::create_dir_all(&folder).expect("made");
            let text = format!(
                "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 91\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\nBus Location: \t {bus}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
            );
            std::fs::write(folder.join("information"), text).expect("written");
        }
        root
    }

    fn names(root: &Path, uuids: &[&str]) -> io::Result<Vec<String>> {
        let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
        of(root, &uuids)
    }

    #[test]
    fn a_container_is_shown_the_devices_of_its_own_gpus() {
        let node = node(&[
            ("0000:01:00.0", "GPU-a", 1),
            ("0000:02:00.0", "GPU-b", 0),
            ("0000:03:00.0", "GPU-c", 12),
        ]);
        let of = |uuids: &[&str]| names(node.path(), uuids).expect("told");
        assert_eq!(of(&[]), Vec::<String>::new());
        assert_eq!(of(&["GPU-b"])[..1], ["nvidia0"]);
        assert_eq!(of(&["GPU-b"])[1..], COMMON);
        assert_eq!(of(&["GPU-a", "GPU-c"])[..2], ["nvidia1", "nvidia12"]);
        assert_eq!(of(&["GPU-a", "GPU-c"]).len(), 2 + COMMON.len());
    }

    #[test]
    fn a_gpu_that_the_driver_does_not_know_is_named() {
        let node = node(&[("0000:01:00.0", "GPU-a", 0)]);
        let error = names(node.path(), &["GPU-a", "GPU-z"]).expect_err("it is not there");
        assert!(error.to_string().contains("GPU-z is none of"), "{error}");
        let nothing = tempfile::tempdir().expect("a folder");
        let shown = names(nothing.path(), &["GPU-a"]).expect("no driver");
        assert_eq!(shown, Vec::<String>::new());
        std::fs::create_dir_all(node.path().join(GPUS).join("0000:02:00.0")).expect("made");
        let error = names(node.path(), &["GPU-a"]).expect_err("it tells nothing");
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
}
