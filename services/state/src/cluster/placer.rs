//! The placer's events.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{PlacementDecided, PlacerEvent};
use dormouse_messages::{Incarnation, JobId, Rank};

use super::ClusterState;
use crate::incarnation::Place;
use crate::job::Assignment;

impl ClusterState {
    pub(super) fn evolve_placer(&mut self, event: PlacerEvent<'_>) {
        match event {
            PlacerEvent::PlacementDecided(event) => self.placed(event),
            PlacerEvent::PlacementRefused(event) => {
                self.placed_epoch = self.placed_epoch.max(event.epoch);
                self.triggers();
            }
            PlacerEvent::NodeLost(event) => {
                let last_seen = event.last_seen;
                self.lose(&event.node, event.incarnation, last_seen);
            }
            PlacerEvent::NodeRecovered(event) => {
                let changed = self.nodes.recovered(&event.node);
                self.triggers_if(changed);
            }
            PlacerEvent::NodeQuarantined(event) => {
                let changed = self.nodes.quarantined(event, self.sequence);
                self.triggers_if(changed);
                self.displace(&event.node, false);
            }
            PlacerEvent::NodeReadmitted(event) => {
                let changed = self.nodes.readmitted(&event.node);
                self.triggers_if(changed);
            }
            PlacerEvent::ClockStepped(event) => self.step_named = event.sequence,
            PlacerEvent::GatewayLost(event) => drop(self.gateways.remove(&event.gateway)),
            PlacerEvent::BuildJoined(event) => {
                self.builds.joined(event, (self.sequence, self.now));
            }
            PlacerEvent::BuildLeft(event) => {
                self.builds.left(&event.process, (self.sequence, self.now));
            }
            PlacerEvent::ClusterUpgraded(event) => self.builds.upgraded(event.format),
        }
    }

    fn placed(&mut self, event: &PlacementDecided) {
        self.goes_back("a placement", self.placed_epoch, event.epoch);
        if event.epoch > self.placed_epoch {
            self.placed_epoch = event.epoch;
            for (job, allocated) in &self.allocation.jobs {
                if allocated.containers == 0
                    && let Some(job) = self.jobs.get_mut(job)
                {
                    job.assign(None);
                }
            }
        }
        self.changed_in_place(event);
        let mut created: BTreeMap<&JobId, Assignment> = BTreeMap::new();
        let is_addition = |job: &JobId, incarnation: Incarnation| {
            let assigned = self.jobs.get(job).and_then(|job| job.assignment.as_ref());
            assigned.is_some_and(|assigned| assigned.incarnation == incarnation)
        };
        let whole = event
            .create
            .iter()
            .filter(|container| !is_addition(&container.job, container.incarnation));
        for container in whole {
            let assignment = created.entry(&container.job).or_insert_with(|| Assignment {
                epoch: event.epoch,
                incarnation: container.incarnation,
                placed: self.sequence,
                places: BTreeMap::new(),
                next: Rank(0),
                dropped: BTreeMap::new(),
                lost: 0,
                displaced: false,
            });
            let place = Place {
                node: container.node.clone(),
                gpus: container.gpus.clone(),
                port: container.port,
            };
            assignment.places.insert(container.rank, place);
            assignment.next = assignment.next.max(container.rank.next());
        }
        for (id, mut assignment) in created {
            if let Some(job) = self.jobs.get_mut(id) {
                assignment.displaced = !self.nodes.take((&job.needs, &job.auxiliary), &assignment);
                let leaves_devices = |before: &Assignment| {
                    let kept: BTreeSet<_> = assignment.gpus().collect();
                    before.gpus().any(|device| !kept.contains(&device))
                };
                let shares = |before: &&Assignment| {
                    let mut ranks = before.places.keys();
                    ranks.any(|rank| job.type_at(*rank).shares_gpu())
                };
                let before = job.assignment.as_ref().filter(shares);
                if !self.waiting.is_empty() && before.is_some_and(leaves_devices) {
                    // A device that lost its parts may be free as a whole, unknown to the decision.
                    self.last_trigger = self.sequence;
                }
                job.last_incarnation = job.last_incarnation.max(assignment.incarnation);
                job.assign(Some(assignment));
            }
        }
    }

    fn changed_in_place(&mut self, event: &PlacementDecided) {
        let whole: BTreeSet<&JobId> = event
            .create
            .iter()
            .filter(|container| {
                let job = self.jobs.get(&container.job);
                job.is_some_and(|job| job.last_incarnation < container.incarnation)
            })
            .map(|container| &container.job)
            .collect();
        for container in event.create.iter().filter(|c| !whole.contains(&c.job)) {
            let Some(job) = self.jobs.get_mut(&container.job) else {
                continue;
            };
            let needs = &job.needs;
            if let Some(assignment) = job.assignment.as_mut()
                && assignment.incarnation == container.incarnation
            {
                let place = Place {
                    node: container.node.clone(),
                    gpus: container.gpus.clone(),
                    port: container.port,
                };
                assignment.next = assignment.next.max(container.rank.next());
                assignment.epoch = event.epoch;
                assignment.placed = self.sequence;
                assignment.lost = 0;
                // The label changed since the decision.
                if self.nodes.is_allowed(needs, &place.node) {
                    assignment.places.insert(container.rank, place)
                } else {
                    self.last_trigger = self.sequence;
                    assignment.dropped.insert(container.rank, place)
                };
            }
        }
        for container in event.remove.iter().filter(|c| !whole.contains(&c.job)) {
            let Some(job) = self.jobs.get_mut(&container.job) else {
                continue;
            };
            let partition = job.partition.as_ref();
            let runs = partition.is_some_and(|it| it.containers.contains_key(&container.rank));
            let shares = job.type_at(container.rank).shares_gpu();
            if let Some(assignment) = job.assignment.as_mut()
                && assignment.incarnation == container.incarnation
            {
                let place = assignment.places.remove(&container.rank);
                if shares && !self.waiting.is_empty() {
                    self.last_trigger = self.sequence;
                }
                if let Some(place) = place.filter(|_| !runs) {
                    assignment.dropped.insert(container.rank, place);
                }
                assignment.epoch = event.epoch;
                assignment.placed = self.sequence;
                assignment.lost = 0;
                assignment.displaced = !self.nodes.hold(&job.needs, assignment);
            }
        }
    }
}
