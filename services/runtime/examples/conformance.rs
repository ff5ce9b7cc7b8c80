//! Driver of `messages/clients/conformance.json` for the Rust client: one line of JSON per case.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_messages::{Body, Event};
use dormouse_runtime::tenant::{Encoding, Tenant, TenantError, Wait, sha256};
use dormouse_runtime::{LogError, Settings};
use serde_json::{Value, json};

const PATIENCE_MS: u64 = 10_000;

struct Driver {
    arguments: BTreeMap<String, String>,
    clients: BTreeMap<String, Tenant>,
}

/// Replaces the suite's special values.
fn value(written: &Value, tenant: &str) -> Value {
    let fields = match written {
        Value::Array(items) => return items.iter().map(|item| value(item, tenant)).collect(),
        Value::Object(fields) => fields,
        plain => return plain.clone(),
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    if let Some(number) = text("$u64") {
        return json!(number.parse::<u64>().expect("a number"));
    }
    if let Some(number) = text("$float") {
        return json!(number.parse::<f64>().expect("a number"));
    }
    if let Some([text, times]) = fields
        .get("$repeat")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        let times = usize::try_from(times.as_u64().expect("a number")).expect("fits");
        return text.as_str().expect("text").repeat(times).into();
    }
    match text("$tenant") {
        Some("") => tenant.into(),
        Some(name) => format!("{tenant}/{name}").into(),
        None => {
            let fields = fields
                .iter()
                .map(|(key, item)| (key.clone(), value(item, tenant)));
            Value::Object(fields.collect())
        }
    }
}

fn changed(event: &Event) -> Value {
    let data = serde_json::to_value(event).expect("JSON");
    json!({"type": event.subject_name(), "data": data})
}

impl Driver {
    async fn client(&mut self, case: &Value, step: &Value, tenant: &str) -> &Tenant {
        let broker = case["broker"].as_str().unwrap_or("main");
        let encoding = if step["encoding"] == "msgpack" {
            Encoding::MessagePack
        } else {
            Encoding::Json
        };
        let patience_ms = step["timeout_ms"].as_u64().unwrap_or(PATIENCE_MS);
        let key = format!(
            "{broker} {tenant} {encoding:?} {} {patience_ms}",
            step["client"]
        );
        if !self.clients.contains_key(&key) {
            let settings = Settings::new(self.arguments[broker].clone(), "conformance");
            let named = tenant.parse().expect("a tenant");
            let patience = Duration::from_millis(patience_ms);
            let client = Tenant::connect(&settings, named, encoding, patience).await;
            self.clients.insert(key.clone(), client.expect("connects"));
        }
        &self.clients[&key]
    }

    async fn step(&mut self, case: &Value, step: &Value) -> Result<Value, TenantError> {
        let own = self.arguments["tenant"].clone();
        let tenant = case["tenant"].as_str().unwrap_or(&own).to_owned();
        let client = self.client(case, step, &tenant).await;
        let encoding = if step["encoding"] == "msgpack" {
            Encoding::MessagePack
        } else {
            Encoding::Json
        };
        if let Some(document) = step.get("submit") {
            let mut document = value(document, &tenant);
            if document.get("name").is_none() {
                document["name"] = format!("job-{}", std::process::id()).into();
            }
            let wait = match step["wait"].as_str() {
                Some("accepted") => Wait::Accepted,
                Some("started") => Wait::Started,
                Some("ended") => Wait::Ended,
                _ => Wait::Decided,
            };
            let done = client.submit(&document, wait, None).await?;
            let sha256 = sha256(&encoding.encode(&document));
            return Ok(json!({"state": done.state, "existing": done.existing, "sha256": sha256}));
        }
        if let Some(job) = step.get("cancel") {
            return Ok(changed(
                &client.change("cancel", &json!({"job": job})).await?,
            ));
        }
        if let Some(document) = step.get("revise") {
            return Ok(changed(&client.revise(document).await?));
        }
        if let Some(document) = step.get("measure") {
            let document = value(document, &tenant);
            return Ok(changed(&client.measure(&document).await?));
        }
        if let Some(name) = step["query"].as_str() {
            return client.query(name, &step["request"]).await;
        }
        let document = value(&step["watched"], &tenant);
        let name = document["name"].as_str().expect("a name");
        let mut events = client.watch(name).await?;
        let traceparent = step["traceparent"].as_str();
        client.submit(&document, Wait::Decided, traceparent).await?;
        let (mut types, mut trace) = (Vec::new(), None);
        while let Some(envelope) = events.next().await {
            let traceparent = envelope.traceparent.unwrap_or_default();
            let id = traceparent.split('-').nth(1).unwrap_or_default();
            trace.get_or_insert_with(|| id.to_owned());
            let Body::Event(event) = envelope.body else {
                continue;
            };
            types.push(event.subject_name());
            if matches!(
                event,
                Event::JobCompleted(_) | Event::JobFailed(_) | Event::JobCancelled(_)
            ) {
                break;
            }
        }
        Ok(json!({"types": types, "trace": trace}))
    }
}

fn said(error: &TenantError) -> Value {
    match error {
        TenantError::Refused { code, .. } => json!({"class": "Refused", "code": code}),
        TenantError::Unavailable(_) | TenantError::Full(_) => json!({"class": "Unavailable"}),
        TenantError::TimedOut { stored, .. } => json!({"class": "TimedOut", "stored": stored}),
        TenantError::Denied(_) => json!({"class": "Denied"}),
        TenantError::Log(error) => json!({"class": "Log", "text": LogError::to_string(error)}),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let pairs = words.chunks_exact(2);
    let arguments: BTreeMap<String, String> = pairs
        .map(|pair| (pair[0].trim_start_matches("--").to_owned(), pair[1].clone()))
        .collect();
    let text = std::fs::read_to_string(&arguments["cases"]).expect("the suite");
    let suite: Value = serde_json::from_str(&text).expect("JSON");
    let mut driver = Driver {
        arguments,
        clients: BTreeMap::new(),
    };
    for case in suite["cases"].as_array().expect("cases") {
        let mut result = Ok(Value::Null);
        for step in case["steps"].as_array().expect("steps") {
            result = driver.step(case, step).await;
            if result.is_err() {
                break;
            }
        }
        let line = match result {
            Ok(ok) => json!({"case": case["name"], "ok": ok}),
            Err(error) => json!({"case": case["name"], "error": said(&error)}),
        };
        println!("{line}");
    }
}
