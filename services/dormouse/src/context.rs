//! Finds the cluster: by flag, environment, configuration file, else the local one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use dormouse_replay::{OutputError, OutputFile};
use dormouse_runtime::{Holder, LocalBroker, Log, LogError, Settings, Tls, is_local};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_norway::Value as Yaml;

use crate::cli::global::{Global, Output};
use crate::commands::common::key_identity;
use crate::error::Coded;

#[derive(Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {server: nats://broker:4222}"
)]
struct ConfigFile {
    server: Option<String>,
    data: Option<PathBuf>,
    creds: Option<PathBuf>,
    nkey: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
}

/// The resolved connection and output settings of a command.
#[derive(Debug, Clone)]
pub struct Context {
    global: Global,
    pub data: PathBuf,
    server: Option<String>,
    creds: Option<PathBuf>,
    nkey: Option<PathBuf>,
    tls: Tls,
}

/// The kind of key that a command connects with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credentials {
    None,
    Nkey,
    Creds,
}

impl Context {
    /// Merges flags, environment and configuration file.
    ///
    /// # Errors
    /// If the configuration file cannot be read.
    pub fn new(global: Global) -> anyhow::Result<Self> {
        let file = match &global.config {
            Some(path) => read_document(path)?,
            None => ConfigFile::default(),
        };
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".dormouse"));
        let data = global.data.clone().or(file.data).or_else(home);
        Ok(Self {
            data: data.unwrap_or_else(|| PathBuf::from(".dormouse")),
            server: global.server.clone().or(file.server),
            creds: global.creds.clone().or(file.creds),
            nkey: global.nkey.clone().or(file.nkey),
            tls: Tls {
                required: false,
                ca: global.tls_ca.clone().or(file.tls_ca),
                client: global.tls_cert.clone().zip(global.tls_key.clone()),
            },
            global,
        })
    }

    /// Returns the output format.
    ///
    /// # Errors
    /// If `-o` names no format.
    pub fn output(&self) -> anyhow::Result<Output> {
        self.global.format()
    }

    /// Returns the global flags.
    #[must_use]
    pub fn global(&self) -> &Global {
        &self.global
    }

    /// Opens an output file; `read` are the command's input files.
    ///
    /// # Errors
    /// If the path is an input file, or exists without `--overwrite`.
    pub fn output_file(&self, path: &Path, read: &[&Path]) -> Result<OutputFile, OutputError> {
        OutputFile::create(path, read, self.global.overwrite)
    }

    /// Returns ` --data DIR` if `--data` was given, for hints.
    #[must_use]
    pub fn data_flag(&self) -> String {
        if self.global.data.is_some() {
            format!(" --data {}", self.data.display())
        } else {
            String::new()
        }
    }

    /// Returns the folder of the local broker.
    #[must_use]
    pub fn broker_dir(&self) -> PathBuf {
        self.data.join("broker")
    }

    /// Returns that folder if `up` runs the cluster's broker in it.
    #[must_use]
    pub fn own_broker_dir(&self) -> Option<PathBuf> {
        let own = self.broker_dir();
        (self.server.is_none() && LocalBroker::runs_in(&own)).then_some(own)
    }

    /// Returns the broker settings for a client named `name`.
    #[must_use]
    pub fn settings(&self, name: &str) -> Settings {
        let local = || LocalBroker::url_of(&self.broker_dir());
        let server = self.server.clone().or_else(local);
        let server = server.unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
        Settings {
            prefix: self.global.prefix.clone(),
            creds: self.creds.clone(),
            nkey: self.nkey.clone(),
            tls: Tls {
                // Connections between machines need TLS, unless --plaintext is given.
                required: !self.global.plaintext && !is_local(&server),
                ..self.tls.clone()
            },
            ..Settings::new(server, name)
        }
    }

    /// Returns a copy with these credentials.
    #[must_use]
    pub fn with_creds(&self, creds: PathBuf) -> Self {
        Self {
            creds: Some(creds),
            nkey: None,
            ..self.clone()
        }
    }

    /// Returns a copy for the local cluster.
    #[must_use]
    pub fn local(&self) -> Self {
        Self {
            server: None,
            ..self.clone()
        }
    }

    /// True if a broker is named, or a cluster has run in the folder.
    #[must_use]
    pub fn names_a_cluster(&self) -> bool {
        self.server.is_some() || LocalBroker::url_of(&self.broker_dir()).is_some()
    }

    /// True if the local broker runs without its `dormouse up`.
    #[must_use]
    pub fn is_unattended(&self) -> bool {
        let broker = self.broker_dir();
        self.server.is_none()
            && LocalBroker::url_of(&broker).is_some()
            && !LocalBroker::runs_in(&broker)
    }

    /// Returns the folder in which the local cluster's `up` starts plain processes.
    #[must_use]
    pub fn folder_of_jobs(&self) -> Option<PathBuf> {
        let up =
            LocalBroker::supervisor_in(&self.broker_dir()).filter(|_| self.server.is_none())?;
        std::fs::read_link(format!("/proc/{up}/cwd")).ok()
    }

    /// True if the connection uses a key.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.credentials() != Credentials::None
    }

    /// Returns the kind of key.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        match (&self.creds, &self.nkey) {
            (Some(_), _) => Credentials::Creds,
            (None, Some(_)) => Credentials::Nkey,
            (None, None) => Credentials::None,
        }
    }

    /// Connects for an operator command.
    ///
    /// # Errors
    /// If there is no cluster, or the key is a tenant's.
    pub async fn connect(&self) -> anyhow::Result<Log> {
        self.connect_with(1).await
    }

    /// Connects for an operator command that may create the streams with this many replicas.
    ///
    /// # Errors
    /// Those of [`Context::connect`].
    pub async fn connect_with(&self, replicas: usize) -> anyhow::Result<Log> {
        let log = self.connect_as_anybody(replicas).await?;
        match log.tenant() {
            Some(tenant) => Err(key_identity::operators_only(tenant).into()),
            None => Ok(log),
        }
    }

    /// Connects for a command that tenants may run too.
    ///
    /// # Errors
    /// If there is no cluster, or the key is an agent's.
    pub async fn connect_as_holder(&self) -> anyhow::Result<Log> {
        self.connect_as_anybody(1).await
    }

    /// Connects for a command that submits, revises or cancels jobs.
    ///
    /// # Errors
    /// Those of [`Context::connect_as_holder`], and if the key is a viewer's.
    pub async fn connect_to_submit(&self) -> anyhow::Result<Log> {
        let log = self.connect_as_holder().await?;
        match log.holder() {
            Holder::Tenant {
                tenant,
                submits: false,
            } => Err(key_identity::viewer(tenant).into()),
            _ => Ok(log),
        }
    }

    fn is_stopped(&self) -> bool {
        let broker = self.broker_dir();
        let Some(url) = LocalBroker::url_of(&broker) else {
            return false;
        };
        let address = url
            .rsplit_once("//")
            .map_or(url.as_str(), |(_, address)| address);
        !LocalBroker::runs_in(&broker) && std::net::TcpStream::connect(address).is_err()
    }

    async fn connect_as_anybody(&self, replicas: usize) -> anyhow::Result<Log> {
        let named = self.global.data.is_some() && self.server.is_none();
        if named && LocalBroker::url_of(&self.broker_dir()).is_none() {
            let data = self.data.display();
            let message = format!(
                "no cluster has run in {data}; start one with `dormouse up --data {data}`, or name a broker with --server"
            );
            return Err(Coded::new("no_cluster", message).into());
        }
        let stopped = self.server.is_none() && self.is_stopped();
        if stopped {
            let data = self.data.display();
            let message = format!(
                "the cluster in {data} is stopped; `dormouse up --data {data}` starts it again"
            );
            return Err(Coded::new("no_cluster", message).into());
        }
        let settings = self.settings("dormouse-cli");
        // Only `up` restarts a local broker.
        let looked_after = self.server.is_none() && self.names_a_cluster();
        let patience = if is_local(&settings.server) && !looked_after {
            Duration::from_millis(300)
        } else {
            Duration::from_secs(3)
        };
        let settings = Settings {
            replicas,
            person: self.has_key(),
            connect_timeout: patience,
            ..settings
        };
        let log = Log::connect(&settings).await.map_err(|error| match error {
            LogError::Connect { server, why } => {
                let message = format!("no cluster at {server} ({why}); start one with `dormouse up`, or name its folder with --data, or its broker with --server nats://HOST:PORT");
                anyhow::Error::from(Coded::new("no_cluster", message))
            }
            error => error.into(),
        })?;
        match log.holder() {
            Holder::Unknown => Err(key_identity::unknown().into()),
            Holder::Operator | Holder::Tenant { .. } => Ok(log),
        }
    }
}

/// Reads a file, or the standard input for `-`.
///
/// # Errors
/// If the file cannot be read.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin()).context("standard input")
    } else {
        std::fs::read_to_string(path).with_context(|| path.display().to_string())
    }?;
    // Some editors write a byte order mark.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Returns the name of a file for messages.
#[must_use]
pub fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Reads a YAML or JSON document.
///
/// # Errors
/// If the document cannot be read or is no `T`.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = read_text(path)?;
    if text.trim().is_empty() {
        if path.as_os_str() == "-" {
            bail!("the standard input is empty; give it a document, or name a file")
        } else {
            bail!("{} is empty", path.display())
        }
    }
    parse_document(&text).with_context(|| shown(path))
}

/// Reads a document that is a map.
///
/// # Errors
/// If the document cannot be read or is no map.
pub fn read_map(path: &Path) -> anyhow::Result<serde_json::Value> {
    let document: serde_json::Value = read_document(path)?;
    // For a list, the fields' parser has a better error.
    if document.is_object() || document.is_array() {
        Ok(document)
    } else {
        bail!("{}: no map of fields (`key: value`)", shown(path))
    }
}

fn parse_document<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let form = if text.trim_start().starts_with(['{', '[']) {
        "JSON"
    } else {
        "YAML"
    };
    // Parsing into a mapping rejects duplicate keys.
    let value =
        serde_norway::from_str::<Yaml>(text).with_context(|| format!("not valid {form}"))?;
    finite(&value)?;
    Ok(serde_norway::from_str(text)?)
}

/// Refuses `.inf` and `.nan`, which JSON would silently drop.
///
/// # Errors
/// If the document contains such a number.
pub fn finite(value: &Yaml) -> anyhow::Result<()> {
    let mut path = Vec::new();
    match infinite(value, &mut path) {
        None => Ok(()),
        Some(number) => {
            let place = path.join(".");
            let place = match place.as_str() {
                "" => String::new(),
                place => format!("{place}: "),
            };
            bail!("{place}{number} is no number that can be given; as text it stands in quotes")
        }
    }
}

fn infinite(value: &Yaml, path: &mut Vec<String>) -> Option<String> {
    let mut within = |step: String, value: &Yaml| {
        path.push(step);
        let found = infinite(value, path);
        if found.is_none() {
            path.pop();
        }
        found
    };
    match value {
        Yaml::Number(number) => (!number.is_finite()).then(|| number.to_string()),
        Yaml::Sequence(values) => {
            let mut each = values.iter().enumerate();
            each.find_map(|(index, value)| within(index.to_string(), value))
        }
        Yaml::Mapping(fields) => fields
            .iter()
            .find_map(|(key, value)| within(key.as_str().unwrap_or("?").to_owned(), value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_refused_with_their_place() {
        let why = |text| {
            let read = parse_document::<serde_json::Value>(text);
            read.map_err(|error| error.to_string())
        };
        for (text, place) in [
            ("priority: .nan", "priority: .nan is no number"),
            (
                "tasks: [{demand: {cpu: -.INF}}]",
                "tasks.0.demand.cpu: -.inf",
            ),
            (".inf", ".inf is no number"),
        ] {
            let error = why(text).expect_err("refused");
            assert!(error.starts_with(place), "{error}");
        }
        assert!(why("env: {RATE: '.inf', OF: 1e300}").is_ok());
    }

    #[test]
    fn what_cannot_be_read_is_called_what_it_is() {
        for (text, form) in [
            ("policy: {theta1: [", "not valid YAML: "),
            ("{\"policy\": {", "not valid JSON: "),
        ] {
            let error = parse_document::<serde_json::Value>(text).expect_err("wrong");
            let error = format!("{error:#}");
            assert!(error.starts_with(form), "{error}");
        }
    }

    #[test]
    fn a_mark_of_the_byte_order_is_no_part_of_a_document() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.yaml");
        std::fs::write(&file, "\u{feff}policy: {theta1: 0.2}\n").expect("written");
        let read: serde_json::Value = read_document(&file).expect("a document");
        assert_eq!(read["policy"]["theta1"], 0.2);
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        for text in ["name: a\nname: b", r#"{"name": "a", "name": "b"}"#] {
            let twice = parse_document::<serde_json::Value>(text);
            let error = format!("{:#}", twice.expect_err("not one of the two"));
            assert!(
                error.contains("duplicate") && error.contains("name"),
                "{error}"
            );
        }
    }
}
