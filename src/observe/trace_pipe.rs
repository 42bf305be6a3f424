//! The same tracepoints from the text of a tracefs, for the virtual-time guest: user-mode Linux has no perf events.
//!
//! Only there. Switching tracepoints on through a tracefs changes a setting of the whole machine that outlives the
//! process; the guest's machine ends with the run.

use super::tracepoint::{STATES, TraceRecord, TraceWhat};
use crate::events::Tuple;
use crate::host::clock::Clock;
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where the guest's init mounts it.
const TRACEFS: &str = "/sys/kernel/tracing";
/// What is switched on: each event with the filter that keeps the trace short.
const EVENTS: [(&str, &CStr); 2] = [("sock/inet_sock_set_state", STATES), ("sock/inet_sk_error_report", c"")];

/// The open trace.
#[derive(Debug)]
pub struct TracePipe {
    clock: Clock,
    pipe: File,
    /// The beginning of a line whose end was not read yet.
    partial: Vec<u8>,
    records: Vec<TraceRecord>,
    lost: u64,
}

impl TracePipe {
    /// Switches the tracepoints on, stamped by `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// When there is no tracefs where the guest's init mounts it.
    pub fn open(clock: Clock) -> io::Result<Self> {
        let root = Path::new(TRACEFS);
        fs::write(root.join("trace_clock"), "mono")?;
        for (event, filter) in EVENTS {
            let dir = root.join("events").join(event);
            if !filter.is_empty() {
                fs::write(dir.join("filter"), filter.to_bytes())?;
            }
            fs::write(dir.join("enable"), "1")?;
        }
        let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(root.join("trace_pipe"))?;
        Ok(Self { clock, pipe, partial: Vec::new(), records: Vec::new(), lost: 0 })
    }

    /// The records since the last call.
    pub fn drain(&mut self) -> &[TraceRecord] {
        self.records.clear();
        let mut buffer = [0; 16 * 1024];
        // Whatever ends the reading, "nothing more now" among it, ends it for this call.
        while let Ok(length @ 1..) = self.pipe.read(&mut buffer) {
            self.partial.extend_from_slice(&buffer[..length]);
        }
        let whole = self.partial.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let rest = self.partial.split_off(whole);
        let text = std::mem::replace(&mut self.partial, rest);
        for line in String::from_utf8_lossy(&text).lines() {
            match read(line) {
                Line::Record { monotonic_ns, tuple, what } => {
                    let at = self.clock.offset_of_monotonic(monotonic_ns);
                    self.records.push(TraceRecord { at, tuple, what });
                }
                Line::Lost(count) => self.lost += count,
                Line::Other => {}
            }
        }
        &self.records
    }

    /// Records lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl AsFd for TracePipe {
    /// Readable when there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Record { monotonic_ns: i64, tuple: Tuple, what: TraceWhat },
    Lost(u64),
    Other,
}

/// `TASK-PID [CPU] FLAGS SECONDS: EVENT: FIELDS`, or `CPU:N [LOST M EVENTS]`.
fn read(line: &str) -> Line {
    if let Some((_, lost)) = line.split_once("[LOST ") {
        let count = lost.split(' ').next().and_then(|n| n.parse().ok());
        return Line::Lost(count.unwrap_or(1));
    }
    record(line).unwrap_or(Line::Other)
}

fn record(line: &str) -> Option<Line> {
    let (event, at) = ["inet_sock_set_state", "inet_sk_error_report"]
        .into_iter()
        .find_map(|event| Some((event, line.find(&format!(": {event}: "))?)))?;
    let monotonic_ns = nanoseconds(line[..at].split(' ').next_back()?)?;
    let fields = &line[at + event.len() + 4..];
    let field = |name: &str| fields.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
    if field("family")? != "AF_INET" || field("protocol")? != "IPPROTO_TCP" {
        return None;
    }
    let socket = |address, port| Some(SocketAddrV4::new(field(address)?.parse().ok()?, field(port)?.parse().ok()?));
    let tuple = Tuple { local: socket("saddr", "sport")?, peer: socket("daddr", "dport")? };
    let what = match event {
        "inet_sock_set_state" => TraceWhat::State { old: state(field("oldstate")?)?, new: state(field("newstate")?)? },
        _ => TraceWhat::Error { errno: field("error")?.parse::<i32>().ok()?.abs() },
    };
    Some(Line::Record { monotonic_ns, tuple, what })
}

/// `12.345678`.
fn nanoseconds(text: &str) -> Option<i64> {
    let (seconds, micros) = text.split_once('.')?;
    if micros.len() != 6 {
        return None;
    }
    Some((seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?) * 1_000)
}

/// The kernel's number of a state.
fn state(name: &str) -> Option<i32> {
    const NAMES: [&str; 12] = [
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
    ];
    let name = name.strip_prefix("TCP_")?;
    NAMES.iter().position(|n| *n == name).and_then(|at| i32::try_from(at + 1).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.1.192 prints them.
    const STATE: &str = "          <idle>-0       [000] ..s2.   152.704123: inet_sock_set_state: family=AF_INET \
         protocol=IPPROTO_TCP sport=40000 dport=7000 saddr=10.64.128.1 daddr=10.128.128.1 saddrv6=::ffff:10.64.128.1 \
         daddrv6=::ffff:10.128.128.1 oldstate=TCP_ESTABLISHED newstate=TCP_CLOSE";

    #[test]
    fn a_change_of_state_is_read_with_its_time_and_its_connection() {
        let Line::Record { monotonic_ns, tuple, what } = read(STATE) else { panic!() };
        assert_eq!(
            (monotonic_ns, tuple.to_string().as_str()),
            (152_704_123_000, "10.64.128.1:40000-10.128.128.1:7000")
        );
        assert_eq!(what, TraceWhat::State { old: 1, new: 7 });
    }

    #[test]
    fn an_error_and_a_loss_are_read() {
        let error = STATE.replace("inet_sock_set_state", "inet_sk_error_report");
        let error = error.split(" oldstate").next().unwrap().to_string() + " error=110";
        assert!(matches!(read(&error), Line::Record { what: TraceWhat::Error { errno: 110 }, .. }));
        assert_eq!(read("CPU:0 [LOST 12 EVENTS]"), Line::Lost(12));
    }

    #[test]
    fn what_is_not_a_connection_over_ipv4_is_passed_over() {
        for line in ["", "#", &STATE.replace("AF_INET", "AF_INET6"), &STATE.replace("IPPROTO_TCP", "IPPROTO_MPTCP")] {
            assert_eq!(read(line), Line::Other, "{line}");
        }
    }
}
