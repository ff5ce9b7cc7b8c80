//! The service that a request names: `http://<name>.<tenant>.<host>/rest`, with its own origin, or
//! `http://<host>/<tenant>/<name>/rest`, a shared one without cookies and notebooks.

use std::net::IpAddr;

use dormouse_messages::{JobId, TenantId};
use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// Origin of the named service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Own,
    /// A shared origin, with the length of the path's prefix.
    Shared(usize),
}

/// The service that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub job: JobId,
    pub origin: Origin,
}

/// A request that names no service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTarget {
    BadHost,
    OtherHost,
    BadPath,
    /// Relative links would break without a final `/`.
    NoSlash,
}

/// The host names of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    host: String,
    /// An Internet page could point its name at this machine, and would share the origin.
    strict: bool,
}

impl Names {
    /// Creates the names below `host`.
    #[must_use]
    pub fn new(host: &str, strict: bool) -> Self {
        Self {
            host: host.to_ascii_lowercase(),
            strict,
        }
    }

    /// Resolves a request.
    ///
    /// # Errors
    /// The reason why no service is meant.
    pub fn target(&self, host: &str, path: &str) -> Result<Target, NoTarget> {
        let host = without_port(host).ok_or(NoTarget::BadHost)?;
        if let Some(job) = self.own(host) {
            return Ok(Target {
                job,
                origin: Origin::Own,
            });
        }
        if self.strict && !self.is_ours(host) {
            return Err(NoTarget::OtherHost);
        }
        by_path(path)
    }

    /// Addresses have no names below them.
    fn own(&self, host: &str) -> Option<JobId> {
        if self.host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let below = host.len().checked_sub(self.host.len() + 1)?;
        let (below, rest) = host.split_at_checked(below)?;
        let ours = rest.strip_prefix('.')?.eq_ignore_ascii_case(&self.host);
        let (name, tenant) = below.split_once('.').filter(|_| ours)?;
        let tenant = TenantId::new(tenant.to_ascii_lowercase()).ok()?;
        JobId::new(&tenant, &name.to_ascii_lowercase()).ok()
    }

    fn is_ours(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case(&self.host)
            || host.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok()
    }
}

fn by_path(path: &str) -> Result<Target, NoTarget> {
    let mut parts = path
        .strip_prefix('/')
        .ok_or(NoTarget::BadPath)?
        .splitn(3, '/');
    let (tenant, name) = (parts.next(), parts.next());
    let (Some(tenant), Some(name)) = (tenant, name) else {
        return Err(NoTarget::BadPath);
    };
    let tenant_id = TenantId::new(tenant).map_err(|_| NoTarget::BadPath)?;
    let job = JobId::new(&tenant_id, name).map_err(|_| NoTarget::BadPath)?;
    match parts.next() {
        Some(_) => Ok(Target {
            job,
            origin: Origin::Shared(2 + tenant.len() + name.len()),
        }),
        None => Err(NoTarget::NoSlash),
    }
}

/// Returns `None` if the host is empty or has invalid characters.
fn without_port(host: &str) -> Option<&str> {
    let name = match host.rfind(']') {
        Some(end) => host.get(..=end)?,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then_some(name)
}

/// Returns the path and query for the replica.
#[must_use]
pub fn asked(uri: &Uri, origin: &Origin) -> Option<PathAndQuery> {
    let whole = uri.path_and_query()?;
    match origin {
        Origin::Own => Some(whole.clone()),
        Origin::Shared(prefix) => PathAndQuery::try_from(whole.as_str().get(*prefix..)?).ok(),
    }
}

/// Returns the host of target or header.
#[must_use]
pub fn host<'a>(uri: &'a Uri, headers: &'a http::HeaderMap) -> Option<&'a str> {
    let mut hosts = headers.get_all(http::header::HOST).into_iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return None;
    }
    let authority = uri.authority().map(Authority::as_str);
    authority.or_else(|| header?.to_str().ok())
}
