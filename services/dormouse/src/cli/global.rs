//! Flags of every command, and the output format.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dormouse_messages::Prefix;

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster and output")]
pub struct Global {
    /// The broker: one or more NATS URLs. Default: the local cluster of --data, if one runs.
    #[arg(long, global = true, env = "DORMOUSE_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Folder of the local cluster: broker, containers, checkpoints, snapshots.
    #[arg(long, global = true, env = "DORMOUSE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First token of every subject, so that clusters can share an account.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_PREFIX",
        default_value = "dormouse",
        hide_default_value = true
    )]
    pub prefix: Prefix,
    /// NATS credentials file.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_CREDS",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub creds: Option<PathBuf>,
    /// File with an nkey seed.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_NKEY",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub nkey: Option<PathBuf>,
    /// Certificates to trust (PEM), beyond the system's.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_CA",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// This client's own certificate (PEM), where the broker asks for one.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key",
        hide_short_help = true
    )]
    pub tls_cert: Option<PathBuf>,
    /// The key of --tls-cert (PEM).
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert",
        hide_short_help = true
    )]
    pub tls_key: Option<PathBuf>,
    /// Talk to brokers on other machines without TLS.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_PLAINTEXT",
        value_parser = clap::builder::FalseyValueParser::new(),
        action = clap::ArgAction::SetTrue,
        hide_short_help = true
    )]
    pub plaintext: bool,
    /// Output format: table, wide, json or yaml (`log export`: the file to write).
    #[arg(
        long,
        short,
        global = true,
        env = "DORMOUSE_OUTPUT",
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: OutputArg,
    /// Overwrite existing files of the same names.
    #[arg(long, global = true, hide_short_help = true)]
    pub overwrite: bool,
    /// Configuration file (YAML) with server, data, creds, nkey, tls_ca.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_CONFIG",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub config: Option<PathBuf>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For people with wide screens.
    Wide,
    /// One JSON value; streams print one value a line.
    Json,
    /// YAML.
    Yaml,
}

/// The value of `-o`: a format, or for `log export` a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputArg {
    Format(Output),
    File(PathBuf),
}

impl std::str::FromStr for OutputArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Output::from_str(text, true).map_or_else(|_| Self::File(text.into()), Self::Format))
    }
}

impl Global {
    /// Returns the output format.
    ///
    /// # Errors
    /// A usage error if `-o` names a file but the command writes none.
    pub fn format(&self) -> anyhow::Result<Output> {
        match &self.output {
            OutputArg::Format(output) => Ok(*output),
            OutputArg::File(file) => anyhow::bail!(
                "-o {} is not a format; write -o table, wide, json or yaml",
                file.display()
            ),
        }
    }
}
