//! Drops a program's privileges before its exec.

use std::io;

use landlock::{AccessNet, NetPort, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use super::{FILES_LIMIT, Network, SandboxSpec};

const CAPABILITIES: u32 = 64;

const ANY_PORT: u16 = 0;

/// Becomes the tenant's user.
pub fn become_user(spec: &SandboxSpec) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let (soft, files) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let files = files.min(FILES_LIMIT);
    setrlimit(Resource::RLIMIT_NOFILE, soft.min(files), files)?;
    if let Some(processes) = spec.processes {
        setrlimit(Resource::RLIMIT_NPROC, processes, processes)?;
    }
    for number in 0..CAPABILITIES {
        // The kernel refuses unknown numbers.
        let one = CapabilitySet::from_bits_retain(1 << number);
        let _ = remove_capability_from_bounding_set(one);
    }
    prctl::set_no_new_privs()?;
    setgroups(&[])?;
    let (uid, gid) = (Uid::from_raw(spec.uid), Gid::from_raw(spec.gid));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// Limits this process to its own ports (Linux 6.7) and hides the node's abstract sockets (6.12).
pub fn landlock(network: Network) -> Result<(), RulesetError> {
    let mut rules = Ruleset::default().scope(Scope::AbstractUnixSocket)?;
    if let Network::OwnPorts(..) = network {
        rules = rules.handle_access(AccessNet::BindTcp)?;
    }
    let mut rules = rules.create()?;
    if let Network::OwnPorts(first, count) = network {
        let own = first..first.saturating_add(count);
        for port in own.chain([ANY_PORT]) {
            rules = rules.add_rule(NetPort::new(port, AccessNet::BindTcp))?;
        }
    }
    rules.restrict_self().map(drop)
}
