//! Accounts on running brokers: claims are sent to them over their own account, and kept by them.
//!
//! 1. What there is of an account is asked of the brokers first: its keys, and what is revoked.
//! 2. New claims go to every broker; each applies them at once, and closes what is revoked. A broker
//!    that is away takes them over from the others within a second when it is back.
//! 3. Credentials are written before the old key is revoked: who connects again finds the new ones.

use std::time::Duration;

use dormouse_messages::NodeId;
use futures::StreamExt;
use serde::Deserialize;

use super::claims::{Claims, ClaimsError, Credentials, Root, UserKey};
use super::plan::{self, Plan, Principal};
use crate::clock::{Clock, SystemClock};
use crate::connection::{Connection, NoAnswer};
use crate::error::LogError;
use crate::settings::Settings;

/// How long the other brokers have, after the first one's answer.
const OTHERS: Duration = Duration::from_millis(250);

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
    /// There is no such account.
    #[error("there is no account {0}; `dormouse accounts list` lists them")]
    Unknown(String),
    /// There is one.
    #[error("there is an account {0} already; rotate its key, or revoke it first")]
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
        Ok(Self { root, connection })
    }

    async fn ask(
        &self,
        subject: &str,
        payload: Vec<u8>,
    ) -> Result<async_nats::Message, AccountError> {
        let request = async_nats::Request::new().payload(payload.into());
        let answer = self.connection.ask(subject, request).await;
        let answer = answer.map_err(|error| match error {
            NoAnswer::Denied => LogError::Denied {
                subject: subject.to_owned(),
            },
            other => LogError::request("ask", subject, format!("{other:?}")),
        });
        Ok(answer?)
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
        let answer = self.ask(&subject, Vec::new()).await?;
        if answer.payload.is_empty() {
            return Ok(None);
        }
        let token = String::from_utf8_lossy(&answer.payload);
        Ok(Some(Claims::read(&token)?))
    }

    /// Every account, by name.
    ///
    /// # Errors
    /// When the brokers do not answer.
    pub async fn list(&self) -> Result<Vec<(String, Claims)>, AccountError> {
        let answer = self.ask("$SYS.REQ.CLAIMS.LIST", Vec::new()).await?;
        let listed: Listed = serde_json::from_slice(&answer.payload)
            .map_err(|error| LogError::request("list", "the accounts", error))?;
        let mut accounts = Vec::with_capacity(listed.data.len());
        for account in listed.data {
            accounts.extend(self.lookup(&account).await?);
        }
        accounts.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(accounts)
    }

    /// Sends claims to every broker, and waits until the first has applied them and the others had time to.
    async fn update(&self, principal: &Principal, claims: &Claims) -> Result<(), AccountError> {
        let token = self.token(principal, claims)?;
        let subject = "$SYS.REQ.CLAIMS.UPDATE";
        let client = &self.connection.client;
        let failed = |why: String| LogError::request("ask", subject, why);
        let inbox = client.new_inbox();
        let answers = client.subscribe(inbox.clone()).await;
        let mut answers = answers.map_err(|error| failed(error.to_string()))?;
        let sent = client
            .publish_with_reply(subject, inbox, token.into())
            .await;
        sent.map_err(|error| failed(error.to_string()))?;
        let mut patience = crate::connection::ANSWER_TIMEOUT;
        let mut brokers = 0;
        while let Ok(Some(answer)) = tokio::time::timeout(patience, answers.next()).await {
            let updated: Updated = serde_json::from_slice(&answer.payload).map_err(|_| {
                failed(
                    "no broker answers there; do they keep accounts (`dormouse accounts init`)?"
                        .to_owned(),
                )
            })?;
            if let Some(error) = updated.error {
                return Err(AccountError::Refused {
                    name: principal.name(),
                    why: error.description,
                });
            }
            brokers += 1;
            patience = OTHERS;
        }
        match brokers {
            0 => Err(failed("no answer in time".to_owned()).into()),
            _ => Ok(()),
        }
    }

    fn token(&self, principal: &Principal, claims: &Claims) -> Result<String, ClaimsError> {
        let plan = plan_of(&self.root, principal, claims);
        // Later than what it replaces: of two that were issued in one second a broker that has missed
        // the second would keep the first.
        let issued_s = now_s().max(claims.issued_s + 1);
        self.root.account_token(principal, &plan, claims, issued_s)
    }

    /// Makes an account with one key. An agent's answers are led to the services' account.
    ///
    /// # Errors
    /// When there is one with a key, or the brokers do not take it.
    pub async fn add(&self, principal: &Principal) -> Result<Issued, AccountError> {
        let name = principal.name();
        let mut claims = self.claims(principal).await?.unwrap_or_default();
        if !claims.keys.is_empty() {
            return Err(AccountError::Exists(name));
        }
        if let Principal::Person { role, .. } = principal {
            claims.role = Some(role.to_string());
        }
        let credentials = self.issue(principal, &name)?;
        claims.keys.push(UserKey {
            user: name.clone(),
            public: credentials.public.clone(),
        });
        self.update(principal, &claims).await?;
        if let Principal::Node(node) = principal {
            let mut control = self.claims(&Principal::Control).await?.unwrap_or_default();
            if !control.nodes.contains(&node.to_string()) {
                control.nodes.push(node.to_string());
                self.update(&Principal::Control, &control).await?;
            }
        }
        Ok(Issued {
            name,
            credentials,
            revoked: 0,
        })
    }

    /// Makes another key of an account, or of a service. `write` is given it before the ones before it
    /// are revoked; with `keep` they stay valid until the next time.
    ///
    /// # Errors
    /// When there is no such account, `write` fails, or the brokers do not take it.
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
        let known = self.claims(principal).await?;
        let known = known.filter(|claims| claims.keys.iter().any(|key| key.user == user));
        let mut claims = known.ok_or_else(|| AccountError::Unknown(user.to_owned()))?;
        let credentials = self.issue(principal, user).map_err(AccountError::from)?;
        let revoked = match keep {
            true => 0,
            false => claims.revoke(user, now_s()),
        };
        claims.keys.push(UserKey {
            user: user.to_owned(),
            public: credentials.public.clone(),
        });
        write(&credentials)?;
        self.update(principal, &claims).await?;
        Ok(Issued {
            name: user.to_owned(),
            credentials,
            revoked,
        })
    }

    /// Takes every key of a user away: its connections are closed; how many keys they were.
    ///
    /// # Errors
    /// When there is none, or the brokers do not take it.
    pub async fn revoke(&self, principal: &Principal, user: &str) -> Result<usize, AccountError> {
        let unknown = || AccountError::Unknown(user.to_owned());
        let mut claims = self.claims(principal).await?.ok_or_else(unknown)?;
        match claims.revoke(user, now_s()) {
            0 => Err(unknown()),
            count => self.update(principal, &claims).await.map(|()| count),
        }
    }

    fn issue(&self, principal: &Principal, user: &str) -> Result<Credentials, ClaimsError> {
        issue(&self.root, principal, user)
    }
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

fn issue(root: &Root, principal: &Principal, user: &str) -> Result<Credentials, ClaimsError> {
    let permissions = match principal {
        Principal::Control => plan::service_permissions(root.prefix(), user),
        other => plan::permissions(root.prefix(), other),
    };
    root.user(principal, user, &permissions, now_s())
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
                let made = issue(root, &principal, user)?;
                claims.keys.push(UserKey {
                    user: user.to_owned(),
                    public: made.public.clone(),
                });
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
