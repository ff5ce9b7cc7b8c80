//! Applies the key's rights: a tenant's key acts for that tenant.

use anyhow::Context as _;
use dormouse_messages::{JobId, TenantId};
use dormouse_runtime::Log;

use crate::cli::job_name::{DEFAULT_TENANT, NamedJob};
use crate::error::Coded;

const NOT_PERMITTED: &str = "not_permitted";

/// Returns the error for a tenant's key on an operator command.
pub fn operators_only(tenant: &TenantId) -> Coded {
    let message = format!(
        "this is for operators, and the key is one of tenant {tenant}; it is good for `submit`, `run`, `job list|show|wait|logs|exec|cancel|hold|release|requeue|update`, `notebook`, `nodes`, `timeline METRIC --job ID` and `tenant show {tenant}`. For the rest ask an operator, or name an operator's key with --creds or --nkey"
    );
    Coded::new(NOT_PERMITTED, message)
}

/// Returns the error for a viewer's key on a changing command.
pub fn viewer(tenant: &TenantId) -> Coded {
    let message = format!(
        "the key is a viewer's of tenant {tenant}: it shows jobs, and submits and changes nothing; ask an operator for a submitter's (`dormouse account add {tenant}/NAME --role submitter`)"
    );
    Coded::new(NOT_PERMITTED, message)
}

/// Returns the error for a key that hides its owner.
pub fn unknown() -> Coded {
    let message = "the key may neither read the log nor say which tenant it is of: it is an agent's or a gateway's; name another with --creds or --nkey";
    Coded::new(NOT_PERMITTED, message)
}

/// Returns the named tenant, else the key's, else `default`.
///
/// # Errors
/// If the name is invalid, or the key is another tenant's.
pub fn tenant(key: Option<&TenantId>, named: Option<&str>) -> anyhow::Result<TenantId> {
    tenant_by(key, named, "--tenant, or DORMOUSE_TENANT")
}

/// Returns the tenant as [`tenant`] does; errors refer to `place`.
///
/// # Errors
/// Those of [`tenant`].
pub fn tenant_by(
    key: Option<&TenantId>,
    named: Option<&str>,
    place: &str,
) -> anyhow::Result<TenantId> {
    match (key, named) {
        (Some(key), Some(named)) if named != key.as_str() => Err(other(key, named).into()),
        (Some(key), _) => Ok(key.clone()),
        (None, named) => {
            TenantId::new(named.unwrap_or(DEFAULT_TENANT)).with_context(|| place.to_owned())
        }
    }
}

/// Returns the named tenant, else the key's, else none for all.
///
/// # Errors
/// Those of [`tenant`].
pub fn only(log: &Log, named: Option<&str>) -> anyhow::Result<Option<TenantId>> {
    match (log.tenant(), named) {
        (None, None) => Ok(None),
        (key, named) => tenant(key, named).map(Some),
    }
}

/// Resolves a job; a bare name belongs to the key's tenant.
///
/// # Errors
/// If the key is another tenant's.
pub fn job(log: &Log, named: &NamedJob) -> anyhow::Result<JobId> {
    let Some(key) = log.tenant() else {
        return Ok(named.id.clone());
    };
    match named.has_tenant {
        true if named.id.tenant() != key.as_str() => Err(other(key, named.id.tenant()).into()),
        true => Ok(named.id.clone()),
        false => Ok(JobId::new(key, named.id.name())?),
    }
}

fn other(key: &TenantId, named: &str) -> Coded {
    let message = format!(
        "the key is one of tenant {key}, and speaks for no other; leave {named} out, or name a key of {named} with --creds or --nkey"
    );
    Coded::new(NOT_PERMITTED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_speaks_for_its_tenant() {
        let ads = TenantId::new("ads").expect("valid");
        let said = |key: Option<&TenantId>, named| {
            tenant(key, named)
                .map(|it| it.to_string())
                .map_err(|error| error.downcast::<Coded>().expect("coded").code)
        };
        assert_eq!(said(None, None), Ok("default".to_owned()));
        assert_eq!(said(None, Some("web")), Ok("web".to_owned()));
        assert_eq!(said(Some(&ads), None), Ok("ads".to_owned()));
        assert_eq!(said(Some(&ads), Some("ads")), Ok("ads".to_owned()));
        assert_eq!(said(Some(&ads), Some("web")), Err(NOT_PERMITTED.to_owned()));
    }
}
