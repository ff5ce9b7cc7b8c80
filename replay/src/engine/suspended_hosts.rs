//! Simulates suspended hosts, such as sleeping machines and paused virtual machines.
//!
//! 1. Nothing on the host proceeds, and due events wait for the resume. The others see a disconnected
//!    agent.
//! 2. On resume, the supervisor's clock includes the suspended time. Within [two seconds](super::world)
//!    the supervisor ends all containers beyond their lease.
//! 3. Reports and checkpoints of the stale incarnation have no effect.

use dormouse_messages::{NodeId, Rank, Timestamp};

use super::agent_link::{Cut, Deadlines};
use super::agents::{ModelAgents, Standing};
use super::faults::{Faults, Plant};
use super::gang::{Container, Gang};
use super::incarnation::{Due, IncarnationId, container_id, fenced};
use super::{Action, Engine, EngineError};

/// Time limit for a resumed supervisor to end its overdue containers.
const ENDING_MS: u64 = 1_500;

impl Engine {
    pub(super) fn stand(&mut self, node: &NodeId, until: Timestamp) {
        if until <= self.now || !self.agents.is_up(node) {
            return;
        }
        let ties = &mut self.agents.ties;
        let cut = ties.cut(node, Cut::Whole, self.term, self.now, &mut self.faults);
        if let Some(due) = cut {
            let ends = ties.ends_at(node);
            let standing = Standing { until, ends };
            self.agents.standing.insert(node.clone(), standing);
            self.agents.stand(node, self.now);
            self.stands(node, until, due);
        }
    }

    /// Postpones agent and supervisor to the resume; the lease ends in time.
    fn stands(&mut self, node: &NodeId, until: Timestamp, due: Deadlines) {
        if self.faults.plant() != Some(Plant::StandingClocks) {
            let late_ms = self.faults.up_to(ENDING_MS);
            if let Some(at) = due.wakes {
                let at = at.max(until.plus_ms(late_ms));
                self.at(at, Action::RenewalDue(node.clone(), due.of));
            }
            if let Some(at) = due.fence.filter(|at| *at >= until) {
                self.at(at, Action::FenceDue(node.clone(), due.of));
            }
        }
        self.at(due.loss, Action::LeaseDue(node.clone(), due.of));
        self.at(until, Action::Wake(node.clone()));
        let back_ms = self.faults.up_to(10_000);
        self.at(until.plus_ms(back_ms), Action::Mend(node.clone()));
    }

    pub(super) fn wake(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let until = self.agents.stands_until(node);
        if until.is_none_or(|until| until > self.now) {
            return Ok(());
        }
        let late = self.agents.goes_on(node, self.now, &mut self.faults);
        if let Some(late_ms) = late {
            let ending_ms = match self.faults.plant() {
                Some(Plant::StandingClocks) => late_ms,
                _ => self.faults.up_to(ENDING_MS),
            };
            let ended = self.now.plus_ms(ending_ms);
            self.at(ended, Action::EndStale(node.clone()));
        }
        self.append_said()
    }

    pub(super) fn end_stale(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let (now, faults) = (self.now, &mut self.faults);
        self.agents.end_stale(node, now, faults);
        self.append_said()
    }
}

impl ModelAgents {
    pub(super) fn stands_until(&self, node: &NodeId) -> Option<Timestamp> {
        self.standing.get(node).map(|it| it.until)
    }

    fn stand(&mut self, node: &NodeId, now: Timestamp) {
        self.world.stands(node);
        let mut late = Vec::new();
        for (incarnation, gang) in &self.gangs {
            let mut here = gang.containers.values().filter(|(at, _)| at == node);
            let Some((_, first)) = here.next() else {
                continue;
            };
            if *first == Container::Asked || here.any(|(_, it)| *it == Container::Asked) {
                late.push(incarnation.0.clone());
            }
            let job = self.jobs.get_mut(&incarnation.0);
            if let Some(job) =
                job.filter(|it| it.incarnation == Some(incarnation.1) && it.working.is_some())
            {
                job.pause(now);
                self.stalled.insert(incarnation.clone());
            }
        }
        // The suspended containers may start too late for their gangs.
        late.iter().for_each(|job| self.note_blame(job, 1));
    }

    fn goes_on(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) -> Option<u64> {
        let standing = self.standing.remove(node)?;
        let is_over = now >= standing.ends;
        self.world.goes_on(node, is_over, now);
        if is_over {
            self.start_no_more(node, now);
        }
        let stands = |incarnation: &&IncarnationId| {
            let gang = self.gangs.get(*incarnation);
            gang.is_some_and(|gang| self.standing_under(gang).is_some())
        };
        let on = self
            .stalled
            .iter()
            .filter(|incarnation| !stands(incarnation));
        let on: Vec<IncarnationId> = on.cloned().collect();
        for incarnation in on {
            self.stalled.remove(&incarnation);
            let job = self.jobs.get(&incarnation.0);
            if job.is_some_and(|it| it.incarnation == Some(incarnation.1) && it.working.is_none()) {
                self.work(incarnation, 0.0, now, faults);
            }
        }
        self.pump(now, faults);
        is_over.then(|| now.ms_since(standing.ends))
    }

    pub(super) fn start_no_more(&mut self, node: &NodeId, now: Timestamp) {
        let mut asked = Vec::new();
        for (incarnation, gang) in &self.gangs {
            let here = gang.containers.iter().filter(|(rank, (at, it))| {
                let runs = gang.unanswered.get(rank).is_some_and(Option::is_some);
                at == node && *it == Container::Asked && !runs
            });
            asked.extend(here.map(|(rank, _)| container_id(incarnation, *rank)));
        }
        for id in asked {
            self.evict(&id, fenced(), now);
        }
    }

    fn end_stale(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) {
        for id in self.world.stale_on(node) {
            self.evict(&id, fenced(), now);
        }
        self.pump(now, faults);
    }

    fn standing_under(&self, gang: &Gang) -> Option<Timestamp> {
        let places = gang.containers.values();
        let until = places.filter_map(|(node, _)| self.stands_until(node));
        until.max()
    }

    /// Starts and stops apply to the other members now, and to the suspended ones later.
    pub(super) fn is_put_off(&mut self, incarnation: &IncarnationId, due: Due) -> bool {
        if self.standing.is_empty() {
            return false;
        }
        let Some(gang) = self.gangs.get(incarnation) else {
            return false;
        };
        let of = |rank: Rank| {
            let place = gang.containers.get(&rank);
            place.and_then(|(node, _)| self.stands_until(node))
        };
        let (until, put_off) = match due {
            Due::Started | Due::Stopped => (self.standing_under(gang), false),
            Due::Joined(rank)
            | Due::Removed(rank)
            | Due::Ready(rank)
            | Due::Left(rank)
            | Due::TasksEnded(rank) => (of(rank), true),
            Due::Ended { .. } | Due::Saved | Due::SaveFailed | Due::Drained | Due::Progress(_) => {
                (self.standing_under(gang), true)
            }
        };
        if let Some(until) = until {
            self.schedule(until, incarnation.clone(), due);
        }
        put_off && until.is_some()
    }
}
