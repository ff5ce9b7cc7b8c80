//! The past resizes of a job: their causes, gainers and costs.

use dormouse_messages::{Event, Fact, JobId, Sequence, Timestamp};

use super::answer::{Cause, Explanation, PastResize, in_words};

/// Collects a job's resizes.
#[derive(Debug, Default)]
pub struct Resizes {
    pub(super) all: Vec<PastResize>,
    pub(super) gained: Vec<Vec<(JobId, u32, u32)>>,
    pub(super) made_for: Vec<Option<JobId>>,
    asked: Option<Timestamp>,
}

impl Resizes {
    pub fn read(
        &mut self,
        job: &JobId,
        fact: &Fact<'_>,
        causes: impl FnOnce(&[Sequence]) -> Vec<Cause>,
    ) {
        match fact.event() {
            Some(Event::AllocationDecided(event)) => {
                let own = event.jobs.iter().find(|it| it.job == *job && !it.new);
                let Some(own) = own.filter(|own| own.containers != own.previous) else {
                    return;
                };
                let others = event.jobs.iter();
                let gained = others.filter(|it| it.job != *job && it.containers > it.previous);
                let gained = gained.map(|it| (it.job.clone(), it.previous, it.containers));
                self.gained.push(gained.collect());
                self.made_for.push(own.made_for.clone());
                self.all.push(PastResize {
                    sequence: fact.sequence,
                    at: fact.at,
                    epoch: event.epoch.0,
                    from: own.previous,
                    to: own.containers,
                    made_for: None,
                    causes: causes(event.basis.as_ref().map_or(&[], |basis| &basis.causes)),
                    gained: Vec::new(),
                    cost_s: None,
                    in_place: false,
                    given_up: None,
                });
            }
            Some(Event::CheckpointRequested(event)) if event.job == *job => {
                self.asked = Some(fact.at);
            }
            Some(Event::PartitionStopRequested(event)) if event.job == *job => {
                self.asked.get_or_insert(fact.at);
            }
            Some(Event::PartitionStopped(event)) if event.job == *job => {
                // Further waiting of a requeued or held job is no cost of the resize.
                if let Some(last) = self.all.last_mut().filter(|last| last.to == 0)
                    && let Some(asked) = self.asked.take()
                {
                    let took_s = fact.at.seconds_since(asked);
                    last.cost_s.get_or_insert(took_s);
                }
            }
            Some(Event::PartitionStarted(event)) if event.job == *job => {
                let asked = self.asked.take();
                if let Some(last) = self.all.last_mut()
                    && let Some(since) = asked.or_else(|| (last.from == 0).then_some(last.at))
                {
                    last.cost_s.get_or_insert(fact.at.seconds_since(since));
                }
            }
            // A resize in place does not wait for other members.
            Some(Event::PartitionResized(event)) if event.job == *job => {
                if let Some(last) = self.all.last_mut() {
                    resized(last, event.containers, fact.at);
                }
            }
            Some(Event::ResizeAbandoned(event)) if event.job == *job => {
                self.asked = None;
                if let Some(last) = self.all.last_mut() {
                    last.given_up = Some(event.reason.clone());
                }
            }
            _ => {}
        }
    }
}

fn resized(last: &mut PastResize, containers: u32, at: Timestamp) {
    match (last.from, containers) {
        // The requested replicas left before any use.
        (0, 0) if last.cost_s.is_none() => {
            last.given_up = Some("no replica of it was used".to_owned());
        }
        (0, 0) => {}
        (0, _) => {
            let took_s = at.seconds_since(last.at);
            last.cost_s.get_or_insert(took_s);
        }
        _ => {
            last.in_place = last.cost_s.is_none();
            last.cost_s.get_or_insert(0.0);
        }
    }
}

const MOST_TOLD: usize = 3;

pub fn past(answer: &mut Explanation) {
    let older = answer.resizes.len().saturating_sub(MOST_TOLD);
    for resize in answer.resizes.iter().rev().take(MOST_TOLD) {
        let gained: Vec<String> = resize
            .gained
            .iter()
            .map(|gain| format!("{} {}→{}", gain.job, gain.from, gain.to))
            .collect();
        let causes = in_words(&resize.causes);
        // The cause of a decision is not the job that it makes room for.
        let why = match &resize.made_for {
            Some(job) => format!("to make room for {job}; it was decided upon {causes}"),
            None => format!("because of {causes}"),
        };
        let mut words = format!(
            "epoch {} (event {}, {}) resized it {}→{}, {why}",
            resize.epoch,
            resize.sequence,
            resize.at.to_words(),
            resize.from,
            resize.to,
        );
        if !gained.is_empty() {
            words.push_str(&format!("; in the same decision: {}", gained.join(", ")));
        }
        match (&resize.given_up, resize.cost_s) {
            (Some(why), _) => words.push_str(&format!("; it was given up: {why}")),
            (None, Some(cost_s)) if resize.to == 0 => {
                words.push_str(&format!("; it had stopped {cost_s:.1} s later"));
            }
            (None, Some(cost_s)) if resize.from == 0 => {
                words.push_str(&format!("; it ran {cost_s:.1} s later"));
            }
            (None, Some(_)) if resize.in_place => {
                words.push_str("; in place: it did not stand still");
            }
            (None, Some(cost_s)) => {
                words.push_str(&format!("; it stood still for {cost_s:.1} s"));
            }
            (None, None) if resize.to == 0 => words.push_str("; it is stopping"),
            (None, None) if resize.from == 0 => words.push_str("; it does not run yet"),
            (None, None) => words.push_str("; it does not run again yet"),
        }
        answer.words.push(words);
    }
    if older > 0 {
        let words = format!("it was resized {older} times before; -o json lists them");
        answer.words.push(words.replace(
            "1 times before; -o json lists them",
            "once before; -o json shows it",
        ));
    }
}
