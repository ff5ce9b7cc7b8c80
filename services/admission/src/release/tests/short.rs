//! Tests of short jobs that overtake a blocked head by time limits.

use dormouse_messages::events::{PartitionStartRequested, PartitionStarted};
use dormouse_messages::{Epoch, Incarnation};

use super::*;

impl Given {
    fn queue_for(&mut self, id: &str, demand: &str, limit_s: Option<u32>) {
        let mut admitted = self.admitted(id, demand, 0);
        if let Event::JobAdmitted(event) = &mut admitted {
            event.spec.time_limit_s = limit_s;
        }
        self.fold(admitted);
    }

    fn start(&mut self, id: &str) {
        self.place(id, "n0", &[]);
        let (job, epoch, incarnation): (JobId, _, _) =
            (id.parse().expect("a job"), Epoch(1), Incarnation(1));
        let requested = PartitionStartRequested {
            job: job.clone(),
            epoch,
            incarnation,
            containers: 1,
            resumed_from: None,
            basis: None,
        };
        self.fold(requested.into());
        let started = PartitionStarted {
            job,
            epoch,
            incarnation,
            containers: 1,
            resumed_from: None,
            basis: None,
        };
        self.fold(started.into());
    }

    fn run_for(&mut self, id: &str, demand: &str, limit_s: Option<u32>) {
        self.queue_for(id, demand, limit_s);
        self.release(id);
        self.start(id);
    }
}

#[test]
fn a_job_that_has_ended_when_the_first_one_starts_goes_before_it() {
    for queue in Queue::ALL {
        // One processor is free for 1,000 s; the head needs two.
        let given = |limit_s| {
            let mut given = Given::cluster("cpu=4", queue);
            given.run_for("a/long", "cpu=3", Some(1_000));
            given.queue("a/head", "cpu=2");
            given.queue_for("a/short", "cpu=1", limit_s);
            given
        };
        given(Some(940)).then(&["a/short"]);
        // A minute covers start and stop.
        given(Some(941)).then(&[]);
        given(None).then(&[]);
        let mut late = given(Some(940));
        late.seconds(1);
        late.then(&[]);
    }
}

#[test]
fn without_time_limits_of_what_runs_nothing_changes() {
    for queue in Queue::ALL {
        let mut given = Given::cluster("cpu=4", queue);
        given.run_for("a/long", "cpu=3", None);
        given.queue("a/head", "cpu=2");
        given.queue_for("a/short", "cpu=1", Some(1));
        given.then(&[]);
    }
}

#[test]
fn as_many_must_end_as_the_first_one_needs() {
    let mut given = Given::cluster("cpu=5", Queue::Fifo);
    given.run_for("a/soon", "cpu=1", Some(100));
    given.run_for("a/later", "cpu=3", Some(1_000));
    given.queue("a/head", "cpu=4");
    // The second end frees enough.
    given.queue_for("a/short", "cpu=1", Some(500));
    given.then(&["a/short"]);
    given.fold(
        dormouse_messages::events::JobRevised {
            time_limit_s: Some(0),
            ..dormouse_messages::events::JobRevised::nothing("a/later".parse().expect("a job"), 99)
        }
        .into(),
    );
    given.then(&[]);
}

#[test]
fn room_that_is_kept_is_filled_until_its_job_starts() {
    let mut given = Given::cluster("cpu=4", Queue::Drf);
    given.run_for("a/long", "cpu=3", Some(2_000));
    given.queue("a/head", "cpu=2");
    given.queue("b/other", "cpu=1");
    assert_eq!(given.carry_out(), ["b/other"], "it overtakes the head");
    given.complete("b/other");
    given.seconds(601);
    given.queue("b/long", "cpu=1");
    given.then(&[]);
    given.queue_for("b/short", "cpu=1", Some(1_300));
    given.then(&["b/short"]);
}

/// Returns a pseudo-random number below `most`.
fn draw(state: &mut u64, most: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % most
}

/// Returns the head's start and the overtaking jobs, if all run to their limits.
fn head_starts(seed: u64, others: bool) -> (u64, usize) {
    let mut state = seed;
    let mut given = Given::cluster("cpu=8", Queue::ALL[usize::try_from(seed % 6).expect("few")]);
    let mut ends: Vec<(u64, String)> = Vec::new();
    let mut free = 8;
    for index in 0..1 + draw(&mut state, 4) {
        let cpu = 1 + draw(&mut state, 4);
        let limit_s = 100 + draw(&mut state, 2_000);
        if cpu <= free {
            free -= cpu;
            let id = format!("a/r{index}");
            given.run_for(&id, &format!("cpu={cpu}"), u32::try_from(limit_s).ok());
            ends.push((limit_s, id));
        }
    }
    given.queue(
        "a/head",
        &format!("cpu={}", (free + 1 + draw(&mut state, 8 - free)).min(8)),
    );
    let mut limits = std::collections::BTreeMap::new();
    for index in 0..5 {
        let (cpu, limit_s) = (1 + draw(&mut state, 3), 20 + draw(&mut state, 1_500));
        let id = format!("a/s{index}");
        if others {
            given.queue_for(&id, &format!("cpu={cpu}"), u32::try_from(limit_s).ok());
        }
        limits.insert(id, limit_s);
    }
    let (mut now_s, mut before) = (0, 0);
    loop {
        for id in given.carry_out() {
            if id == "a/head" {
                return (now_s, before);
            }
            before += 1;
            given.start(&id);
            ends.push((now_s + limits[&id], id));
        }
        ends.sort();
        let (at_s, id) = ends.remove(0);
        given.seconds(at_s - now_s);
        now_s = at_s;
        given.complete(&id);
    }
}

#[test]
fn the_head_starts_no_later_for_who_goes_before_it() {
    let mut went = 0;
    for seed in 1..=500 {
        let (alone_s, _) = head_starts(seed, false);
        let (start_s, before) = head_starts(seed, true);
        assert!(
            start_s <= alone_s,
            "seed {seed}: {start_s} s instead of {alone_s} s"
        );
        went += before;
    }
    assert!(went > 200, "only {went} jobs went before");
}
