//! Changes accounts of running brokers over the brokers' own account.
//!
//! 1. A lease ([`Accounts::in_turn`]) keeps changes from getting lost; a cluster without streams has none
//!    yet.
//! 2. The latest claims of all brokers count, since a broker may have missed an update.
//! 3. Brokers apply claims at once and disconnect revoked keys; a returned broker catches up within a second.
//! 4. A rotation writes the new key while both are valid, so that the holder's file is always valid.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_messages::{NodeId, TenantId};
use futures::{StreamExt, TryStreamExt};
use serde::Deserialize;

use super::claims::{Claims, ClaimsError, Credentials, Root, UserKey};
use super::plan::{self, LEASE, Plan, Principal};
use crate::answer::Reply;
use crate::clock::{Clock, SystemClock};
use crate::connection::{Connection, NoAnswer};
use crate::error::LogError;
use crate::lease::{Lease, token};
use crate::log::Log;
use crate::settings::Settings;

const OTHERS: Duration = Duration::from_millis(250);

const LOOKUPS: usize = 32;

const TURN: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(60);

/// A returned broker accepts a revoked key for this long.
const SYNC: &str = "500ms";

/// A failed change of an account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the broker does not take the account {name}: {why}")]
    Refused { name: String, why: String },
    #[error(
        "there is no key of {0}: `dormouse account list` lists them, `dormouse account add` makes them"
    )]
    Unknown(String),
    #[error("other commands change the accounts of this cluster; try again")]
    Busy,
    #[error("{0} has a key already; rotate it, or revoke it first")]
    Exists(String),
}

/// A new key, and the number of revoked ones.
#[derive(Debug)]
pub struct Issued {
    pub name: String,
    pub credentials: Credentials,
    pub revoked: usize,
}

/// The accounts of running brokers.
pub struct Accounts {
    root: Root,
    connection: Connection,
    turns: Option<Log>,
}

#[derive(Deserialize)]
struct Listed {
    data: Vec<String>,
}

fn now_s() -> i64 {
    SystemClock.now().as_micros() / 1_000_000
}

impl Accounts {
    /// Connects to the brokers' own account with the credentials of `settings`.
    ///
    /// # Errors
    /// When there is no broker, or it does not accept the credentials.
    pub async fn connect(settings: &Settings, root: Root) -> Result<Self, AccountError> {
        let connection = Connection::open(settings).await?;
        let turns = None;
        Ok(Self {
            root,
            connection,
            turns,
        })
    }

    /// Makes changes exclusive by a lease.
    #[must_use]
    pub fn in_turn(self, log: Log) -> Self {
        Self {
            turns: Some(log),
            ..self
        }
    }

    async fn ask(
        &self,
        subject: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<async_nats::Message>, AccountError> {
        let answers = self.connection.ask_all(subject, payload.into(), OTHERS);
        let answers = answers.await.map_err(|error| match error {
            NoAnswer::Denied => LogError::Denied {
                subject: subject.to_owned(),
            },
            NoAnswer::Nobody => {
                let why =
                    "no broker answers there; do they keep accounts (`dormouse cluster init`)?";
                LogError::request("ask", subject, why)
            }
            other => LogError::request("ask", subject, other.into_words()),
        });
        Ok(answers?)
    }

    /// Returns the latest claims of an account.
    ///
    /// # Errors
    /// When the brokers do not answer.
    pub async fn claims(&self, principal: &Principal) -> Result<Option<Claims>, AccountError> {
        let account = self.root.account(principal)?;
        Ok(self.lookup(&account).await?.map(|(_, claims)| claims))
    }

    async fn lookup(&self, account: &str) -> Result<Option<(String, Claims)>, AccountError> {
        let subject = format!("$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP");
        let mut latest: Option<(String, Claims)> = None;
        for answer in self.ask(&subject, Vec::new()).await? {
            if answer.payload.is_empty() {
                continue;
            }
            let read = Claims::read(&String::from_utf8_lossy(&answer.payload))?;
            if latest
                .as_ref()
                .is_none_or(|(_, latest)| latest.issued_s < read.1.issued_s)
            {
                latest = Some(read);
            }
        }
        Ok(latest)
    }

    /// Returns every account with its name.
    ///
    /// # Errors
    /// When the brokers do not answer.
    pub async fn list(&self) -> Result<Vec<(String, Claims)>, AccountError> {
        let mut all = BTreeSet::new();
        for answer in self.ask("$SYS.REQ.CLAIMS.LIST", Vec::new()).await? {
            let listed: Listed = serde_json::from_slice(&answer.payload)
                .map_err(|error| LogError::request("list", "the accounts", error))?;
            all.extend(listed.data);
        }
        let lookups = all.iter().map(|account| self.lookup(account));
        let lookups: Vec<_> = futures::stream::iter(lookups)
            .buffered(LOOKUPS)
            .try_collect()
            .await?;
        let mut accounts: Vec<_> = lookups.into_iter().flatten().collect();
        accounts.sort_by(|one: &(String, Claims), other| one.0.cmp(&other.0));
        Ok(accounts)
    }

    async fn update(
        &self,
        turn: Option<&Lease>,
        principal: &Principal,
        claims: &mut Claims,
    ) -> Result<(), AccountError> {
        // Otherwise a broker that missed this update would prefer the old claims.
        claims.issued_s = now_s().max(claims.issued_s + 1);
        let plan = plan_of(&self.root, principal, claims);
        let token = self
            .root
            .account_token(principal, &plan, claims, claims.issued_s)?;
        if turn.is_some_and(|lease| !lease.is_held()) {
            return Err(AccountError::Busy);
        }
        let subject = "$SYS.REQ.CLAIMS.UPDATE";
        for answer in self.ask(subject, token.into_bytes()).await? {
            let updated = Reply::read(&answer);
            let updated = updated.map_err(|why| LogError::request("ask", subject, why))?;
            updated.map_err(|error| AccountError::Refused {
                name: principal.name(),
                why: error.description,
            })?;
        }
        Ok(())
    }

    async fn alone<T, E: From<AccountError>>(
        &self,
        change: impl AsyncFnOnce(Option<&Lease>) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(log) = &self.turns else {
            return change(None).await;
        };
        let mut lease = log.leases().seek(LEASE, &token(), 0, TURN);
        if tokio::time::timeout(PATIENCE, lease.held()).await.is_err() {
            return Err(AccountError::Busy.into());
        }
        let changed = change(Some(&lease)).await;
        lease.release().await;
        changed
    }

    /// Creates an account with one key.
    ///
    /// # Errors
    /// When the account has a key, or the brokers refuse.
    pub async fn add(&self, principal: &Principal) -> Result<Issued, AccountError> {
        self.add_user(principal, &principal.name()).await
    }

    /// Creates a service's key.
    ///
    /// # Errors
    /// When the service has a key, or the brokers refuse.
    pub async fn add_service(&self, service: &str) -> Result<Issued, AccountError> {
        self.add_user(&Principal::Control, service).await
    }

    async fn add_user(&self, principal: &Principal, user: &str) -> Result<Issued, AccountError> {
        self.alone(async |turn| {
            let mut claims = self.claims(principal).await?.unwrap_or_default();
            if claims.has_key(user) {
                return Err(AccountError::Exists(user.to_owned()));
            }
            if let Principal::Person { role, .. } = principal {
                claims.role = Some(role.to_string());
            }
            let credentials = self.issue(principal, user, &mut claims)?;
            self.update(turn, principal, &mut claims).await?;
            if let Principal::Node(node) = principal {
                let control = self.claims(&Principal::Control).await?;
                let mut control = control.unwrap_or_default();
                if !control.nodes.contains(&node.to_string()) {
                    control.nodes.push(node.to_string());
                    self.update(turn, &Principal::Control, &mut control).await?;
                }
            }
            Ok(Issued {
                name: user.to_owned(),
                credentials,
                revoked: 0,
            })
        })
        .await
    }

    /// Adds a key, passes it to `write`, then revokes older ones, or with `keep` at the next rotation.
    ///
    /// # Errors
    /// When there is no key, `write` fails, or the brokers refuse.
    pub async fn rotate<E>(
        &self,
        principal: &Principal,
        user: &str,
        keep: bool,
        write: impl FnOnce(&Credentials) -> Result<(), E>,
    ) -> Result<Issued, E>
    where
        E: From<AccountError>,
    {
        self.alone(async |turn| {
            let known = self.claims(principal).await?;
            let known = known.filter(|claims| claims.has_key(user));
            let mut claims = known.ok_or_else(|| AccountError::Unknown(user.to_owned()))?;
            let principal = &as_it_is(principal, &claims);
            let mut after = claims.clone();
            let revoked = if keep { 0 } else { after.revoke(user) };
            let issued = self.issue(principal, user, &mut claims);
            let credentials = issued.map_err(AccountError::from)?;
            after.keys.extend(claims.keys.last().cloned());
            self.update(turn, principal, &mut claims).await?;
            write(&credentials)?;
            if revoked > 0 {
                after.issued_s = claims.issued_s;
                self.update(turn, principal, &mut after).await?;
            }
            Ok(Issued {
                name: user.to_owned(),
                credentials,
                revoked,
            })
        })
        .await
    }

    /// Revokes all keys of a user and returns their number.
    ///
    /// # Errors
    /// When there is none, or the brokers refuse.
    pub async fn revoke(&self, principal: &Principal, user: &str) -> Result<usize, AccountError> {
        self.alone(async |turn| {
            let unknown = || AccountError::Unknown(user.to_owned());
            let mut claims = self.claims(principal).await?.ok_or_else(unknown)?;
            let principal = &as_it_is(principal, &claims);
            match claims.revoke(user) {
                0 => Err(unknown()),
                count => {
                    self.update(turn, principal, &mut claims).await?;
                    Ok(count)
                }
            }
        })
        .await
    }

    /// Revokes all keys of a tenant and its people, by name.
    ///
    /// # Errors
    /// When the brokers refuse.
    pub async fn revoke_tenant(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<(String, usize)>, AccountError> {
        self.alone(async |turn| {
            let mut revoked = Vec::new();
            for (name, mut claims) in self.list().await? {
                let Some(principal) = plan::of_tenant(tenant, &name, claims.role.as_deref()) else {
                    continue;
                };
                let count = std::mem::take(&mut claims.keys).len();
                if count > 0 {
                    self.update(turn, &principal, &mut claims).await?;
                    revoked.push((name, count));
                }
            }
            Ok(revoked)
        })
        .await
    }

    fn issue(
        &self,
        principal: &Principal,
        user: &str,
        claims: &mut Claims,
    ) -> Result<Credentials, ClaimsError> {
        issue(&self.root, principal, user, claims)
    }
}

/// The caller may not know the role.
fn as_it_is(principal: &Principal, claims: &Claims) -> Principal {
    let person = match principal {
        Principal::Person { tenant, .. } => {
            plan::of_tenant(tenant, &principal.name(), claims.role.as_deref())
        }
        _ => None,
    };
    person.unwrap_or_else(|| principal.clone())
}

fn plan_of(root: &Root, principal: &Principal, claims: &Claims) -> Plan {
    match principal {
        Principal::Control => {
            let nodes = claims
                .nodes
                .iter()
                .filter_map(|node| NodeId::new(node).ok());
            plan::control_plan(root.prefix(), &nodes.collect::<Vec<_>>())
        }
        other => plan::plan(root.prefix(), other),
    }
}

fn issue(
    root: &Root,
    principal: &Principal,
    user: &str,
    claims: &mut Claims,
) -> Result<Credentials, ClaimsError> {
    let permissions = match principal {
        Principal::Control => plan::service_permissions(root.prefix(), user),
        other => plan::permissions(root.prefix(), other),
    };
    let credentials = root.user(principal, user, &permissions, now_s())?;
    claims.keys.push(UserKey {
        user: user.to_owned(),
        public: credentials.public.clone(),
    });
    Ok(credentials)
}

/// A new cluster's broker configuration and first credentials.
pub struct Beginning {
    pub configuration: String,
    pub credentials: Vec<(String, Credentials)>,
}

impl Beginning {
    /// Creates a cluster whose brokers keep accounts in `folder`.
    ///
    /// # Errors
    /// When something cannot be signed.
    pub fn of(root: &Root, folder: &str) -> Result<Self, ClaimsError> {
        let (mut credentials, mut preload) = (Vec::new(), String::new());
        let all = [
            (Principal::System, vec!["sys"]),
            (Principal::Control, plan::SERVICES.to_vec()),
        ];
        for (principal, users) in all {
            let mut claims = Claims::default();
            for user in users {
                let made = issue(root, &principal, user, &mut claims)?;
                credentials.push((user.to_owned(), made));
            }
            let plan = plan_of(root, &principal, &claims);
            let token = root.account_token(&principal, &plan, &claims, now_s())?;
            preload.push_str(&format!("  {}: {token}\n", root.account(&principal)?));
        }
        let system = root.account(&Principal::System)?;
        let operator = root.operator_token(now_s())?;
        // A variable of the broker's environment stays unquoted.
        let folder = if folder.starts_with('$') {
            folder.to_owned()
        } else {
            format!("{folder:?}")
        };
        let configuration = format!(
            "# Written by `dormouse cluster init`. The brokers keep the accounts that the cluster's root key has signed;\n\
             # they are made, changed and revoked while the brokers run.\n\
             operator: {operator}\n\
             system_account: {system}\n\
             resolver: {{type: full, dir: {folder}, allow_delete: false, interval: \"{SYNC}\"}}\n\
             resolver_preload: {{\n{preload}}}\n"
        );
        Ok(Self {
            configuration,
            credentials,
        })
    }
}
