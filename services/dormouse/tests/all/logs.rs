//! `job logs` with its options, `job exec`, and `run`.

use std::time::Duration;

use crate::common::{Cluster, PATIENCE, poll};
use dormouse_messages::{Event, TenantId, Timestamp};
use dormouse_node_agent::logs::{CHUNK_BYTES, Chunk, LOGS, LogsQuery, Stream};
use dormouse_runtime::{Clock, Log, Settings, SystemClock};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NODE: &str = "cpu=4,memory=8Gi";

fn talking(name: &str, script: &str, containers: u32) -> Value {
    json!({
        "name": name, "tenant": "ads", "command": {"start": ["sh", "-c", script]},
        "demand": {"cpu": 1}, "containers": {"min": containers, "max": containers},
    })
}

#[test]
fn replicas_that_cannot_start_have_printed_nothing() {
    let cluster = Cluster::up(1, NODE);
    let service = json!({
        "name": "never", "tenant": "ads", "kind": "inference", "demand": {"cpu": 1},
        "command": {"start": ["no-such-program"]}, "containers": {"min": 1, "max": 1},
        "service": {"objective": {"latency_ms": 100, "percentile": 99}},
    });
    cluster.submit(&service).ok();
    cluster.wait_event("it cannot start", |event| {
        matches!(event, Event::ContainerExited(_)).then_some(())
    });
    let words = poll("its lists know it", PATIENCE, || {
        let logs = cluster.run_with(&["job", "logs", "ads/never"], &[]);
        logs.err.contains("cannot start").then_some(logs.err)
    });
    assert!(words.contains("has printed nothing"), "{words}");
}

#[test]
fn logs_are_read_from_the_agents_whole_by_line_by_time_and_by_rank() {
    let cluster = Cluster::up(2, "cpu=1,memory=1Gi");
    let script = "for i in 1 2 3; do echo line $i of $DORMOUSE_RANK; done; echo bad >&2";
    cluster.submit(&talking("two", script, 2)).ok();
    cluster.wait_completed("ads/two");
    let logs = |args: &[&str]| {
        let args = [&["job", "logs", "ads/two"], args].concat();
        cluster.run_with(&args, &[]).ok().out
    };
    let all = logs(&[]);
    for rank in 0..2 {
        assert!(all.contains(&format!("line 3 of {rank}")), "{all}");
    }
    assert_eq!(logs(&["--rank", "1", "--tail", "1"]), "line 3 of 1\nbad\n");
    assert_eq!(logs(&["--from", "0s"]), "");
    assert_eq!(logs(&["--from", "1h", "--all"]), all);
    let followed = logs(&["-f", "--rank", "0"]);
    assert!(
        followed.contains("line 1 of 0\nline 2 of 0\nline 3 of 0\n"),
        "{followed}"
    );
    let json = cluster.run(&["job", "logs", "ads/two", "--rank", "0"]).ok();
    let first: Value =
        serde_json::from_str(json.out.lines().next().unwrap_or_default()).expect("JSON");
    assert_eq!(first["stream"], "stdout");
    assert_eq!(logs(&["--as", "ads"]), all);
    let other = cluster.run(&["job", "logs", "ads/two", "--as", "search"]);
    assert_eq!(
        (other.code, other.error()["code"].as_str()),
        (1, Some("not_found"))
    );
}

#[test]
fn a_tail_begins_at_a_time() {
    let mut cluster = Cluster::up(1, NODE);
    for name in ["a", "b"] {
        cluster.submit(&talking(name, "true", 1)).ok();
        cluster.wait_completed(&format!("ads/{name}"));
    }
    let exported = cluster.run_with(&["log", "export"], &[]).ok().out;
    let events = exported.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| event[name].as_str().expect("text").to_owned();
        (text("sequence"), text("storedat"))
    });
    let events: Vec<(String, String)> = events.collect();
    let begins = |cluster: &mut Cluster, name: &str, from: &str| {
        let data = cluster.dir().to_owned();
        cluster.start(name, &["log", "tail", "--from", from, "-o", "json"], &data);
        let file = cluster.dir().join(format!("{name}.log"));
        poll("the tail", PATIENCE, || {
            let text = std::fs::read_to_string(&file).ok()?;
            let (first, _) = text.split_once('\n')?;
            let first: Value = serde_json::from_str(first).ok()?;
            first["sequence"].as_str().map(str::to_owned)
        })
    };
    for place in [3, events.len() / 2, events.len() - 1] {
        let (_, time) = &events[place];
        let first = events.iter().find(|(_, it)| it >= time).expect("there");
        let began = begins(&mut cluster, &format!("tail-{place}"), time);
        assert_eq!(began, first.0, "{time}");
    }
    assert_eq!(begins(&mut cluster, "tail-all", "1h"), "1");
    a_tail_with_an_end_ends(&cluster, &exported);
}

fn a_tail_with_an_end_ends(cluster: &Cluster, exported: &str) {
    let file = cluster.dir().join("tailed.jsonl");
    std::fs::write(&file, exported).expect("written");
    let file = file.display().to_string();
    let range = ["log", "tail", "--from", "2", "--to", "4", "-o", "json"];
    let tailed = cluster.run_with(&range, &[]).ok().out;
    let wanted: Vec<&str> = exported.lines().skip(1).take(3).collect();
    assert_eq!(tailed.lines().collect::<Vec<_>>(), wanted);
    let of_file = cluster.run_with(&["log", "tail", "--log", &file, "-o", "json"], &[]);
    assert_eq!(of_file.ok().out.lines().count(), exported.lines().count());
    let early = ["log", "tail", "--from", "2020-01-01", "--to", "2020-01-02"];
    let why = cluster.run(&early).error();
    let why = why["message"].as_str().expect("words");
    assert!(why.contains("it begins with event 1 ("), "{why}");
}

#[test]
fn a_follower_sees_every_line_across_a_restart() {
    let cluster = Cluster::up(1, NODE);
    let script =
        "echo run of $DORMOUSE_INCARNATION; sleep 0.3; echo end; [ $DORMOUSE_INCARNATION = 2 ]";
    let mut document = talking("again", script, 1);
    document["retries"] = json!(1);
    cluster.submit(&document).ok();
    let followed = cluster
        .run_with(&["job", "logs", "ads/again", "-f", "--all"], &[])
        .ok();
    let lines: Vec<&str> = followed.out.lines().collect();
    assert_eq!(
        lines,
        ["run of 1", "end", "run of 2", "end"],
        "{followed:?}"
    );
}

#[test]
fn run_prints_and_ends_as_the_command_does_and_an_interrupt_cancels_it() {
    let mut cluster = Cluster::up(1, NODE);
    let said = cluster.run_with(
        &["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"],
        &[],
    );
    assert_eq!((said.code, said.out.as_str()), (7, "out\n"), "{said:?}");
    assert!(said.err.contains("err\n"), "{said:?}");
    let said = cluster.run_with(&["run", "-e", "A=b c", "--", "sh", "-c", "echo $A"], &[]);
    assert_eq!((said.code, said.out.as_str()), (0, "b c\n"), "{said:?}");
    let detached = [
        "run",
        "--detach",
        "--name",
        "short",
        "--time-limit",
        "1h",
        "--",
        "true",
    ];
    let said = cluster.run_with(&detached, &[]).ok();
    assert_eq!(
        said.out, "default/short allocated: 1 container\n",
        "{said:?}"
    );
    assert_eq!(cluster.run(&["job", "wait", "default/short"]).code, 0);
    let dir = cluster.dir().to_path_buf();
    cluster.start(
        "endless",
        &["run", "--name", "endless", "--", "sleep", "1000"],
        &dir,
    );
    cluster.wait_event("the start", |event| match event {
        Event::PartitionStarted(it) if it.job.name() == "endless" => Some(()),
        _ => None,
    });
    let whole = ["run", "--demand", "cpu=4", "--name", "whole", "--", "true"];
    cluster.start("whole", &whole, &dir);
    poll("why it waits", PATIENCE, || {
        let text = std::fs::read_to_string(dir.join("whole.log")).ok()?;
        text.contains("── default/whole is ").then_some(())
    });
    cluster.signal("endless", Signal::SIGINT);
    assert_eq!(cluster.run(&["job", "wait", "default/whole"]).code, 0);
    assert_eq!(cluster.run(&["job", "wait", "default/endless"]).code, 4);
    poll("the end of run", PATIENCE, || {
        let text = std::fs::read_to_string(dir.join("endless.log")).ok()?;
        text.contains("cancelled").then_some(())
    });
}

/// The bound only catches a stall.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_ten_megabytes_a_second_is_milliseconds_behind() {
    let cluster = Cluster::up(1, NODE);
    let script = "import sys,time\nstart=time.time()\nn=0\nwhile n<50:\n n+=1\n sys.stdout.write('x'*99979+'%.9f'%time.time()+'\\n')\n sys.stdout.flush()\n time.sleep(max(0,start+n*0.01-time.time()))\n";
    let mut document = talking("loud", "", 1);
    document["command"]["start"] = json!(["python3", "-c", script]);
    cluster.submit(&document).ok();
    let url = cluster.url();
    let settings = Settings::new(url, "test");
    let log = Log::connect(&settings).await.expect("connects");
    let node = "n0".parse().expect("valid");
    let mut query = LogsQuery {
        container: "ads/loud/1/0".parse().expect("valid"),
        stream: Stream::Stdout,
        offset: Some(0),
        tail: None,
        since: None,
        limit_bytes: CHUNK_BYTES,
        wait_ms: 3_000,
    };
    let (mut behind, mut bytes, mut rest) = (Vec::new(), 0, Vec::new());
    let tenant = TenantId::new("ads").expect("valid");
    loop {
        let request = serde_json::to_vec(&query).expect("encodes");
        let answered = log
            .ask_node(&node, LOGS, Some(&tenant), request)
            .await
            .expect("answers");
        let now = SystemClock.now().seconds_since(Timestamp::default());
        let chunk =
            Chunk::received(|name| answered.header(name), &answered.payload).expect("whole");
        assert_eq!(chunk.offset, bytes, "nothing is left out");
        bytes = chunk.next;
        rest.extend_from_slice(&chunk.bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line[line.len().saturating_sub(21)..])
                .trim_start_matches('x')
                .trim()
                .to_owned();
            behind.push(now - text.parse::<f64>().expect("a time"));
        }
        if chunk.is_last {
            break;
        }
        query.offset = Some(chunk.next);
    }
    behind.sort_by(f64::total_cmp);
    assert_eq!(behind.len(), 50);
    let (half, most) = (behind[behind.len() / 2], behind[behind.len() - 1]);
    println!(
        "{bytes} bytes; behind: median {:.1} ms, at most {:.1} ms",
        half * 1e3,
        most * 1e3
    );
    assert!(half < Duration::from_millis(500).as_secs_f64());
}

#[test]
fn a_program_is_run_in_a_container_and_that_stands_on_the_log() {
    let cluster = Cluster::up(2, "cpu=1,memory=1Gi");
    let script = "while :; do sleep 0.1; done";
    cluster.submit(&talking("two", script, 2)).ok();
    cluster.wait_event("the start", |event| match event {
        Event::PartitionStarted(_) => Some(()),
        _ => None,
    });
    let exec = |args: &[&str]| {
        let args = [&["job", "exec", "ads/two"], args].concat();
        cluster.run_with(&args, &[])
    };
    let script = "echo rank $DORMOUSE_RANK; cat; echo err >&2; exit 7";
    let said = exec(&["--rank", "1", "--as", "ads", "--", "sh", "-c", script]);
    assert_eq!((said.code, said.out.as_str()), (7, "rank 1\n"), "{said:?}");
    assert_eq!(said.err, "err\n");
    let said = exec(&["--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(said.code, 128 + 9, "{said:?}");
    let other = exec(&["--as", "search", "--", "true"]);
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.err.contains("ads/two"), "{other:?}");
    let none = exec(&["--rank", "9", "--", "true"]);
    assert!(none.err.contains("no container of rank 9"), "{none:?}");
    let none = exec(&["--terminal", "--", "true"]);
    assert!(none.err.contains("terminal"), "{none:?}");
    let none = exec(&["--", "no-such-program"]);
    assert_eq!(none.code, 127, "{none:?}");
    assert!(none.err.contains("is not found in PATH"), "{none:?}");
    let set = ["tenant", "grant", "ads", "--exec", "forbidden"];
    cluster.run(&set).ok();
    let forbidden = poll("the grant", PATIENCE, || {
        let said = exec(&["--as", "ads", "--", "true"]);
        (said.code != 0).then_some(said)
    });
    assert!(forbidden.err.contains("--exec allowed"), "{forbidden:?}");
    let events = cluster.run_with(&["job", "events", "ads/two"], &[]).ok();
    for words in [
        "ads runs sh -c",
        "the operator runs sh -c",
        "exit code 7",
        "signal 9",
    ] {
        assert!(events.out.contains(words), "{words}: {events:?}");
    }
}
