//! Starts a Docker container: folders, environment, the engine's container.

use std::collections::BTreeMap;
use std::sync::Arc;

use bollard::errors::Error;
use bollard::query_parameters::CreateContainerOptions;

use dormouse_agent_core::NotStarted;
use dormouse_messages::events::NodeFault;
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_runtime::forever;

use super::{Inner, PID_WAIT, RETRY, body, pid_of, request_of, status_code, words};
use crate::code;
use crate::container_plan::ContainerPlan;
use crate::disk_error::of_jobs_folder;
use crate::executor::GO;
use crate::layout::Layout;
use crate::members::ACK;
use crate::mounts;
use crate::network::READY;
use crate::process;
use crate::secrets;

const FULL: [&str; 2] = ["no space left", "disk quota"];

/// Blames the job for a refused start, unless the engine's disk is full. A text from the job's document
/// proves nothing.
pub(super) fn refused(plan: &ContainerPlan, error: &Error) -> NotStarted {
    let why = words(error);
    let is_full = FULL.iter().any(|it| why.contains(it) && !says(plan, it));
    let fault = match error {
        Error::DockerResponseServerError { .. } if is_full => Some(NodeFault::Disk),
        Error::DockerResponseServerError { .. } => None,
        _ => Some(NodeFault::Engine),
    };
    NotStarted { why, fault }
}

fn says(plan: &ContainerPlan, words: &str) -> bool {
    let mounts = plan.mounts.iter();
    let mounts = mounts.flat_map(|it| [it.source.as_str(), it.target.as_str()]);
    let env = plan.env.iter().flat_map(|(name, value)| {
        let value = match value {
            EnvValue::Plain(value) => value.as_str(),
            EnvValue::Secret(_) => "",
        };
        [name.as_str(), value]
    });
    let argv = plan.argv.iter().map(String::as_str);
    let image = plan.image.as_deref();
    mounts
        .chain(env)
        .chain(argv)
        .chain(image)
        .any(|it| it.contains(words))
}

impl Inner {
    /// Removes a container that may run after a failed start, until the engine confirms.
    async fn remove_surely(&self, name: &str) {
        // 409: a removal is under way.
        let failed = |error: Error| {
            tracing::warn!(name, %error, "may run after its start failed; removing it again");
        };
        let remove = || async {
            match Self::remove(&self.docker, name).await {
                Err(error) if status_code(&error) == Some(404) => Ok(()),
                removed => removed,
            }
        };
        forever(RETRY, failed, remove).await;
    }

    pub(super) async fn start(
        self: &Arc<Self>,
        mut plan: ContainerPlan,
    ) -> Result<u32, NotStarted> {
        let _starting = self.pauses.start();
        let name = self.name(&plan.container);
        let (prepared, layout) = (plan.clone(), self.layout.clone());
        let own = self.layout.container_below(&plan.container);
        let marks = self.marks.clone();
        let work = move || {
            // An agent that adopts the container finds its checkpoints by the record.
            marks.change(&prepared.container, prepared.request, |mark| {
                mark.admitted = prepared.admitted;
            });
            prepare(&layout, &prepared)
        };
        let prepared = self.preparing.prepare(&plan.container, own, work);
        let (env, mounts) = prepared.await?;
        plan.mounts = mounts;
        self.create(&name, &plan, &env).await?;
        let started = self.docker.start_container(&name, None).await;
        if let Err(error) = started {
            self.remove_surely(&name).await;
            let mut refusal = refused(&plan, &error);
            refusal.why.push_str("; see command, image and mounts");
            return Err(refusal);
        }
        if let Err(refusal) = self.give_address(&name, &plan).await {
            self.remove_surely(&name).await;
            return Err(refusal);
        }
        let found = tokio::time::timeout(PID_WAIT, self.inspect(&name)).await;
        self.watch(plan.container, plan.request, name, false);
        Ok(found.ok().and_then(Result::ok).as_ref().map_or(0, pid_of))
    }

    async fn create(
        &self,
        name: &str,
        plan: &ContainerPlan,
        env: &[String],
    ) -> Result<(), NotStarted> {
        for _ in 0..2 {
            let options = CreateContainerOptions {
                name: Some(name.to_owned()),
                ..CreateContainerOptions::default()
            };
            let body = body::create(&self.config, plan, env);
            let created = self.docker.create_container(Some(options), body).await;
            match created {
                Ok(_) => return Ok(()),
                Err(error) if status_code(&error) == Some(409) => {
                    let found = self.inspect(name).await;
                    let found = found.map_err(|error| refused(plan, &error))?;
                    if request_of(&found) == Some(plan.request) {
                        return Ok(());
                    }
                    // Another log's container.
                    Self::remove(&self.docker, name)
                        .await
                        .map_err(|error| refused(plan, &error))?;
                }
                Err(error) if status_code(&error) == Some(404) => {
                    let why = format!(
                        "{}; pull or import the image on this node (for dormouse/empty: \
                         scripts/install.sh docker)",
                        words(&error)
                    );
                    return Err(NotStarted::of_node(NodeFault::Image, why));
                }
                // The container may exist, not started. The next start or agent finds it by name.
                Err(error) => return Err(refused(plan, &error)),
            }
        }
        Err(format!("the engine keeps another container named {name}; remove it").into())
    }
}

fn prepare(layout: &Layout, plan: &ContainerPlan) -> Result<(Vec<String>, Vec<Mount>), NotStarted> {
    let own = layout.container_below(&plan.container);
    let claimed = layout.claim(&plan.folder());
    claimed
        .and_then(|()| own.make())
        .map_err(|error| of_jobs_folder("cannot create", &own, &error))?;
    code::give(layout, plan)?;
    let checkpoint = layout.checkpoint_below(&plan.folder(), plan.container.incarnation);
    let folders = [own.clone(), checkpoint];
    for folder in folders {
        let made = folder.make();
        let made = made.map_err(|error| of_jobs_folder("cannot create", &folder, &error))?;
        // Remove an earlier container's answers.
        let _ = made.remove(ACK);
        let _ = made.remove(READY);
        let _ = made.remove(GO);
        if let Some(user) = plan.user {
            if folder == own {
                let tmp = folder.join(process::sandboxed::TMP).make();
                let tmp = tmp.and_then(|tmp| tmp.give(user));
                tmp.map_err(|error| of_jobs_folder("cannot create", &folder, &error))?;
            }
            let given = made.give(user);
            let what = "cannot be given to its tenant's user:";
            given.map_err(|error| of_jobs_folder(what, &folder, &error))?;
        }
    }
    Ok((environment(plan)?, mounts::real(plan)?))
}

pub(super) fn environment(plan: &ContainerPlan) -> Result<Vec<String>, String> {
    let mut env = BTreeMap::new();
    if plan.user.is_some() {
        process::sandboxed::add_to(&mut env, plan);
    }
    env.extend(secrets::resolve(&plan.env, &plan.granted)?);
    Ok(env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect())
}
