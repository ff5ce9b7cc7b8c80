//! Logs (standard error), traces and metrics. Spans go to `OTEL_EXPORTER_OTLP_ENDPOINT`, if set, by OTLP over
//! HTTP; events carry trace contexts in any case.

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

/// Short, so that a new trace is visible soon.
const SEND_EVERY: Duration = Duration::from_secs(1);

const NAMESPACE: &str = "dormouse";

const LAST_SPANS: Duration = Duration::from_secs(3);

/// Format of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Pretty,
    Json,
}

/// Telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("metrics at {address}: {why}; is the port free, or does another dormouse run with it?")]
    Metrics { address: SocketAddr, why: String },
    #[error("traces to {endpoint}: {why}; check OTEL_EXPORTER_OTLP_ENDPOINT")]
    Traces { endpoint: String, why: String },
    #[error("traces: {0}")]
    Sampler(String),
}

/// Sends the last spans when dropped.
#[derive(Debug)]
pub struct Guard {
    traces: Option<ByService>,
}

impl Guard {
    /// Sends the present spans. Blocks.
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

const LONG: &[f64] = &[
    1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0,
];
const SHORT: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0,
];
/// Histograms by name; other distributions are summaries.
const BUCKETS: [(&str, &[f64]); 3] = [
    ("dormouse_job_wait_seconds", LONG),
    ("dormouse_job_completion_seconds", LONG),
    ("dormouse_resize_stall_seconds", SHORT),
];

/// Sets up logs, traces, and a Prometheus endpoint at `metrics`.
///
/// # Errors
/// When the address of `metrics` is taken, the traces' endpoint is no URL, or their sampler is unknown.
pub fn init(
    service: &str,
    format: Format,
    metrics: Option<SocketAddr>,
) -> Result<Guard, TelemetryError> {
    let endpoint = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    init_with(service, format, metrics, endpoint.as_deref())
}

/// Sets up telemetry with a given endpoint (`http://host:4318`).
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
        // A closed standard error ends nothing.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // The first initialisation in a process stays (tests have several).
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

/// A bare level applies to Dormouse only, since its libraries would drown it.
fn directives(asked: Option<&str>) -> String {
    const LIBRARIES: &str = "info,async_nats=error,opentelemetry=warn";
    let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
    match asked {
        None => LIBRARIES.to_owned(),
        Some(level) if level.parse::<tracing::Level>().is_ok() => {
            let quiet = matches!(level.to_ascii_lowercase().as_str(), "error" | "warn");
            if quiet {
                level.to_owned()
            } else {
                format!("{LIBRARIES},dormouse={level}")
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
    // Fails at the start, not at the first span.
    providers.made_for(process)?;
    opentelemetry::global::set_tracer_provider(providers.clone());
    Ok(providers)
}

/// `up` runs all services in one process; a tracer's scope names the service.
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

/// The span processor exports on a thread without a runtime.
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
        // A drop must not wait.
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
