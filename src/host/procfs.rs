//! What `/proc` says of a process: identity, command line, memory, processor time.
//!
//! A process is identified by number *and* start time: a number alone is given away again. What is left out: sockets.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;

/// One process, and no later one under the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id, as the reader's PID namespace counts.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

/// What a process, or a tree of them, has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Sum of the peaks of resident memory (`VmHWM`) in KiB.
    pub peak_rss_kib: u64,
    /// User and system time in milliseconds, with that of children already waited for.
    pub cpu_ms: u64,
    /// How many processes were counted.
    pub processes: u32,
}

struct Stat {
    state: char,
    parent: u32,
    cpu_ticks: u64,
    own_ticks: u64,
    start_ticks: u64,
}

/// `USER_HZ`: fixed to 100 in the interface of every architecture that Rust's std runs on.
const TICK_MS: u64 = 10;

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name stands in parentheses and may itself contain some: the fields start after the last one.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(4)?).ok()?,
        own_ticks: number(14)? + number(15)?,
        cpu_ticks: number(14)? + number(15)? + number(16)? + number(17)?,
        start_ticks: number(22)?,
    })
}

/// Identity of a running process; `None` when there is none, or only its zombie.
#[must_use]
pub fn identity(pid: u32) -> Option<Identity> {
    let stat = stat(pid)?;
    (!matches!(stat.state, 'Z' | 'X')).then_some(Identity { pid, start_ticks: stat.start_ticks })
}

/// Whether exactly this process still runs.
#[must_use]
pub fn is_running(process: Identity) -> bool {
    identity(process.pid) == Some(process)
}

/// What a process is doing, as far as a fault has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// It runs or could.
    Running,
    /// Stopped by a signal, all its threads.
    Stopped,
    /// It is gone, or only its zombie is left.
    Gone,
}

impl RunState {
    /// For a sentence: "… are stopped".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
        }
    }
}

/// What exactly this process does. A process counts as stopped when every thread of it is.
#[must_use]
pub fn run_state(process: Identity) -> RunState {
    if !is_running(process) {
        return RunState::Gone;
    }
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", process.pid)) else { return RunState::Gone };
    let state = |entry: fs::DirEntry| Some(parse_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?.state);
    if threads.flatten().filter_map(state).all(|state| state == 'T') { RunState::Stopped } else { RunState::Running }
}

/// A process and all its descendants, those that are gone left out.
#[must_use]
pub fn tree(root: u32) -> Vec<Identity> {
    let parents: HashMap<u32, u32> = pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = Vec::new();
    let mut todo = vec![root];
    while let Some(pid) = todo.pop() {
        found.extend(identity(pid));
        todo.extend(parents.iter().filter(|(_, parent)| **parent == pid).map(|(child, _)| *child));
    }
    found
}

/// Signals exactly this process.
///
/// # Errors
/// `ESRCH` where it is gone; whatever else the kernel says.
pub fn signal(process: Identity, signal: nix::sys::signal::Signal) -> std::io::Result<()> {
    let pidfd = super::process::pidfd_open(process.pid)?;
    // The number may have been given away before the descriptor was opened, never after.
    if !is_running(process) {
        return Err(std::io::Error::from_raw_os_error(nix::libc::ESRCH));
    }
    super::process::pidfd_signal(std::os::fd::AsFd::as_fd(&pidfd), signal)
}

/// Gives this process another name, cut off after 15 characters: for those who look from outside.
///
/// # Errors
/// Where `/proc` is not this process's own.
pub fn rename(name: &str) -> std::io::Result<()> {
    fs::write("/proc/self/comm", name)
}

/// The arguments that a process was started with; empty for a zombie or a kernel thread.
#[must_use]
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|b| *b == 0).filter(|a| !a.is_empty()).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}

/// The short name of a process (`/proc/PID/comm`); empty when it is gone.
#[must_use]
pub fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_string()
}

/// The number of a process's network namespace, as `stat` tells it. Needs no more than the right to read the link.
///
/// # Errors
/// When the process is gone, or is somebody else's and may not be looked at.
pub fn network_namespace(pid: u32) -> std::io::Result<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/net"))?;
    let text = link.to_string_lossy();
    let number = text.strip_prefix("net:[").and_then(|t| t.strip_suffix(']')).and_then(|t| t.parse().ok());
    number.ok_or_else(|| std::io::Error::other(format!("`{text}` names no network namespace")))
}

/// The sockets that a process has open: descriptor and inode.
///
/// # Errors
/// When the process is gone, or is somebody else's and may not be looked at.
pub fn sockets(pid: u32) -> std::io::Result<Vec<(i32, u64)>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let socket = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let link = fs::read_link(entry.path()).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((number, inode))
    };
    Ok(entries.flatten().filter_map(socket).collect())
}

/// The threads of a process; empty when it is gone.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// All process ids that this `/proc` shows.
#[must_use]
pub fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// What a process and all its descendants have used; a process that ends meanwhile is left out.
#[must_use]
pub fn tree_usage(root: u32) -> Usage {
    let stats: HashMap<u32, Stat> = pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let mut total = Usage::default();
    let mut todo = vec![root];
    while let Some(pid) = todo.pop() {
        let Some(stat) = stats.get(&pid) else { continue };
        total.cpu_ms += stat.cpu_ticks * TICK_MS;
        total.peak_rss_kib += peak_rss_kib(pid).unwrap_or(0);
        total.processes += 1;
        todo.extend(stats.iter().filter(|(_, s)| s.parent == pid).map(|(child, _)| *child));
    }
    total
}

/// Processor time of one process alone, in milliseconds.
#[must_use]
pub fn own_cpu_ms(pid: u32) -> Option<u64> {
    Some(stat(pid)?.own_ticks * TICK_MS)
}

/// The children of a process.
#[must_use]
pub fn children(parent: u32) -> Vec<u32> {
    pids().into_iter().filter(|pid| stat(*pid).is_some_and(|s| s.parent == parent)).collect()
}

/// Peak resident memory of one process in KiB (`VmHWM`); `None` when it is gone.
#[must_use]
pub fn peak_rss_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The kernel's identifier of this boot: start times and process ids are comparable within one only.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 98765 1000 200";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.cpu_ticks, stat.start_ticks), ('S', 7, 100, 98765));
        assert!(parse_stat("42 (cut").is_none());
    }

    #[test]
    fn this_process_is_itself_and_has_used_memory() {
        let me = identity(std::process::id()).unwrap();
        assert!(is_running(me));
        assert!(!is_running(Identity { start_ticks: me.start_ticks + 1, ..me }));
        let usage = tree_usage(me.pid);
        assert!(usage.peak_rss_kib > 500 && usage.processes >= 1, "{usage:?}");
        assert!(!command_line(me.pid).is_empty());
    }
}
