//! Which service a request means: by its host name, or by the first two parts of its path.
//!
//! `http://<name>.<tenant>.<host>/rest` gives each service an origin of its own. Below
//! `http://<host>/<tenant>/<name>/rest` all services share one: there no cookie passes, and
//! notebooks are not served.

use std::net::IpAddr;

use dormouse_messages::{JobId, TenantId};
use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// How a service was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// By its host name: the origin is its own.
    Own,
    /// By the path's first two parts, of this many bytes: the origin is shared.
    Shared(usize),
}

/// What a request means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The service.
    pub job: JobId,
    /// How it was named.
    pub origin: Origin,
}

/// Why a request means no service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTarget {
    /// There is no host, or not one name.
    BadHost,
    /// A name that is not this gateway's.
    OtherHost,
    /// The path does not begin with a tenant and a name.
    BadPath,
    /// `/<tenant>/<name>`: its relative links would go astray without the `/` behind it.
    NoSlash,
}

/// The names under which a gateway is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The public host, in lower case.
    host: String,
    /// Whether requests under other names are refused: a page on the Internet may let its own name
    /// point to this machine, and would share the origin with what it reads.
    strict: bool,
}

impl Names {
    /// Reached as `host`.
    #[must_use]
    pub fn new(host: &str, strict: bool) -> Self {
        Self {
            host: host.to_ascii_lowercase(),
            strict,
        }
    }

    /// What a request to `host` (as in the header, with or without a port) for `path` means.
    ///
    /// # Errors
    /// Why it means no service.
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

    /// `<name>.<tenant>` of `<name>.<tenant>.<host>`. An address has no names below it.
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

/// The host without its port; `None` if it is empty or has what no name has.
fn without_port(host: &str) -> Option<&str> {
    let name = match host.rfind(']') {
        Some(end) => host.get(..=end)?,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then_some(name)
}

/// The path and query that the replica is asked for: without the prefix, where there is one.
#[must_use]
pub fn asked(uri: &Uri, origin: &Origin) -> Option<PathAndQuery> {
    let whole = uri.path_and_query()?;
    match origin {
        Origin::Own => Some(whole.clone()),
        Origin::Shared(prefix) => PathAndQuery::try_from(whole.as_str().get(*prefix..)?).ok(),
    }
}

/// The host that a request names: in its target (HTTP/2, or a proxy's form) or its header.
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
