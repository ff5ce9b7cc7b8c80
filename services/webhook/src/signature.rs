//! Signs posts by Standard Webhooks (standardwebhooks.com, 1.0), symmetric form: `webhook-signature: v1,` and
//! the base64 of HMAC-SHA256, with the tenant's secret, of `<webhook-id>.<webhook-timestamp>.<body>`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A tenant's signing key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Creates a secret from its bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the value of `webhook-signature`. `timestamp` is in seconds since 1970.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // HMAC accepts keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return String::new();
        };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Formats the secret for receivers' libraries: `whsec_` and base64.
impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "whsec_{}", STANDARD.encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by Python's `hmac` module.
    #[test]
    fn a_signature_is_as_the_standard_says() {
        let secret = Secret::new(*b"0123456789abcdef0123456789abcdef");
        assert_eq!(
            secret.sign("msg_1", 1_614_265_330, br#"{"test": 2432232314}"#),
            "v1,aTF4+pE6A/FmvKM0YSVBBUfRhLIlBiaBUR+EjGls6Mc="
        );
        assert_eq!(
            secret.to_string(),
            "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
        );
    }
}
