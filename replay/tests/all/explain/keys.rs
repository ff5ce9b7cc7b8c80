//! The keys of a tenant: who let whom in.

use dormouse_messages::Role;
use dormouse_messages::events::{KeyCreated, KeyRevoked, KeyRotated};
use dormouse_projections::keys::KeyDone;
use dormouse_replay::engine::Action;
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::simulate::seconds_after_start;

use super::{cluster, explain, policy};

fn operator(event: impl Into<dormouse_messages::Event>) -> Action {
    Action::Operator(event.into())
}

#[test]
fn a_tenant_s_keys_say_who_let_whom_in() {
    let mut engine = cluster(1, policy(0.1, 0.1));
    let tenant = |name: &str| Some(name.parse().expect("a tenant"));
    let created = |name: &str, of: &str, role| KeyCreated {
        name: name.to_owned(),
        tenant: tenant(of),
        role,
        key: format!("U-{name}"),
    };
    let alice = created("user-ads.alice", "ads", Some(Role::Submitter));
    engine.at(seconds_after_start(1.0), operator(alice));
    let other = created("user-lab.leo", "lab", Some(Role::Viewer));
    engine.at(seconds_after_start(2.0), operator(other));
    for (at_s, revoked) in [(3.0, 0), (4.0, 1)] {
        let rotated = KeyRotated {
            name: "user-ads.alice".to_owned(),
            tenant: tenant("ads"),
            key: format!("U-{at_s}"),
            revoked,
        };
        engine.at(seconds_after_start(at_s), operator(rotated));
    }
    let plain = created("tenant-ads", "ads", None);
    engine.at(seconds_after_start(5.0), operator(plain));
    let revoked = KeyRevoked {
        name: "tenant-ads".to_owned(),
        tenant: tenant("ads"),
        revoked: 1,
    };
    engine.at(seconds_after_start(6.0), operator(revoked));
    engine
        .run_until(seconds_after_start(7.0))
        .expect("a healthy run");
    let subject = || Subject::Tenant("ads".parse().expect("a tenant"));
    for viewer in [None, Some("ads")] {
        let answer = explain(engine.log(), subject(), viewer);
        let names: Vec<&str> = answer.keys.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["tenant-ads", "user-ads.alice"]);
        let (plain, alice) = (&answer.keys[0].holder, &answer.keys[1].holder);
        assert_eq!((plain.key.as_deref(), plain.role), (None, None));
        assert_eq!(alice.key.as_deref(), Some("U-4"));
        assert_eq!(alice.role, Some(Role::Submitter));
        let done: Vec<KeyDone> = alice.acts.iter().map(|act| act.what).collect();
        assert_eq!(done, [KeyDone::Created, KeyDone::Added, KeyDone::Rotated]);
        let late = alice.acts[0].at.seconds_since(seconds_after_start(1.0));
        assert!((0.0..1.0).contains(&late), "{late}");
    }
    // Another tenant cannot see that the keys exist.
    let mut explainer = Explainer::new(subject(), tenant("lab"), 0);
    let log = engine.log();
    log.iter().for_each(|recorded| explainer.read(recorded));
    assert!(explainer.explain().is_err());
}
