//! Holding the node's lease, and fencing in time: before the lease can end, the node's
//! containers have to be gone.
//!
//! A renewal counts from when it was asked, not from when it was answered. A lease of 10 s is
//! renewed every 2.5 s; 7.5 s after the last renewal that succeeded everything is asked to end,
//! at 8.75 s it is killed. A shorter outage of the broker ends nothing.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::wire::{Lease, LeaseError};

/// Between two attempts while the lease is not held.
const RETRY: Duration = Duration::from_millis(200);

/// How often waiting for the lease is said.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// News of the lease.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub enum LeaseNews {
    /// It is held (again).
    Held,
    /// It may end soon: end everything now.
    Fence,
    /// Someone else holds it.
    Superseded(String),
}

/// How long after the last renewal the agent fences itself.
#[must_use]
pub fn fence_after(ttl: Duration) -> Duration {
    ttl * 3 / 4
}

/// How long fenced containers have to end.
#[must_use]
pub fn fence_grace(ttl: Duration) -> Duration {
    ttl / 8
}

/// Whose lease does not end in so many of its spans, another agent renews.
const PATIENCE: u32 = 2;

/// Holds the lease for ever. Where another agent acts for the node already, that one stays: an
/// agent that never held the lease gives up as soon as it sees the holder renew it. A lease that
/// nobody renews is of an agent that has died, and its end is waited for.
pub async fn hold(mut lease: Box<dyn Lease>, ttl: Duration, agent: Recipient<LeaseNews>) {
    let mut renewed: Option<Instant> = None;
    let mut was_held = false;
    let mut said: Option<Instant> = None;
    let mut taken: Option<Instant> = None;
    let mut seen: Option<u64> = None;
    loop {
        let asked = Instant::now();
        let fence_at = renewed.map_or(asked + ttl, |renewed| renewed + fence_after(ttl));
        let answer = timeout_at(fence_at, lease.renew()).await;
        taken = match &answer {
            Ok(Err(LeaseError::Held { .. })) => taken.or(Some(asked)),
            _ => None,
        };
        let patient = taken.is_none_or(|since| since.elapsed() <= PATIENCE * ttl);
        let alive = match &answer {
            Ok(Err(LeaseError::Held { revision, .. })) => {
                let before = seen.replace(*revision);
                before.is_some_and(|before| before != *revision)
            }
            _ => false,
        };
        let why = match answer {
            Ok(Ok(())) => {
                if renewed.is_none() {
                    agent.do_send(LeaseNews::Held);
                }
                renewed = Some(asked);
                was_held = true;
                sleep_until(asked + ttl / 4).await;
                continue;
            }
            Ok(Err(LeaseError::Held { by, .. })) if was_held || alive || !patient => {
                agent.do_send(LeaseNews::Superseded(by));
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the broker does not answer".to_owned(),
        };
        if said.is_none_or(|said| said.elapsed() > SAY_EVERY) {
            said = Some(Instant::now());
            tracing::warn!(why, "the node's lease is not held; trying on");
        }
        if renewed.is_some() && Instant::now() >= fence_at {
            renewed = None;
            agent.do_send(LeaseNews::Fence);
        }
        sleep(RETRY.min(ttl / 20)).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use tokio::sync::mpsc;

    use super::*;

    /// A lease that another agent holds, and renews every so many looks.
    struct Others {
        looks: u64,
        renewed_every: u64,
    }

    impl Lease for Others {
        fn renew(&mut self) -> BoxFuture<'_, Result<(), LeaseError>> {
            self.looks += 1;
            let held = LeaseError::Held {
                by: "n0, incarnation 1".to_owned(),
                revision: self.looks / self.renewed_every,
            };
            async move { Err(held) }.boxed()
        }
    }

    struct Heard(mpsc::UnboundedSender<LeaseNews>);

    impl Actor for Heard {
        type Context = Context<Self>;
    }

    impl Handler<LeaseNews> for Heard {
        type Result = ();

        fn handle(&mut self, news: LeaseNews, _: &mut Self::Context) {
            let _ = self.0.send(news);
        }
    }

    /// What is said within `patience`.
    fn said(renewed_every: u64, patience: Duration) -> Option<LeaseNews> {
        actix::System::new().block_on(async {
            let (heard, mut news) = mpsc::unbounded_channel();
            let agent = Heard(heard).start().recipient();
            let others = Others {
                looks: 0,
                renewed_every,
            };
            let ttl = Duration::from_secs(10);
            actix::spawn(hold(Box::new(others), ttl, agent));
            let said = tokio::time::timeout(patience, news.recv()).await;
            said.ok().flatten()
        })
    }

    #[test]
    fn a_second_agent_gives_up_once_the_first_is_seen_alive() {
        let said = said(4, Duration::from_secs(5));
        assert!(matches!(said, Some(LeaseNews::Superseded(_))), "{said:?}");
    }

    #[test]
    fn the_end_of_a_lease_that_nobody_renews_is_waited_for() {
        assert_eq!(said(u64::MAX, Duration::from_secs(1)), None);
    }
}
