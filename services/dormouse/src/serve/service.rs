//! The services with a state: deciders and the query service.

use std::time::Duration;

use dormouse_admission::{Admission, AdmissionState, rate_limited, recorded};
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::events::{GatewayLost, NodeLost};
use dormouse_messages::{Decider, Event};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use dormouse_runtime::{
    IngressSource, Inputs, IntakeOf, LeaseWatcher, Log, Lost, LostGateway, ServiceOptions, Watched,
    run_service,
};
use dormouse_state::{ClusterState, NodePhase};
use tokio_util::sync::CancellationToken;

use super::api;
use super::forecaster::Forecaster;
use super::role::Role;
use crate::build_id;

/// A service with a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Admission,
    Optimizer,
    Placer,
    Checkpointer,
    Autoscaler,
    Api,
}

impl Service {
    /// Returns the service's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Optimizer => "optimizer",
            Self::Placer => "placer",
            Self::Checkpointer => "checkpointer",
            Self::Autoscaler => "autoscaler",
            Self::Api => "api",
        }
    }
}

/// Runs a service until `shutdown`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(
    service: Service,
    log: Log,
    role: &Role,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    match service {
        Service::Admission => {
            let intake = IntakeOf {
                stand: AdmissionState::stand,
                received: recorded,
                rate_limited,
            };
            let ingress = IngressSource::new(log.clone(), intake);
            decider(Admission, log, role, Some(Box::new(ingress)), shutdown).await
        }
        Service::Optimizer => {
            let forecaster = Forecaster::start(log.clone());
            decider(
                Optimizer::default(),
                log,
                role,
                Some(Box::new(forecaster)),
                shutdown,
            )
            .await
        }
        Service::Placer => {
            let leases = LeaseWatcher::new(&log, role.local.clone(), watched, lost, lost_gateway);
            decider(Placer, log, role, Some(Box::new(leases)), shutdown).await
        }
        Service::Checkpointer => decider(Checkpointer::default(), log, role, None, shutdown).await,
        Service::Autoscaler => decider(Autoscaler, log, role, None, shutdown).await,
        Service::Api => api::run(log, role, shutdown).await,
    }
}

/// Runs a decider until `shutdown`.
///
/// # Errors
/// The reason of an early end.
pub(super) async fn decider<D: Decider>(
    decider: D,
    log: Log,
    role: &Role,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let options = ServiceOptions {
        lease_ttl: role.takeover,
        own_thread: role.own_thread,
        // Three services fold the same state to different positions.
        snapshot_dir: Some(role.data.join("snapshots").join(D::WRITER.as_str())),
        build: build_id::build(),
        ..ServiceOptions::default()
    };
    run_service(decider, log, options, inputs, shutdown).await?;
    Ok(())
}

fn watched(state: &ClusterState) -> Watched {
    let up = state
        .nodes
        .iter()
        .filter(|(_, node)| node.phase == NodePhase::Up);
    let up = up.map(|(name, node)| (name.clone(), node.incarnation));
    Watched {
        ttl: Duration::from_millis(state.policy.lease().lease_ms),
        expected: up.collect(),
        gateway_ttl: dormouse_gateway::LEASE,
        gateways: state.gateways.iter().cloned().collect(),
        builds: state.builds.builds(),
    }
}

fn lost_gateway(lost: LostGateway) -> Event {
    Event::from(GatewayLost {
        gateway: lost.gateway,
        last_seen: lost.last_seen,
    })
}

fn lost(lost: Lost) -> Event {
    Event::from(NodeLost {
        node: lost.node,
        incarnation: lost.incarnation,
        last_seen: lost.last_seen,
    })
}
