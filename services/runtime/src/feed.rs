//! The followers of one shared reading, and the position of each. `shared_follower` reads for them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dormouse_messages::Sequence;
use tokio::sync::mpsc::{Sender, error::TrySendError};

use crate::decode::LogItem;

/// Recent items for followers that are nearly there: under steady traffic their reading never ends exactly at
/// the feed's position.
const KEPT: usize = 1_024;

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
pub(crate) struct Member {
    pub out: Sender<LogItem>,
    pub delivered: u64,
    /// The member has not caught up before this sequence.
    pub head: Option<u64>,
}

enum Offered {
    Taken,
    Full,
    Gone,
}

pub(crate) enum Joined {
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

    pub fn begin(&self, member: Member) -> Result<Sequence, Member> {
        self.state().begin(member)
    }

    pub fn join(&self, member: Member) -> Joined {
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

    /// Returns a sole member without space, and the other members without space, which left the feed. `items`
    /// keeps the rest.
    pub fn pass_on(&self, items: &mut VecDeque<LogItem>) -> (Option<Sender<LogItem>>, Vec<Member>) {
        let mut state = self.state();
        let mut left = Vec::new();
        while let Some(item) = items.front() {
            let alone = state.members.len() == 1;
            let mut index = 0;
            while let Some(member) = state.members.get_mut(index) {
                match member.offer(item) {
                    Offered::Taken => index += 1,
                    Offered::Full if alone => return (Some(member.out.clone()), left),
                    Offered::Full => left.push(state.members.swap_remove(index)),
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
        (None, left)
    }

    pub async fn abandoned(&self) {
        let out = |member: &Member| member.out.clone();
        let outs: Vec<_> = self.state().members.iter().map(out).collect();
        for out in outs {
            out.closed().await;
        }
    }

    pub fn end_if_abandoned(&self) -> bool {
        let mut state = self.state();
        state.members.retain(|member| !member.out.is_closed());
        if state.members.is_empty() {
            *state = State::default();
        }
        !state.running
    }

    pub fn end(&self) {
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

pub(crate) fn sequence(item: &LogItem) -> Option<u64> {
    match item {
        LogItem::Event(recorded) => Some(recorded.sequence.0),
        LogItem::Flagged { sequence, .. } => Some(sequence.0),
        LogItem::CaughtUp(_) => None,
    }
}
