//! A container's network in the engine (see [`crate::network`]).
//!
//! 1. The container has the engine's bridge, with published ports.
//! 2. For the node's address a helper container with network rights runs [`SCRIPT`] in that network.
//!    Published ports lead to the new link, and other ports to the node. Traffic from the same node gets the
//!    node's address as source, because libfabric identifies peers by address.
//! 3. A file tells the program that the network is ready.

use std::time::Duration;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, LogsOptions, WaitContainerOptions};
use futures::StreamExt;

use dormouse_agent_core::NotStarted;
use dormouse_messages::events::NodeFault;

use super::starting::refused;
use super::{Inner, body, exit_in};
use crate::container_plan::{ContainerPlan, NodeAddress};
use crate::disk_error::of_jobs_folder;
use crate::network::{LINK, READY, ports};

const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments: the link, the address, the first and the last port. Idempotent.
const SCRIPT: &str = r#"set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
link=$1 node=$2 own=$3:$4
! ip link show "$link" >/dev/null 2>&1 || exit 0
way=$(ip route show default)
way=${way#*via }
way=${way%% *}
mkdir -p /run
iptables -t nat -A PREROUTING -i eth0 -p tcp --dport "$own" -j DNAT --to-destination "$node"
iptables -t nat -A INPUT -i eth0 -s "$way" -p tcp --dport "$own" -j SNAT --to-source "$node"
iptables -t nat -A OUTPUT -p tcp -d "$node" --dport "$own" -j ACCEPT
iptables -t nat -A OUTPUT -p tcp -d "$node" -j DNAT --to-destination "$way"
iptables -t nat -A POSTROUTING -o eth0 -s "$node" -j MASQUERADE
ip link add "$link" type veth peer name "${link}p"
ip link set "${link}p" up
ip link set "$link" up
ip addr add "$node/32" dev "$link""#;

impl Inner {
    /// Gives a new container the node's address if needed, and notifies its program.
    ///
    /// # Errors
    /// The reason why the network is incomplete.
    pub(super) async fn give_address(
        &self,
        name: &str,
        plan: &ContainerPlan,
    ) -> Result<(), NotStarted> {
        let Some(wanted) = &plan.node_address else {
            return Ok(());
        };
        let helper = format!("{name}-network");
        let set = tokio::time::timeout(PATIENCE, self.join_network(&helper, name, plan, wanted));
        let set = set.await;
        let _ = Self::remove(&self.docker, &helper).await;
        set.unwrap_or_else(|_| {
            let why = "the engine did not set up its network in time".to_owned();
            Err(NotStarted::of_node(NodeFault::Engine, why))
        })?;
        let own = self.layout.container_below(&plan.container);
        let below = own.clone();
        tokio::task::spawn_blocking(move || own.make()?.write_read_only(READY, b""))
            .await
            .map_err(|error| NotStarted::from(error.to_string()))?
            .map_err(|error| of_jobs_folder("cannot write", &below, &error))
    }

    async fn join_network(
        &self,
        helper: &str,
        name: &str,
        plan: &ContainerPlan,
        wanted: &NodeAddress,
    ) -> Result<(), NotStarted> {
        let own = ports(plan.port);
        let words = [
            LINK.to_owned(),
            wanted.address.to_string(),
            own.start.to_string(),
            own.end.saturating_sub(1).to_string(),
        ];
        let script = ["-c", SCRIPT, "dormouse"].map(str::to_owned);
        let options = CreateContainerOptions {
            name: Some(helper.to_owned()),
            ..CreateContainerOptions::default()
        };
        let labels = [
            (body::CLUSTER, self.config.cluster.clone()),
            (body::NODE, self.config.node.to_string()),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value));
        let asked = ContainerCreateBody {
            labels: Some(labels.into()),
            image: Some(body::EMPTY_IMAGE.to_owned()),
            entrypoint: Some(vec!["/bin/sh".to_owned()]),
            cmd: Some(script.into_iter().chain(words).collect()),
            host_config: Some(HostConfig {
                network_mode: Some(format!("container:{name}")),
                cap_drop: Some(vec!["ALL".to_owned()]),
                cap_add: Some(vec!["NET_ADMIN".to_owned(), "NET_RAW".to_owned()]),
                mounts: Some(body::system()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let _ = Self::remove(&self.docker, helper).await;
        let docker = &self.docker;
        let created = docker.create_container(Some(options), asked).await;
        created.map_err(|error| refused(plan, &error))?;
        let started = docker.start_container(helper, None).await;
        started.map_err(|error| refused(plan, &error))?;
        let waited = docker.wait_container(helper, None::<WaitContainerOptions>);
        match waited.boxed().next().await {
            Some(Ok(ended)) if ended.status_code == 0 => Ok(()),
            _ => {
                let found = self.inspect(name).await.ok();
                match found.as_ref().and_then(exit_in) {
                    Some(_) => Err("it ended before its network was set up".into()),
                    None => Err(self.not_joined(helper).await),
                }
            }
        }
    }

    async fn not_joined(&self, helper: &str) -> NotStarted {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            ..LogsOptions::default()
        };
        let said = self.docker.logs(helper, Some(options));
        let said: Vec<String> = said
            .filter_map(|it| async { it.ok().map(|it| it.to_string()) })
            .collect()
            .await;
        let said = said.concat();
        let why = format!(
            "its network cannot be set up: {}; the node needs ip (iproute2) and iptables, or grant the node's network (dormouse tenant grant TENANT --network host)",
            said.trim()
        );
        NotStarted::of_node(NodeFault::Engine, why)
    }
}
