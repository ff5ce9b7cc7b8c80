//! What NVIDIA's driver says of the processes on a device, by its library of management (NVML), which is
//! loaded where there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use crate::procfs;

/// The library.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// A process that computes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Computing {
    /// Its number, as the driver sees it: in the machine's own namespace.
    pub pid: u32,
    /// Memory that it has, what the driver takes for itself included; nothing where the driver does not
    /// say.
    pub memory_bytes: Option<u64>,
}

/// The library, loaded.
#[derive(Debug)]
pub struct Nvml(nvml_wrapper::Nvml);

impl Nvml {
    /// Loads it, and begins to use it.
    ///
    /// # Errors
    /// Where there is none, or no driver that it finds.
    pub fn load(library: &Path) -> Result<Self, NvmlError> {
        let mut builder = nvml_wrapper::Nvml::builder();
        builder.lib_path(library.as_os_str());
        builder.init().map(Self)
    }

    /// The processes that compute on a device.
    ///
    /// # Errors
    /// Where there is no such device, or the driver does not say.
    pub fn on(&self, uuid: &str) -> Result<Vec<Computing>, NvmlError> {
        let device = self.0.device_by_uuid(uuid)?;
        let processes = device.running_compute_processes()?;
        let computing = processes.into_iter().map(|it| Computing {
            pid: it.pid,
            memory_bytes: match it.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        });
        Ok(computing.collect())
    }
}

/// Who computes on each of these devices; one of which the driver says nothing is left out.
#[must_use]
pub fn on_each(nvml: &Nvml, devices: BTreeSet<String>) -> BTreeMap<String, Vec<Computing>> {
    let mut answers = BTreeMap::new();
    for uuid in devices {
        match nvml.on(&uuid) {
            Ok(mut computing) => {
                // What has ended meanwhile, or runs in another namespace than this agent, is nobody that
                // it could know.
                computing.retain(|it| procfs::stat(it.pid).is_some());
                answers.insert(uuid, computing);
            }
            Err(error) => tracing::debug!(uuid, %error, "the driver does not say who is on it"),
        }
    }
    answers
}
