//! A tenant's part of the utilization; the parts add up.

use dormouse_messages::events::ClusterConfigured;
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::whatif::{ForkAt, Metric, Options, run, whatif};
use dormouse_replay::simulate::{START, seconds_after_start};

use crate::common::submit;

use super::{Asked, Sequence, history};

fn log() -> Vec<std::sync::Arc<dormouse_messages::Recorded>> {
    let mut engine = Engine::new(START, true);
    let policy = dormouse_messages::policy::Policy::default();
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for (at_s, node) in [(0.0, "n0"), (200.0, "n1")] {
        let action = Action::Join {
            node: node.parse().expect("a node"),
            capacity: "cpu=8,memory=32Gi".parse().expect("amounts"),
        };
        engine.at(seconds_after_start(at_s), action);
    }
    for (at_s, tenant, name, work_s) in [
        (0.0, "ads", "a", 2e3),
        (50.0, "lab", "b", 3e3),
        (120.0, "lab", "c", 1e3),
        (300.0, "ads", "d", 2e3),
    ] {
        let job = format!("{tenant}/{name}");
        let rest = r#""demand":{"cpu":1,"memory":"2Gi"},"containers":{"min":1,"max":6},"checkpoint":{"mode":"exit"}"#;
        submit(&mut engine, at_s, &job, rest, ModelJob::linear(work_s));
    }
    engine
        .run_until(seconds_after_start(20_000.0))
        .expect("a healthy run");
    engine.log().to_vec()
}

fn utilization(metrics: &[Metric]) -> &Metric {
    let mut metrics = metrics.iter();
    let found = metrics.find(|it| it.metric == "utilization");
    found.expect("a utilization")
}

#[test]
fn the_tenants_parts_of_the_utilization_are_the_cluster_s() {
    let history = history(&log());
    let asked = Asked {
        settings: vec!["policy.allocation=static".parse().expect("a setting")],
        ..Asked::default()
    };
    let changes = asked.variants().expect("changes");
    let options = Options {
        draws: 0,
        threads: 1,
    };
    for at in [0, 40] {
        let forked = history.fork(ForkAt::Sequence(Sequence(at)));
        let answer = whatif(&history, &forked, &changes, options).expect("an answer");
        let variant = &answer.answer.variants[0];
        let names: Vec<&str> = variant
            .by_tenant
            .iter()
            .map(|it| it.tenant.as_str())
            .collect();
        assert_eq!(names, ["ads", "lab"]);
        let all = utilization(&variant.cluster);
        let each = variant.by_tenant.iter().map(|it| utilization(&it.metrics));
        let sum = |of: fn(&Metric) -> f64| each.clone().map(of).sum::<f64>();
        assert!(each.clone().all(|it| it.identity > 0.0), "{variant:?}");
        assert!(
            (sum(|it| it.identity) - all.identity).abs() < 1e-9,
            "{variant:?}"
        );
        assert!(
            (sum(|it| it.changed) - all.changed).abs() < 1e-9,
            "{variant:?}"
        );
        assert!(
            all.difference.abs() > 1e-6,
            "another policy uses it otherwise"
        );
    }
}

#[test]
fn a_setting_of_an_unknown_tenant_is_refused_and_the_known_ones_are_named() {
    let history = history(&log());
    let forked = history.fork(ForkAt::Sequence(Sequence(40)));
    let refused = |setting: &str| {
        let asked = Asked {
            settings: vec![setting.parse().expect("a setting")],
            ..Asked::default()
        };
        let changes = asked.variants().expect("changes");
        let ended = run(&forked, &forked.likely(), &changes[0], |_| false);
        ended.err().map(|error| error.to_string())
    };
    assert_eq!(refused("tenant.lab.weight=2"), None);
    let said = refused("tenant.labb.weight=2").expect("refused");
    assert!(said.contains("there is no tenant labb"), "{said}");
    assert!(said.contains("there are ads, lab"), "{said}");
    assert!(said.contains("did you mean lab?"), "{said}");
    let said = refused("tenant.elsewhere.quota.cpu=2").expect("refused");
    assert!(!said.contains("did you mean"), "{said}");
}
