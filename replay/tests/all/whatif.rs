//! Tests of forked logs: an unchanged fork repeats the log, and a changed policy matches its real
//! run.

mod failures;
mod tenants;

use std::sync::Arc;

use crate::common::small_cluster;
use dormouse_messages::{Event, Recorded, Sequence};
use dormouse_replay::engine::{IncarnationCosts, Scaling};
use dormouse_replay::history::changes::Asked;
use dormouse_replay::history::whatif::{Answer, ForkAt, History, Options, run, whatif};
use dormouse_replay::random::Random;
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::{Scenario, read_value};
use dormouse_replay::simulate::{self, simulate};

fn history(log: &[Arc<Recorded>]) -> History {
    let mut history = History::default();
    log.iter().for_each(|recorded| history.read(recorded));
    history
}

fn logged(scenario: &Scenario) -> Vec<Arc<Recorded>> {
    let mut log = Vec::new();
    let options = simulate::Options::default();
    let each = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    simulate(scenario, &options, each, |_| {}).expect("a simulation");
    log
}

fn table2(seed: u64) -> serde_json::Value {
    generate(Kind::Table2, seed, Size::default())
}

fn bare(recorded: &Recorded) -> (Sequence, dormouse_messages::Timestamp, Option<Event>) {
    let event = recorded.event().cloned().map(|mut event| {
        event.set_basis(None);
        event
    });
    (recorded.sequence, recorded.stored_at, event)
}

fn course(log: &[Arc<Recorded>], at: Sequence) -> (Vec<Arc<Recorded>>, Vec<Arc<Recorded>>) {
    let history = history(log);
    let forked = history.fork(ForkAt::Sequence(at));
    let mut again = Vec::new();
    let ran = run(&forked, &forked.likely(), &Default::default(), |it| {
        again.push(Arc::clone(it.recorded()));
        false
    });
    ran.expect("a fork that runs");
    let after = forked.after.iter().map(|it| Arc::clone(it.recorded()));
    (after.collect(), again)
}

fn comes_out_again(log: &[Arc<Recorded>], at: Sequence, name: &str) {
    let (after, again) = course(log, at);
    for (was, is) in after.iter().zip(&again) {
        assert_eq!(bare(is), bare(was), "{name}, forked at {at}");
    }
    assert!(
        again.len() >= after.len(),
        "{name}, forked at {at}: {} events of {}",
        again.len(),
        after.len()
    );
}

fn at_rest(log: &[Arc<Recorded>]) -> Vec<Sequence> {
    let pairs = log.windows(2);
    let rests = pairs.filter(|pair| pair[0].stored_at < pair[1].stored_at);
    rests.map(|pair| pair[0].sequence).collect()
}

#[test]
fn without_changes_a_simulated_history_comes_out_again() {
    for seed in 1..=3 {
        let mut document = table2(seed);
        document["costs"] = serde_json::json!({"adjustment_s": 60, "save_s": 20, "start_s": 3});
        let log = logged(&read_value(document).expect("a scenario"));
        let rests = at_rest(&log);
        let mut random = Random::new(seed);
        comes_out_again(&log, Sequence(0), "table II");
        for _ in 0..4 {
            comes_out_again(&log, *random.choose(&rests), "table II");
        }
    }
}

fn first_other(log: &[Arc<Recorded>], at: Sequence) -> Option<String> {
    let (after, again) = course(log, at);
    let mut pairs = after.iter().zip(&again);
    let (was, is) = pairs.find(|(was, is)| bare(was) != bare(is))?;
    let words = |it: &Recorded| format!("{} at {}: {:?}", it.sequence, it.stored_at, it.event());
    Some(format!("was {}\n  is {}", words(was), words(is)))
}

#[test]
fn without_changes_a_mixed_history_decides_the_same() {
    let (mut equal, mut decisions, mut in_place) = (0, 0, 0);
    let mut off = Vec::new();
    for seed in 1..=24 {
        let (engine, mut random) = small_cluster(seed, None);
        let log = engine.log();
        in_place += u32::from(
            log.iter()
                .any(|it| matches!(it.event(), Some(Event::PartitionResizeRequested(_)))),
        );
        let rests = at_rest(log);
        for at in [Sequence(0), *random.choose(&rests)] {
            let identity = answer(&history(log), at, &Asked::default(), 0).identity;
            equal += identity.decisions_equal;
            decisions += identity.decisions;
            if identity.decisions_equal < identity.decisions {
                let first = first_other(log, at).unwrap_or_default();
                println!("seed {seed} at {at}: {identity:?}\n  {first}");
                off.push((seed, at));
            }
        }
    }
    assert!(decisions > 100 && in_place >= 5, "{decisions}, {in_place}");
    assert!(
        off.is_empty(),
        "{equal} of {decisions}, not the same: {off:?}"
    );
}

fn answer(history: &History, at: Sequence, asked: &Asked, draws: u32) -> Answer {
    let forked = history.fork(ForkAt::Sequence(at));
    let variants = asked.variants().expect("changes");
    let options = Options { draws, threads: 2 };
    whatif(history, &forked, &variants, options)
        .expect("an answer")
        .answer
}

fn set(settings: &[&str]) -> Asked {
    Asked {
        settings: settings
            .iter()
            .map(|it| it.parse().expect("a setting"))
            .collect(),
        ..Asked::default()
    }
}

#[test]
fn a_fork_to_another_policy_is_what_that_policy_gives() {
    for seed in 1..=3 {
        let mut document = table2(seed);
        document["costs"] = serde_json::json!({"adjustment_s": 20, "save_s": 20});
        let log = logged(&read_value(document.clone()).expect("a scenario"));
        document["policy"]["theta1"] = 0.2.into();
        document["policy"]["theta2"] = 0.3.into();
        let options = simulate::Options::default();
        let really = read_value(document).expect("a scenario");
        let really = simulate(&really, &options, |_| Ok(()), |_| {}).expect("a simulation");
        let asked = set(&["policy.theta1=0.2", "policy.theta2=0.3"]);
        let answer = answer(&history(&log), Sequence(0), &asked, 0);
        let identity = &answer.identity;
        assert_eq!(identity.decisions_equal, identity.decisions, "seed {seed}");
        assert_eq!((identity.jct_p90, identity.loss), (0.0, 0.0));
        let changed = answer.variants[0]
            .cluster
            .iter()
            .find(|it| it.metric == "jct_s")
            .expect("jct_s");
        let off = (changed.changed - really.figures.jct_s.mean).abs();
        assert!(
            off < 1e-3,
            "seed {seed}: {} and really {}",
            changed.changed,
            really.figures.jct_s.mean
        );
    }
}

#[test]
fn with_noise_the_truth_lies_near_what_is_said() {
    let (mut within, mut asked_for, mut off) = (0, 0, Vec::new());
    for seed in 1..=3 {
        let noisy = |policy: (f64, f64)| {
            let mut document = table2(seed);
            for (list, most) in [("nodes", 5), ("jobs", 14)] {
                document[list]
                    .as_array_mut()
                    .expect("a list")
                    .truncate(most);
            }
            document["policy"]["theta1"] = policy.0.into();
            document["policy"]["theta2"] = policy.1.into();
            let mut scenario = read_value(document).expect("a scenario");
            for (index, submission) in scenario.submissions.iter_mut().enumerate() {
                let mut random = Random::new(seed * 1000 + index as u64);
                let model = &mut submission.model;
                let steps = (model.work_container_s / 60.0).round().max(1.0);
                model.work_container_s = steps;
                let a = random.between(0.5, 4.0);
                model.scaling = Scaling::Steps {
                    a,
                    b: 60.0 - a,
                    c: 0.0,
                };
                model.progress_s = Some(120.0);
                (model.save_s, model.resume_s, model.warm_up_s) = (10.0, 20.0, 5.0);
                for incarnation in 1..200 {
                    let costs = IncarnationCosts {
                        pace: Some(random.between(0.95, 1.05)),
                        ..IncarnationCosts::default()
                    };
                    model
                        .incarnations
                        .insert(dormouse_messages::Incarnation(incarnation), costs);
                }
            }
            scenario
        };
        let log = logged(&noisy((0.1, 0.1)));
        let options = simulate::Options::default();
        let really = noisy((0.3, 0.3));
        let really = simulate(&really, &options, |_| Ok(()), |_| {}).expect("a simulation");
        let asked = set(&["policy.theta1=0.3", "policy.theta2=0.3"]);
        let answer = answer(&history(&log), Sequence(0), &asked, 10);
        println!("seed {seed}: {:?} {:?}", answer.identity, answer.forms);
        assert!(answer.identity.jct_p50 < 0.01, "{:?}", answer.identity);
        for line in &answer.variants[0].by_job {
            let jct = line
                .metrics
                .iter()
                .find(|it| it.metric == "jct_s")
                .expect("jct_s");
            let truth = really.jobs.iter().find(|it| it.job == line.job);
            let truth = truth.map(|it| it.ended_s - it.submitted_s).expect("it ran");
            asked_for += 1;
            off.push((jct.changed - truth).abs() / truth);
            let [low, high] = jct.interval.expect("10 draws");
            let change = truth - jct.identity;
            within += u32::from(low - 60.0 <= change && change <= high + 60.0);
        }
    }
    off.sort_by(f64::total_cmp);
    let median = off[off.len() / 2];
    println!("{within} of {asked_for} within, off by {median:.3} in the median");
    assert!(median < 0.1, "{median}");
}

#[test]
fn nothing_differs_before_what_is_changed() {
    for seed in 1..=3 {
        let log = logged(&read_value(table2(seed)).expect("a scenario"));
        let mut random = Random::new(seed);
        let number = 10 + random.below(30);
        let dropped = log.iter().find_map(|it| match it.event() {
            Some(Event::JobAdmitted(event)) if event.ingress_sequence == number => {
                Some((event.job.clone(), it.stored_at))
            }
            _ => None,
        });
        let (job, came) = dropped.expect("it came");
        let asked = Asked {
            drop_jobs: vec![job.clone()],
            ..Asked::default()
        };
        let answer = answer(&history(&log), Sequence(0), &asked, 0);
        let first = answer.variants[0].first_difference.as_ref();
        let first = first.expect("it makes a difference");
        assert!(first.at >= came, "seed {seed}: {first:?} before {came}");
        assert!(first.jobs.iter().any(|it| it.job == job.to_string()));
        let excluded = &answer.variants[0].excluded_jobs;
        assert!(excluded.iter().any(|it| it.job == job.to_string()));
    }
}

#[test]
fn nodes_jobs_and_bounds_are_changed_where_they_are() {
    let log = logged(&read_value(table2(1)).expect("a scenario"));
    let history = history(&log);
    let rests = at_rest(&log);
    let at = rests[rests.len() / 2];
    let forked = history.fork(ForkAt::Sequence(at));
    let live = forked.cluster().jobs.iter().next();
    let (live, _) = live.expect("a job that lives");
    let later = forked
        .after
        .iter()
        .find_map(|it| match it.event() {
            Some(Event::JobAdmitted(event)) => Some(event.job.clone()),
            _ => None,
        })
        .expect("a job that comes");
    let asked = Asked {
        settings: vec![
            format!("job.{live}.weight=9").parse().expect("a setting"),
            format!("job.{later}.weight=7").parse().expect("a setting"),
        ],
        add_nodes: vec!["extra:cpu=48,gpu=4,memory=512Gi".parse().expect("a node")],
        ..Asked::default()
    };
    let variants = asked.variants().expect("changes");
    let mut events = Vec::new();
    run(&forked, &forked.likely(), &variants[0], |it| {
        events.push(Arc::clone(it.recorded()));
        false
    })
    .expect("runs");
    assert!(events.iter().any(|it| matches!(it.event(),
        Some(Event::JobRevised(event)) if event.job == *live && event.weight == Some(9))));
    assert!(events.iter().any(|it| matches!(it.event(),
        Some(Event::JobAdmitted(event)) if event.job == later && event.spec.weight == 7)));
    assert!(events.iter().any(|it| matches!(it.event(),
        Some(Event::ContainerStarted(event)) if event.node.as_str() == "extra")));
    let asked = Asked {
        drop_jobs: vec![later.clone(), live.clone()],
        drop_nodes: vec!["n00".parse().expect("a node")],
        ..Asked::default()
    };
    let mut events = Vec::new();
    let variants = asked.variants().expect("changes");
    run(&forked, &forked.likely(), &variants[0], |it| {
        events.push(Arc::clone(it.recorded()));
        false
    })
    .expect("runs");
    assert!(!events.iter().any(|it| matches!(it.event(),
        Some(Event::JobAdmitted(event)) if event.job == later)));
    assert!(!events.iter().any(|it| matches!(it.event(),
        Some(Event::ContainerStarted(event)) if event.node.as_str() == "n00")));
    assert!(events.iter().any(|it| matches!(it.event(),
        Some(Event::JobCancelled(event)) if event.job == *live)));
    for wrong in [
        set(&["job.ads/nobody.weight=2"]),
        set(&[&format!("job.{live}.demand.cpu=1")]),
        Asked {
            drop_nodes: vec!["nowhere".parse().expect("a node")],
            ..Asked::default()
        },
    ] {
        let variants = wrong.variants().expect("changes");
        assert!(run(&forked, &forked.likely(), &variants[0], |_| false).is_err());
    }
}
