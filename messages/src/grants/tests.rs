//! Grants under both rules: folders, secrets, patterns, programs and bounds.

use super::*;

fn granted(rule: GrantsRule, grants: Grants) -> Granted {
    Granted {
        tenant: "ads".to_owned(),
        rule,
        grants,
    }
}

fn mount(source: &str, read_only: bool) -> Mount {
    Mount {
        source: source.to_owned(),
        target: "/data".to_owned(),
        read_only,
    }
}

#[test]
fn nothing_granted_is_nothing_under_required_and_all_under_open() {
    let file = SecretSource::File("/etc/shadow".to_owned());
    let none = granted(GrantsRule::Required, Grants::default());
    let refused = none.mount(&mount("/data", false)).expect_err("not granted");
    assert!(
        refused
            .reason
            .ends_with("`dormouse tenant grant ads --mount /data`"),
        "{refused}"
    );
    let refused = none.image("a/b:1").expect_err("not granted");
    assert!(refused.reason.contains("--image a/b:1`"), "{refused}");
    let refused = none.image("x; rm -rf '/").expect_err("not granted");
    let quoted = r"--image 'x; rm -rf '\''/'`";
    assert!(refused.reason.ends_with(quoted), "{refused}");
    let refused = none.secret("K", &file).expect_err("not granted");
    assert!(refused.reason.contains("--secrets /"), "{refused}");
    let refused = none.may_reach(Network::Host).expect_err("not granted");
    assert!(refused.reason.contains("--network host"), "{refused}");
    assert_eq!(none.most_network(), Network::Published);
    let open = granted(GrantsRule::Open, Grants::default());
    assert!(open.mount(&mount("/data", false)).is_ok());
    assert!(open.image("a/b:1").is_ok() && open.secret("K", &file).is_ok());
    assert_eq!(open.most_network(), Network::Host);
}

#[test]
fn a_granted_folder_ends_at_its_name_and_cannot_be_left() {
    let grants = Grants {
        mounts: vec![
            "/data/ads:ro".parse().expect("valid"),
            "/scratch/".parse().expect("valid"),
        ],
        ..Grants::default()
    };
    for rule in [GrantsRule::Open, GrantsRule::Required] {
        let tenant = granted(rule, grants.clone());
        for (source, read_only, may) in [
            ("/data/ads", true, true),
            ("/data/ads/x/", true, true),
            ("/data/ads", false, false),
            ("/data/ads2", true, false),
            ("/data/ads/../search", true, false),
            ("/data/ads//x", true, false),
            ("/data", true, false),
            ("/scratch", false, true),
            ("/scratch/a/b", false, true),
            ("/", true, false),
        ] {
            let checked = tenant.mount(&mount(source, read_only));
            assert_eq!(checked.is_ok(), may, "{source} {read_only}");
        }
    }
    for wrong in ["/", "data", "/a/../b", "/a/./b", "", "/a:b"] {
        assert!(wrong.parse::<MountGrant>().is_err(), "{wrong}");
    }
}

#[test]
fn secrets_are_of_the_own_folder_and_the_own_variables() {
    let grants = Grants {
        secrets: Some("/etc/secrets/ads".to_owned()),
        ..Grants::default()
    };
    let tenant = granted(GrantsRule::Open, grants);
    for (path, may) in [
        ("token", true),
        ("deep/token", true),
        ("/etc/shadow", false),
        ("../search/token", false),
        ("a/../../b", false),
        ("", false),
        (".", false),
    ] {
        let source = SecretSource::File(path.to_owned());
        assert_eq!(tenant.secret("K", &source).is_ok(), may, "{path}");
    }
    for (variable, may) in [
        ("DORMOUSE_SECRET_ADS__TOKEN", true),
        ("DORMOUSE_SECRET_ADS__A_B", true),
        ("DORMOUSE_SECRET_ADS__", false),
        ("DORMOUSE_SECRET_ADS___TOKEN", false),
        ("DORMOUSE_SECRET_ADS__X__TOKEN", false),
        ("DORMOUSE_SECRET_SEARCH__TOKEN", false),
        ("DORMOUSE_NKEY", false),
        ("PATH", false),
    ] {
        let source = SecretSource::Env(variable.to_owned());
        assert_eq!(tenant.secret("K", &source).is_ok(), may, "{variable}");
    }
}

#[test]
fn a_pattern_stands_for_the_whole_name() {
    for (pattern, image, may) in [
        ("*", "anything:1", true),
        ("registry/ads/*", "registry/ads/lr:3", true),
        ("registry/ads/*", "evil/registry/ads/lr:3", false),
        ("*/lr:*", "registry/ads/lr:3", true),
        ("lr:1", "lr:1", true),
        ("lr:1", "lr:12", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*ba", "aba", true),
        ("ab*ba", "aba", false),
    ] {
        assert_eq!(matches(pattern, image), may, "{pattern} {image}");
    }
}

#[test]
fn programs_in_containers_are_allowed_until_they_are_forbidden() {
    for rule in [GrantsRule::Open, GrantsRule::Required] {
        assert!(granted(rule, Grants::default()).may_exec().is_ok());
        let grants = Grants {
            exec: Some(Exec::Forbidden),
            ..Grants::default()
        };
        let refused = granted(rule, grants).may_exec().expect_err("forbidden");
        assert_eq!(refused.code, "exec_not_granted");
        assert!(refused.reason.contains("--exec allowed`"), "{refused}");
    }
}

#[test]
fn what_is_queued_is_bounded_where_grants_are_required() {
    let mut book = GrantBook::default();
    assert_eq!(
        (book.max_queued("ads"), book.max_queued_bytes("ads")),
        (None, None)
    );
    book.rule = GrantsRule::Required;
    assert_eq!(book.max_queued_bytes("ads"), Some(MAX_QUEUED_BYTES));
    assert_eq!(book.max_storage("ads"), None);
    let grants = Grants {
        max_queued_bytes: Some(1),
        max_storage: Some(2),
        ..Grants::default()
    };
    book.tenants
        .insert("ads".parse().expect("a tenant"), grants);
    assert_eq!(
        (book.max_queued_bytes("ads"), book.max_storage("ads")),
        (Some(1), Some(2))
    );
    assert_eq!(book.max_queued_bytes("search"), Some(MAX_QUEUED_BYTES));
}

#[test]
fn root_is_nobodys_to_run_as() {
    assert!("0:0".parse::<RunAs>().is_err());
    assert!("1000:0".parse::<RunAs>().is_err());
    assert!("4294967295:1".parse::<RunAs>().is_err());
    let ids = RunAs {
        uid: 10_001,
        gid: 10_002,
    };
    assert_eq!("10001:10002".parse::<RunAs>(), Ok(ids));
}
