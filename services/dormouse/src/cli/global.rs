//! Flags of every command, and the output format.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dormouse_messages::Prefix;

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster and output")]
pub struct Global {
    /// Broker: one or more NATS URLs. Default: the local cluster of --data.
    #[arg(long, global = true, env = "DORMOUSE_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Folder of the local cluster.
    #[arg(long, global = true, env = "DORMOUSE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First token of every subject.
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
    /// Certificates to trust (PEM).
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_CA",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// This client's certificate (PEM), if the broker asks for one.
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
    /// Output format.
    #[arg(
        long,
        short,
        global = true,
        env = "DORMOUSE_OUTPUT",
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: Form,
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

/// The value of `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Table,
    /// For people with wide screens.
    Wide,
    /// One JSON value; streams print one value a line.
    Json,
    /// YAML.
    Yaml,
    /// Comma-separated values; only `ledger` has this format.
    Csv,
}

/// The output formats of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

impl Global {
    /// Returns the output format.
    ///
    /// # Errors
    /// For CSV, which `ledger` writes before it calls this.
    pub fn format(&self) -> anyhow::Result<Output> {
        Ok(match self.output {
            Form::Table => Output::Table,
            Form::Wide => Output::Wide,
            Form::Json => Output::Json,
            Form::Yaml => Output::Yaml,
            Form::Csv => anyhow::bail!("only `ledger` has -o csv; write table, wide, json or yaml"),
        })
    }
}
