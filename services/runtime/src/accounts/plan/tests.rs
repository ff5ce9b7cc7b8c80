//! Names of accounts, and the subjects that a viewer gets.

use super::*;

#[test]
fn a_name_tells_whose_account_it_is() {
    for name in ["node-n0", "gateway-g-1", "operator-olga"] {
        assert_eq!(
            Principal::of_cluster(name).map(|it| it.name()),
            Ok(name.to_owned())
        );
    }
    for wrong in [
        "n0",
        "node-",
        "tenant-ads",
        "operator-*",
        "operator-a.b",
        "node-a>b",
    ] {
        assert!(Principal::of_cluster(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_viewer_is_given_no_subject_that_is_stored() {
    let prefix = Prefix::default();
    let person = |role| Principal::Person {
        tenant: "ads".parse().expect("valid"),
        user: "vera".to_owned(),
        role,
    };
    let is_ingress = |subject: &String| subject.starts_with("dormouse.in.");
    let viewer = person(Role::Viewer);
    assert!(!permissions(&prefix, &viewer).publish.iter().any(is_ingress));
    assert!(
        !plan(&prefix, &viewer)
            .imports
            .iter()
            .any(|it| is_ingress(&it.subject))
    );
    let submitter = plan(&prefix, &person(Role::Submitter));
    let asked: Vec<&str> = submitter
        .imports
        .iter()
        .map(|it| it.subject.as_str())
        .filter(|it| it.contains(".in."))
        .collect();
    assert_eq!(asked[0], "dormouse.in.ads.submit.submitter.vera");
    assert_eq!(asked.len(), 3);
}
