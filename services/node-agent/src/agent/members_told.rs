//! Jobs resized in place: writes their members' files and reports the members' answers.

use std::collections::BTreeSet;

use dormouse_agent_core::NotStarted;
use dormouse_messages::events::ContainerReady;
use dormouse_messages::{AuxiliaryRoles, ContainerId, Incarnation, JobId};

use super::Agent;
use crate::blocking::aside;
use crate::container;
use crate::executor;
use crate::members::{self, Answer};
use crate::plan;
use crate::reconcile::Ending;
use crate::report;
use crate::state::{Announced, Job};

impl Agent {
    /// Writes an incarnation's member list and informs its containers. Synchronous, so that the file exists
    /// before the next start.
    pub(super) fn announce(
        &mut self,
        job: &JobId,
        incarnation: Incarnation,
        announced: &Announced,
    ) {
        let written = self.write_members(job, incarnation, announced);
        let key = (job.clone(), incarnation);
        match written {
            Ok(true) => self.let_know(job, incarnation, announced.generation),
            Ok(false) => {}
            Err(why) => {
                tracing::error!(%job, %incarnation, why = why.why, "its containers are not told who takes part");
                self.core.untold(&key);
                self.untold.insert(key, why);
                return;
            }
        }
        self.untold.remove(&key);
    }

    fn write_members(
        &self,
        job: &JobId,
        incarnation: Incarnation,
        announced: &Announced,
    ) -> Result<bool, NotStarted> {
        let known = self.core.state().jobs.get(job);
        let partition = known.and_then(|job| job.partitions.get(&incarnation));
        let partition = partition.ok_or("its placement is not on the log")?;
        let spec = known.and_then(Job::spec);
        let auxiliary = spec.map(AuxiliaryRoles::of).unwrap_or_default();
        let of = (partition, &auxiliary);
        let document = members::document(&self.config, self.core.state(), of, announced)?;
        let layout = self.config.layout();
        members::tell(&layout, job, incarnation, &document).map_err(|error| {
            let path = layout.members(job, incarnation).path();
            crate::disk_error::of_disk("cannot write who takes part to", &path, &error)
        })
    }

    /// Lets a container connect to its rank 0 once rank 0 listens.
    pub(super) fn let_go(&self, id: &ContainerId) {
        let Some((job, partition)) = self.core.state().partition(id) else {
            return;
        };
        let waits = job.spec().is_some_and(executor::waits_for_coordinator);
        if !waits || !partition.coordinator_ready {
            return;
        }
        let (folder, id) = (self.config.layout().container_below(id), id.clone());
        tokio::spawn(aside(move || {
            let written = folder
                .open()
                .and_then(|it| it.write_read_only(executor::GO, b""));
            if let Err(error) = written {
                tracing::warn!(container = %id, %error, "is not told that its rank 0 listens");
            }
        }));
    }

    pub(super) fn let_all_go(&self, ready: &ContainerReady) {
        let gang = |id: &&ContainerId| {
            id.job == ready.container.job && id.incarnation == ready.container.incarnation
        };
        self.actors
            .keys()
            .filter(gang)
            .for_each(|id| self.let_go(id));
    }

    fn let_know(&self, job: &JobId, incarnation: Incarnation, generation: u32) {
        let spec = self.core.state().jobs.get(job).and_then(Job::spec);
        // Admission and the start have validated the signal.
        let signal = spec.and_then(|spec| plan::resize_signal(spec).ok().flatten());
        let seen = self.core.machine().containers.iter();
        let here = seen.filter(|(id, seen)| {
            id.job == *job && id.incarnation == incarnation && seen.ending == Ending::No
        });
        for (id, _) in here {
            self.tell(id, container::Announced { generation, signal });
        }
    }

    pub(super) fn told(&self, id: &ContainerId) -> Result<(), NotStarted> {
        let key = (id.job.clone(), id.incarnation);
        self.untold.get(&key).map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Reports answers only to requested changes, or a job could fill the log.
    pub(super) fn answered(&mut self, id: &ContainerId, answer: &Answer) {
        let partition = self.core.state().partition(id);
        let members = partition.and_then(|(_, partition)| partition.members.as_ref());
        if members.is_none_or(|members| answer.generation > members.requested) {
            tracing::warn!(container = %id, ?answer, "it answers a change that nobody requested");
            return;
        }
        let event = report::acknowledged(id, &self.config.node, answer);
        let causes = self.causes(id);
        self.report(event, causes);
    }

    pub(super) fn clear_members(&self) {
        let held = self.core.machine().containers.keys();
        let held = held.map(|id| (id.job.clone(), id.incarnation));
        let held: BTreeSet<_> = held
            .chain(self.core.machine().told.keys().cloned())
            .collect();
        members::clear(&self.config.layout(), &held);
    }
}
