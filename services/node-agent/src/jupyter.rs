//! What an agent has to do with a notebook's Jupyter Server: its token, its settings, what it does.
//!
//! - The token follows from the agent's secret and the container's name: nothing is kept, an agent
//!   that starts again has it, and another life has another one. The log gets its hash only.
//! - The settings are a file in the folder of the members' file: no browser, the files in a folder
//!   that outlives the container, no culling by Jupyter itself. What the job says itself comes last.
//! - What it does it is asked ([`activity`]).

mod activity;

use std::io;

use blake3::Hash;
use serde::{Deserialize, Serialize};

use dormouse_messages::ContainerId;
use dormouse_messages::grants::Granted;
use dormouse_messages::job::{EnvValue, JobSpec, Kind};

use crate::folder::aside_in_time;
use crate::layout::Layout;
use crate::secrets;
pub use activity::{Doing, Follower, Pace, Server};

/// The variable of the token.
pub const TOKEN: &str = "JUPYTER_TOKEN";

/// The query by which an agent is asked for a token (`<prefix>.api.token.<node>`).
pub const TOKEN_QUERY: &str = "token";

/// Whose token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenQuery {
    /// The notebook's container.
    pub container: ContainerId,
}

/// The settings, in the folder of the members' file, which `JUPYTER_CONFIG_PATH` names.
pub const SETTINGS: &str = "jupyter_server_config.json";

/// The token that an agent gives a notebook whose job names none.
#[must_use]
pub fn token(key: &[u8; blake3::KEY_LEN], container: &ContainerId) -> String {
    let hash = blake3::keyed_hash(key, format!("notebook/{container}").as_bytes());
    hash.to_hex().to_string()
}

/// Where the token comes from that a notebook asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// The agent gives it.
    Given(String),
    /// Its job's own, which may be in a file; and what its tenant is granted.
    Own(EnvValue, Box<Granted>),
}

impl Token {
    /// A job's own, or the agent's.
    #[must_use]
    pub fn of(spec: &JobSpec, granted: Granted, given: String) -> Self {
        match spec.env.get(TOKEN) {
            Some(own) => Self::Own(own.clone(), Box::new(granted)),
            None => Self::Given(given),
        }
    }

    /// Reads it, away from the agent's thread.
    ///
    /// # Errors
    /// Why the job's own cannot be read.
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

/// What the log says of a token.
#[must_use]
pub fn fingerprint(token: &str) -> Hash {
    blake3::hash(token.as_bytes())
}

/// The variables of a notebook besides those of every container.
pub fn variables(port: u16, settings: Option<String>) -> impl Iterator<Item = (String, String)> {
    let named = |name: &str, value: String| (name.to_owned(), value);
    let folder = settings.map(|folder| named("JUPYTER_CONFIG_PATH", folder));
    let ports = [
        named("JUPYTER_PORT", port.to_string()),
        named("JUPYTER_PORT_RETRIES", "0".to_owned()),
    ];
    ports.into_iter().chain(folder)
}

/// Makes the folder that a notebook keeps its files in, and writes its settings. Blocking.
///
/// With `own_ports` its kernels talk by sockets in its temporary files: Jupyter has them listen on ports
/// that it has picked before, which a job that may listen on its own ports only is refused.
///
/// # Errors
/// The disk's.
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
            // It is asked for by the names of its gateways.
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

/// Whether a container of this job is a notebook's.
#[must_use]
pub fn is_notebook(spec: &JobSpec) -> bool {
    spec.kind == Kind::Notebook
}

/// The environment's token, for a notebook whose job names none.
pub fn give(env: &mut std::collections::BTreeMap<String, EnvValue>, token: String) {
    let value = || EnvValue::Plain(token);
    env.entry(TOKEN.to_owned()).or_insert_with(value);
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_life_has_a_token_of_its_own() {
        let container = |text: &str| text.parse().expect("valid");
        let token = |secret, text| super::token(&[secret; 32], &container(text));
        assert_eq!(token(1, "ads/a/1/0"), token(1, "ads/a/1/0"));
        assert_ne!(token(1, "ads/a/1/0"), token(1, "ads/a/2/0"));
        assert_ne!(token(1, "ads/a/1/0"), token(2, "ads/a/1/0"));
    }
}
