//! A plan of faults and times, derived from its seed alone.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::net::Way;

pub const BROKERS: [&str; 3] = ["b0", "b1", "b2"];
pub const SERVICES: [&str; 6] = [
    "admission",
    "optimizer",
    "placer",
    "checkpointer",
    "autoscaler",
    "api",
];
pub const COPIES: [&str; 2] = ["s0", "s1"];
pub const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];
/// The other nodes use Docker if an engine exists.
pub const PLAIN: [&str; 2] = ["n0", "n1"];

/// Without a sandbox, the init of an ended container takes the next.
pub const TRUSTS: &str = "n1";

pub const GIVEN_UP: &str = "n1";
pub const GIVEN_UP_AFTER_S: u32 = 3;

/// A fault. At the end of its step, killed processes are started, and stopped ones go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to the active or the standby copy.
    KillService { service: &'static str, active: bool },
    /// SIGTERM to the active copy.
    StopService { service: &'static str },
    /// SIGSTOP to the active copy.
    PauseService { service: &'static str },
    /// SIGKILL to the agent alone.
    KillAgent { node: &'static str },
    /// SIGSTOP to the agent alone.
    PauseAgent { node: &'static str },
    /// SIGKILL to agent, supervisor and containers.
    KillNode { node: &'static str },
    /// SIGSTOP to agent, supervisor and containers.
    FreezeNode { node: &'static str },
    /// SIGKILL to the supervisor.
    KillSupervisor { node: &'static str },
    /// SIGKILL to one broker.
    KillBroker { broker: &'static str },
    /// SIGUSR2, lame duck mode, as the unit stops it.
    StopBroker { broker: &'static str },
    /// SIGSTOP to one broker.
    PauseBroker { broker: &'static str },
    /// SIGSTOP to the other two brokers.
    PauseBrokers { but: &'static str },
    /// Drops packets between a host and all others.
    Cut { host: &'static str, way: Way },
    /// Drops packets between a host and one broker.
    CutPair {
        host: &'static str,
        broker: &'static str,
        way: Way,
    },
    /// Slows the link of a host.
    Slow { host: &'static str },
    /// Fills the agent's file system.
    FillNode { node: &'static str },
    /// Fills the broker's file system.
    FillBroker { broker: &'static str },
    /// One copy after the other.
    RollServices,
    /// One broker after the other.
    RollBrokers,
    /// SIGKILL to all processes but containers.
    KillAll,
}

impl Fault {
    pub fn kind(&self) -> String {
        let name = format!("{self:?}");
        name.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Simultaneous faults share no host.
    pub fn hosts(&self) -> Vec<&'static str> {
        match *self {
            Self::KillService { .. } | Self::StopService { .. } | Self::PauseService { .. } => {
                COPIES.to_vec()
            }
            Self::KillAgent { node }
            | Self::PauseAgent { node }
            | Self::KillNode { node }
            | Self::FreezeNode { node }
            | Self::KillSupervisor { node }
            | Self::FillNode { node } => vec![node],
            Self::KillBroker { .. }
            | Self::StopBroker { .. }
            | Self::PauseBroker { .. }
            | Self::PauseBrokers { .. }
            | Self::FillBroker { .. } => BROKERS.to_vec(),
            Self::Cut { host, .. } | Self::Slow { host } if BROKERS.contains(&host) => {
                BROKERS.to_vec()
            }
            Self::Cut { host, .. } | Self::Slow { host } => vec![host],
            Self::CutPair { host, .. } => [&[host][..], &BROKERS].concat(),
            Self::RollServices | Self::RollBrokers | Self::KillAll => {
                [&BROKERS[..], &COPIES, &NODES].concat()
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub faults: Vec<Fault>,
    pub lasts_ms: u64,
    pub quiet_ms: u64,
}

fn one(random: &mut StdRng, of: &[&'static str]) -> &'static str {
    of[random.random_range(0..of.len())]
}

fn way(random: &mut StdRng) -> Way {
    [Way::Both, Way::In, Way::Out][random.random_range(0..3)]
}

fn fault(random: &mut StdRng) -> (Fault, (u64, u64)) {
    let (service, node) = (one(random, &SERVICES), one(random, &NODES));
    let (plain, broker) = (one(random, &PLAIN), one(random, &BROKERS));
    let host = one(random, &[&BROKERS[..], &COPIES, &NODES].concat());
    let active = random.random_bool(0.8);
    // Sometimes longer than a lease of 20 s.
    let long = if random.random_bool(0.25) {
        (18_000, 32_000)
    } else {
        (500, 8_000)
    };
    match random.random_range(0..40) {
        0..6 => (Fault::KillService { service, active }, (200, 6_000)),
        6 => (Fault::StopService { service }, (200, 3_000)),
        7..10 => (Fault::PauseService { service }, (1_500, 9_000)),
        10..13 => (Fault::KillAgent { node }, long),
        13..15 => (Fault::PauseAgent { node }, long),
        15..18 => (Fault::KillNode { node: plain }, long),
        18..20 => (Fault::FreezeNode { node: plain }, long),
        20 => (Fault::KillSupervisor { node: plain }, (500, 2_000)),
        21..24 => (Fault::KillBroker { broker }, (500, 15_000)),
        24 => (Fault::StopBroker { broker }, (4_000, 12_000)),
        25..27 => (Fault::PauseBroker { broker }, (1_000, 13_000)),
        27 => (Fault::PauseBrokers { but: broker }, (2_000, 13_000)),
        28..32 => (
            Fault::Cut {
                host,
                way: way(random),
            },
            long,
        ),
        32..34 => {
            let host = one(random, &[&COPIES[..], &NODES].concat());
            let way = way(random);
            (Fault::CutPair { host, broker, way }, (2_000, 20_000))
        }
        34 => (Fault::Slow { host }, (3_000, 12_000)),
        35 => (Fault::FillNode { node: plain }, (2_000, 10_000)),
        36 => (Fault::FillBroker { broker }, (2_000, 10_000)),
        37 => (Fault::RollServices, (100, 500)),
        38 => (Fault::RollBrokers, (100, 500)),
        _ => (Fault::KillAll, (200, 4_000)),
    }
}

pub fn plan(seed: u64, until_ms: u64) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut steps, mut at_ms) = (Vec::new(), 0);
    while at_ms < until_ms {
        let (first, (least, most)) = fault(&mut random);
        let mut faults = vec![first];
        let (second, _) = fault(&mut random);
        let apart = second.hosts().iter().all(|it| !first.hosts().contains(it));
        if random.random_bool(0.3) && apart {
            faults.push(second);
        }
        let step = Step {
            faults,
            lasts_ms: random.random_range(least..most),
            quiet_ms: random.random_range(500..4_000),
        };
        at_ms += step.lasts_ms + step.quiet_ms;
        steps.push(step);
    }
    steps
}

pub fn short() -> Vec<Step> {
    let step = |lasts_ms, faults: &[Fault]| Step {
        faults: faults.to_vec(),
        lasts_ms,
        quiet_ms: 300,
    };
    let kill = |service| Fault::KillService {
        service,
        active: true,
    };
    let cut = |host, way| Fault::Cut { host, way };
    let (pause, agent) = (
        Fault::PauseService {
            service: "optimizer",
        },
        Fault::KillAgent { node: GIVEN_UP },
    );
    let (broker, full) = (
        Fault::KillBroker { broker: "b0" },
        Fault::FillNode { node: "n0" },
    );
    vec![
        step(6_000, &[kill("checkpointer"), agent]),
        step(1_000, &[kill("placer"), Fault::Slow { host: "n2" }]),
        step(2_000, &[pause, cut("n1", Way::In)]),
        step(4_000, &[broker, full]),
        step(
            22_000,
            &[
                cut("n3", Way::Out),
                Fault::KillNode { node: "n0" },
                kill("admission"),
            ],
        ),
        step(500, &[Fault::RollBrokers]),
        step(500, &[Fault::KillAll]),
    ]
}

#[test]
fn a_seed_is_a_plan() {
    let hour = 3_600_000;
    assert_eq!(plan(7, hour), plan(7, hour));
    assert_ne!(plan(7, hour), plan(8, hour));
    let kinds: std::collections::BTreeSet<String> = plan(7, hour)
        .iter()
        .flat_map(|it| it.faults.iter().map(Fault::kind))
        .collect();
    assert_eq!(kinds.len(), 20, "{kinds:?}");
    for step in plan(7, hour).iter().chain(&short()) {
        let mut hosts: Vec<&str> = step.faults.iter().flat_map(Fault::hosts).collect();
        let all = hosts.len();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), all, "{step:?}");
    }
}
