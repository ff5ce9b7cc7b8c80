//! Logs, traces and metrics of a process.

use std::net::SocketAddr;

use tracing_subscriber::EnvFilter;

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
}

/// Ends what was set up when it is dropped.
#[derive(Debug)]
pub struct Guard {}

/// Sets up logs and, at `metrics`, a Prometheus endpoint.
///
/// # Errors
/// When the address is taken.
pub fn init(
    _service: &str,
    format: Format,
    metrics: Option<SocketAddr>,
) -> Result<Guard, TelemetryError> {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,async_nats=error"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
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
    Ok(Guard {})
}
