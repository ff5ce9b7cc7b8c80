//! `up`: a whole cluster in one process, over a supervised broker, in one folder.
//!
//! 1. Start the broker and make its streams.
//! 2. Start the deciders and the query service, then one agent per node.
//! 3. Start a local gateway, and the page.
//!
//! All share one connection and one thread. Stopping `up` stops no container: the next `up` on the folder
//! adopts them, with the flags that [`former`] has kept.

pub mod args;
pub mod former;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use dormouse_archive::Archive;
use dormouse_gateway::{Config as GatewayConfig, Gateway, GatewayError, Keep};
use dormouse_messages::ids::IdError;
use dormouse_messages::{Amounts, Build, GatewayId, NodeId, Prefix, Resource, sanitize};
use dormouse_node_agent::{AgentConfig, AgentError, Retention, RuntimeKind};
use dormouse_runtime::{BrokerConfig, BrokerError, Lease, LocalBroker, LocalNodes, Log, Settings};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::build_id;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::serve::archiver;
use crate::serve::service::Service;
use crate::serve::{self, Role, web};
use crate::up::args::{SyncArg, UpArgs};

const SERVICES: [Service; 6] = [
    Service::Admission,
    Service::Optimizer,
    Service::Placer,
    Service::Checkpointer,
    Service::Autoscaler,
    Service::Api,
];

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const GATEWAY_THREADS: usize = 2;

/// Settings of a local cluster.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    pub data: PathBuf,
    pub prefix: Prefix,
    pub nodes: u32,
    pub capacity: Amounts,
    pub runtime: RuntimeKind,
    pub json_status: bool,
    pub sync_always: bool,
    pub port: Option<u16>,
    pub keep: Retention,
    pub gateway: Option<SocketAddr>,
    pub page: Option<SocketAddr>,
    pub path: Vec<PathBuf>,
}

/// A running local cluster.
pub struct LocalCluster {
    pub log: Log,
    pub url: String,
    pub gateway: Option<String>,
    pub page: Option<String>,
    broker: LocalBroker,
    presence: Lease,
    shutdown: CancellationToken,
    parts: JoinSet<anyhow::Result<()>>,
}

impl LocalCluster {
    /// Starts everything, inside the current actix system.
    ///
    /// # Errors
    /// The part that does not start.
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
        let presence = log.present("up", Build::own(&build_id::build()));
        let shutdown = CancellationToken::new();
        let mut parts = JoinSet::new();
        let role = Role {
            data: options.data.clone(),
            local,
            // No other copy waits to take over.
            takeover: Duration::from_secs(2),
            own_thread: false,
            json_status: options.json_status,
            tenant_bytes: options.keep.tenant_bytes,
            broker: Some(options.data.join("broker")),
        };
        start_services(&log, &role, &shutdown, &mut parts)?;
        for index in 0..options.nodes {
            let config = agent(options, node(index)?)?;
            let (log, shutdown) = (log.clone(), shutdown.clone());
            parts.spawn_local(async move { serve::agent::serve(config, log, shutdown).await });
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
            presence,
            shutdown,
            parts,
        })
    }

    /// Waits for an early end of a part.
    ///
    /// # Errors
    /// The reason of the end.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            newer = self.log.outdated() => Err(newer.into()),
            ended = self.parts.join_next() => match ended {
                Some(ended) => ended?,
                None => Ok(()),
            },
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
        self.presence.release().await;
        self.log.close().await;
        self.broker.stop().await;
    }
}

fn start_services(
    log: &Log,
    role: &Role,
    shutdown: &CancellationToken,
    parts: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let own = || (log.clone(), role.clone(), shutdown.clone());
    let archive = Archive::create(&archiver::default_place(&role.data), None)?;
    let (log, role, stop) = own();
    parts.spawn_local(async move { archiver::run(log, archive, &role, stop).await });
    for service in SERVICES {
        let (log, role, stop) = own();
        parts.spawn_local(async move { serve::service::run(service, log, &role, stop).await });
    }
    Ok(())
}

/// Nodes that this run no longer has are lost: their containers end before their jobs start elsewhere.
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
                    sanitize::containers(u32::try_from(ended).unwrap_or(u32::MAX))
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
        cluster: serve::agent::engine_label("dormouse", &options.data),
        ..AgentConfig::local(node, options.capacity.clone(), options.data.clone())
    })
}

/// The gateway trusts every local client. A free port is remembered, so that addresses of services stay.
async fn gateway(options: &LocalOptions, listen: SocketAddr) -> anyhow::Result<Gateway> {
    let name = GatewayId::new("g0")?;
    let config = |listen| GatewayConfig {
        threads: GATEWAY_THREADS,
        keep: Some(Keep::new(
            options.data.join("gateways").join(name.as_str()),
            build_id::build(),
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

/// Names `--gateway` in place of the `--listen` of `serve`.
fn in_words_of_up(error: GatewayError) -> anyhow::Error {
    match error {
        GatewayError::Listen { name, listen, why } => anyhow::anyhow!(
            "the gateway {name} cannot listen at {listen}: {why}; name another address with --gateway"
        ),
        error => error.into(),
    }
}

/// A free port is remembered, as for the gateway.
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

/// Returns this machine's processors and memory, divided among nodes.
#[must_use]
pub fn machine(nodes: u32) -> Amounts {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    let nodes = u64::from(nodes.max(1));
    let mut amounts = Amounts::new();
    amounts.set(Resource::Cpu, cores * 1000 / nodes);
    // An eighth is left to the system; whole MiB are easier to read.
    let bytes = kib.unwrap_or(1 << 20) * 1024 * 7 / 8 / nodes;
    amounts.set(Resource::Memory, bytes >> 20 << 20);
    amounts
}

/// Runs `up`.
///
/// # Errors
/// If a part does not start, or ends.
pub async fn run(context: &Context, args: &UpArgs, parse: former::Parse) -> anyhow::Result<u8> {
    let former::Resolved { args, flags, said } = former::resolve(&context.data, args, parse)?;
    if args.metrics.is_some() && LocalBroker::runs_in(&context.broker_dir()) {
        // A running cluster also occupies the metrics' address, but that error would not help.
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
    // Flags are kept only after a successful start.
    former::keep(&options.data, &flags)?;
    let gateway = cluster.gateway.as_deref().unwrap_or_default();
    let page = cluster.page.as_deref().unwrap_or_default();
    let nodes = match options.nodes {
        0 => "without nodes (`dormouse serve agent` adds one)".to_owned(),
        nodes => format!("of {nodes} × {}", options.capacity),
    };
    let data = context.data_flag();
    print::aside(format!(
        "A cluster {nodes} runs at {}, in {}.\nServices are at {gateway}/<tenant>/<name>/.\nThe page is at {page}\nSubmit a job in another terminal: dormouse submit job.yaml{data}\nStop it here with ^C, or with `dormouse down{data}`; containers run on, and the next `up` adopts them.\nIt trusts its user: jobs run as you, without a sandbox around them.",
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
