//! Tenants' grants, and the check of jobs by admission and, at starts, by agents. Without a grant, `required`
//! (a cluster) forbids an aspect and `open` (one person's machine) allows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::container::{EnvValue, Mount, SecretSource};
use crate::events::TenantGranted;
use crate::ids::TenantId;
use crate::job::JobSpec;
use crate::sanitize;

pub use crate::container::Network;

/// Default under `required`: fits a sweep of thousands, and bounds the services' memory.
pub const MAX_QUEUED: u32 = 10_000;

/// Default under `required`: [`MAX_QUEUED`] jobs of 3 KiB, several times the usual size.
pub const MAX_QUEUED_BYTES: u64 = 32 << 20;

/// Default under `required`: more than people and pipelines send, and a fraction of admission's capacity.
pub const MAX_RATE: u32 = 50;

const SECRET_PREFIX: &str = "DORMOUSE_SECRET_";

/// The rule for aspects without a grant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrantsRule {
    /// Allowed: the cluster trusts its users.
    #[default]
    Open,
    /// Refused.
    Required,
}

/// The user of a tenant's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunAs {
    /// User id on the nodes.
    pub uid: u32,
    /// Group id on the nodes.
    pub gid: u32,
}

/// A folder on the nodes that a tenant's jobs may mount, including subfolders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct MountGrant {
    /// Absolute path on the nodes.
    pub path: String,
    /// True if only read-only mounts are allowed.
    #[serde(default)]
    pub read_only: bool,
}

/// A tenant's permission to run programs in its running containers (`job exec`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exec {
    /// Allowed: a program in the sandbox can do no more than the container's own.
    Allowed,
    /// Forbidden.
    Forbidden,
}

/// The grants of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grants {
    /// User of its containers; absent for the agent's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as: Option<RunAs>,
    /// Folders on the nodes that its jobs may mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountGrant>,
    /// Absolute path of its folder of secrets on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<String>,
    /// Images that its jobs may use; `*` matches any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Limit on the network access of its containers; `published` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Limit on its queued jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued: Option<u32>,
    /// Limit on the bytes of its queued jobs' specs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued_bytes: Option<u64>,
    /// Limit on its submissions a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<u32>,
    /// Limit on the containers of all its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_containers: Option<u32>,
    /// Limit on the bytes of a node's disk; the agent's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_storage: Option<u64>,
    /// Permission of `job exec`; allowed if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<Exec>,
    /// Priority classes that its jobs may have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub priority_classes: BTreeSet<String>,
}

/// A missing grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Denied {
    pub code: &'static str,
    /// With the command that grants it.
    pub reason: String,
}

/// A tenant's grants and the cluster's rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    pub tenant: String,
    pub rule: GrantsRule,
    pub grants: Grants,
}

/// The folded grants of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantBook {
    rule: GrantsRule,
    tenants: BTreeMap<TenantId, Grants>,
}

impl GrantBook {
    /// Takes a policy's rule; without one the previous rule stays.
    pub const fn configured(&mut self, rule: Option<GrantsRule>) {
        if let Some(rule) = rule {
            self.rule = rule;
        }
    }

    /// Sets a tenant's grants.
    pub fn granted(&mut self, event: &TenantGranted) {
        self.tenants
            .insert(event.tenant.clone(), event.grants.clone());
    }

    /// Removes a tenant's grants.
    pub fn removed(&mut self, tenant: &TenantId) {
        self.tenants.remove(tenant);
    }

    /// Returns the cluster's rule.
    #[must_use]
    pub const fn rule(&self) -> GrantsRule {
        self.rule
    }

    /// Returns a tenant's grants.
    #[must_use]
    pub fn get(&self, tenant: &str) -> Option<&Grants> {
        self.tenants.get(tenant)
    }

    /// Returns every tenant with grants.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Grants)> {
        self.tenants.iter()
    }

    /// Returns a tenant's grants with the rule.
    #[must_use]
    pub fn of(&self, tenant: &str) -> Granted {
        Granted {
            tenant: tenant.to_owned(),
            rule: self.rule,
            grants: self.get(tenant).cloned().unwrap_or_default(),
        }
    }

    /// Returns the limit on queued jobs.
    #[must_use]
    pub fn max_queued(&self, tenant: &str) -> Option<u32> {
        self.bound(self.get(tenant).and_then(|it| it.max_queued), MAX_QUEUED)
    }

    /// Returns the limit on queued specs' bytes.
    #[must_use]
    pub fn max_queued_bytes(&self, tenant: &str) -> Option<u64> {
        let granted = self.get(tenant).and_then(|it| it.max_queued_bytes);
        self.bound(granted, MAX_QUEUED_BYTES)
    }

    /// Returns the granted bytes of a node's disk.
    #[must_use]
    pub fn max_storage(&self, tenant: &str) -> Option<u64> {
        self.get(tenant)?.max_storage
    }

    /// Returns the limit on submissions a second.
    #[must_use]
    pub fn max_rate(&self, tenant: &str) -> Option<u32> {
        self.bound(self.get(tenant).and_then(|it| it.max_rate), MAX_RATE)
    }

    /// Returns the limit on containers.
    #[must_use]
    pub fn max_containers(&self, tenant: &str) -> Option<u32> {
        self.get(tenant)?.max_containers
    }

    fn bound<T>(&self, granted: Option<T>, by_default: T) -> Option<T> {
        granted.or((self.rule == GrantsRule::Required).then_some(by_default))
    }
}

impl Granted {
    fn is_open(&self, named: bool) -> bool {
        self.rule == GrantsRule::Open && !named
    }

    fn denied<T>(&self, code: &'static str, what: &str, flags: &str) -> Result<T, Denied> {
        let tenant = &self.tenant;
        Err(Denied {
            code,
            reason: format!(
                "{what} is not granted to {tenant}; the operator grants it with `dormouse tenant grant {tenant} {flags}`"
            ),
        })
    }

    /// Checks a job.
    ///
    /// # Errors
    /// The first missing grant, with the command that grants it.
    pub fn check(&self, spec: &JobSpec) -> Result<(), Denied> {
        for mount in &spec.mounts {
            self.mount(mount)?;
        }
        if let Some(image) = &spec.image {
            self.image(image)?;
        }
        if let Some(network) = spec.network {
            self.may_reach(network)?;
        }
        let roles = spec.roles.values().flat_map(|role| &role.env);
        for (name, value) in spec.env.iter().chain(roles) {
            if let EnvValue::Secret(secret) = value {
                self.secret(name, &secret.from)?;
            }
        }
        Ok(())
    }

    /// Checks a mount's path; the agent resolves links.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn mount(&self, mount: &Mount) -> Result<(), Denied> {
        if self.trusts_mounts() {
            return Ok(());
        }
        let granted = self.grants.mounts.iter().any(|grant| {
            is_below(&mount.source, &grant.path) && (mount.read_only || !grant.read_only)
        });
        if granted {
            return Ok(());
        }
        let (how, end) = if mount.read_only {
            ("read-only", ":ro")
        } else {
            ("for writing", "")
        };
        let source = sanitize::shortened(&mount.source);
        self.denied(
            "mount_not_granted",
            &format!("the mount of {source} {how}"),
            &format!("--mount {}", word(&format!("{source}{end}"))),
        )
    }

    /// True if mounts are not limited.
    #[must_use]
    pub fn trusts_mounts(&self) -> bool {
        self.is_open(!self.grants.mounts.is_empty())
    }

    /// Returns the folder of secrets; `None` for the whole node.
    #[must_use]
    pub fn secrets_folder(&self) -> Option<&str> {
        self.grants.secrets.as_deref()
    }

    /// Checks an image.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn image(&self, image: &str) -> Result<(), Denied> {
        let patterns = &self.grants.images;
        if self.is_open(!patterns.is_empty())
            || patterns.iter().any(|pattern| matches(pattern, image))
        {
            return Ok(());
        }
        let image = sanitize::shortened(image);
        self.denied(
            "image_not_granted",
            &format!("the image {image}"),
            &format!("--image {}", word(&image)),
        )
    }

    /// Returns the widest network access of a container.
    #[must_use]
    pub fn most_network(&self) -> Network {
        let by_default = match self.rule {
            GrantsRule::Open => Network::Host,
            GrantsRule::Required => Network::Published,
        };
        self.grants.network.unwrap_or(by_default)
    }

    /// Checks a network access.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn may_reach(&self, network: Network) -> Result<(), Denied> {
        if network <= self.most_network() {
            return Ok(());
        }
        self.denied(
            "network_not_granted",
            &format!("network: {network}"),
            &format!("--network {network}"),
        )
    }

    /// Checks a priority class, which takes from other tenants and always needs a grant.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn class(&self, name: &str) -> Result<(), Denied> {
        if self.grants.priority_classes.contains(name) {
            return Ok(());
        }
        let name = sanitize::shortened(name);
        self.denied(
            "priority_class_not_granted",
            &format!("the priority class {name}"),
            &format!("--priority-class {}", word(&name)),
        )
    }

    /// Checks `job exec`.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn may_exec(&self) -> Result<(), Denied> {
        match self.grants.exec {
            None | Some(Exec::Allowed) => Ok(()),
            Some(Exec::Forbidden) => self.denied(
                "exec_not_granted",
                "a program in a container that runs",
                "--exec allowed",
            ),
        }
    }

    /// Checks the source of the secret in variable `name`.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn secret(&self, name: &str, source: &SecretSource) -> Result<(), Denied> {
        if self.is_open(self.grants.secrets.is_some()) {
            return Ok(());
        }
        let tenant = &self.tenant;
        let name = sanitize::shortened(name);
        match source {
            SecretSource::Env(variable) if self.is_own_variable(variable) => Ok(()),
            SecretSource::Env(variable) => Err(Denied {
                code: "secret_not_granted",
                reason: format!(
                    "the secret of {name}: {} is not a variable of {tenant}'s; those begin with {}, and the operator sets them in the agents' environment",
                    sanitize::shortened(variable),
                    self.own_variables()
                ),
            }),
            SecretSource::File(_) if self.grants.secrets.is_none() => self.denied(
                "secret_not_granted",
                &format!("the secret of {name}: a folder of secrets"),
                &format!("--secrets /etc/dormouse/secrets/{tenant}"),
            ),
            SecretSource::File(path) if is_inside(path) => Ok(()),
            SecretSource::File(path) => Err(Denied {
                code: "secret_not_granted",
                reason: format!(
                    "the secret of {name}: {} must be the name of a file in {tenant}'s folder of secrets, such as token, without / at its beginning and without ..; the operator puts it there, or grants another folder with `dormouse tenant grant {tenant} --secrets FOLDER`",
                    sanitize::shortened(path)
                ),
            }),
        }
    }

    /// Returns the prefix of the tenant's variables.
    #[must_use]
    pub fn own_variables(&self) -> String {
        let tenant = self.tenant.to_ascii_uppercase().replace('-', "_");
        format!("{SECRET_PREFIX}{tenant}__")
    }

    /// `a` and `a--b` are two tenants.
    fn is_own_variable(&self, variable: &str) -> bool {
        let rest = variable.strip_prefix(&self.own_variables());
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('_') && !rest.contains("__"))
    }
}

/// Quotes for a shell, as a refusal's command may be pasted.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@=-".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn is_inside(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains('\0') && path.split('/').all(plain)
}

fn is_below(path: &str, folder: &str) -> bool {
    let Some(rest) = path.strip_prefix(folder.trim_end_matches('/')) else {
        return false;
    };
    match rest.strip_prefix('/') {
        Some(rest) => rest.is_empty() || is_inside(rest.trim_end_matches('/')),
        None => rest.is_empty(),
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

impl fmt::Display for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowed => "allowed",
            Self::Forbidden => "forbidden",
        })
    }
}

impl fmt::Display for RunAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl fmt::Display for MountGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.read_only { ":ro" } else { "" };
        write!(f, "{}{end}", self.path)
    }
}

/// An invalid grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrantError(String);

impl FromStr for RunAs {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let ids = text.split_once(':');
        let ids = ids.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        match ids {
            Some((0, _) | (_, 0)) => Err(GrantError(format!(
                "{text}: root's ids are nobody's to have; name another user and group"
            ))),
            // The kernel takes this id as "no change".
            Some((u32::MAX, _) | (_, u32::MAX)) | None => Err(GrantError(format!(
                "{text:?} is not a user and a group by number, such as 10001:10001"
            ))),
            Some((uid, gid)) => Ok(Self { uid, gid }),
        }
    }
}

impl FromStr for MountGrant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let (path, read_only) = match text.strip_suffix(":ro") {
            Some(path) => (path, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        Ok(Self {
            path: folder(path)?,
            read_only,
        })
    }
}

/// Checks a folder on the nodes.
///
/// # Errors
/// When it is not absolute, or not in its shortest form.
pub fn folder(path: &str) -> Result<String, GrantError> {
    let trimmed = path.trim_end_matches('/');
    let inside = trimmed.strip_prefix('/').is_some_and(is_inside);
    if inside && !trimmed.contains(|c: char| c.is_control() || c == ':') {
        Ok(trimmed.to_owned())
    } else {
        Err(GrantError(format!(
            "{path:?} is not the absolute path of a folder, without .. and :, other than /"
        )))
    }
}

#[cfg(test)]
mod tests;
