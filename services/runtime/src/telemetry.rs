//! Logs, traces and metrics of a process.
//!
//! Logs go to standard error. Spans go to `OTEL_EXPORTER_OTLP_ENDPOINT`, by OTLP over HTTP in
//! protobuf, where that is set; trace contexts travel in the events either way. Metrics are
//! served for Prometheus where an address is given.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter,
};
use tracing_subscriber::EnvFilter;

/// Spans are sent this often: a trace is to be seen while one still looks for it.
const SEND_EVERY: Duration = Duration::from_secs(1);

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
    #[error("metrics at {address}: {why}; is the port free?")]
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
}

/// Sends the last spans when it is dropped.
#[derive(Debug)]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
}

impl Guard {
    /// Sends what spans there are. Blocks until they are sent or refused.
    pub fn flush(&self) {
        if let Some(traces) = &self.traces
            && let Err(error) = traces.force_flush()
        {
            tracing::debug!(%error, "spans were not sent");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(traces) = self.traces.take() {
            let _ = traces.shutdown_with_timeout(LAST_SPANS);
        }
    }
}

/// Sets up logs, traces to `OTEL_EXPORTER_OTLP_ENDPOINT` if that is set, and, at `metrics`, a
/// Prometheus endpoint.
///
/// # Errors
/// When the metrics' address is taken, or the traces' endpoint is no URL.
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
        let exporter =
            metrics_exporter_prometheus::PrometheusBuilder::new().with_http_listener(address);
        exporter
            .install()
            .map_err(|error| TelemetryError::Metrics {
                address,
                why: error.to_string(),
            })?;
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

fn traces(service: &str, endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
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
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_resource(
            Resource::builder()
                .with_service_name(service.to_owned())
                .build(),
        )
        .build();
    opentelemetry::global::set_tracer_provider(provider.clone());
    Ok(provider)
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
