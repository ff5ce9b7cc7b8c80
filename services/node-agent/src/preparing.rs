//! Preparing starts on threads of their own. A job's document names files and folders that need not
//! answer: each start has a bound of time, each tenant a bound of threads, and a container that is to
//! end is not prepared further.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_messages::ContainerId;
use dormouse_messages::events::NodeFault;
use tokio::sync::{Notify, Semaphore};

use crate::folder::{Below, aside_in_time};
use crate::runtime::NotStarted;

/// How long a start may be prepared: most of it is a copy of the job's code.
const WITHIN: Duration = Duration::from_secs(120);

/// Starts of one tenant that are prepared at once. Those that hang hold a thread each, of which the
/// runtime has 512.
const OF_A_TENANT: usize = 32;

/// Why a container that was killed as it started does not run.
pub const ENDED: &str = "it was ended while it started";

/// The starts of a node that are being prepared.
#[derive(Debug, Default)]
pub struct Preparing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    starts: BTreeMap<ContainerId, Arc<Notify>>,
    tenants: BTreeMap<String, Arc<Semaphore>>,
}

impl Preparing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares a container's start; `own` is its folder.
    ///
    /// # Errors
    /// Why it is not prepared: it fails, takes too long, or the container is to end.
    pub async fn prepare<T: Send + 'static>(
        &self,
        container: &ContainerId,
        own: Below,
        work: impl FnOnce() -> Result<T, NotStarted> + Send + 'static,
    ) -> Result<T, NotStarted> {
        let (ended, threads) = {
            let mut state = self.state();
            let ended = Arc::new(Notify::new());
            state.starts.insert(container.clone(), Arc::clone(&ended));
            let tenant = container.job.tenant().to_owned();
            let threads = state.tenants.entry(tenant);
            let threads = threads.or_insert_with(|| Arc::new(Semaphore::new(OF_A_TENANT)));
            (ended, Arc::clone(threads))
        };
        let working = async {
            let thread = threads.acquire_owned().await;
            let worked = tokio::task::spawn_blocking(move || {
                let _thread = thread;
                work()
            });
            worked
                .await
                .unwrap_or_else(|error| Err(error.to_string().into()))
        };
        let worked = tokio::select! {
            worked = tokio::time::timeout(WITHIN, working) => worked.ok(),
            () = ended.notified() => Some(Err(ENDED.into())),
        };
        self.state().starts.remove(container);
        match worked {
            Some(worked) => worked,
            None => Err(too_slow(own).await),
        }
    }

    /// A container is to end.
    pub fn end(&self, container: &ContainerId) {
        if let Some(start) = self.state().starts.get(container) {
            start.notify_one();
        }
    }
}

/// The agent's own folder tells whose fault it is.
async fn too_slow(own: Below) -> NotStarted {
    let path = own.path();
    let answers = aside_in_time(move || own.check_root()).await;
    let seconds = WITHIN.as_secs();
    match answers {
        Some(Ok(())) => format!(
            "its start was not prepared in {seconds} s; see that its mounts and the files that it names answer on this node"
        )
        .into(),
        _ => NotStarted::of_node(
            NodeFault::Disk,
            format!("the file system of {} does not answer", path.display()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_whose_files_do_not_answer_ends_when_its_container_is_to_end() {
        let preparing = Preparing::default();
        let container: ContainerId = "ads/lr/1/0".parse().expect("an id");
        let (release, held) = std::sync::mpsc::channel::<()>();
        let hangs = move || {
            let _ = held.recv();
            Ok(())
        };
        let own = Below::new("/tmp".into(), "");
        let begun = std::time::Instant::now();
        let (prepared, ()) =
            tokio::join!(preparing.prepare(&container, own.clone(), hangs), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                preparing.end(&container);
            });
        assert_eq!(prepared, Err(NotStarted::from(ENDED)));
        assert!(begun.elapsed() < Duration::from_secs(10));
        drop(release);
        // Another tenant's, or another start, is not disturbed.
        assert_eq!(preparing.prepare(&container, own, || Ok(7)).await, Ok(7));
    }
}
