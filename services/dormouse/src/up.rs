//! `up`: a whole cluster in one process, over a supervised broker, in one folder.
//!
//! 1. The broker is started (or its last run's successor), its streams are made.
//! 2. The four deciders and the query service follow the log.
//! 3. One agent a node joins.
//! 4. A gateway on this machine's own address leads to services, a page beside it shows the
//!    cluster.
//!
//! The same services as on a cluster, over the same log, with one connection and on one thread.
//! Stopping it stops no container: the next `up` on the same folder adopts what still runs, and is
//! of the same size ([`former`]).

pub mod former;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use dormouse_gateway::{Config as GatewayConfig, Gateway, GatewayError, Keep};
use dormouse_messages::ids::IdError;
use dormouse_messages::{Amounts, GatewayId, NodeId, Prefix, Resource, plain};
use dormouse_node_agent::{AgentConfig, AgentError, Retention, RuntimeKind};
use dormouse_runtime::{BrokerConfig, BrokerError, LocalBroker, LocalNodes, Log, Settings};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{ServiceArg, SyncArg, UpArgs};
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::serve::{self, Role};
use crate::web;

/// What `up` runs beside agents, gateway and page.
const SERVICES: [ServiceArg; 6] = [
    ServiceArg::Admission,
    ServiceArg::Optimizer,
    ServiceArg::Placer,
    ServiceArg::Checkpointer,
    ServiceArg::Autoscaler,
    ServiceArg::Api,
];

/// Any free port of this machine's own address.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The threads of its gateway: one person's requests.
const GATEWAY_THREADS: usize = 2;

/// What a local cluster is made of.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Folder of everything.
    pub data: PathBuf,
    /// First token of every subject.
    pub prefix: Prefix,
    /// How many nodes.
    pub nodes: u32,
    /// What each offers.
    pub capacity: Amounts,
    /// What runs the containers.
    pub runtime: RuntimeKind,
    /// Whether tenants are shown their events in JSON too.
    pub json_status: bool,
    /// Whether the broker writes before every acknowledgement.
    pub sync_always: bool,
    /// The broker's port.
    pub port: Option<u16>,
    /// What the nodes keep.
    pub keep: Retention,
    /// Where the gateway listens; `None`: none.
    pub gateway: Option<SocketAddr>,
    /// Where the page listens; `None`: none.
    pub page: Option<SocketAddr>,
    /// First in the `PATH` of plain processes.
    pub path: Vec<PathBuf>,
}

/// A running local cluster.
pub struct LocalCluster {
    /// Its log, which all its parts follow together.
    pub log: Log,
    /// Its broker's address.
    pub url: String,
    /// Its gateway's address, where it has one.
    pub gateway: Option<String>,
    /// Its page's address, where it has one.
    pub page: Option<String>,
    broker: LocalBroker,
    shutdown: CancellationToken,
    parts: JoinSet<anyhow::Result<()>>,
}

impl LocalCluster {
    /// Starts everything, in the actix system that it is called in.
    ///
    /// # Errors
    /// The part that does not start, with what to do.
    ///
    /// # Panics
    /// Outside of an actix system.
    pub async fn start(options: &LocalOptions) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&options.data).with_context(|| {
            let data = options.data.display();
            format!("{data} cannot be the folder of a cluster; name another with --data")
        })?;
        dormouse_node_agent::check_runtime(options.runtime).await?;
        let broker = LocalBroker::start(BrokerConfig {
            port: options.port,
            sync_always: options.sync_always,
            ..BrokerConfig::new(options.data.join("broker"))
        })
        .await?;
        let local = LocalNodes {
            present: (0..options.nodes).map(node).collect::<Result<_, _>>()?,
            gone: end_former_nodes(options).await?,
        };
        let url = broker.url().to_owned();
        let settings = Settings {
            prefix: options.prefix.clone(),
            ..Settings::new(url.clone(), "dormouse-up")
        };
        let log = Log::connect(&settings).await?;
        log.ensure_streams().await?;
        let shutdown = CancellationToken::new();
        let mut parts = JoinSet::new();
        for service in SERVICES {
            let role = Role {
                data: options.data.clone(),
                local: local.clone(),
                // Alone in its folder: nobody else is to take over.
                takeover: Duration::from_secs(2),
                own_thread: false,
                json_status: options.json_status,
                tenant_bytes: options.keep.tenant_bytes,
            };
            let (log, shutdown) = (log.clone(), shutdown.clone());
            parts.spawn_local(async move { serve::service(service, log, &role, shutdown).await });
        }
        for index in 0..options.nodes {
            let config = agent(options, node(index)?)?;
            let (log, shutdown) = (log.clone(), shutdown.clone());
            parts.spawn_local(async move { serve::agent(config, log, shutdown).await });
        }
        let gateway = match options.gateway {
            Some(listen) => {
                let gateway = gateway(options, listen).await?;
                let address = gateway.address().to_owned();
                let (log, shutdown) = (log.clone(), shutdown.clone());
                parts.spawn_local(async move { Ok(gateway.run(log, shutdown).await?) });
                Some(address)
            }
            None => None,
        };
        let page = match options.page {
            Some(listen) => Some(start_page(options, listen, &log, &shutdown, &mut parts)?),
            None => None,
        };
        Ok(Self {
            log,
            url,
            gateway,
            page,
            broker,
            shutdown,
            parts,
        })
    }

    /// Waits until a part ends by itself: an error, unless it was shut down.
    ///
    /// # Errors
    /// Why it ended.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        match self.parts.join_next().await {
            Some(ended) => ended?,
            None => Ok(()),
        }
    }

    /// Stops services, agents and broker; containers run on.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let all = async { while self.parts.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(10), all)
            .await
            .is_err()
        {
            tracing::warn!("some services did not stop within 10 s");
        }
        self.log.close().await;
        self.broker.stop().await;
    }
}

/// The nodes that an earlier run had and this one has not are lost: what still runs there ends
/// before their jobs start elsewhere. Says which they are.
async fn end_former_nodes(options: &LocalOptions) -> anyhow::Result<BTreeSet<NodeId>> {
    let present: Vec<NodeId> = (0..options.nodes).map(node).collect::<Result<_, _>>()?;
    let mut gone = BTreeSet::new();
    let Ok(folders) = std::fs::read_dir(options.data.join("nodes")) else {
        return Ok(gone);
    };
    for folder in folders {
        let name = folder?.file_name();
        let Some(Ok(node)) = name.to_str().map(NodeId::new) else {
            continue;
        };
        if present.contains(&node) {
            continue;
        }
        match dormouse_node_agent::abandon(&agent(options, node.clone())?).await {
            Ok(0) => drop(gone.insert(node)),
            Ok(ended) => {
                print::aside(format!(
                    "{node} is not of this start: the {} that ran there ended, and start elsewhere.",
                    plain::containers(u32::try_from(ended).unwrap_or(u32::MAX))
                ));
                tracing::warn!(%node, containers = ended, "ended what ran on a node that this cluster no longer has");
                gone.insert(node);
            }
            Err(AgentError::Locked(_)) => tracing::warn!(%node, "another agent runs this node"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(gone)
}

fn node(index: u32) -> Result<NodeId, IdError> {
    NodeId::new(format!("n{index}"))
}

fn agent(options: &LocalOptions, node: NodeId) -> anyhow::Result<AgentConfig> {
    Ok(AgentConfig {
        runtime: options.runtime,
        fenced: false,
        keep: options.keep,
        own_thread: false,
        path: options.path.clone(),
        working_dir: Some(std::env::current_dir()?),
        // The next `up` on this folder finds its Docker containers by this label.
        cluster: serve::engine_label("dormouse", &options.data),
        ..AgentConfig::local(node, options.capacity.clone(), options.data.clone())
    })
}

/// The gateway, which believes everybody on this machine. A free port is remembered, so that
/// addresses of services stay.
async fn gateway(options: &LocalOptions, listen: SocketAddr) -> anyhow::Result<Gateway> {
    let name = GatewayId::new("g0")?;
    let config = |listen| GatewayConfig {
        threads: GATEWAY_THREADS,
        keep: Some(Keep::new(
            options.data.join("gateways").join(name.as_str()),
            serve::build(),
        )),
        grace: Duration::from_secs(5),
        ..GatewayConfig::new(name.clone(), listen)
    };
    if listen.port() != 0 {
        return Gateway::bind(config(listen)).await.map_err(in_words_of_up);
    }
    let file = options.data.join("gateway-port");
    let known = std::fs::read_to_string(&file).ok();
    let known = known.and_then(|port| port.trim().parse().ok());
    if let Some(port) = known
        && let Ok(gateway) = Gateway::bind(config(SocketAddr::new(listen.ip(), port))).await
    {
        return Ok(gateway);
    }
    let gateway = Gateway::bind(config(listen)).await?;
    std::fs::write(file, gateway.listens_at()?.port().to_string())?;
    Ok(gateway)
}

/// A gateway of its own is told with `--listen` where it listens.
fn in_words_of_up(error: GatewayError) -> anyhow::Error {
    match error {
        GatewayError::Listen { name, listen, why } => anyhow::anyhow!(
            "the gateway {name} cannot listen at {listen}: {why}; name another address with --gateway"
        ),
        error => error.into(),
    }
}

/// The page: its server, and what reads the log for it once somebody looks. A free port is
/// remembered, as the gateway's is.
fn start_page(
    options: &LocalOptions,
    listen: SocketAddr,
    log: &Log,
    shutdown: &CancellationToken,
    parts: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<String> {
    let file = options.data.join("page-port");
    let known = std::fs::read_to_string(&file).ok();
    let known = known.and_then(|port| port.trim().parse().ok());
    let again = known.filter(|_| listen.port() == 0);
    let again = again.and_then(|port| web::local(SocketAddr::new(listen.ip(), port), log).ok());
    let (server, page) = match again {
        Some(bound) => bound,
        None => web::local(listen, log)?,
    };
    std::fs::write(file, server.address().port().to_string())?;
    let url = server.url();
    let (log, stop) = (log.clone(), shutdown.clone());
    parts.spawn_local(async move {
        tokio::select! {
            read = web::follow(&log, &page) => read,
            () = stop.cancelled() => Ok(()),
        }
    });
    let stop = shutdown.clone();
    parts.spawn_local(async move { Ok(server.run(stop).await?) });
    Ok(url)
}

/// This machine's processors and memory, divided among `nodes`.
fn machine(nodes: u32) -> Amounts {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    let nodes = u64::from(nodes.max(1));
    let mut amounts = Amounts::new();
    amounts.set(Resource::Cpu, cores * 1000 / nodes);
    // An eighth is left to the system and to Dormouse itself; whole MiB are easier to read.
    let bytes = kib.unwrap_or(1 << 20) * 1024 * 7 / 8 / nodes;
    amounts.set(Resource::Memory, bytes >> 20 << 20);
    amounts
}

/// `up`.
///
/// # Errors
/// When a part does not start, or ends.
pub async fn run(context: &Context, args: &UpArgs) -> anyhow::Result<u8> {
    let former::Resolved { args, flags, said } = former::resolve(&context.data, args)?;
    if args.metrics.is_some() && LocalBroker::runs_in(&context.broker_dir()) {
        // Its metrics have the address, too: that would be said first, and helps nobody.
        return Err(BrokerError::InUse(context.broker_dir()).into());
    }
    let _telemetry = serve::telemetry("dormouse", args.metrics)?;
    if let Some(said) = said {
        print::aside(said);
    }
    let options = LocalOptions {
        data: context.data.clone(),
        prefix: context.global().prefix.clone(),
        nodes: args.nodes,
        capacity: args.capacity.clone().unwrap_or_else(|| machine(args.nodes)),
        runtime: args.runtime.into(),
        json_status: args.json_status,
        sync_always: args.sync == SyncArg::Always,
        port: args.port,
        keep: args.keep.retention(),
        gateway: Some(args.gateway.unwrap_or(ANY_PORT)),
        page: Some(args.page.unwrap_or(ANY_PORT)),
        path: Vec::new(),
    };
    let mut cluster = LocalCluster::start(&options).await?;
    // Not earlier: what it cannot start with is not kept.
    former::keep(&options.data, &flags)?;
    let gateway = cluster.gateway.as_deref().unwrap_or_default();
    let page = cluster.page.as_deref().unwrap_or_default();
    let nodes = match options.nodes {
        0 => "without nodes (`dormouse serve agent` adds one)".to_owned(),
        nodes => format!("of {nodes} × {}", options.capacity),
    };
    let data = context.data_flag();
    print::aside(format!(
        "A cluster {nodes} runs at {}, in {}.\nServices are at {gateway}/<tenant>/<name>/.\nThe page is at {page}\nSubmit a job in another terminal: dormouse submit job.yaml{data}\nStop it here with ^C, or with `dormouse down{data}`; containers run on, and the next `up` adopts them.\nIt trusts its user: jobs run as you, without walls around them.",
        cluster.url,
        options.data.display()
    ));
    let ended = tokio::select! {
        ended = cluster.ended() => ended,
        () = serve::asked_to_stop() => Ok(()),
    };
    print::aside("Stopping.");
    cluster.stop().await;
    print::aside("Stopped.");
    ended.map(|()| DONE)
}
