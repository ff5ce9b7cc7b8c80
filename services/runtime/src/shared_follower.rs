//! One shared reading of the log for all followers on a connection, which fetches and decodes each event
//! once.
//!
//! 1. The first follower starts the feed; a later one reads up to it (`catch_up`), then joins.
//! 2. A follower without space leaves the feed and catches up; a sole follower delays it instead.
//! 3. The feed ends with its last follower.

use std::collections::VecDeque;
use std::time::Duration;

use dormouse_messages::Sequence;
use tokio::sync::mpsc;

use crate::decode::LogItem;
use crate::feed::{Joined, Member, sequence};
use crate::follow::{Reader, Until, WAITING};
use crate::log::Log;

const AGAIN: Duration = Duration::from_millis(200);

impl Log {
    /// Follows every event from `from`, across outages. The channel ends only if the log lost delivered
    /// events: start again.
    #[must_use]
    pub fn follow(&self, from: Sequence) -> mpsc::Receiver<LogItem> {
        follow(self, from)
    }
}

fn follow(log: &Log, from: Sequence) -> mpsc::Receiver<LogItem> {
    let (out, followed) = mpsc::channel(WAITING);
    let member = Member {
        out,
        delivered: from.0.max(1) - 1,
        head: None,
    };
    match log.inner.feed.begin(member) {
        Ok(from) => log.spawn(read_for_all(log.clone(), from)),
        Err(member) => catches_up(log, member),
    }
    followed
}

fn catches_up(log: &Log, member: Member) {
    log.spawn(catch_up(log.clone(), member));
}

async fn read_for_all(log: Log, from: Sequence) {
    let feed = &log.inner.feed;
    let mut reader = Reader::new(&log, from, Until::Forever);
    loop {
        let items = tokio::select! {
            biased;
            items = reader.next() => items,
            () = feed.abandoned() => Some(Vec::new()),
        };
        let Some(items) = items else {
            // The log went back: closed channels tell all followers.
            feed.end();
            return;
        };
        let mut items = VecDeque::from(items);
        loop {
            let (full, left) = feed.pass_on(&mut items);
            left.into_iter().for_each(|slow| catches_up(&log, slow));
            let Some(full) = full else { break };
            let _ = tokio::time::timeout(AGAIN, full.reserve()).await;
        }
        if feed.end_if_abandoned() {
            return;
        }
    }
}

async fn catch_up(log: Log, mut member: Member) {
    if member.head.is_none() {
        tokio::select! {
            head = log.head_patiently() => member.head = Some(head.0),
            () = member.out.closed() => return,
        }
    }
    while member.out.reserve().await.is_ok() {
        let to = match log.inner.feed.join(member) {
            Joined::Member => return,
            Joined::First(from) => return read_for_all(log, from).await,
            Joined::Behind(behind, to) => {
                member = behind;
                to
            }
        };
        let from = Sequence(member.delivered + 1);
        let mut reader = Reader::new(&log, from, Until::At(Sequence(to)));
        while member.delivered < to {
            let Some(items) = reader.next().await else {
                return;
            };
            for item in items {
                let Some(sequence) = sequence(&item) else {
                    continue;
                };
                if member.out.send(item).await.is_err() {
                    return;
                }
                member.delivered = sequence;
            }
        }
    }
}
