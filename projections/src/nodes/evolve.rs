//! Applies events to nodes and their containers.

use std::collections::BTreeMap;

use dormouse_messages::events::{
    NodeDrained, NodeGpuReconciled, NodeJoined, NodeLabelled, PartitionResizeRequested,
    PlacementDecided,
};
use dormouse_messages::roles::Demands;
use dormouse_messages::{By, Event, Fact, Incarnation, JobId, NodeId, Rank, Sequence, Timestamp};

use dormouse_state::IdMap;

use super::{Drain, Gang, GpuDoubt, JobGangs, Member, MemberState, Node, NodeTable};

impl NodeTable {
    fn joined(&mut self, event: &NodeJoined, at: Timestamp) {
        let node = self.nodes.or_default(&event.node);
        node.capacity.clone_from(&event.capacity);
        let said = self.labels.entry(event.node.clone()).or_default();
        said.joined(event);
        (node.labels, node.taints) = said.both();
        node.gpus.clone_from(&event.gpus);
        node.runtime.clone_from(&event.runtime);
        node.address.clone_from(&event.address);
        node.incarnation = event.incarnation;
        node.joined = Some(at);
        node.fenced = None;
        if let Some((drained, drain)) = self.drained_early.remove(&event.node) {
            (node.drained, node.drain) = (Some(drained), drain);
        }
    }

    fn labelled(&mut self, event: &NodeLabelled) {
        let said = self.labels.entry(event.node.clone()).or_default();
        said.labelled(event);
        if let Some(node) = self.nodes.get_mut(&event.node) {
            (node.labels, node.taints) = said.both();
        }
    }

    fn removed(&mut self, name: &NodeId) {
        let gone = |node: &Node| {
            let empty = node.containers == 0 && node.reserved == 0;
            node.lost.is_some() || (node.drained.is_some() && empty)
        };
        if self.nodes.get(name).is_some_and(gone) {
            self.nodes.remove(name);
            self.labels.remove(name);
            self.drained_early.remove(name);
        }
    }

    fn drain(&mut self, event: &NodeDrained, at: Timestamp, by: Option<By>) {
        let after = event.deadline_s.map(|s| u64::from(s) * 1000);
        let drain = Drain {
            reason: event.reason.clone(),
            leave_by: after.map(|after| at.plus_ms(after)),
            by,
        };
        match self.nodes.get_mut(&event.node) {
            Some(node) => (node.drained, node.drain) = (Some(at), drain),
            None => drop(self.drained_early.insert(event.node.clone(), (at, drain))),
        }
    }

    fn restore(&mut self, name: &NodeId) {
        match self.nodes.get_mut(name) {
            Some(node) => (node.drained, node.drain) = (None, Drain::default()),
            None => drop(self.drained_early.remove(name)),
        }
    }

    fn quarantine(&mut self, name: &NodeId, quarantined: Option<(String, Timestamp)>) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.quarantined = quarantined;
        }
    }

    /// A later incarnation is not affected.
    fn lost(&mut self, name: &NodeId, incarnation: u64, last_seen: Timestamp, at: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        if node.incarnation == incarnation {
            node.lost = Some(at);
            node.last_seen = Some(last_seen);
            self.clear(name);
        }
    }

    /// A loss frees all capacity of the node.
    fn clear(&mut self, name: &NodeId) {
        let Self { nodes, jobs, .. } = self;
        for entry in jobs.values_mut_in_any_order() {
            for gang in &mut entry.gangs {
                gang.members.retain(|member| {
                    let stays = member.node != *name;
                    if !stays {
                        leave(nodes, &entry.demands, member);
                    }
                    stays
                });
            }
        }
    }

    fn reconciled(&mut self, event: &NodeGpuReconciled, at: Timestamp) {
        let Some(node) = self.nodes.get_mut(&event.node) else {
            return;
        };
        if event.strangers.is_empty() && event.beyond.is_empty() {
            node.gpu_doubts.remove(&event.uuid);
            return;
        }
        let doubt = node
            .gpu_doubts
            .entry(event.uuid.clone())
            .or_insert_with(|| GpuDoubt {
                since: at,
                ..GpuDoubt::default()
            });
        doubt.strangers.clone_from(&event.strangers);
        doubt.beyond.clone_from(&event.beyond);
    }

    fn place(&mut self, event: &PlacementDecided, sequence: Sequence) {
        let Self { nodes, jobs, .. } = self;
        for created in event.create.chunk_by(|a, b| a.job == b.job) {
            let Some(entry) = jobs.get_mut(&created[0].job) else {
                continue;
            };
            for container in created {
                let gang = entry.gang_mut(nodes, container.incarnation, sequence);
                // A node that never joined has no capacity.
                let is_new = |gang: &Gang| gang.members.iter().all(|it| it.rank != container.rank);
                if let Some(node) = nodes.get_mut(&container.node).filter(|_| is_new(gang)) {
                    node.reserved += 1;
                    gang.members.push(Member {
                        rank: container.rank,
                        node: container.node.clone(),
                        state: MemberState::Reserved,
                    });
                }
            }
        }
        for removed in event.remove.chunk_by(|a, b| a.job == b.job) {
            let Some(entry) = jobs.get_mut(&removed[0].job) else {
                continue;
            };
            for container in removed {
                // Started containers take capacity until they exit.
                entry.drop_member(nodes, container.incarnation, container.rank, |member| {
                    member.state == MemberState::Reserved
                });
            }
        }
    }

    fn start_requested(&mut self, job: &JobId, incarnation: Incarnation) {
        let Self { nodes, jobs, .. } = self;
        let Some(entry) = jobs.get_mut(job) else {
            return;
        };
        entry.drop_gangs(nodes, |gang| gang.incarnation < incarnation);
        entry.start(nodes, incarnation, |_| true);
    }

    fn resize_requested(&mut self, event: &PartitionResizeRequested) {
        let Self { nodes, jobs, .. } = self;
        if let Some(entry) = jobs.get_mut(&event.job) {
            entry.start(nodes, event.incarnation, |rank| event.join.contains(&rank));
        }
    }

    fn started(&mut self, job: &JobId, incarnation: Incarnation, rank: Rank) {
        let Some(entry) = self.jobs.get_mut(job) else {
            return;
        };
        if let Some(member) = entry.member_mut(incarnation, rank)
            && member.state == MemberState::Starting
        {
            member.state = MemberState::Running;
            if let Some(node) = self.nodes.get_mut(&member.node) {
                node.running += 1;
            }
        }
    }

    fn exited(&mut self, job: &JobId, incarnation: Incarnation, rank: Rank) {
        let Self { nodes, jobs, .. } = self;
        if let Some(entry) = jobs.get_mut(job) {
            entry.drop_member(nodes, incarnation, rank, |_| true);
        }
    }

    fn stopped(&mut self, job: &JobId, incarnation: Incarnation) {
        let Self { nodes, jobs, .. } = self;
        if let Some(entry) = jobs.get_mut(job) {
            entry.drop_gangs(nodes, |gang| gang.incarnation <= incarnation);
        }
    }

    /// The next incarnation's reservations are free.
    fn kept(&mut self, job: &JobId, incarnation: Incarnation) {
        let Self { nodes, jobs, .. } = self;
        if let Some(entry) = jobs.get_mut(job) {
            entry.drop_gangs(nodes, |gang| gang.incarnation > incarnation);
        }
    }

    fn ended(&mut self, job: &JobId) {
        if let Some(mut entry) = self.jobs.remove(job) {
            entry.drop_gangs(&mut self.nodes, |_| true);
        }
    }
}

fn leave(nodes: &mut IdMap<NodeId, Node>, demands: &Demands, member: &Member) {
    let Some(node) = nodes.get_mut(&member.node) else {
        return;
    };
    if member.state == MemberState::Reserved {
        node.reserved = node.reserved.saturating_sub(1);
        return;
    }
    node.containers = node.containers.saturating_sub(1);
    node.used.subtract(demands.at(member.rank), 1);
    if member.state == MemberState::Running {
        node.running = node.running.saturating_sub(1);
    }
}

impl JobGangs {
    fn gang_mut(
        &mut self,
        nodes: &mut IdMap<NodeId, Node>,
        incarnation: Incarnation,
        placed: Sequence,
    ) -> &mut Gang {
        let found = |gang: &Gang| gang.incarnation == incarnation;
        let index = self.gangs.iter().position(found).unwrap_or_else(|| {
            self.gangs.push(Gang {
                incarnation,
                placed,
                members: Vec::new(),
            });
            self.gangs.len() - 1
        });
        let gang = &mut self.gangs[index];
        // Partitions resized in place are placed in steps.
        if gang.placed != placed && !self.in_place {
            gang.placed = placed;
            for member in gang.members.drain(..) {
                leave(nodes, &self.demands, &member);
            }
        }
        gang
    }

    fn start(
        &mut self,
        nodes: &mut IdMap<NodeId, Node>,
        incarnation: Incarnation,
        which: impl Fn(Rank) -> bool,
    ) {
        let demands = &self.demands;
        let gangs = self.gangs.iter_mut();
        let its = gangs.filter(|gang| gang.incarnation == incarnation);
        for member in its.flat_map(|gang| &mut gang.members) {
            if member.state != MemberState::Reserved || !which(member.rank) {
                continue;
            }
            member.state = MemberState::Starting;
            if let Some(node) = nodes.get_mut(&member.node) {
                node.reserved = node.reserved.saturating_sub(1);
                node.containers += 1;
                node.used.add(demands.at(member.rank), 1);
            }
        }
    }

    fn member_mut(&mut self, incarnation: Incarnation, rank: Rank) -> Option<&mut Member> {
        let gang = self
            .gangs
            .iter_mut()
            .find(|gang| gang.incarnation == incarnation)?;
        gang.members.iter_mut().find(|member| member.rank == rank)
    }

    fn drop_member(
        &mut self,
        nodes: &mut IdMap<NodeId, Node>,
        incarnation: Incarnation,
        rank: Rank,
        only_if: impl Fn(&Member) -> bool,
    ) {
        for gang in self
            .gangs
            .iter_mut()
            .filter(|gang| gang.incarnation == incarnation)
        {
            let found = |member: &Member| member.rank == rank && only_if(member);
            if let Some(index) = gang.members.iter().position(found) {
                leave(nodes, &self.demands, &gang.members.swap_remove(index));
            }
        }
        self.gangs.retain(|gang| !gang.members.is_empty());
    }

    fn drop_gangs(&mut self, nodes: &mut IdMap<NodeId, Node>, which: impl Fn(&Gang) -> bool) {
        let demands = &self.demands;
        self.gangs.retain(|gang| {
            let goes = which(gang);
            if goes {
                for member in &gang.members {
                    leave(nodes, demands, member);
                }
            }
            !goes
        });
    }
}

impl NodeTable {
    /// Folds one event.
    pub fn evolve(&mut self, fact: &Fact<'_>) {
        let Some(event) = fact.event() else {
            return;
        };
        let at = fact.at;
        match event {
            Event::ContainerStarted(e) => {
                self.started(&e.container.job, e.container.incarnation, e.container.rank)
            }
            Event::ContainerExited(e) => {
                self.exited(&e.container.job, e.container.incarnation, e.container.rank)
            }
            Event::NodeJoined(e) => self.joined(e, at),
            Event::NodeDrained(e) => self.drain(e, at, fact.by()),
            Event::NodeRestored(e) => {
                self.restore(&e.node);
                self.quarantine(&e.node, None);
            }
            Event::NodeQuarantined(e) => {
                self.quarantine(&e.node, Some((e.reason.clone(), e.until)));
            }
            Event::NodeReadmitted(e) => self.quarantine(&e.node, None),
            Event::NodeLabelled(e) => self.labelled(e),
            Event::NodeRemoved(e) => self.removed(&e.node),
            Event::NodeGpuReconciled(e) => self.reconciled(e, at),
            Event::NodeLost(e) => {
                let never = e.last_seen == Timestamp::default();
                let last_seen = if never {
                    e.last_seen
                } else {
                    fact.time_of(e.last_seen).min(at)
                };
                self.lost(&e.node, e.incarnation, last_seen, at);
            }
            Event::NodeFenced(e) => {
                self.lost(&e.node, e.incarnation, at, at);
                let node = self.nodes.get_mut(&e.node);
                let node = node.filter(|node| node.incarnation == e.incarnation);
                if let Some(node) = node {
                    node.fenced = Some(e.reason.clone());
                }
            }
            Event::NodeRecovered(e) => {
                if let Some(node) = self.nodes.get_mut(&e.node) {
                    node.lost = None;
                }
            }
            Event::JobAdmitted(e) => {
                self.ended(&e.job);
                let gangs = JobGangs {
                    demands: Demands::of(&e.spec),
                    in_place: e.spec.is_in_place(),
                    gangs: Vec::new(),
                };
                self.jobs.insert(e.job.clone(), gangs);
            }
            Event::PlacementDecided(e) => self.place(e, fact.sequence),
            Event::PartitionStartRequested(e) => self.start_requested(&e.job, e.incarnation),
            Event::PartitionResizeRequested(e) => self.resize_requested(e),
            Event::PartitionStopped(e) => self.stopped(&e.job, e.incarnation),
            Event::ResizeAbandoned(e) => self.kept(&e.job, e.incarnation),
            Event::JobCompleted(e) => self.ended(&e.job),
            Event::JobFailed(e) => self.ended(&e.job),
            Event::JobCancelled(e) => self.ended(&e.job),
            _ => {}
        }
    }

    /// # Errors
    /// The broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut standing: BTreeMap<&NodeId, (u32, u32)> = BTreeMap::new();
        let entries = self.jobs.in_any_order();
        for gang in entries.flat_map(|(_, entry)| &entry.gangs) {
            for member in &gang.members {
                let (taken, reserved) = standing.entry(&member.node).or_default();
                match member.state {
                    MemberState::Reserved => *reserved += 1,
                    MemberState::Starting | MemberState::Running => *taken += 1,
                }
            }
        }
        for (name, node) in self.nodes.in_any_order() {
            let (taken, reserved) = standing.get(name).copied().unwrap_or_default();
            if (taken, reserved) != (node.containers, node.reserved) {
                return Err(format!(
                    "{taken} containers stand on {name} and {reserved} are reserved, but {} and {} are counted",
                    node.containers, node.reserved
                ));
            }
            if node.running > node.containers {
                return Err(format!("more containers run on {name} than stand there"));
            }
        }
        Ok(())
    }
}
