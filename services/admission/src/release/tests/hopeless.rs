//! Released jobs that the nodes there are would not hold.

use dormouse_messages::policy::Queue;

use super::Given;

/// What a released job cannot use is nobody's loss: with nodes that it can use it counts again.
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
        // A node that holds it: it waits for its room as any other.
        given.kept(&[("a/never", "resources")]);
        given.then(match queue {
            Queue::Fifo => &[],
            _ => &["b/small"],
        });
        given.kept(&[]);
        given.complete("a/never");
    }
}

/// A quota that is set below what a queued or a released job needs stops that job alone.
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
        // At once, before the optimizer has decided on it: it has its room again.
        given.then(&[]);
        // Or no node would hold it, whatever its quota.
        given.kept(&[("a/released", "never_fits")]);
        given.then(&["a/queued", "a/small"]);
        given.kept(&[]);
        given.then(&[]);
        given.complete("a/released");
        given.then(&["a/queued", "a/small"]);
    }
}
