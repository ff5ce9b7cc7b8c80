//! Trials on a machine with a GPU, driven by this program itself. A share is the work done with others
//! relative to the work done alone; arms are interleaved.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server};

use crate::cuda::Cuda;

const KERNEL_NS: &str = "500000";
const RUN_MS: u64 = 10_000;

struct Machine {
    folder: PathBuf,
    library: PathBuf,
    uuid: String,
    server: Server,
    failures: Vec<String>,
}

pub fn test(library: &str) -> Result<()> {
    let mut machine = Machine::new(library)?;
    machine.shares(2.0)?;
    machine.elastic()?;
    machine.kinds()?;
    machine.changes()?;
    machine.memory()?;
    machine.report()
}

pub fn bench(library: &str) -> Result<()> {
    let mut machine = Machine::new(library)?;
    machine.cost()?;
    machine.shares(100.0)?;
    machine.report()
}

impl Machine {
    fn new(library: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("gpu-trial-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let uuid = Cuda::load(false)?.uuid(0)?;
        println!("device {uuid}");
        Ok(Self {
            folder,
            library: std::path::absolute(Path::new(library))?,
            uuid,
            server: Server::start(Settings::default())?,
            failures: Vec::new(),
        })
    }

    fn share(
        &self,
        name: &str,
        (request, limit): (u32, u32),
        cap_bytes: Option<u64>,
    ) -> Result<()> {
        let terms = Terms {
            request_milli: request,
            limit_milli: limit,
            weight: request,
        };
        let part = Part {
            uuid: self.uuid.clone(),
            terms,
            cap_bytes,
        };
        let offer = Offer {
            name: name.to_owned(),
            socket: self.folder.join(name),
            parts: vec![part],
        };
        Ok(self.server.share(&offer)?)
    }

    fn start(&self, name: Option<&str>, words: &[&str]) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("drive").args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(name) = name {
            command
                .env("LD_PRELOAD", &self.library)
                .env("DORMOUSE_GPU_SOCKET", self.folder.join(name))
                .env("DORMOUSE_GPUS", &self.uuid);
        }
        command.spawn().context("a program did not start")
    }

    fn number(mut child: Child, word: &str) -> Result<u64> {
        let mut said = String::new();
        let mut out = child.stdout.take().context("no output")?;
        out.read_to_string(&mut said)?;
        ensure!(child.wait()?.success(), "a program failed: {said}");
        let line = said.lines().find_map(|line| line.strip_prefix(word));
        Ok(line.context("it did not say what it did")?.trim().parse()?)
    }

    fn done(&self, name: Option<&str>, ms: u64) -> Result<u64> {
        let child = self.start(name, &["spin", KERNEL_NS, &ms.to_string()])?;
        Self::number(child, "launched")
    }

    /// Co-running tenants whose requests fill the device.
    fn shares(&mut self, most_points: f64) -> Result<()> {
        let solo = self.done(None, RUN_MS)? as f64;
        println!("alone, without the library: {solo} kernels in {RUN_MS} ms");
        for requests in [&[300, 700][..], &[100, 900], &[250, 250, 250, 250]] {
            let ms = RUN_MS.to_string();
            let mut programs = Vec::new();
            for (at, request) in requests.iter().enumerate() {
                let name = format!("tenant{at}");
                self.share(&name, (*request, *request), None)?;
                programs.push(self.start(Some(&name), &["spin", KERNEL_NS, &ms])?);
            }
            let mut sum = 0.0;
            for (program, request) in programs.into_iter().zip(requests) {
                let share = Self::number(program, "launched")? as f64 * 100.0 / solo;
                let wanted = f64::from(*request) / 10.0;
                println!("request {wanted} %: got {share:.2} %");
                sum += share;
                if (share - wanted).abs() > most_points {
                    self.failures
                        .push(format!("{requests:?}: {share:.2} % for {wanted} %"));
                }
            }
            println!("together {sum:.2} % of alone");
            for at in 0..requests.len() {
                self.server.forget(&format!("tenant{at}"));
            }
        }
        Ok(())
    }

    fn elastic(&mut self) -> Result<()> {
        let solo = self.done(None, RUN_MS)? as f64;
        self.share("elastic", (300, 600), None)?;
        self.share("second", (700, 700), None)?;
        let alone = self.done(Some("elastic"), RUN_MS)? as f64 * 100.0 / solo;
        println!("(0.3, 0.6) alone: {alone:.2} %");
        self.check(
            "(0.3, 0.6) alone reaches 60 %",
            (58.0..=61.0).contains(&alone),
        );
        let mut second = self.start(Some("second"), &["spin", KERNEL_NS, "60000"])?;
        let mut line = String::new();
        BufReader::new(second.stdout.take().context("no output")?).read_line(&mut line)?;
        let both = self.done(Some("elastic"), RUN_MS)? as f64 * 100.0 / solo;
        println!("(0.3, 0.6) with 0.7: {both:.2} %");
        self.check(
            "(0.3, 0.6) with 0.7 has 30 %",
            (28.0..=32.0).contains(&both),
        );
        second.kill()?;
        second.wait()?;
        std::thread::sleep(Duration::from_millis(500));
        let after = self.done(Some("elastic"), RUN_MS)? as f64 * 100.0 / solo;
        println!("after the other was killed: {after:.2} %");
        self.check(
            "60 % after the other was killed",
            (58.0..=61.0).contains(&after),
        );
        Ok(())
    }

    /// Each relative to its work alone.
    fn kinds(&mut self) -> Result<()> {
        let ms = RUN_MS.to_string();
        let (long, tiny) = (["spin", "5000000", &ms], ["spin", "20000", &ms]);
        let (graphs, eager) = (["graph", "20000", &ms, "1"], ["spin", "100000", &ms]);
        for (what, one, other) in [
            ("long and tiny kernels", &long[..], &tiny[..]),
            ("graphs and launches one by one", &graphs, &eager),
        ] {
            let mut shares = Vec::new();
            self.share("one", (500, 500), None)?;
            self.share("other", (500, 500), None)?;
            let alone =
                [one, other].map(|words| Self::number(self.start(None, words)?, "launched"));
            let both = [
                self.start(Some("one"), one)?,
                self.start(Some("other"), other)?,
            ];
            for (alone, program) in alone.into_iter().zip(both) {
                let got = Self::number(program, "launched")? as f64;
                shares.push(got * 100.0 / alone? as f64);
            }
            println!(
                "{what}, half each: {:.2} % and {:.2} %",
                shares[0], shares[1]
            );
            let held = shares.iter().all(|it| (it - 50.0).abs() <= 2.0);
            self.check(what, held);
            self.server.forget("one");
            self.server.forget("other");
        }
        Ok(())
    }

    /// The page gives the device time, measured by the driver's events.
    fn changes(&mut self) -> Result<()> {
        self.share("changing", (300, 300), None)?;
        let mut program = self.start(Some("changing"), &["spin", KERNEL_NS, "60000"])?;
        let mut line = String::new();
        BufReader::new(program.stdout.take().context("no output")?).read_line(&mut line)?;
        for limit in [300, 800, 300] {
            self.share("changing", (300, limit), None)?;
            // The new limit must hold after one second.
            std::thread::sleep(Duration::from_secs(1));
            self.expect_share("changing", f64::from(limit) / 10.0)?;
        }
        self.server = Server::start(Settings::default())?;
        self.share("changing", (300, 500), None)?;
        std::thread::sleep(Duration::from_secs(2));
        self.expect_share("changing", 50.0)?;
        program.kill()?;
        program.wait()?;
        self.server.forget("changing");
        Ok(())
    }

    fn expect_share(&mut self, name: &str, wanted: f64) -> Result<()> {
        let busy_ns = |machine: &Self| -> Result<u64> {
            let usage = machine.server.usage(name).context("not known")?;
            Ok(usage.first().context("no device")?.1.busy_ns)
        };
        let (before, begun) = (busy_ns(self)?, Instant::now());
        std::thread::sleep(Duration::from_secs(5));
        let used_ns = busy_ns(self)? - before;
        let share = used_ns as f64 * 100.0 / begun.elapsed().as_nanos() as f64;
        println!("limit {wanted} %: {share:.2} %");
        self.check(
            &format!("a changed limit of {wanted} %"),
            (share - wanted).abs() <= 2.0,
        );
        Ok(())
    }

    fn every_call(&mut self, cap: u64) -> Result<()> {
        let mut child = self.start(Some("capped"), &["memory", &cap.to_string()])?;
        let mut said = String::new();
        let mut out = child.stdout.take().context("no output")?;
        out.read_to_string(&mut said)?;
        print!("{said}");
        // A real device lacks memory of another library to import.
        child.wait()?;
        let calls = said.lines().filter(|it| it.contains(" beyond "));
        let calls: Vec<&str> = calls.collect();
        self.check("nine calls were tried beyond the cap", calls.len() >= 9);
        for call in calls {
            self.check(call, call.contains(" beyond 2 "));
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<()> {
        let cap = 1_u64 << 30;
        self.share("capped", (500, 500), Some(cap))?;
        for (bytes, wanted) in [(cap / 2, 0), (cap + 1, 2)] {
            let child = self.start(Some("capped"), &["hold", &bytes.to_string(), "0"])?;
            let result = Self::number(child, "result")?;
            println!("{bytes} bytes under a cap of {cap}: {result}");
            self.check("the cap on memory", result == wanted);
        }
        self.every_call(cap)?;
        Ok(())
    }

    fn cost(&mut self) -> Result<()> {
        self.share("whole", (1000, 1000), None)?;
        for (what, words, word) in [
            ("ns a launch", &["cost", "2000"][..], "cost"),
            (
                "kernels of 0.5 ms",
                &["spin", KERNEL_NS, "5000"],
                "launched",
            ),
            (
                "launch and wait",
                &["sync", "20000", "0", "5000"],
                "launched",
            ),
            (
                "graphs of ten",
                &["graph", "20000", "5000", "1"],
                "launched",
            ),
        ] {
            for round in 1..=3 {
                let native = Self::number(self.start(None, words)?, word)?;
                let held = Self::number(self.start(Some("whole"), words)?, word)?;
                println!("{what}, round {round}: {native} without the library, {held} with it");
            }
        }
        Ok(())
    }

    fn check(&mut self, what: &str, holds: bool) {
        if !holds {
            self.failures.push(what.to_owned());
        }
    }

    fn report(self) -> Result<()> {
        let _ = std::fs::remove_dir_all(&self.folder);
        if self.failures.is_empty() {
            println!("all held");
            return Ok(());
        }
        bail!("did not hold: {}", self.failures.join("; "))
    }
}
