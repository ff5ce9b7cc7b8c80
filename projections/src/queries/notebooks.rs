//! The queries `notebooks` and `notebook`.

use dormouse_messages::{ContainerId, JobId, NodeId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use crate::ReadModel;
use crate::notebooks::{Notebook, NotebookState};

/// The query's parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotebooksQuery {
    pub tenant: Option<TenantId>,
}

/// The live notebooks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NotebooksAnswer {
    pub notebooks: Vec<NotebookRow>,
}

/// The query's parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotebookQuery {
    pub job: JobId,
}

/// A notebook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotebookRow {
    pub job: JobId,
    pub state: NotebookState,
    /// Absent while busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub failures: u32,
    pub addresses: Vec<String>,
    pub reason: String,
}

/// Lists the notebooks.
pub fn notebooks(model: &ReadModel, query: &NotebooksQuery) -> NotebooksAnswer {
    let is_meant = |job: &JobId| {
        let tenant = query.tenant.as_ref();
        tenant.is_none_or(|tenant| tenant.as_str() == job.tenant())
    };
    let all = model.notebooks.iter().filter(|(job, _)| is_meant(job));
    NotebooksAnswer {
        notebooks: all.map(|(job, it)| row(model, job, it)).collect(),
    }
}

/// Returns one notebook.
pub fn notebook(model: &ReadModel, query: &NotebookQuery) -> Result<NotebookRow, QueryError> {
    let job = &query.job;
    let found = model.notebooks.get(job);
    found.map(|it| row(model, job, it)).ok_or_else(|| {
        let message =
            format!("there is no notebook {job}; `dormouse notebook list` lists those there are");
        QueryError::not_found(message)
    })
}

fn row(model: &ReadModel, job: &JobId, notebook: &Notebook) -> NotebookRow {
    let state = notebook.state();
    let running = notebook.running.as_ref();
    let rests = matches!(state, NotebookState::Idle | NotebookState::Ready);
    NotebookRow {
        job: job.clone(),
        state,
        idle_since: running.filter(|_| rests).map(|it| it.active_at),
        ends_at: notebook.ends_at,
        node: running.map(|it| it.node.clone()),
        container: running.map(|it| it.container.clone()),
        failures: notebook.failures,
        addresses: model.notebooks.addresses(job),
        reason: match (state, &notebook.failure) {
            (NotebookState::Stopped, _) => "who opens its page starts it".to_owned(),
            (NotebookState::Starting, Some(failure)) => failure.clone(),
            (NotebookState::Starting, None) => model.jobs.get(job).map_or(String::new(), |_| {
                format!("`dormouse job show {job}` says what it waits for")
            }),
            _ if notebook.ends_at.is_some() => "nobody uses it".to_owned(),
            _ => String::new(),
        },
    }
}
