//! Permissions of every user of both forms of accounts, on a real broker.
//!
//! The broker reports denials in order. Each user tries all subjects and then one that nobody may use; the
//! reports before that are complete.

mod subjects;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Broker, PATIENCE};
use async_nats::{Client, ConnectOptions, Event, HeaderMap};
use dormouse_messages::{Prefix, Role, TenantId, Workdir};
use dormouse_runtime::accounts::{Accounts, Beginning, Credentials, Principal, Root, file};
use dormouse_runtime::{Asked, CodeError, Log, Settings};
use sha2::Digest as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use subjects::{HEARD, MAY, PUBLISHED};

const LAST: &str = "nobody.may.this";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By a file of accounts.
    File,
    /// By claims signed with the root key at run time.
    Claims,
}

pub struct Secured {
    broker: Broker,
    keys: tempfile::TempDir,
    form: Form,
    root: Option<Root>,
}

fn principals() -> Vec<Principal> {
    let tenant = |name: &str| TenantId::new(name).expect("valid");
    let person = |user: &str, role| Principal::Person {
        tenant: tenant("ads"),
        user: user.to_owned(),
        role,
    };
    let of_cluster = [
        "operator-olga",
        "operator-otto",
        "node-n0",
        "node-n1",
        "gateway-g0",
        "gateway-g1",
    ];
    let of_cluster = of_cluster.map(|name| Principal::of_cluster(name).expect("valid"));
    let mut all = vec![
        Principal::Tenant(tenant("ads")),
        Principal::Tenant(tenant("search")),
    ];
    all.extend([
        person("alice", Role::Submitter),
        person("vera", Role::Viewer),
    ]);
    all.extend(of_cluster);
    all
}

impl Secured {
    pub async fn start() -> Self {
        let keys = tempfile::tempdir().expect("a folder");
        let public = |user: &str| {
            let made = file::user_key().expect("made");
            let path = keys.path().join(format!("{user}.nk"));
            std::fs::write(path, &made.text).expect("written");
            Ok::<_, ()>(made.public)
        };
        let accounts = file::configuration(&Prefix::default(), &principals(), public);
        let accounts = accounts.expect("made");
        let broker = Broker::with(|config| config.extra = accounts).await;
        let secured = Self {
            broker,
            keys,
            form: Form::File,
            root: None,
        };
        secured.ready().await
    }

    pub async fn start_with_claims() -> Self {
        let keys = tempfile::tempdir().expect("a folder");
        let root = Root::generate(Prefix::default()).expect("a key");
        let folder = keys.path().join("accounts").display().to_string();
        let beginning = Beginning::of(&root, &folder).expect("signed");
        for (name, credentials) in &beginning.credentials {
            let path = keys.path().join(format!("{name}.creds"));
            std::fs::write(path, &credentials.text).expect("written");
        }
        let broker = Broker::with(|config| config.extra = beginning.configuration).await;
        let secured = Self {
            broker,
            keys,
            form: Form::Claims,
            root: Some(root),
        };
        let accounts = secured.accounts().await;
        for principal in principals() {
            let issued = accounts.add(&principal).await.expect("made");
            secured.write(&issued.name, &issued.credentials);
        }
        secured.ready().await
    }

    pub async fn start_as(form: Form) -> Self {
        match form {
            Form::File => Self::start().await,
            Form::Claims => Self::start_with_claims().await,
        }
    }

    async fn ready(self) -> Self {
        let log = self.log("operator").await;
        log.ensure_streams().await.expect("the operator may");
        self
    }

    pub fn write(&self, name: &str, credentials: &Credentials) {
        std::fs::write(self.key(name), &credentials.text).expect("written");
    }

    pub async fn accounts(&self) -> Accounts {
        let root = self.root.as_ref().expect("accounts by claims");
        let root = Root::from_seed(root.seed(), Prefix::default()).expect("the seed");
        let connected = Accounts::connect(&self.settings("sys"), root).await;
        connected.expect("connects")
    }

    pub fn settings(&self, user: &str) -> Settings {
        let key = Some(self.key(user));
        let (nkey, creds) = match self.form {
            Form::File => (key, None),
            Form::Claims => (None, key),
        };
        Settings {
            nkey,
            creds,
            person: user.starts_with("operator"),
            ..Settings::new(self.url(), user)
        }
    }

    pub fn url(&self) -> &str {
        self.broker.broker.url()
    }

    pub fn key(&self, user: &str) -> PathBuf {
        let ending = match self.form {
            Form::File => "nk",
            Form::Claims => "creds",
        };
        self.keys.path().join(format!("{user}.{ending}"))
    }

    pub async fn log(&self, user: &str) -> Log {
        Log::connect(&self.settings(user)).await.expect("connects")
    }

    pub async fn client(&self, user: &str) -> (Client, UnboundedReceiver<String>) {
        let seed = std::fs::read_to_string(self.key(user)).expect("a seed");
        let (report, reports) = tokio::sync::mpsc::unbounded_channel();
        let options = match self.form {
            Form::File => ConnectOptions::with_nkey(seed.trim().to_owned()),
            Form::Claims => ConnectOptions::with_credentials(&seed).expect("credentials"),
        };
        let options = options.event_callback(move |event| {
            if let Event::ServerError(error) = event {
                let _ = report.send(error.to_string());
            }
            std::future::ready(())
        });
        let client = options.connect(self.broker.broker.url()).await;
        (client.expect("connects"), reports)
    }
}

/// Returns the reported subjects before [`LAST`].
async fn denied(reports: &mut UnboundedReceiver<String>) -> BTreeSet<String> {
    let mut denied = BTreeSet::new();
    loop {
        let report = timeout(PATIENCE, reports.recv()).await;
        let report = report.expect("in time").expect("connected");
        let subject = report.split('"').nth(1).unwrap_or(&report).to_owned();
        if subject == LAST {
            return denied;
        }
        denied.insert(subject);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_may_publish_what_is_its_own_and_nothing_else() {
    publishes(&Secured::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_of_accounts_that_are_made_while_the_broker_runs() {
    let secured = Secured::start_with_claims().await;
    publishes(&secured).await;
    listens(&secured).await;
}

async fn publishes(secured: &Secured) {
    for (user, may) in MAY {
        let (client, mut reports) = secured.client(user).await;
        let inbox = client.new_inbox();
        for subject in PUBLISHED.into_iter().chain([LAST]) {
            // The failing expectation prevents storage.
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Last-Sequence", "999999");
            let sent =
                client.publish_with_reply_and_headers(subject, inbox.clone(), headers, "".into());
            sent.await.expect("sent");
        }
        let denied = denied(&mut reports).await;
        let expected = PUBLISHED
            .iter()
            .filter(|subject| !may.iter().any(|may| subject.ends_with(may)));
        let expected: BTreeSet<String> = expected.map(|&it| it.to_owned()).collect();
        assert_eq!(denied, expected, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_to_what_is_not_theirs() {
    listens(&Secured::start().await).await;
}

async fn listens(secured: &Secured) {
    for (user, _) in MAY {
        let (client, mut reports) = secured.client(user).await;
        let mut open = Vec::new();
        for (subject, _) in HEARD {
            open.push(client.subscribe(subject).await.expect("asked"));
        }
        client.publish(LAST, "".into()).await.expect("sent");
        let denied = denied(&mut reports).await;
        let expected = HEARD.iter().filter(|(_, may)| !may.contains(&user));
        let expected: BTreeSet<String> = expected.map(|(it, _)| (*it).to_owned()).collect();
        assert_eq!(denied, expected, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_submits_and_a_forged_reply_reaches_nothing() {
    let secured = Secured::start().await;
    let (tenant, _) = secured.client("tenant-ads").await;
    let stored = tenant.request("dormouse.in.ads.submit", "{}".into()).await;
    let stored = stored.expect("acknowledged").payload;
    let stored: serde_json::Value = serde_json::from_slice(&stored).expect("JSON");
    assert_eq!(
        (&stored["stream"], &stored["seq"]),
        (&"DORMOUSE_IN".into(), &1.into())
    );
    // The acknowledgement would land on another tenant's ingress, or on the log.
    for reply in [
        "dormouse.in.search.submit",
        "dormouse.log.operator.0.node.drained",
    ] {
        let sent = tenant.publish_with_reply("dormouse.in.ads.submit", reply, "{}".into());
        sent.await.expect("sent");
    }
    tenant
        .request("dormouse.in.ads.submit", "{}".into())
        .await
        .expect("acknowledged");
    let (operator, _) = secured.client("operator").await;
    let jetstream = async_nats::jetstream::new(operator);
    for (stream, messages) in [("DORMOUSE_IN", 4), ("DORMOUSE_LOG", 0)] {
        let stream = jetstream
            .get_stream_no_info(stream)
            .await
            .expect("it is there");
        let info = timeout(Duration::from_secs(5), stream.get_info()).await;
        let info = info.expect("in time").expect("answered");
        assert_eq!(info.state.messages, messages, "{}", info.config.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_asks_about_itself_and_is_taken_for_nobody_else() {
    let secured = Secured::start().await;
    let api = secured.log("api").await;
    let serving = tokio::spawn(async move {
        let answer = |asked: Asked| async move {
            let tenant = asked.tenant.unwrap_or_default();
            Ok(format!("{tenant} asks {}", asked.name).into_bytes())
        };
        api.serve_api(&["jobs"], &["jobs"], answer).await
    });
    for tenant in ["ads", "search"] {
        let (client, mut reports) = secured.client(&format!("tenant-{tenant}")).await;
        let ask = |subject: String| client.request(subject, r#"{"tenant":"vision"}"#.into());
        let answer = loop {
            // There is no responder before the service runs.
            match ask(format!("dormouse.tenant.{tenant}.api.jobs")).await {
                Ok(answer) => break answer.payload,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(answer, format!("{tenant} asks jobs"));
        let other = if tenant == "ads" { "search" } else { "ads" };
        let theirs = format!("dormouse.tenant.{other}.api.jobs");
        client
            .publish(theirs.clone(), "".into())
            .await
            .expect("sent");
        let report = timeout(PATIENCE, reports.recv()).await.expect("in time");
        assert!(report.expect("connected").contains(&theirs), "{theirs}");
    }
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_folders_are_stored_by_operators_and_fetched_by_agents() {
    stores(&Secured::start().await).await;
    stores(&Secured::start_with_claims().await).await;
}

fn archive(bytes: u32) -> (Workdir, bytes::Bytes) {
    let archive: bytes::Bytes = (0..bytes).map(|n| n.to_le_bytes()[1]).collect();
    let digest = sha2::Sha256::digest(&archive);
    let packed = Workdir {
        sha256: digest.iter().map(|it| format!("{it:02x}")).collect(),
        bytes: u64::from(bytes),
    };
    (packed, archive)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_folders_are_stored_by_tenants_for_themselves() {
    tenants_store(&Secured::start().await).await;
    tenants_store(&Secured::start_with_claims().await).await;
}

async fn tenants_store(secured: &Secured) {
    let api = secured.log("api").await;
    let most = Some(4 << 20);
    let serving = tokio::spawn(async move { api.serve_code(most).await });
    let store = async |user: &str| {
        let settings = Settings {
            person: true,
            ..secured.settings(user)
        };
        Log::connect(&settings).await.expect("connects").code()
    };
    let (large, small) = (archive(1_400_000), archive(5));
    for (user, (packed, bytes)) in [("tenant-ads", &large), ("user-ads.alice", &small)] {
        let store = store(user).await;
        for is_new in [true, false] {
            let stored = store.put("ads", packed, bytes).await;
            assert_eq!(stored, Ok(is_new), "{user}");
        }
    }
    let operator = store("operator-olga").await;
    let mut read = Vec::new();
    while read.len() < large.1.len() {
        let piece = operator
            .piece("ads", &large.0.sha256, read.len() as u64)
            .await;
        read.extend_from_slice(&piece.expect("a piece"));
    }
    assert!(read == large.1, "what is read is what was stored");
    let other = store("tenant-search").await;
    assert_eq!(other.put("ads", &small.0, &small.1).await, Ok(true));
    let listed = operator.list().await.expect("listed");
    let of = |tenant: &str| listed.iter().filter(|it| it.tenant == tenant).count();
    assert_eq!((of("ads"), of("search")), (2, 1), "{listed:?}");
    let viewer = store("user-ads.vera").await;
    let denied = viewer.put("ads", &small.0, &small.1).await;
    assert!(matches!(denied, Err(CodeError::Denied(_))), "{denied:?}");
    let ads = store("tenant-ads").await;
    let wrong = Workdir {
        sha256: "c".repeat(64),
        ..large.0.clone()
    };
    let refused = ads.put("ads", &wrong, &large.1).await.expect_err("wrong");
    assert!(refused.to_string().contains("SHA-256"), "{refused}");
    let much = archive(3_500_000);
    let refused = ads
        .put("ads", &much.0, &much.1)
        .await
        .expect_err("too much");
    assert!(refused.to_string().contains("of the 4 MiB"), "{refused}");
    let listed = operator.list().await.expect("listed");
    let of_ads = listed.iter().filter(|it| it.tenant == "ads");
    assert_eq!(of_ads.count(), 2, "{listed:?}");
    serving.abort();
}

async fn stores(secured: &Secured) {
    let archive: bytes::Bytes = (0..1_400_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let packed = |digit: &str, bytes: &bytes::Bytes| Workdir {
        sha256: digit.repeat(64),
        bytes: bytes.len() as u64,
    };
    let small = bytes::Bytes::from_static(b"small");
    for (operator, digit) in [("operator", "a"), ("operator-olga", "b")] {
        let store = secured.log(operator).await.code();
        let named = packed(digit, &archive);
        for is_new in [true, false] {
            let stored = store.put("ads", &named, &archive).await;
            assert_eq!(stored, Ok(is_new), "{operator}");
        }
        let listed = store.list().await.expect("listed");
        let found = listed.iter().find(|it| it.sha256 == named.sha256);
        let found = found.expect("it is listed");
        assert!(
            found.at.is_some() && found.bytes >= named.bytes,
            "{found:?}"
        );
    }
    let made = secured.log("operator").await;
    let made = made.ensure_readers(&["node-n0".to_owned()]).await;
    made.expect("the agent's reader of the log");
    let settings = Settings {
        reader: Some("node-n0".to_owned()),
        ..secured.settings("node-n0")
    };
    let agent = Log::connect(&settings).await.expect("connects").code();
    let named = packed("a", &archive);
    let mut read = Vec::new();
    while read.len() < archive.len() {
        let piece = agent.piece("ads", &named.sha256, read.len() as u64).await;
        read.extend_from_slice(&piece.expect("a piece"));
    }
    assert!(read == archive, "what is read is what was stored");
    let other = agent.piece("search", &named.sha256, 0).await;
    assert!(matches!(other, Err(CodeError::Absent { .. })), "{other:?}");
    for user in [
        "node-n0",
        "gateway-g0",
        "tenant-ads",
        "user-ads.alice",
        "admission",
    ] {
        let store = secured.log(user).await.code();
        let put = store.put("ads", &packed("c", &small), &small).await;
        assert!(put.is_err(), "{user}: {put:?}");
        assert!(store.remove("ads", &named.sha256).await.is_err(), "{user}");
        if user != "node-n0" {
            let read = store.piece("ads", &named.sha256, 0).await;
            assert!(read.is_err(), "{user}: {read:?}");
        }
    }
    let store = secured.log("operator-olga").await.code();
    store.remove("ads", &named.sha256).await.expect("removed");
    let listed = store.list().await.expect("listed");
    let digests: Vec<_> = listed.iter().map(|it| it.sha256.clone()).collect();
    assert_eq!(digests, ["b".repeat(64)]);
}
