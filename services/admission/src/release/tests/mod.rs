//! Tests of the release order.
//!
//! - `classes`, `fair`: priority classes, DRF
//! - `unschedulable`, `nodes`, `short`: unschedulable jobs, capacity by node, time limits

mod classes;
mod fair;
mod nodes;
mod short;
mod unschedulable;

use dormouse_messages::events::{
    AllocationUnchanged, ClusterConfigured, JobAdmitted, JobCompleted, JobReleased, Outcome,
    TenantConfigured, Waiting,
};
use dormouse_messages::policy::{Admit, Allocation, Policy, Queue};
use dormouse_messages::{Decider, Envelope, Event, Fold, JobId, Recorded, Timestamp};

use super::{Changes, releases};
use crate::{Admission, AdmissionState};

/// Admission's state; one second an event by default.
struct Given {
    state: AdmissionState,
    now: Timestamp,
    ingress: u64,
}

impl Given {
    fn cluster(capacity: &str, queue: Queue) -> Self {
        let mut given = Self {
            state: AdmissionState::default(),
            now: Timestamp::from_micros(1_800_000_000_000_000),
            ingress: 0,
        };
        let policy = Policy {
            queue,
            allocation: Allocation::Drf,
            reserve_after_s: 600,
            ..Policy::default()
        };
        given.fold(ClusterConfigured { policy }.into());
        given.node("n0", capacity);
        given
    }

    fn node(&mut self, name: &str, capacity: &str) {
        self.node_with_gpus(name, capacity, &[]);
    }

    fn fold(&mut self, event: Event) {
        self.evolve(event);
        self.state.check_invariants().expect("sound");
    }

    fn evolve(&mut self, event: Event) {
        let writer = event.writers()[0];
        let sequence = self.state.queues.cluster.sequence.next();
        let id = sequence.to_string();
        self.state.evolve(&Recorded {
            sequence,
            stored_at: self.now,
            writer,
            envelope: Envelope::new(id, writer, self.now, None, event),
        });
    }

    fn tenant(&mut self, name: &str, weight: u32, quota: &str) {
        let configured = TenantConfigured {
            tenant: name.parse().expect("a tenant"),
            weight,
            quota: quota.parse().unwrap_or_default(),
            max_job_weight: None,
            priority: None,
        };
        self.fold(configured.into());
    }

    fn queue(&mut self, id: &str, demand: &str) {
        self.queue_with(id, demand, 0);
    }

    fn queue_with(&mut self, id: &str, demand: &str, priority: i32) {
        let admitted = self.admitted(id, demand, priority);
        self.fold(admitted);
    }

    fn admitted(&mut self, id: &str, demand: &str, priority: i32) -> Event {
        let job: JobId = id.parse().expect("a job");
        let demand: dormouse_messages::Amounts = demand.parse().expect("amounts");
        let spec = serde_json::from_value(serde_json::json!({
            "name": job.name(), "tenant": job.tenant(), "kind": "batch",
            "command": {"start": ["task"]}, "demand": demand, "weight": 1,
            "containers": {"min": 1, "max": 1}, "checkpoint": {"mode": "none"},
            "priority": priority,
        }));
        self.ingress += 1;
        let admitted = JobAdmitted {
            job,
            spec: spec.expect("a specification"),
            ingress_sequence: self.ingress,
            by: None,
            basis: None,
        };
        admitted.into()
    }

    fn release(&mut self, id: &str) {
        let released = JobReleased {
            job: id.parse().expect("a job"),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        };
        self.fold(released.into());
    }

    fn run(&mut self, id: &str, demand: &str) {
        self.queue(id, demand);
        self.release(id);
    }

    fn complete(&mut self, id: &str) {
        let completed = JobCompleted {
            job: id.parse().expect("a job"),
            reason: String::new(),
            attempts: 0,
            basis: None,
        };
        self.fold(completed.into());
    }

    fn seconds(&mut self, seconds: u64) {
        self.now = self.now.plus_ms(1000 * seconds);
    }

    fn decide(&self) -> Vec<JobReleased> {
        let decision = Admission.decide(&self.state, self.now);
        let released = decision
            .proposals
            .into_iter()
            .map(|proposal| match proposal.event {
                Event::JobReleased(event) => *event,
                other => panic!("{other:?}"),
            });
        released.collect()
    }

    /// The optimizer changes nothing; these jobs wait.
    fn kept(&mut self, waiting: &[(&str, &str)]) {
        let waiting = waiting.iter().map(|(job, code)| Waiting {
            job: job.parse().expect("a job"),
            code: (*code).to_owned(),
            reason: String::new(),
        });
        let outcome = Outcome {
            waiting: waiting.collect(),
            ..Outcome::default()
        };
        let kept = AllocationUnchanged {
            reason: String::new(),
            outcome,
            basis: None,
        };
        self.fold(kept.into());
    }

    #[track_caller]
    fn then(&self, expected: &[&str]) {
        let decided = self.decide();
        let ids: Vec<&str> = decided.iter().map(|event| event.job.as_str()).collect();
        assert_eq!(ids, expected);
    }

    fn carry_out(&mut self) -> Vec<String> {
        let decided = self.decide();
        let ids = decided.iter().map(|event| event.job.to_string()).collect();
        for event in decided {
            self.fold(event.into());
        }
        ids
    }

    #[track_caller]
    fn then_tenants(&self, expected: &str) {
        let decided = self.decide();
        let tenants: String = decided
            .iter()
            .map(|event| &event.job.as_str()[..1])
            .collect();
        assert_eq!(tenants, expected);
    }
}

/// The paper's example: 20 CPUs, 40 GB; A runs 3 and queues 10 tasks of <1, 4>, B runs 5 and queues 5 of <2,
/// 1>.
fn worked_example(queue: Queue) -> Given {
    let mut given = Given::cluster("cpu=20,memory=40Gi", queue);
    for task in 0..3 {
        given.run(&format!("a/run-{task}"), "cpu=1,memory=4Gi");
    }
    for task in 0..5 {
        given.run(&format!("b/run-{task}"), "cpu=2,memory=1Gi");
    }
    // Without a last releaser the first by name goes.
    given.state.queues.last = None;
    for task in 0..10 {
        given.queue(&format!("a/t{task}"), "cpu=1,memory=4Gi");
    }
    for task in 0..5 {
        given.queue(&format!("b/t{task}"), "cpu=2,memory=1Gi");
    }
    given
}

#[test]
fn the_worked_example_drf_aware() {
    worked_example(Queue::Drf).then_tenants("aaabb");
}

#[test]
fn the_worked_example_demand_aware() {
    worked_example(Queue::Demand).then_tenants("aaaaab");
}

#[test]
fn the_worked_example_demand_drf_aware() {
    worked_example(Queue::DemandDrf).then_tenants("aaaaba");
}

#[test]
fn a_release_says_what_it_was_decided_on() {
    let mut given = worked_example(Queue::Drf);
    given.seconds(3);
    let first = given.decide().remove(0).turn.expect("a turn");
    assert_eq!(
        (first.queue, first.weight, first.queued),
        (Queue::Drf, 1, 10)
    );
    assert_eq!((first.share, first.demand_share), (0.3, 1.0));
    assert_eq!(first.waited_ms, 3_000);
}

#[test]
fn weights_divide_the_share() {
    let mut given = Given::cluster("cpu=12", Queue::Drf);
    given.tenant("b", 3, "");
    for task in 0..12 {
        given.queue(&format!("a/t{task}"), "cpu=1");
        given.queue(&format!("b/t{task}"), "cpu=1");
    }
    let turns: String = given.carry_out().iter().map(|id| &id[..1]).collect();
    assert_eq!(turns.matches('b').count(), 9, "{turns}");
}

#[test]
fn fifo_is_the_order_of_arrival_and_nobody_is_overtaken() {
    let mut given = Given::cluster("cpu=4", Queue::Fifo);
    given.queue("b/first", "cpu=3");
    given.queue("a/large", "cpu=2");
    given.queue("c/small", "cpu=1");
    given.then(&["b/first"]);
}

#[test]
fn a_tenant_whose_job_does_not_fit_is_passed_over_and_remembered() {
    let mut given = Given::cluster("cpu=4", Queue::Drf);
    given.queue("a/large", "cpu=4");
    given.queue("b/small-0", "cpu=1");
    given.run("a/now", "cpu=1");
    given.run("b/now", "cpu=2");
    let decided = given.decide();
    assert_eq!(decided[0].job.as_str(), "b/small-0");
    assert_eq!(
        decided[0].passed_over,
        ["a/large".parse::<JobId>().expect("a job")]
    );
    given.carry_out();
    given.complete("b/small-0");
    given.queue("b/small-1", "cpu=1");
    assert_eq!(given.decide()[0].passed_over, Vec::<JobId>::new());
}

#[test]
fn a_job_that_was_passed_over_long_ago_has_room_reserved() {
    let mut given = Given::cluster("cpu=4,gpu=2", Queue::Drf);
    given.queue("a/large", "cpu=4");
    given.run("b/now-0", "cpu=2");
    given.run("c/now", "cpu=2");
    given.run("a/now", "gpu=1");
    given.complete("b/now-0");
    for task in 1..=100 {
        given.queue(&format!("b/t{task}"), "cpu=1");
    }
    assert_eq!(given.carry_out(), ["b/t1", "b/t2"]);
    // Small jobs overtake before the bound.
    given.seconds(599);
    given.complete("b/t1");
    assert_eq!(given.carry_out(), ["b/t3"]);
    given.seconds(1);
    given.complete("b/t2");
    given.then(&[]);
    given.queue("d/other", "gpu=1");
    assert_eq!(given.carry_out(), ["d/other"]);
    given.complete("b/t3");
    given.complete("c/now");
    assert_eq!(given.carry_out()[0], "a/large");
}

/// Such a reservation would idle the cluster.
#[test]
fn no_room_is_reserved_for_what_is_not_the_head() {
    let mut given = Given::cluster("cpu=4", Queue::Drf);
    given.run("b/now", "cpu=2");
    given.run("a/now", "cpu=1");
    given.queue("a/large", "cpu=3");
    given.queue("b/small", "cpu=1");
    assert_eq!(given.decide()[0].passed_over.len(), 1);
    given.carry_out();
    given.queue_with("a/urgent", "cpu=3", 5);
    given.seconds(700);
    for id in ["b/now", "a/now", "b/small"] {
        given.complete(id);
    }
    assert_eq!(given.carry_out(), ["a/urgent"]);
    given.complete("a/urgent");
    given.then(&["a/large"]);
}

#[test]
fn a_tenant_over_its_quota_waits_and_holds_nobody_back() {
    for queue in Queue::ALL {
        let mut given = Given::cluster("cpu=8", queue);
        given.tenant("a", 1, "cpu=2");
        for task in 0..4 {
            given.queue(&format!("a/t{task}"), "cpu=1");
        }
        given.queue("b/t0", "cpu=1");
        let mut released = given.carry_out();
        released.sort();
        assert_eq!(released, ["a/t0", "a/t1", "b/t0"], "{queue:?}");
        given.complete("a/t0");
        given.then(&["a/t2"]);
    }
}

#[test]
fn priority_orders_a_tenants_own_queue_only() {
    let mut given = Given::cluster("cpu=2", Queue::Drf);
    given.queue_with("a/low", "cpu=1", 0);
    given.queue_with("a/high", "cpu=1", 5);
    given.queue_with("b/highest", "cpu=1", 9);
    given.then(&["a/high", "b/highest"]);
}

#[test]
fn a_job_that_no_node_could_run_does_not_hold_its_tenant_back() {
    for queue in Queue::ALL {
        let mut given = Given::cluster("cpu=4", queue);
        given.queue("a/wide", "cpu=5");
        given.queue("a/narrow", "cpu=1");
        given.then(&["a/narrow"]);
        given.node("n1", "cpu=8");
        given.then(&["a/wide", "a/narrow"]);
    }
}

#[test]
fn balanced_wait_does_not_reward_a_flood() {
    let turns = |queue| {
        let mut given = Given::cluster("cpu=1", queue);
        // A completion after ten seconds sets the pace.
        given.run("c/pace", "cpu=1");
        given.seconds(10);
        given.complete("c/pace");
        given.run("c/now", "cpu=1");
        for task in 0..5 {
            given.queue(&format!("b/t{task}"), "cpu=1");
        }
        for task in 0..100 {
            given.queue(&format!("a/t{task}"), "cpu=1");
        }
        given.complete("c/now");
        let mut turns = String::new();
        for _ in 0..10 {
            let released = given.carry_out();
            turns.extend(released.iter().map(|id| &id[..1]));
            given.seconds(10);
            released.iter().for_each(|id| given.complete(id));
        }
        turns.matches('b').count()
    };
    assert!(turns(Queue::ProjectedWait) <= 1);
    assert!(turns(Queue::BalancedWait) >= 4);
}

#[test]
fn a_cancelled_job_that_was_not_yet_queued_counts_for_nothing() {
    let mut given = Given::cluster("cpu=20", Queue::Drf);
    given.queue("a/first", "cpu=1");
    let Event::JobAdmitted(mut held) = given.admitted("a/held", "cpu=1", 0) else {
        panic!("an admission");
    };
    held.spec.depends_on = vec!["a/first".parse().expect("a job")];
    given.fold(Event::from(JobAdmitted::clone(&held)));
    let changes = Changes {
        cancelled: [held.job.clone()].into(),
        ..Changes::default()
    };
    let released = releases(&given.state, &changes, given.now, 9);
    let Event::JobReleased(released) = &released[0].event else {
        panic!("a release");
    };
    assert_eq!(released.turn.as_ref().map(|turn| turn.queued), Some(1));
}

#[test]
fn what_does_not_compete_with_the_head_goes_by() {
    let mut given = Given::cluster("cpu=8,gpu=1", Queue::Fifo);
    given.run("a/r", "cpu=1,gpu=1");
    given.queue("a/gpu", "cpu=1,gpu=1");
    given.queue("a/cpu", "cpu=2");
    given.queue("b/gpu", "cpu=1,gpu=1");
    given.queue("b/cpu", "cpu=3");
    given.then(&["a/cpu", "b/cpu"]);
    let policy = Policy {
        allocation: Allocation::Drf,
        admit: Admit::Prefix,
        ..Policy::default()
    };
    given.fold(ClusterConfigured { policy }.into());
    given.then(&[]);
}

#[test]
fn a_head_that_others_went_by_has_room_kept_for_it() {
    let mut given = Given::cluster("cpu=8,gpu=1", Queue::Fifo);
    given.run("a/r", "cpu=1,gpu=1");
    given.queue("a/gpu", "cpu=4,gpu=1");
    given.queue("a/one", "cpu=2");
    assert_eq!(given.carry_out(), ["a/one"]);
    given.seconds(600);
    given.queue("a/two", "cpu=3");
    given.then(&[]);
}

/// Such a reservation would deadlock the two jobs.
#[test]
fn first_in_first_out_no_room_is_kept_from_who_came_earlier() {
    let mut given = Given::cluster("cpu=8", Queue::Fifo);
    given.run("r/now", "cpu=4");
    given.queue("a/first", "cpu=2");
    given.queue("b/second", "cpu=4");
    given.queue("c/third", "cpu=6");
    // The third fits in no case; the second would in place of the first.
    let passed_over = &given.decide()[0].passed_over;
    assert_eq!(passed_over, &["c/third".parse::<JobId>().expect("a job")]);
    assert_eq!(given.carry_out(), ["a/first"]);
    given.seconds(600);
    given.complete("r/now");
    given.complete("a/first");
    assert_eq!(given.carry_out(), ["b/second"]);
    given.complete("b/second");
    given.then(&["c/third"]);
}

#[test]
fn a_quota_of_gpus_holds_up_gpu_jobs_alone() {
    let mut given = Given::cluster("cpu=8,gpu=4", Queue::Drf);
    given.tenant("a", 1, "gpu=1");
    given.run("a/r", "cpu=1,gpu=1");
    given.queue("a/gpu", "cpu=1,gpu=1");
    given.queue("a/cpu", "cpu=1");
    given.then(&["a/cpu"]);
}
