//! Hides other tenants' names in answers; amounts stay.
//!
//! Each answer first replaces the names in its known fields by better texts. Then [`seen_by`] walks over
//! every text of the finished answer, which covers messages and future fields.

use dormouse_messages::{JobId, TenantId};
use dormouse_projections::status::own_words;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Replaces another tenant's job.
pub const ANOTHER_JOB: &str = "a job of another tenant";

/// An error instead of an answer with other tenants' names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the names of other tenants could not be taken out of the answer ({0}); ask without --tenant, and report this"
)]
pub struct SeenError(String);

/// Returns `answer` as `viewer` may see it; without a viewer unchanged.
///
/// # Errors
/// The answer without the names is not readable.
pub fn seen_by<T>(answer: T, viewer: Option<&TenantId>) -> Result<T, SeenError>
where
    T: Serialize + DeserializeOwned,
{
    let Some(viewer) = viewer else {
        return Ok(answer);
    };
    let failed = |error: serde_json::Error| SeenError(error.to_string());
    let mut value = serde_json::to_value(&answer).map_err(failed)?;
    if hide(&mut value, viewer) {
        serde_json::from_value(value).map_err(failed)
    } else {
        Ok(answer)
    }
}

/// Returns a job's name as `viewer` may know it.
#[must_use]
pub fn name(job: &JobId, viewer: Option<&TenantId>) -> String {
    if viewer.is_none_or(|viewer| viewer.as_str() == job.tenant()) {
        job.to_string()
    } else {
        ANOTHER_JOB.to_owned()
    }
}

/// Returns a replacement of an event's subject for `viewer`; `None` if the subject may stay.
#[must_use]
pub fn subject(event: &str, subject: &str, viewer: &TenantId) -> Option<&'static str> {
    let (kind, of) = subject.split_once('/')?;
    // Tenants may be called node or epoch, so the event's type tells the kind of subject.
    let writes = event.split('.').next().unwrap_or_default();
    match (kind, writes) {
        ("node", "node" | "clock")
        | ("epoch", "allocation" | "placement")
        | ("gateway", "gateway")
        | ("submission", "submission" | "submissions" | "job")
            if kind != "submission" || of.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            None
        }
        ("tenant", "tenant") => (of != viewer.as_str()).then_some("another tenant"),
        ("key", "key") => {
            let name = of.split_once('-').map_or(of, |(_, name)| name);
            let owner = name.split('.').next().unwrap_or_default();
            (owner != viewer.as_str()).then_some("a key of somebody else")
        }
        _ => (kind != viewer.as_str()).then_some(ANOTHER_JOB),
    }
}

fn hide(value: &mut Value, viewer: &TenantId) -> bool {
    match value {
        Value::String(text) => {
            let own = own_words(text, viewer.as_str());
            let changed = own != *text;
            *text = own;
            changed
        }
        Value::Array(values) => values
            .iter_mut()
            .fold(false, |any, value| hide(value, viewer) | any),
        Value::Object(fields) => hide_fields(fields, viewer),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn hide_fields(fields: &mut serde_json::Map<String, Value>, viewer: &TenantId) -> bool {
    let event = fields.get("event").and_then(Value::as_str);
    let event = event.map(str::to_owned);
    let mut changed = false;
    for (field, value) in fields.iter_mut() {
        match (field.as_str(), &event, &mut *value) {
            // The asker knows the name in the question.
            ("about", _, Value::String(_)) => {}
            ("subject", Some(event), Value::String(text)) => {
                if let Some(hidden) = subject(event, text, viewer) {
                    hidden.clone_into(text);
                    changed = true;
                }
            }
            _ => changed |= hide(value, viewer),
        }
    }
    let is_own = |name: &String| own_words(name, viewer.as_str()) == *name;
    if !fields.keys().all(is_own) {
        let old = std::mem::take(fields);
        let named = |(name, value): (String, Value)| (own_words(&name, viewer.as_str()), value);
        fields.extend(old.into_iter().map(named));
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ads() -> TenantId {
        "ads".parse().expect("a tenant")
    }

    #[test]
    fn every_text_is_walked_over() {
        let answer = json!({
            "about": "epoch/3",
            "all": [{"words": "it waits behind lab/secret, which was released before it"}],
            "by": {"lab/secret": 4, "ads/lr": 1},
            "cause": {"event": "node.joined", "subject": "node/n1"},
            "causes": [{"event": "job.released", "subject": "node/secret"}],
            "share": 0.25,
        });
        let seen = seen_by(answer.clone(), Some(&ads())).expect("an answer");
        let expected = json!({
            "about": "epoch/3",
            "all": [{"words": "it waits behind another tenant's job, which was released before it"}],
            "by": {"another tenant's job": 4, "ads/lr": 1},
            "cause": {"event": "node.joined", "subject": "node/n1"},
            "causes": [{"event": "job.released", "subject": "a job of another tenant"}],
            "share": 0.25,
        });
        assert_eq!(seen, expected);
        assert_eq!(seen_by(answer.clone(), None), Ok(answer));
    }

    #[test]
    fn what_an_event_is_about_is_known_by_the_event() {
        for (event, about, hidden) in [
            ("job.released", "ads/lr", None),
            ("job.released", "lab/secret", Some(ANOTHER_JOB)),
            ("job.released", "node/secret", Some(ANOTHER_JOB)),
            ("job.refused", "submission/secret", Some(ANOTHER_JOB)),
            ("job.refused", "submission/12", None),
            ("node.joined", "node/n1", None),
            ("placement.decided", "epoch/3", None),
            ("cluster.configured", "cluster", None),
            ("tenant.granted", "tenant/lab", Some("another tenant")),
            ("tenant.granted", "tenant/ads", None),
            ("key.created", "key/user-ads.alice", None),
            (
                "key.created",
                "key/user-lab.bob",
                Some("a key of somebody else"),
            ),
        ] {
            assert_eq!(subject(event, about, &ads()), hidden, "{event} {about}");
        }
    }
}
