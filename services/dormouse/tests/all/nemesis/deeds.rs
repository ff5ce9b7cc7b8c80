//! Applies each fault to the cluster, and takes it back.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::common::PATIENCE;
use nix::sys::signal::Signal;

use super::faults::{BROKERS, COPIES, Fault, SERVICES, Step};
use super::world::{Done, Moment, Took, World, all, copy};

/// The judge multiplies this bound by `LENIENCY`.
const FAIL_OVER: Duration = Duration::from_secs(3);
const FAIL_OVER_PATIENCE: Duration = Duration::from_secs(30);
const FILLING: &str = "filling";

impl World {
    pub fn torment(&mut self, steps: &[Step]) -> Vec<Done> {
        let mut done = Vec::new();
        for step in steps {
            let mut begun = Vec::new();
            let known = self.took.len();
            for fault in &step.faults {
                self.say(&format!("{fault:?}"));
                begun.push((*fault, Moment::now()));
                self.apply(*fault);
            }
            if step.faults.len() > 1 {
                // Together with a broker's fault, the time has no bound.
                self.took.truncate(known);
            }
            self.pass(Duration::from_millis(step.lasts_ms));
            for (fault, from) in begun {
                self.take_back(fault);
                let until = Moment::now();
                done.push(Done { fault, from, until });
            }
            self.begin_all();
            self.pass(Duration::from_millis(step.quiet_ms));
        }
        done
    }

    fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::KillService { service, active } => self.kill_service(service, active),
            Fault::StopService { service } => {
                let host = self.active(service).unwrap_or(COPIES[0]);
                self.stop(&copy(service, host));
            }
            Fault::PauseService { service } => {
                let host = self.active(service).unwrap_or(COPIES[0]);
                self.signal(&copy(service, host), Signal::SIGSTOP);
            }
            Fault::KillAgent { node } => self.cluster.kill(node),
            Fault::PauseAgent { node } => self.signal(node, Signal::SIGSTOP),
            Fault::KillNode { node } => {
                self.net.signal(node, None, Signal::SIGKILL);
                self.cluster.kill(node);
            }
            Fault::FreezeNode { node } => self.net.signal(node, None, Signal::SIGSTOP),
            Fault::KillSupervisor { node } => {
                let supervisor = Some("dormouse-superv");
                self.net.signal(node, supervisor, Signal::SIGKILL);
            }
            Fault::KillBroker { broker } => self.cluster.kill(broker),
            Fault::StopBroker { broker } => self.signal(broker, Signal::SIGUSR2),
            Fault::PauseBroker { broker } => self.signal(broker, Signal::SIGSTOP),
            Fault::PauseBrokers { but } => {
                for broker in BROKERS.into_iter().filter(|it| *it != but) {
                    self.signal(broker, Signal::SIGSTOP);
                }
            }
            Fault::Cut { host, way } => self.net.cut(host, way, None),
            Fault::CutPair { host, broker, way } => self.net.cut(host, way, Some(broker)),
            Fault::Slow { host } => self.net.slow(host),
            Fault::FillNode { node: name } | Fault::FillBroker { broker: name } => self.fill(name),
            Fault::RollServices => self.roll_services(),
            Fault::RollBrokers => self.roll_brokers(),
            Fault::KillAll => all().iter().for_each(|name| self.cluster.kill(name)),
        }
    }

    fn take_back(&mut self, fault: Fault) {
        match fault {
            Fault::PauseService { service } => {
                for host in COPIES {
                    self.signal(&copy(service, host), Signal::SIGCONT);
                }
            }
            Fault::PauseAgent { node } => self.signal(node, Signal::SIGCONT),
            Fault::FreezeNode { node } => self.net.signal(node, None, Signal::SIGCONT),
            Fault::StopBroker { broker } => self.cluster.kill(broker),
            Fault::PauseBroker { .. } | Fault::PauseBrokers { .. } => {
                for broker in BROKERS {
                    self.signal(broker, Signal::SIGCONT);
                }
            }
            Fault::Cut { host, .. } | Fault::CutPair { host, .. } | Fault::Slow { host } => {
                self.net.heal(host);
            }
            Fault::FillNode { node } => self.empty(node),
            Fault::FillBroker { broker } => {
                self.empty(broker);
                // A broker with a full disk has disabled its streams and must restart.
                self.cluster.kill(broker);
            }
            Fault::KillService { .. }
            | Fault::StopService { .. }
            | Fault::KillAgent { .. }
            | Fault::KillNode { .. }
            | Fault::KillSupervisor { .. }
            | Fault::KillBroker { .. }
            | Fault::RollServices
            | Fault::RollBrokers
            | Fault::KillAll => {}
        }
    }

    fn signal(&self, name: &str, signal: Signal) {
        if self.cluster.pid(name).is_some() {
            self.cluster.signal(name, signal);
        }
    }

    fn kill_service(&mut self, service: &str, active: bool) {
        let holder = self.active(service);
        let wanted = |it: &&str| (Some(*it) == holder) == active;
        let host = COPIES.into_iter().find(wanted).unwrap_or(COPIES[0]);
        self.cluster.kill(&copy(service, host));
        if holder != Some(host) {
            return;
        }
        let since = Instant::now();
        let is_over = |it: &Self| it.active(service).is_some_and(|it| it != host);
        while !is_over(self) && since.elapsed() < FAIL_OVER_PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.took.push(Took {
            what: format!("fail-over of {service}"),
            time: since.elapsed(),
            bound: FAIL_OVER,
            story: String::new(),
        });
    }

    fn fill(&self, name: &str) {
        let path = self.cluster.dir().join(name).join(FILLING);
        let mut file = std::fs::File::create(path).expect("a disk");
        let piece = vec![0; 1 << 16];
        while file.write_all(&piece).is_ok() {}
    }

    fn empty(&self, name: &str) {
        let _ = std::fs::remove_file(self.cluster.dir().join(name).join(FILLING));
    }

    fn roll_services(&mut self) {
        for host in COPIES {
            for service in SERVICES {
                let name = copy(service, host);
                self.stop(&name);
                self.begin(&name);
            }
        }
    }

    fn roll_brokers(&mut self) {
        for broker in BROKERS {
            self.cluster.kill(broker);
            self.begin(broker);
            let until = Instant::now() + PATIENCE;
            // The other brokers notice the absence late.
            std::thread::sleep(Duration::from_secs(2));
            while !self.brokers_follow() {
                if Instant::now() > until {
                    self.found.push(format!("{broker} does not follow again"));
                    break;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}
