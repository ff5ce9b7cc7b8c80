//! The queries `notebooks` and `notebook`.

use dormouse_messages::{ContainerId, JobId, NodeId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::QueryError;
use crate::ReadModel;
use crate::notebooks::{Notebook, NotebookState};

/// Which notebooks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotebooksQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
}

/// The notebooks that have not ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NotebooksAnswer {
    /// By job.
    pub notebooks: Vec<NotebookRow>,
}

/// Which notebook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotebookQuery {
    /// Its job.
    pub job: JobId,
}

/// A notebook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotebookRow {
    /// Its job.
    pub job: JobId,
    /// How it is.
    pub state: NotebookState,
    /// Since when nobody uses it; absent where it works, or does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// When it will be ended, if nobody uses it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// Its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// Containers that have ended in a failure since one was last ready.
    #[serde(default, skip_serializing_if = "is_none")]
    pub failures: u32,
    /// Where gateways serve it.
    pub addresses: Vec<String>,
    /// Why it is as it is, for a person.
    pub reason: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_none(number: &u32) -> bool {
    *number == 0
}

/// Lists them.
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

/// One of them.
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
