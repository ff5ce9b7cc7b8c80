//! `version`: shows this build, the broker that it would run, and its GPU library.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use dormouse_runtime::BrokerConfig;
use serde::Serialize;

use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Show the version of this build and of the broker that `up` would run
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "Examples:\n  dormouse version\n  dormouse version -o json")]
pub struct VersionArgs;

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    commit: Option<&'static str>,
    platform: String,
    is_static: bool,
    broker: Option<Broker>,
    gpu_library: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Broker {
    path: PathBuf,
    version: Option<String>,
}

/// Runs `version`.
///
/// # Errors
/// If the standard output is closed.
pub fn run(context: &Context) -> anyhow::Result<u8> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("DORMOUSE_COMMIT"),
        platform: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        is_static: cfg!(target_feature = "crt-static"),
        broker: BrokerConfig::find_binary().map(Broker::at),
        gpu_library: dormouse_node_agent::config::gpu_library(),
    };
    print::ours(context.output()?, &version, |_| version.table())?;
    Ok(DONE)
}

impl Broker {
    fn at(path: PathBuf) -> Self {
        let version = version_of(&path);
        Self { path, version }
    }
}

/// Returns the version that a broker's program prints.
pub fn version_of(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    Some(text.trim().rsplit('v').next()?.to_owned())
}

impl Version {
    fn table(&self) -> String {
        let linked = if self.is_static { "static" } else { "dynamic" };
        let commit = self.commit.map(|it| format!(", {it}")).unwrap_or_default();
        let broker = match &self.broker {
            Some(Broker { path, version }) => format!(
                "{} ({})",
                version.as_deref().unwrap_or("does not start"),
                path.display()
            ),
            None => "none found: scripts/install.sh nats, or DORMOUSE_NATS_SERVER=FILE".to_owned(),
        };
        let library = match &self.gpu_library {
            Some(path) => path.display().to_string(),
            None => "none beside this program: agents tell parts of GPUs, and hold nobody to them"
                .to_owned(),
        };
        format!(
            "dormouse     {}{commit} ({}, {linked})\nnats-server  {broker}\ngpu library  {library}",
            self.version, self.platform
        )
    }
}
