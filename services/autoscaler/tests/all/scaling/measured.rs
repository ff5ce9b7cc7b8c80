//! Tests of measurements from a tenant's proxy, and of impossible ones.

use dormouse_messages::GatewayId;

use super::*;

#[test]
fn what_is_passed_over_has_a_reason() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..1);
    given.requests(60, 5);
    let doubts = |given: &Given, event: &ServiceMeasured, ahead_s: i64| {
        let time = Timestamp::from_micros(given.now().as_micros() + ahead_s * 1_000_000);
        let event = Event::from(event.clone());
        given.state.rejects(&Recorded {
            sequence: given.sequence.next(),
            stored_at: given.now(),
            writer: Writer::Gateway,
            envelope: Envelope::new("id", Writer::Gateway, time, None, event),
        })
    };
    given.second += 2;
    let sound = measured(vec![5, 5]);
    assert_eq!(doubts(&given, &sound, 0), None);
    let of_another = ServiceMeasured {
        job: "shop/over".parse().expect("valid"),
        window_s: 0,
        ..sound.clone()
    };
    assert_eq!(doubts(&given, &of_another, 0), None, "nobody asks for it");
    let nan = ServiceMeasured {
        concurrency: f64::NAN,
        ..sound.clone()
    };
    let until = ServiceMeasured {
        until: Some(Timestamp::from_micros(given.now().as_micros() + 60_000_000)),
        ..sound.clone()
    };
    for (event, ahead_s, why) in [
        (&nan, 0, "concurrency NaN must be a number"),
        (&sound, 60, "its window ends 60 s after it was stored"),
        (&until, 0, "its window ends 60 s after it was stored"),
    ] {
        let said = doubts(&given, event, ahead_s).expect("a reason");
        assert!(said.starts_with("a measurement of shop/model: "), "{said}");
        assert!(said.contains(why), "{said}");
    }
    given.event(sound.clone());
    let said = doubts(&given, &sound, 0).expect("a reason");
    assert!(said.contains("g0 has told of this window before"), "{said}");
}

#[test]
fn a_tenants_proxy_counts_as_a_gateway_of_its_own() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..1);
    given.requests(60, 5);
    let before = given.target();
    let mut up = None;
    for _ in 0..6 {
        given.second += 2;
        given.event(measured(vec![5, 5]));
        // The proxy reports three seconds late.
        let seen = Timestamp::from_micros(given.now().as_micros() - 3_000_000);
        given.event(ServiceMeasured {
            gateway: GatewayId::of_tenant(&"shop".parse().expect("valid"), "g0").expect("valid"),
            until: Some(seen),
            ingress_sequence: Some(7),
            published_at: Some(given.now()),
            ..measured(vec![55, 55])
        });
        up = given.decided().or(up);
    }
    let up = up.expect("both are counted");
    assert!(up.replicas > before && up.replicas >= 8, "{up:?}");
}
