//! One shared reading of the log for all followers on a connection, which fetches and decodes each event
//! once.
//!
//! 1. The first follower starts the feed; a later one reads up to it (`catch_up`), then joins.
//! 2. A follower without space leaves the feed and catches up; a sole follower delays it instead.
//! 3. The feed ends with its last follower.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_messages::Sequence;
use tokio::sync::mpsc::{self, Sender, error::TrySendError};

use crate::decode::LogItem;
use crate::follow::{Reader, Until, WAITING};
use crate::log::Log;

/// Recent items for followers that are nearly there: under steady traffic their reading never ends exactly at
/// the feed's position.
const KEPT: usize = 1_024;

const AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct Feed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: bool,
    position: u64,
    kept: VecDeque<LogItem>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    out: Sender<LogItem>,
    delivered: u64,
    /// The member has not caught up before this sequence.
    head: Option<u64>,
}

enum Offered {
    Taken,
    Full,
    Gone,
}

pub(crate) fn follow(log: &Log, from: Sequence) -> mpsc::Receiver<LogItem> {
    let (out, followed) = mpsc::channel(WAITING);
    let member = Member {
        out,
        delivered: from.0.max(1) - 1,
        head: None,
    };
    match log.inner.feed.begin(member) {
        Ok(from) => log.spawn(read_for_all(log.clone(), from)),
        Err(member) => log.spawn(catch_up(log.clone(), member)),
    }
    followed
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
        while let Some(full) = feed.pass_on(&log, &mut items) {
            let _ = tokio::time::timeout(AGAIN, full.reserve()).await;
        }
        if feed.end_if_abandoned() {
            return;
        }
    }
}

async fn catch_up(log: Log, mut member: Member) {
    while member.head.is_none() {
        match log.head().await {
            Ok(head) => member.head = Some(head.0),
            Err(error) => {
                tracing::debug!(%error, "the head is not known");
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    () = member.out.closed() => return,
                }
            }
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

enum Joined {
    Member,
    /// Without a feed this follower starts one here.
    First(Sequence),
    /// The feed is ahead: read up to this sequence.
    Behind(Member, u64),
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves no change half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, member: Member) -> Result<Sequence, Member> {
        self.state().begin(member)
    }

    fn join(&self, member: Member) -> Joined {
        let mut state = self.state();
        let mut member = match state.begin(member) {
            Ok(from) => return Joined::First(from),
            Err(member) => member,
        };
        let first_kept = state.kept.front().and_then(sequence);
        let reached = first_kept.map_or(state.position, |first| first - 1);
        if member.delivered < reached {
            return Joined::Behind(member, state.position);
        }
        let here = LogItem::CaughtUp(Sequence(state.position));
        for item in state.kept.iter().chain([&here]) {
            match member.offer(item) {
                Offered::Taken => {}
                Offered::Full => return Joined::Behind(member, state.position),
                Offered::Gone => return Joined::Member,
            }
        }
        state.members.push(member);
        Joined::Member
    }

    /// Returns a sole member without space; `items` keeps the rest.
    fn pass_on(&self, log: &Log, items: &mut VecDeque<LogItem>) -> Option<Sender<LogItem>> {
        let mut state = self.state();
        while let Some(item) = items.front() {
            let alone = state.members.len() == 1;
            let mut index = 0;
            while let Some(member) = state.members.get_mut(index) {
                match member.offer(item) {
                    Offered::Taken => index += 1,
                    Offered::Full if alone => return Some(member.out.clone()),
                    Offered::Full => {
                        let slow = state.members.swap_remove(index);
                        log.spawn(catch_up(log.clone(), slow));
                    }
                    Offered::Gone => {
                        state.members.swap_remove(index);
                    }
                }
            }
            let passed_on = items.pop_front();
            if let Some(sequence) = passed_on.as_ref().and_then(sequence) {
                state.position = sequence;
                state.kept.extend(passed_on);
                if state.kept.len() > KEPT {
                    state.kept.pop_front();
                }
            }
        }
        None
    }

    async fn abandoned(&self) {
        let out = |member: &Member| member.out.clone();
        let outs: Vec<_> = self.state().members.iter().map(out).collect();
        for out in outs {
            out.closed().await;
        }
    }

    fn end_if_abandoned(&self) -> bool {
        let mut state = self.state();
        state.members.retain(|member| !member.out.is_closed());
        if state.members.is_empty() {
            *state = State::default();
        }
        !state.running
    }

    fn end(&self) {
        *self.state() = State::default();
    }
}

impl State {
    fn begin(&mut self, mut member: Member) -> Result<Sequence, Member> {
        if self.running {
            return Err(member);
        }
        // The feed itself finds the head.
        member.head = Some(0);
        let from = Sequence(member.delivered + 1);
        *self = Self {
            running: true,
            position: member.delivered,
            kept: VecDeque::new(),
            members: vec![member],
        };
        Ok(from)
    }
}

impl Member {
    fn offer(&mut self, item: &LogItem) -> Offered {
        let sequence = sequence(item);
        let wanted = match (sequence, item) {
            (Some(sequence), _) => sequence > self.delivered,
            (None, LogItem::CaughtUp(here)) => self.head.is_some_and(|head| here.0 >= head),
            (None, _) => false,
        };
        if !wanted {
            return Offered::Taken;
        }
        match self.out.try_send(item.clone()) {
            Ok(()) => {
                self.delivered = sequence.unwrap_or(self.delivered);
                Offered::Taken
            }
            Err(TrySendError::Full(_)) => Offered::Full,
            Err(TrySendError::Closed(_)) => Offered::Gone,
        }
    }
}

fn sequence(item: &LogItem) -> Option<u64> {
    match item {
        LogItem::Event(recorded) => Some(recorded.sequence.0),
        LogItem::Flagged { sequence, .. } => Some(sequence.0),
        LogItem::CaughtUp(_) => None,
    }
}
