//! Processes as the kernel shows them: identity, groups, and signals that cannot go astray.

use std::fs;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A process, told from any later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks after the machine's boot (`/proc/PID/stat`, field 22).
    pub started_ticks: u64,
}

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Who it is.
    pub identity: Identity,
    /// Its process group.
    pub group: u32,
    /// Whether it has ended and is only remembered.
    pub zombie: bool,
}

/// Reads the text of a `stat` file. The name in parentheses may hold anything, so the fields
/// are counted from the last parenthesis.
#[must_use]
pub fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split_once(' ')?.0.parse().ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let started_ticks = fields.nth(16)?.parse().ok()?;
    Some(Stat {
        identity: Identity { pid, started_ticks },
        group,
        zombie: matches!(state, "Z" | "X"),
    })
}

/// What runs under a number now.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The machine's boot: process numbers and start times mean nothing across it.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Whether a process is a supervisor of this or an earlier build: its script begins alike.
#[must_use]
pub fn is_supervisor(process: Identity) -> bool {
    let script = command_line(process.pid).unwrap_or_default();
    script.starts_with(b"/bin/sh\0-c\0# Supervises one container that is a plain process")
}

fn command_line(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/cmdline")).ok()
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .map(Pid::from_raw)
}

impl Identity {
    /// Whether this very process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.identity == *self && !stat.zombie)
    }

    /// Whether a child of this supervisor has become its program. Between the fork and the exec
    /// a signal meets the supervisor's own trap, and is lost.
    #[must_use]
    pub fn runs_program(&self) -> bool {
        let pid = self.pid;
        let Ok(children) = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) else {
            // The kernel does not tell.
            return true;
        };
        let own = command_line(pid);
        let mut children = children.split_ascii_whitespace();
        children.any(|child| child.parse().is_ok_and(|child| command_line(child) != own))
    }

    /// Signals its process group, if this very process still leads it.
    ///
    /// # Errors
    /// The kernel's; `ESRCH` where the process is gone or its number is another's now.
    pub fn signal_group(&self, signal: Signal) -> Result<(), Errno> {
        match (stat(self.pid), pid_of(self.pid)) {
            (Some(stat), Some(pid)) if stat.identity == *self && stat.group == self.pid => {
                killpg(pid, signal)
            }
            _ => Err(Errno::ESRCH),
        }
    }

    /// A descriptor that becomes readable when it ends; `None` if it is gone.
    #[must_use]
    pub fn watch(&self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let watch = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        // Looked at after opening: from here on the number cannot be another's.
        self.is_alive().then_some(watch)
    }
}

/// The living members of a container: of its control group, else of the leader's process group.
#[must_use]
pub fn members(of_group: Option<Vec<u32>>, leader: Identity) -> Vec<u32> {
    if let Some(members) = of_group {
        return members;
    }
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|stat| {
            stat.group == leader.pid
                && stat.identity.started_ticks >= leader.started_ticks
                && !stat.zombie
        })
        .map(|stat| stat.identity.pid)
        .collect()
}

/// Whether a process has a handler for a signal, or blocks it; `None` if it is gone. One that waits
/// for a signal by `sigwait` unblocks it while it waits: it is known by its handler only.
#[must_use]
pub fn handles(pid: u32, signal: Signal) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(parse_handled(&status, signal))
}

/// The same, by the text of a `status` file: masks in hexadecimal, the first signal is 1.
fn parse_handled(status: &str, signal: Signal) -> bool {
    let fields = status.lines().filter_map(|line| line.split_once(':'));
    let masks = fields.filter(|(name, _)| matches!(*name, "SigBlk" | "SigCgt"));
    let masks = masks.filter_map(|(_, mask)| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = masks.fold(0, |all, mask| all | mask);
    let number = u32::try_from(signal as i32).unwrap_or(0);
    mask & 1_u64.checked_shl(number - 1).unwrap_or(0) != 0
}

/// The children of a process.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let numbers = children.split_ascii_whitespace();
    numbers.filter_map(|pid| pid.parse().ok()).collect()
}

/// Signals those members that handle it, but not the leader: the others it would end.
pub fn notify_members(of_group: Option<Vec<u32>>, leader: Identity, signal: Signal) {
    for pid in members(of_group, leader) {
        if pid != leader.pid
            && handles(pid, signal) == Some(true)
            && let Some(pid) = pid_of(pid)
        {
            let _ = kill(pid, signal);
        }
    }
}

/// Kills a process.
pub fn kill_process(pid: u32) {
    if let Some(pid) = pid_of(pid) {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// Kills all members but the leader, who lives to record how the program ended; says how many
/// there were.
pub fn kill_members(of_group: Option<Vec<u32>>, leader: Identity) -> usize {
    let mut members = members(of_group, leader);
    members.retain(|pid| *pid != leader.pid);
    members.iter().copied().for_each(kill_process);
    members.len()
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
    fn a_stale_identity_is_never_signalled() {
        let own = std::process::id();
        let mut identity = stat(own).expect("this process").identity;
        assert!(identity.is_alive());
        identity.started_ticks += 1;
        assert!(!identity.is_alive());
        assert_eq!(identity.signal_group(Signal::SIGTERM), Err(Errno::ESRCH));
        assert!(identity.watch().is_none());
    }
}
