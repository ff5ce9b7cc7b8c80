//! A driver that provides code and packages before containers start.

use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;

use dormouse_agent_core::NotStarted;
use dormouse_messages::{ContainerId, Sequence};

use crate::blocking::aside;
use crate::code::Cache;
use crate::container_plan::ContainerPlan;
use crate::container_record::ContainerRecords;
use crate::exec::attached::{Attach, Attached};
use crate::python::Environments;
use crate::runtime::{ContainerDriver, Found, RuntimeError};

/// The wrapped driver and the caches.
pub struct Provided {
    runtime: Arc<dyn ContainerDriver>,
    code: Cache,
    environments: Environments,
    marks: ContainerRecords,
}

impl Provided {
    /// Wraps the driver that starts containers.
    #[must_use]
    pub fn new(
        runtime: Arc<dyn ContainerDriver>,
        code: Cache,
        environments: Environments,
        marks: ContainerRecords,
    ) -> Self {
        Self {
            runtime,
            code,
            environments,
            marks,
        }
    }

    async fn have(&self, plan: &ContainerPlan) -> Result<(), NotStarted> {
        if let Some(code) = &plan.code {
            let tenant = plan.container.job.tenant();
            self.code.provide(tenant, &code.packed).await?;
        }
        let Some(python) = &plan.python else {
            return Ok(());
        };
        // The record protects the environment from pruning.
        let (marks, name) = (self.marks.clone(), python.name());
        let (container, request) = (plan.container.clone(), plan.request);
        let note = move || marks.change(&container, request, |mark| mark.environment = Some(name));
        aside(note).await;
        let tenant = plan.container.job.tenant();
        self.environments.provide(tenant, python, plan.user).await
    }
}

impl ContainerDriver for Provided {
    fn name(&self) -> &'static str {
        self.runtime.name()
    }

    fn provide<'a>(&'a self, plan: &'a ContainerPlan) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let had = self.have(plan);
        had.map(|had| had.map_err(RuntimeError::Start)).boxed()
    }

    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>> {
        self.runtime.start(plan)
    }

    fn first_process<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Option<u32>> {
        self.runtime.first_process(container)
    }

    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.runtime.signal(container, signal)
    }

    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.runtime.notify(container, signal)
    }

    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.runtime.kill(container)
    }

    fn exec(&self, plan: ContainerPlan, attach: Attach) -> BoxFuture<'_, Result<Attached, String>> {
        self.runtime.exec(plan, attach)
    }

    fn recover(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>> {
        self.runtime.recover()
    }

    fn remove(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()> {
        self.runtime.remove(container, request)
    }

    fn writes_elsewhere<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Vec<PathBuf>> {
        self.runtime.writes_elsewhere(container)
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        self.runtime.leave()
    }
}
