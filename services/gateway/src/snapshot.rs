//! Snapshots of the routes. Ignored on any doubt: another build or log, or an unknown position.

use dormouse_messages::{Fold, Recorded, Sequence, Timestamp};
use dormouse_runtime::{Log, Snapshot, Snapshots};
use tokio::task::JoinHandle;

use crate::config::Keep;
use crate::routes::Routes;

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
    pub fn take(&mut self, recorded: &Recorded) {
        self.routes.evolve(recorded);
        self.sequence = recorded.sequence;
        self.stored_at = recorded.stored_at;
    }
}

impl RoutesSnapshot {
    pub async fn load(keep: &Keep, log: &Log) -> (Self, Folded) {
        let snapshots = Snapshots::new(&keep.dir, &keep.build);
        let found = snapshots.load::<Routes>(log).await;
        let folded = found.map_or_else(Folded::default, |snapshot| Folded {
            routes: snapshot.state,
            sequence: snapshot.sequence,
            stored_at: snapshot.stored_at,
        });
        let kept = Self {
            snapshots,
            log: log.clone(),
            every: keep.every,
            saved: folded.sequence,
            saving: None,
        };
        (kept, folded)
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
