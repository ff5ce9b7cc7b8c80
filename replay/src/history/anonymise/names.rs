//! Assigns new names in the old order, so that comparisons of names break ties as before.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::ServiceMeasured;
use dormouse_messages::needs::{GPU_MODEL_LABEL, NODE_LABEL, RESERVED, matches};
use dormouse_messages::{ContainerId, Event, JobId, Recorded, Writer};
use serde_json::{Value, json};

use super::vocabulary::Vocabulary;

/// The names on a log.
#[derive(Debug, Default)]
pub struct Seen {
    tenants: BTreeSet<String>,
    jobs: BTreeSet<JobId>,
    nodes: BTreeSet<String>,
    gateways: BTreeSet<String>,
    gpus: BTreeSet<String>,
    /// Labels and their values, taints, classes, resources and models.
    words: BTreeSet<String>,
    pub documents: BTreeMap<u64, Value>,
}

impl Seen {
    /// Reads the next event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        let Some(event) = recorded.event() else {
            return;
        };
        if let Ok(data) = serde_json::to_value(event) {
            self.value("", &data);
        }
        match event {
            Event::JobAdmitted(event) => {
                let document = serde_json::to_value(&event.spec).unwrap_or_default();
                self.documents.insert(event.ingress_sequence, document);
            }
            Event::JobRevised(event) => {
                let mut document = json!({
                    "job": event.job, "weight": event.weight, "containers": event.containers,
                    "priority": event.priority, "held": event.held, "force": true,
                    "time_limit_s": event.time_limit_s, "queue_limit_s": event.queue_limit_s,
                });
                if let Some(fields) = document.as_object_mut() {
                    fields.retain(|_, value| !value.is_null());
                }
                self.documents.insert(event.ingress_sequence, document);
            }
            Event::JobRequeued(event) => {
                let document = json!({"job": event.job, "requeue": true, "force": true});
                self.documents.insert(event.ingress_sequence, document);
            }
            Event::JobCancelRequested(event) => self.cancelled(event.ingress_sequence, &event.job),
            Event::JobCancelled(event) => {
                if let Some(ingress) = event.ingress_sequence {
                    self.cancelled(ingress, &event.job);
                }
            }
            Event::ServiceMeasured(event) => self.measured(event),
            _ => {}
        }
    }

    fn measured(&mut self, event: &ServiceMeasured) {
        let Some((_, proxy)) = event.gateway.as_str().split_once('/') else {
            return;
        };
        self.gateways.insert(proxy.to_owned());
        let decided = event.basis.is_some();
        let Some(ingress) = event.ingress_sequence.filter(|_| decided) else {
            return;
        };
        let mut document = serde_json::to_value(event).unwrap_or_default();
        document["gateway"] = json!(proxy);
        if let Some(fields) = document.as_object_mut() {
            fields.retain(|name, _| {
                !["ingress_sequence", "published_at", "basis"].contains(&name.as_str())
            });
        }
        self.documents.insert(ingress, document);
    }

    fn cancelled(&mut self, ingress: u64, job: &JobId) {
        self.documents.insert(ingress, json!({"job": job}));
    }

    fn value(&mut self, field: &str, value: &Value) {
        match (field, value) {
            ("labels" | "taints" | "tolerations" | "constraints" | "priority_classes", _) => {
                self.word_of(value);
            }
            ("model", Value::String(text)) => drop(self.words.insert(text.clone())),
            (
                "capacity" | "demand" | "quota" | "resources" | "hours" | "amounts",
                Value::Object(fields),
            ) => {
                fields.keys().for_each(|name| self.resource(name));
            }
            ("gpus" | "uuid", Value::String(text)) => drop(self.gpus.insert(text.clone())),
            (_, Value::String(text)) => self.text(field, text),
            (_, Value::Array(items)) => items.iter().for_each(|it| self.value(field, it)),
            ("env" | "metrics", _) => {}
            (_, Value::Object(fields)) => {
                if let Some(Value::String(class)) = fields.get("name")
                    && field == "priority_class"
                {
                    self.words.insert(class.clone());
                }
                fields.iter().for_each(|(name, it)| self.value(name, it));
            }
            _ => {}
        }
    }

    fn text(&mut self, field: &str, text: &str) {
        let vocabulary = Vocabulary::of_events();
        if vocabulary.holds(field, "JobId")
            && let Ok(job) = text.parse()
        {
            self.job(&job);
        }
        if vocabulary.holds(field, "ContainerId")
            && let Ok(container) = text.parse::<ContainerId>()
        {
            self.job(&container.job);
        }
        for (id, names) in [
            ("ReservationId", &mut self.words),
            ("TenantId", &mut self.tenants),
            ("NodeId", &mut self.nodes),
            ("GatewayId", &mut self.gateways),
        ] {
            // The name of a tenant's own proxy has the tenant as prefix.
            let own = text.rsplit_once('/').map_or(text, |(_, own)| own);
            if vocabulary.holds(field, id) {
                names.insert(own.to_owned());
            }
        }
    }

    fn word_of(&mut self, value: &Value) {
        match value {
            Value::String(text) => drop(self.words.insert(text.clone())),
            Value::Array(items) => items.iter().for_each(|it| self.word_of(it)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.words.insert(name.clone());
                    self.word_of(value);
                }
            }
            _ => {}
        }
    }

    fn resource(&mut self, name: &str) {
        let (name, _) = resource_of(name);
        self.words.insert(name.to_owned());
    }

    fn job(&mut self, job: &JobId) {
        self.tenants.insert(job.tenant().to_owned());
        self.jobs.insert(job.clone());
    }

    /// Assigns the new names.
    #[must_use]
    pub fn names(&self) -> Names {
        let tenants = numbered(&self.tenants, "t");
        let mut names = Names {
            nodes: numbered(&self.nodes, "n"),
            gateways: numbered(&self.gateways, "g"),
            gpus: numbered(&self.gpus, "GPU-"),
            words: numbered(&self.words, "w"),
            jobs: BTreeMap::new(),
            tenants,
        };
        let own: BTreeSet<String> = self.jobs.iter().map(|job| job.name().to_owned()).collect();
        let numbers = numbered(&own, "j");
        for job in &self.jobs {
            let tenant = names.tenants.get(job.tenant()).cloned();
            if let (Some(tenant), Some(name)) = (tenant, numbers.get(job.name())) {
                names
                    .jobs
                    .insert(job.to_string(), format!("{tenant}/{name}"));
            }
        }
        names
    }
}

/// Returns `t01`, `t02`, …: padded, so that names sort as numbers.
fn numbered(old: &BTreeSet<String>, prefix: &str) -> BTreeMap<String, String> {
    let digits = old.len().to_string().len();
    let numbered = old.iter().zip(1_u64..);
    numbered
        .map(|(name, number)| (name.clone(), format!("{prefix}{number:0digits$}")))
        .collect()
}

fn resource_of(name: &str) -> (&str, &str) {
    for unit in ["_milli", "_bytes"] {
        if let Some(name) = name.strip_suffix(unit) {
            return (name, unit);
        }
    }
    (name, "")
}

const MOST: usize = 64;

/// New names by old names.
#[derive(Debug, Default)]
pub struct Names {
    tenants: BTreeMap<String, String>,
    jobs: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    gateways: BTreeMap<String, String>,
    gpus: BTreeMap<String, String>,
    words: BTreeMap<String, String>,
}

impl Names {
    #[must_use]
    pub fn field(&self, field: &str, old: &str) -> Option<String> {
        match field {
            "tenant" => self.tenants.get(old).cloned(),
            "node" => self.nodes.get(old).cloned(),
            "gateway" => match old.split_once('/') {
                Some((tenant, proxy)) => {
                    let (tenant, proxy) = (self.tenants.get(tenant)?, self.gateways.get(proxy)?);
                    Some(format!("{tenant}/{proxy}"))
                }
                None => self.gateways.get(old).cloned(),
            },
            _ => None,
        }
    }

    /// Returns the new name of a job or a container (`tenant/name/incarnation/rank`).
    #[must_use]
    pub fn anywhere(&self, old: &str) -> Option<String> {
        if let Some(new) = self.jobs.get(old) {
            return Some(new.clone());
        }
        let mut parts = old.splitn(3, '/');
        let job = format!("{}/{}", parts.next()?, parts.next()?);
        let rest = parts.next()?;
        self.jobs.get(&job).map(|new| format!("{new}/{rest}"))
    }

    #[must_use]
    pub fn bare(&self, tenant: &str, name: &str) -> Option<String> {
        let new = self.jobs.get(&format!("{tenant}/{name}"))?;
        new.split_once('/').map(|(_, name)| name.to_owned())
    }

    #[must_use]
    pub fn gpu(&self, old: &str) -> String {
        self.gpus.get(old).cloned().unwrap_or_default()
    }

    #[must_use]
    pub fn word(&self, old: &str) -> String {
        let own = [NODE_LABEL, GPU_MODEL_LABEL];
        if RESERVED.iter().chain(&own).any(|it| *it == old) || old == "not" {
            return old.to_owned();
        }
        let new = self.words.get(old);
        new.cloned().unwrap_or_else(|| "w".to_owned())
    }

    #[must_use]
    pub fn label(&self, label: &str, old: &str) -> String {
        match self.nodes.get(old).filter(|_| label == NODE_LABEL) {
            Some(node) => node.clone(),
            None => self.word(old),
        }
    }

    /// Returns the new values of a label that match a pattern; a value of no node if none matches.
    #[must_use]
    pub fn matching(&self, label: &str, pattern: &str) -> Vec<String> {
        let values = match label {
            NODE_LABEL => &self.nodes,
            _ => &self.words,
        };
        let found = values.iter().filter(|(old, _)| matches(pattern, old));
        let mut found: Vec<String> = found.map(|(_, new)| new.clone()).take(MOST).collect();
        if found.is_empty() {
            found.push("w".to_owned());
        }
        found
    }

    /// Returns the new name of a resource on the log, also with its unit (`fpga_milli`).
    #[must_use]
    pub fn resource(&self, old: &str) -> Option<String> {
        let (name, unit) = resource_of(old);
        match name {
            "cpu" | "gpu" | "memory" => Some(old.to_owned()),
            name => self.words.get(name).map(|new| format!("{new}{unit}")),
        }
    }

    /// Returns an event's source, such as `/dormouse/node/n3`, without the operator's name.
    #[must_use]
    pub fn source(&self, old: &str, writer: Writer) -> String {
        let last = old.rsplit('/').next().unwrap_or_default();
        let new = match writer {
            Writer::Node => self.nodes.get(last),
            Writer::Gateway => self.gateways.get(last),
            _ => None,
        };
        match new {
            Some(new) => format!("/dormouse/{writer}/{new}"),
            None => format!("/dormouse/{writer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::{Basis, Envelope, GatewayId, MeasuredDocument, Sequence, Writer};

    use super::*;

    #[test]
    fn a_tenants_proxy_is_renamed_with_its_tenant_and_its_message_is_made_again() {
        let document = json!({"job": "model", "window_s": 2, "requests": 3, "concurrency": 0.5,
            "latency_ms": {"bounds": [50.0], "counts": [3, 0]}});
        let document: MeasuredDocument = serde_json::from_value(document).expect("a document");
        let tenant = "ads".parse().expect("valid");
        let gateway = GatewayId::of_tenant(&tenant, "envoy").expect("valid");
        let mut measured = document.of("ads/model".parse().expect("valid"), gateway);
        measured.ingress_sequence = Some(7);
        measured.basis = Some(Basis::default());
        let at = dormouse_messages::Timestamp::default();
        let mut seen = Seen::default();
        seen.read(&Recorded {
            sequence: Sequence(1),
            stored_at: at,
            writer: Writer::Admission,
            envelope: Envelope::new("id", Writer::Admission, at, None, Event::from(measured)),
        });
        let names = seen.names();
        assert_eq!(
            names.field("gateway", "ads/envoy").as_deref(),
            Some("t1/g1")
        );
        assert_eq!(names.field("gateway", "envoy").as_deref(), Some("g1"));
        let again: MeasuredDocument = serde_json::from_value(seen.documents[&7].clone())
            .expect("a document that is taken in");
        assert_eq!(again.gateway.as_deref(), Some("envoy"));
        assert_eq!(again.job, "ads/model");
    }
}
