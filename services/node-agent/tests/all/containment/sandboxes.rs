//! Tests of one sandbox: its first process, its network, another program in it.

use super::*;

#[tokio::test]
async fn the_first_process_of_a_sandbox_holds_nothing_of_others() {
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    let _turn = TURN.lock().await;
    let mut node = Node::new(RuntimeKind::Process, Some(contained())).await;
    // Concatenated, so no other memory holds the secret.
    let secret = ["a secret of", " another tenant"].concat();
    node.env
        .insert("SECRET".to_owned(), EnvValue::Plain(secret.clone()));
    let first = container("other/first/1/0");
    let plan = node.plan(first.clone(), "sleep 600", VICTIM);
    let told = node.runtime.start(plan).await.expect("started");
    node.env.remove("SECRET");
    // More than are prepared in advance.
    let later: Vec<_> = (0..20)
        .map(|it| container(&format!("mal/later/{}/0", it + 1)))
        .collect();
    let mut programs = Vec::new();
    for id in &later {
        let plan = node.plan(id.clone(), "sleep 600", user(200_012));
        programs.push(node.runtime.start(plan).await.expect("started"));
    }
    let init = |pid: u32| stat(pid).expect("it runs").parent;
    assert!(holds(init(told), &secret), "the search finds what is there");
    for pid in programs {
        let init = init(pid);
        assert!(
            !holds(init, &secret),
            "its memory has another tenant's order"
        );
        assert!(
            !holds(init, "other/first"),
            "its memory has another tenant's container"
        );
        let env = fs::read(format!("/proc/{init}/environ")).expect("read");
        let env = String::from_utf8_lossy(&env).into_owned();
        assert!(!env.contains("DORMOUSE") && !env.contains("CARGO"), "{env}");
        for fd in fs::read_dir(format!("/proc/{init}/fd"))
            .expect("read")
            .flatten()
        {
            let is_folder = fs::metadata(fd.path()).is_ok_and(|it| it.is_dir());
            let up = fs::read_dir(fd.path().join("../../../../../../../../home"));
            let to = fs::read_link(fd.path()).unwrap_or_default();
            assert!(
                !is_folder || up.is_err(),
                "{} leads out of the sandbox",
                to.display()
            );
        }
    }
    for id in later.iter().chain([&first, &container("victim/job/1/0")]) {
        node.runtime.kill(id).await.expect("killed");
        let _ = node.exited.recv().await;
        node.runtime.remove(id, Sequence(1)).await;
    }
}

fn holds(pid: u32, text: &str) -> bool {
    use std::io::{Read, Seek, SeekFrom};
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("read");
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).expect("opened");
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let ranges = writable.filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let number = |it: &str| u64::from_str_radix(it, 16).ok();
        Some((number(from)?, number(to)?))
    });
    let mut has = |(from, to): (u64, u64)| {
        let mut piece = vec![0; usize::try_from((to - from).min(256 << 20)).expect("small")];
        let sought = memory.seek(SeekFrom::Start(from)).is_ok();
        let read = if sought {
            memory.read(&mut piece).unwrap_or(0)
        } else {
            0
        };
        piece[..read]
            .windows(text.len())
            .any(|it| it == text.as_bytes())
    };
    ranges.into_iter().any(&mut has)
}

const ALONE: &str = r#"python3 -c 'import os, socket
def tries(kind, address):
    try:
        with socket.socket(socket.AF_INET, kind) as it:
            it.settimeout(1); it.connect(address); it.send(b"x"); return True
    except OSError: return False
node = ("127.0.0.1", int(os.environ["LOOPBACK"]))
if tries(socket.SOCK_STREAM, node): print("HARM the loopback of the node")
tries(socket.SOCK_DGRAM, node)
if tries(socket.SOCK_DGRAM, ("192.0.2.1", 9)): print("HARM a way out")
try:
    socket.socket(socket.AF_UNIX).connect("\0" + os.environ["SOCKET"]); print("HARM an abstract socket")
except OSError: pass
if os.listdir("/sys/class/net") != ["lo"]: print("HARM", os.listdir("/sys/class/net"))
own = socket.socket(); own.bind(("127.0.0.1", 0)); own.listen()
if tries(socket.SOCK_STREAM, own.getsockname()): print("talks to itself")'"#;

#[tokio::test]
async fn a_plain_process_without_a_network_talks_to_itself_alone() {
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    let _turn = TURN.lock().await;
    let mut node = Node::new(RuntimeKind::Process, Some(contained())).await;
    // A UDP socket on the TCP port's number.
    let at = node._loopback.local_addr().expect("bound");
    let packets = std::net::UdpSocket::bind(at).expect("bound");
    packets.set_nonblocking(true).expect("set");
    let attempt = Attempt {
        name: "alone",
        script: ALONE,
        may_be_killed: false,
        places: vec![],
    };
    node.network = Network::Host;
    let said = node.run(0, &attempt).await;
    assert!(
        said.contains("HARM") && packets.recv(&mut [0; 8]).is_ok(),
        "{said}"
    );
    while packets.recv(&mut [0; 8]).is_ok() {}
    node.network = Network::None;
    for said in [node.run(1, &attempt).await, node.exec(2, &attempt).await] {
        assert!(!said.contains("HARM") && said.contains("TRIED"), "{said}");
        assert!(said.contains("talks to itself"), "{said}");
    }
    assert!(packets.recv(&mut [0; 8]).is_err(), "a packet came through");
    let victim = container("victim/job/1/0");
    node.runtime.kill(&victim).await.expect("killed");
    let _ = node.exited.recv().await;
    node.runtime.remove(&victim, Sequence(1)).await;
}

#[tokio::test]
async fn another_program_in_a_container_is_inside_its_sandbox() {
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    let node = Node::new(RuntimeKind::Process, Some(contained())).await;
    let id = container("mal/beside/1/0");
    let mut plan = node.plan(id.clone(), "while :; do sleep 1; done", user(200_011));
    node.runtime.start(plan.clone()).await.expect("started");
    let looks = "[ $(id -u) = 200011 ] && ! cat /etc/shadow && [ ! -e $NODE_DIR/secret ] && [ -d $GRANTED ]";
    plan.argv = ["/bin/sh", "-c", looks].map(str::to_owned).into();
    assert_eq!(node.runtime.run(plan.clone()).await, Ok(()));
    plan.argv = ["/bin/sh", "-c", "exit 7"].map(str::to_owned).into();
    let why = node.runtime.run(plan).await.expect_err("it fails");
    assert!(why.contains('7'), "{why}");
    node.runtime.kill(&id).await.expect("killed");
    node.runtime
        .kill(&container("victim/job/1/0"))
        .await
        .expect("killed");
}
