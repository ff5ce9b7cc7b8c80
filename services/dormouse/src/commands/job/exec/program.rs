//! A program in a container, as this command asks its node's agent about it.

use std::time::Duration;

use dormouse_messages::NodeId;
use dormouse_runtime::{NodeAnswered, retry};

use super::super::logs::Source;
use crate::error::Coded;

const AGAIN: Duration = Duration::from_millis(200);

/// The agent ends a program that no client asks about for 20 s.
const GIVE_UP: Duration = Duration::from_secs(15);

/// A started program.
#[derive(Clone)]
pub struct Program {
    pub source: Source,
    pub node: NodeId,
    pub exec: u64,
}

impl Program {
    pub async fn ask<T: serde::Serialize>(
        &self,
        name: &str,
        query: &T,
    ) -> Result<NodeAnswered, Coded> {
        let again = |error: &Coded| matches!(error.code(), "unavailable" | "busy");
        let ask = || self.source.ask(&self.node, name, query);
        retry(AGAIN, GIVE_UP, again, ask).await
    }
}
