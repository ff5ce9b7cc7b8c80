//! NATS subjects: `dormouse.log.<writer>.<key…>.<event>` and the tenants' ingress.

use crate::events::{Event, Key, Writer};
use crate::ids::{GatewayId, NodeId, TenantId};
use crate::who::{By, Role, is_user};

/// The first token of every subject; clusters can share an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(String);

impl Default for Prefix {
    fn default() -> Self {
        Self("dormouse".to_owned())
    }
}

/// The prefix is not one subject token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("prefix {0:?} must be a name of letters, digits, '-' and '_'")]
pub struct PrefixError(String);

impl std::str::FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || !text.chars().all(plain) {
            return Err(PrefixError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A log subject's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSubject<'a> {
    pub writer: Writer,
    pub first_key: &'a str,
}

/// The tenants' verbs.
pub const VERBS: [&str; 4] = ["submit", "cancel", "revise", MEASURED];

/// The verb of a measurement.
pub const MEASURED: &str = "measured";

/// The key of writers with one shard, and of the operators' shared key.
pub const SHARD: &str = "0";

/// An ingress subject's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressSubject<'a> {
    pub tenant: &'a str,
    pub verb: &'a str,
    /// For a user with its own account.
    pub by: Option<By>,
}

impl Prefix {
    /// Returns the prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the log stream.
    #[must_use]
    pub fn log_stream(&self) -> String {
        format!("{}_LOG", self.0.to_uppercase().replace('-', "_"))
    }

    /// Returns the ingress stream.
    #[must_use]
    pub fn ingress_stream(&self) -> String {
        format!("{}_IN", self.0.to_uppercase().replace('-', "_"))
    }

    /// Returns the stream of packed folders.
    #[must_use]
    pub fn code_stream(&self) -> String {
        format!("{}_CODE", self.0.to_uppercase().replace('-', "_"))
    }

    /// Returns all packed folders' subject.
    #[must_use]
    pub fn code(&self) -> String {
        format!("{}.code.>", self.0)
    }

    /// Returns a tenant's packed folders' subject.
    #[must_use]
    pub fn code_of(&self, tenant: &str) -> String {
        format!("{}.code.{tenant}.>", self.0)
    }

    /// Returns the subject of a folder's piece at byte `offset`; `>` for all.
    #[must_use]
    pub fn code_piece(&self, tenant: &str, sha256: &str, offset: &str) -> String {
        format!("{}.code.{tenant}.{sha256}.{offset}", self.0)
    }

    /// Returns the stream of folded states.
    #[must_use]
    pub fn states_stream(&self) -> String {
        format!("{}_STATES", self.0.to_uppercase().replace('-', "_"))
    }

    /// Returns all folded states' subject.
    #[must_use]
    pub fn states(&self) -> String {
        format!("{}.states.>", self.0)
    }

    /// Returns a subject of the state `name` in `version`: `head`, or `<sequence>.<piece>`.
    #[must_use]
    pub fn state(&self, name: &str, version: u32, rest: &str) -> String {
        format!("{}.states.{name}-v{version}.{rest}", self.0)
    }

    /// Returns the subject of the log's newest format, for those who start behind its upgrade.
    #[must_use]
    pub fn state_format(&self) -> String {
        format!("{}.states.format", self.0)
    }

    /// Returns the lease bucket.
    #[must_use]
    pub fn lease_bucket(&self) -> String {
        format!("{}_leases", self.0)
    }

    /// Returns the whole log's subject.
    #[must_use]
    pub fn log(&self) -> String {
        format!("{}.log.>", self.0)
    }

    /// Returns the ingress subjects, by verb: the stream's limit per subject limits each tenant or user.
    #[must_use]
    pub fn ingress(&self) -> Vec<String> {
        let plain = VERBS.map(|verb| format!("{}.in.*.{verb}", self.0));
        let by = Role::PUBLISHING
            .map(|role| VERBS.map(|verb| format!("{}.in.*.{verb}.{role}.*", self.0)));
        plain.into_iter().chain(by.into_iter().flatten()).collect()
    }

    /// Returns a tenant's ingress subjects.
    #[must_use]
    pub fn ingress_of(&self, tenant: &str) -> String {
        format!("{}.in.{tenant}.>", self.0)
    }

    /// Returns the subject of a user's stored message.
    #[must_use]
    pub fn submit_by(&self, tenant: &str, verb: &str, role: Role, user: &str) -> String {
        format!("{}.in.{tenant}.{verb}.{role}.{user}", self.0)
    }

    /// Returns a tenant's ingress subject for `verb`.
    #[must_use]
    pub fn submit(&self, tenant: &TenantId, verb: &str) -> String {
        format!("{}.in.{tenant}.{verb}", self.0)
    }

    /// Returns the replacement of `$JS.API` for separate accounts.
    #[must_use]
    pub fn own_api(&self) -> String {
        format!("{}.js", self.0)
    }

    /// Returns the subject of query `name`.
    #[must_use]
    pub fn api(&self, name: &str) -> String {
        format!("{}.api.{name}", self.0)
    }

    /// Returns the subject of a tenant's query; `*` for all tenants.
    #[must_use]
    pub fn tenant_api(&self, tenant: &str, name: &str) -> String {
        format!("{}.tenant.{tenant}.api.{name}", self.0)
    }

    /// Returns a status subject: `<tenant>.<job>.<event>`, `<tenant>._in.<sequence>.<event>`.
    #[must_use]
    pub fn status(&self, tail: &str) -> String {
        format!("{}.status.{tail}", self.0)
    }

    /// Returns the filter of a writer's fence; an agent's by node.
    #[must_use]
    pub fn writer(&self, writer: Writer, node: Option<&NodeId>) -> String {
        match node {
            Some(node) => format!("{}.log.{writer}.{node}.>", self.0),
            None => format!("{}.log.{writer}.>", self.0),
        }
    }

    /// Returns the filter of a gateway's fence.
    #[must_use]
    pub fn gateway(&self, gateway: &GatewayId) -> String {
        format!("{}.log.{}.{gateway}.>", self.0, Writer::Gateway)
    }

    /// Returns an event's subject: by node for an agent, by name for a gateway, else the only shard. A
    /// subject per job would slow down every wildcard fence.
    #[must_use]
    pub fn event(&self, writer: Writer, event: &Event) -> String {
        let name = event.subject_name();
        match event.key() {
            Key::Node(node) if writer == Writer::Node => {
                format!("{}.log.{writer}.{node}.{name}", self.0)
            }
            Key::Gateway(gateway) if writer == Writer::Gateway => {
                format!("{}.log.{writer}.{gateway}.{name}", self.0)
            }
            Key::Job(_) | Key::Shard | Key::Node(_) | Key::Gateway(_) => {
                format!("{}.log.{writer}.0.{name}", self.0)
            }
        }
    }

    /// Returns the subject of operator `user`'s event, as its account's import writes it.
    #[must_use]
    pub fn operator_event(&self, user: &str, event: &Event) -> String {
        let (writer, name) = (Writer::Operator, event.subject_name());
        format!("{}.log.{writer}.{user}.{name}", self.0)
    }

    /// Parses a log subject.
    #[must_use]
    pub fn parse_log<'a>(&self, subject: &'a str) -> Option<LogSubject<'a>> {
        let rest = subject.strip_prefix(&self.0)?.strip_prefix(".log.")?;
        let mut tokens = rest.split('.');
        let writer = tokens.next()?.parse().ok()?;
        let first_key = tokens.next()?;
        Some(LogSubject { writer, first_key })
    }

    /// Parses a tenant's query into (tenant token, name).
    #[must_use]
    pub fn parse_tenant_api<'a>(&self, subject: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = subject.strip_prefix(&self.0)?.strip_prefix(".tenant.")?;
        rest.split_once(".api.")
    }

    /// Parses an ingress subject.
    #[must_use]
    pub fn parse_ingress<'a>(&self, subject: &'a str) -> Option<IngressSubject<'a>> {
        let rest = subject.strip_prefix(&self.0)?.strip_prefix(".in.")?;
        let mut tokens = rest.split('.');
        let (tenant, verb) = (tokens.next()?, tokens.next()?);
        let by = match (tokens.next(), tokens.next(), tokens.next()) {
            (None, ..) => None,
            (Some(role), Some(user), None) => Some(by(tenant, role, user)?),
            _ => return None,
        };
        Some(IngressSubject { tenant, verb, by })
    }
}

fn by(tenant: &str, role: &str, user: &str) -> Option<By> {
    let role: Role = role.parse().ok()?;
    let tenant = match role {
        Role::Operator => None,
        Role::Submitter | Role::Viewer => Some(TenantId::new(tenant).ok()?),
    };
    is_user(user).then(|| By {
        tenant,
        user: user.to_owned(),
        role,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{JobCompleted, JobReleased, NodeDrained};

    #[test]
    fn subjects_name_writer_key_and_event() {
        let prefix = Prefix::default();
        let job: crate::ids::JobId = "ads/lr".parse().expect("valid");
        let completed = Event::from(JobCompleted {
            job: job.clone(),
            reason: String::new(),
            attempts: 0,
            basis: None,
        });
        let subject = prefix.event(Writer::Checkpointer, &completed);
        assert_eq!(subject, "dormouse.log.checkpointer.0.job.completed");
        let parsed = prefix.parse_log(&subject).expect("a log subject");
        assert_eq!(
            (parsed.writer, parsed.first_key),
            (Writer::Checkpointer, "0")
        );
        let released = Event::from(JobReleased {
            job,
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
        assert_eq!(
            prefix.event(Writer::Admission, &released),
            "dormouse.log.admission.0.job.released"
        );
        let drained = Event::from(NodeDrained {
            node: "n0".parse().expect("valid"),
            reason: None,
            deadline_s: None,
        });
        assert_eq!(
            prefix.event(Writer::Operator, &drained),
            "dormouse.log.operator.0.node.drained"
        );
        let plain = IngressSubject {
            tenant: "ads",
            verb: "submit",
            by: None,
        };
        assert_eq!(prefix.parse_ingress("dormouse.in.ads.submit"), Some(plain));
        assert_eq!(
            prefix.parse_tenant_api(&prefix.tenant_api("ads", "job")),
            Some(("ads", "job"))
        );
        assert_eq!(prefix.parse_log("other.log.node.n0.x"), None);
    }

    #[test]
    fn an_ingress_subject_says_who_asks() {
        let prefix = Prefix::default();
        let who = |subject: &str| prefix.parse_ingress(subject).map(|it| it.by);
        let alice = prefix.submit_by("ads", "cancel", Role::Submitter, "alice");
        assert_eq!(alice, "dormouse.in.ads.cancel.submitter.alice");
        let by = who(&alice).flatten().expect("a user");
        assert_eq!(
            (by.to_string(), by.role),
            ("ads/alice".to_owned(), Role::Submitter)
        );
        let olga = prefix.submit_by("ads", "submit", Role::Operator, "olga");
        assert_eq!(who(&olga).flatten(), Some(By::operator("olga")));
        for wrong in [
            "ads.submit.submitter",
            "ads.submit.king.alice",
            "ads.submit.operator.a.b",
            "ads.submit.operator.A",
            "ads",
        ] {
            assert_eq!(who(&format!("dormouse.in.{wrong}")), None, "{wrong}");
        }
        assert_eq!(prefix.ingress().len(), 12);
    }
}
