//! Logs, traces and metrics of a process.
//!
//! Logs go to standard error. Spans go to `OTEL_EXPORTER_OTLP_ENDPOINT`, by OTLP over HTTP in
//! protobuf, where that is set; trace contexts travel in the events either way. Metrics are
//! served for Prometheus where an address is given.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanData, SpanExporter,
};
use tracing_subscriber::EnvFilter;

use crate::sampling::Sampling;

/// Spans are sent this often: a trace is to be seen while one still looks for it.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// What groups the services in a trace's resource.
const NAMESPACE: &str = "dormouse";

/// The last spans are waited for so long at the end.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// The form of the logs, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The metrics' address.
    #[error("metrics at {address}: {why}; is the port free, or does another dormouse run with it?")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// The exporter of spans.
    #[error("traces to {endpoint}: {why}; check OTEL_EXPORTER_OTLP_ENDPOINT")]
    Traces {
        /// Where to.
        endpoint: String,
        /// Why not.
        why: String,
    },
    /// Which traces are sent.
    #[error("traces: {0}")]
    Sampler(String),
}

/// Sends the last spans when it is dropped.
#[derive(Debug)]
pub struct Guard {
    traces: Option<ByService>,
}

impl Guard {
    /// Sends what spans there are. Blocks until they are sent or refused.
    pub fn flush(&self) {
        for provider in self.traces.iter().flat_map(ByService::all) {
            if let Err(error) = provider.force_flush() {
                tracing::debug!(%error, "spans were not sent");
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let providers = self.traces.take().map(|traces| traces.all());
        let until = Instant::now() + LAST_SPANS;
        for provider in providers.into_iter().flatten() {
            let _ = provider.shutdown_with_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// A minute, an hour, three days.
const LONG: &[f64] = &[
    1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0,
];
/// A fast resize in place, a slow checkpoint.
const SHORT: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0,
];
/// The histograms, in seconds; what is not named here is a summary.
const BUCKETS: [(&str, &[f64]); 3] = [
    ("dormouse_job_wait_seconds", LONG),
    ("dormouse_job_completion_seconds", LONG),
    ("dormouse_resize_stall_seconds", SHORT),
];

/// Sets up logs, traces to `OTEL_EXPORTER_OTLP_ENDPOINT` if that is set, and, at `metrics`, a
/// Prometheus endpoint. `OTEL_TRACES_SAMPLER` says which traces.
///
/// # Errors
/// When the metrics' address is taken, the traces' endpoint is no URL, or their sampler is none.
pub fn init(
    service: &str,
    format: Format,
    metrics: Option<SocketAddr>,
) -> Result<Guard, TelemetryError> {
    let endpoint = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    init_with(service, format, metrics, endpoint.as_deref())
}

/// The same, with the traces' endpoint (`http://host:4318`) given.
///
/// # Errors
/// As for [`init`].
pub fn init_with(
    service: &str,
    format: Format,
    metrics: Option<SocketAddr>,
    otlp: Option<&str>,
) -> Result<Guard, TelemetryError> {
    let sampling = Sampling::of_environment().map_err(TelemetryError::Sampler)?;
    sampling.install();
    let filter = EnvFilter::new(directives(std::env::var("RUST_LOG").ok().as_deref()));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        // Whoever read them may have gone; that ends nothing.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // A second initialisation in one process (tests) keeps the first.
    let _ = match format {
        Format::Pretty => logs.compact().try_init(),
        Format::Json => logs.json().try_init(),
    };
    if let Some(address) = metrics {
        let failed = |why: String| TelemetryError::Metrics { address, why };
        let mut exporter = PrometheusBuilder::new().with_http_listener(address);
        for (name, buckets) in BUCKETS {
            let name = Matcher::Full(name.to_owned());
            let bounded = exporter.set_buckets_for_metric(name, buckets);
            exporter = bounded.map_err(|error| failed(error.to_string()))?;
        }
        exporter
            .install()
            .map_err(|error| failed(error.to_string()))?;
    }
    let traces = match otlp.filter(|endpoint| !endpoint.is_empty()) {
        Some(endpoint) => Some(traces(service, endpoint)?),
        None => None,
    };
    Ok(Guard { traces })
}

/// What is logged. A level alone is Dormouse's own: the libraries below it would drown it; who wants
/// them names them (`debug,async_nats=debug`).
fn directives(asked: Option<&str>) -> String {
    const LIBRARIES: &str = "info,async_nats=error,opentelemetry=warn";
    let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
    match asked {
        None => LIBRARIES.to_owned(),
        Some(level) if level.parse::<tracing::Level>().is_ok() => {
            let quiet = matches!(level.to_ascii_lowercase().as_str(), "error" | "warn");
            match quiet {
                true => level.to_owned(),
                false => format!("{LIBRARIES},dormouse={level}"),
            }
        }
        Some(directives) => directives.to_owned(),
    }
}

fn traces(process: &str, endpoint: &str) -> Result<ByService, TelemetryError> {
    let providers = ByService {
        process: process.to_owned(),
        endpoint: endpoint.to_owned(),
        made: Arc::default(),
    };
    // An endpoint that is none is said at the start, not at the first span.
    providers.made_for(process)?;
    opentelemetry::global::set_tracer_provider(providers.clone());
    Ok(providers)
}

/// The providers of spans, one for every service of the process: `up` runs them all in one, and a
/// trace is to show which of them did what. The scope of a tracer names the service.
#[derive(Debug, Clone)]
struct ByService {
    process: String,
    endpoint: String,
    made: Arc<Mutex<BTreeMap<String, SdkTracerProvider>>>,
}

impl ByService {
    fn made_for(&self, service: &str) -> Result<SdkTracerProvider, TelemetryError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = made.get(service) {
            return Ok(provider.clone());
        }
        let provider = provider(service, &self.process, &self.endpoint)?;
        made.insert(service.to_owned(), provider.clone());
        Ok(provider)
    }

    fn all(&self) -> Vec<SdkTracerProvider> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.values().cloned().collect()
    }
}

impl TracerProvider for ByService {
    type Tracer = SdkTracer;

    fn tracer_with_scope(&self, scope: InstrumentationScope) -> SdkTracer {
        match self.made_for(scope.name()) {
            Ok(provider) => provider.tracer_with_scope(scope),
            Err(error) => {
                tracing::warn!(%error, "spans of {} are not sent", scope.name());
                SdkTracerProvider::builder()
                    .build()
                    .tracer_with_scope(scope)
            }
        }
    }
}

fn provider(
    service: &str,
    process: &str,
    endpoint: &str,
) -> Result<SdkTracerProvider, TelemetryError> {
    let failed = |why: String| TelemetryError::Traces {
        endpoint: endpoint.to_owned(),
        why,
    };
    let exporter = Otlp::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let exporter = OnOwnRuntime {
        exporter,
        runtime: Some(runtime),
    };
    let batches = BatchConfigBuilder::default()
        .with_scheduled_delay(SEND_EVERY)
        .build();
    let processor = BatchSpanProcessor::builder(exporter)
        .with_batch_config(batches)
        .build();
    let resource = Resource::builder()
        .with_service_name(service.to_owned())
        .with_attributes([
            KeyValue::new("service.namespace", NAMESPACE),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("process.executable.name", process.to_owned()),
        ])
        .build();
    Ok(SdkTracerProvider::builder()
        .with_sampler(Sampling::own().clone())
        .with_span_processor(processor)
        .with_resource(resource)
        .build())
}

/// The processor of spans calls its exporter on a thread of its own, without a runtime; the
/// HTTP client needs one.
#[derive(Debug)]
struct OnOwnRuntime {
    exporter: Otlp,
    runtime: Option<tokio::runtime::Runtime>,
}

impl SpanExporter for OnOwnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        match &self.runtime {
            Some(runtime) => runtime.block_on(self.exporter.export(batch)),
            None => Err(OTelSdkError::AlreadyShutdown),
        }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl Drop for OnOwnRuntime {
    fn drop(&mut self) {
        // Wherever it is dropped: it must not wait there.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::directives;

    #[test]
    fn a_level_alone_is_of_dormouse() {
        assert_eq!(
            directives(Some("debug")),
            "info,async_nats=error,opentelemetry=warn,dormouse=debug"
        );
        assert_eq!(directives(Some("error")), "error");
        assert_eq!(directives(Some("hyper=trace")), "hyper=trace");
        assert!(directives(None).starts_with("info,"));
        assert_eq!(directives(Some(" ")), directives(None));
    }
}
