//! Holds the node's lease: forwards [`Holder`]'s requests to the broker, and its news to agent and
//! supervisor. An agent in the broker's process has no fence.

use std::time::Duration;

use actix::prelude::*;
use dormouse_agent_core::lease_holder::{Answer, Duty, Holder, News};
use dormouse_messages::policy::LeaseTerm;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::supervisor::Supervisor;
use crate::wire::{Lease, LeaseError};

const SAY_EVERY: Duration = Duration::from_secs(10);

/// News of the lease.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct LeaseNews(pub News);

/// The terms of an agent's lease.
#[derive(Debug, Clone)]
pub struct Terms {
    pub term: watch::Receiver<LeaseTerm>,
    pub fenced: bool,
}

impl Terms {
    async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Holds the lease while the agent runs and no other agent acts for its node. `supervisor` receives each renewal.
pub async fn hold(
    mut lease: Box<dyn Lease>,
    mut terms: Terms,
    agent: Recipient<LeaseNews>,
    supervisor: Option<Supervisor>,
) {
    let begun = Instant::now();
    let now_ms = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut holder = Holder::new(terms.fenced, *terms.term.borrow_and_update());
    let mut said: Option<Instant> = None;
    loop {
        holder.woken(now_ms());
        let mut ask = None;
        while let Some(duty) = holder.next_duty() {
            match duty {
                Duty::Ask(lease_ms) => ask = Some(Duration::from_millis(lease_ms)),
                Duty::Deadline { asked_ms, lasts_ms } => {
                    let asked = begun + Duration::from_millis(asked_ms);
                    if let Some(supervisor) = &supervisor {
                        supervisor.hold_until(Some((asked, Duration::from_millis(lasts_ms))));
                    }
                }
                Duty::News(news) => agent.do_send(LeaseNews(news)),
            }
        }
        let Some(wakes_at_ms) = holder.wakes_at_ms() else {
            return;
        };
        let wakes_at = begun + Duration::from_millis(wakes_at_ms);
        let Some(ttl) = ask else {
            tokio::select! {
                () = sleep_until(wakes_at) => {}
                () = terms.changed() => holder.term(now_ms(), *terms.term.borrow_and_update()),
            }
            continue;
        };
        let answer = timeout_at(wakes_at, lease.renew(ttl)).await;
        let (answer, why) = match answer {
            Ok(Ok(())) => (Answer::Renewed, None),
            Ok(Err(LeaseError::Held { by, revision })) => {
                let why = format!("it is held by {by}");
                (Answer::Taken { by, revision }, Some(why))
            }
            Ok(Err(error)) => (Answer::Unknown, Some(error.to_string())),
            Err(_) => (
                Answer::Unknown,
                Some("the broker does not answer".to_owned()),
            ),
        };
        if let Some(why) = why
            && said.is_none_or(|said| said.elapsed() > SAY_EVERY)
        {
            said = Some(Instant::now());
            tracing::warn!(why, "the node's lease is not held; trying on");
        }
        holder.answered(now_ms(), answer);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use tokio::sync::mpsc;

    use super::*;

    struct Heard(mpsc::UnboundedSender<News>);

    impl Actor for Heard {
        type Context = Context<Self>;
    }

    impl Handler<LeaseNews> for Heard {
        type Result = ();

        fn handle(&mut self, LeaseNews(news): LeaseNews, _: &mut Self::Context) {
            let _ = self.0.send(news);
        }
    }

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
    fn a_cut_is_told_where_there_is_a_fence() {
        for fenced in [true, false] {
            actix::System::new().block_on(async {
                let (heard, mut news) = mpsc::unbounded_channel();
                let agent = Heard(heard).start().recipient();
                let (told, _renewals) = mpsc::unbounded_channel();
                let (_keep, term) = watch::channel(SHORT);
                let lease = Box::new(Renewed { times: 1, told });
                actix::spawn(hold(lease, Terms { term, fenced }, agent, None));
                assert_eq!(news.recv().await, Some(News::Held));
                let next = tokio::time::timeout(Duration::from_secs(1), news.recv()).await;
                let expected = fenced.then_some(News::Fence);
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
}
