//! Delays removals until starts pause: a removal takes half as long as a start, under the same locks of the
//! engine. Nobody waits for a removal.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

/// A start that follows an exit comes within tens of milliseconds.
const PAUSE: Duration = Duration::from_millis(500);

const LONGEST: Duration = Duration::from_secs(10);

/// The starts under way and the waiting removals.
pub struct Pauses {
    under_way: watch::Sender<UnderWay>,
    turn: Semaphore,
}

#[derive(Default)]
struct UnderWay {
    starts: usize,
    removals: usize,
    is_over: bool,
}

/// A start under way.
pub struct Starting<'a>(&'a Pauses);

/// A removal under way.
pub struct Removing<'a> {
    pauses: &'a Pauses,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            under_way: watch::Sender::new(UnderWay::default()),
            turn: Semaphore::new(1),
        }
    }
}

impl Pauses {
    /// Begins a start. Dropping the init ends it.
    pub fn start(&self) -> Starting<'_> {
        self.under_way.send_modify(|it| it.starts += 1);
        Starting(self)
    }

    /// Announces a removal for [`Self::end`].
    pub fn expect_removal(&self) {
        self.under_way.send_modify(|it| it.removals += 1);
    }

    /// Waits for a pause. The init ends the removal.
    pub async fn removal(&self) -> Removing<'_> {
        let mut removing = Removing {
            pauses: self,
            _turn: None,
        };
        let _ = timeout(LONGEST, self.quiet()).await;
        removing._turn = self.turn.acquire().await.ok();
        removing
    }

    async fn quiet(&self) {
        let mut under_way = self.under_way.subscribe();
        loop {
            let still = under_way.wait_for(|it| it.starts == 0 || it.is_over).await;
            if still.is_ok_and(|it| it.is_over) {
                return;
            }
            let more = under_way.wait_for(|it| it.starts > 0 || it.is_over);
            if timeout(PAUSE, more).await.is_err() {
                return;
            }
        }
    }

    /// Stops the waiting, and returns when all removals are done, or at the limit.
    pub async fn end(&self, limit: Duration) {
        self.under_way.send_modify(|it| it.is_over = true);
        let mut under_way = self.under_way.subscribe();
        let _ = timeout(limit, under_way.wait_for(|it| it.removals == 0)).await;
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|it| it.starts -= 1);
    }
}

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        self.pauses.under_way.send_modify(|it| it.removals -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_removal_waits_until_the_starts_are_over() {
        let pauses = Pauses::default();
        let (one, other) = (pauses.start(), pauses.start());
        pauses.expect_removal();
        let mut removal = Box::pin(pauses.removal());
        assert!((&mut removal).now_or_never().is_none());
        drop(one);
        sleep(2 * PAUSE).await;
        assert!((&mut removal).now_or_never().is_none());
        drop(other);
        let removing = removal.await;
        pauses.expect_removal();
        let mut next = Box::pin(pauses.removal());
        assert!((&mut next).now_or_never().is_none());
        sleep(2 * PAUSE).await;
        assert!((&mut next).now_or_never().is_none(), "one at a time");
        drop(removing);
        drop(next.await);
    }

    #[tokio::test]
    async fn at_the_end_removals_wait_no_more_and_are_waited_for() {
        let pauses = Pauses::default();
        let _starting = pauses.start();
        let removals = futures::future::join_all((0..3).map(|_| async {
            pauses.expect_removal();
            drop(pauses.removal().await);
        }));
        let (removed, ()) = tokio::join!(removals, pauses.end(LONGEST));
        assert_eq!(removed.len(), 3);
        assert_eq!(pauses.under_way.borrow().removals, 0);
    }
}
