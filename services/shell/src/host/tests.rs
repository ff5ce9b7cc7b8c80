//! A service after an absence: the first written time, and its effect on the log's time.

use std::sync::Arc;

use dormouse_messages::events::{NodeDrained, NodeRecovered};
use dormouse_messages::{
    Decider, Decision, Envelope, Event, Fold, LogClock, Proposal, Recorded, Sequence, Timestamp,
    Writer,
};
use serde::{Deserialize, Serialize};

use crate::{Append, ClockAnchor, Effect, HostTime, LogItem, Outcome, Shell, Snapshot};

const S: i64 = 1_000_000;
const HOUR: i64 = 3_600 * S;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Toy {
    clock: LogClock,
    open: u64,
}

impl Fold for Toy {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        self.clock.pass(recorded);
        match recorded.event() {
            Some(Event::NodeDrained(_)) => self.open += 1,
            _ => self.open = self.open.saturating_sub(1),
        }
    }

    fn log_time(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }
}

struct Answers;

impl Decider for Answers {
    type State = Toy;
    const WRITER: Writer = Writer::Placer;

    fn decide(&self, state: &Toy, now: Timestamp) -> Decision {
        let answer = NodeRecovered {
            node: "n0".parse().expect("a name"),
            last_seen: now,
            basis: None,
        };
        let proposals = (0..state.open.min(1)).map(|_| Proposal::new(answer.clone(), Sequence(1)));
        Decision {
            proposals: proposals.collect(),
            next_wake: None,
        }
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000 + micros)
}

#[derive(Clone, Copy)]
struct Machine {
    now_us: i64,
    wall_off_us: i64,
    boot: u64,
    booted_us: i64,
}

impl Machine {
    fn host(&self) -> HostTime {
        HostTime {
            boot: self.boot,
            up_us: self.now_us - self.booted_us,
            wall: at(self.now_us + self.wall_off_us),
        }
    }
}

struct World {
    machine: Machine,
    stamps_off_us: i64,
    log: Vec<Arc<Recorded>>,
    shell: Shell<Answers>,
    kept: Option<ClockAnchor>,
    marks: u32,
}

impl World {
    fn new() -> Self {
        let machine = Machine {
            now_us: 0,
            wall_off_us: 0,
            boot: 1,
            booted_us: -100 * S,
        };
        Self {
            machine,
            stamps_off_us: 0,
            log: Vec::new(),
            shell: started(),
            kept: None,
            marks: 0,
        }
    }

    fn store(&mut self, writer: Writer, time: Timestamp, event: Event) {
        let sequence = Sequence(self.log.len() as u64 + 1);
        let recorded = Arc::new(Recorded {
            sequence,
            stored_at: at(self.machine.now_us + self.stamps_off_us),
            writer,
            envelope: Envelope::new(format!("id-{sequence}"), writer, time, None, event),
        });
        self.log.push(recorded);
    }

    fn drain(&mut self) {
        let event = NodeDrained {
            node: "n0".parse().expect("a name"),
            reason: None,
            deadline_s: None,
        };
        let time = self.machine.host().wall;
        self.store(Writer::Operator, time, event.into());
    }

    fn run(&mut self) {
        for _ in 0..3 {
            let folded = usize::try_from(self.shell.folded().0).expect("few");
            let news = self.log[folded..].iter();
            let mut news: Vec<LogItem> = news.map(|it| LogItem::Event(Arc::clone(it))).collect();
            news.push(LogItem::CaughtUp(Sequence(self.log.len() as u64)));
            self.shell.followed(&news).expect("known versions");
            self.shell.host_shows(self.machine.host());
            // A constant clock, as in a suspended machine.
            self.shell.advance(at(0), |_| Vec::new());
            for effect in self.shell.take_effects() {
                match effect {
                    Effect::Append(append) => self.append(append),
                    Effect::AskHead => self.shell.head(Sequence(self.log.len() as u64)),
                    Effect::Keep(mark) => {
                        self.kept = Some(mark);
                        self.marks += 1;
                    }
                    _ => {}
                }
            }
        }
    }

    fn append(&mut self, append: Append) {
        for draft in append.drafts {
            self.store(Writer::Placer, append.time, draft.event);
        }
        self.shell.answered(Outcome {
            last: Some(Sequence(self.log.len() as u64)),
            failure: None,
        });
    }

    fn killed_for(&mut self, micros: i64) {
        self.machine.now_us += micros;
        self.shell = started();
        if let Some(mark) = self.kept.clone() {
            self.shell.recall(mark);
        }
    }

    fn log_us(&self) -> i64 {
        let mut clock = LogClock::default();
        for recorded in &self.log {
            clock.pass(recorded);
        }
        clock.now().as_micros() - at(0).as_micros()
    }
}

fn started() -> Shell<Answers> {
    let nothing = Snapshot {
        state: Toy::default(),
        log: "log".to_owned(),
        sequence: Sequence(0),
        stored_at: Timestamp::default(),
        own_last: Sequence(0),
    };
    let mut shell = Shell::new(Arc::new(Answers), nothing, "test", None);
    shell.activate();
    shell
}

fn worked() -> World {
    let mut world = World::new();
    world.drain();
    world.run();
    world.machine.now_us += S;
    world.drain();
    assert_eq!(world.log_us(), S);
    world
}

#[test]
fn a_decider_that_writes_first_after_a_night_says_how_long_it_was() {
    let mut world = worked();
    world.killed_for(8 * HOUR);
    world.run();
    assert_eq!(world.log.len(), 4);
    assert_eq!(world.log_us(), 8 * HOUR + S);
    // The wait began before the absence.
    let Some(Event::NodeRecovered(answer)) = world.log[3].event() else {
        panic!("an answer")
    };
    assert_eq!(answer.last_seen, at(S));
}

#[test]
fn without_a_mark_a_silence_is_taken_for_a_step_as_before() {
    let mut world = worked();
    world.kept = None;
    world.killed_for(8 * HOUR);
    world.run();
    assert_eq!(world.log_us(), S);
    let mut world = worked();
    world.kept.as_mut().expect("a mark").log = "another".to_owned();
    world.killed_for(8 * HOUR);
    world.run();
    assert_eq!(world.log_us(), S);
}

#[test]
fn a_clock_that_is_set_while_nobody_runs_is_no_silence() {
    for day in [24 * HOUR, -24 * HOUR] {
        // Wall clock and stamps change; the kernel's clock does not.
        let mut world = worked();
        world.machine.wall_off_us = day;
        world.stamps_off_us = day;
        world.killed_for(60 * S);
        world.run();
        assert_eq!(world.log_us(), S, "a minute is lost, a day is not gained");
        // Another machine's broker leads: one clock against one.
        let mut world = worked();
        world.machine.boot = 2;
        world.machine.wall_off_us = day;
        world.killed_for(60 * S);
        world.run();
        assert_eq!(world.log_us(), S);
    }
}

#[test]
fn a_machine_that_was_off_is_believed_by_its_wall_clock() {
    let mut world = worked();
    world.machine.boot = 2;
    world.machine.booted_us = 8 * HOUR;
    world.killed_for(8 * HOUR + 60 * S);
    world.run();
    assert_eq!(world.log_us(), 8 * HOUR + 61 * S);
}

#[test]
fn a_machine_that_slept_says_so_without_a_restart() {
    let mut world = worked();
    world.shell.lease(false);
    world.run();
    world.machine.now_us += 8 * HOUR;
    world.shell.lease(true);
    world.run();
    assert_eq!(world.log.len(), 4);
    assert_eq!(world.log_us(), 8 * HOUR + S);
}

#[test]
fn a_mark_is_kept_when_it_says_another_thing() {
    let mut world = World::new();
    for _ in 0..10 {
        world.machine.now_us += S;
        world.drain();
        world.run();
    }
    assert_eq!(world.marks, 1, "the clocks went alike");
    world.machine.wall_off_us = HOUR;
    world.machine.now_us += S;
    world.drain();
    world.run();
    assert_eq!(world.marks, 2, "the wall clock was set");
}

#[test]
fn clocks_that_went_back_say_nothing() {
    let mark = ClockAnchor {
        log: "log".to_owned(),
        time: at(0),
        host: HostTime {
            boot: 1,
            up_us: 100,
            wall: at(0),
        },
    };
    let shows = |boot, up_us, wall_us| HostTime {
        boot,
        up_us,
        wall: at(wall_us),
    };
    assert_eq!(mark.reaches(&shows(1, 99, 5)), None);
    assert_eq!(mark.reaches(&shows(2, 0, -1)), None);
    assert_eq!(mark.reaches(&shows(1, 107, -1)), Some(at(7)));
    assert_eq!(mark.reaches(&shows(0, 0, 7)), Some(at(7)));
    assert_eq!(mark.reaches(&shows(1, i64::MIN, 0)), None);
}
