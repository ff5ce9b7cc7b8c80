//! Upgrades the log's format once its gate opens.

use dormouse_messages::events::ClusterUpgraded;
use dormouse_messages::{Proposal, Timestamp};
use dormouse_state::{ClusterState, Gate};

/// Returns the upgrade, or the time at which the processes count as settled.
pub fn due(state: &ClusterState, now: Timestamp) -> (Option<Proposal>, Option<Timestamp>) {
    match state.builds.gate(state.policy.upgrades, now) {
        Gate::Opens { format } => {
            let upgraded = ClusterUpgraded {
                format,
                basis: None,
            };
            (Some(Proposal::new(upgraded, state.builds.changed)), None)
        }
        Gate::Settles { until, .. } => (None, Some(until)),
        Gate::Idle | Gate::Waits { .. } | Gate::Unapproved { .. } => (None, None),
    }
}
