//! Disk work on other threads: a file system may hang, and the agent's thread renews the lease.

use std::time::Duration;

use tokio::sync::Semaphore;

/// Limit on concurrent looks. Most of the runtime's 512 threads must remain for starts and kills.
static LOOKS: Semaphore = Semaphore::const_new(64);

/// Time limit of a look. A busy network file system needs a second.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `look` on another thread. Returns `None` after a panic. A look holds a permit of [`LOOKS`] until the
/// file system answers.
pub async fn aside<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = LOOKS.acquire().await.ok()?;
    let looking = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        look()
    });
    looking.await.ok()
}

/// Runs `look` on another thread. Returns `None` after a panic or [`LOOK_TIMEOUT`].
pub async fn aside_in_time<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let looked = tokio::time::timeout(LOOK_TIMEOUT, aside(look)).await;
    looked.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn looks_that_hang_are_given_up_and_leave_threads_to_others() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let hang = |_| {
            let held = std::sync::Arc::clone(&held);
            let hang = aside(move || held.lock().is_ok_and(|held| held.recv().is_err()));
            tokio::time::timeout(Duration::from_millis(50), hang)
        };
        let hung = futures::future::join_all((0..600).map(hang)).await;
        assert!(hung.iter().all(Result::is_err));
        let start = tokio::task::spawn_blocking(|| 7).await;
        assert_eq!(start.expect("it runs"), 7);
        drop(release);
        assert_eq!(aside_in_time(|| 7).await, Some(7));
    }
}
