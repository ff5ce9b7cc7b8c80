//! Makes model agents follow a real log, so that a fork can take over at its end. The log's reports
//! ([`ModelAgents::observe`]) replace due events; those still due at the end happen on the fork.

use dormouse_agent_core::Exit;
use dormouse_messages::events::{ContainerExited, ContainerStarted, TasksEnded};
use dormouse_messages::{Event, JobId, Rank, Recorded, Timestamp};

use super::agents::ModelAgents;
use super::faults::Faults;
use super::gang::Container;
use super::incarnation::{Due, IncarnationId, after};
use super::model::ModelJob;
use super::model_node::Note;

/// The work lost with a failed incarnation.
#[derive(Debug, Clone, PartialEq)]
pub struct Died {
    pub job: JobId,
    /// Work done at the failure.
    pub done: f64,
}

impl ModelAgents {
    /// Applies a recorded report at its time; returns the failed incarnation, if any. The caller then
    /// folds the event ([`Self::fold`]).
    pub fn observe(&mut self, recorded: &Recorded, now: Timestamp) -> Option<Died> {
        self.led = true;
        let died = self.happened(recorded, now);
        self.pump(now, &mut Faults::none());
        died
    }

    fn happened(&mut self, recorded: &Recorded, now: Timestamp) -> Option<Died> {
        match recorded.event() {
            Some(Event::NodeJoined(event)) => self.joined(event, now),
            Some(Event::NodeLost(event)) => self.lose(&event.node, now),
            Some(Event::NodeFenced(event)) => self.lose(&event.node, now),
            Some(Event::ContainerStarted(event)) => {
                self.has_started(event, now);
            }
            Some(Event::ContainerReady(event)) => {
                let incarnation = (event.container.job.clone(), event.container.incarnation);
                self.drop_due(&incarnation, |due| due == Due::Ready(event.container.rank));
            }
            Some(Event::CheckpointSaved(event)) => {
                let incarnation = (event.job.clone(), event.incarnation);
                self.drop_due(&incarnation, |due| {
                    matches!(due, Due::Saved | Due::SaveFailed)
                });
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.saved = job.done_at(now);
                }
            }
            Some(Event::CheckpointFailed(event)) => {
                let incarnation = (event.job.clone(), event.incarnation);
                self.drop_due(&incarnation, |due| {
                    matches!(due, Due::Saved | Due::SaveFailed)
                });
            }
            Some(Event::ContainerExited(event)) => return self.has_exited(event, now),
            Some(Event::TasksEnded(event)) => self.tasks_have_ended(event, now),
            _ => {}
        }
        None
    }

    /// Returns the work that a live job has done; all of it for a succeeded program.
    #[must_use]
    pub fn done(&self, job: &JobId, now: Timestamp) -> Option<f64> {
        let job = self.jobs.get(job)?;
        Some(job.ended.unwrap_or_else(|| job.done_at(now)))
    }

    /// Replaces a live job's model and replans its work.
    pub fn remodel(&mut self, id: &JobId, model: ModelJob) {
        let Some(job) = self.jobs.get_mut(id) else {
            self.model(id.clone(), model);
            return;
        };
        job.model = model;
        if job.working.is_none() {
            return;
        }
        let known = self.gangs.keys().filter(|(job, _)| job == id);
        if let Some(incarnation) = known.max().cloned() {
            self.drop_due(&incarnation, |due| {
                matches!(due, Due::Ended { .. } | Due::Progress(_))
            });
            self.plan(incarnation, None);
        }
    }

    /// Postpones everything due before `until`.
    pub fn postpone(&mut self, until: Timestamp) {
        let later = self.due.split_off(&(until, 0));
        for (_, (incarnation, due)) in std::mem::replace(&mut self.due, later) {
            self.schedule(until, incarnation, due);
        }
    }

    fn drop_due(&mut self, incarnation: &IncarnationId, is_said: impl Fn(Due) -> bool) {
        self.due
            .retain(|_, (of, due)| of != incarnation || !is_said(*due));
    }

    fn has_started(&mut self, event: &ContainerStarted, now: Timestamp) {
        let (incarnation, rank): (IncarnationId, _) = (
            (event.container.job.clone(), event.container.incarnation),
            event.container.rank,
        );
        let Some(gang) = self.gangs.get_mut(&incarnation) else {
            return;
        };
        let runs = Note::Running(event.container.clone());
        self.notes.push_back((event.node.clone(), runs));
        if let Some((_, container)) = gang.containers.get_mut(&rank) {
            *container = Container::Runs;
        }
        let runs = gang
            .containers
            .values()
            .filter(|(_, container)| *container == Container::Runs);
        let ran = u32::try_from(runs.count()).unwrap_or(u32::MAX);
        let whole = ran.saturating_add(gang.succeeded) == gang.size;
        let (resumes, served) = (gang.resumes, gang.served);
        let begins = whole && !gang.begun && !gang.failed;
        gang.begun |= whole;
        let is_newcomer =
            |(of, due): &(IncarnationId, Due)| *of == incarnation && *due == Due::Joined(rank);
        let comes = self.due.values().any(is_newcomer);
        self.drop_due(&incarnation, |due| due == Due::Joined(rank));
        if served || comes {
            let at = after(now, self.ready_s(&incarnation, rank));
            self.schedule(at, incarnation.clone(), Due::Ready(rank));
        }
        if begins {
            self.drop_due(&incarnation, |due| due == Due::Started);
            let pause_s = self
                .jobs
                .get(&incarnation.0)
                .map_or(0.0, |job| job.model.pause_s(incarnation.1, resumes));
            self.work(incarnation, pause_s, now, &mut Faults::none());
        }
    }

    fn has_exited(&mut self, event: &ContainerExited, now: Timestamp) -> Option<Died> {
        let incarnation = (event.container.job.clone(), event.container.incarnation);
        let gang = self.gangs.get_mut(&incarnation)?;
        gang.containers.remove(&event.container.rank)?;
        let exit = Exit {
            code: event.exit_code,
            signal: event.signal,
            evicted: event.evicted,
            ..Exit::default()
        };
        let ended = Note::Ended(event.container.clone(), exit);
        self.notes.push_back((event.node.clone(), ended));
        let (empty, in_place) = (gang.containers.is_empty(), gang.in_place);
        let works = gang.containers.keys().any(|rank| gang.is_worker(*rank));
        let stopping = gang.stopping.remove(&event.container.rank);
        let asked = stopping || event.evicted;
        let job = self.jobs.get_mut(&incarnation.0)?;
        let success = event.exit_code == Some(0) && !event.evicted;
        let ended_itself = event.exit_code.is_some() || event.signal.is_some();
        let mut died = None;
        let is_early = !gang.begun && !in_place;
        if is_early && success {
            gang.succeeded += 1;
        } else if is_early && ended_itself && !asked && !gang.failed {
            gang.failed = true;
            job.failed += 1;
            died = Some(Died {
                job: incarnation.0.clone(),
                done: job.done,
            });
        } else if success && job.working.is_some() && (!works || !in_place) {
            let work = job.just_below(now);
            job.pause(now);
            job.ended = Some(work);
        } else if !success && job.working.is_some() {
            // The first failing member costs the gang's work.
            let died_of = Died {
                job: incarnation.0.clone(),
                done: job.just_below(now),
            };
            died = (!asked).then_some(died_of);
            job.failed += usize::from(died.is_some());
            if in_place && event.container.rank != Rank(0) {
                job.pause(now)
            } else {
                job.die()
            }
        }
        if empty {
            if stopping || !success {
                job.die();
            }
            self.drop_due(&incarnation, |_| true);
            if !in_place {
                self.gangs.remove(&incarnation);
            }
        } else {
            self.drop_due(&incarnation, |due| due == Due::Left(event.container.rank));
        }
        died
    }

    fn tasks_have_ended(&mut self, event: &TasksEnded, now: Timestamp) {
        let incarnation = (event.job.clone(), event.incarnation);
        let task_s = self.jobs.get(&incarnation.0).and_then(|job| job.task_s);
        let Some(gang) = self.gangs.get_mut(&incarnation) else {
            return;
        };
        let Some(queue) = gang.tasks.get_mut(&event.rank) else {
            return;
        };
        queue.have_ended(&event.completed, &event.failed, now);
        let left = queue.running();
        // The log's report replaces the model's due time.
        self.drop_due(&incarnation, |due| due == Due::TasksEnded(event.rank));
        if let Some(task_s) = task_s.filter(|_| left > 0) {
            self.run_tasks(&incarnation, event.rank, left, task_s, now);
        }
    }
}
