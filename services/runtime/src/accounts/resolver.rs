//! Accounts on running brokers: claims are sent to them over their own account, and kept by them.
//!
//! 1. The owner's command lines take turns: an account's claims are read, changed and sent under a lease of
//!    the cluster ([`Accounts::in_turn`]), so that no change is lost. A cluster without streams has none yet.
//! 2. The brokers are asked for an account's claims first. Each answers with those that it holds; the
//!    latest count, because a broker that was away has not heard of them yet.
//! 3. New claims go to every broker; each applies them at once, and closes the connections of the keys that
//!    they leave out. A broker that is away takes them over from the others within a second when it is back.
//! 4. A key is replaced in three steps: both are valid, the new one is written, the old one is taken away. So
//!    the key that the holder finds when it connects again is valid at every moment.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_messages::{NodeId, TenantId};
use futures::{StreamExt, TryStreamExt};
use serde::Deserialize;

use super::claims::{Claims, ClaimsError, Credentials, Root, UserKey};
use super::plan::{self, LEASE, Plan, Principal};
use crate::clock::{Clock, SystemClock};
use crate::connection::{Connection, NoAnswer};
use crate::error::LogError;
use crate::lease::{Lease, token};
use crate::log::Log;
use crate::settings::Settings;

/// How long the other brokers have, after the first one's answer.
const OTHERS: Duration = Duration::from_millis(250);

/// Accounts that are looked up at once.
const LOOKUPS: usize = 32;

/// So long after a command that changed accounts was killed another one may.
const TURN: Duration = Duration::from_secs(10);

/// So long a command waits for the others, each of which takes less than a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// So often the brokers compare what they hold, by a hash: one that was away knows a revoked key as
/// valid for so long.
const SYNC: &str = "500ms";

/// Why an account is not as it was to be.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// A key or token.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    /// The connection to the brokers' own account.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The brokers do not take it.
    #[error("the broker does not take the account {name}: {why}")]
    Refused {
        /// The account.
        name: String,
        /// Its words.
        why: String,
    },
    /// There is no such key.
    #[error(
        "there is no key of {0}: `dormouse accounts list` lists them, `dormouse accounts add` and `dormouse tenant user add` make them"
    )]
    Unknown(String),
    /// Another command has the turn.
    #[error("other commands change the accounts of this cluster; try again")]
    Busy,
    /// There is one.
    #[error("{0} has a key already; rotate it, or revoke it first")]
    Exists(String),
}

/// What was made.
#[derive(Debug)]
pub struct Issued {
    /// Its name.
    pub name: String,
    /// For its holder.
    pub credentials: Credentials,
    /// Keys that are not valid any more.
    pub revoked: usize,
}

/// The accounts of running brokers.
pub struct Accounts {
    root: Root,
    connection: Connection,
    turns: Option<Log>,
}

#[derive(Deserialize)]
struct Updated {
    error: Option<UpdateError>,
}

#[derive(Deserialize)]
struct UpdateError {
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Listed {
    data: Vec<String>,
}

fn now_s() -> i64 {
    SystemClock.now().as_micros() / 1_000_000
}

impl Accounts {
    /// Connects to the brokers' own account: the settings name its credentials.
    ///
    /// # Errors
    /// When there is no broker, or it does not accept them.
    pub async fn connect(settings: &Settings, root: Root) -> Result<Self, AccountError> {
        let connection = Connection::open(settings).await?;
        let turns = None;
        Ok(Self {
            root,
            connection,
            turns,
        })
    }

    /// Changes accounts in turn with everybody else who does: the log is the owner's.
    #[must_use]
    pub fn in_turn(self, log: Log) -> Self {
        Self {
            turns: Some(log),
            ..self
        }
    }

    /// Every broker's answer.
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
                    "no broker answers there; do they keep accounts (`dormouse accounts init`)?";
                LogError::request("ask", subject, why)
            }
            other => LogError::request("ask", subject, other.into_words()),
        });
        Ok(answers?)
    }

    /// What the brokers hold of an account.
    ///
    /// # Errors
    /// When they do not answer.
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

    /// Every account, by name.
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

    /// Sends claims to every broker, and waits until the first has applied them and the others had time to.
    async fn update(
        &self,
        turn: Option<&Lease>,
        principal: &Principal,
        claims: &mut Claims,
    ) -> Result<(), AccountError> {
        // Later than the claims that these replace: of two that were issued in one second a broker that
        // has missed the second would keep the first.
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
            let updated: Updated = serde_json::from_slice(&answer.payload)
                .map_err(|error| LogError::request("ask", subject, error))?;
            if let Some(error) = updated.error {
                return Err(AccountError::Refused {
                    name: principal.name(),
                    why: error.description,
                });
            }
        }
        Ok(())
    }

    /// Changes claims while no other command does.
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

    /// Makes an account with one key. An agent's answers are led to the services' account.
    ///
    /// # Errors
    /// When there is one with a key, or the brokers do not take it.
    pub async fn add(&self, principal: &Principal) -> Result<Issued, AccountError> {
        self.add_user(principal, &principal.name()).await
    }

    /// Makes a key of a service that has none.
    ///
    /// # Errors
    /// The same.
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

    /// Makes another key of an account, or of a service. `write` is given it before the ones before it
    /// are revoked; with `keep` they stay valid until the next time.
    ///
    /// # Errors
    /// When it has no key, `write` fails, or the brokers do not take it.
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

    /// Takes every key of a user away: its connections are closed; how many keys they were.
    ///
    /// # Errors
    /// When there is none, or the brokers do not take it.
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

    /// Takes every key of a tenant and of its people away; whose they were, and how many of each.
    ///
    /// # Errors
    /// When the brokers do not take it.
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

    /// Makes a user key and lists it in the claims.
    fn issue(
        &self,
        principal: &Principal,
        user: &str,
        claims: &mut Claims,
    ) -> Result<Credentials, ClaimsError> {
        issue(&self.root, principal, user, claims)
    }
}

/// A person with the role that the account has: the caller may not know it, or not yet.
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

/// What a new cluster's brokers are configured with, and the first credentials: the brokers' own
/// (`sys`), each service's and the owner's.
pub struct Beginning {
    /// The brokers' configuration of accounts.
    pub configuration: String,
    /// By name.
    pub credentials: Vec<(String, Credentials)>,
}

impl Beginning {
    /// Of a cluster whose brokers keep accounts in `folder`.
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
        // A variable of the broker's environment stands as it is.
        let folder = match folder.starts_with('$') {
            true => folder.to_owned(),
            false => format!("{folder:?}"),
        };
        let configuration = format!(
            "# Written by `dormouse accounts init`. The brokers keep the accounts that the cluster's root key has signed;\n\
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
