//! Random histories of real processes on modelled GPUs. In the end every running program uses its device, and
//! new programs finish. `make gpu-histories` tries all seeds.

use std::time::{Duration, Instant};

use dormouse_gpu_standin::model::now_ns;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{Driver, Program, Scheduler, pass};

const TENANTS: [&str; 3] = ["t0", "t1", "t2"];
/// Longer than a stopped holder keeps the token on any loaded machine.
const PATIENCE_S: u64 = 60;
/// Each program needs a processor.
const MOST: usize = 4;

struct History {
    seed: u64,
    random: StdRng,
    devices: u8,
    terms: Vec<(&'static str, (u32, u32))>,
    /// True if stopped.
    programs: Vec<(&'static str, Program, bool)>,
    scheduler: Option<Scheduler>,
    /// Dropped after its users.
    driver: Driver,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let devices = random.random_range(1..=2);
        let driver = Driver::new(u32::from(devices));
        let mut history = Self {
            seed,
            random,
            devices,
            driver,
            scheduler: None,
            terms: Vec::new(),
            programs: Vec::new(),
        };
        for name in TENANTS {
            let terms = history.new_terms();
            history.terms.push((name, terms));
        }
        history.serve();
        history
    }

    fn new_terms(&mut self) -> (u32, u32) {
        let request = self.random.random_range(100..=330);
        (request, self.random.random_range(request..=1000))
    }

    fn serve(&mut self) {
        let scheduler = Scheduler::start(&self.driver, self.devices, &self.terms);
        self.scheduler = Some(scheduler);
    }

    fn start(&mut self) {
        let name = TENANTS[self.random.random_range(0..TENANTS.len())];
        let kernel = self.random.random_range(20_000..2_000_000).to_string();
        let device = self.random.random_range(0..self.devices).to_string();
        let long = "600000";
        let words: &[&str] = match self.random.random_range(0..7) {
            0 => &["sync", &kernel, "300", long],
            1 => &["graph", &kernel, long, "5"],
            2 => &["threads", &kernel, long, "3"],
            3 => &["spin-own-stream", &kernel, long],
            4 => &["fork", &kernel, "1500"],
            5 if self.devices == 2 => &["both", &kernel, long],
            _ => &["spin-on", &kernel, long, &device],
        };
        let program = self.drive(name, words);
        self.programs.push((name, program, false));
    }

    fn drive(&self, name: &str, words: &[&str]) -> Program {
        let uuids: Vec<String> = (0..self.devices).map(crate::common::uuid).collect();
        let trial = std::path::Path::new(env!("CARGO_BIN_EXE_gpu-trial"));
        let mut command = self.driver.command(trial, Some(name));
        command.env("DORMOUSE_GPUS", uuids.join(","));
        command.env("DORMOUSE_GPU_REQUEST", "0.1");
        command.arg("drive").args(words);
        Program::start(command)
    }

    fn step(&mut self) {
        let which = self.random.random_range(0..self.programs.len().max(1));
        match self.random.random_range(0..8) {
            0 if !self.programs.is_empty() => {
                let (_, mut program, _) = self.programs.swap_remove(which);
                program.kill();
            }
            1 if !self.programs.is_empty() => {
                let (_, program, stopped) = &mut self.programs[which];
                if *stopped {
                    program.signal("-CONT")
                } else {
                    self.driver.stop(program)
                }
                *stopped = !*stopped;
            }
            2 => match self.scheduler.take() {
                Some(scheduler) => scheduler.kill(),
                None => self.serve(),
            },
            3 => {
                let (at, terms) = (self.random.random_range(0..TENANTS.len()), self.new_terms());
                self.terms[at].1 = terms;
                let (name, devices) = (self.terms[at].0, self.devices);
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.change(&self.driver, devices, name, terms);
                }
            }
            _ if self.programs.len() < MOST => self.start(),
            _ => {}
        }
        pass(self.random.random_range(1..60));
    }

    fn waiting(&mut self, from_ns: u64) -> Vec<u32> {
        let busy = self.driver.machine.busy(from_ns, now_ns());
        let works = |own: u32| {
            let its = |pid: u32| pid == own || parent(pid) == Some(own);
            busy.iter().any(|it| its(it.pid))
        };
        let mut waiting = Vec::new();
        for (_, program, _) in &mut self.programs {
            if !works(program.id()) && !program.has_ended() {
                waiting.push(program.id());
            }
        }
        waiting
    }

    fn end(mut self) {
        let seed = self.seed;
        for (_, program, stopped) in &self.programs {
            if *stopped {
                program.signal("-CONT");
            }
        }
        if self.scheduler.is_none() {
            self.serve();
        }
        let (from, begun) = (now_ns(), Instant::now());
        loop {
            let waiting = self.waiting(from);
            if waiting.is_empty() {
                break;
            }
            let late = begun.elapsed() > Duration::from_secs(PATIENCE_S);
            assert!(!late, "seed {seed}: {waiting:?} hang");
            std::thread::sleep(Duration::from_millis(5));
        }
        for name in TENANTS {
            let mut last = self.drive(name, &["spin", "200000", "20"]);
            assert!(
                last.ends_within(PATIENCE_S),
                "seed {seed}: a new {name} hangs"
            );
        }
        self.programs.clear();
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[test]
fn no_process_hangs_in_random_histories() {
    let count = std::env::var("DORMOUSE_GPU_PROCESS_HISTORIES").map_or(6, |it| {
        it.parse()
            .expect("DORMOUSE_GPU_PROCESS_HISTORIES is a number")
    });
    let begun = Instant::now();
    for seed in 0..count {
        let mut history = History::new(seed);
        for _ in 0..12 {
            history.step();
        }
        history.end();
    }
    println!(
        "{count} histories, seeds 0..{count}, in {:.1?}",
        begun.elapsed()
    );
}
