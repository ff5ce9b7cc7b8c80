//! The lock of a broker's folder.

use super::*;

#[tokio::test]
async fn a_look_is_waited_for_and_another_supervisor_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Files::new(folder.path()).expect("usable");
    let look = File::create(files.path("lock")).expect("a file");
    look.try_lock_shared().expect("nobody has it");
    assert!(!LocalBroker::runs_in(folder.path()));
    let ends = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(look);
    };
    let (locked, ()) = tokio::join!(files.lock(), ends);
    let locked = locked.expect("it waits");
    assert!(LocalBroker::runs_in(folder.path()));
    assert!(matches!(files.lock().await, Err(BrokerError::InUse(_))));
    drop(locked);
    assert!(!LocalBroker::runs_in(folder.path()));
}

#[tokio::test]
async fn another_broker_at_the_port_is_not_taken_for_its_own() {
    let (first, second) = (tempfile::tempdir(), tempfile::tempdir());
    let (first, second) = (first.expect("a folder"), second.expect("a folder"));
    let there = LocalBroker::start(BrokerConfig::new(first.path())).await;
    let there = there.expect("it runs: scripts/install.sh nats");
    let port = there
        .url()
        .rsplit_once(':')
        .and_then(|it| it.1.parse().ok());
    let port: u16 = port.expect("its port");
    let config = BrokerConfig::new(second.path());
    let files = Files::new(second.path()).expect("usable");
    let text = configuration(&config, &files, port);
    files.write("nats-server.conf", &text).expect("written");
    let binary = BrokerConfig::find_binary().expect("a nats-server");
    let mut child = spawn(&binary, &files, &AtomicU32::new(0)).expect("it is started");
    let ready = wait_ready(port, &mut child, &files).await;
    assert!(matches!(ready, Err(BrokerError::PortInUse(_))), "{ready:?}");
    there.stop().await;
}
