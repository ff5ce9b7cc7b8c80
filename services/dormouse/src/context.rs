//! Where the cluster is: flag, then environment, then configuration file, then the local one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use dormouse_replay::{OutputError, OutputFile};
use dormouse_runtime::{Holder, LocalBroker, Log, LogError, Settings, Tls, is_local};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_norway::Value as Yaml;

use crate::cli::{Global, Output};
use crate::commands::holder;
use crate::error::Coded;

/// The configuration file.
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

/// Where the cluster is, and how to print.
#[derive(Debug, Clone)]
pub struct Context {
    global: Global,
    /// Folder of the local cluster.
    pub data: PathBuf,
    server: Option<String>,
    creds: Option<PathBuf>,
    nkey: Option<PathBuf>,
    tls: Tls,
}

/// The form of the key that a command connects with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credentials {
    /// None.
    None,
    /// A seed, of a broker with a file of accounts.
    Nkey,
    /// A token and a seed, of a broker that keeps accounts.
    Creds,
}

impl Context {
    /// Merges flags, environment and configuration file.
    ///
    /// # Errors
    /// When the configuration file cannot be read.
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

    /// How to print.
    ///
    /// # Errors
    /// When `-o` names no format.
    pub fn output(&self) -> anyhow::Result<Output> {
        self.global.format()
    }

    /// The flags.
    #[must_use]
    pub fn global(&self) -> &Global {
        &self.global
    }

    /// Begins a file that the command writes; `read` are those that it reads.
    ///
    /// # Errors
    /// When it is one of those, or exists without `--overwrite`.
    pub fn output_file(&self, path: &Path, read: &[&Path]) -> Result<OutputFile, OutputError> {
        OutputFile::create(path, read, self.global.overwrite)
    }

    /// ` --data DIR`, as other commands need it to find the folder; nothing where that is the usual one.
    #[must_use]
    pub fn data_flag(&self) -> String {
        match self.global.data.is_some() {
            true => format!(" --data {}", self.data.display()),
            false => String::new(),
        }
    }

    /// Folder of the local broker.
    #[must_use]
    pub fn broker_dir(&self) -> PathBuf {
        self.data.join("broker")
    }

    /// How to reach the broker, as client `name`.
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
                // Between machines nothing goes unencrypted unless that is said.
                required: !self.global.plaintext && !is_local(&server),
                ..self.tls.clone()
            },
            ..Settings::new(server, name)
        }
    }

    /// The same, with these credentials.
    #[must_use]
    pub fn with_creds(&self, creds: PathBuf) -> Self {
        Self {
            creds: Some(creds),
            nkey: None,
            ..self.clone()
        }
    }

    /// The same, of the local cluster, whatever broker is named.
    #[must_use]
    pub fn local(&self) -> Self {
        Self {
            server: None,
            ..self.clone()
        }
    }

    /// Whether a broker is named, or a cluster has run in the folder.
    #[must_use]
    pub fn names_a_cluster(&self) -> bool {
        self.server.is_some() || LocalBroker::url_of(&self.broker_dir()).is_some()
    }

    /// Whether the local cluster's broker is there and its `dormouse up` is not: it was killed.
    #[must_use]
    pub fn is_unattended(&self) -> bool {
        let broker = self.broker_dir();
        self.server.is_none()
            && LocalBroker::url_of(&broker).is_some()
            && !LocalBroker::runs_in(&broker)
    }

    /// The folder in which the local cluster's `up` starts plain processes.
    #[must_use]
    pub fn folder_of_jobs(&self) -> Option<PathBuf> {
        let up =
            LocalBroker::supervisor_in(&self.broker_dir()).filter(|_| self.server.is_none())?;
        std::fs::read_link(format!("/proc/{up}/cwd")).ok()
    }

    /// Whether the broker knows who connects, by a key.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.credentials() != Credentials::None
    }

    /// The form of the key.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        match (&self.creds, &self.nkey) {
            (Some(_), _) => Credentials::Creds,
            (None, Some(_)) => Credentials::Nkey,
            (None, None) => Credentials::None,
        }
    }

    /// Connects a command to the cluster that asks or says what is the operators'.
    ///
    /// # Errors
    /// When there is none, or the key is a tenant's, with what to do.
    pub async fn connect(&self) -> anyhow::Result<Log> {
        self.connect_with(1).await
    }

    /// The same, for a command that may make the streams, in so many copies.
    ///
    /// # Errors
    /// When there is none, or the key is a tenant's, with what to do.
    pub async fn connect_with(&self, replicas: usize) -> anyhow::Result<Log> {
        let log = self.connect_as_anybody(replicas).await?;
        match log.tenant() {
            Some(tenant) => Err(holder::operators_only(tenant).into()),
            None => Ok(log),
        }
    }

    /// Connects a command that works with a tenant's key, too: about that tenant.
    ///
    /// # Errors
    /// When there is no cluster, or the key is an agent's, with what to do.
    pub async fn connect_as_holder(&self) -> anyhow::Result<Log> {
        self.connect_as_anybody(1).await
    }

    /// The same, for a command that submits, revises or cancels.
    ///
    /// # Errors
    /// Those of [`Context::connect_as_holder`], and that the key is a viewer's.
    pub async fn connect_to_submit(&self) -> anyhow::Result<Log> {
        let log = self.connect_as_holder().await?;
        match log.holder() {
            Holder::Tenant {
                tenant,
                submits: false,
            } => Err(holder::viewer(tenant).into()),
            _ => Ok(log),
        }
    }

    /// Whether there is a local cluster that does not run: nobody need wait for its broker.
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
        // A broker of this machine that `up` does not look after is there, or it is not.
        let looked_after = self.server.is_none() && self.names_a_cluster();
        let patience = match is_local(&settings.server) && !looked_after {
            true => Duration::from_millis(300),
            false => Duration::from_secs(3),
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
            Holder::Unknown => Err(holder::unknown().into()),
            Holder::Operator | Holder::Tenant { .. } => Ok(log),
        }
    }
}

/// Reads a file, or the standard input for `-`.
///
/// # Errors
/// When it cannot be read.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).context("standard input"),
        false => std::fs::read_to_string(path).with_context(|| path.display().to_string()),
    }?;
    // Some editors put a mark of the byte order first, which no reader of documents knows.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// A file as messages name it.
#[must_use]
pub fn shown(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

/// Reads a YAML or JSON document.
///
/// # Errors
/// When it cannot be read or is not of the form.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = read_text(path)?;
    if text.trim().is_empty() {
        match path.as_os_str() == "-" {
            true => bail!("the standard input is empty; give it a document, or name a file"),
            false => bail!("{} is empty", path.display()),
        }
    }
    parse_document(&text).with_context(|| shown(path))
}

/// Reads a document that is a map, as those of jobs and of the cluster are.
///
/// # Errors
/// When it cannot be read or is no map. What it is instead is not shown: it may be anything, and of
/// any length.
pub fn read_map(path: &Path) -> anyhow::Result<serde_json::Value> {
    let document: serde_json::Value = read_document(path)?;
    // Of a list the reader of the fields says what is wrong.
    match document.is_object() || document.is_array() {
        true => Ok(document),
        false => bail!("{}: no map of fields (`key: value`)", shown(path)),
    }
}

fn parse_document<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let form = match text.trim_start().starts_with(['{', '[']) {
        true => "JSON",
        false => "YAML",
    };
    // A mapping refuses a key that is there twice; whoever keeps the last one would not be told.
    let value =
        serde_norway::from_str::<Yaml>(text).with_context(|| format!("not valid {form}"))?;
    finite(&value)?;
    Ok(serde_norway::from_str(text)?)
}

/// Refuses `.inf` and `.nan`: JSON has no such numbers, and a document with one would be taken as if
/// nothing stood there.
///
/// # Errors
/// Where one is.
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

/// The first number that is none, and the way to it.
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
