//! A modelled machine, a scheduler, and programs that use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server, Usage};
use dormouse_gpu_standin::model::{Machine, now_ns};
use tempfile::TempDir;

pub const MS: u64 = 1_000_000;
pub const GIB: u64 = 1 << 30;

/// One machine at a time: its processes need processors.
static ONE: Mutex<()> = Mutex::new(());

pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let path = test.with_file_name(name);
    assert!(path.exists(), "{} is not built", path.display());
    path
}

pub fn uuid(device: u8) -> String {
    format!("GPU-d0000000-0000-0000-0000-0000000000{device:02x}")
}

pub struct Driver {
    pub folder: TempDir,
    pub machine: Machine,
    _one: MutexGuard<'static, ()>,
}

impl Driver {
    pub fn new(devices: u32) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().expect("a folder");
        let standin = library("libdormouse_gpu_standin.so");
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            std::os::unix::fs::symlink(&standin, folder.path().join(name)).expect("a link");
        }
        let machine = folder.path().join("gpu");
        let machine = Machine::create(&machine, devices, 16 * GIB).expect("a machine");
        Self {
            folder,
            machine,
            _one: one,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, program: &Path, socket: Option<&str>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("STANDIN_GPU", self.path("gpu"))
            .env_remove("DORMOUSE_GPU_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(socket) = socket {
            command
                .env("LD_PRELOAD", library("libdormouse_gpu.so"))
                .env("DORMOUSE_GPU_SOCKET", self.path(socket))
                .env("DORMOUSE_GPUS", uuid(0));
        }
        command
    }

    pub fn drive(&self, socket: Option<&str>, words: &[&str]) -> Program {
        let trial = Path::new(env!("CARGO_BIN_EXE_gpu-trial"));
        let mut command = self.command(trial, socket);
        command.arg("drive").args(words);
        Program::start(command)
    }

    pub fn share(&self, program: &Program, device: u32, (from, until): (u64, u64)) -> f64 {
        let used = self.machine.used_ns(program.id(), device, from, until);
        used as f64 * 100.0 / (until - from) as f64
    }

    /// Stops a program outside the machine's lock, which would block everybody.
    pub fn stop(&self, program: &Program) {
        self.machine.with(|_| {
            program.signal("-STOP");
            while !program.is_stopped() {
                std::thread::yield_now();
            }
        });
    }
}

pub struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, out }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub fn ready(mut self) -> Self {
        assert_eq!(self.line(), "ready");
        self
    }

    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let done = kill.args([name, &self.id().to_string()]).status();
        assert!(done.expect("kill").success());
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("it is there");
        let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest);
        after_name.is_some_and(|rest| rest.starts_with(['T', 'Z']))
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("waited for").is_some()
    }

    pub fn ends_within(&mut self, seconds: u64) -> bool {
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs() < seconds {
            if let Some(status) = self.child.try_wait().expect("waited for") {
                return status.success();
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        false
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited for");
    }

    pub fn end(mut self) -> String {
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("its output");
        assert!(self.child.wait().expect("it ends").success(), "{text}");
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Scheduler {
    child: Child,
    input: ChildStdin,
    out: BufReader<ChildStdout>,
}

impl Scheduler {
    /// Tenants by name, request and limit in thousandths.
    pub fn start(driver: &Driver, devices: u8, tenants: &[(&str, (u32, u32))]) -> Self {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_gpu-trial")));
        command
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, terms) in tenants {
            command.args(Self::words(driver, devices, name, *terms));
        }
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take().expect("its input");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut scheduler = Self { child, input, out };
        scheduler.heard();
        scheduler
    }

    fn words(driver: &Driver, devices: u8, name: &str, terms: (u32, u32)) -> [String; 6] {
        let uuids: Vec<String> = (0..devices).map(uuid).collect();
        [
            name.to_owned(),
            driver.path(name).display().to_string(),
            uuids.join(","),
            terms.0.to_string(),
            terms.1.to_string(),
            "0".to_owned(),
        ]
    }

    pub fn change(&mut self, driver: &Driver, devices: u8, name: &str, terms: (u32, u32)) {
        let words = Self::words(driver, devices, name, terms).join(" ");
        writeln!(self.input, "{words}").expect("said");
        self.heard();
    }

    fn heard(&mut self) {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        assert_eq!(line, "ok\n");
    }

    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited for");
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn terms((request, limit): (u32, u32)) -> Terms {
    Terms {
        request_milli: request,
        limit_milli: limit,
        weight: request,
    }
}

pub struct World {
    pub driver: Driver,
    pub server: Server,
}

impl World {
    pub fn new(devices: u32) -> Self {
        Self {
            driver: Driver::new(devices),
            server: Server::start(Settings::default()).expect("a scheduler"),
        }
    }

    pub fn share(&self, name: &str, devices: &[u8], of: (u32, u32), cap: Option<u64>) {
        let part = |device: &u8| Part {
            uuid: uuid(*device),
            terms: terms(of),
            cap_bytes: cap,
        };
        let offer = Offer {
            name: name.to_owned(),
            socket: self.driver.path(name),
            parts: devices.iter().map(part).collect(),
        };
        self.server.share(&offer).expect("a socket");
    }

    pub fn drive_on(&self, name: &str, devices: u8, words: &[&str]) -> Program {
        let trial = Path::new(env!("CARGO_BIN_EXE_gpu-trial"));
        let mut command = self.driver.command(trial, Some(name));
        let uuids: Vec<String> = (0..devices).map(uuid).collect();
        command.env("DORMOUSE_GPUS", uuids.join(","));
        command.arg("drive").args(words);
        Program::start(command)
    }

    pub fn usage(&self, name: &str) -> Usage {
        self.server.usage(name).expect("known")[0].1
    }
}

/// Returns the span.
pub fn pass(ms: u64) -> (u64, u64) {
    let from = now_ns();
    std::thread::sleep(std::time::Duration::from_millis(ms));
    (from, now_ns())
}
