//! Prepares starts on other threads. Files that a job names may hang, so starts have a time limit and tenants
//! a limit of threads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_agent_core::NotStarted;
use dormouse_messages::ContainerId;
use dormouse_messages::events::NodeFault;
use dormouse_sandbox::ENDED;
use dormouse_sandbox::folder::Below;
use tokio::sync::{Notify, Semaphore};

use crate::blocking::aside_in_time;

/// Time limit of a preparation, which mostly copies the job's code.
const WITHIN: Duration = Duration::from_secs(120);

/// A hanging preparation holds one of the runtime's 512 threads.
const OF_A_TENANT: usize = 32;

/// The preparations under way on a node.
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

    /// Prepares a container's start. `own` is its folder.
    ///
    /// # Errors
    /// A failure, a timeout, or a container that must end.
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

    /// Abandons the preparation of a container that must end.
    pub fn end(&self, container: &ContainerId) {
        if let Some(start) = self.state().starts.get(container) {
            start.notify_one();
        }
    }
}

/// Blames the node for a timeout only if the agent's own folder hangs too.
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
        assert_eq!(preparing.prepare(&container, own, || Ok(7)).await, Ok(7));
    }
}
