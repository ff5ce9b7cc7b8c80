//! TLS for the page.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::ConfigError;

/// Reads certificates and key.
///
/// # Errors
/// When they are invalid.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, ConfigError> {
    let wrong = |why: String| ConfigError::Tls {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        why,
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|it| wrong(it.to_string()))?;
    let chain: Result<Vec<_>, _> = chain.collect();
    let chain = chain.map_err(|it| wrong(it.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|it| wrong(it.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|it| wrong(it.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|it| wrong(it.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
