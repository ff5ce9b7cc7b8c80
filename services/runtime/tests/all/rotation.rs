//! Keys created, rotated and revoked while the broker and clients run.

use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions};
use dormouse_messages::events::NodeDrained;
use dormouse_messages::{Event, Prefix, Role, Writer};
use dormouse_runtime::Settings;
use dormouse_runtime::accounts::{AccountError, Accounts, Beginning, Principal, Root};
use tokio::time::timeout;

use crate::accounts::Secured;
use crate::common::PATIENCE;
use crate::common::trio::Trio;

/// Longest use of a revoked key.
const OUT: Duration = Duration::from_secs(1);

fn alice() -> Principal {
    Principal::Person {
        tenant: "ads".parse().expect("valid"),
        user: "alice".to_owned(),
        role: Role::Submitter,
    }
}

fn drained() -> Event {
    Event::from(NodeDrained {
        node: "n0".parse().expect("valid"),
        reason: None,
        deadline_s: None,
    })
}

/// A client that does not reconnect.
async fn once(secured: &Secured, user: &str) -> Result<Client, async_nats::ConnectError> {
    let text = std::fs::read_to_string(secured.key(user)).expect("credentials");
    let options = ConnectOptions::with_credentials(&text).expect("credentials");
    options.max_reconnects(1).connect(secured.url()).await
}

async fn gone(client: &Client) -> Duration {
    let begun = Instant::now();
    while client.connection_state() == State::Connected && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_out_within_a_second_and_nobody_else_is() {
    let secured = Secured::start_with_claims().await;
    let accounts = secured.accounts().await;
    let revoked = once(&secured, "user-ads.alice").await.expect("connects");
    let (vera, _) = secured.client("user-ads.vera").await;
    let (tenant, _) = secured.client("tenant-ads").await;
    let begun = Instant::now();
    let keys = accounts.revoke(&alice(), "user-ads.alice").await;
    assert_eq!(keys.expect("revoked"), 1);
    gone(&revoked).await;
    let took = begun.elapsed();
    println!("a revoked key was out {took:?} after the command began");
    assert!(took < OUT, "{took:?}");
    assert!(
        once(&secured, "user-ads.alice").await.is_err(),
        "it came back"
    );
    for other in [&vera, &tenant] {
        other.flush().await.expect("still there");
        assert_eq!(other.connection_state(), State::Connected);
    }
    let again = accounts.revoke(&alice(), "user-ads.alice").await;
    assert!(matches!(again, Err(AccountError::Unknown(_))), "{again:?}");
    let issued = accounts.add(&alice()).await.expect("made");
    secured.write(&issued.name, &issued.credentials);
    once(&secured, "user-ads.alice")
        .await
        .expect("connects with the new one");
    assert!(matches!(
        accounts.add(&alice()).await,
        Err(AccountError::Exists(_))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_replaced_while_its_holder_runs() {
    let secured = Secured::start_with_claims().await;
    let accounts = secured.accounts().await;
    let olga = Principal::Operator("olga".to_owned());
    let log = secured.log("operator-olga").await;
    let mut operator = log.appender(Writer::Operator, None);
    operator.append(drained(), &[]).await.expect("appended");
    let old = std::fs::read_to_string(secured.key("operator-olga")).expect("credentials");
    let write = |credentials: &_| {
        secured.write("operator-olga", credentials);
        Ok::<(), AccountError>(())
    };
    let issued = accounts.rotate(&olga, "operator-olga", false, write).await;
    assert_eq!(issued.expect("rotated").revoked, 1);
    // The connection continues with the new key.
    let appended = timeout(PATIENCE, operator.append(drained(), &[])).await;
    appended.expect("in time").expect("appended");
    let options = ConnectOptions::with_credentials(&old).expect("credentials");
    assert!(options.connect(secured.url()).await.is_err(), "the old key");
    let write = |credentials: &_| {
        secured.write("operator-olga", credentials);
        Ok::<(), AccountError>(())
    };
    let between = once(&secured, "operator-olga").await.expect("connects");
    let kept = accounts.rotate(&olga, "operator-olga", true, write).await;
    assert_eq!(kept.expect("rotated").revoked, 0);
    between.flush().await.expect("still there");
    let issued = accounts.rotate(&olga, "operator-olga", false, write).await;
    assert_eq!(issued.expect("rotated").revoked, 2);
    assert!(gone(&between).await < OUT);
    // A service's key belongs to a shared account.
    let write = |credentials: &_| {
        secured.write("placer", credentials);
        Ok::<(), AccountError>(())
    };
    let (optimizer, _) = secured.client("optimizer").await;
    let placer = secured.log("placer").await;
    let rotated = accounts
        .rotate(&Principal::Control, "placer", false, write)
        .await;
    assert_eq!(rotated.expect("rotated").revoked, 1);
    let answered = async {
        while placer.head().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, answered).await.expect("goes on");
    assert_eq!(optimizer.connection_state(), State::Connected);
    let nobody = accounts.rotate(
        &olga,
        "operator-otto",
        false,
        |_| Ok::<(), AccountError>(()),
    );
    assert!(matches!(nobody.await, Err(AccountError::Unknown(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_makes_accounts_with_another_root_or_without_the_brokers_own_key() {
    let secured = Secured::start_with_claims().await;
    let mallory = Root::generate(Prefix::default()).expect("a key");
    let sys = secured.settings("sys");
    let accounts = dormouse_runtime::accounts::Accounts::connect(&sys, mallory).await;
    let made = accounts.expect("connects").add(&alice()).await;
    // The account exists, but its foreign signatures open nothing.
    if let Ok(issued) = made {
        let options = ConnectOptions::with_credentials(&issued.credentials.text);
        let connected = options.expect("credentials").connect(secured.url()).await;
        assert!(connected.is_err(), "a foreign root is trusted");
    }
    for user in ["operator", "operator-olga", "tenant-ads", "node-n0"] {
        let (client, mut reports) = secured.client(user).await;
        client
            .publish("$SYS.REQ.CLAIMS.UPDATE", "x".into())
            .await
            .expect("sent");
        let report = timeout(PATIENCE, reports.recv()).await.expect("in time");
        assert!(report.expect("connected").contains("$SYS.REQ"), "{user}");
    }
    let listed = secured.accounts().await.list().await.expect("listed");
    let names: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    for name in [
        "control",
        "node-n0",
        "operator-olga",
        "tenant-ads",
        "user-ads.vera",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
}

async fn opens(secured: &Secured, text: &str) -> bool {
    let options = ConnectOptions::with_credentials(text).expect("credentials");
    options
        .max_reconnects(1)
        .connect(secured.url())
        .await
        .is_ok()
}

/// Commands with separate connections.
async fn commands(secured: &Secured, count: usize) -> Vec<Accounts> {
    let mut all = Vec::new();
    for _ in 0..count {
        let log = secured.log("operator").await;
        all.push(secured.accounts().await.in_turn(log));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_changes_at_once_none_is_lost_and_no_old_key_opens_anything() {
    let secured = Secured::start_with_claims().await;
    let olga = Principal::Operator("olga".to_owned());
    let text = |user: &str| std::fs::read_to_string(secured.key(user)).expect("credentials");
    let mut old: Vec<String> = ["operator-olga", "placer", "optimizer", "user-ads.alice"]
        .map(text)
        .to_vec();
    let mut new: Vec<(String, String)> = Vec::new();
    for round in 0..4 {
        // Two rotations of one key, of two services in one account, a revocation with a new key, and a new
        // agent, which also changes the services' account.
        let rotations = [
            (olga.clone(), "operator-olga"),
            (olga.clone(), "operator-olga"),
            (Principal::Control, "placer"),
            (Principal::Control, "optimizer"),
        ];
        let commands = commands(&secured, rotations.len() + 2).await;
        let (last, rotating) = commands.split_last().expect("some");
        let (revoking, rotating) = rotating.split_last().expect("some");
        let rotated = rotating
            .iter()
            .zip(&rotations)
            .map(|(command, (of, user))| async move {
                let issued = command.rotate(of, user, false, |_| Ok::<(), AccountError>(()));
                let issued = issued.await.expect("rotated");
                ((*user).to_owned(), issued.credentials.text)
            });
        let again = async {
            let keys = revoking.revoke(&alice(), "user-ads.alice").await;
            assert_eq!(keys.expect("revoked"), 1);
            revoking.add(&alice()).await.expect("made").credentials.text
        };
        let node = Principal::Node(format!("m{round}").parse().expect("valid"));
        let agent = async { last.add(&node).await.expect("made").credentials.text };
        let (rotated, again, agent) =
            tokio::join!(futures::future::join_all(rotated), again, agent);
        old.extend(
            new.drain(..)
                .filter(|(user, _)| !user.starts_with("node-"))
                .map(|it| it.1),
        );
        new.extend(rotated);
        new.push(("user-ads.alice".to_owned(), again));
        new.push((node.name(), agent));
    }
    let listed = secured.accounts().await.list().await.expect("listed");
    let keys = |user: &str| {
        let keys = listed.iter().flat_map(|(_, claims)| &claims.keys);
        keys.filter(|key| key.user == user).count()
    };
    for user in [
        "operator-olga",
        "placer",
        "optimizer",
        "user-ads.alice",
        "admission",
    ] {
        assert_eq!(keys(user), 1, "{user}");
    }
    for key in &old {
        assert!(!opens(&secured, key).await, "an old key opens its account");
    }
    let mut open = std::collections::BTreeMap::new();
    for (user, key) in &new {
        *open.entry(user.as_str()).or_insert(0) += u32::from(opens(&secured, key).await);
    }
    // The later of two rotations is valid.
    assert!(open.values().all(|count| *count == 1), "{open:?}");
    let control = listed.iter().find(|(name, _)| name == "control");
    let nodes = &control.expect("the services' account").1.nodes;
    assert_eq!(nodes.len(), 2 + 4, "{nodes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_key_was_revoked_is_given_another_one() {
    let secured = Secured::start_with_claims().await;
    let accounts = secured.accounts().await;
    let old = std::fs::read_to_string(secured.key("webhook")).expect("credentials");
    let revoked = accounts.revoke(&Principal::Control, "webhook").await;
    assert_eq!(revoked.expect("revoked"), 1);
    assert!(!opens(&secured, &old).await);
    let write = |_: &_| Ok::<(), AccountError>(());
    let none = accounts.rotate(&Principal::Control, "webhook", false, write);
    let none = none.await.expect_err("there is no key").to_string();
    assert!(none.contains("account add"), "{none}");
    let issued = accounts.add_service("webhook").await.expect("made");
    assert!(opens(&secured, &issued.credentials.text).await);
    assert!(!opens(&secured, &old).await);
    let again = accounts.add_service("webhook").await;
    assert!(matches!(again, Err(AccountError::Exists(_))), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_keys_go_together() {
    let secured = Secured::start_with_claims().await;
    let accounts = secured.accounts().await;
    let ads = "ads".parse().expect("valid");
    let revoked = accounts.revoke_tenant(&ads).await.expect("revoked");
    let names: Vec<&str> = revoked.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tenant-ads", "user-ads.alice", "user-ads.vera"]);
    for user in names {
        assert!(once(&secured, user).await.is_err(), "{user}");
    }
    once(&secured, "tenant-search").await.expect("another's");
    assert_eq!(accounts.revoke_tenant(&ads).await.expect("none"), []);
}

async fn three() -> (Trio, Accounts, tempfile::TempDir) {
    const FOLDER: &str = "/accounts";
    let keys = tempfile::tempdir().expect("a folder");
    let root = Root::generate(Prefix::default()).expect("a key");
    let beginning = Beginning::of(&root, FOLDER).expect("signed");
    for (name, credentials) in &beginning.credentials {
        let path = keys.path().join(format!("{name}.creds"));
        std::fs::write(path, &credentials.text).expect("written");
    }
    let own = |folder: &std::path::Path| {
        let configuration = &beginning.configuration;
        configuration.replace(FOLDER, &folder.display().to_string())
    };
    let trio = Trio::with("100GiB", own).await;
    let settings = Settings {
        creds: Some(keys.path().join("sys.creds")),
        ..Settings::new(trio.url(0), "sys")
    };
    let accounts = Accounts::connect(&settings, root).await.expect("connects");
    (trio, accounts, keys)
}

async fn hers(trio: &Trio, accounts: &Accounts) -> String {
    let issued = accounts.add(&alice()).await.expect("made");
    for server in 0..3 {
        let known = async {
            while enters(trio, server, &issued.credentials.text)
                .await
                .is_err()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, known).await.expect("known everywhere");
    }
    issued.credentials.text
}

/// A client of one broker, without reconnects.
async fn enters(trio: &Trio, server: usize, key: &str) -> Result<Client, async_nats::ConnectError> {
    let options = ConnectOptions::with_credentials(key).expect("credentials");
    let options = options.ignore_discovered_servers().max_reconnects(1);
    options.connect(trio.url(server)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_out_on_each_of_three_brokers_also_where_one_was_down() {
    let (mut trio, accounts, _keys) = three().await;
    let key = hers(&trio, &accounts).await;
    let mut clients = Vec::new();
    for server in 0..3 {
        clients.push(enters(&trio, server, &key).await.expect("connects"));
    }
    let begun = Instant::now();
    let revoked = accounts.revoke(&alice(), "user-ads.alice").await;
    assert_eq!(revoked.expect("revoked"), 1);
    for client in &clients {
        gone(client).await;
    }
    let took = begun.elapsed();
    println!("out on three brokers {took:?} after the command began");
    assert!(took < OUT, "{took:?}");
    let key = hers(&trio, &accounts).await;
    trio.kill(2);
    let revoked = accounts.revoke(&alice(), "user-ads.alice").await;
    assert_eq!(revoked.expect("revoked"), 1);
    trio.start_again(2);
    let listens = async {
        while tokio::net::TcpStream::connect(trio.url(2).trim_start_matches("nats://"))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, listens).await.expect("it is back");
    let back = Instant::now();
    // A client that connects before the broker knows the revocation does not stay.
    let early = enters(&trio, 2, &key).await.ok();
    while enters(&trio, 2, &key).await.is_ok() && back.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if let Some(early) = &early {
        gone(early).await;
    }
    let took = back.elapsed();
    println!(
        "out {took:?} after the broker was back (early: {})",
        early.is_some()
    );
    assert!(took < 2 * OUT, "{took:?}");
    // The broker must not restore the old claims.
    let again = accounts.revoke(&alice(), "user-ads.alice").await;
    assert!(matches!(again, Err(AccountError::Unknown(_))), "{again:?}");
}
