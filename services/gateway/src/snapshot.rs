//! Snapshots of the routes. Ignored on any doubt: another build or log, or an unknown position.

use dormouse_messages::{Fold, Recorded, Sequence, Timestamp};
use dormouse_runtime::{Log, Snapshot, Snapshots, StartError};
use tokio::task::JoinHandle;

use crate::config::Keep;
use dormouse_state::routes::Routes;

/// Snapshots of the routes.
pub struct RoutesSnapshot {
    snapshots: Snapshots,
    log: Log,
    every: u64,
    saved: Sequence,
    saving: Option<JoinHandle<()>>,
}

/// Routes and their position.
#[derive(Default)]
pub struct Folded {
    pub routes: Routes,
    pub sequence: Sequence,
    pub stored_at: Timestamp,
}

impl Folded {
    /// Loads the newest routes from which the log can be followed.
    pub async fn load(keep: Option<&Keep>, log: &Log) -> Result<Self, StartError> {
        let snapshots = keep.map(|keep| Snapshots::new(&keep.dir, &keep.build));
        let started = log.start::<Routes>(snapshots.as_ref()).await?;
        Ok(Self {
            routes: started.state,
            sequence: started.sequence,
            stored_at: started.stored_at,
        })
    }

    pub fn take(&mut self, recorded: &Recorded) {
        self.routes.evolve(recorded);
        self.sequence = recorded.sequence;
        self.stored_at = recorded.stored_at;
    }
}

impl RoutesSnapshot {
    pub fn new(keep: &Keep, log: &Log, folded: &Folded) -> Self {
        Self {
            snapshots: Snapshots::new(&keep.dir, &keep.build),
            log: log.clone(),
            every: keep.every,
            saved: folded.sequence,
            saving: None,
        }
    }

    pub fn save_now_and_then(&mut self, folded: &Folded) {
        let idle = self.saving.as_ref().is_none_or(JoinHandle::is_finished);
        if !idle || folded.sequence.0 < self.saved.0 + self.every {
            return;
        }
        self.saved = folded.sequence;
        let snapshots = self.snapshots.clone();
        let snapshot = Snapshot {
            state: folded.routes.clone(),
            log: self.log.identity(),
            sequence: folded.sequence,
            stored_at: folded.stored_at,
            own_last: Sequence(0),
        };
        self.saving = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = snapshots.save(&snapshot) {
                let path = snapshots.path::<Routes>();
                tracing::warn!(%error, "cannot write {}", path.display());
            }
        }));
    }
}
