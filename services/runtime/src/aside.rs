//! Work on a thread of its own.

use tokio::sync::oneshot;

/// Runs `work` on a thread for which a process that stops does not wait, unlike those of its runtime. A panic
/// drops the sender.
pub fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    // Without a thread the sender is dropped, too.
    drop(thread.spawn(move || drop(done.send(work()))));
    result
}
