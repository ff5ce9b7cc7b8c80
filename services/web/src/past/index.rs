//! An index of times, decisions and subjects.

use std::collections::HashMap;

use dormouse_messages::{Epoch, Event, Recorded, Sequence, Text, Timestamp};

/// A decision on the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub place: usize,
    pub sequence: Sequence,
    /// `None` if the allocation stayed.
    pub epoch: Option<Epoch>,
    /// Basis and causes lie after this place.
    pub from: usize,
}

/// The index of a log; places count events from 0.
#[derive(Debug, Default)]
pub struct Index {
    events: Vec<(Sequence, Timestamp)>,
    decisions: Vec<Decision>,
    about: HashMap<Text, Vec<u32>>,
}

impl Index {
    /// Adds an event with its log time.
    pub fn push(&mut self, recorded: &Recorded, at: Timestamp) {
        let place = self.events.len();
        self.events.push((recorded.sequence, at));
        if !matches!(recorded.event(), Some(Event::Progress(_))) {
            self.note(&recorded.envelope.subject, place);
        }
        // Agents' events about jobs have their node as subject.
        let job = match recorded.event() {
            Some(Event::CheckpointSaved(event)) => Some(&event.job),
            Some(Event::CheckpointFailed(event)) => Some(&event.job),
            Some(Event::ContainerExited(event)) => Some(&event.container.job),
            _ => None,
        };
        if let Some(job) = job {
            self.note(&Text::from(job.as_str()), place);
        }
        let epoch = match recorded.event() {
            Some(Event::AllocationDecided(event)) => Some(event.epoch),
            Some(Event::AllocationUnchanged(_)) => None,
            _ => return,
        };
        let basis = recorded.event().and_then(Event::basis);
        let from = basis.map_or(recorded.sequence, |basis| {
            let causes = basis
                .causes
                .iter()
                .map(|it| Sequence(it.0.saturating_sub(1)));
            causes.chain([basis.asof]).min().unwrap_or_default()
        });
        self.decisions.push(Decision {
            place,
            sequence: recorded.sequence,
            epoch,
            from: self.place(from),
        });
    }

    fn note(&mut self, about: &Text, place: usize) {
        let Ok(place) = u32::try_from(place) else {
            return;
        };
        match self.about.get_mut(about) {
            Some(places) => places.push(place),
            None => drop(self.about.insert(about.clone(), vec![place])),
        }
    }

    /// Returns the number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Reports whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the place after a sequence.
    #[must_use]
    pub fn place(&self, sequence: Sequence) -> usize {
        self.events.partition_point(|(it, _)| *it <= sequence)
    }

    /// Returns the place after a time.
    #[must_use]
    pub fn place_at(&self, time: Timestamp) -> usize {
        self.events.partition_point(|(_, it)| *it <= time)
    }

    /// Returns the log time of an event.
    #[must_use]
    pub fn time(&self, sequence: Sequence) -> Timestamp {
        let before = self.before(self.place(sequence));
        before.map_or_else(Timestamp::default, |(_, at)| at)
    }

    /// Returns the event before a place, or the first.
    #[must_use]
    pub fn before(&self, place: usize) -> Option<(Sequence, Timestamp)> {
        self.events.get(place.saturating_sub(1)).copied()
    }

    /// Returns the decision `count` after an event.
    #[must_use]
    pub fn decision(&self, sequence: Sequence, count: i64) -> Option<Decision> {
        let upto = self.decisions.partition_point(|it| it.sequence <= sequence);
        let at = upto.checked_sub(1);
        let exactly = at.is_some_and(|at| self.decisions[at].sequence == sequence);
        let upto = i64::try_from(upto).ok()?;
        let wanted = match (count > 0, exactly) {
            (true, _) => upto - 1 + count,
            (false, true) => upto - 1 + count,
            (false, false) => upto + count,
        };
        let last = i64::try_from(self.decisions.len()).ok()? - 1;
        let wanted = usize::try_from(wanted.min(last)).unwrap_or(0);
        self.decisions.get(wanted).copied()
    }

    /// Returns the decision of an epoch.
    #[must_use]
    pub fn epoch(&self, epoch: Epoch) -> Option<Decision> {
        let found = self.decisions.iter().rev();
        found.copied().find(|it| it.epoch == Some(epoch))
    }

    /// Returns the place after an event, and the start for its last decision.
    #[must_use]
    pub fn explained_from(&self, sequence: Sequence) -> (usize, usize) {
        let place = self.place(sequence);
        let decisions = self.decisions.partition_point(|it| it.sequence <= sequence);
        let last = decisions.checked_sub(1).map(|last| self.decisions[last]);
        (place, last.map_or(0, |last| last.from.min(place)))
    }

    /// Returns the places of events about `what` before `to`.
    #[must_use]
    pub fn about(&self, what: &str, to: usize) -> Vec<usize> {
        let places = self.about.get(&Text::from(what)).map(Vec::as_slice);
        let places = places
            .unwrap_or_default()
            .iter()
            .map(|place| *place as usize);
        places.take_while(|place| *place < to).collect()
    }

    /// Returns events at equidistant times.
    #[must_use]
    pub fn axis(&self, from: Timestamp, to: Timestamp, count: usize) -> Vec<Sequence> {
        let length = to.as_micros().saturating_sub(from.as_micros()).max(0);
        let steps = i64::try_from(count.max(2) - 1).unwrap_or(1);
        let at = |step: i64| {
            let part = i128::from(length) * i128::from(step) / i128::from(steps);
            let part = i64::try_from(part).unwrap_or(length);
            Timestamp::from_micros(from.as_micros().saturating_add(part))
        };
        let sequence = |time| {
            self.before(self.place_at(time))
                .map(|(sequence, _)| sequence)
        };
        (0..=steps).filter_map(|step| sequence(at(step))).collect()
    }
}
