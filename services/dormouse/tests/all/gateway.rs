//! The gateway of a local cluster, and the keys of a gateway on a network.

use std::io::{Read, Write};
use std::net::TcpStream;

use dormouse_messages::Event;

use crate::common::Cluster;

fn ask(url: &str, path: &str) -> String {
    let address = url.replace("http://localhost", "127.0.0.1");
    let mut stream = TcpStream::connect(address).expect("connects");
    let asked = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log();
    let joined = log.iter().filter_map(|recorded| match recorded.event()? {
        Event::GatewayJoined(it) => Some(it.address.clone()),
        _ => None,
    });
    joined.collect()
}

#[test]
fn up_has_a_gateway_on_this_machine_that_keeps_its_port() {
    let mut cluster = Cluster::up(1, "cpu=1,memory=1Gi");
    let joined = |event: &Event| matches!(event, Event::GatewayJoined(_)).then_some(());
    cluster.wait_event("the gateway", joined);
    let url = addresses(&cluster).remove(0);
    let answer = ask(&url, "/ads/model/");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("\"no_service\""), "{answer}");
    cluster.stop("up");
    cluster.start_up(1, "cpu=1,memory=1Gi");
    let mut seen = Vec::new();
    crate::common::poll("the gateway again", crate::common::PATIENCE, || {
        seen = addresses(&cluster);
        (seen.len() == 2).then_some(())
    });
    assert_eq!(seen, [url.clone(), url]);
    let left = |event: &Event| matches!(event, Event::GatewayLeft(_)).then_some(());
    cluster.wait_event("its last word", left);
}

#[test]
fn a_tenant_makes_the_tokens_of_its_services_from_its_key() {
    let cluster = Cluster::new();
    let file = |name: &str| cluster.dir().join(name).display().to_string();
    let (secret, key) = (file("gateway.secret"), file("ads.key"));
    std::fs::write(&secret, format!("{}\n", "07".repeat(32))).expect("written");
    let said = |args: &[&str]| cluster.run(args).ok().json()["key"].clone();
    let tenant = said(&["account", "key", "ads", "--secret", &secret]);
    let tenant = tenant.as_str().expect("text");
    assert_eq!(tenant.len(), 64);
    std::fs::write(&key, tenant).expect("written");
    let token = said(&["account", "key", "ads/model", "--key", &key]);
    assert_eq!(
        token,
        said(&["account", "key", "ads/model", "--secret", &secret])
    );
    assert_ne!(token, said(&["account", "key", "ads/other", "--key", &key]));
    for wrong in [
        vec!["account", "key", "ads"],
        vec!["account", "key", "ads/model"],
        vec!["account", "key", "ads", "--secret", "/nowhere"],
        vec!["account", "key", "Ads", "--secret", &secret],
    ] {
        assert_eq!(cluster.run(&wrong).code, 1, "{wrong:?}");
    }
}
