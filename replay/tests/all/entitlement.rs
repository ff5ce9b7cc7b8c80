//! Budgets and reservations through the whole pipeline.

use dormouse_messages::budget::{AtLimit, BudgetLevel, TenantBudget};
use dormouse_messages::events::{BudgetConfigured, ReservationConfigured};
use dormouse_messages::policy::Policy;
use dormouse_messages::reservation::{Reservation, ReservationPhase};
use dormouse_messages::{Event, Fold as _, JobId, NodeId, Resource, Timestamp};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::ledger::Ledger;
use dormouse_state::ClusterState;

use crate::tenants::{assert_refused, at, cluster, run, send, submit, when};

fn budget(engine: &mut Engine, second: u64, text: &str, at_limit: AtLimit) {
    let budget: TenantBudget = text.parse().expect("a budget");
    let event = BudgetConfigured {
        tenant: "ads".parse().expect("a tenant"),
        budget: Some(TenantBudget { at_limit, ..budget }),
    };
    engine.at(at(second), Action::Operator(event.into()));
}

/// Times and levels, as the log says.
fn levels(engine: &Engine) -> Vec<(f64, BudgetLevel)> {
    let log = engine.log().iter();
    let changed = log.filter_map(|recorded| match recorded.event()? {
        Event::BudgetLevelChanged(event) => {
            Some((recorded.stored_at.seconds_since(at(0)), event.level))
        }
        _ => None,
    });
    changed.collect()
}

fn folded(engine: &Engine) -> ClusterState {
    let mut state = ClusterState::default();
    engine.log().iter().for_each(|it| state.evolve(it));
    state
}

fn folded_at(engine: &Engine, second: u64) -> ClusterState {
    let mut state = ClusterState::default();
    for recorded in engine.log().iter().filter(|it| it.stored_at <= at(second)) {
        state.evolve(recorded);
    }
    state
}

fn containers(engine: &Engine, id: &str, second: u64) -> usize {
    let state = folded_at(engine, second);
    let id: JobId = id.parse().expect("a job");
    state.jobs.get(&id).map_or(0, |job| job.held().count())
}

/// 1,800,000,000 s is 2027-01-15, 08:00: 16 hours before the day ends.
const DAY_ENDS: u64 = 16 * 3600;

#[test]
fn a_used_budget_holds_the_queue_until_the_next_period() {
    let mut engine = cluster(Policy::default());
    budget(&mut engine, 0, "cpu=10h/day", AtLimit::Queue);
    // Ten hours of one CPU are used after half an hour of 16, which are all.
    submit(&mut engine, 10, "ads/a", (1, 4), "");
    engine.model("ads/a".parse().expect("a job"), ModelJob::linear(1e9));
    submit(&mut engine, 20, "lab/b", (1, 4), "");
    engine.model("lab/b".parse().expect("a job"), ModelJob::linear(1e9));
    submit(&mut engine, 10_000, "ads/late", (1, 1), "");
    run(&mut engine, DAY_ENDS + 600);
    let found = levels(&engine);
    let [
        (warned, BudgetLevel::Warned),
        (used, BudgetLevel::Used),
        (open, BudgetLevel::Open),
        ..,
    ] = found[..]
    else {
        panic!("{found:?}");
    };
    // Four CPUs use eight hours in 2 h and ten in 2.5 h.
    assert!((7_200.0..7_300.0).contains(&warned), "{found:?}");
    assert!((9_000.0..9_100.0).contains(&used), "{found:?}");
    assert!((57_600.0..57_601.0).contains(&open), "{found:?}");
    let released = when(&engine, "ads/late", "released").expect("released");
    assert!(released >= 57_600.0, "{released}");
    // Running jobs go on.
    assert_eq!(containers(&engine, "ads/a", 20_000), 4);
}

#[test]
fn the_use_of_a_budget_is_that_of_the_ledger() {
    let mut engine = cluster(Policy::default());
    budget(&mut engine, 0, "cpu=1000h/day", AtLimit::Warn);
    for (second, name) in [
        (10, "ads/a"),
        (300, "ads/b"),
        (4_000, "lab/c"),
        (9_000, "ads/d"),
    ] {
        submit(&mut engine, second, name, (1, 16), "");
        let job = name.parse().expect("a job");
        engine.model(job, ModelJob::linear(20_000.0));
    }
    let node: NodeId = "n0".parse().expect("a node");
    engine.at(at(5_000), Action::Drain(node));
    run(&mut engine, 12_000);
    let mut ledger = Ledger::new(None, None);
    engine.log().iter().for_each(|it| ledger.read(it));
    let state = folded(&engine);
    let table = ledger.finish(state.now);
    let row = table
        .tenants
        .iter()
        .find(|it| it.tenant == "ads" && it.resource == "cpu");
    let spending = state.budgets.get("ads").expect("a budget").at(state.now);
    let spent = spending
        .spent()
        .find(|it| it.resource == Resource::Cpu)
        .expect("cpu");
    assert!(spent.used > 0);
    assert_eq!(spent.used, row.expect("a row").parts.used.0);
}

#[test]
fn training_stops_at_a_used_budget_and_resumes_with_the_next() {
    let mut engine = cluster(Policy::default());
    budget(&mut engine, 0, "cpu=4h/day", AtLimit::Preempt);
    submit(&mut engine, 10, "ads/a", (1, 4), "");
    engine.model("ads/a".parse().expect("a job"), ModelJob::linear(20_000.0));
    submit(&mut engine, 20, "lab/b", (1, 16), "");
    engine.model("lab/b".parse().expect("a job"), ModelJob::linear(1e9));
    run(&mut engine, DAY_ENDS + 3600);
    assert_eq!(containers(&engine, "ads/a", 3_000), 4);
    assert_eq!(containers(&engine, "ads/a", 10_000), 0);
    assert_eq!(containers(&engine, "lab/b", 10_000), 16);
    assert!(containers(&engine, "ads/a", DAY_ENDS + 1_000) > 0);
    let completed = when(&engine, "ads/a", "completed").expect("completed");
    assert!(completed > 57_600.0, "{completed}");
}

#[test]
fn running_jobs_reserve_their_time_limits() {
    let mut engine = cluster(Policy::default());
    budget(&mut engine, 0, "cpu=10h/day", AtLimit::Queue);
    let limited = r#","time_limit_s":7200"#;
    submit(&mut engine, 10, "ads/a", (4, 4), limited);
    // 8 of 10 hours are reserved; 4 more are too many, and 2 are not.
    submit(&mut engine, 20, "ads/b", (2, 2), limited);
    submit(&mut engine, 30, "ads/c", (1, 1), limited);
    submit(&mut engine, 40, "ads/never", (6, 6), limited);
    run(&mut engine, 3_600);
    assert_refused(&engine, "above_budget", &["cpu=10h/day", "12.0 cpu hours"]);
    assert!(when(&engine, "ads/a", "released").expect("released") < 60.0);
    // `a` ended after a minute, which gives its reservation back.
    let b = when(&engine, "ads/b", "released").expect("released");
    let a = when(&engine, "ads/a", "completed").expect("completed");
    assert!(b >= a, "{a} {b}");
}

fn reservation(
    engine: &mut Engine,
    second: u64,
    from: u64,
    length_s: u64,
    change: impl FnOnce(&mut Reservation),
) {
    let mut settings = Reservation {
        nodes: ["n0".parse().expect("a node")].into(),
        amounts: Default::default(),
        from: at(from),
        length_s,
        every_s: None,
        lead_s: 300,
        tenants: Default::default(),
        jobs: Default::default(),
        reason: None,
    };
    change(&mut settings);
    let event = ReservationConfigured {
        reservation: "maintenance".parse().expect("a name"),
        settings,
    };
    engine.at(at(second), Action::Operator(event.into()));
}

/// The phases, with their times.
fn phases(engine: &Engine) -> Vec<(f64, ReservationPhase)> {
    let log = engine.log().iter();
    let changed = log.filter_map(|recorded| match recorded.event()? {
        Event::ReservationPhaseChanged(event) => {
            Some((recorded.stored_at.seconds_since(at(0)), event.phase))
        }
        _ => None,
    });
    changed.collect()
}

/// Containers of all jobs on a node at a time.
fn on_node(engine: &Engine, node: &str, second: u64) -> Vec<String> {
    let state = folded_at(engine, second);
    let jobs = state.jobs.iter();
    let here = jobs.filter(|(_, job)| job.held().any(|(it, _)| it.as_str() == node));
    here.map(|(id, _)| id.to_string()).collect()
}

#[test]
fn jobs_fill_a_reserved_node_until_they_leave_in_time() {
    let mut engine = cluster(Policy::default());
    reservation(&mut engine, 5, 3_600, 1_800, |_| {});
    submit(&mut engine, 10, "ads/a", (1, 16), "");
    engine.model("ads/a".parse().expect("a job"), ModelJob::linear(200_000.0));
    run(&mut engine, 7_200);
    assert_eq!(containers(&engine, "ads/a", 3_000), 16);
    for second in [3_600, 4_000, 5_300] {
        assert_eq!(on_node(&engine, "n0", second), [""; 0], "{second}");
        assert_eq!(containers(&engine, "ads/a", second), 8, "{second}");
    }
    assert_eq!(containers(&engine, "ads/a", 7_000), 16);
    let found = phases(&engine);
    let times: Vec<u64> = found.iter().map(|(at, _)| at.round() as u64).collect();
    assert_eq!(times, [5, 3_300, 3_600, 5_400], "{found:?}");
}

#[test]
fn what_can_neither_save_nor_end_in_time_does_not_start_there() {
    let mut engine = cluster(Policy::default());
    reservation(&mut engine, 0, 3_600, 1_800, |_| {});
    let batch = |name: &str, limit: &str| {
        format!(
            r#"{{"name":"{name}","kind":"batch","command":{{"start":["a"]}},"demand":{{"cpu":6}}{limit}}}"#
        )
    };
    for (second, name, limit) in [
        (10, "endless", ""),
        (20, "long", r#","time_limit_s":7200"#),
        (30, "short", r#","time_limit_s":1800"#),
    ] {
        send(&mut engine, second, "ads", "submit", &batch(name, limit));
        engine.model(
            format!("ads/{name}").parse().expect("a job"),
            ModelJob::linear(1_500.0),
        );
    }
    run(&mut engine, 6_000);
    // One of the long ones has n1; the short one has n0, at once.
    let short = when(&engine, "ads/short", "completed").expect("completed");
    assert!(short < 1_700.0, "{short}");
    assert_eq!(on_node(&engine, "n0", 1_000), ["ads/short"]);
    assert_eq!(on_node(&engine, "n1", 1_000), ["ads/endless"]);
    let long = when(&engine, "ads/long", "completed").expect("completed");
    assert!((3_000.0..3_600.0).contains(&long), "{long}");
}

#[test]
fn a_reservation_is_for_its_tenants_and_repeats() {
    let mut engine = cluster(Policy::default());
    reservation(&mut engine, 0, 3_600, 1_800, |it| {
        it.nodes.clear();
        it.amounts = "cpu=8".parse().expect("amounts");
        it.every_s = Some(7_200);
        it.tenants = ["lab".parse().expect("a tenant")].into();
    });
    submit(&mut engine, 10, "ads/a", (1, 16), "");
    engine.model("ads/a".parse().expect("a job"), ModelJob::linear(1e9));
    submit(&mut engine, 3_700, "lab/b", (8, 8), "");
    engine.model(
        "lab/b".parse().expect("a job"),
        ModelJob::linear(8.0 * 600.0),
    );
    run(&mut engine, 13_000);
    let lab = when(&engine, "lab/b", "completed").expect("completed");
    assert!(lab < 4_500.0, "{lab}");
    assert_eq!(containers(&engine, "ads/a", 4_000), 8);
    assert_eq!(containers(&engine, "ads/a", 7_000), 16);
    // The second occurrence.
    assert_eq!(containers(&engine, "ads/a", 11_500), 8);
    let bad = r#"{"name":"x","command":{"start":["a"]},"demand":{"cpu":1},"tolerations":["reservation"]}"#;
    send(&mut engine, 13_001, "ads", "submit", bad);
    run(&mut engine, 13_010);
    assert_refused(&engine, "bad_tolerations", &["reservations"]);
}

#[test]
fn a_removed_reservation_gives_its_nodes_back() {
    let mut engine = cluster(Policy::default());
    reservation(&mut engine, 0, 600, 86_400, |_| {});
    submit(&mut engine, 700, "ads/a", (16, 16), "");
    let removed = dormouse_messages::events::ReservationRemoved {
        reservation: "maintenance".parse().expect("a name"),
    };
    engine.at(at(2_000), Action::Operator(removed.into()));
    run(&mut engine, 3_000);
    let started: Timestamp = at(2_000);
    assert_eq!(containers(&engine, "ads/a", 1_900), 0);
    let completed = when(&engine, "ads/a", "completed").expect("completed");
    assert!(completed > started.seconds_since(at(0)), "{completed}");
}

#[test]
fn a_used_budget_holds_jobs_of_every_resource_and_lets_others_start() {
    let mut engine = cluster(Policy::default());
    budget(&mut engine, 0, "memory=1Gih/day", AtLimit::Preempt);
    let eater = r#"{"name":"eater","command":{"start":["a"]},"demand":{"cpu":1,"memory":"8Gi"},"checkpoint":{"mode":"exit"}}"#;
    send(&mut engine, 10, "ads", "submit", eater);
    engine.model("ads/eater".parse().expect("a job"), ModelJob::linear(1e9));
    for number in 0..20 {
        submit(
            &mut engine,
            2_000 + number,
            &format!("ads/c{number}"),
            (1, 1),
            "",
        );
    }
    submit(&mut engine, 2_100, "lab/b", (16, 16), "");
    run(&mut engine, 6_000);
    assert_eq!(when(&engine, "ads/c0", "released"), None);
    let lab = when(&engine, "lab/b", "completed").expect("completed");
    assert!(lab < 2_300.0, "{lab}");
}

#[test]
fn two_reservations_of_amounts_have_nodes_of_their_own() {
    let mut engine = cluster(Policy::default());
    for (name, tenant) in [("one", "ads"), ("two", "lab")] {
        let settings = Reservation {
            nodes: Default::default(),
            amounts: "cpu=8".parse().expect("amounts"),
            from: at(600),
            length_s: 1_200,
            every_s: None,
            lead_s: 60,
            tenants: [tenant.parse().expect("a tenant")].into(),
            jobs: Default::default(),
            reason: None,
        };
        let reservation = name.parse().expect("a name");
        let event = ReservationConfigured {
            reservation,
            settings,
        };
        engine.at(at(0), Action::Operator(event.into()));
    }
    submit(&mut engine, 700, "ads/a", (8, 8), "");
    submit(&mut engine, 700, "lab/b", (8, 8), "");
    run(&mut engine, 1_000);
    assert_eq!(on_node(&engine, "n0", 750).len(), 1);
    assert_eq!(on_node(&engine, "n1", 750).len(), 1);
}

#[test]
fn nobody_runs_over_a_reservation_by_a_longer_limit() {
    let mut engine = cluster(Policy::default());
    reservation(&mut engine, 0, 3_600, 1_800, |it| {
        it.nodes.insert("n1".parse().expect("a node"));
    });
    let short = r#"{"name":"short","kind":"batch","command":{"start":["a"]},"demand":{"cpu":6},"time_limit_s":1800}"#;
    send(&mut engine, 10, "ads", "submit", short);
    engine.model("ads/short".parse().expect("a job"), ModelJob::linear(1e6));
    for (second, limit_s) in [(100, 0), (110, 7_200), (120, 2_400)] {
        let longer = format!(r#"{{"job":"short","time_limit_s":{limit_s}}}"#);
        send(&mut engine, second, "ads", "revise", &longer);
    }
    run(&mut engine, 3_700);
    let reserved = crate::tenants::refusals(&engine);
    let reserved = reserved.iter().filter(|(code, _)| code == "reserved");
    assert_eq!(reserved.count(), 2);
    assert_eq!(on_node(&engine, "n0", 3_650), [""; 0]);
}
