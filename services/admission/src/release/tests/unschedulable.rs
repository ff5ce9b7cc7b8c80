//! Tests of released jobs that the present nodes cannot hold.

use dormouse_messages::policy::Queue;

use super::Given;

#[test]
fn a_released_job_that_no_nodes_would_hold_keeps_nothing_from_the_others() {
    for queue in [Queue::Fifo, Queue::Drf, Queue::Demand] {
        let mut given = Given::cluster("cpu=8,memory=8Gi", queue);
        given.run("a/never", "cpu=4");
        given.queue("a/big", "cpu=5");
        given.queue("b/small", "cpu=3");
        given.then(match queue {
            Queue::Fifo => &[],
            _ => &["b/small"],
        });
        given.kept(&[("a/never", "no_allowed_nodes")]);
        assert_eq!(given.decide().len(), 2, "{queue:?}");
        given.kept(&[("a/never", "constraints")]);
        given.kept(&[("a/never", "never_fits")]);
        assert_eq!(given.decide().len(), 2, "{queue:?}");
        // A node holds the job now, so the job waits for capacity.
        given.kept(&[("a/never", "resources")]);
        given.then(match queue {
            Queue::Fifo => &[],
            _ => &["b/small"],
        });
        given.kept(&[]);
        given.complete("a/never");
    }
}

#[test]
fn a_job_above_its_tenants_quota_holds_nobody_back() {
    for queue in Queue::ALL {
        let mut given = Given::cluster("cpu=8", queue);
        given.run("a/released", "cpu=5");
        given.queue("a/queued", "cpu=4");
        given.tenant("a", 1, "cpu=3");
        given.queue("a/small", "cpu=2");
        given.then(&[]);
        given.kept(&[("a/released", "above_quota")]);
        given.then(&["a/small"]);
        given.tenant("a", 1, "cpu=9");
        // The released job counts again before the next allocation.
        given.then(&[]);
        // An unschedulable job reserves nothing, whatever its quota.
        given.kept(&[("a/released", "never_fits")]);
        given.then(&["a/queued", "a/small"]);
        given.kept(&[]);
        given.then(&[]);
        given.complete("a/released");
        given.then(&["a/queued", "a/small"]);
    }
}
