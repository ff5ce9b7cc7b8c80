//! Moments equal a fold of the log, whichever model is nearest.

use super::*;
use dormouse_messages::Event;
use dormouse_state::history::History;

fn history(jobs: usize) -> Vec<Arc<Recorded>> {
    let mut history = History::default();
    history.join("n0", 1);
    for job in 0..jobs {
        let id = format!("ads/j{job}");
        history.run(&id, 1);
        if job % 3 == 0 {
            history.complete(&id);
        }
    }
    history.log.into_iter().map(Arc::new).collect()
}

fn past(log: &[Arc<Recorded>], apart: usize) -> Past {
    let past = Past::new("log", false);
    past.write_inner().apart = apart;
    past.push(log.iter().cloned()).expect("kept");
    past.caught_up();
    past
}

#[test]
fn every_moment_is_the_fold_up_to_there() {
    let log = history(400);
    assert!(log.len() > 3 * chunks::EVENTS, "{}", log.len());
    let past = past(&log, 700);
    assert!(past.read_inner().kept.len() > 3);
    let mut model = ReadModel::default();
    for (place, recorded) in log.iter().enumerate() {
        model.evolve(recorded);
        if place % 331 == 0 || place + 1 == log.len() {
            let at = past.at(recorded.sequence).expect("read back");
            assert_eq!(
                at.moment(),
                model.moment(),
                "after event {}",
                recorded.sequence
            );
            assert_eq!(at.check_invariants(), Ok(()));
        }
    }
}

#[test]
fn models_that_are_kept_are_thinned_and_moments_stay_right() {
    let log = history(300);
    let past = past(&log, 5);
    let kept = past.read_inner().kept.len();
    assert!(kept <= MOST_KEPT && kept > MOST_KEPT / 4, "{kept}");
    let middle = &log[log.len() / 2];
    let mut model = ReadModel::default();
    for recorded in log.iter().take(log.len() / 2 + 1) {
        model.evolve(recorded);
    }
    assert_eq!(
        past.at(middle.sequence).expect("read back").moment(),
        model.moment()
    );
}

/// Every kept model holds all waiting jobs.
#[test]
fn models_that_are_kept_know_of_so_many_jobs_together() {
    let mut history = History::default();
    history.join("n0", 1);
    for job in 0..500 {
        history.submit(&format!("ads/j{job}"));
    }
    let log: Vec<Arc<Recorded>> = history.log.into_iter().map(Arc::new).collect();
    let past = Past::new("log", false);
    past.write_inner().apart = 20;
    past.write_inner().most_jobs = 2_000;
    for recorded in &log {
        past.push([Arc::clone(recorded)]).expect("kept");
        assert!(past.read_inner().kept_jobs() <= 2_000);
    }
    assert!(past.read_inner().kept.len() > 2);
    let third = &log[log.len() / 3];
    let mut model = ReadModel::default();
    for recorded in log.iter().take(log.len() / 3 + 1) {
        model.evolve(recorded);
    }
    let moment = past.at(third.sequence).expect("read back").moment();
    assert_eq!(moment, model.moment());
}

#[test]
fn what_is_delivered_twice_counts_once() {
    let log = history(3);
    let past = past(&log, 100);
    past.push(log.iter().cloned()).expect("kept");
    assert_eq!(past.head().events, log.len());
}

#[test]
fn events_are_read_back_from_packed_chunks_and_the_open_one() {
    let log = history(300);
    let past = past(&log, 1_000);
    let places: Vec<usize> = (0..log.len()).step_by(97).chain([log.len() - 1]).collect();
    let found = past.events(&places).expect("read back");
    let wanted: Vec<&Recorded> = places.iter().map(|place| &*log[*place]).collect();
    let found: Vec<&Recorded> = found.iter().map(|it| &**it).collect();
    assert_eq!(found, wanted);
}

#[test]
fn the_index_finds_decisions_and_what_is_about_a_job() {
    let log = history(10);
    let past = past(&log, 1_000);
    let decided =
        |recorded: &&Arc<Recorded>| matches!(recorded.event(), Some(Event::AllocationDecided(_)));
    let decisions: Vec<Sequence> = log.iter().filter(decided).map(|it| it.sequence).collect();
    past.indexed(|index| {
        let step = |at, count| index.decision(at, count).map(|it| it.sequence);
        assert_eq!(step(decisions[3], 1), Some(decisions[4]));
        assert_eq!(step(decisions[3], -1), Some(decisions[2]));
        assert_eq!(step(Sequence(decisions[3].0 + 1), -1), Some(decisions[3]));
        assert_eq!(step(decisions[0], -1), Some(decisions[0]));
        let last = *decisions.last().expect("one");
        assert_eq!(step(last, 5), Some(last));
        let about = index.about("ads/j4", index.len());
        assert!(about.len() > 3);
        let all = |place: &usize| log[*place].envelope.subject.as_str() == "ads/j4";
        assert!(about.iter().all(all));
        let axis = index.axis(log[0].stored_at, log[log.len() - 1].stored_at, 7);
        assert_eq!((axis.len(), axis[6]), (7, log[log.len() - 1].sequence));
    });
}
