//! A node of a Slurm allocation: what an agent reads from Slurm's variables.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

use anyhow::{Context as _, bail};
use dormouse_messages::events::Gpu;
use dormouse_messages::{Amounts, NodeId, Resource};

use super::node::gpu;

/// Slurm's variables, by name.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

fn number(variables: Variables<'_>, name: &str) -> Option<u64> {
    variables(name)?.parse().ok()
}

/// Returns the name of the node: the allocation's name and the node's number in the allocation.
///
/// # Errors
/// If Slurm does not run this process.
pub fn name(allocation: &str, variables: Variables<'_>) -> anyhow::Result<NodeId> {
    let Some(rank) = number(variables, "SLURM_NODEID") else {
        bail!("--slurm is for processes that `srun` starts: SLURM_NODEID is not set");
    };
    Ok(NodeId::new(format!("{allocation}-{rank}"))?)
}

/// Returns the capacity that Slurm gives on this node.
///
/// # Errors
/// If Slurm does not say how many processors there are.
pub fn capacity(variables: Variables<'_>, machine_bytes: u64) -> anyhow::Result<Amounts> {
    let cores = number(variables, "SLURM_CPUS_ON_NODE")
        .context("SLURM_CPUS_ON_NODE is not set: how many processors has this node?")?;
    let per_node = number(variables, "SLURM_MEM_PER_NODE");
    let per_core = number(variables, "SLURM_MEM_PER_CPU").map(|it| it * cores);
    // Zero is the memory of the whole node.
    let mebibytes = per_node.or(per_core).filter(|mebibytes| *mebibytes > 0);
    let mut amounts = Amounts::new();
    amounts.set(Resource::Cpu, cores * 1000);
    let bytes = mebibytes.map_or(machine_bytes, |mebibytes| mebibytes << 20);
    amounts.set(Resource::Memory, bytes);
    let gpus = number(variables, "SLURM_GPUS_ON_NODE");
    let visible = variables("CUDA_VISIBLE_DEVICES");
    let visible = visible.filter(|devices| !devices.is_empty() && devices != "NoDevFiles");
    let visible = visible.map(|devices| devices.split(',').count() as u64);
    if let Some(gpus) = gpus.or(visible).filter(|gpus| *gpus > 0) {
        amounts.set(Resource::Gpu, gpus * 1000);
    }
    Ok(amounts)
}

/// Returns the allocation's GPUs out of the answer of `nvidia-smi`: a line with UUID, model and MiB each. Where
/// the kernel does not hide the others, Slurm's numbers choose.
#[must_use]
pub fn gpus(variables: Variables<'_>, listed: &str) -> Vec<Gpu> {
    let of_line = |line: &str| {
        let mut fields = line.split(',').map(str::trim);
        let (uuid, model) = (fields.next()?, fields.next()?);
        let mebibytes = fields.next()?;
        gpu(&format!("{uuid},{model},{mebibytes}Mi")).ok()
    };
    let all: Vec<Gpu> = listed.lines().filter_map(of_line).collect();
    let visible = variables("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let visible: Vec<&str> = visible.split(',').filter(|it| !it.is_empty()).collect();
    if visible.is_empty() || visible.len() >= all.len() {
        return all;
    }
    let numbered = all.iter().enumerate();
    let chosen = numbered.filter(|(index, gpu)| {
        let index = index.to_string();
        visible.contains(&index.as_str()) || visible.contains(&gpu.uuid.as_str())
    });
    chosen.map(|(_, gpu)| gpu.clone()).collect()
}

/// Asks the driver for this machine's GPUs; empty without a driver.
#[must_use]
pub fn listed_gpus() -> String {
    let query = "--query-gpu=uuid,name,memory.total";
    let mut command = std::process::Command::new("nvidia-smi");
    let output = command
        .args([query, "--format=csv,noheader,nounits"])
        .output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

/// Returns the address of this machine: of the name that Slurm has for the node, or of the host name.
#[must_use]
pub fn address(variables: Variables<'_>) -> IpAddr {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = [variables("SLURMD_NODENAME"), Some(host.trim().to_owned())];
    let resolve = |name: String| (name, 0).to_socket_addrs().ok();
    let addresses = names.into_iter().flatten().filter_map(resolve).flatten();
    let mut outside = addresses
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback());
    outside.next().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn slurm_says_name_and_capacity() {
        let set = of(&[
            ("SLURM_NODEID", "1"),
            ("SLURM_CPUS_ON_NODE", "8"),
            ("SLURM_MEM_PER_CPU", "2048"),
            ("SLURM_GPUS_ON_NODE", "2"),
        ]);
        let variables = |name: &str| set.get(name).cloned();
        assert_eq!(
            name("gpu-3", &variables).expect("a name").as_str(),
            "gpu-3-1"
        );
        let wanted: Amounts = "cpu=8,memory=16Gi,gpu=2".parse().expect("amounts");
        assert_eq!(capacity(&variables, 1).expect("amounts"), wanted);
        let whole = of(&[("SLURM_CPUS_ON_NODE", "2"), ("SLURM_MEM_PER_NODE", "0")]);
        let variables = |name: &str| whole.get(name).cloned();
        let wanted: Amounts = "cpu=2,memory=7Gi".parse().expect("amounts");
        assert_eq!(capacity(&variables, 7 << 30).expect("amounts"), wanted);
        let error = name("gpu-3", &variables).expect_err("not in a step");
        assert!(error.to_string().contains("srun"), "{error}");
    }

    #[test]
    fn the_gpus_are_those_of_the_allocation() {
        let listed = "GPU-a, NVIDIA H200, 143771\nGPU-b, NVIDIA H200, 143771\nbroken\n";
        let gpus_with = |visible: &str| {
            let set = of(&[("CUDA_VISIBLE_DEVICES", visible)]);
            let gpus = gpus(&|name: &str| set.get(name).cloned(), listed);
            gpus.into_iter().map(|gpu| gpu.uuid).collect::<Vec<_>>()
        };
        assert_eq!(gpus_with("0,1"), ["GPU-a", "GPU-b"]);
        assert_eq!(gpus_with("1"), ["GPU-b"]);
        assert_eq!(gpus_with("GPU-a"), ["GPU-a"]);
        assert!(gpus(&|_| None, "").is_empty());
    }
}
