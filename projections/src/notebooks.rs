//! The notebooks, and their addresses at gateways.

use std::collections::BTreeMap;

use dormouse_messages::events::{ContainerExited, NotebookActivity, NotebookObserved};
use dormouse_messages::job::Kind;
use dormouse_messages::{ContainerId, Event, Fact, GatewayId, JobId, NodeId, Timestamp};
use dormouse_state::ClusterState;
use serde::{Deserialize, Serialize};

use crate::jobs::reason::how;

/// The state of a notebook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotebookState {
    /// Started by opening its page.
    Stopped,
    #[default]
    Starting,
    /// No activity reported.
    Ready,
    Busy,
    Idle,
    Unknown,
}

/// A ready container of a notebook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub container: ContainerId,
    pub node: NodeId,
    pub activity: Option<NotebookActivity>,
    pub active_at: Timestamp,
}

/// A notebook that has not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notebook {
    pub target: u32,
    pub running: Option<Running>,
    /// End without use.
    pub ends_at: Option<Timestamp>,
    /// Since one was last ready.
    #[serde(default)]
    pub failures: u32,
    #[serde(default)]
    pub failure: Option<String>,
}

impl Notebook {
    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> NotebookState {
        match &self.running {
            None if self.target == 0 => NotebookState::Stopped,
            None => NotebookState::Starting,
            Some(running) => match running.activity {
                None => NotebookState::Ready,
                Some(NotebookActivity::Busy) => NotebookState::Busy,
                Some(NotebookActivity::Idle) => NotebookState::Idle,
                Some(NotebookActivity::Unknown) => NotebookState::Unknown,
            },
        }
    }

    fn exited(&mut self, event: &ContainerExited) {
        self.running
            .take_if(|running| running.container == event.container);
        if event.evicted || event.exit_code == Some(0) {
            return;
        }
        let reason = event.reason.as_deref();
        let how = how(event.out_of_memory, event.signal, event.exit_code, reason);
        self.failures = self.failures.saturating_add(1);
        self.failure = Some(format!(
            "container {} on {}: {how}",
            event.container.rank, event.node
        ));
    }

    fn observed(&mut self, event: &NotebookObserved, at: Timestamp) {
        let running = self.running.as_mut();
        let Some(running) = running.filter(|it| it.container == event.container) else {
            return;
        };
        running.activity = Some(event.activity);
        let active_at = at.minus_ms(event.idle_ms);
        // Reports repeat an activity.
        if active_at.ms_since(running.active_at) > 2_000 {
            self.ends_at = None;
        }
        running.active_at = running.active_at.max(active_at);
    }
}

/// Notebooks and gateways.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notebooks {
    notebooks: BTreeMap<JobId, Notebook>,
    gateways: BTreeMap<GatewayId, String>,
}

impl Notebooks {
    /// Returns the live notebooks by job.
    pub fn iter(&self) -> impl Iterator<Item = (&JobId, &Notebook)> {
        self.notebooks.iter()
    }

    /// Returns a live notebook.
    #[must_use]
    pub fn get(&self, job: &JobId) -> Option<&Notebook> {
        self.notebooks.get(job)
    }

    /// Returns a notebook's addresses below the gateways' hosts.
    #[must_use]
    pub fn addresses(&self, job: &JobId) -> Vec<String> {
        let gateways = self.gateways.values();
        let own = gateways.filter_map(|url| own_address(url, job));
        let mut own: Vec<String> = own.collect();
        own.sort();
        own.dedup();
        own
    }

    /// Returns a service's addresses below the gateways' paths.
    #[must_use]
    pub fn paths(&self, job: &JobId) -> Vec<String> {
        let path = |url: &String| {
            format!(
                "{}/{}/{}/",
                url.trim_end_matches('/'),
                job.tenant(),
                job.name()
            )
        };
        let mut paths: Vec<String> = self.gateways.values().map(path).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// A later agent may have adopted the container.
    fn lost(&mut self, node: &NodeId, state: &ClusterState) {
        if !state.nodes.is_lost(node) {
            return;
        }
        for notebook in self.notebooks.values_mut() {
            notebook.running.take_if(|running| running.node == *node);
        }
    }

    fn at(&mut self, job: &JobId, change: impl FnOnce(&mut Notebook)) {
        if let Some(notebook) = self.notebooks.get_mut(job) {
            change(notebook);
        }
    }
}

/// An IP address has no names below it.
fn own_address(url: &str, job: &JobId) -> Option<String> {
    let (scheme, authority) = url.split_once("://")?;
    let authority = authority.trim_end_matches('/');
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    if authority.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    let name = job.as_str().split_once('/')?.1;
    Some(format!("{scheme}://{name}.{}.{authority}/", job.tenant()))
}

impl Notebooks {
    /// Folds one event, after `state`.
    pub fn evolve(&mut self, fact: &Fact<'_>, state: &ClusterState) {
        let at = fact.at;
        match fact.event() {
            Some(Event::GatewayJoined(it)) => {
                self.gateways.insert(it.gateway.clone(), it.address.clone());
            }
            Some(Event::GatewayLeft(it)) => {
                self.gateways.remove(&it.gateway);
            }
            Some(Event::GatewayLost(it)) => {
                self.gateways.remove(&it.gateway);
            }
            Some(Event::JobAdmitted(it)) if it.spec.kind == Kind::Notebook => {
                let notebook = Notebook {
                    target: it.spec.containers.min,
                    ..Notebook::default()
                };
                self.notebooks.insert(it.job.clone(), notebook);
            }
            Some(Event::JobCompleted(it)) => drop(self.notebooks.remove(&it.job)),
            Some(Event::JobFailed(it)) => drop(self.notebooks.remove(&it.job)),
            Some(Event::JobCancelled(it)) => drop(self.notebooks.remove(&it.job)),
            Some(Event::ServiceScaled(it)) => self.at(&it.job, |notebook| {
                notebook.target = it.replicas;
            }),
            Some(Event::ContainerReady(it)) => self.at(&it.container.job, |notebook| {
                notebook.ends_at = None;
                (notebook.failures, notebook.failure) = (0, None);
                notebook.running = Some(Running {
                    container: it.container.clone(),
                    node: it.node.clone(),
                    activity: None,
                    active_at: at,
                });
            }),
            Some(Event::ContainerUnready(it)) => self.at(&it.container.job, |notebook| {
                notebook
                    .running
                    .take_if(|running| running.container == it.container);
            }),
            Some(Event::ContainerExited(it)) => {
                self.at(&it.container.job, |notebook| notebook.exited(it))
            }
            Some(Event::NodeLost(it)) => self.lost(&it.node, state),
            Some(Event::NodeFenced(it)) => self.lost(&it.node, state),
            Some(Event::NotebookObserved(it)) => {
                self.at(&it.container.job, |notebook| notebook.observed(it, at));
            }
            Some(Event::ServiceMeasured(it)) if it.touched > 0 => self.at(&it.job, |notebook| {
                notebook.ends_at = None;
                if let Some(running) = &mut notebook.running {
                    running.active_at = running.active_at.max(at);
                }
            }),
            Some(Event::NotebookWarned(it)) => self.at(&it.job, |notebook| {
                notebook.ends_at = Some(it.ends_at);
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::{ContainerReady, JobAdmitted, NodeFenced, NodeLost};

    use dormouse_state::history::{History, job, node, spec};

    use super::*;
    use crate::ReadModel;

    #[test]
    fn a_notebook_has_a_name_below_each_gateway() {
        let job: JobId = "ads/analysis".parse().expect("valid");
        let own = |url| own_address(url, &job);
        let local = own("http://localhost:8080").expect("a name");
        assert_eq!(local, "http://analysis.ads.localhost:8080/");
        let far = own("https://serving.example.org").expect("a name");
        assert_eq!(far, "https://analysis.ads.serving.example.org/");
        assert_eq!(own("http://10.0.0.1:8080"), None);
        assert_eq!(own("http://[::1]:8080"), None);
    }
    #[test]
    fn the_loss_of_an_earlier_agent_takes_nothing_from_the_present_one() {
        let mut history = notebook();
        history.join("n0", 2);
        lose(&mut history, 1);
        let state = |history: &History| {
            let model = history.fold::<ReadModel>();
            model.notebooks.get(&job("ads/nb")).map(Notebook::state)
        };
        assert_eq!(state(&history), Some(NotebookState::Ready));
        lose(&mut history, 2);
        assert_eq!(state(&history), Some(NotebookState::Starting));
        let mut history = notebook();
        history.push(NodeFenced {
            node: node("n0"),
            incarnation: 1,
            reason: "replaced".to_owned(),
        });
        assert_eq!(state(&history), Some(NotebookState::Starting));
    }

    fn lose(history: &mut History, incarnation: u64) {
        history.push(NodeLost {
            node: node("n0"),
            incarnation,
            last_seen: history.now(),
        });
    }

    fn notebook() -> History {
        let mut history = placed();
        history.push(ContainerReady {
            container: "ads/nb/1/0".parse().expect("a container"),
            node: node("n0"),
            after_ms: 1_000,
            token_blake3: None,
        });
        history
    }

    fn placed() -> History {
        let mut history = History::default();
        let mut spec = spec(&job("ads/nb"));
        spec.kind = Kind::Notebook;
        history.join("n0", 1).push(JobAdmitted {
            job: job("ads/nb"),
            spec,
            ingress_sequence: 1,
            by: None,
            basis: None,
        });
        history.place(1, "ads/nb", 1, &[("n0", 1)]);
        history.request_start(1, "ads/nb", 1, 1);
        history
    }

    #[test]
    fn what_ends_before_it_is_ready_is_remembered_until_one_is() {
        let mut history = placed();
        history.container_exited("ads/nb", 1, 0, "n0", Some(1));
        let notebooks = history.fold::<ReadModel>().notebooks;
        let notebook = notebooks.get(&job("ads/nb")).expect("a notebook");
        assert_eq!(notebook.failures, 1);
        let failure = notebook.failure.as_deref().expect("said");
        assert!(failure.starts_with("container 0 on n0: "), "{failure}");
    }
}
