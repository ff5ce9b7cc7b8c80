//! Runs independent readers of a log, and other parallel work, on threads of their own.

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use dormouse_messages::{Fold as _, Recorded};
use dormouse_projections::ReadModel;

/// Events per handover; a shorter log starts no thread.
const BATCH: usize = 1_024;
const BATCHES: usize = 8;

type Batch = Vec<Arc<Recorded>>;

/// A reader of a log.
pub trait Reader: Send + 'static {
    fn read(&mut self, recorded: &Arc<Recorded>);
}

impl Reader for ReadModel {
    fn read(&mut self, recorded: &Arc<Recorded>) {
        self.evolve(recorded);
    }
}

/// A reader and its unread events.
#[derive(Default)]
pub struct ParallelReaders<R> {
    reader: R,
    unread: Batch,
    thread: Option<(SyncSender<Batch>, JoinHandle<R>)>,
}

impl<R: Reader + Default> ParallelReaders<R> {
    /// Begins with a reader of the log's prefix.
    pub fn starting_from(reader: R) -> Self {
        Self {
            reader,
            ..Self::default()
        }
    }

    pub fn read(&mut self, recorded: &Arc<Recorded>) {
        self.unread.push(Arc::clone(recorded));
        if self.unread.len() < BATCH {
            return;
        }
        let (sender, _) = self.thread.get_or_insert_with(|| {
            let (sender, receiver) = sync_channel::<Batch>(BATCHES);
            let mut reader = mem::take(&mut self.reader);
            let thread = std::thread::spawn(move || {
                let batches = receiver.into_iter();
                batches.flatten().for_each(|it| reader.read(&it));
                reader
            });
            (sender, thread)
        });
        // Only a panic ends the thread early, and `finish` passes the panic on.
        let _ = sender.send(mem::take(&mut self.unread));
    }

    /// Returns the reader after all events.
    pub fn finish(mut self) -> R {
        let mut reader = self.reader;
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            reader = match thread.join() {
                Ok(reader) => reader,
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        self.unread.iter().for_each(|it| reader.read(it));
        reader
    }
}

/// Works on all items in parallel; returns the results in order. A panic is passed on.
pub fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let items = items.into_iter();
        let running: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let done = running.into_iter().map(|it| match it.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.collect()
    })
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::ClusterConfigured;
    use dormouse_messages::policy::Policy;
    use dormouse_messages::{Envelope, Event, Sequence, Timestamp, Writer};

    use super::*;

    #[test]
    fn what_panics_leaves_no_gap_in_what_is_done() {
        assert_eq!(at_once(vec![1, 2, 3], |it| it * 2), [2, 4, 6]);
        let panics = || {
            at_once(vec![1, 2, 3], |it| {
                assert!(it != 2, "two");
                it
            })
        };
        let panic = std::panic::catch_unwind(panics).expect_err("it is passed on");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"two"));
    }

    #[test]
    fn every_event_is_folded_once_and_in_order() {
        for count in [0, 1, BATCH - 1, BATCH, 3 * BATCH + 7] {
            let (mut parallel, mut model) = (
                ParallelReaders::<ReadModel>::default(),
                ReadModel::default(),
            );
            for index in 1..=u32::try_from(count).expect("few") {
                let policy = Policy {
                    min_run_s: Some(index),
                    ..Policy::default()
                };
                let (at, event) = (
                    Timestamp::from_micros(index.into()),
                    Event::from(ClusterConfigured { policy }),
                );
                let recorded = Arc::new(Recorded {
                    sequence: Sequence(index.into()),
                    stored_at: at,
                    writer: Writer::Operator,
                    envelope: Envelope::new(
                        format!("e-{index}"),
                        Writer::Operator,
                        at,
                        None,
                        event,
                    ),
                });
                parallel.read(&recorded);
                model.evolve(&recorded);
            }
            let packed = |model: &ReadModel| rmp_serde::to_vec_named(model).expect("packed");
            assert_eq!(packed(&parallel.finish()), packed(&model), "{count} events");
        }
    }
}
