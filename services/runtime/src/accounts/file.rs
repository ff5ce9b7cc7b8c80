//! The plan as the brokers' file of accounts, whose keys need no claims.

use dormouse_messages::{NodeId, Prefix};
use nkeys::{KeyPair, KeyPairType};

use super::claims::{ANSWERS, ANSWERS_TTL_S, ClaimsError, Credentials, kind};
use super::plan::{self, Export, Import, Kind, Permissions, Plan, Principal, SERVICES};

/// Generates a user's key; the text is its seed.
///
/// # Errors
/// When the seed cannot be written.
pub fn user_key() -> Result<Credentials, ClaimsError> {
    let key = KeyPair::new_user();
    let (public, seed) = (key.public_key(), key.seed()?);
    let text = format!("{seed}\n");
    Ok(Credentials { public, text })
}

/// Returns the public key of a user's seed or public key.
///
/// # Errors
/// When the text is neither.
pub fn public_key(text: &str) -> Result<String, ClaimsError> {
    let text = text.trim();
    let key = match text.chars().next() {
        Some('S') => KeyPair::from_seed(text)?,
        _ => KeyPair::from_public_key(text)?,
    };
    match key.key_pair_type() {
        KeyPairType::User => Ok(key.public_key()),
        _ => Err(ClaimsError::Form("this is not a user's key".to_owned())),
    }
}

/// Returns the brokers' configuration of the services' account and of these; `public` has the users' public
/// keys.
///
/// # Errors
/// Those of `public`.
pub fn configuration<E>(
    prefix: &Prefix,
    principals: &[Principal],
    mut public: impl FnMut(&str) -> Result<String, E>,
) -> Result<String, E> {
    let nodes = principals.iter().filter_map(|principal| match principal {
        Principal::Node(node) => Some(node.clone()),
        _ => None,
    });
    let control = plan::control_plan(prefix, &nodes.collect::<Vec<NodeId>>());
    let mut services = Vec::new();
    for service in SERVICES {
        let permissions = plan::service_permissions(prefix, service);
        services.push(user(service, &public(service)?, &permissions));
    }
    let mut accounts = account(&Principal::Control, &control, services);
    for principal in std::iter::once(&Principal::System).chain(principals) {
        let name = principal.name();
        let permissions = plan::permissions(prefix, principal);
        let only = user(&name, &public(&name)?, &permissions);
        accounts += &account(principal, &plan::plan(prefix, principal), vec![only]);
    }
    Ok(format!(
        "# Written by `dormouse account file`. CTL is the services' account and holds the streams; each tenant, person,\n\
         # operator, agent and gateway has an account of its own.\n\
         accounts {{{accounts}}}\n\
         system_account: {}\n",
        account_name(&Principal::System)
    ))
}

/// The brokers keep streams in a folder of their account's name, so `CTL` must stay. A dot in a name would
/// keep a broker from telling users what they may do.
fn account_name(principal: &Principal) -> String {
    match principal {
        Principal::System => "SYS".to_owned(),
        Principal::Control => "CTL".to_owned(),
        other => other.name().replace('.', "/"),
    }
}

fn account(principal: &Principal, plan: &Plan, users: Vec<String>) -> String {
    let mut text = format!("\n  {:?}: {{\n", account_name(principal));
    if plan.holds_streams {
        text += "    jetstream: enabled\n";
    }
    let lists = [
        ("users", users),
        ("exports", plan.exports.iter().map(export).collect()),
        ("imports", plan.imports.iter().map(import).collect()),
    ];
    for (name, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        text += &format!("    {name}: [\n      {}\n    ]\n", items.join("\n      "));
    }
    if let Some(limits) = principal.limits() {
        text += &format!(
            "    limits: {{max_connections: {}, max_subscriptions: {}, max_payload: {}}}\n",
            limits.connections, limits.subscriptions, limits.payload_bytes
        );
    }
    text + "  }\n"
}

fn user(name: &str, public: &str, permissions: &Permissions) -> String {
    let allowed = |subjects: &[String]| {
        let lines = subjects.iter().map(|it| format!("          {it:?}\n"));
        format!("{{allow: [\n{}        ]}}", lines.collect::<String>())
    };
    let publish = allowed(&permissions.publish);
    let subscribe = allowed(&permissions.subscribe);
    let answers = if permissions.answers {
        format!("\n        allow_responses: {{max: {ANSWERS}, expires: \"{ANSWERS_TTL_S}s\"}}")
    } else {
        String::new()
    };
    format!(
        "# {name}\n      {{nkey: {public:?}, permissions: {{\n        publish: {publish}\n        subscribe: {subscribe}{answers}\n      }}}}"
    )
}

fn export(export: &Export) -> String {
    let more = if export.kind == Kind::Streamed {
        ", response_type: stream"
    } else {
        ""
    };
    format!("{{{}: {:?}{more}}}", kind(export.kind), export.subject)
}

fn import(import: &Import) -> String {
    let (subject, local, from) = (&import.subject, &import.local, account_name(&import.from));
    let to = if local == subject {
        String::new()
    } else {
        format!(", to: {local:?}")
    };
    format!(
        "{{{}: {{account: {from:?}, subject: {subject:?}}}{to}}}",
        kind(import.kind)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Root;

    #[test]
    fn a_seed_and_its_public_key_name_the_same_user() {
        let made = user_key().expect("made");
        for text in [&made.text, &made.public] {
            assert_eq!(public_key(text).expect("a user's"), made.public);
        }
        let root = Root::generate(Prefix::default()).expect("made");
        for wrong in ["", "S", "U}", root.seed()] {
            assert!(public_key(wrong).is_err(), "{wrong}");
        }
    }
}
