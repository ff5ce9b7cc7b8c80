//! The agent's snapshots: a restarted agent folds only newer events. A doubtful snapshot is not used. If the
//! log went back, the old snapshot stays until its containers have ended.

use dormouse_messages::{Sequence, Timestamp};
use dormouse_runtime::{Log, Snapshot, Snapshots, StartError};
use tokio::task::JoinHandle;

use crate::config::AgentConfig;
use crate::state::AgentState;

const EVERY: u64 = 20_000;

/// The snapshots of one agent.
pub struct AgentSnapshot {
    snapshots: Snapshots,
    log: Log,
    state: AgentState,
    former: Option<AgentState>,
    pub is_of_former: bool,
    saved: Sequence,
    saving: Option<JoinHandle<()>>,
}

impl AgentSnapshot {
    /// Loads the agent's last snapshot if it fits this log, or cuts its state from the broker's.
    ///
    /// # Errors
    /// When the log is trimmed and no state reaches its first event.
    pub async fn load(config: &AgentConfig, log: &Log) -> Result<Self, StartError> {
        let dir = config.layout().node().join("snapshots");
        let snapshots = Snapshots::new(dir, &config.build);
        let (found, former) = match snapshots.find::<AgentState>(log).await {
            Ok(found) => (found, None),
            Err(former) => (None, Some(*former)),
        };
        let is_own = |state: &AgentState| state.node.as_ref() == Some(&config.node);
        let found = found.filter(|snapshot| is_own(&snapshot.state));
        let former = former.filter(is_own);
        let started = log.start_after(found).await?;
        let (mut started, sequence) = (started.state, started.sequence);
        // The last message may be no event.
        started.folded = sequence;
        // The broker's state is that of every node.
        let state = if started.node.is_none() {
            started.cut(&config.node)
        } else {
            started
        };
        Ok(Self {
            snapshots,
            log: log.clone(),
            saved: state.folded,
            state,
            is_of_former: former.is_some(),
            former,
            saving: None,
        })
    }

    /// Returns the first event that is not folded.
    #[must_use]
    pub const fn next(&self) -> Sequence {
        self.state.folded.next()
    }

    /// Takes the state to continue from, and the state from before the log went back.
    pub fn take(&mut self) -> (AgentState, Option<AgentState>) {
        (std::mem::take(&mut self.state), self.former.take())
    }

    /// Replaces the former state's snapshot once all its consequences are on the log.
    pub fn replace_former(&mut self, state: &AgentState, stored_at: Timestamp) {
        self.is_of_former = false;
        self.save(state, stored_at);
    }

    /// Writes a snapshot after enough events.
    pub fn save_now_and_then(&mut self, state: &AgentState, stored_at: Timestamp) {
        let is_idle = self.saving.as_ref().is_none_or(JoinHandle::is_finished);
        if is_idle && !self.is_of_former && state.folded.0 >= self.saved.0 + EVERY {
            self.save(state, stored_at);
        }
    }

    /// Writes the last snapshot, after one under way.
    pub async fn save_last(mut self, state: AgentState, stored_at: Timestamp) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
        if state.folded > self.saved && !self.is_of_former {
            self.save(&state, stored_at);
        }
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
    }

    fn save(&mut self, state: &AgentState, stored_at: Timestamp) {
        self.saved = state.folded;
        let snapshots = self.snapshots.clone();
        let snapshot = Snapshot {
            state: state.clone(),
            log: self.log.identity(),
            sequence: state.folded,
            stored_at,
            own_last: Sequence(0),
        };
        self.saving = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = snapshots.save(&snapshot) {
                let path = snapshots.path::<AgentState>();
                tracing::warn!(%error, "cannot write {}", path.display());
            }
        }));
    }
}
