//! The ledger: a case worked out by hand, and the identities on logs of fault trials.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::small_cluster;
use crate::common::submit;
use dormouse_messages::events::{ClusterConfigured, NodeLost, NodeRemoved};
use dormouse_messages::policy::Policy;
use dormouse_messages::{Recorded, Timestamp};
use dormouse_replay::engine::{Action, Engine, ModelJob, Rates};
use dormouse_replay::history::ledger::{Ledger, LedgerTable, PartsRow, UnitMs};
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_state::history::{History, node};

fn ledger(log: &[Arc<Recorded>], from: Option<Timestamp>, to: Option<Timestamp>) -> LedgerTable {
    let mut ledger = Ledger::new(from, to);
    log.iter().for_each(|recorded| ledger.read(recorded));
    ledger.finish(
        to.or_else(|| log.last().map(|last| last.stored_at))
            .unwrap_or(START),
    )
}

/// One node of 8 CPUs. `a/x` gets all at 0 s, starts in 5 s and saves in 10 s. `b/y` comes at 100 s,
/// needs 4 and cannot save. `a/x` shrinks to 4, and both start from 110 s to 115 s. `b/y` dies at 135 s,
/// restarts a second later, and fails at 161 s. `a/x` grows to 8: saves from 161 s to 171 s, runs from
/// 176 s.
pub fn two_tenants() -> Vec<Arc<Recorded>> {
    let mut engine = Engine::new(START, true);
    let policy = Policy {
        min_run_s: Some(0),
        ..Policy::default()
    };
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    let node = "n0".parse().expect("a node");
    let capacity = "cpu=8".parse().expect("amounts");
    engine.at(START, Action::Join { node, capacity });
    let costs = |work_container_s, fails_after_s| ModelJob {
        save_s: 10.0,
        start_s: 5.0,
        fails_after_s,
        ..ModelJob::linear(work_container_s)
    };
    let x = r#""demand":{"cpu":1},"containers":{"min":1,"max":8},"checkpoint":{"mode":"exit"}"#;
    submit(&mut engine, 0.0, "a/x", x, costs(100_000.0, None));
    let y = r#""demand":{"cpu":1},"containers":{"min":4,"max":4},"retries":1"#;
    submit(&mut engine, 100.0, "b/y", y, costs(1_000.0, Some(20.0)));
    engine
        .run_until(seconds_after_start(300.0))
        .expect("a healthy run");
    engine.log().to_vec()
}

fn cpu_s(amount: UnitMs) -> u128 {
    assert_eq!(amount.0 % 1_000_000, 0, "{amount}");
    amount.0 / 1_000_000
}

#[test]
fn two_tenants_a_resize_and_a_failure_worked_out_by_hand() {
    let table = ledger(&two_tenants(), None, Some(seconds_after_start(200.0)));
    let cluster = &table.cluster[0];
    let columns = [cluster.capacity, cluster.used, cluster.idle, cluster.down];
    // 4 CPUs idle before b/y's second incarnation, and from 161 s to 171 s.
    assert_eq!(columns.map(cpu_s), [1600, 1556, 44, 0]);
    let tenant = |name: &str| {
        let row = table
            .tenants
            .iter()
            .find(|row| row.tenant == name)
            .expect("a tenant");
        [
            row.entitled,
            row.parts.used,
            row.borrowed,
            row.unused,
            row.lent,
        ]
        .map(cpu_s)
    };
    // Alone until 100 s, then half each. a borrows 4 from 100 s to 110 s and from 171 s to 200 s.
    assert_eq!(tenant("a"), [1200, 1356, 40 + 116, 0, 0]);
    assert_eq!(tenant("b"), [400, 200, 0, 200, 156]);
    let job = |name: &str| -> [u128; 8] {
        let is_it = |row: &&dormouse_replay::history::ledger::JobRow| {
            row.job.as_str() == name && row.resource == "cpu"
        };
        let row = table.jobs.iter().find(is_it).expect("a job");
        let PartsRow {
            used,
            productive,
            starting,
            stopping,
            redone,
            failed,
            stopped,
            waiting,
        } = row.parts;
        [
            used, productive, starting, stopping, redone, failed, stopped, waiting,
        ]
        .map(cpu_s)
    };
    assert_eq!(
        job("a/x"),
        [1356, 760 + 184 + 192, 40 + 20 + 40, 80 + 40, 0, 0, 0, 0]
    );
    assert_eq!(job("b/y"), [200, 0, 0, 0, 0, 200, 4, 40]);
    let gave: Vec<_> = table.jobs.iter().flat_map(|row| &row.gave).collect();
    assert_eq!(gave, [(&"b".to_owned(), &4)]);
}

#[test]
fn a_tenant_sees_others_as_amounts() {
    let table = ledger(&two_tenants(), None, Some(seconds_after_start(200.0)));
    let seen = table
        .seen_by(&"a".parse().expect("a tenant"))
        .expect("seen");
    let text = serde_json::to_string(&seen).expect("JSON");
    assert!(!text.contains("b/y") && !text.contains("\"b\""), "{text}");
    let names: Vec<&str> = seen.tenants.iter().map(|row| row.tenant.as_str()).collect();
    assert_eq!(names, ["a", "others"]);
    assert_eq!(cpu_s(seen.tenants[1].lent), 156);
    let gave: Vec<_> = seen.jobs.iter().flat_map(|row| &row.gave).collect();
    assert_eq!(gave, [(&"others".to_owned(), &4)]);
}

#[test]
fn a_node_that_is_removed_offers_nothing_from_then_on() {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1);
    history.push(NodeLost {
        node: node("n1"),
        incarnation: 1,
        last_seen: history.now(),
    });
    history.push(NodeRemoved { node: node("n1") });
    let removed = history.now();
    history.join("n2", 1);
    let log: Vec<Arc<Recorded>> = history.log.iter().cloned().map(Arc::new).collect();
    let table = ledger(&log, Some(removed), Some(history.now()));
    let cpu = table.cluster.iter().find(|it| it.resource == "cpu");
    let cpu = cpu.expect("there is some");
    assert_eq!((cpu.capacity, cpu.down), (UnitMs(8_000_000), UnitMs(0)));
}

#[test]
fn a_newcomer_is_used_from_the_request_on() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .admit_in_place("ads/lr")
        .release("ads/lr");
    history.allocate(1, &[("ads/lr", 0, 2)], &[]);
    history.place(1, "ads/lr", 1, &[("n0", 2)]);
    history.request_start(1, "ads/lr", 1, 2);
    history.container_started("ads/lr", 1, 0, "n0");
    history.container_started("ads/lr", 1, 1, "n0");
    history.started(1, "ads/lr", 1, 2);
    history.allocate(2, &[("ads/lr", 2, 4)], &[]);
    history.place_more(2, "ads/lr", 1, &[(2, "n0"), (3, "n0")], &[]);
    history.request_resize(2, "ads/lr", 1, &[2, 3], &[]);
    let asked = history.now();
    history.seconds += 29;
    history.container_started("ads/lr", 1, 2, "n0");
    history.container_started("ads/lr", 1, 3, "n0");
    history.resized(2, "ads/lr", 1, &[0, 1, 2, 3]);
    history.seconds += 28;
    let log: Vec<Arc<Recorded>> = history.log.iter().cloned().map(Arc::new).collect();
    let table = ledger(&log, Some(asked), Some(history.now()));
    let of_job = table.jobs.iter().find(|it| it.resource == "containers");
    assert_eq!(of_job.expect("a job").parts.used, UnitMs(4 * 60_000));
}

#[test]
fn csv_has_a_row_for_each_and_as_many_cells_as_names() {
    let csv = ledger(&two_tenants(), None, None).csv();
    let lines: Vec<&str> = csv.lines().collect();
    let cells = |line: &str| line.split(',').count();
    assert!(
        lines.iter().all(|line| cells(line) == cells(lines[0])),
        "{csv}"
    );
    let scopes: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split(',').next())
        .collect();
    assert_eq!(
        scopes,
        [
            "scope", "cluster", "tenant", "tenant", "job", "job", "job", "job"
        ]
    );
}

fn check(table: &LedgerTable) {
    for row in &table.cluster {
        assert_eq!(
            row.capacity.0,
            row.used.0 + row.idle.0 + row.down.0,
            "{row:?}"
        );
        let rows = || {
            table
                .tenants
                .iter()
                .filter(|it| it.resource == row.resource)
        };
        let sum = |of: fn(&dormouse_replay::history::ledger::TenantRow) -> UnitMs| {
            rows().map(|it| of(it).0).sum::<u128>()
        };
        if rows().next().is_none() {
            continue;
        }
        assert_eq!(sum(|it| it.parts.used), row.used.0, "{}", row.resource);
        assert_eq!(
            sum(|it| it.unused),
            sum(|it| it.borrowed) + row.idle.0 + row.down.0
        );
        assert_eq!(sum(|it| it.lent), sum(|it| it.borrowed));
    }
    for row in &table.tenants {
        let parts = &row.parts;
        let sum = parts.productive.0
            + parts.starting.0
            + parts.stopping.0
            + parts.redone.0
            + parts.failed.0;
        assert_eq!(parts.used.0, sum, "{row:?}");
        assert_eq!(
            row.entitled.0 + row.borrowed.0,
            parts.used.0 + row.unused.0,
            "{row:?}"
        );
        let jobs = table.jobs.iter();
        let jobs = jobs.filter(|it| it.job.tenant() == row.tenant && it.resource == row.resource);
        assert_eq!(
            jobs.map(|it| it.parts.used.0).sum::<u128>(),
            parts.used.0,
            "{row:?}"
        );
    }
}

type Cells = BTreeMap<(String, String), Vec<u128>>;

fn amounts(table: &LedgerTable) -> Cells {
    let mut cells = Cells::new();
    for line in table.csv().lines().skip(1) {
        let mut words = line.split(',');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let key = (format!("{} {}", word(), word()), word());
        word();
        let values = words.map(|cell| cell.parse().unwrap_or(0)).collect();
        cells.insert(key, values);
    }
    cells
}

fn plus(left: &Cells, right: &Cells) -> Cells {
    let mut sums = left.clone();
    for (key, values) in right {
        let sum = sums
            .entry(key.clone())
            .or_insert_with(|| vec![0; values.len()]);
        sum.iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value);
    }
    sums.retain(|_, values| values.iter().any(|value| *value > 0));
    sums
}

#[test]
fn on_logs_of_fault_trials_sums_hold_and_windows_add_up() {
    for seed in 1..=60 {
        let (engine, mut random) = small_cluster(seed, Some(Rates::TORTURE));
        let log = engine.log();
        let whole = ledger(log, None, None);
        check(&whole);
        let end = log.last().map_or(START, |recorded| recorded.stored_at);
        let length_ms = end.ms_since(START);
        for _ in 0..17 {
            let mut cuts: Vec<u64> = (0..3).map(|_| random.below(length_ms + 1)).collect();
            cuts.sort_unstable();
            let cut = |index: usize| Some(START.plus_ms(cuts[index]));
            let parts = [ledger(log, cut(0), cut(1)), ledger(log, cut(1), cut(2))];
            parts.iter().for_each(check);
            let both = amounts(&ledger(log, cut(0), cut(2)));
            let [first, second] = parts.map(|part| amounts(&part));
            assert_eq!(
                plus(&first, &second),
                plus(&both, &Cells::new()),
                "seed {seed}, cuts {cuts:?}"
            );
        }
    }
}

#[test]
fn what_was_measured_on_gpus_is_added_up_by_job() {
    use dormouse_messages::events::{ContainerGpuUsed, GpuUse};
    let container: dormouse_messages::ContainerId = "a/x/1/0".parse().expect("a container");
    let window = |at_s: f64, busy_us: u64| {
        let event = ContainerGpuUsed {
            container: container.clone(),
            node: "n0".parse().expect("a node"),
            window_ms: 10_000,
            devices: vec![GpuUse {
                uuid: "GPU-0".to_owned(),
                busy_us,
                charged_us: busy_us + 1,
                launches: 10,
                waits: 2,
                waited_us: 7,
                memory_bytes: 3 << 20,
                refused: 0,
                driver_bytes: None,
                beyond_bytes: 0,
            }],
        };
        (seconds_after_start(at_s), event)
    };
    let mut ledger = Ledger::new(Some(seconds_after_start(50.0)), None);
    let log = two_tenants();
    let mut recorded = (*log[0]).clone();
    for (at, event) in [window(10.0, 5), window(60.0, 100), window(70.0, 200)] {
        recorded.stored_at = at;
        recorded.envelope = dormouse_messages::Envelope::new(
            "node-0-1".to_owned(),
            dormouse_messages::Writer::Node,
            at,
            None,
            event.into(),
        );
        ledger.read(&recorded);
    }
    let table = ledger.finish(seconds_after_start(80.0));
    let row = &table.gpus[0];
    assert_eq!(row.job.as_str(), "a/x");
    assert_eq!((row.busy_us, row.charged_us, row.waited_us), (300, 302, 14));
    assert_eq!(row.memory_mib_ms, 2 * 3 * 10_000);
    assert_eq!(
        table
            .clone()
            .seen_by(&"b".parse().expect("a tenant"))
            .expect("seen")
            .gpus,
        []
    );
}
