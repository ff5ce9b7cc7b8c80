//! Builds the AsyncAPI 3 document from the registry of events: subjects, event types, and who sends them.

use dormouse_messages::envelope::CONTENT_TYPE;
use dormouse_messages::events::Key;
use dormouse_messages::{Event, Writer};
use serde_json::{Map, Value, json};

use super::common::events;

/// Returns the document as YAML.
pub fn document() -> String {
    let mut channels = Map::new();
    let mut operations = Map::new();
    ingress(&mut channels, &mut operations);
    log(&mut channels, &mut operations);
    status(&mut channels, &mut operations);
    api(&mut channels, &mut operations);
    let document = json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Dormouse",
            "version": "1.0.0",
            "description": "The subjects of a Dormouse cluster on NATS, and the events on them. \
                The prefix `dormouse` can be configured. On the log an event is a CloudEvents 1.0 \
                structured event in MessagePack with field names; in exports the same in JSON, \
                one a line. Fields may be added; a reader tolerates unknown ones.",
            "license": {"name": "Apache-2.0"},
        },
        "servers": {
            "broker": {"host": "localhost:4222", "protocol": "nats"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages(),
            "schemas": {"cloudevent": cloudevent()},
        },
    });
    let header = "# Written by messages/tests/schema.rs (UPDATE_SCHEMAS=1); not by hand.\n";
    let yaml = serde_norway::to_string(&document).expect("the document is YAML");
    format!("{header}{yaml}")
}

fn reference(target: &str) -> Value {
    json!({"$ref": target})
}

/// Turns `dormouse.job.admitted.v1` into the key of a channel.
fn identifier(text: &str) -> String {
    text.replace(['.', '/'], "-")
}

fn ingress(channels: &mut Map<String, Value>, operations: &mut Map<String, Value>) {
    let verbs = [
        (
            "submit",
            "A job: see job-document.json. JSON or MessagePack.",
        ),
        (
            "cancel",
            "The job that is to end: {\"job\": \"tenant/name\"}.",
        ),
        (
            "revise",
            "The job, and what is to change of it: see revise-document.json.",
        ),
        (
            "measured",
            "What clients of a service saw at a proxy of the tenant's own: see measured-document.json.",
        ),
    ];
    for (verb, summary) in verbs {
        let name = format!("in-{verb}");
        channels.insert(
            name.clone(),
            json!({
                "address": format!("dormouse.in.{{tenant}}.{verb}"),
                "summary": summary,
                "parameters": {"tenant": {"description": "the tenant: its account may publish here only"}},
                "messages": {verb: reference(&format!("#/components/messages/{verb}"))},
            }),
        );
        operations.insert(
            verb.to_owned(),
            json!({
                "action": "receive",
                "channel": reference(&format!("#/channels/{name}")),
                "summary": summary,
            }),
        );
    }
}

fn log(channels: &mut Map<String, Value>, operations: &mut Map<String, Value>) {
    for writer in Writer::ALL {
        let mut sent = Vec::new();
        for event in events() {
            if !event.writers().contains(&writer) {
                continue;
            }
            let type_name = event.type_name();
            let name = format!("log-{writer}-{}", identifier(event.subject_name()));
            channels.insert(name.clone(), log_channel(writer, &event));
            sent.push((name, type_name));
        }
        for (name, type_name) in sent {
            let channel = format!("#/channels/{name}");
            operations.insert(
                name,
                json!({
                    "action": "send",
                    "channel": reference(&channel),
                    "summary": format!("{type_name}, appended by {writer}"),
                    "messages": [reference(&format!("{channel}/messages/{type_name}"))],
                }),
            );
        }
    }
}

fn log_channel(writer: Writer, event: &Event) -> Value {
    let type_name = event.type_name();
    let (key, what) = match event.key() {
        Key::Node(_) => ("node", "the agent's own node"),
        Key::Gateway(_) if writer == Writer::Gateway => ("gateway", "the gateway's own name"),
        Key::Job(_) | Key::Shard | Key::Gateway(_) => {
            ("shard", "the writer's shard; 0 where it has only one")
        }
    };
    json!({
        "address": format!("dormouse.log.{writer}.{{{key}}}.{}", event.subject_name()),
        "parameters": {key: {"description": what}},
        "messages": {type_name: reference(&format!("#/components/messages/{type_name}"))},
    })
}

/// Events about many jobs; each job sees its own part.
const OF_MANY: [&str; 4] = [
    "allocation.decided",
    "allocation.unchanged",
    "placement.decided",
    "placement.refused",
];

/// Events about the fate of a message.
const OF_MESSAGES: [&str; 8] = [
    "submission.received",
    "job.admitted",
    "job.refused",
    "job.revised",
    "job.cancel_requested",
    "job.cancelled",
    "service.measured",
    "submissions.rate_limited",
];

fn shown(is_shown: impl Fn(&Event) -> bool) -> Map<String, Value> {
    let shown = events().into_iter().filter(is_shown);
    let named = shown.map(|event| {
        let name = event.type_name().to_owned();
        let target = format!("#/components/messages/{name}");
        (name, reference(&target))
    });
    named.collect()
}

fn status(channels: &mut Map<String, Value>, operations: &mut Map<String, Value>) {
    let of_job = |event: &Event| {
        let data = serde_json::to_value(event).expect("JSON");
        let names_job = data.get("job").or_else(|| data.get("container"));
        names_job.is_some() || OF_MANY.contains(&event.subject_name())
    };
    let tenant = json!({"description": "the tenant"});
    let event = json!({
        "description": "the event's name without prefix and version, such as job.completed"
    });
    let listed = [
        (
            "status",
            "dormouse.status.{tenant}.{job}.{event}",
            "Every event of a tenant's own jobs, copied from the log; of an event of many jobs, the job's own part.",
            ("job", "the job's name within the tenant"),
            shown(of_job),
        ),
        (
            "status-in",
            "dormouse.status.{tenant}._in.{ingress_sequence}.{event}",
            "What became of each message that a tenant published.",
            (
                "ingress_sequence",
                "the sequence that the broker's acknowledgement named",
            ),
            shown(|event| OF_MESSAGES.contains(&event.subject_name())),
        ),
    ];
    for (name, address, summary, (key, what), messages) in listed {
        channels.insert(
            name.to_owned(),
            json!({
                "address": address,
                "summary": summary,
                "parameters": {"tenant": tenant, key: {"description": what}, "event": event},
                "messages": messages,
            }),
        );
        let channel = reference(&format!("#/channels/{name}"));
        operations.insert(
            name.to_owned(),
            json!({"action": "send", "channel": channel}),
        );
    }
}

fn api(channels: &mut Map<String, Value>, operations: &mut Map<String, Value>) {
    channels.insert(
        "api".to_owned(),
        json!({
            "address": "dormouse.api.{query}",
            "summary": "Queries, as a NATS service.",
            "parameters": {"query": {"description": "cluster, job, jobs, ledger, node, nodes, timeline, …"}},
            "messages": {"query": reference("#/components/messages/query")},
        }),
    );
    channels.insert(
        "tenant-api".to_owned(),
        json!({
            "address": "dormouse.tenant.{tenant}.api.{query}",
            "summary": "Queries of a tenant about itself; the tenant is that of the subject.",
            "parameters": {
                "tenant": {"description": "the tenant: its account may ask here only"},
                "query": {"description": "job, jobs, ledger, tenant, timeline"},
            },
            "messages": {"query": reference("#/components/messages/query")},
        }),
    );
    channels.insert(
        "api-reply".to_owned(),
        json!({
            "address": null,
            "summary": "The inbox of the request.",
            "messages": {"answer": reference("#/components/messages/answer")},
        }),
    );
    for (name, channel) in [("query", "api"), ("tenant-query", "tenant-api")] {
        operations.insert(
            name.to_owned(),
            json!({
                "action": "receive",
                "channel": reference(&format!("#/channels/{channel}")),
                "reply": {"channel": reference("#/channels/api-reply")},
            }),
        );
    }
}

fn messages() -> Map<String, Value> {
    let mut messages = Map::new();
    for event in events() {
        let type_name = event.type_name();
        messages.insert(type_name.to_owned(), event_message(type_name));
    }
    let job_id = json!({"type": "string", "description": "tenant/name"});
    let cancel = json!({
        "type": "object", "required": ["job"], "additionalProperties": false,
        "properties": {"job": job_id},
    });
    let plain = [
        ("submit", reference("./job-document.json")),
        ("cancel", cancel),
        ("revise", reference("./revise-document.json")),
        ("measured", reference("./measured-document.json")),
        ("query", json!({"type": ["object", "null"]})),
        ("answer", json!({"type": "object"})),
    ];
    for (name, schema) in plain {
        let payload =
            json!({"schemaFormat": "application/schema+json;version=draft-07", "schema": schema});
        let message = json!({"name": name, "contentType": "application/json", "payload": payload});
        messages.insert(name.to_owned(), message);
    }
    messages
}

fn event_message(type_name: &str) -> Value {
    json!({
        "name": type_name,
        "contentType": CONTENT_TYPE,
        "headers": {
            "type": "object",
            "properties": {
                "Nats-Msg-Id": {"type": "string", "description": "the event's id"},
                "content-type": {"const": CONTENT_TYPE},
            },
        },
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-07",
            "schema": {
                "allOf": [
                    reference("#/components/schemas/cloudevent"),
                    {
                        "type": "object",
                        "properties": {
                            "type": {"const": type_name},
                            "data": reference(&format!("./{type_name}.json")),
                        },
                    },
                ],
            },
        },
    })
}

fn cloudevent() -> Value {
    let time = |what: &str| json!({"type": "string", "format": "date-time", "description": what});
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "type": "object",
        "description": "A CloudEvents 1.0 structured event.",
        "required": ["specversion", "id", "source", "type", "time", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": text("deterministic: the same append has the same id"),
            "source": text("/dormouse/<writer>, for an agent with its node"),
            "type": text("dormouse.<event>.v<version>"),
            "subject": text("what it is about: a job, a node, an epoch"),
            "time": time("when the writer decided or saw it"),
            "traceparent": text("W3C trace context"),
            "log": text("the stream's identity; filled in by readers"),
            "sequence": text("its place in the log; filled in by readers"),
            "storedat": time("the broker's time; filled in by readers"),
            "data": {"type": "object"},
        },
    })
}
