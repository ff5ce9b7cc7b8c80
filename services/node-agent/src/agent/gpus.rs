//! Parts of GPUs: a container that has one is let to the scheduler of tokens before it starts, and
//! again when an agent adopts it; what it used goes to the log in windows.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use actix::prelude::*;

use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server, Usage};
use dormouse_messages::ContainerId;
use dormouse_messages::events::GpuUse;

use super::Agent;
use crate::config::GPU_LIBRARY;
use crate::layout::TOKENS;
use crate::plan;
use crate::report;
use crate::runtime::{ContainerPlan, GpuPart, NotStarted};

/// A window of use: as often as other observations, at most.
const WINDOW: Duration = Duration::from_secs(10);

/// Who shares GPUs on this node.
#[derive(Default)]
pub struct Gpus {
    /// Started when the first container has a part.
    server: Option<Server>,
    /// What was last told of each container.
    told: BTreeMap<ContainerId, Told>,
}

struct Told {
    since: Instant,
    used: BTreeMap<String, Usage>,
    /// The last window was empty: another one is not told.
    idle: bool,
}

impl Told {
    fn nothing() -> Self {
        Self {
            since: Instant::now(),
            used: BTreeMap::new(),
            idle: true,
        }
    }
}

impl Gpus {
    fn share(&mut self, plan: &ContainerPlan, part: &GpuPart) -> Result<(), String> {
        let server = match &self.server {
            Some(server) => server,
            None => {
                let started = Server::start(Settings::default());
                let started = started.map_err(|error| error.to_string())?;
                self.server.insert(started)
            }
        };
        let terms = Terms {
            request_milli: part.request_milli,
            limit_milli: part.limit_milli,
            weight: part.request_milli,
        };
        let parts = plan.gpus.iter().map(|uuid| Part {
            uuid: uuid.clone(),
            terms,
            cap_bytes: part.memory_bytes,
        });
        let offer = Offer {
            name: plan.container.to_string(),
            socket: part.folder.join(TOKENS),
            parts: parts.collect(),
        };
        server.share(&offer).map_err(|error| error.to_string())?;
        self.told
            .entry(plan.container.clone())
            .or_insert_with(Told::nothing);
        Ok(())
    }

    /// What a container used since that was last asked; nothing if it is not known, or has done
    /// nothing for more than a window: the first empty one says that it has stopped.
    fn window(&mut self, id: &ContainerId) -> Option<(Duration, Vec<GpuUse>)> {
        let used = self.server.as_ref()?.usage(&id.to_string())?;
        let told = self.told.get_mut(id)?;
        let mut idle = true;
        let mut devices = Vec::new();
        for (uuid, now) in used {
            let then = told.used.insert(uuid.clone(), now).unwrap_or_default();
            idle &= now.launches == then.launches
                && now.busy_ns == then.busy_ns
                && now.memory_bytes == then.memory_bytes;
            devices.push(GpuUse {
                uuid,
                busy_us: (now.busy_ns - then.busy_ns) / 1000,
                charged_us: (now.occupied_ns - then.occupied_ns) / 1000,
                launches: now.launches - then.launches,
                waits: now.waits - then.waits,
                waited_us: (now.waited_ns - then.waited_ns) / 1000,
                memory_bytes: now.memory_bytes,
                refused: now.refusals - then.refusals,
            });
        }
        let window = told.since.elapsed();
        told.since = Instant::now();
        let was_idle = std::mem::replace(&mut told.idle, idle);
        (!idle || !was_idle).then_some((window, devices))
    }
}

impl Agent {
    /// Lets a container to the scheduler, if it has a part of a GPU: before it starts.
    pub(super) fn share_gpus(&mut self, plan: &ContainerPlan) -> Result<(), NotStarted> {
        let (Some(part), Some(library)) = (&plan.gpu_part, &self.config.gpu_library) else {
            return Ok(());
        };
        let made = || -> io::Result<()> {
            fs::create_dir_all(&part.folder)?;
            let to = part.folder.join(GPU_LIBRARY);
            match fs::remove_file(&to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // A program that runs has it mapped: a new library is a new file.
            fs::copy(library, &to).map(drop)
        };
        made().map_err(|error| {
            crate::runtime::of_disk("no library for its part of a GPU at", &part.folder, &error)
        })?;
        self.gpus.share(plan, part).map_err(NotStarted::from)
    }

    /// The same for one that runs already: it is held as before where that fails.
    pub(super) fn share_gpus_again(&mut self, id: &ContainerId) {
        let plan = plan::plan(&self.config, self.core.state(), id);
        let Ok(plan) = plan else {
            return;
        };
        if let Some(part) = &plan.gpu_part
            && let Err(error) = self.gpus.share(&plan, part)
        {
            tracing::warn!(container = %id, error, "without a scheduler of GPU tokens it keeps to its request");
        }
    }

    /// Its last window, and its end.
    pub(super) fn share_gpus_no_more(&mut self, id: &ContainerId) {
        self.tell_gpus(id);
        if self.gpus.told.remove(id).is_none() {
            return;
        }
        if let Some(server) = &self.gpus.server {
            server.forget(&id.to_string());
        }
        let folder = self.config.layout().gpu(id);
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %folder.display(), %error, "cannot be removed");
        }
    }

    /// Tells what containers used, window after window.
    pub(super) fn look_at_gpus(&mut self, ctx: &mut Context<Self>) {
        let shared: Vec<_> = self.gpus.told.keys().cloned().collect();
        for id in shared {
            self.tell_gpus(&id);
        }
        ctx.run_later(WINDOW, Self::look_at_gpus);
    }

    fn tell_gpus(&mut self, id: &ContainerId) {
        if let Some((window, devices)) = self.gpus.window(id) {
            let event = report::gpu_used(id, &self.config.node, window, devices);
            self.report(event, Vec::new());
        }
    }
}
