//! Shares of GPUs: registers containers with the scheduler of GPU tokens at start, adoption and revision.
//! Usage goes to the log in windows. The driver's list of processes is compared with the shares.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix::prelude::*;

use dormouse_agent_core::NotStarted;
use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server, ServerError, Usage};
use dormouse_messages::ContainerId;
use dormouse_messages::events::{GpuUse, JobRevised};

use super::Agent;
use crate::blocking::aside;
use crate::config::GPU_LIBRARY;
use crate::container::Before;
use crate::container_plan::{ContainerPlan, GpuPart};
use crate::disk_error::of_disk;
use crate::gpu_doubts::{self, Had, Held, Twice};
use crate::layout::TOKENS;
use crate::nvml::{self, Computing, Nvml};
use crate::plan;
use crate::report;
use crate::state::GpuDoubt;

/// A driver that is too slow is not asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The containers that share GPUs on this node.
#[derive(Default)]
pub struct Gpus {
    server: Option<Arc<Server>>,
    folders: Folders,
    told: BTreeMap<ContainerId, Told>,
    driver: Driver,
    had: BTreeMap<String, BTreeMap<ContainerId, Had>>,
    /// A finding must appear twice in a row.
    twice: Twice,
    said: BTreeMap<String, GpuDoubt>,
}

/// The folders of library and socket. One lock orders all changes. A folder in use is kept.
#[derive(Clone, Default)]
struct Folders {
    one_at_a_time: Arc<Mutex<()>>,
    used: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Folders {
    fn used(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, folder: &Path, library: &Path) -> io::Result<()> {
        let _alone = self.one_at_a_time.lock();
        fs::create_dir_all(folder)?;
        let to = folder.join(GPU_LIBRARY);
        match fs::remove_file(&to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A running program maps the old library: write a new file.
        fs::copy(library, &to).map(drop)
    }

    fn remove(&self, folder: &Path) {
        let _alone = self.one_at_a_time.lock();
        if self.used().contains(folder) {
            return;
        }
        if let Err(error) = fs::remove_dir_all(folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %folder.display(), %error, "cannot be removed");
        }
    }
}

#[derive(Clone, Default)]
enum Driver {
    #[default]
    Unasked,
    Mute,
    There(Arc<Nvml>),
}

type Answers = BTreeMap<String, Vec<Computing>>;

impl Driver {
    async fn ask(self, library: PathBuf, devices: BTreeSet<String>) -> (Self, Answers) {
        if devices.is_empty() || matches!(self, Self::Mute) {
            return (self, Answers::new());
        }
        let asked = tokio::task::spawn_blocking(move || {
            let driver = match self {
                Self::There(driver) => driver,
                Self::Unasked | Self::Mute => match Nvml::load(&library) {
                    Ok(driver) => Arc::new(driver),
                    Err(error) => {
                        tracing::info!(%error, library = %library.display(), "who is on shared GPUs is not compared with the driver's word");
                        return (Self::Mute, Answers::new());
                    }
                },
            };
            let answers = nvml::on_each(&driver, devices);
            (Self::There(driver), answers)
        });
        match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(
                    library = nvml::LIBRARY,
                    "the GPUs' driver does not answer, and is not asked again"
                );
                (Self::Mute, Answers::new())
            }
        }
    }
}

struct Told {
    since: Instant,
    used: BTreeMap<String, Usage>,
    /// A second empty window is not reported.
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
    fn offer(
        &mut self,
        container: &ContainerId,
        gpus: &[String],
        part: &GpuPart,
    ) -> Result<(Arc<Server>, Offer), ServerError> {
        let server = match &self.server {
            Some(server) => server,
            None => {
                let started = Server::start(Settings::default())?;
                self.server.insert(Arc::new(started))
            }
        };
        let server = Arc::clone(server);
        let terms = Terms {
            request_milli: part.request_milli,
            limit_milli: part.limit_milli,
            weight: part.request_milli,
        };
        let parts = gpus.iter().map(|uuid| Part {
            uuid: uuid.clone(),
            terms,
            cap_bytes: part.memory_bytes,
        });
        let offer = Offer {
            name: container.to_string(),
            socket: part.folder.join(TOKENS),
            parts: parts.collect(),
        };
        self.told
            .entry(container.clone())
            .or_insert_with(Told::nothing);
        self.folders.used().insert(part.folder.clone());
        Ok((server, offer))
    }

    /// Returns the usage since the last call, or `None` if unknown or idle twice.
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
            let had = self.had.get(&uuid).and_then(|it| it.get(id)).copied();
            devices.push(GpuUse {
                uuid,
                driver_bytes: had.map(|it| it.bytes),
                beyond_bytes: had.map_or(0, |it| it.beyond_bytes),
                busy_us: now.busy_ns.saturating_sub(then.busy_ns) / 1000,
                charged_us: now.occupied_ns.saturating_sub(then.occupied_ns) / 1000,
                launches: now.launches.saturating_sub(then.launches),
                waits: now.waits.saturating_sub(then.waits),
                waited_us: now.waited_ns.saturating_sub(then.waited_ns) / 1000,
                memory_bytes: now.memory_bytes,
                refused: now.refusals.saturating_sub(then.refusals),
            });
        }
        let window = told.since.elapsed();
        told.since = Instant::now();
        let was_idle = std::mem::replace(&mut told.idle, idle);
        (!idle || !was_idle).then_some((window, devices))
    }

    fn held(&self) -> BTreeMap<String, Vec<Held>> {
        let mut held: BTreeMap<String, Vec<Held>> = BTreeMap::new();
        let Some(server) = &self.server else {
            return held;
        };
        for id in self.told.keys() {
            let name = id.to_string();
            for (uuid, usage) in server.usage(&name).into_iter().flatten() {
                held.entry(uuid).or_default().push(Held {
                    container: id.clone(),
                    processes: server.processes(&name),
                    cap_bytes: usage.cap_bytes,
                    counted_bytes: usage.memory_bytes,
                });
            }
        }
        held
    }
}

fn unshared(error: &ServerError, folder: &Path) -> NotStarted {
    match error {
        ServerError::Start(source) | ServerError::Share { source, .. } => NotStarted {
            why: error.to_string(),
            ..of_disk("no scheduler of GPU tokens in", folder, source)
        },
        ServerError::TooMany(_) => error.to_string().into(),
    }
}

impl Agent {
    pub(super) fn share_gpus(
        &mut self,
        plan: &ContainerPlan,
    ) -> Result<Option<Before>, NotStarted> {
        let (Some(part), Some(library)) = (&plan.gpu_part, &self.config.gpu_library) else {
            return Ok(None);
        };
        let folder = part.folder.clone();
        let offered = self.gpus.offer(&plan.container, &plan.gpus, part);
        let (server, offer) = offered.map_err(|error| unshared(&error, &folder))?;
        let (folders, library) = (self.gpus.folders.clone(), library.clone());
        Ok(Some(Before::new(move || {
            let made = folders.make(&folder, &library);
            made.map_err(|error| of_disk("no library for its part of a GPU at", &folder, &error))?;
            server
                .share(&offer)
                .map_err(|error| unshared(&error, &folder))
        })))
    }

    pub(super) fn revise_gpus(&mut self, revised: &JobRevised) {
        if revised.gpu_limit_milli.is_none() {
            return;
        }
        let shared = self.gpus.told.keys().filter(|id| id.job == revised.job);
        for id in shared.cloned().collect::<Vec<_>>() {
            self.share_gpus_again(&id);
        }
    }

    pub(super) fn share_gpus_again(&mut self, id: &ContainerId) {
        let part = plan::part(&self.config, self.core.state(), id);
        let Some((gpus, part)) = part else { return };
        let (offered, id) = (self.gpus.offer(id, &gpus, &part), id.clone());
        tokio::spawn(aside(move || {
            let shared = offered.and_then(|(server, offer)| server.share(&offer));
            if let Err(error) = shared {
                tracing::warn!(container = %id, %error, "without a scheduler of GPU tokens it keeps to its request");
            }
        }));
    }

    pub(super) fn share_gpus_no_more(&mut self, id: &ContainerId) {
        self.tell_gpus(id);
        if self.gpus.told.remove(id).is_none() {
            return;
        }
        if let Some(server) = &self.gpus.server {
            server.forget(&id.to_string());
        }
        let (folders, folder) = (self.gpus.folders.clone(), self.config.layout().gpu(id));
        folders.used().remove(&folder);
        tokio::spawn(aside(move || folders.remove(&folder)));
    }

    pub(super) fn look_at_gpus(&mut self, ctx: &mut Context<Self>) {
        let shared = self.gpus.held().into_keys().collect();
        let asked = self.gpus.driver.clone();
        let asked = asked.ask(self.config.nvml.clone(), shared);
        ctx.spawn(asked.into_actor(self).map(|(driver, answers), actor, ctx| {
            actor.gpus.driver = driver;
            actor.reconcile_gpus(&answers);
            let shared: Vec<_> = actor.gpus.told.keys().cloned().collect();
            for id in shared {
                actor.tell_gpus(&id);
            }
            ctx.run_later(actor.config.gpu_window, Self::look_at_gpus);
        }));
    }

    fn reconcile_gpus(&mut self, answers: &Answers) {
        let held = self.gpus.held();
        let doubted = self
            .core
            .state()
            .own()
            .gpu_doubts
            .keys()
            .chain(self.gpus.said.keys());
        let devices: BTreeSet<String> = doubted.chain(held.keys()).cloned().collect();
        self.gpus.had.clear();
        for uuid in devices {
            let found = match (answers.get(&uuid), held.get(&uuid)) {
                (Some(computing), Some(held)) => gpu_doubts::compare(computing, held),
                (None, Some(_)) => continue,
                (_, None) => gpu_doubts::Found::default(),
            };
            self.gpus.had.insert(uuid.clone(), found.had.clone());
            let found = self.gpus.twice.seen(&uuid, found);
            let event = report::gpu_reconciled(&self.config.node, &uuid, found);
            let doubt = GpuDoubt::of(&event);
            let before = self.gpus.said.get(&uuid);
            let before = before.or_else(|| self.core.state().own().gpu_doubts.get(&uuid));
            if before.cloned().unwrap_or_default() != doubt {
                self.gpus.said.insert(uuid, doubt);
                self.report(event, Vec::new());
            }
        }
    }

    fn tell_gpus(&mut self, id: &ContainerId) {
        if let Some((window, devices)) = self.gpus.window(id) {
            let event = report::gpu_used(id, &self.config.node, window, devices);
            self.report(event, Vec::new());
        }
    }
}
