//! Samples of events about queues of Slurm.

use dormouse_messages::QueueId;
use dormouse_messages::slurm::SlurmQueue;

use super::*;

pub fn slurm(events: &mut Vec<Event>) {
    let queue = || QueueId::new("gpu").expect("valid");
    let number = 7;
    events.push(Event::from(SlurmQueueConfigured {
        queue: queue(),
        settings: SlurmQueue {
            partition: Some("gpu".to_owned()),
            account: Some("ml".to_owned()),
            options: vec!["--constraint=a100".to_owned()],
            node: "cpu=32,memory=240Gi,gpu=4".parse().expect("valid"),
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            nodes: 2,
            time_limit_s: 14_400,
            drain_s: 120,
            most: 8,
            backlog: 1,
            idle_s: 300,
            pause_after: 3,
            grow: true,
            paused: true,
        },
    }));
    events.push(Event::from(SlurmQueueRemoved { queue: queue() }));
    events.push(Event::from(SlurmRequested {
        queue: queue(),
        number,
        slot: 0,
        nodes: 2,
        jobs: vec![job()],
        basis: basis(),
    }));
    events.push(Event::from(SlurmSubmitted {
        queue: queue(),
        number,
        slurm_job: 4711,
    }));
    events.push(Event::from(SlurmRefused {
        queue: queue(),
        number,
        reason: "sbatch: error: invalid partition specified: gpu".to_owned(),
    }));
    events.push(Event::from(SlurmEstimated {
        queue: queue(),
        number,
        reason: "Priority".to_owned(),
        starts_at: Some(Timestamp::from_micros(1_764_325_200_000_000)),
    }));
    events.push(Event::from(SlurmGranted {
        queue: queue(),
        number,
        hosts: "gpu[01-02]".to_owned(),
        ends_at: Some(Timestamp::from_micros(1_764_339_600_000_000)),
    }));
    events.push(Event::from(SlurmReleased {
        queue: queue(),
        number,
        reason: "no container for 300 s".to_owned(),
        in_vain: true,
        basis: basis(),
    }));
    events.push(Event::from(SlurmEnded {
        queue: queue(),
        number,
        state: "TIMEOUT".to_owned(),
        reason: "TimeLimit".to_owned(),
    }));
}
