//! Every fold that a process starts from: the deciders', the read model, and those of agents, gateways and
//! webhooks.

use dormouse_agent_core::state::AgentState;
use dormouse_messages::{Fold, Format, NewerFormat, Sequence, Timestamp};
use dormouse_replay::history::slice::{EncodedState, States};
use dormouse_replay::log_file::Row;
use dormouse_runtime::{Log, LogError, Snapshot};
use dormouse_state::hooks::Hooks;
use dormouse_state::routes::Routes;

use crate::error::ArchiveError;
use crate::manifest::Manifest;

/// The folds after one message.
#[derive(Debug, Clone, Default)]
pub struct Folds {
    pub states: States,
    /// The state of every node; an agent cuts out its own.
    pub agents: AgentState,
    pub routes: Routes,
    pub hooks: Hooks,
    /// The broker's time of that message.
    pub stored_at: Timestamp,
}

impl Folds {
    /// Folds a row.
    pub fn read(&mut self, row: &Row) {
        match row {
            Row::Event(recorded) => {
                self.states.read(recorded);
                self.agents.evolve(recorded);
                self.routes.evolve(recorded);
                self.hooks.evolve(recorded);
                self.stored_at = recorded.stored_at;
            }
            Row::Flagged(flagged) => {
                self.states.flag(flagged.sequence, flagged.why.clone());
                self.stored_at = flagged.stored_at;
            }
        }
    }

    /// Encodes every state.
    ///
    /// # Errors
    /// A state cannot be encoded.
    pub fn encode(&self) -> Result<Vec<EncodedState>, ArchiveError> {
        let mut encoded = self.states.encode()?;
        encoded.push(EncodedState::of(&self.agents)?);
        encoded.push(EncodedState::of(&self.routes)?);
        encoded.push(EncodedState::of(&self.hooks)?);
        Ok(encoded)
    }

    /// Decodes the states of a segment.
    ///
    /// # Errors
    /// A state is missing, damaged, or of another shape than this build's.
    pub fn decode(states: &[EncodedState], manifest: &Manifest) -> Result<Self, ArchiveError> {
        let (asof, at, build) = (manifest.asof, manifest.asof_time, &manifest.build);
        Ok(Self {
            states: States::decode(states, asof, at, build)?,
            agents: EncodedState::find(states, build)?,
            routes: EncodedState::find(states, build)?,
            hooks: EncodedState::find(states, build)?,
            stored_at: manifest.asof_stored_at,
        })
    }

    /// Returns the last folded message.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.states.fork.sequence
    }

    /// Puts every state on the broker, for processes that start.
    ///
    /// # Errors
    /// When the broker refuses, has no room, or does not answer.
    pub async fn publish(&self, log: &Log, build: &str) -> Result<(), LogError> {
        let fork = &self.states.fork;
        let format = fork.cluster.builds.format;
        if format > Format::FIRST {
            let upgraded = NewerFormat {
                sequence: self.sequence(),
                format,
                by: Some(build.to_owned()),
            };
            log.states().put_format(&upgraded).await?;
        }
        self.put(log, build, &fork.admission).await?;
        self.put(log, build, &fork.cluster).await?;
        self.put(log, build, &fork.autoscaler).await?;
        self.put(log, build, &fork.archiver).await?;
        self.put(log, build, &self.states.model).await?;
        self.put(log, build, &self.agents).await?;
        self.put(log, build, &self.routes).await?;
        self.put(log, build, &self.hooks).await
    }

    async fn put<F: Fold>(&self, log: &Log, build: &str, state: &F) -> Result<(), LogError> {
        let snapshot = Snapshot {
            state: state.clone(),
            log: log.identity(),
            sequence: self.sequence(),
            stored_at: self.stored_at,
            own_last: Sequence(0),
        };
        log.states().put(&snapshot, build).await
    }
}
