//! Reads logs from the query service and the agents.

use dormouse_messages::ids::{ContainerId, Incarnation};
use dormouse_messages::{JobId, NodeId, TenantId};
use dormouse_node_agent::logs::{
    CHUNK_BYTES, CONTAINERS, Chunk, ContainersAnswer, ContainersQuery, LOGS, LogsQuery, PrintedBy,
    Stream,
};
use dormouse_projections::queries::{JobDetail, JobQuery};
use dormouse_runtime::{ApiError, Log, NodeAnswered};
use futures::future::join_all;
use serde::Serialize;
use serde_json::json;

use crate::commands::common::query;
use crate::error::Coded;
use crate::print;

/// A connection, and the tenant for whom it asks.
#[derive(Clone)]
pub struct Source {
    log: Log,
    tenant: Option<TenantId>,
}

/// A container with its node and output.
#[derive(Debug, Clone)]
pub struct Found {
    pub node: NodeId,
    pub printed: PrintedBy,
}

impl Found {
    /// Returns the container's id.
    pub const fn container(&self) -> &ContainerId {
        &self.printed.container
    }

    /// Returns the length of a stream when listed.
    pub const fn end(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Stdout => Some(self.printed.stdout_bytes),
            Stream::Stderr => Some(self.printed.stderr_bytes),
            Stream::Task(_) => None,
        }
    }
}

/// The containers of an incarnation.
#[derive(Debug, Default)]
pub struct Listed {
    pub found: Vec<Found>,
    pub silent: Vec<String>,
}

impl Listed {
    /// Prints the messages of silent nodes; reports whether there are any.
    pub fn tell(&self) -> bool {
        for why in &self.silent {
            print::aside(why);
        }
        !self.silent.is_empty()
    }
}

fn told(error: ApiError) -> Coded {
    match error {
        ApiError::Refused { code, message } => Coded::new(code, message),
        other => Coded::new("unavailable", other.to_string()),
    }
}

impl Source {
    /// Creates a source for a tenant or the operator.
    #[must_use]
    pub const fn new(log: Log, tenant: Option<TenantId>) -> Self {
        Self { log, tenant }
    }

    /// Queries a job.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn job(&self, id: &JobId) -> anyhow::Result<JobDetail> {
        let tenant = self.tenant.as_ref().or(self.log.tenant());
        if tenant.is_none() {
            return query(&self.log, "job", json!({"job": id})).await;
        }
        let request = serde_json::to_vec(&JobQuery { job: id.clone() })?;
        let answer = self.log.request_as(tenant, "job", request);
        Ok(serde_json::from_slice(&answer.await.map_err(told)?)?)
    }

    /// Returns the request that reads a stream from its beginning.
    #[must_use]
    pub fn query(container: &ContainerId, stream: Stream) -> LogsQuery {
        LogsQuery {
            container: container.clone(),
            stream,
            offset: None,
            tail: None,
            since: None,
            limit_bytes: CHUNK_BYTES,
            wait_ms: 0,
        }
    }

    /// Lists the containers of an incarnation on all its nodes.
    pub async fn containers(&self, detail: &JobDetail, incarnation: Incarnation) -> Listed {
        let is_own = |row: &&_| -> bool {
            let row: &dormouse_projections::queries::IncarnationRow = row;
            row.incarnation == incarnation
        };
        let own = detail.incarnations.iter().find(is_own);
        let nodes = own.map(|row| row.on.as_slice()).unwrap_or_default();
        let query = ContainersQuery {
            job: detail.row.job.clone(),
            incarnation,
        };
        let request = serde_json::to_vec(&query).unwrap_or_default();
        let asked = nodes.iter().map(|node| {
            let request = request.clone();
            self.log
                .ask_node(node, CONTAINERS, self.tenant.as_ref(), request)
        });
        let mut listed = Listed::default();
        for answered in join_all(asked).await {
            match answered {
                Ok(answer) => {
                    let answer = serde_json::from_slice::<ContainersAnswer>(&answer.payload);
                    let answer = answer.into_iter().flat_map(|answer| {
                        let node = answer.node;
                        let containers = answer.containers.into_iter();
                        containers.map(move |printed| Found {
                            node: node.clone(),
                            printed,
                        })
                    });
                    listed.found.extend(answer);
                }
                Err(error) => {
                    listed.silent.push(error.to_string());
                }
            }
        }
        listed.found.sort_by_key(|found| found.container().rank);
        listed
    }

    /// Asks a node's agent.
    ///
    /// # Errors
    /// The agent's refusal, or no answer.
    pub async fn ask<T: Serialize>(
        &self,
        node: &NodeId,
        name: &str,
        query: &T,
    ) -> Result<NodeAnswered, Coded> {
        let request =
            serde_json::to_vec(query).map_err(|error| Coded::new("internal", error.to_string()))?;
        let tenant = self.tenant.as_ref();
        let answered = self.log.ask_node(node, name, tenant, request).await;
        answered.map_err(told)
    }

    /// Reads a piece of a stream.
    ///
    /// # Errors
    /// The agent's refusal, or no answer.
    pub async fn chunk(&self, node: &NodeId, query: &LogsQuery) -> Result<Chunk, Coded> {
        let answered = self.ask(node, LOGS, query).await?;
        Chunk::received(|name| answered.header(name), &answered.payload)
            .map_err(|why| Coded::new("internal", format!("the answer of {node}: {why}")))
    }
}
