//! NATS claims (JSON web tokens, signed with Ed25519 keys), and credentials. Without a clock.
//!
//! Account keys derive from the cluster's root key, so only the root needs storage. User keys are random. A
//! separate key, derived from root, account and user key, signs each user key; account claims list the valid
//! signing keys, and a missing key is revoked.
//!
//! Source of the format: github.com/nats-io/jwt, version 2 (`Claims.doEncode`, `AccountClaims`, `UserClaims`,
//! `OperatorClaims`), and github.com/nats-io/nkeys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_messages::Prefix;
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::plan::{Kind, Permissions, Plan, Principal};

const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;

pub(super) const ANSWERS: u32 = 100;
pub(super) const ANSWERS_TTL_S: u64 = 60;

/// An invalid key or token.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    #[error("not a key: {0}")]
    Key(#[from] nkeys::error::Error),
    #[error("not claims in NATS's form: {0}")]
    Form(String),
}

/// The cluster's root key, the source of all account keys.
pub struct Root {
    key: KeyPair,
    seed: String,
    prefix: Prefix,
}

/// A user key in its account's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserKey {
    /// The account's name, or the service's in the services' account.
    pub user: String,
    pub public: String,
}

/// The variable part of an account's claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub keys: Vec<UserKey>,
    /// Role of a person.
    pub role: Option<String>,
    /// Agents whose answers the services' account imports.
    pub nodes: Vec<String>,
    /// Seconds since 1970.
    pub issued_s: i64,
}

/// A user's key and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub public: String,
    /// The credentials file.
    pub text: String,
}

#[derive(Deserialize)]
struct Read {
    name: String,
    iat: i64,
    nats: ReadNats,
}

#[derive(Deserialize)]
struct ReadNats {
    #[serde(default)]
    tags: Vec<String>,
}

impl Root {
    /// Generates a root key.
    ///
    /// # Errors
    /// When its seed cannot be written.
    pub fn generate(prefix: Prefix) -> Result<Self, ClaimsError> {
        let key = KeyPair::new(KeyPairType::Operator);
        let seed = key.seed()?;
        Ok(Self { key, seed, prefix })
    }

    /// Restores a root key.
    ///
    /// # Errors
    /// When the seed is not that of a root key.
    pub fn from_seed(seed: &str, prefix: Prefix) -> Result<Self, ClaimsError> {
        let seed = seed.trim();
        let key = KeyPair::from_seed(seed)?;
        match key.key_pair_type() {
            KeyPairType::Operator => Ok(Self {
                key,
                seed: seed.to_owned(),
                prefix,
            }),
            _ => Err(ClaimsError::Form(
                "this is not a cluster's root key".to_owned(),
            )),
        }
    }

    /// Returns the secret seed.
    #[must_use]
    pub fn seed(&self) -> &str {
        &self.seed
    }

    /// Returns the first token of every subject.
    #[must_use]
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    fn derived(
        &self,
        principal: &Principal,
        usage: &str,
        of: &str,
    ) -> Result<KeyPair, ClaimsError> {
        let (seed, prefix, name) = (&self.seed, self.prefix.as_str(), principal.name());
        let of = format!("{seed}\n{prefix}\n{name}{of}");
        let bytes = blake3::derive_key(usage, of.as_bytes());
        Ok(KeyPair::new_from_raw(KeyPairType::Account, bytes)?)
    }

    fn account_key(&self, principal: &Principal) -> Result<KeyPair, ClaimsError> {
        self.derived(principal, "dormouse 2026 key of an account", "")
    }

    fn signing_key(&self, principal: &Principal, public: &str) -> Result<KeyPair, ClaimsError> {
        let usage = "dormouse 2026 key that signs a user of an account";
        self.derived(principal, usage, &format!("\n{public}"))
    }

    /// Returns the account's public key.
    ///
    /// # Errors
    /// When no key can be derived.
    pub fn account(&self, principal: &Principal) -> Result<String, ClaimsError> {
        Ok(self.account_key(principal)?.public_key())
    }

    /// Returns the brokers' root of trust.
    ///
    /// # Errors
    /// When the token cannot be signed.
    pub fn operator_token(&self, now_s: i64) -> Result<String, ClaimsError> {
        let system = self.account(&Principal::System)?;
        let nats = json!({"type": "operator", "version": 2, "system_account": system});
        signed(&self.key, &self.key.public_key(), "dormouse", now_s, &nats)
    }

    /// Returns an account's token.
    ///
    /// # Errors
    /// When the token cannot be signed.
    pub fn account_token(
        &self,
        principal: &Principal,
        plan: &Plan,
        claims: &Claims,
        now_s: i64,
    ) -> Result<String, ClaimsError> {
        let exports = plan.exports.iter().map(|it| {
            let mut export =
                json!({"name": it.subject, "subject": it.subject, "type": kind(it.kind)});
            if it.kind == Kind::Streamed {
                export["response_type"] = json!("Stream");
            }
            export
        });
        let mut imports = Vec::with_capacity(plan.imports.len());
        for it in &plan.imports {
            let mut import = json!({
                "name": it.local, "subject": it.subject, "type": kind(it.kind),
                "account": self.account(&it.from)?,
            });
            if it.local != it.subject {
                import["local_subject"] = json!(renamed(&it.local));
            }
            imports.push(import);
        }
        let disk = if plan.holds_streams { -1 } else { 0 };
        let [connections, subscriptions, payload_bytes] = limits(principal);
        let limits = json!({
            "subs": subscriptions, "data": -1, "payload": payload_bytes, "imports": -1, "exports": -1,
            "wildcards": true, "conn": connections, "leaf": 0, "mem_storage": disk, "disk_storage": disk,
            "streams": disk, "consumer": disk,
        });
        let signing = claims
            .keys
            .iter()
            .map(|key| Ok(self.signing_key(principal, &key.public)?.public_key()));
        let signing: Vec<String> = signing.collect::<Result<_, ClaimsError>>()?;
        let nats = json!({
            "exports": exports.collect::<Vec<_>>(), "imports": imports, "limits": limits,
            "signing_keys": signing, "tags": claims.tags(),
            "default_permissions": {"pub": {}, "sub": {}}, "type": "account", "version": 2,
        });
        let public = self.account(principal)?;
        signed(&self.key, &public, &principal.name(), now_s, &nats)
    }

    /// Creates a user with a new key.
    ///
    /// # Errors
    /// When the token cannot be signed.
    pub fn user(
        &self,
        principal: &Principal,
        user: &str,
        permissions: &Permissions,
        now_s: i64,
    ) -> Result<Credentials, ClaimsError> {
        let key = KeyPair::new_user();
        let [_, subscriptions, payload_bytes] = limits(principal);
        let mut nats = json!({
            "pub": {"allow": permissions.publish}, "sub": {"allow": permissions.subscribe},
            "subs": subscriptions, "data": -1, "payload": payload_bytes, "type": "user", "version": 2,
            "issuer_account": self.account(principal)?,
        });
        if permissions.answers {
            nats["resp"] = json!({"max": ANSWERS, "ttl": ANSWERS_TTL_S * 1_000_000_000});
        }
        let public = key.public_key();
        let signing = self.signing_key(principal, &public)?;
        let token = signed(&signing, &public, user, now_s, &nats)?;
        let seed = key.seed()?;
        Ok(Credentials {
            public,
            text: format!(
                "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            ),
        })
    }
}

/// Returns limits of connections, subscriptions and message bytes; -1 is no limit.
fn limits(principal: &Principal) -> [i64; 3] {
    principal.limits().map_or([-1; 3], |it| {
        [it.connections, it.subscriptions, it.payload_bytes].map(i64::from)
    })
}

impl Claims {
    fn tags(&self) -> Vec<String> {
        let keys = self
            .keys
            .iter()
            .map(|key| format!("key:{}:{}", key.user, key.public));
        let role = self.role.iter().map(|role| format!("role:{role}"));
        let nodes = self.nodes.iter().map(|node| format!("node:{node}"));
        keys.chain(role).chain(nodes).collect()
    }

    /// Parses a token without checking the signature.
    ///
    /// # Errors
    /// When the token is invalid.
    pub fn read(token: &str) -> Result<(String, Self), ClaimsError> {
        let form = |why: String| ClaimsError::Form(why);
        let body = token
            .split('.')
            .nth(1)
            .ok_or_else(|| form("no body".to_owned()))?;
        let body = URL_SAFE_NO_PAD
            .decode(body)
            .map_err(|error| form(error.to_string()))?;
        let read: Read = serde_json::from_slice(&body).map_err(|error| form(error.to_string()))?;
        let mut claims = Self {
            issued_s: read.iat,
            ..Self::default()
        };
        for tag in read.nats.tags {
            match tag.split_once(':') {
                Some(("key", key)) => {
                    if let Some((user, public)) = key.rsplit_once(':') {
                        let (user, public) = (user.to_owned(), public.to_owned());
                        claims.keys.push(UserKey { user, public });
                    }
                }
                Some(("role", role)) => claims.role = Some(role.to_owned()),
                Some(("node", node)) => claims.nodes.push(node.to_owned()),
                _ => {}
            }
        }
        Ok((read.name, claims))
    }

    /// Reports whether `user` has a valid key.
    #[must_use]
    pub fn has_key(&self, user: &str) -> bool {
        self.keys.iter().any(|key| key.user == user)
    }

    /// Removes the keys of `user` and returns their number.
    pub fn revoke(&mut self, user: &str) -> usize {
        let before = self.keys.len();
        self.keys.retain(|key| key.user != user);
        before - self.keys.len()
    }
}

pub(super) const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Service | Kind::Streamed => "service",
        Kind::Stream => "stream",
    }
}

fn renamed(subject: &str) -> String {
    let mut number = 0;
    let tokens = subject.split('.').map(|token| match token {
        "*" => {
            number += 1;
            format!("${number}")
        }
        token => token.to_owned(),
    });
    tokens.collect::<Vec<_>>().join(".")
}

#[derive(Serialize)]
struct Body<'a> {
    jti: String,
    iat: i64,
    iss: String,
    name: &'a str,
    sub: &'a str,
    nats: &'a Value,
}

fn signed(
    by: &KeyPair,
    of: &str,
    name: &str,
    iat: i64,
    nats: &Value,
) -> Result<String, ClaimsError> {
    let jti = blake3::hash(format!("{of} {iat} {nats}").as_bytes());
    let body = Body {
        jti: jti.to_hex().to_string(),
        iat,
        iss: by.public_key(),
        name,
        sub: of,
        nats,
    };
    let body = serde_json::to_vec(&body).map_err(|error| ClaimsError::Form(error.to_string()))?;
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(HEADER),
        URL_SAFE_NO_PAD.encode(body)
    );
    let signature = by.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root::generate(Prefix::default()).expect("a key")
    }

    #[test]
    fn an_account_follows_from_the_root_and_its_name() {
        let root = root();
        let ads = Principal::Tenant("ads".parse().expect("valid"));
        let search = Principal::Tenant("search".parse().expect("valid"));
        let again = Root::from_seed(root.seed(), Prefix::default()).expect("the seed");
        let account = |root: &Root, of: &Principal| root.account(of).expect("a key");
        assert_eq!(account(&root, &ads), account(&again, &ads));
        assert!(account(&root, &ads).starts_with('A'));
        assert_ne!(account(&root, &ads), account(&root, &search));
        let elsewhere = Root::from_seed(root.seed(), "other".parse().expect("valid"));
        assert_ne!(
            account(&root, &ads),
            account(&elsewhere.expect("the seed"), &ads)
        );
        let user = KeyPair::new_user().seed().expect("a seed");
        assert!(Root::from_seed(&user, Prefix::default()).is_err());
    }

    #[test]
    fn claims_read_back_and_list_what_is_valid_alone() {
        let root = root();
        let of = Principal::Tenant("ads".parse().expect("valid"));
        let plan = super::super::plan::plan(root.prefix(), &of);
        let key = |public: &str| UserKey {
            user: "user-ads.alice".to_owned(),
            public: public.to_owned(),
        };
        let mut claims = Claims {
            keys: vec![key("UA"), key("UB")],
            role: Some("viewer".to_owned()),
            nodes: vec!["n0".to_owned()],
            issued_s: 9,
        };
        assert_eq!(claims.revoke("nobody"), 0);
        assert_eq!(claims.revoke("user-ads.alice"), 2);
        claims.keys.push(key("UC"));
        let token = root.account_token(&of, &plan, &claims, 9).expect("signed");
        let body = token.split('.').nth(1).expect("a body");
        let body = URL_SAFE_NO_PAD.decode(body).expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let signing = root.signing_key(&of, "UC").expect("a key").public_key();
        assert_eq!(body["nats"]["signing_keys"], json!([signing]));
        assert_eq!(
            Claims::read(&token).expect("reads"),
            ("tenant-ads".to_owned(), claims)
        );
        assert!(Claims::read("a.b.c").is_err());
    }

    #[test]
    fn wildcards_are_numbered() {
        assert_eq!(renamed("dormouse.in.*.submit"), "dormouse.in.$1.submit");
        assert_eq!(renamed("a.*.b.*.>"), "a.$1.b.$2.>");
    }
}
