//! Finds a container's writes outside of its mounts: the layer over its image, and the image's volumes. Both
//! use the node's disk.

use std::path::PathBuf;

use bollard::models::ContainerInspectResponse;

/// Returns the folders. Empty for a storage driver without folders.
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
