//! Support for a notebook's Jupyter Server.
//!
//! - The token derives from the agent's secret and the container's name. The log holds only its hash.
//!   A token from the gateways' secret would give every node the keys of all tenants.
//! - The settings name a folder that outlives the container, and disable culling. The job's settings win.
//! - The server reports its activity ([`activity`]).

mod activity;

use std::io;

use blake3::Hash;
use serde::{Deserialize, Serialize};

use dormouse_messages::grants::Granted;
use dormouse_messages::job::{EnvValue, JobSpec, Kind};
use dormouse_messages::{ContainerId, Sequence};

use crate::blocking::aside_in_time;
use crate::layout::Layout;
use crate::secrets;
pub use activity::{Doing, Follower, Pace, Server};

/// The token's variable.
pub const TOKEN: &str = "JUPYTER_TOKEN";

/// Query for a notebook's token (`<prefix>.api.token.<node>`).
pub const TOKEN_QUERY: &str = "token";

/// The request for a notebook's token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenQuery {
    pub container: ContainerId,
}

/// The settings file in the members' folder, named by `JUPYTER_CONFIG_PATH`.
pub const SETTINGS: &str = "jupyter_server_config.json";

/// Derives the token of a notebook whose job has no token.
#[must_use]
pub fn token(key: &[u8; blake3::KEY_LEN], container: &ContainerId, admitted: Sequence) -> String {
    // A later notebook of the name has another token.
    let name = format!("notebook/{container}@{admitted}");
    let hash = blake3::keyed_hash(key, name.as_bytes());
    hash.to_hex().to_string()
}

/// The source of a notebook's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    Given(String),
    Own(EnvValue, Box<Granted>),
}

impl Token {
    /// Returns the job's own token, or the given one.
    #[must_use]
    pub fn of(spec: &JobSpec, granted: Granted, given: String) -> Self {
        match spec.env.get(TOKEN) {
            Some(own) => Self::Own(own.clone(), Box::new(granted)),
            None => Self::Given(given),
        }
    }

    /// Reads the token away from the agent's thread.
    ///
    /// # Errors
    /// If the job's own token is unreadable.
    pub async fn read(&self) -> Result<String, String> {
        let (own, granted) = match self {
            Self::Given(token) => return Ok(token.clone()),
            Self::Own(EnvValue::Plain(token), _) => return Ok(token.clone()),
            Self::Own(own, granted) => (own.clone(), granted.clone()),
        };
        let env = [(TOKEN.to_owned(), own)].into();
        let resolved = aside_in_time(move || secrets::resolve(&env, &granted)).await;
        let resolved = resolved.ok_or("the file of its token does not answer")??;
        Ok(resolved.into_values().next().unwrap_or_default())
    }
}

/// Returns the token's hash for the log.
#[must_use]
pub fn fingerprint(token: &str) -> Hash {
    blake3::hash(token.as_bytes())
}

/// Returns a notebook's extra variables.
pub fn variables(port: u16, settings: Option<String>) -> impl Iterator<Item = (String, String)> {
    let named = |name: &str, value: String| (name.to_owned(), value);
    let folder = settings.map(|folder| named("JUPYTER_CONFIG_PATH", folder));
    let ports = [
        named("JUPYTER_PORT", port.to_string()),
        named("JUPYTER_PORT_RETRIES", "0".to_owned()),
    ];
    ports.into_iter().chain(folder)
}

/// Makes a notebook's folder and writes its settings. Blocking. With `own_ports` kernels use Unix sockets,
/// because Jupyter would choose forbidden ports.
///
/// # Errors
/// Disk errors.
pub fn prepare(
    layout: &Layout,
    container: &ContainerId,
    address: &str,
    own_ports: bool,
) -> io::Result<()> {
    let work = layout.work(&container.job);
    work.make()?;
    let kernels = if own_ports {
        serde_json::json!({"transport": "ipc", "ip": "/tmp/kernel"})
    } else {
        serde_json::json!({})
    };
    let settings = serde_json::json!({
        "KernelManager": kernels,
        "ServerApp": {
            "open_browser": false,
            "root_dir": std::path::absolute(work.path())?,
            "ip": address,
            "allow_root": true,
            // Requests carry the gateways' host names.
            "allow_remote_access": true,
            "shutdown_no_activity_timeout": 0,
        },
        "MappingKernelManager": {"cull_idle_timeout": 0},
        "TerminalManager": {"cull_inactive_timeout": 0},
    });
    let members = layout.members(&container.job, container.incarnation);
    let text = serde_json::to_vec_pretty(&settings)?;
    members.make()?.write_read_only(SETTINGS, &text)
}

/// Reports whether a job is a notebook.
#[must_use]
pub fn is_notebook(spec: &JobSpec) -> bool {
    spec.kind == Kind::Notebook
}

/// Sets the token unless the job has one.
pub fn give(env: &mut std::collections::BTreeMap<String, EnvValue>, token: String) {
    let value = || EnvValue::Plain(token);
    env.entry(TOKEN.to_owned()).or_insert_with(value);
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Sequence;

    #[test]
    fn each_incarnation_has_a_token_of_its_own() {
        let container = |text: &str| text.parse().expect("valid");
        let token = |secret, text, admitted| {
            super::token(&[secret; 32], &container(text), Sequence(admitted))
        };
        let own = token(1, "ads/a/1/0", 7);
        assert_eq!(own, token(1, "ads/a/1/0", 7));
        assert_ne!(own, token(1, "ads/a/2/0", 7));
        assert_ne!(own, token(2, "ads/a/1/0", 7));
        assert_ne!(own, token(1, "ads/a/1/0", 8), "a later job of the name");
    }
}
