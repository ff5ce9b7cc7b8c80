//! Where the engine keeps what a container writes outside of its mounts: the layer over its image, and
//! the volumes that its image asks for. Both lie on the node's disk.

use std::path::PathBuf;

use bollard::models::ContainerInspectResponse;

/// Their folders, as the engine names them; none where it keeps layers in another way than in folders.
pub fn written(found: &ContainerInspectResponse) -> Vec<PathBuf> {
    let driver = found.graph_driver.as_ref();
    let layer = driver.and_then(|driver| driver.data.get("UpperDir"));
    let mounts = found.mounts.iter().flatten();
    let volumes = mounts
        .filter(|mount| mount.typ.as_deref() == Some("volume"))
        .filter_map(|mount| mount.source.as_ref());
    layer
        .into_iter()
        .chain(volumes)
        .map(PathBuf::from)
        .collect()
}
