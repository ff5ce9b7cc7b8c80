//! A minimal OpenTelemetry collector over HTTP.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Received spans with their service.
pub type Received = Arc<Mutex<Vec<(String, Span)>>>;

/// Starts a collector and returns its address.
pub async fn collector() -> (String, Received) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let received = Received::default();
    let spans = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&spans)));
        }
    });
    (url, received)
}

async fn serve(mut stream: tokio::net::TcpStream, spans: Received) {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        assert!(head.starts_with("post /v1/traces"), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|it| it.parse().ok()).expect("a length");
        let Some(body) = bytes.get(end + 4..end + 4 + length) else {
            continue;
        };
        let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
        for resource in request.resource_spans {
            let service = service_name(resource.resource.unwrap_or_default());
            let found = resource.scope_spans.into_iter().flat_map(|it| it.spans);
            let found = found.map(|span| (service.clone(), span));
            spans.lock().expect("unpoisoned").extend(found);
        }
        bytes.drain(..end + 4 + length);
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
    }
}

fn service_name(resource: Resource) -> String {
    let mut attributes = resource.attributes.into_iter();
    let name = attributes.find(|it| it.key == "service.name");
    match name.and_then(|it| it.value).and_then(|it| it.value) {
        Some(any_value::Value::StringValue(name)) => name,
        other => panic!("no service name: {other:?}"),
    }
}
