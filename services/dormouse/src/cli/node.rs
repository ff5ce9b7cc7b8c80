//! Nodes in arguments: the name of a node, and what an agent says of its own.

use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_messages::events::Gpu;
use dormouse_messages::needs::{NODE_LABEL, RESERVED, is_label, is_taint, is_value};
use dormouse_messages::reservation::is_of_reservations;
use dormouse_messages::{Amounts, NodeId, Resource};
use dormouse_node_agent::{LogBounds, Retention, RuntimeKind};

use super::duration::{Limit, SizeLimit, size};

/// A node argument.
#[derive(Debug, Clone, Args)]
pub struct NodeArg {
    /// Name of the node.
    pub name: NodeId,
}

/// Parses the capacity of a node.
///
/// # Errors
/// Describes the mistake.
pub fn capacity(text: &str) -> Result<Amounts, String> {
    let capacity: Amounts = text.parse().map_err(|error| format!("{error}"))?;
    match capacity.lacks_unit() {
        Some(why) => Err(why),
        None if capacity.is_empty() => {
            Err("a node offers something, such as cpu=8,memory=16Gi".to_owned())
        }
        None => Ok(capacity),
    }
}

/// Retention on a node.
#[derive(Debug, Clone, Copy, Args)]
pub struct KeepArgs {
    /// Retention of ended containers' output on a node; none: without limit.
    #[arg(
        long,
        env = "DORMOUSE_KEEP_LOGS",
        default_value = "30d",
        value_name = "TIME"
    )]
    pub keep_logs: Limit,
    /// Size at which output files are rotated.
    #[arg(
        long,
        env = "DORMOUSE_LOG_SIZE",
        default_value = "64Mi",
        value_parser = size,
        value_name = "SIZE"
    )]
    pub log_size: u64,
    /// Rotated files kept of each, the current one included.
    #[arg(
        long,
        env = "DORMOUSE_LOG_FILES",
        default_value_t = 2,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pub log_files: u32,
    /// Checkpoints kept per job, besides those that the log may name.
    #[arg(
        long,
        env = "DORMOUSE_KEEP_CHECKPOINTS",
        default_value_t = 2,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..)
    )]
    pub keep_checkpoints: u32,
    #[command(flatten)]
    pub storage: TenantStorageArg,
    /// Most files and folders of a tenant on a node, or it is stopped there; 0: a million if `--tenant-storage`
    /// is set.
    #[arg(
        long,
        env = "DORMOUSE_TENANT_FILES",
        default_value_t = 0,
        value_name = "N"
    )]
    pub tenant_files: u64,
}

/// Bound on a tenant's storage.
#[derive(Debug, Clone, Copy, Args)]
pub struct TenantStorageArg {
    /// Most disk of a node for a tenant's files and checkpoints, or it is stopped there; also bounds its packed
    /// folders; none: no bound.
    #[arg(
        long = "tenant-storage",
        env = "DORMOUSE_TENANT_STORAGE",
        default_value = "none",
        value_name = "SIZE"
    )]
    pub limit: SizeLimit,
}

impl KeepArgs {
    /// Converts into the agent's form.
    #[must_use]
    pub fn retention(self) -> Retention {
        let Limit(keep_s) = self.keep_logs;
        Retention {
            logs: (keep_s > 0).then(|| Duration::from_secs(keep_s.into())),
            log_bounds: LogBounds {
                bytes: self.log_size,
                files: self.log_files,
            },
            checkpoints: self.keep_checkpoints as usize,
            tenant_bytes: self.storage.limit.0,
            tenant_files: (self.tenant_files > 0).then_some(self.tenant_files),
        }
    }
}

/// Container runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuntimeArg {
    /// Plain processes.
    Process,
    /// Docker.
    Docker,
}

impl From<RuntimeArg> for RuntimeKind {
    fn from(runtime: RuntimeArg) -> Self {
        match runtime {
            RuntimeArg::Process => Self::Process,
            RuntimeArg::Docker => Self::Docker,
        }
    }
}

/// Parses an agent's `--label zone=a`.
///
/// # Errors
/// Describes the mistake.
pub fn label(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("{text:?} has no value; write zone=a"));
    };
    named(name)?;
    if is_value(value) {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err(format!("{value:?} cannot be a label's value"))
    }
}

/// Parses an agent's `--gpu GPU-5a1c,H200,141Gi`.
///
/// # Errors
/// Describes the mistake.
pub fn gpu(text: &str) -> Result<Gpu, String> {
    let mut parts = text.split(',');
    let (uuid, model) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let memory = parts.next().unwrap_or("0");
    if uuid.is_empty() || parts.next().is_some() {
        return Err(format!("{text:?} is not of the form GPU-5a1c,H200,141Gi"));
    }
    let memory = Resource::Memory.parse(memory);
    Ok(Gpu {
        uuid: uuid.to_owned(),
        model: model.to_owned(),
        memory_bytes: memory.map_err(|error| error.to_string())?,
    })
}

/// Parses an agent's `--taint owner=ads`.
///
/// # Errors
/// Describes the mistake.
pub fn taint(text: &str) -> Result<String, String> {
    if is_of_reservations(text) {
        Err(format!(
            "{text:?} is of reservations; `dormouse reservation set` keeps a node for tenants, jobs or nobody"
        ))
    } else if let Some((bare, effect)) = effect(text) {
        Err(format!(
            "a taint has no effect such as {effect}; write {bare}"
        ))
    } else if is_taint(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} cannot be a taint; write a label such as old, or owner=ads"
        ))
    }
}

/// Splits off the effect of a taint of Kubernetes.
fn effect(text: &str) -> Option<(&str, &str)> {
    let (bare, effect) = text.rsplit_once(':')?;
    let is_known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    is_known.then_some((bare, effect))
}

/// Checks the name of a label.
///
/// # Errors
/// Describes the mistake.
pub fn named(name: &str) -> Result<(), String> {
    if RESERVED.contains(&name) || name == NODE_LABEL {
        return Err(format!("{name} has a meaning of its own in constraints"));
    }
    if is_label(name) {
        Ok(())
    } else {
        Err(format!(
            "{name:?} cannot be a label; it has letters, digits, `.`, `_`, `/` and `-`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_read_or_refused() {
        assert_eq!(label("zone=a"), Ok(("zone".to_owned(), "a".to_owned())));
        assert_eq!(taint("owner=ads"), Ok("owner=ads".to_owned()));
        for wrong in ["zone", "spread=a", "node=n7", "a b=c", "zone="] {
            assert!(label(wrong).is_err(), "{wrong}");
        }
        assert!(taint("=x").is_err());
        let said = "a taint has no effect such as NoSchedule; write owner=ads";
        assert_eq!(taint("owner=ads:NoSchedule"), Err(said.to_owned()));
        assert_eq!(taint("at=a:b"), Ok("at=a:b".to_owned()));
        let named = gpu("GPU-5a1c,H200,141Gi").expect("a GPU");
        assert_eq!(
            (named.model.as_str(), named.memory_bytes),
            ("H200", 141 << 30)
        );
        assert_eq!(gpu("GPU-5a1c").expect("a GPU").memory_bytes, 0);
        assert!(gpu(",H200").is_err() && gpu("GPU-5a1c,H200,much").is_err());
    }
}
