//! The names of jobs in arguments.

use dormouse_messages::JobId;

/// The tenant of requests that name none.
pub const DEFAULT_TENANT: &str = "default";

/// A job id, given with or without its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedJob {
    /// The job's id; without a tenant in the id, the tenant is DORMOUSE_TENANT, else `default`.
    pub id: JobId,
    /// True if a tenant was named, here or by DORMOUSE_TENANT. Else the tenant is the key's, if the key is a
    /// tenant's.
    pub has_tenant: bool,
}

impl std::str::FromStr for NamedJob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self {
            id: job_id(text)?,
            has_tenant: text.contains('/') || std::env::var_os("DORMOUSE_TENANT").is_some(),
        })
    }
}

/// Without a tenant, the tenant is chosen as for `submit`.
pub(crate) fn job_id(text: &str) -> Result<JobId, String> {
    let whole = if text.contains('/') {
        text.to_owned()
    } else {
        let tenant = std::env::var("DORMOUSE_TENANT");
        format!("{}/{text}", tenant.as_deref().unwrap_or(DEFAULT_TENANT))
    };
    whole.parse().map_err(|error| {
        format!("{error}; write tenant/name, such as ads/lr (`dormouse jobs` lists them)")
    })
}
