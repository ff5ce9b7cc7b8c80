//! Events of gateways and the autoscaler.

use dormouse_messages::events::{AutoscalerEvent, GatewayEvent};

use super::ClusterState;

impl ClusterState {
    pub(super) fn evolve_gateway(&mut self, event: GatewayEvent<'_>) {
        match event {
            GatewayEvent::GatewayJoined(event) => {
                self.gateways.insert(event.gateway.clone());
            }
            GatewayEvent::GatewayLeft(event) => drop(self.gateways.remove(&event.gateway)),
            GatewayEvent::GatewayUnrouted(event) => {
                let partition = self.partition(&event.container.job, event.container.incarnation);
                if let Some(members) = partition.and_then(|it| it.members.as_mut()) {
                    members.unrouted(event);
                }
            }
            GatewayEvent::ServiceMeasured(_) => {}
        }
    }

    pub(super) fn evolve_autoscaler(&mut self, event: AutoscalerEvent<'_>) {
        match event {
            AutoscalerEvent::ServiceScaled(event) => {
                let is_released = self.jobs.contains_key(&event.job);
                self.triggers_if(is_released);
                if let Some(job) = self.job_mut(&event.job) {
                    job.replicas = Some(event.replicas);
                }
            }
            AutoscalerEvent::NotebookWarned(_) => {}
        }
    }
}
