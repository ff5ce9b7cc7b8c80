//! A log in memory, with followers and outages.

use std::sync::Mutex;

use dormouse_messages::Writer;
use dormouse_node_agent::wire::{Heard, LeaseError, Outlet, OutletError};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;

#[derive(Clone, Default)]
pub struct FakeLog(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    events: Vec<(Arc<Recorded>, Instant)>,
    followers: Vec<mpsc::Sender<Heard>>,
    is_down: bool,
    conflict: bool,
}

impl FakeLog {
    pub fn append(&self, event: impl Into<Event>) -> Sequence {
        let mut inner = self.0.lock().expect("unpoisoned");
        let sequence = inner.events.len() as u64 + 1;
        let recorded = Arc::new(recorded(sequence, event.into()));
        inner.events.push((recorded.clone(), Instant::now()));
        inner.followers.retain(|follower| {
            follower.try_send(Heard::Event(recorded.clone())).is_ok()
                && follower
                    .try_send(Heard::CaughtUp(recorded.sequence))
                    .is_ok()
        });
        Sequence(sequence)
    }

    pub fn events(&self) -> Vec<Event> {
        let inner = self.0.lock().expect("unpoisoned");
        inner
            .events
            .iter()
            .filter_map(|(recorded, _)| recorded.event().cloned())
            .collect()
    }

    pub fn reports(&self) -> Vec<Event> {
        let is_report = |event: &Event| event.writers() == [Writer::Node];
        self.events().into_iter().filter(is_report).collect()
    }

    pub fn at(&self, sequence: Sequence) -> Instant {
        self.0.lock().expect("unpoisoned").events[sequence.0 as usize - 1].1
    }

    pub fn set_down(&self, is_down: bool) {
        self.0.lock().expect("unpoisoned").is_down = is_down;
    }

    pub fn set_conflict(&self) {
        self.0.lock().expect("unpoisoned").conflict = true;
    }

    pub fn follow(&self) -> mpsc::Receiver<Heard> {
        let (sender, receiver) = mpsc::channel(100_000);
        let mut inner = self.0.lock().expect("unpoisoned");
        for (recorded, _) in &inner.events {
            sender
                .try_send(Heard::Event(recorded.clone()))
                .expect("room");
        }
        let head = Sequence(inner.events.len() as u64);
        sender.try_send(Heard::CaughtUp(head)).expect("room");
        inner.followers.push(sender);
        receiver
    }

    #[track_caller]
    pub fn wait<T>(&self, what: &str, check: impl Fn(&Event) -> Option<T>) -> T {
        // A framework may load slowly on a busy machine.
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = self.events().iter().rev().find_map(&check) {
                return found;
            }
            assert!(
                Instant::now() < until,
                "no {what}; there is {:#?}",
                self.reports()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[track_caller]
    pub fn wait_started(&self, container: &ContainerId) -> u32 {
        self.wait("container.started", |event| match event {
            Event::ContainerStarted(event) if event.container == *container => Some(event.pid),
            _ => None,
        })
    }

    #[track_caller]
    pub fn wait_exited(&self, container: &ContainerId) -> ContainerExited {
        self.wait("container.exited", |event| match event {
            Event::ContainerExited(event) if event.container == *container => {
                Some((**event).clone())
            }
            _ => None,
        })
    }

    #[track_caller]
    pub fn wait_joined(&self, incarnation: u64) -> NodeJoined {
        self.wait("node.joined", |event| match event {
            Event::NodeJoined(event) if event.incarnation == incarnation => Some((**event).clone()),
            _ => None,
        })
    }

    pub fn count(&self, check: impl Fn(&Event) -> bool) -> usize {
        self.events().iter().filter(|event| check(event)).count()
    }
}

impl Outlet for FakeLog {
    fn append(
        &mut self,
        event: Event,
        _causes: Vec<Sequence>,
    ) -> BoxFuture<'_, Result<Sequence, OutletError>> {
        async move {
            loop {
                let (is_down, conflict) = {
                    let inner = self.0.lock().expect("unpoisoned");
                    (inner.is_down, inner.conflict)
                };
                if conflict {
                    return Err(OutletError::Conflict("a test".to_owned()));
                }
                if !is_down {
                    return Ok(FakeLog::append(self, event));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        .boxed()
    }
}

impl Lease for FakeLog {
    fn renew(&mut self, _: Duration) -> BoxFuture<'_, Result<(), LeaseError>> {
        let is_down = self.0.lock().expect("unpoisoned").is_down;
        let answer = if is_down {
            Err(LeaseError::Unreachable("a test".to_owned()))
        } else {
            Ok(())
        };
        futures::future::ready(answer).boxed()
    }
}
