//! Access to services: keys, and the trust in one person's machine.
//!
//! All keys derive from one secret shared by the gateways; nothing is stored or logged.
//!
//! ```text
//! tenant's key     = BLAKE3 keyed with the secret       of "tenant/<tenant>"
//! service's token  = BLAKE3 keyed with the tenant's key of "service/<tenant>/<name>"
//! webhook's secret = BLAKE3 keyed with the tenant's key of "webhook"
//! ```
//!
//! A tenant can derive its services' tokens, but no token reveals the tenant's key. A service's token also
//! opens a later service of the same name. A new secret revokes everything.

use base64::Engine;
use blake3::Hash;
use dormouse_messages::service::Access;
use dormouse_messages::{JobId, TenantId};
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, Method};

/// Header of the key if the service uses `Authorization` itself.
pub const KEY_HEADER: HeaderName = HeaderName::from_static("x-dormouse-key");

/// Length of the gateways' secret.
pub const SECRET_BYTES: usize = 32;

/// A key or token: 64 hexadecimal digits, compared in constant time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(Hash);

impl Key {
    /// Parses a key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Hash::from_hex(text.trim()).ok().map(Self)
    }

    /// Derives a tenant's key.
    #[must_use]
    pub fn of_tenant(secret: &[u8; SECRET_BYTES], tenant: &TenantId) -> Self {
        Self(blake3::keyed_hash(
            secret,
            format!("tenant/{tenant}").as_bytes(),
        ))
    }

    /// Derives the tenant's webhook secret.
    #[must_use]
    pub fn webhook_secret(&self) -> [u8; SECRET_BYTES] {
        *blake3::keyed_hash(self.0.as_bytes(), b"webhook").as_bytes()
    }

    /// Derives a service's token.
    #[must_use]
    pub fn token_of(&self, job: &JobId) -> Self {
        Self(blake3::keyed_hash(
            self.0.as_bytes(),
            format!("service/{job}").as_bytes(),
        ))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.to_hex().as_str())
    }
}

/// Callers that a gateway trusts.
#[derive(Clone)]
pub enum Trust {
    /// Every caller: only one person's machine reaches the gateway.
    Loopback,
    Secret([u8; SECRET_BYTES]),
}

/// Reason for a denied request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    NoKey,
    WrongKey,
    /// Sent by another site's page, from an authorised browser.
    CrossSite,
}

/// Checks a request's key and removes it, so that no replica sees it. `own`: the service's own origin, where
/// other services' scripts cannot use a browser's stored password.
///
/// # Errors
/// The reason for the denial.
pub fn check(
    trust: &Trust,
    access: Access,
    job: &JobId,
    own: bool,
    method: &Method,
    headers: &mut HeaderMap,
) -> Result<(), Denied> {
    if access == Access::Open {
        headers.remove(KEY_HEADER);
        return Ok(());
    }
    let secret = match trust {
        Trust::Loopback => {
            headers.remove(KEY_HEADER);
            return if is_cross_site(method, headers) {
                Err(Denied::CrossSite)
            } else {
                Ok(())
            };
        }
        Trust::Secret(secret) => secret,
    };
    let (shown, ambient) = take_key(headers, own).ok_or(Denied::NoKey)?;
    let Ok(tenant) = TenantId::new(job.tenant()) else {
        return Err(Denied::WrongKey);
    };
    let key = Key::of_tenant(secret, &tenant);
    let token = key.token_of(job);
    let shown = Key::parse(&shown).ok_or(Denied::WrongKey)?;
    let passes = shown == key || (access == Access::Token && shown == token);
    match (passes, ambient && is_cross_site(method, headers)) {
        (true, false) => Ok(()),
        (true, true) => Err(Denied::CrossSite),
        (false, _) => Err(Denied::WrongKey),
    }
}

/// Also returns whether a browser may have added the key on its own.
fn take_key(headers: &mut HeaderMap, own: bool) -> Option<(String, bool)> {
    if let Some(key) = headers.remove(KEY_HEADER) {
        return Some((key.to_str().ok()?.to_owned(), false));
    }
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = shown.split_once(' ')?;
    let key = if scheme.eq_ignore_ascii_case("bearer") {
        (rest.trim().to_owned(), false)
    } else if own && scheme.eq_ignore_ascii_case("basic") {
        let decoded = base64::engine::general_purpose::STANDARD.decode(rest.trim());
        let decoded = String::from_utf8(decoded.ok()?).ok()?;
        (decoded.split_once(':')?.1.to_owned(), true)
    } else {
        return None;
    };
    headers.remove(AUTHORIZATION);
    Some(key)
}

/// True if another site's page sent the request; following a link is harmless.
pub(crate) fn is_cross_site(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|it| it == value);
    let link = says("sec-fetch-mode", "navigate") && *method == Method::GET;
    // `same-site` covers other services of this gateway and other listeners on this machine.
    let foreign = says("sec-fetch-site", "cross-site") || says("sec-fetch-site", "same-site");
    if foreign {
        return !link;
    }
    // Older browsers send at least the page's origin.
    let (Some(origin), Some(host)) = (headers.get("origin"), headers.get("host")) else {
        return false;
    };
    if headers.contains_key("sec-fetch-site") {
        return false;
    }
    let origin = origin.to_str().unwrap_or_default();
    let origin = origin.split_once("://").map_or("", |(_, host)| host);
    host.to_str().ok() != Some(origin)
}
