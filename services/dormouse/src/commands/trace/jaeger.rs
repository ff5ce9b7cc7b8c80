//! Jaeger's query API, version 3: OTLP as JSON.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// A span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub span_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub depth: usize,
    pub service: String,
    pub name: String,
    pub start_us: u64,
    pub took_us: u64,
    /// Sequence on the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Further causes, and the decision.
    pub links: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Jaeger answers from memory or an index.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Answer {
    result: TracesData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TracesData {
    #[serde(default)]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    #[serde(default)]
    resource: Resource,
    #[serde(default)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Default, Deserialize)]
struct Resource {
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<Sent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    #[serde(default)]
    start_time_unix_nano: String,
    #[serde(default)]
    end_time_unix_nano: String,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    links: Vec<serde_json::Value>,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u8,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Attribute {
    key: String,
    #[serde(default)]
    value: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Value {
    string_value: Option<String>,
    /// OTLP's JSON encodes integers as text.
    int_value: Option<String>,
}

const ERROR: u8 = 2;

/// Returns the unordered spans of a trace; none if Jaeger lacks the trace.
///
/// # Errors
/// If Jaeger does not answer in the form of its API.
pub fn spans(url: &str, trace: &str) -> anyhow::Result<Vec<Span>> {
    let url = format!("{}/api/v3/traces/{trace}", url.trim_end_matches('/'));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .build()
        .into();
    let mut answer = agent.get(&url).call().with_context(|| {
        format!("{url} does not answer; is Jaeger there (--jaeger, DORMOUSE_JAEGER)?")
    })?;
    match answer.status().as_u16() {
        200 => {}
        404 => return Ok(Vec::new()),
        other => bail!("{url} answered {other}; is this Jaeger's query address?"),
    }
    let answer: Answer = answer
        .body_mut()
        .read_json()
        .with_context(|| format!("{url} answered something else than a trace"))?;
    Ok(of_answer(answer))
}

fn of_answer(answer: Answer) -> Vec<Span> {
    let nanos = |text: &str| text.parse::<u64>().unwrap_or(0);
    let sent: Vec<(String, Sent)> = answer
        .result
        .resource_spans
        .into_iter()
        .flat_map(|resource| {
            let service = text(&resource.resource.attributes, "service.name").unwrap_or_default();
            let spans = resource.scope_spans.into_iter().flat_map(|it| it.spans);
            spans
                .map(|span| (service.clone(), span))
                .collect::<Vec<_>>()
        })
        .collect();
    let first = sent
        .iter()
        .map(|(_, span)| nanos(&span.start_time_unix_nano))
        .min()
        .unwrap_or(0);
    let span = |(service, sent): (String, Sent)| {
        let start = nanos(&sent.start_time_unix_nano);
        let error = (sent.status.code == ERROR).then_some(sent.status.message);
        Span {
            span_id: sent.span_id,
            parent: Some(sent.parent_span_id).filter(|parent| !parent.is_empty()),
            depth: 0,
            service,
            name: sent.name,
            start_us: start.saturating_sub(first) / 1_000,
            took_us: nanos(&sent.end_time_unix_nano).saturating_sub(start) / 1_000,
            sequence: text(&sent.attributes, "dormouse.sequence").and_then(|it| it.parse().ok()),
            links: sent.links.len(),
            error,
        }
    };
    sent.into_iter().map(span).collect()
}

fn text(attributes: &[Attribute], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    let value = &found.value;
    value
        .string_value
        .clone()
        .or_else(|| value.int_value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let answer = serde_json::json!({"result": {"resourceSpans": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "dormouse-placer"}}]},
            "scopeSpans": [{"scope": {}, "spans": [{
                "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
                "name": "publish placement.decided", "kind": 4,
                "startTimeUnixNano": "1763700000000000000", "endTimeUnixNano": "1763700000002500000",
                "attributes": [{"key": "dormouse.sequence", "value": {"intValue": "12"}}],
                "links": [{"traceId": "", "spanId": ""}],
                "status": {"code": 2, "message": "no room"}}]}]}]}});
        let read = of_answer(serde_json::from_value(answer).expect("an answer"));
        let span = read.first().expect("one");
        assert_eq!(
            (span.service.as_str(), span.sequence),
            ("dormouse-placer", Some(12))
        );
        assert_eq!((span.start_us, span.took_us, span.links), (0, 2_500, 1));
        assert_eq!(
            (span.parent.as_deref(), span.error.as_deref()),
            (None, Some("no room"))
        );
    }
}
