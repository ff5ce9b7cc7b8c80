//! Operators' events.

use dormouse_messages::events::OperatorEvent;

use super::ClusterState;

impl ClusterState {
    pub(super) fn evolve_operator(&mut self, event: OperatorEvent<'_>) {
        match event {
            OperatorEvent::ClusterConfigured(event) => {
                self.policy.clone_from(&event.policy);
                self.tenants.grants.configured(event.policy.grants);
                self.triggers();
            }
            OperatorEvent::NodeDrained(event) => {
                let changed = self.nodes.drained(event, self.now);
                self.triggers_if(changed);
                self.displace(&event.node, false);
            }
            OperatorEvent::NodeRestored(event) => {
                let changed = self.nodes.restored(&event.node);
                self.triggers_if(changed);
            }
            OperatorEvent::NodeLabelled(event) => {
                let changed = self.nodes.labelled(event);
                self.triggers_if(changed);
                self.relabelled();
            }
            OperatorEvent::NodeRemoved(event) => {
                self.remove_node(&event.node);
                self.close_allocations();
            }
            OperatorEvent::SlurmQueueConfigured(event) => {
                self.slurm.configured(&event.queue, &event.settings);
            }
            OperatorEvent::SlurmQueueRemoved(event) => self.slurm.removed(&event.queue),
            OperatorEvent::UpgradeApproved(event) => {
                self.builds.approved(event, (self.sequence, self.now));
            }
            OperatorEvent::BudgetConfigured(event) => {
                let load = self.load();
                let at = (self.now, self.sequence);
                self.budget(&event.tenant, |it| it.budgets.configured(event, &load, at));
            }
            OperatorEvent::ReservationConfigured(event) => {
                self.reservations.configured(event, self.sequence);
                self.reserve();
            }
            OperatorEvent::ReservationRemoved(event) => {
                self.reservations.removed(&event.reservation);
                self.reserve();
            }
            OperatorEvent::TenantConfigured(event) => {
                self.tenants.configured(event);
                self.triggers();
            }
            OperatorEvent::TenantGranted(event) => {
                self.tenants.grants.granted(event);
                self.triggers();
            }
            OperatorEvent::TenantRemoved(event) => {
                self.tenants.removed(&event.tenant);
                self.budget(&event.tenant, |it| it.budgets.removed(&event.tenant));
                self.triggers();
            }
            OperatorEvent::WebhookConfigured(_)
            | OperatorEvent::KeyCreated(_)
            | OperatorEvent::KeyRotated(_)
            | OperatorEvent::KeyRevoked(_) => {}
        }
    }
}
