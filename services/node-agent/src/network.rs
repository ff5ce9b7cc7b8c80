//! The reachability of Docker containers with their own network. Pure.
//!
//! - Ports are published on the node under equal numbers.
//! - MPICH and MXNet listen on the address that they announce, so their containers get the node's address too
//!   ([`NodeAddress`], set by `docker::network`).
//! - gloo and NCCL pick arbitrary ports. Between nodes they need the node's network.
//!
//! An overlay network would need all engines in one swarm. A short container with `NET_ADMIN` sets the address,
//! because the agent itself may run in a container.

use std::net::IpAddr;
use std::path::Path;

use dormouse_messages::events::PORTS_PER_CONTAINER;
use dormouse_messages::grants::Network;
use dormouse_messages::job::Executor;

use crate::config::{AgentConfig, RuntimeKind};
use crate::container_plan::NodeAddress;
use crate::executor::Member;

/// File in a container's directory that marks the network as ready.
pub const READY: &str = "network";

/// The link with the node's address.
pub const LINK: &str = "dormouse0";

/// Returns the ports of a container.
#[must_use]
pub fn ports(first: u16) -> std::ops::Range<u16> {
    match first {
        // An assignment from a log without ports.
        0 => 0..0,
        first => first..first.saturating_add(PORTS_PER_CONTAINER),
    }
}

/// Returns the node's address if the container's programs need it.
///
/// # Errors
/// If the gang's members cannot reach each other.
pub fn node_address(
    config: &AgentConfig,
    executor: Executor,
    network: Network,
    gang: &[Member],
    directory: &Path,
) -> Result<Option<NodeAddress>, String> {
    let is_own = config.runtime == RuntimeKind::Docker && network == Network::Published;
    let talks = executor != Executor::Plain;
    if !is_own || !talks {
        return Ok(None);
    }
    let own = config.address.as_str();
    let is_gang = gang.len() > 1;
    if super::executor::is_loopback(own) {
        return if is_gang {
            Err(format!(
                "its containers have networks of their own, and its node is known to the others as {own}, which is each container itself; start the agent with --address IP, or grant the node's network (dormouse tenant grant TENANT --network host)"
            ))
        } else {
            Ok(None)
        };
    }
    let is_spread = gang.iter().any(|member| member.address != own);
    match executor {
        Executor::Plain | Executor::Tensorflow => Ok(None),
        Executor::Torch if is_spread => Err(
            "PyTorch listens on ports that it picks, and only the ports of its placement are published between nodes; grant the node's network (dormouse tenant grant TENANT --network host)"
                .to_owned(),
        ),
        Executor::Torch => Ok(None),
        Executor::Mpi | Executor::Mxnet => match own.parse() {
            Ok(IpAddr::V4(address)) => Ok(Some(NodeAddress {
                address,
                ready: directory.join(READY),
            })),
            _ => Err(format!(
                "its programs listen on the address of their node, which must be one of IPv4 and not {own}; start the agent with --address IP, or grant the node's network (dormouse tenant grant TENANT --network host)"
            )),
        },
    }
}

/// Reports whether a process may only listen on its own ports and on those that the kernel picks.
#[must_use]
pub fn has_own_ports_only(config: &AgentConfig, network: Network) -> bool {
    let is_contained = config.runtime == RuntimeKind::Process && config.contain.is_some();
    is_contained && network == Network::Published
}

/// Checks that a process limited to its own ports can work.
///
/// # Errors
/// If it cannot.
pub fn check_own_ports(
    config: &AgentConfig,
    executor: Executor,
    network: Network,
    in_place: bool,
) -> Result<(), String> {
    let picks_first = executor == Executor::Torch && in_place;
    if has_own_ports_only(config, network) && picks_first {
        return Err("torchrun picks a port before it listens there, and this job may listen on its own ports only; grant the node's network (dormouse tenant grant TENANT --network host)".to_owned());
    }
    Ok(())
}

/// Checks that a job that wants no network can be kept from the node's.
///
/// # Errors
/// If nothing can keep its processes from it.
pub fn check_none(config: &AgentConfig, wanted: Option<Network>) -> Result<(), String> {
    let is_kept = config.runtime == RuntimeKind::Docker || config.contain.is_some();
    if wanted == Some(Network::None) && !is_kept {
        return Err("`network: none` needs a sandbox, which an agent gives that runs as root (dormouse serve agent), or Docker (--runtime docker)".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    use dormouse_messages::Rank;

    fn ask(
        address: &str,
        executor: Executor,
        network: Network,
        others: &[&str],
    ) -> Result<Option<NodeAddress>, String> {
        let node = "n0".parse().expect("valid");
        let mut config = AgentConfig::local(node, Default::default(), PathBuf::from("/data"));
        config.runtime = RuntimeKind::Docker;
        address.clone_into(&mut config.address);
        let addresses = [address].into_iter().chain(others.iter().copied());
        let member = |(rank, address): (u32, &str)| Member {
            rank: Rank(rank),
            address: address.to_owned(),
            port: 20_000,
        };
        let gang: Vec<Member> = (0..).zip(addresses).map(member).collect();
        node_address(&config, executor, network, &gang, Path::new("/data/c"))
    }

    #[test]
    fn only_programs_that_listen_on_the_node_s_address_are_given_it() {
        let other = ["10.0.0.2"];
        for executor in [Executor::Mpi, Executor::Mxnet] {
            let given = ask("10.0.0.1", executor, Network::Published, &other);
            let given = given.expect("it can start").expect("an address");
            assert_eq!(given.address, Ipv4Addr::new(10, 0, 0, 1));
            assert_eq!(given.ready, Path::new("/data/c/network"));
            for network in [Network::Host, Network::None] {
                assert_eq!(ask("10.0.0.1", executor, network, &other), Ok(None));
            }
        }
        for executor in [Executor::Plain, Executor::Tensorflow] {
            let given = ask("10.0.0.1", executor, Network::Published, &other);
            assert_eq!(given, Ok(None));
        }
    }

    #[test]
    fn what_cannot_work_says_what_would() {
        let published = Network::Published;
        let refused = |answer: Result<_, String>, what: &str| {
            let why = answer.expect_err("refused");
            assert!(
                why.contains(what) && why.contains("--network host"),
                "{why}"
            );
        };
        let gang = ask("127.0.0.1", Executor::Mpi, published, &["127.0.0.1"]);
        refused(gang, "--address");
        assert_eq!(ask("127.0.0.1", Executor::Mpi, published, &[]), Ok(None));
        assert_eq!(
            ask("127.0.0.1", Executor::Plain, published, &["127.0.0.1"]),
            Ok(None)
        );
        refused(
            ask("node-a", Executor::Mxnet, published, &["node-b"]),
            "IPv4",
        );
        refused(
            ask("10.0.0.1", Executor::Torch, published, &["10.0.0.2"]),
            "PyTorch",
        );
        assert_eq!(
            ask("10.0.0.1", Executor::Torch, published, &["10.0.0.1"]),
            Ok(None)
        );
    }

    #[test]
    fn torchrun_with_its_own_ports_only_is_told_what_it_needs() {
        let node = "n0".parse().expect("valid");
        let mut config = AgentConfig::local(node, Default::default(), PathBuf::from("/data"));
        let ask = |config: &AgentConfig, executor, network, in_place| {
            check_own_ports(config, executor, network, in_place)
        };
        let published = Network::Published;
        assert_eq!(ask(&config, Executor::Torch, published, true), Ok(()));
        config.contain = Some(crate::config::Contain::default());
        let why = ask(&config, Executor::Torch, published, true).expect_err("refused");
        assert!(why.contains("--network host"), "{why}");
        assert_eq!(ask(&config, Executor::Torch, Network::Host, true), Ok(()));
        assert_eq!(ask(&config, Executor::Torch, published, false), Ok(()));
        assert_eq!(ask(&config, Executor::Plain, published, true), Ok(()));
    }

    #[test]
    fn a_job_without_network_needs_a_sandbox_or_docker() {
        let node = "n0".parse().expect("valid");
        let mut config = AgentConfig::local(node, Default::default(), PathBuf::from("/data"));
        let why = check_none(&config, Some(Network::None)).expect_err("refused");
        assert!(why.contains("needs a sandbox"), "{why}");
        assert_eq!(check_none(&config, Some(Network::Host)), Ok(()));
        assert_eq!(check_none(&config, None), Ok(()));
        config.contain = Some(crate::config::Contain::default());
        assert_eq!(check_none(&config, Some(Network::None)), Ok(()));
        config.contain = None;
        config.runtime = RuntimeKind::Docker;
        assert_eq!(check_none(&config, Some(Network::None)), Ok(()));
    }

    #[test]
    fn eight_ports_are_published() {
        assert_eq!(ports(20_008), 20_008..20_016);
        assert!(ports(0).is_empty());
    }
}
