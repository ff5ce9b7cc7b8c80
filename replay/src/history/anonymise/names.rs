//! New names that keep the order of the old ones: wherever names are compared, ties are broken as
//! they were.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::ServiceMeasured;
use dormouse_messages::{Event, JobId, Recorded};
use serde_json::{Value, json};

/// What stands on a log by name.
#[derive(Debug, Default)]
pub struct Seen {
    tenants: BTreeSet<String>,
    jobs: BTreeSet<JobId>,
    nodes: BTreeSet<String>,
    gateways: BTreeSet<String>,
    gpus: BTreeSet<String>,
    /// The documents that were submitted, as far as what was decided says them.
    pub documents: BTreeMap<u64, Value>,
}

impl Seen {
    /// The next event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        let Some(event) = recorded.event() else {
            return;
        };
        if let Some(job) = dormouse_projections::status::job_of(event) {
            self.job(job);
        }
        match event {
            Event::TenantConfigured(event) => {
                self.tenants.insert(event.tenant.to_string());
            }
            Event::SubmissionReceived(event) => {
                self.tenants.insert(event.tenant.clone());
            }
            Event::NodeJoined(event) => {
                self.nodes.insert(event.node.to_string());
                self.gpus
                    .extend(event.gpus.iter().map(|gpu| gpu.uuid.clone()));
            }
            Event::NodeDrained(event) => {
                self.nodes.insert(event.node.to_string());
            }
            Event::GatewayJoined(event) => {
                self.gateways.insert(event.gateway.to_string());
            }
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

    /// A proxy of a tenant's has a name, and the message that admission decided on a document.
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

    fn job(&mut self, job: &JobId) {
        self.tenants.insert(job.tenant().to_owned());
        self.jobs.insert(job.clone());
    }

    /// The new names.
    #[must_use]
    pub fn names(&self) -> Names {
        let tenants = numbered(&self.tenants, "t");
        let mut names = Names {
            nodes: numbered(&self.nodes, "n"),
            gateways: numbered(&self.gateways, "g"),
            gpus: numbered(&self.gpus, "GPU-"),
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

/// `t01`, `t02`, …: as many digits as the count has, so that their order is that of the numbers.
fn numbered(old: &BTreeSet<String>, prefix: &str) -> BTreeMap<String, String> {
    let digits = old.len().to_string().len();
    let numbered = old.iter().zip(1_u64..);
    numbered
        .map(|(name, number)| (name.clone(), format!("{prefix}{number:0digits$}")))
        .collect()
}

/// Old names, and the new ones.
#[derive(Debug, Default)]
pub struct Names {
    tenants: BTreeMap<String, String>,
    jobs: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    gateways: BTreeMap<String, String>,
    gpus: BTreeMap<String, String>,
}

impl Names {
    /// A tenant's, a node's or a gateway's new name, by the field that holds it.
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

    /// The new name of a job, a container (`tenant/name/incarnation/rank`) or a GPU, whatever the
    /// field.
    #[must_use]
    pub fn anywhere(&self, old: &str) -> Option<String> {
        if let Some(new) = self.jobs.get(old).or_else(|| self.gpus.get(old)) {
            return Some(new.clone());
        }
        let mut parts = old.splitn(3, '/');
        let job = format!("{}/{}", parts.next()?, parts.next()?);
        let rest = parts.next()?;
        self.jobs.get(&job).map(|new| format!("{new}/{rest}"))
    }

    /// The name of a job without its tenant.
    #[must_use]
    pub fn bare(&self, tenant: &str, name: &str) -> Option<String> {
        let new = self.jobs.get(&format!("{tenant}/{name}"))?;
        new.split_once('/').map(|(_, name)| name.to_owned())
    }

    /// Where an event comes from: `/dormouse/node/n3`.
    #[must_use]
    pub fn source(&self, old: &str) -> String {
        match old.rsplit_once('/') {
            Some((before, last)) => {
                let new = self.nodes.get(last).or_else(|| self.gateways.get(last));
                new.map_or_else(|| old.to_owned(), |new| format!("{before}/{new}"))
            }
            None => old.to_owned(),
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
