//! Who may call a service: keys, and what stands in for them on one person's machine.
//!
//! All keys follow from one secret that the gateways share; nothing is kept and nothing is on the log.
//!
//! ```text
//! tenant's key    = BLAKE3 keyed with the secret       of "tenant/<tenant>"
//! service's token = BLAKE3 keyed with the tenant's key of "service/<tenant>/<name>"
//! webhook's secret = BLAKE3 keyed with the tenant's key of "webhook"
//! ```
//!
//! So a tenant derives the tokens of its own services itself, and nobody derives its key from one of
//! them. A token is of one job: a job's id is never given again. Another secret revokes everything.

use base64::Engine;
use blake3::Hash;
use dormouse_messages::service::Access;
use dormouse_messages::{JobId, TenantId};
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, Method};

/// The header for a key where `Authorization` is the service's own.
pub const KEY_HEADER: HeaderName = HeaderName::from_static("x-dormouse-key");

/// The bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// A key or a token, as it is shown: 64 hexadecimal digits. Compared in constant time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(Hash);

impl Key {
    /// Reads a key back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Hash::from_hex(text.trim()).ok().map(Self)
    }

    /// The key of `tenant`, from the gateways' secret.
    #[must_use]
    pub fn of_tenant(secret: &[u8; SECRET_BYTES], tenant: &TenantId) -> Self {
        Self(blake3::keyed_hash(
            secret,
            format!("tenant/{tenant}").as_bytes(),
        ))
    }

    /// What posts to the tenant's webhook are signed with, from the tenant's key.
    #[must_use]
    pub fn webhook_secret(&self) -> [u8; SECRET_BYTES] {
        *blake3::keyed_hash(self.0.as_bytes(), b"webhook").as_bytes()
    }

    /// The token of the service `job`, from its tenant's key.
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

/// Whom a gateway believes.
#[derive(Clone)]
pub enum Trust {
    /// Everybody who reaches it, because only one person's machine does.
    Loopback,
    /// Who shows a key that follows from this secret.
    Secret([u8; SECRET_BYTES]),
}

/// Why a request may not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It shows no key.
    NoKey,
    /// It shows another one.
    WrongKey,
    /// Another site's page sent it, from the browser of who may call it.
    CrossSite,
}

/// Whether a request with these headers may pass; takes the key out of them, so that no replica
/// sees it. `own` says whether the origin is the service's own: only there a browser's remembered
/// password is taken, because scripts of other services do not run there.
///
/// # Errors
/// Why not.
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
            return match is_cross_site(method, headers) {
                true => Err(Denied::CrossSite),
                false => Ok(()),
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

/// The key that a request shows, and whether a browser may have added it by itself.
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

/// Whether a browser says that another site's page sent this. Following a link is no harm.
pub(crate) fn is_cross_site(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|it| it == value);
    let link = says("sec-fetch-mode", "navigate") && *method == Method::GET;
    // `same-site`: other services of this gateway, and what else listens on this machine.
    let foreign = says("sec-fetch-site", "cross-site") || says("sec-fetch-site", "same-site");
    if foreign {
        return !link;
    }
    // A browser that is too old to say it names the page's origin at least.
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
