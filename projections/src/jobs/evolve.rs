//! Applies events to one job.

use dormouse_messages::events::{
    CheckpointRequested, CheckpointSaved, ContainerExited, JobAllocation, JobRevised,
    PartitionResized, PartitionStartRequested, PartitionStarted, PartitionStopRequested,
    PartitionStopped, Progress, ResizeAbandoned, StopReason,
};

use dormouse_messages::{Incarnation, NodeId, Timestamp};
use dormouse_state::TaskSet;

use super::{
    COMMAND_LIMIT, Exit, INCARNATIONS_LIMIT, IncarnationHistory, Job, Live, Phase, ProgressPoint,
    Request, SavedCheckpoint, StoppedFor, Transit,
};

fn cut(mut command: String) -> String {
    if command.len() > COMMAND_LIMIT {
        command.truncate(command.floor_char_boundary(COMMAND_LIMIT));
        command.push('…');
    }
    command.shrink_to_fit();
    command
}

impl IncarnationHistory {
    fn container_ms(&self, at: Timestamp) -> u64 {
        let ran_ms = self.since.map_or(0, |since| at.ms_since(since));
        ran_ms.saturating_mul(u64::from(self.containers))
    }
}

impl Job {
    pub(super) fn enter(&mut self, phase: Phase, at: Timestamp) {
        if self.phase != phase {
            self.phase = phase;
            self.times.phase_since = at;
        }
    }

    pub(super) fn released(&mut self, at: Timestamp) {
        self.times.released = Some(at);
        if self.phase == Phase::Queued {
            self.enter(Phase::Waiting, at);
        }
    }

    pub(super) fn revised(live: &mut Live, event: &JobRevised) {
        live.spec.change(|spec| {
            spec.weight = event.weight.unwrap_or(spec.weight);
            spec.containers = event.containers.unwrap_or(spec.containers);
            let bounded = |limit_s: u32| Some(limit_s).filter(|limit_s| *limit_s > 0);
            if let Some(limit_s) = event.time_limit_s {
                spec.time_limit_s = bounded(limit_s);
            }
            if let Some(limit_s) = event.queue_limit_s {
                spec.queue_limit_s = bounded(limit_s);
            }
            spec.gpu_limit_milli = event.gpu_limit_milli.or(spec.gpu_limit_milli);
            spec.priority = event.priority.unwrap_or(spec.priority);
        });
    }

    pub(super) fn allocated(&mut self, allocation: &JobAllocation, at: Timestamp) {
        self.target = allocation.containers;
        self.share = allocation.share;
        self.fair_share = allocation.fair_share;
        if self.target > 0 {
            if matches!(self.phase, Phase::Queued | Phase::Waiting) {
                self.enter(Phase::Placed, at);
                self.note.clear();
                self.code.clear();
            }
        } else if self.phase == Phase::Placed {
            self.enter(Phase::Waiting, at);
        }
    }

    pub(super) fn checkpoint_requested(
        &mut self,
        live: &mut Live,
        event: &CheckpointRequested,
        at: Timestamp,
    ) {
        if event.incarnation != self.incarnation() {
            return;
        }
        live.transit = Some(self.transit(StopReason::Adjusted, at));
        self.enter(Phase::Checkpointing, at);
    }

    fn transit(&self, cause: StopReason, since: Timestamp) -> Transit {
        Transit {
            cause,
            from: self.now,
            since,
            saved_step: None,
            save_failed: None,
        }
    }

    pub(super) fn saved(&mut self, live: &mut Live, event: &CheckpointSaved, at: Timestamp) {
        if let Some(transit) = &mut live.transit
            && event.incarnation == self.incarnation()
        {
            transit.saved_step = Some(event.step);
        }
        let saved = SavedCheckpoint {
            at,
            incarnation: event.incarnation,
            uri: event.uri.clone(),
            step: event.step,
            bytes: event.bytes,
            duration_ms: event.duration_ms,
        };
        match &mut self.checkpoint {
            // Late report of a returning node.
            Some(known) if known.incarnation > saved.incarnation => {}
            Some(known) => **known = saved,
            None => self.checkpoint = Some(Box::new(saved)),
        }
    }

    pub(super) fn stop_requested(
        &mut self,
        live: &mut Live,
        event: &PartitionStopRequested,
        at: Timestamp,
    ) {
        if event.incarnation != self.incarnation() {
            return;
        }
        match &mut live.transit {
            Some(transit) => transit.cause = event.reason,
            None => live.transit = Some(self.transit(event.reason, at)),
        }
        self.enter(Phase::Stopping, at);
    }

    pub(super) fn stopped(
        &mut self,
        live: &mut Live,
        (event, was_on_hold): (&PartitionStopped, bool),
        at: Timestamp,
    ) {
        if event.incarnation != self.incarnation() {
            return;
        }
        self.attempts = self.attempts.max(event.attempts);
        match &mut live.transit {
            Some(transit) => transit.cause = event.reason,
            None => live.transit = Some(self.transit(event.reason, at)),
        }
        if event.reason == StopReason::Adjusted
            && self.target == 0
            && let Some(transit) = live.transit.take()
        {
            // Only the stop itself counts as resize cost.
            self.resize_ms += at.ms_since(transit.since);
        }
        self.close_incarnation(Some(event.reason), at);
        let stopped_for = match (live.preempted, was_on_hold && self.target == 0) {
            _ if event.reason != StopReason::Adjusted => None,
            (true, _) => Some(StoppedFor::Preemption),
            (false, true) => Some(StoppedFor::Hold),
            (false, false) => None,
        };
        if let Some(last) = self.incarnations.last_mut() {
            last.stopped_for = stopped_for;
        }
        let next = match event.reason {
            StopReason::Cancelled
            | StopReason::GaveUp
            | StopReason::TimeLimit
            | StopReason::Completed => Phase::Stopping,
            _ if self.target == 0 => Phase::Waiting,
            _ => Phase::Placed,
        };
        self.enter(next, at);
    }

    pub(super) fn kept(&mut self, live: &mut Live, event: &ResizeAbandoned, at: Timestamp) {
        if event.incarnation == self.incarnation() && self.now > 0 {
            live.transit = None;
            self.target = self.now;
            self.enter(Phase::Running, at);
        }
    }

    pub(super) fn start_requested(
        &mut self,
        live: &mut Live,
        (event, nodes): (&PartitionStartRequested, usize),
        at: Timestamp,
    ) {
        self.close_incarnation(None, at);
        self.epoch = event.epoch;
        live.exit = None;
        let resumed = event.resumed_from.as_ref();
        let saved = self.checkpoint.as_ref();
        if self.incarnations.len() == INCARNATIONS_LIMIT {
            self.incarnations.remove(0);
            self.incarnations_dropped += 1;
        }
        self.incarnations.push(IncarnationHistory {
            incarnation: event.incarnation,
            epoch: event.epoch,
            containers: event.containers,
            since: None,
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            on: Vec::new(),
            requested: at,
            started: None,
            stopped: None,
            stop_reason: None,
            stopped_for: None,
            resumed_step: resumed.and_then(|uri| Some(saved.filter(|s| s.uri == *uri)?.step)),
        });
        self.enter(Phase::Starting, at);
    }

    pub(super) fn ran_on(&mut self, incarnation: Incarnation, node: &NodeId) {
        let mut incarnations = self.incarnations.iter_mut().rev();
        if let Some(own) = incarnations.find(|it| it.incarnation == incarnation)
            && let Err(place) = own.on.binary_search(node)
        {
            own.on.insert(place, node.clone());
        }
    }

    pub(super) fn started(&mut self, live: &mut Live, event: &PartitionStarted, at: Timestamp) {
        if event.incarnation != self.incarnation() || event.containers == 0 {
            return;
        }
        self.now = event.containers;
        self.times.first_started.get_or_insert(at);
        if let Some(last) = self.incarnations.last_mut() {
            last.started = Some(at);
            last.since = Some(at);
            last.containers = event.containers;
        }
        if let Some(transit) = live.transit.take() {
            let lost_ms = at.ms_since(transit.since);
            if transit.cause == StopReason::Adjusted {
                self.resizes += 1;
                self.resize_ms += lost_ms;
            } else {
                self.restarts += 1;
                self.recovery_ms += lost_ms;
            }
        }
        self.enter(Phase::Running, at);
    }

    pub(super) fn resized(&mut self, live: &mut Live, event: &PartitionResized, at: Timestamp) {
        let runs = matches!(self.phase, Phase::Running | Phase::Starting);
        let Some(last) = self.incarnations.last_mut() else {
            return;
        };
        let is_its = event.incarnation == last.incarnation && last.started.is_some();
        if !is_its || !runs {
            return;
        }
        if event.containers > 0 && event.containers == self.target {
            live.exit = None;
        }
        self.container_ms += last.container_ms(at);
        last.since = Some(at);
        last.containers = event.containers;
        let goes_on = self.now > 0 && event.containers > 0;
        self.resizes += u32::from(goes_on && event.containers != self.now);
        self.now = event.containers;
        match event.containers {
            0 => self.enter(Phase::Starting, at),
            _ => self.enter(Phase::Running, at),
        }
    }

    fn close_incarnation(&mut self, reason: Option<StopReason>, at: Timestamp) {
        self.now = 0;
        let Some(last) = self
            .incarnations
            .last_mut()
            .filter(|it| it.stopped.is_none())
        else {
            return;
        };
        last.stopped = Some(at);
        last.stop_reason = reason;
        self.container_ms += last.container_ms(at);
    }

    pub(super) fn end(
        &mut self,
        (phase, reason, attempts): (Phase, &str, u32),
        request: Option<Request>,
        at: Timestamp,
    ) {
        self.close_incarnation(None, at);
        self.enter(phase, at);
        reason.clone_into(&mut self.note);
        self.code.clear();
        self.attempts = attempts;
        self.target = 0;
        self.last_request = request.map(Box::new);
        self.times.ended = Some(at);
        if let Some(spec) = self.live.take().as_ref().and_then(|live| live.spec.get()) {
            self.command = cut(spec.command.start.join(" "));
        }
        self.incarnations.shrink_to_fit();
        self.note.shrink_to_fit();
    }

    /// Exits of leaving containers are not failures.
    pub(super) fn exited(&self, live: &mut Live, event: &ContainerExited, is_leaving: bool) {
        let normal = event.exit_code == Some(0);
        if normal
            || is_leaving
            || event.container.incarnation != self.incarnation()
            || live.exit.is_some()
        {
            return;
        }
        if matches!(self.phase, Phase::Running | Phase::Starting) {
            live.exit = Some(Exit {
                rank: event.container.rank,
                node: event.node.clone(),
                exit_code: event.exit_code,
                signal: event.signal,
                out_of_memory: event.out_of_memory,
                reason: event.reason.clone(),
            });
        }
    }

    pub(super) fn tasks_ended(&mut self, set: &TaskSet, at: Timestamp) {
        self.progress = Some(Box::new(ProgressPoint {
            at,
            step: u64::from(set.completed),
            steps_total: u64::from(set.count),
            metrics: Vec::new(),
        }));
    }

    pub(super) fn progressed(&mut self, event: &Progress, at: Timestamp) {
        if event.incarnation < self.incarnation() {
            return;
        }
        let point = self.progress.get_or_insert_with(|| {
            Box::new(ProgressPoint {
                at,
                step: 0,
                steps_total: 0,
                metrics: Vec::new(),
            })
        });
        point.at = at;
        point.step = event.step;
        point.steps_total = event.steps_total;
        let same = point.metrics.len() == event.metrics.len()
            && point
                .metrics
                .iter()
                .zip(event.metrics.keys())
                .all(|((a, _), b)| a == b);
        if same {
            for ((_, value), reported) in point.metrics.iter_mut().zip(event.metrics.values()) {
                *value = *reported;
            }
        } else {
            point.metrics = event.metrics.iter().map(|(k, v)| (k.clone(), *v)).collect();
        }
    }
}
