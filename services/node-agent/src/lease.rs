//! Holding the node's lease, and fencing in time: before the lease can end, the node's
//! containers have to be gone.
//!
//! A renewal counts from when it was asked, not from when it was answered. A lease of 90 s is
//! renewed every 22.5 s; 67.5 s after the last renewal that succeeded everything is asked to end,
//! at 78.75 s it is killed. A shorter outage of the broker ends nothing. The policy on the log says
//! how long leases last ([`LeaseTerm`]); each renewal says for how long it is, and holds for that
//! long, whatever the policy has become meanwhile.
//!
//! An agent in the broker's own process has no fence: when the broker is away nobody else could run
//! its containers.

use std::time::Duration;

use actix::prelude::*;
use dormouse_messages::policy::LeaseTerm;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::keeper::client::Keeper;
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

/// How long between two renewals: several of them fit before the fence.
fn renew_every(term: LeaseTerm) -> Duration {
    Duration::from_millis((term.lease_ms / 4).min(term.fence_ms / 3))
}

/// What an agent is told of its lease.
#[derive(Debug, Clone)]
pub struct Terms {
    /// How long it lasts; another policy is another term.
    pub term: watch::Receiver<LeaseTerm>,
    /// Whether containers end when it cannot be renewed.
    pub fenced: bool,
}

impl Terms {
    /// Waits for another term, if one can still come.
    async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// How long after a renewal everything of the node has ended: before another may start in its place.
fn end_after(term: LeaseTerm) -> Duration {
    Duration::from_millis(term.fence_ms + term.grace_ms())
}

/// Whose lease does not end in so many of its spans, another agent renews.
const PATIENCE: u32 = 2;

/// Holds the lease as long as the agent runs. Where another agent acts for the node already, that one stays: an
/// agent that never held the lease gives up as soon as it sees the holder renew it. A lease that
/// nobody renews is of an agent that has died, and its end is waited for.
///
/// `keeper` ends what this agent does not live, or is not let, to end: it is told of each renewal.
pub async fn hold(
    mut lease: Box<dyn Lease>,
    mut terms: Terms,
    agent: Recipient<LeaseNews>,
    keeper: Option<Keeper>,
) {
    // When, and for how long containers may run on from there.
    let mut renewed: Option<(Instant, Duration)> = None;
    let mut was_held = false;
    let mut said: Option<Instant> = None;
    let mut taken: Option<Instant> = None;
    let mut seen: Option<u64> = None;
    loop {
        let asked = Instant::now();
        let term = *terms.term.borrow_and_update();
        let ttl = Duration::from_millis(term.lease_ms);
        let held = renewed.filter(|_| terms.fenced);
        let fence_at = held.map_or(asked + ttl, |(renewed, fence)| renewed + fence);
        let answer = timeout_at(fence_at, lease.renew(ttl)).await;
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
                if let Some(keeper) = &keeper {
                    keeper.hold_until(Some((asked, end_after(term))));
                }
                if renewed.is_none() {
                    agent.do_send(LeaseNews::Held);
                }
                renewed = Some((asked, Duration::from_millis(term.fence_ms)));
                was_held = true;
                tokio::select! {
                    () = sleep_until(asked + renew_every(term)) => {}
                    () = terms.changed() => {}
                }
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
        if held.is_some() && Instant::now() >= fence_at {
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
        fn renew(&mut self, _: Duration) -> BoxFuture<'_, Result<(), LeaseError>> {
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

    /// A lease that is renewed so often, and then not any more; what it was renewed for is told.
    struct Renewed {
        times: u32,
        told: mpsc::UnboundedSender<Duration>,
    }

    impl Lease for Renewed {
        fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<(), LeaseError>> {
            let away = LeaseError::Unreachable("cut off".to_owned());
            let answer = self.times.checked_sub(1).ok_or(away);
            if let Ok(left) = answer {
                self.times = left;
                let _ = self.told.send(ttl);
            }
            async move { answer.map(drop) }.boxed()
        }
    }

    const SHORT: LeaseTerm = LeaseTerm {
        lease_ms: 400,
        fence_ms: 300,
    };

    #[test]
    fn without_a_fence_a_cut_ends_nothing() {
        for fenced in [true, false] {
            actix::System::new().block_on(async {
                let (heard, mut news) = mpsc::unbounded_channel();
                let agent = Heard(heard).start().recipient();
                let (told, _renewals) = mpsc::unbounded_channel();
                let (_keep, term) = watch::channel(SHORT);
                let lease = Box::new(Renewed { times: 1, told });
                actix::spawn(hold(lease, Terms { term, fenced }, agent, None));
                assert_eq!(news.recv().await, Some(LeaseNews::Held));
                let next = tokio::time::timeout(Duration::from_secs(1), news.recv()).await;
                let expected = fenced.then_some(LeaseNews::Fence);
                assert_eq!(next.ok().flatten(), expected);
            });
        }
    }

    #[test]
    fn another_term_is_asked_for_at_once() {
        actix::System::new().block_on(async {
            let (heard, _news) = mpsc::unbounded_channel();
            let agent = Heard(heard).start().recipient();
            let (told, mut renewals) = mpsc::unbounded_channel();
            let (policy, term) = watch::channel(LeaseTerm::default());
            let lease = Box::new(Renewed { times: 9, told });
            actix::spawn(hold(lease, Terms { term, fenced: true }, agent, None));
            assert_eq!(renewals.recv().await, Some(Duration::from_secs(90)));
            policy.send_replace(SHORT);
            let next = tokio::time::timeout(Duration::from_secs(1), renewals.recv()).await;
            assert_eq!(next.ok().flatten(), Some(Duration::from_millis(400)));
        });
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
            let (_, term) = watch::channel(LeaseTerm {
                lease_ms: 10_000,
                fence_ms: 7_500,
            });
            let terms = Terms { term, fenced: true };
            actix::spawn(hold(Box::new(others), terms, agent, None));
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
