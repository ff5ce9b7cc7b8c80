//! Tests of priority classes.

use dormouse_messages::JobClass;

use super::*;

const DORM: Allocation = Allocation::Dorm;

fn cluster(queue: Queue, allocation: Allocation) -> Given {
    let mut given = Given::cluster("cpu=4", queue);
    let policy = Policy {
        allocation,
        ..given.state.queues.cluster.policy.clone()
    };
    given.fold(ClusterConfigured { policy }.into());
    given
}

impl Given {
    fn queue_of(&mut self, id: &str, demand: &str, value: i32, preempts: bool) {
        let mut admitted = self.admitted(id, demand, 0);
        if let Event::JobAdmitted(event) = &mut admitted {
            event.spec.priority_class = Some(JobClass {
                name: format!("c{}", value.unsigned_abs()),
                value,
                preempts,
            });
        }
        self.fold(admitted);
    }
}

#[test]
fn the_highest_class_goes_first_over_all_tenants_and_queue_policies() {
    for queue in Queue::ALL {
        let mut given = cluster(queue, DORM);
        given.queue("a/plain", "cpu=1");
        given.queue_of("a/low", "cpu=1", -5, false);
        given.queue_of("b/high", "cpu=1", 10, false);
        given.queue_of("a/higher", "cpu=1", 20, false);
        given.then(&["a/higher", "b/high", "a/plain", "a/low"]);
    }
}

#[test]
fn what_a_higher_class_waits_for_is_not_given_to_lower_ones() {
    for queue in [Queue::Drf, Queue::Demand, Queue::BalancedWait, Queue::Fifo] {
        let mut given = cluster(queue, DORM);
        given.run("c/runs", "cpu=2");
        given.queue_of("b/large", "cpu=3", 10, false);
        given.queue("a/small", "cpu=1");
        given.queue("a/other", "memory=1Gi");
        given.then(&[]);
        given.complete("c/runs");
        given.then(&["b/large", "a/small"]);
    }
}

#[test]
fn for_a_class_that_preempts_what_lower_ones_hold_is_free() {
    let with = |allocation, value, preempts| {
        let mut given = cluster(Queue::Fifo, allocation);
        given.run("c/runs", "cpu=2");
        given.queue_of("c/more", "cpu=2", 5, false);
        given.carry_out();
        given.queue_of("b/now", "cpu=3", value, preempts);
        given
    };
    with(DORM, 10, true).then(&["b/now"]);
    with(DORM, 10, false).then(&[]);
    // The running job has the same class.
    with(DORM, 5, true).then(&[]);
    // These allocations leave running jobs alone.
    with(Allocation::Static, 10, true).then(&[]);
    with(Allocation::Drf, 10, true).then(&[]);
}

#[test]
fn a_reservation_of_a_lower_class_holds_no_higher_one_back() {
    let mut given = cluster(Queue::Drf, DORM);
    given.run("c/runs", "cpu=3");
    given.queue("a/large", "cpu=2");
    given.queue("b/small", "cpu=1");
    given.carry_out();
    given.complete("b/small");
    given.seconds(700);
    given.queue("b/later", "cpu=1");
    given.then(&[]);
    given.queue_of("b/high", "cpu=1", 10, false);
    given.then(&["b/high"]);
}
