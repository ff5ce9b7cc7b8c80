//! The owner of a key in arguments.

use std::str::FromStr;

use clap::Args;
use dormouse_messages::TenantId;
use dormouse_messages::who::{Role, is_user};
use dormouse_runtime::accounts::{Principal, SERVICES};

use super::keys::KeysArg;

/// An account's principal and the user in the account.
#[derive(Debug, Clone)]
pub struct Holder {
    /// A person's role stands in the account; the role here is a placeholder.
    pub principal: Principal,
    pub user: String,
}

impl FromStr for Holder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((tenant, user)) = text.split_once('/') {
            return person(tenant, user);
        }
        let principal = match text.strip_prefix("tenant-") {
            _ if text == "sys" => Principal::System,
            _ if SERVICES.contains(&text) => Principal::Control,
            Some(tenant) => Principal::Tenant(TenantId::new(tenant).map_err(|it| it.to_string())?),
            None => Principal::of_cluster(text).map_err(|_| {
                format!(
                    "{text:?} is not a service, node-n0, gateway-g0, operator-olga, tenant-ads or a person such as ads/alice"
                )
            })?,
        };
        Ok(Self {
            principal,
            user: text.to_owned(),
        })
    }
}

fn person(tenant: &str, user: &str) -> Result<Holder, String> {
    if !is_user(user) {
        return Err(format!(
            "{user:?} cannot be a person's name; it has lower-case letters, digits and `-`"
        ));
    }
    let principal = Principal::Person {
        tenant: TenantId::new(tenant).map_err(|error| error.to_string())?,
        user: user.to_owned(),
        role: Role::Viewer,
    };
    Ok(Holder {
        user: principal.name(),
        principal,
    })
}

/// An argument that names a key's owner.
#[derive(Debug, Clone, Args)]
pub struct HolderArg {
    /// Such as node-n0, gateway-g0, operator-olga, tenant-ads, placer, or ads/alice for a person.
    pub name: Holder,
    #[command(flatten)]
    pub keys: KeysArg,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_read_or_refused() {
        for name in [
            "sys",
            "placer",
            "operator",
            "node-n0",
            "operator-olga",
            "tenant-ads",
        ] {
            let holder: Holder = name.parse().expect(name);
            assert_eq!(holder.user, name);
        }
        let alice: Holder = "ads/alice".parse().expect("a person");
        assert_eq!(alice.user, "user-ads.alice");
        for wrong in [
            "user-ads.alice",
            "n0",
            "tenant-",
            "tenant-a.b",
            "ads/",
            "ads/a.b",
            "a.b/c",
            "ads/Alice",
        ] {
            assert!(wrong.parse::<Holder>().is_err(), "{wrong}");
        }
    }
}
