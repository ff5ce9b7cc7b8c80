//! Exports, imports and permissions of each account. Pure. The services' account exports to all signed
//! accounts; an account's signed imports limit its share.

use dormouse_messages::subject::VERBS;
use dormouse_messages::who::is_user;
use dormouse_messages::{GatewayId, NodeId, Prefix, Role, TenantId};

use crate::key_identity::USER_INFO;
use crate::streams::STREAMS_LEASE;

/// Serialises changes of accounts.
pub(crate) const LEASE: &str = "accounts";

/// Services with a key each.
pub const SERVICES: [&str; 10] = [
    "admission",
    "optimizer",
    "placer",
    "checkpointer",
    "autoscaler",
    "archiver",
    "slurm",
    "api",
    "webhook",
    "operator",
];

/// Owner of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// The brokers' own account.
    System,
    /// The services, whose account holds the streams.
    Control,
    Node(NodeId),
    Gateway(GatewayId),
    /// A tenant's key, for programs.
    Tenant(TenantId),
    /// A person of a tenant.
    Person {
        tenant: TenantId,
        user: String,
        /// Viewer or submitter.
        role: Role,
    },
    /// A named operator.
    Operator(String),
}

impl Principal {
    /// Returns the name of the account and its key.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::System => "sys".to_owned(),
            Self::Control => "control".to_owned(),
            Self::Node(node) => format!("node-{node}"),
            Self::Gateway(gateway) => format!("gateway-{gateway}"),
            Self::Tenant(tenant) => format!("tenant-{tenant}"),
            Self::Person { tenant, user, .. } => format!("user-{tenant}.{user}"),
            Self::Operator(user) => format!("operator-{user}"),
        }
    }

    /// Parses `node-n0`, `gateway-g0`, `operator-olga`.
    ///
    /// # Errors
    /// When the name is invalid.
    pub fn of_cluster(name: &str) -> Result<Self, String> {
        let (kind, rest) = name.split_once('-').unwrap_or((name, ""));
        match kind {
            "node" => NodeId::new(rest)
                .map(Self::Node)
                .map_err(|it| it.to_string()),
            "gateway" => GatewayId::new(rest)
                .map(Self::Gateway)
                .map_err(|it| it.to_string()),
            "operator" if is_user(rest) => Ok(Self::Operator(rest.to_owned())),
            "operator" => Err(format!(
                "{rest:?} cannot be an operator's name; it has lower-case letters, digits and `-`"
            )),
            _ => Err(format!(
                "{name:?} is not of the form node-n0, gateway-g0 or operator-olga"
            )),
        }
    }
}

/// Returns the account's owner, if the tenant or one of its people.
#[must_use]
pub fn of_tenant(tenant: &TenantId, name: &str, role: Option<&str>) -> Option<Principal> {
    let own = Principal::Tenant(tenant.clone());
    if own.name() == name {
        return Some(own);
    }
    let user = name.strip_prefix(&format!("user-{tenant}."))?;
    let role = role.and_then(|role| role.parse().ok());
    Some(Principal::Person {
        tenant: tenant.clone(),
        user: user.to_owned(),
        role: role.unwrap_or(Role::Viewer),
    })
}

/// Limits of an account, so that none exhausts the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub connections: u32,
    pub subscriptions: u32,
    pub payload_bytes: u32,
}

impl Limits {
    /// One subscription for answers, and one per watched job.
    const PROGRAMS: Self = Self {
        connections: 256,
        subscriptions: 1_000,
        payload_bytes: PAYLOAD_BYTES,
    };

    const PERSON: Self = Self {
        connections: 64,
        subscriptions: 1_000,
        payload_bytes: PAYLOAD_BYTES,
    };
}

/// Above the ingress's limit, so that a slightly longer message gets an answer; beyond, the broker
/// disconnects.
pub(crate) const PAYLOAD_BYTES: u32 = 2 << 20;

impl Principal {
    /// Returns the account's limits; `None` for trusted accounts.
    #[must_use]
    pub const fn limits(&self) -> Option<Limits> {
        match self {
            Self::Tenant(_) => Some(Limits::PROGRAMS),
            Self::Person { .. } => Some(Limits::PERSON),
            Self::System | Self::Control | Self::Node(_) | Self::Gateway(_) | Self::Operator(_) => {
                None
            }
        }
    }
}

/// Kind of an export or import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Requests with one answer.
    Service,
    /// Requests with many answers.
    Streamed,
    Stream,
}

/// Subjects that an account offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub kind: Kind,
    pub subject: String,
}

/// Subjects that an account takes from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub kind: Kind,
    pub from: Principal,
    pub subject: String,
    pub local: String,
}

/// Permissions of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
    pub answers: bool,
}

/// Exports and imports of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub holds_streams: bool,
    pub exports: Vec<Export>,
    pub imports: Vec<Import>,
}

struct Names<'a> {
    prefix: &'a Prefix,
    log: String,
    ingress: String,
    code: String,
    states: String,
    leases: String,
}

impl<'a> Names<'a> {
    fn new(prefix: &'a Prefix) -> Self {
        Self {
            prefix,
            log: prefix.log_stream(),
            ingress: prefix.ingress_stream(),
            code: prefix.code_stream(),
            states: prefix.states_stream(),
            leases: format!("KV_{}", prefix.lease_bucket()),
        }
    }

    fn of(&self, rest: &str) -> String {
        format!("{}.{rest}", self.prefix.as_str())
    }

    fn lease(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.prefix.lease_bucket())
    }

    fn looks(stream: &str) -> [String; 2] {
        ["STREAM.INFO", "STREAM.MSG.GET"].map(|call| format!("$JS.API.{call}.{stream}"))
    }

    fn reads(stream: &str) -> Vec<String> {
        let mut calls = Self::looks(stream).to_vec();
        for call in ["DIRECT.GET", "CONSUMER.CREATE"] {
            calls.push(format!("$JS.API.{call}.{stream}"));
            calls.push(format!("$JS.API.{call}.{stream}.>"));
        }
        let more = ["CONSUMER.INFO", "CONSUMER.MSG.NEXT", "CONSUMER.DELETE"];
        calls.extend(more.map(|call| format!("$JS.API.{call}.{stream}.>")));
        calls
    }

    /// Returns the calls of an agent or gateway; `name` is its reader, `*` for all.
    fn own_asks(&self, name: &str) -> Vec<(Kind, String)> {
        let (log, leases) = (&self.log, &self.leases);
        let mut asks: Vec<(Kind, String)> = Self::looks(log)
            .into_iter()
            .chain(Self::looks(leases))
            .map(|subject| (Kind::Service, subject))
            .collect();
        asks.push((Kind::Streamed, format!("$JS.API.DIRECT.GET.{log}")));
        asks.push((Kind::Service, self.states_read()));
        for (kind, call) in [
            (Kind::Service, "CONSUMER.INFO"),
            (Kind::Service, "CONSUMER.RESET"),
            (Kind::Streamed, "CONSUMER.MSG.NEXT"),
        ] {
            asks.push((kind, format!("$JS.API.{call}.{log}.{name}")));
        }
        asks
    }

    fn code_read(&self) -> String {
        format!("$JS.API.DIRECT.GET.{}.>", self.code)
    }

    fn states_read(&self) -> String {
        format!("$JS.API.DIRECT.GET.{}.>", self.states)
    }

    /// Returns the calls of the archiver: it writes states, removes old ones, and trims the log.
    fn trims(&self) -> [String; 4] {
        [
            self.prefix.states(),
            format!("$JS.API.STREAM.PURGE.{}", self.states),
            format!("$JS.API.STREAM.PURGE.{}", self.log),
            format!("$JS.API.CONSUMER.LIST.{}", self.log),
        ]
    }

    /// Returns the calls to store, list and remove packed folders; publishing is separate.
    fn code_kept(&self) -> [String; 3] {
        let call = |call: &str| format!("$JS.API.STREAM.{call}.{}", self.code);
        [self.code_read(), call("INFO"), call("PURGE")]
    }

    /// Maps a `$JS.API` subject to the account's own.
    fn local(&self, subject: &str) -> String {
        let call = subject.strip_prefix("$JS.API").unwrap_or(subject);
        format!("{}{call}", self.prefix.own_api())
    }
}

fn export(kind: Kind, subject: String) -> Export {
    Export { kind, subject }
}

fn control(kind: Kind, subject: String, local: String) -> Import {
    Import {
        kind,
        from: Principal::Control,
        subject,
        local,
    }
}

fn same(kind: Kind, subject: String) -> Import {
    control(kind, subject.clone(), subject)
}

fn answers(names: &Names<'_>, node: &str) -> [String; 2] {
    ["api", "tenant.*.api"].map(|of| names.of(&format!("{of}.*.{node}")))
}

/// Measurements are for programs.
fn asked_by_people() -> impl Iterator<Item = &'static str> {
    VERBS.into_iter().filter(|verb| *verb != "measured")
}

/// Viewers see output, but neither run programs nor get a notebook's token.
const fn queries_of(role: Role) -> &'static [&'static str] {
    match role {
        Role::Viewer => &["*", "containers.*", "logs.*"],
        Role::Submitter | Role::Operator => &[">"],
    }
}

/// Returns the plan of the services' account with these agents.
#[must_use]
pub fn control_plan(prefix: &Prefix, nodes: &[NodeId]) -> Plan {
    let names = Names::new(prefix);
    let mut exports = Vec::new();
    for subject in prefix.ingress() {
        exports.push(export(Kind::Service, subject));
    }
    for subject in [
        "tenant.*.api.>",
        "api.>",
        "log.node.*.>",
        "log.gateway.*.>",
        "log.operator.*.>",
    ] {
        exports.push(export(Kind::Service, names.of(subject)));
    }
    exports.push(export(Kind::Stream, names.of("status.>")));
    for lease in ["node.*", "gateway.*"] {
        exports.push(export(Kind::Service, names.lease(lease)));
    }
    let asks = names.own_asks("*").into_iter();
    exports.extend(asks.map(|(kind, subject)| export(kind, subject)));
    let code = names.code_kept().into_iter().chain([prefix.code()]);
    exports.extend(code.map(|subject| export(Kind::Service, subject)));
    let imports = nodes.iter().flat_map(|node| {
        let from = Principal::Node(node.clone());
        answers(&names, node.as_str()).map(|subject| Import {
            kind: Kind::Service,
            from: from.clone(),
            local: subject.clone(),
            subject,
        })
    });
    Plan {
        holds_streams: true,
        exports,
        imports: imports.collect(),
    }
}

/// Returns the plan of another account.
#[must_use]
pub fn plan(prefix: &Prefix, principal: &Principal) -> Plan {
    let names = Names::new(prefix);
    let (exports, imports) = match principal {
        Principal::System | Principal::Control => (Vec::new(), Vec::new()),
        Principal::Node(node) => {
            let answers = answers(&names, node.as_str());
            let exports = answers
                .map(|subject| export(Kind::Service, subject))
                .to_vec();
            (exports, node_imports(&names, node, &principal.name()))
        }
        Principal::Gateway(gateway) => {
            let imports = writer(&names, &format!("gateway.{gateway}"), &principal.name());
            (Vec::new(), imports)
        }
        Principal::Tenant(tenant) => {
            let plain = VERBS.map(|verb| same(Kind::Service, prefix.submit(tenant, verb)));
            (Vec::new(), with_queries(&names, tenant, plain.to_vec()))
        }
        Principal::Person { tenant, user, role } => {
            let asked = asked_by_people().filter(|_| *role == Role::Submitter);
            let asked = asked.map(|verb| {
                let subject = prefix.submit_by(tenant.as_str(), verb, *role, user);
                control(Kind::Service, subject, prefix.submit(tenant, verb))
            });
            (Vec::new(), with_queries(&names, tenant, asked.collect()))
        }
        Principal::Operator(user) => (Vec::new(), operator(&names, user)),
    };
    Plan {
        holds_streams: false,
        exports,
        imports,
    }
}

/// Returns the imports of an agent or gateway: `of` is `node.n0`, `reader` its consumer.
fn writer(names: &Names<'_>, of: &str, reader: &str) -> Vec<Import> {
    let mut imports = vec![
        same(Kind::Service, names.of(&format!("log.{of}.>"))),
        same(Kind::Service, names.lease(of)),
    ];
    for (kind, subject) in names.own_asks(reader) {
        let local = names.local(&subject);
        imports.push(control(kind, subject, local));
    }
    imports
}

fn node_imports(names: &Names<'_>, node: &NodeId, reader: &str) -> Vec<Import> {
    let mut imports = writer(names, &format!("node.{node}"), reader);
    let (subject, kind) = (names.code_read(), Kind::Service);
    let local = names.local(&subject);
    imports.push(control(kind, subject, local));
    imports
}

fn with_queries(names: &Names<'_>, tenant: &TenantId, mut imports: Vec<Import>) -> Vec<Import> {
    imports.push(same(
        Kind::Service,
        names.of(&format!("tenant.{tenant}.api.>")),
    ));
    imports.push(same(Kind::Stream, names.of(&format!("status.{tenant}.>"))));
    imports
}

fn operator(names: &Names<'_>, user: &str) -> Vec<Import> {
    let (log, prefix) = (&names.log, names.prefix);
    let mut imports = vec![control(
        Kind::Service,
        names.of(&format!("log.operator.{user}.>")),
        names.of("log.operator.0.>"),
    )];
    imports.extend(asked_by_people().map(|verb| {
        let subject = prefix.submit_by("*", verb, Role::Operator, user);
        control(Kind::Service, subject, names.of(&format!("in.*.{verb}")))
    }));
    imports.push(same(Kind::Service, names.of("api.>")));
    let asks = Names::looks(log).map(|subject| (Kind::Service, subject));
    let ranges = (Kind::Streamed, format!("$JS.API.DIRECT.GET.{log}"));
    let states = (Kind::Service, names.states_read());
    for (kind, subject) in asks.into_iter().chain([ranges, states]) {
        let local = names.local(&subject);
        imports.push(control(kind, subject, local));
    }
    for subject in names.code_kept() {
        let local = names.local(&subject);
        imports.push(control(Kind::Service, subject, local));
    }
    imports.push(same(Kind::Service, prefix.code()));
    imports.push(same(Kind::Stream, names.of("status.>")));
    imports
}

/// Returns the permissions of an account's only user.
#[must_use]
pub fn permissions(prefix: &Prefix, principal: &Principal) -> Permissions {
    let names = Names::new(prefix);
    let mut subscribe = vec!["_INBOX.>".to_owned()];
    let (publish, heard, answered): (Vec<String>, Vec<String>, bool) = match principal {
        Principal::System => (
            vec!["$SYS.REQ.>".to_owned()],
            vec!["$SYS.>".to_owned()],
            false,
        ),
        Principal::Control => (Vec::new(), Vec::new(), false),
        Principal::Node(node) => (
            own(&names, &format!("node.{node}")),
            answers(&names, node.as_str()).to_vec(),
            true,
        ),
        Principal::Gateway(gateway) => {
            (own(&names, &format!("gateway.{gateway}")), Vec::new(), true)
        }
        Principal::Tenant(tenant) => {
            let publish = [format!("in.{tenant}.*"), format!("tenant.{tenant}.api.>")];
            let mut publish = publish.map(|subject| names.of(&subject)).to_vec();
            publish.push(USER_INFO.to_owned());
            (
                publish,
                vec![names.of(&format!("status.{tenant}.>"))],
                false,
            )
        }
        Principal::Person { tenant, role, .. } => {
            let asked = asked_by_people().filter(|_| *role == Role::Submitter);
            let mut publish: Vec<String> = asked.map(|verb| prefix.submit(tenant, verb)).collect();
            let queries = queries_of(*role).iter();
            publish.extend(queries.map(|it| names.of(&format!("tenant.{tenant}.api.{it}"))));
            publish.push(USER_INFO.to_owned());
            (
                publish,
                vec![names.of(&format!("status.{tenant}.>"))],
                false,
            )
        }
        Principal::Operator(_) => {
            let mut publish = vec![
                format!("$JS.API.STREAM.INFO.{}", names.log),
                format!("{}.>", prefix.own_api()),
                USER_INFO.to_owned(),
            ];
            publish.push(names.of("log.operator.0.>"));
            publish.extend(asked_by_people().map(|verb| names.of(&format!("in.*.{verb}"))));
            publish.push(names.of("api.>"));
            publish.push(prefix.code());
            (publish, vec![names.of("status.>")], false)
        }
    };
    subscribe.extend(heard);
    Permissions {
        publish,
        subscribe,
        answers: answered,
    }
}

fn own(names: &Names<'_>, of: &str) -> Vec<String> {
    vec![
        names.of(&format!("log.{of}.>")),
        names.lease(of),
        format!("{}.>", names.prefix.own_api()),
    ]
}

/// Returns the permissions of a service's user.
#[must_use]
pub fn service_permissions(prefix: &Prefix, service: &str) -> Permissions {
    let names = Names::new(prefix);
    let (log, ingress, leases) = (&names.log, &names.ingress, &names.leases);
    let leased = |key: &str| [names.lease(key), names.lease(&format!("{key}.>"))];
    let mut publish = vec!["$JS.API.INFO".to_owned()];
    let mut subscribe = vec!["_INBOX.>".to_owned()];
    publish.extend(Names::reads(log));
    publish.extend(Names::looks(leases));
    publish.push(names.states_read());
    match service {
        "api" => {
            subscribe.extend(["api.>", "tenant.*.api.>"].map(|it| names.of(it)));
            subscribe.push("$SRV.>".to_owned());
            publish.extend(Names::looks(ingress));
            publish.extend(["in.*.*", "status.>"].map(|it| names.of(it)));
            publish.extend(leased("status"));
            publish.push(prefix.code());
            publish.extend(names.code_kept());
        }
        "webhook" => publish.extend(leased("webhooks")),
        "operator" => {
            subscribe.push(names.of("status.>"));
            publish.push(USER_INFO.to_owned());
            publish.extend(["log.operator.0.>", "in.*.*", "api.>"].map(|it| names.of(it)));
            publish.push("$SRV.>".to_owned());
            publish.push(prefix.code());
            publish.extend(names.code_kept());
            publish.extend(Names::reads(ingress));
            publish.extend(Names::reads(leases));
            publish.extend([STREAMS_LEASE, LEASE].map(|key| names.lease(key)));
            let calls = ["CREATE.*", "UPDATE.*", "LIST", "NAMES"];
            publish.extend(calls.map(|call| format!("$JS.API.STREAM.{call}")));
        }
        writer => {
            publish.push(names.of(&format!("log.{writer}.>")));
            publish.extend(leased(writer));
            match writer {
                "admission" => {
                    publish.extend(Names::reads(ingress));
                    publish.push(format!("$JS.API.STREAM.PURGE.{ingress}"));
                }
                "archiver" => publish.extend(names.trims()),
                "placer" => publish.extend(Names::reads(leases)),
                _ => {}
            }
        }
    }
    Permissions {
        publish,
        subscribe,
        answers: service == "api",
    }
}

#[cfg(test)]
mod tests;
