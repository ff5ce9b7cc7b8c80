//! The tenants' submissions between the broker and the log: in order for each tenant, in turns among
//! them, so that one tenant's flood keeps nobody waiting. Pure.
//!
//! 1. [`Lines::push`] puts a message into its tenant's line. A line is bounded: what does not fit
//!    stays with the broker and is fetched again ([`Lines::fetch_again`]).
//! 2. [`Lines::take`] forgets what the state has on the log, then takes from the lines in turns. A
//!    tenant with many undecided submissions waits until they are decided, also one that submits alone:
//!    another one may come at any time, and decisions are made in the order of the log. As long as
//!    something waits ([`Lines::waits`]), the lines are looked at again after every change of the state.
//! 3. How many are taken at once follows from how long the last ones took ([`pace`](crate::pace)).
//! 4. What came faster than the tenant's rate is refused as one event a window, before anything that
//!    came later: a state knows a tenant's submissions by the last one.
//!
//! Invariant: what is taken follows from the state and the messages, how much of it also from the
//! clock. What was taken and not stored is taken again.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::Timestamp;
use dormouse_messages::intake::{Arrival, Shed, Stand, end_of, window_of};

use crate::pace::Pace;

/// Payload that is kept of one tenant: some thirty of the largest submissions.
const LINE_BYTES: usize = 8 << 20;

/// Messages that are kept of one tenant.
const LINE_MESSAGES: usize = 4_096;

/// Payload that is kept of all.
const TOTAL_BYTES: usize = 64 << 20;

/// Payload in one append: a batch is held in the broker's memory.
const TAKEN_BYTES: usize = 4 << 20;

/// Of one tenant in one append, while others wait: the others' wait for it.
const TURN: usize = 16;

/// A tenant waits that has undecided submissions for so many appends: those of one are decided while
/// the next one is recorded.
const UNDECIDED_APPENDS: usize = 2;

/// What goes onto the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// A submission.
    Received(Arrival),
    /// Submissions of a tenant that came too fast.
    Shed(String, Shed),
}

/// The tenants' lines.
#[derive(Debug, Default)]
pub struct Lines {
    lines: BTreeMap<String, Line>,
    bytes: usize,
    /// Whose turn was last.
    last: String,
    /// By tenant, the last sequence that is on the log and was not told yet.
    recorded: BTreeMap<String, u64>,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Arrival>,
    bytes: usize,
    /// The last sequence that was put here.
    reached: u64,
    /// The first sequence that did not fit.
    left: Option<u64>,
}

/// A tenant's turn.
struct Turn<'a> {
    tenant: &'a str,
    line: &'a Line,
    next: usize,
    stand: Stand,
    max_rate: Option<u32>,
    budget: usize,
}

impl Lines {
    /// Puts a message into its tenant's line, unless it is there already or does not fit.
    pub fn push(&mut self, arrival: Arrival) {
        let line = self.lines.entry(arrival.tenant.clone()).or_default();
        if arrival.sequence <= line.reached || line.left.is_some() {
            return;
        }
        let bytes = arrival.payload.len();
        let is_full = line.bytes + bytes > LINE_BYTES || line.waiting.len() >= LINE_MESSAGES;
        if is_full || self.bytes + bytes > TOTAL_BYTES {
            line.left = Some(arrival.sequence);
            return;
        }
        line.reached = arrival.sequence;
        line.bytes += bytes;
        self.bytes += bytes;
        line.waiting.push_back(arrival);
    }

    /// From where the stream is to be fetched again, once there is room for what did not fit.
    pub fn fetch_again(&mut self) -> Option<u64> {
        let roomy =
            |line: &Line| line.bytes <= LINE_BYTES / 2 && line.waiting.len() <= LINE_MESSAGES / 2;
        let has_room = self.bytes <= TOTAL_BYTES / 2;
        let ready = |line: &&Line| line.left.is_some() && roomy(line) && has_room;
        self.lines.values().find(ready)?;
        let left = self.lines.values_mut().filter_map(|line| line.left.take());
        left.min()
    }

    /// The stream begins anew: nothing that was fetched counts.
    pub fn clear(&mut self) {
        let last = std::mem::take(&mut self.last);
        let pace = std::mem::take(&mut self.pace);
        *self = Self {
            last,
            pace,
            ..Self::default()
        };
    }

    /// By tenant, up to where its submissions are on the log: what was not told before.
    pub fn recorded(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.recorded)
    }

    /// Whether something waits: for its turn, for decisions, for the end of a window.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.lines.values().any(|line| !line.waiting.is_empty())
    }

    /// How many submissions wait, and how many are taken at once.
    #[must_use]
    pub fn figures(&self) -> (usize, usize) {
        let waiting = self.lines.values().map(|line| line.waiting.len());
        (waiting.sum(), self.pace.most())
    }

    /// What is to be appended next, and when more may be without another message. `stand` says what
    /// the state has of a tenant, and its rate.
    pub fn take(
        &mut self,
        now: Timestamp,
        stand: impl Fn(&str) -> (Stand, Option<u32>),
    ) -> (Vec<Taken>, Option<Timestamp>) {
        let stands: BTreeMap<String, (Stand, Option<u32>)> = self
            .lines
            .iter()
            .filter(|(_, line)| !line.waiting.is_empty())
            .map(|(tenant, _)| (tenant.clone(), stand(tenant)))
            .collect();
        for (tenant, (stand, _)) in &stands {
            self.forget_known(tenant, stand);
        }
        let waiting = self
            .lines
            .iter()
            .filter(|(_, line)| !line.waiting.is_empty());
        let alone = waiting.clone().count() == 1;
        self.pace.look(now);
        let undecided = UNDECIDED_APPENDS * self.pace.most();
        let mut turns: Vec<Turn<'_>> = waiting
            .filter_map(|(tenant, line)| {
                let (stand, max_rate) = stands.get(tenant).copied()?;
                let left = undecided.saturating_sub(stand.undecided as usize);
                let budget = if alone { left } else { left.min(TURN) };
                Some(Turn {
                    tenant,
                    line,
                    next: 0,
                    stand,
                    max_rate,
                    budget,
                })
            })
            .collect();
        let after = turns.partition_point(|turn| turn.tenant <= self.last.as_str());
        turns.rotate_left(after);
        // Nobody's turn is left out, however slow the appends are.
        let most = self.pace.next().max(turns.len());
        let (taken, wake, last) = in_turns(&mut turns, now, most);
        if let Some(last) = last {
            self.last = last;
        }
        self.pace.taken(now, taken.len());
        (taken, wake)
    }

    fn forget_known(&mut self, tenant: &str, stand: &Stand) {
        let Some(line) = self.lines.get_mut(tenant) else {
            return;
        };
        while let Some(first) = line.waiting.front()
            && stand.knows(first.sequence, first.at)
        {
            let (sequence, bytes) = (first.sequence, first.payload.len());
            line.bytes -= bytes;
            self.bytes -= bytes;
            line.waiting.pop_front();
            self.recorded.insert(tenant.to_owned(), sequence);
        }
    }
}

/// One message of each at a time, until an append is full or nobody has more.
fn in_turns(
    turns: &mut [Turn<'_>],
    now: Timestamp,
    most: usize,
) -> (Vec<Taken>, Option<Timestamp>, Option<String>) {
    let (mut taken, mut bytes, mut wake, mut last) = (Vec::new(), 0, None, None);
    loop {
        let before = taken.len();
        for turn in turns.iter_mut() {
            if taken.len() >= most || bytes >= TAKEN_BYTES {
                return (taken, wake, last);
            }
            match turn.step(now) {
                Step::Taken(it) => {
                    if let Taken::Received(arrival) = &it {
                        bytes += arrival.payload.len();
                    }
                    last = Some(turn.tenant.to_owned());
                    taken.push(it);
                }
                Step::Waits(until) => {
                    wake = Some(wake.map_or(until, |wake: Timestamp| wake.min(until)));
                }
                Step::Nothing => {}
            }
        }
        if taken.len() == before {
            return (taken, wake, last);
        }
    }
}

/// What a turn gives.
enum Step {
    Taken(Taken),
    /// The window is not over, and more may come in it.
    Waits(Timestamp),
    Nothing,
}

impl Turn<'_> {
    fn step(&mut self, now: Timestamp) -> Step {
        let Some(arrival) = self.line.waiting.get(self.next).filter(|_| self.budget > 0) else {
            return Step::Nothing;
        };
        match self.max_rate {
            Some(max_rate) if self.stand.is_too_fast(arrival.at, max_rate) => {
                self.shed(arrival, max_rate, now)
            }
            _ => {
                self.stand.record(arrival.sequence, arrival.at);
                self.next += 1;
                self.budget -= 1;
                Step::Taken(Taken::Received(arrival.clone()))
            }
        }
    }

    fn shed(&mut self, first: &Arrival, max_rate: u32, now: Timestamp) -> Step {
        let window = window_of(first.at);
        let rest = self.line.waiting.iter().skip(self.next);
        let run = rest.take_while(|it| window_of(it.at) == window);
        let (count, last) = run.fold((0, first), |(count, _), it| (count + 1, it));
        let is_last = self.next + count == self.line.waiting.len();
        let end = end_of(window);
        if is_last && now < end {
            self.budget = 0;
            return Step::Waits(end);
        }
        self.next += count;
        self.budget -= 1;
        let shed = Shed {
            first: first.sequence,
            last: last.sequence,
            count: count as u64,
            since: first.at,
            until: last.at,
            max_rate,
        };
        Step::Taken(Taken::Shed(self.tenant.to_owned(), shed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::default().plus_ms(1_000_000 + ms)
    }

    fn arrival(sequence: u64, tenant: &str, ms: u64) -> Arrival {
        Arrival {
            sequence,
            at: at(ms),
            tenant: tenant.to_owned(),
            verb: "submit".to_owned(),
            by: None,
            content_type: None,
            traceparent: None,
            payload: vec![b'x'; 10],
        }
    }

    /// What a state would make of what was taken.
    #[derive(Default)]
    struct State(BTreeMap<String, Stand>);

    impl State {
        fn fold(&mut self, taken: &[Taken]) {
            for it in taken {
                match it {
                    Taken::Received(it) => {
                        let stand = self.0.entry(it.tenant.clone()).or_default();
                        stand.record(it.sequence, it.at);
                    }
                    Taken::Shed(tenant, shed) => {
                        let stand = self.0.entry(tenant.clone()).or_default();
                        (stand.last, stand.at) = (shed.last, shed.until);
                    }
                }
            }
        }

        fn stand(&self, tenant: &str) -> Stand {
            self.0.get(tenant).copied().unwrap_or_default()
        }
    }

    fn sequences(taken: &[Taken]) -> Vec<u64> {
        let received = taken.iter().filter_map(|it| match it {
            Taken::Received(it) => Some(it.sequence),
            Taken::Shed(..) => None,
        });
        received.collect()
    }

    #[test]
    fn a_flood_keeps_nobody_waiting() {
        let mut lines = Lines::default();
        (1..=500).for_each(|n| lines.push(arrival(n, "flood", 0)));
        lines.push(arrival(501, "ads", 1));
        let (taken, _) = lines.take(at(2), |_| (Stand::default(), None));
        let place = sequences(&taken).iter().position(|it| *it == 501);
        assert!(place.is_some_and(|place| place <= 1), "{place:?}");
        assert_eq!(taken.len(), TURN + 1);
        // Whose submissions are not decided waits, but for itself alone.
        let slow = |tenant: &str| (undecided(if tenant == "flood" { 200 } else { 0 }), None);
        assert_eq!(sequences(&lines.take(at(2), slow).0), [501]);
        assert!(lines.waits());
    }

    fn undecided(undecided: u32) -> Stand {
        Stand {
            undecided,
            ..Stand::default()
        }
    }

    #[test]
    fn who_submits_alone_has_few_undecided_as_well() {
        let mut lines = Lines::default();
        (1..=1_000).for_each(|n| lines.push(arrival(n, "flood", 0)));
        let most = lines.figures().1;
        let (taken, _) = lines.take(at(2), |_| (Stand::default(), None));
        assert_eq!(taken.len(), most);
        // Those of the last append are being decided: so many again, and no more after them.
        let full = u32::try_from(most).expect("few");
        let (taken, _) = lines.take(at(2), |_| (undecided(full), None));
        assert!(taken.len() >= most, "{}", taken.len());
        let (taken, wake) = lines.take(at(2), |_| (undecided(1_000), None));
        assert_eq!((taken, wake), (vec![], None));
        assert!(lines.waits(), "for decisions");
    }

    #[test]
    fn each_tenants_order_is_kept_and_everything_is_taken_once() {
        let (mut lines, mut state) = (Lines::default(), State::default());
        for n in 1..=300 {
            lines.push(arrival(n, if n % 3 == 0 { "b" } else { "a" }, n));
        }
        let mut all = Vec::new();
        loop {
            let (taken, _) = lines.take(at(400), |tenant| (state.stand(tenant), None));
            if taken.is_empty() {
                break;
            }
            // The second half was not stored: it is taken again.
            let stored = &taken[..taken.len().div_ceil(2)];
            state.fold(stored);
            all.extend(sequences(stored));
        }
        for tenant in [0, 1] {
            let of: Vec<u64> = all
                .iter()
                .copied()
                .filter(|n| u64::from(n % 3 == 0) == tenant)
                .collect();
            assert!(
                of.is_sorted() && of.len() == [200, 100][tenant as usize],
                "{of:?}"
            );
        }
        assert_eq!(
            lines.recorded(),
            BTreeMap::from([("a".to_owned(), 299), ("b".to_owned(), 300)])
        );
    }

    #[test]
    fn what_comes_too_fast_is_one_event_a_window() {
        let (mut lines, mut state) = (Lines::default(), State::default());
        (0..100).for_each(|n| lines.push(arrival(1 + n, "flood", n)));
        let take = |lines: &mut Lines, state: &State, ms| {
            lines.take(at(ms), |tenant| (state.stand(tenant), Some(5)))
        };
        let (taken, wake) = take(&mut lines, &state, 200);
        assert_eq!(
            (sequences(&taken), wake),
            (vec![1, 2, 3, 4, 5], Some(at(1_000)))
        );
        state.fold(&taken);
        assert_eq!(take(&mut lines, &state, 999), (vec![], Some(at(1_000))));
        let (taken, wake) = take(&mut lines, &state, 1_000);
        let shed = Shed {
            first: 6,
            last: 100,
            count: 95,
            since: at(5),
            until: at(99),
            max_rate: 5,
        };
        assert_eq!(
            (taken.clone(), wake),
            (vec![Taken::Shed("flood".to_owned(), shed)], None)
        );
        state.fold(&taken);
        lines.push(arrival(101, "flood", 1_001));
        let (taken, _) = take(&mut lines, &state, 1_002);
        assert_eq!(sequences(&taken), [101]);
    }

    #[test]
    fn a_line_is_bounded_and_the_rest_is_fetched_again() {
        let (mut lines, mut state) = (Lines::default(), State::default());
        let most = LINE_MESSAGES as u64;
        (1..=most + 500).for_each(|n| lines.push(arrival(n, "flood", n)));
        lines.push(arrival(most + 501, "ads", 0));
        assert_eq!(lines.fetch_again(), None);
        let mut again = None;
        while again.is_none() {
            let (taken, _) = lines.take(at(9_000), |tenant| (state.stand(tenant), None));
            state.fold(&taken);
            let _ = lines.take(at(9_000), |tenant| (state.stand(tenant), None));
            again = lines.fetch_again();
        }
        assert_eq!(again, Some(most + 1));
        // From there on, with what others have had already.
        (most + 1..=most + 500).for_each(|n| lines.push(arrival(n, "flood", n)));
        lines.push(arrival(most + 501, "ads", 0));
        let mut count = 0;
        loop {
            let (taken, _) = lines.take(at(9_000), |tenant| (state.stand(tenant), None));
            if taken.is_empty() {
                break;
            }
            count += taken
                .iter()
                .filter(|it| matches!(it, Taken::Received(it) if it.tenant == "ads"))
                .count();
            state.fold(&taken);
        }
        assert_eq!(
            (count, state.stand("flood").last, lines.bytes),
            (0, most + 500, 0)
        );
    }

    #[test]
    fn a_stream_that_went_back_loses_nothing() {
        let mut stand = Stand::default();
        stand.record(90, at(5));
        assert!(stand.knows(90, at(5)) && stand.knows(3, at(1)));
        // Made anew: the sequences begin again, later.
        assert!(!stand.knows(1, at(6)));
        stand.record(1, at(6));
        assert!(stand.knows(1, at(6)) && !stand.knows(2, at(7)));
    }
}
