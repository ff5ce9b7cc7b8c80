//! The builds of living processes, by their leases.
//!
//! 1. A service holds a lease of its own, apart from the one that chooses the active copy, since standby copies
//!    read the log too. The leases of agents and gateways name their builds.
//! 2. The placer compares the leases with the log, and observes `build.joined` and `build.left`.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_messages::events::{BuildJoined, BuildLeft};
use dormouse_messages::{Build, Event, Format, NewerFormat};

use crate::decode::LogItem;
use crate::error::LogError;
use crate::lease::{Lease, token};
use crate::log::Log;

/// Time from the last message of a process to its departure.
pub(crate) const TERM: Duration = Duration::from_secs(6);

/// Between the key of the service's own lease and the instance.
const BUILD: &str = "build";

/// Letters of a token that tell processes of one host apart.
const LETTERS: usize = 4;

/// Returns the process that holds the lease `key`.
pub(crate) fn process(key: &str) -> Option<String> {
    match *key.split('.').collect::<Vec<_>>() {
        ["node", node] => Some(format!("agent/{node}")),
        ["gateway", gateway] => Some(format!("gateway/{gateway}")),
        ["status", BUILD, instance] => Some(format!("api/{instance}")),
        ["webhooks", BUILD, instance] => Some(format!("webhook/{instance}")),
        [service, BUILD, instance] => Some(format!("{service}/{instance}")),
        _ => None,
    }
}

/// Returns the events that turn `known` into `living`.
pub(crate) fn changes(
    known: &BTreeMap<String, Build>,
    living: &BTreeMap<String, &Build>,
) -> Vec<Event> {
    let joined = living
        .iter()
        .filter(|(process, build)| known.get(*process) != Some(**build))
        .map(|(process, build)| {
            Event::from(BuildJoined {
                process: process.clone(),
                build: (*build).clone(),
            })
        });
    let left = known
        .keys()
        .filter(|process| !living.contains_key(*process))
        .map(|process| {
            Event::from(BuildLeft {
                process: process.clone(),
            })
        });
    joined.chain(left).collect()
}

/// Returns this host's name with a token, as one token of a subject.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let host: String = host.trim().chars().filter(|it| plain(*it)).collect();
    let host = if host.is_empty() { "host" } else { &host };
    let token: String = token().chars().take(LETTERS).collect();
    format!("{host}-{token}").to_ascii_lowercase()
}

impl Log {
    /// Tells that a process of `service` runs `build`, until the lease is released. The key is of the service's
    /// own leases.
    #[must_use]
    pub fn present(&self, service: &str, build: Build) -> Lease {
        let own = match service {
            "api" => "status",
            "webhook" => "webhooks",
            other => other,
        };
        let instance = instance();
        let key = format!("{own}.{BUILD}.{instance}");
        let mut hold = self.leases().hold(&key, &instance, 0, TERM);
        hold.lasts(TERM);
        hold.runs(build).seek()
    }

    /// Checks that this build reads the log's format.
    pub(crate) async fn check_format(&self) -> Result<(), LogError> {
        let filter = format!("{}.log.placer.*.cluster.upgraded", self.prefix().as_str());
        // Without an answer, the followed log tells.
        let newer = match self.last_message(&filter).await {
            Ok(Some(message)) => match self.decoded(message) {
                LogItem::Event(recorded) => recorded.newer_format(),
                LogItem::Flagged { .. } | LogItem::CaughtUp(_) => None,
            },
            // The upgrade may be trimmed.
            Ok(None) => self.states().format().await,
            Err(_) => None,
        };
        match newer.filter(|newer| newer.format > Format::NEWEST) {
            Some(newer) => Err(newer.into()),
            None => Ok(()),
        }
    }

    /// Waits until a follower of this connection meets the upgrade to a format that this build does not read.
    pub async fn outdated(&self) -> NewerFormat {
        let mut newer = self.inner.newer_format.subscribe();
        loop {
            if let Some(newer) = newer.borrow_and_update().clone() {
                return newer;
            }
            if newer.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_names_its_process() {
        let named = |key: &str| process(key);
        assert_eq!(named("node.n0").as_deref(), Some("agent/n0"));
        assert_eq!(named("gateway.g0").as_deref(), Some("gateway/g0"));
        assert_eq!(named("status.build.h-1").as_deref(), Some("api/h-1"));
        assert_eq!(named("placer.build.h-1").as_deref(), Some("placer/h-1"));
        assert_eq!(named("placer"), None);
        assert_eq!(named("status.x"), None);
    }

    #[test]
    fn only_changes_are_told() {
        let (first, second) = (Build::own("first"), Build::own("second"));
        let known = ["a", "b", "c"].map(|it| (it.to_owned(), first.clone()));
        let living = [("a", &first), ("b", &second), ("d", &first)];
        let living = living.map(|(name, build)| (name.to_owned(), build));
        let events = changes(&known.into(), &living.into());
        let told: Vec<String> = events
            .iter()
            .map(|event| match event {
                Event::BuildJoined(it) => format!("+{} {}", it.process, it.build.name),
                Event::BuildLeft(it) => format!("-{}", it.process),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, ["+b second", "+d first", "-c"]);
    }
}
