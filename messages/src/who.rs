//! The user behind a message. Every user has its own account at the broker, whose import appends role and
//! name to the subject. No payload or header can name another user.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::TenantId;

/// The permissions of a user.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Queries and watches, without publishing.
    Viewer,
    /// Also submits, revises and cancels its tenant's jobs.
    Submitter,
    /// Configures the cluster, drains nodes and acts for every tenant.
    Operator,
}

impl Role {
    /// Roles with stored messages.
    pub const PUBLISHING: [Self; 2] = [Self::Submitter, Self::Operator];

    /// Returns the subject token.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Viewer, Self::Submitter, Self::Operator]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not viewer, submitter or operator"))
    }
}

/// A user with its role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct By {
    /// The user's tenant; absent for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Name of the user.
    pub user: String,
    /// The user's role.
    pub role: Role,
}

impl By {
    /// Returns an operator.
    #[must_use]
    pub fn operator(user: &str) -> Self {
        Self {
            tenant: None,
            user: user.to_owned(),
            role: Role::Operator,
        }
    }

    /// True for `alice`, or `ads/alice` among tenants.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        match (name.split_once('/'), &self.tenant) {
            (None, _) => name == self.user,
            (Some((tenant, user)), Some(own)) => tenant == own.as_str() && user == self.user,
            (Some(_), None) => false,
        }
    }
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "{tenant}/{}", self.user),
            None => write!(f, "{} {}", self.role, self.user),
        }
    }
}

/// True for a valid user name, which fits subjects and files.
#[must_use]
pub fn is_user(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    name.len() <= 63 && begins && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_alone_or_with_its_tenant() {
        let alice = By {
            tenant: Some("ads".parse().expect("valid")),
            user: "alice".to_owned(),
            role: Role::Submitter,
        };
        assert!(alice.is("alice") && alice.is("ads/alice"));
        assert!(!alice.is("search/alice") && !alice.is("ads") && !alice.is("bob"));
        assert_eq!(alice.to_string(), "ads/alice");
        let olga = By::operator("olga");
        assert!(olga.is("olga") && !olga.is("ads/olga"));
        assert_eq!(olga.to_string(), "operator olga");
    }

    #[test]
    fn a_name_is_one_token() {
        for name in ["alice", "ci-2", "a"] {
            assert!(is_user(name), "{name}");
        }
        for name in ["", "0", "a.b", "*", ">", "Alice", "-a", "a b", "a/b", "ä"] {
            assert!(!is_user(name), "{name}");
        }
    }
}
