//! Processes in `/proc`: identities, groups, and signals that reach only the intended process.

use std::fs;
use std::sync::LazyLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process's identity, distinct from later processes with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    pub started_ticks: u64,
}

/// The parsed `/proc/PID/stat` of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub identity: Identity,
    pub parent: u32,
    pub group: u32,
    pub zombie: bool,
}

/// Parses a `stat` file, from the last parenthesis, because the name may hold anything.
#[must_use]
pub fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split_once(' ')?.0.parse().ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let started_ticks = fields.nth(16)?.parse().ok()?;
    Some(Stat {
        identity: Identity { pid, started_ticks },
        parent,
        group,
        zombie: matches!(state, "Z" | "X"),
    })
}

/// The kernel cuts names after 15 bytes, even within a character.
fn text(pid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the process that has the pid now.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&text(pid, "stat")?)
}

/// Returns the kernel's name of a process, or `None` after its end.
#[must_use]
pub fn name(pid: u32) -> Option<String> {
    let name = text(pid, "comm")?;
    Some(name.trim_end().to_owned())
}

/// Returns the boot id. Pids and start times are valid within one boot.
#[must_use]
pub fn boot_id() -> &'static str {
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        boot.map(|text| text.trim().to_owned()).unwrap_or_default()
    });
    &BOOT
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .map(Pid::from_raw)
}

impl Identity {
    /// Reports whether this process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.identity == *self && !stat.zombie)
    }
}

/// Lists the living members of a process group.
#[must_use]
pub fn members_of(leader: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|stat| stat.group == leader && !stat.zombie)
        .map(|stat| stat.identity.pid)
        .collect()
}

/// Reports whether a process handles or blocks a signal. `None` if it is gone. `sigwait` unblocks its signal
/// meanwhile.
#[must_use]
pub fn handles(pid: u32, signal: Signal) -> Option<bool> {
    let status = text(pid, "status")?;
    Some(parse_handled(&status, signal))
}

fn parse_handled(status: &str, signal: Signal) -> bool {
    let fields = status.lines().filter_map(|line| line.split_once(':'));
    let masks = fields.filter(|(name, _)| matches!(*name, "SigBlk" | "SigCgt"));
    let masks = masks.filter_map(|(_, mask)| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = masks.fold(0, |all, mask| all | mask);
    let number = u32::try_from(signal as i32).unwrap_or(0);
    mask & 1_u64.checked_shl(number - 1).unwrap_or(0) != 0
}

/// Lists the children of a process.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let numbers = children.split_ascii_whitespace();
    numbers.filter_map(|pid| pid.parse().ok()).collect()
}

/// Signals processes of the group with a handler, except the init. The signal would end others.
pub fn notify(of_group: Option<Vec<u32>>, program: u32, init: u32, signal: Signal) {
    for pid in of_group.unwrap_or_else(|| members_of(program)) {
        if pid != init
            && handles(pid, signal) == Some(true)
            && let Some(pid) = pid_of(pid)
        {
            let _ = kill(pid, signal);
        }
    }
}

/// Returns the milliseconds since boot, including suspended time.
#[must_use]
pub fn since_boot_ms() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map_or(0, |now| {
        let now = std::time::Duration::from(now);
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Kills a process.
pub fn kill_process(pid: u32) {
    if let Some(pid) = pid_of(pid) {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_handled_where_it_is_caught_or_blocked() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000000200\nSigCgt:\t0000000000004000\n";
        let handled = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGTERM];
        let handled = handled.map(|signal| parse_handled(status, signal));
        assert_eq!(handled, [true, false, true]);
        let own = handles(std::process::id(), Signal::SIGUSR2);
        assert_eq!(own, Some(false));
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "4242 (a) b) S 1 4240 4240 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 2 3 4";
        let stat = parse_stat(text).expect("parsed");
        assert_eq!(stat.identity.pid, 4242);
        assert_eq!((stat.group, stat.identity.started_ticks), (4240, 987_654));
        assert!(!stat.zombie);
    }

    #[test]
    fn a_program_whose_name_is_cut_within_a_letter_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("обучение");
        fs::copy("/bin/sleep", &program).expect("copied");
        let mut child = std::process::Command::new(&program)
            .arg("60")
            .spawn()
            .expect("started");
        let pid = child.id();
        let known = (stat(pid), name(pid), handles(pid, Signal::SIGTERM));
        child
            .kill()
            .and_then(|()| child.wait().map(drop))
            .expect("ended");
        assert_eq!(known.0.map(|it| it.identity.pid), Some(pid));
        assert_eq!(known.1.as_deref(), Some("обучени\u{fffd}"));
        assert_eq!(known.2, Some(false));
    }

    #[test]
    fn a_stale_identity_is_not_alive() {
        let own = std::process::id();
        let mut identity = stat(own).expect("this process").identity;
        assert!(identity.is_alive());
        identity.started_ticks += 1;
        assert!(!identity.is_alive());
    }
}
