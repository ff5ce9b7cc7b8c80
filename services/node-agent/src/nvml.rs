//! Lists the processes on a GPU by NVIDIA's management library (NVML), which is loaded at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use dormouse_sandbox::procfs;

/// File name of the library.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// A process that computes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Computing {
    pub pid: u32,
    /// Memory with the driver's overhead, if reported.
    pub memory_bytes: Option<u64>,
}

/// The loaded library.
#[derive(Debug)]
pub struct Nvml(nvml_wrapper::Nvml);

impl Nvml {
    /// Loads and initialises the library.
    ///
    /// # Errors
    /// If there is no library or no driver.
    pub fn load(library: &Path) -> Result<Self, NvmlError> {
        let mut builder = nvml_wrapper::Nvml::builder();
        builder.lib_path(library.as_os_str());
        builder.init().map(Self)
    }

    /// Returns the processes that compute on a device.
    ///
    /// # Errors
    /// If the device is absent, or the driver fails.
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

/// Returns the processes of each device. Omits devices that the driver does not report.
#[must_use]
pub fn on_each(nvml: &Nvml, devices: BTreeSet<String>) -> BTreeMap<String, Vec<Computing>> {
    let mut answers = BTreeMap::new();
    for uuid in devices {
        match nvml.on(&uuid) {
            Ok(mut computing) => {
                // Drop ended processes, and those outside of this pid namespace.
                computing.retain(|it| procfs::stat(it.pid).is_some());
                answers.insert(uuid, computing);
            }
            Err(error) => tracing::debug!(uuid, %error, "the driver does not say who is on it"),
        }
    }
    answers
}
