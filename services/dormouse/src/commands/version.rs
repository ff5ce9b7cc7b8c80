//! `version`: which build this is, which broker it would run, and what holds parts of GPUs.

use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_runtime::BrokerConfig;
use serde::Serialize;

use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// A build of Dormouse.
#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    /// What it was built from; a build from a checkout does not know.
    commit: Option<&'static str>,
    /// Architecture and operating system.
    platform: String,
    /// Whether it needs no library of the machine.
    is_static: bool,
    /// The broker that `up` would run.
    broker: Option<Broker>,
    /// The library that an agent holds programs with parts of GPUs by.
    gpu_library: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Broker {
    path: PathBuf,
    /// As it says itself; none where it does not start.
    version: Option<String>,
}

/// Prints it.
///
/// # Errors
/// When the standard output is closed.
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

/// What a broker's program says of itself.
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
