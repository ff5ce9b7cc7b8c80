//! Parsing and effects of the command line's changes.

use dormouse_messages::{Memory, Shares};

use super::*;

fn asked(settings: &[&str]) -> Asked {
    let settings = settings.iter().map(|it| it.parse().expect("a setting"));
    Asked {
        settings: settings.collect(),
        ..Asked::default()
    }
}

#[test]
fn several_values_are_a_sweep_and_each_field_reaches_its_place() {
    let variants = asked(&[
        "policy.theta2=0.2,0.3",
        "tenant.ads.weight=3",
        "tenant.ads.quota.cpu=4",
        "job.ads/lr.containers.min=2",
    ])
    .variants()
    .expect("changes");
    let labels: Vec<&str> = variants.iter().map(|it| it.label.as_str()).collect();
    assert_eq!(labels, ["theta2=0.2", "theta2=0.3"]);
    let policy = variants[1].policy(&Policy::default()).expect("a policy");
    assert_eq!(policy.theta2, 0.3);
    let ads: TenantId = "ads".parse().expect("a tenant");
    let tenant = variants[0].tenant_at(&ClusterState::default(), &ads);
    let tenant = tenant.expect("a tenant");
    let quota: Vec<u64> = tenant.quota.iter().map(|(_, most)| most).collect();
    assert_eq!((tenant.weight, quota), (3, vec![4_000]));
    let mut document = json!({"containers": {"min": 1, "max": 4}});
    let job = "ads/lr".parse().expect("a job");
    variants[0].document(&job, &mut document).expect("set");
    assert_eq!(document["containers"], json!({"min": 2, "max": 4}));
}

#[test]
fn a_memory_replaces_the_plain_names_of_shares() {
    let variants = asked(&["policy.shares.half_life=7d,30d"]).variants();
    let variants = variants.expect("changes");
    let policy = variants[1].policy(&Policy::default()).expect("a policy");
    assert_eq!(policy.shares, Shares::Remembered(Memory::of_days(30)));
    let back = asked(&["policy.shares=tenant"]).variants();
    let back = back.expect("changes")[0].policy(&policy).expect("a policy");
    assert_eq!(back.shares, Shares::Tenant);
}

#[test]
fn what_is_wrong_is_named() {
    for path in ["policy=1", "speed.x=1", "tenant.ads=1", "job.lr.weight=2"] {
        let error = asked(&[path]).variants().expect_err("wrong");
        assert!(matches!(error, ChangeError::Path(_)), "{path}: {error}");
    }
    let changes = asked(&["policy.theta9=1"]).variants().expect("changes");
    let error = changes[0]
        .policy(&Policy::default())
        .expect_err("no such field");
    assert!(error.to_string().contains("policy.theta9=1"), "{error}");
    let changes = asked(&["policy.theta2=3"]).variants().expect("changes");
    assert!(changes[0].policy(&Policy::default()).is_err());
    assert!("n9".parse::<NewNode>().is_err());
    let node: NewNode = "n9:cpu=16,memory=64Gi".parse().expect("a node");
    assert_eq!(node.capacity.to_string(), "cpu=16,memory=64Gi");
}
