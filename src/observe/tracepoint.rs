//! The kernel's own word on sockets: `sock:inet_sock_set_state`, `sock:inet_sk_error_report`,
//! `tcp:tcp_receive_reset`, for the whole machine.
//!
//! Records carry no network namespace: sockets are told apart by their addresses alone, which a run keeps unique.
//! Format files are only read, through a tracefs that is mounted for the moment of reading in a mount namespace of
//! its own where there is none. What is left out: retransmissions, and IPv6.

use super::trace_format::Format;
use crate::events::Tuple;
use crate::host::clock::Clock;
use crate::host::perf::{PerfRing, cpus};
use crate::units::Offset;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Why there are no tracepoints here; the run falls back on `sock_diag`. The sentence completes "not available
/// because".
#[derive(Debug, Error)]
pub enum Unavailable {
    /// There is no tracefs and it can't be mounted.
    #[error("tracefs can't be read: {0}")]
    NoTracefs(#[source] io::Error),
    /// This kernel's tracepoint is missing, or not laid out as expected.
    #[error("the tracepoint {name} can't be used: {why}")]
    NoTracepoint {
        /// The tracepoint.
        name: &'static str,
        /// What is missing.
        why: String,
    },
    /// `perf_event_open` needs root (or `CAP_PERFMON`) on the machine itself.
    #[error("perf events of the whole machine need root or CAP_PERFMON: {0}")]
    NotPermitted(#[source] io::Error),
    /// The guest's own tracefs does not do what it should.
    #[error("the guest's trace can't be read: {0}")]
    NoTrace(#[source] io::Error),
    /// Perf events fail otherwise.
    #[error("perf events can't be opened: {0}")]
    NoPerf(#[source] io::Error),
}

/// What happened to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceWhat {
    /// It changed its state (kernel numbers, 1 = ESTABLISHED, 7 = CLOSE).
    State {
        /// From.
        old: i32,
        /// To.
        new: i32,
    },
    /// The kernel told its owner about an error.
    Error {
        /// The error number, positive.
        errno: i32,
    },
    /// It received a RST.
    ResetReceived,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// When, by the kernel's own stamp.
    pub at: Offset,
    /// The connection, as the owner of the socket sees it.
    pub tuple: Tuple,
    /// What.
    pub what: TraceWhat,
}

#[derive(Debug, Clone, Copy)]
enum Tracepoint {
    SetState,
    ErrorReport,
    ReceiveReset,
}

/// Which changes of state are of interest: what leaves ESTABLISHED, SYN-SENT or CLOSE-WAIT, and a connection's first SYN. The
/// others, of listening sockets and of closing ones, are more than half of what a machine does.
pub(super) const STATES: &CStr = c"oldstate == 1 || oldstate == 2 || oldstate == 8 || newstate == 2";

const ADDRESSES: [(&str, usize); 5] = [("family", 2), ("sport", 2), ("dport", 2), ("saddr", 4), ("daddr", 4)];

impl Tracepoint {
    const ALL: [Self; 3] = [Self::SetState, Self::ErrorReport, Self::ReceiveReset];

    fn name(self) -> &'static str {
        match self {
            Self::SetState => "sock/inet_sock_set_state",
            Self::ErrorReport => "sock/inet_sk_error_report",
            Self::ReceiveReset => "tcp/tcp_receive_reset",
        }
    }

    fn filter(self) -> Option<&'static CStr> {
        matches!(self, Self::SetState).then_some(STATES)
    }

    fn own_fields(self) -> &'static [(&'static str, usize)] {
        match self {
            Self::SetState => &[("oldstate", 4), ("newstate", 4)],
            Self::ErrorReport => &[("error", 4)],
            Self::ReceiveReset => &[],
        }
    }
}

/// The open tracepoints. Closing the descriptors ends the recording.
#[derive(Debug)]
#[must_use = "recording ends when the value is dropped"]
pub struct Tracepoints {
    clock: Clock,
    formats: Vec<(Tracepoint, Format)>,
    rings: Vec<PerfRing>,
    records: Vec<TraceRecord>,
    lost: u64,
}

impl Tracepoints {
    /// Starts recording on every CPU.
    ///
    /// # Errors
    /// [`Unavailable`] says why not here.
    pub fn open(clock: Clock) -> Result<Self, Unavailable> {
        let formats = read_formats()?;
        let ids: Vec<_> = formats.iter().map(|(tracepoint, format)| (format.id, tracepoint.filter())).collect();
        let mut rings = Vec::new();
        for cpu in 0..cpus() {
            match PerfRing::open(cpu, &ids) {
                Ok(ring) => rings.push(ring),
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    return Err(Unavailable::NotPermitted(e));
                }
                Err(e) => return Err(Unavailable::NoPerf(e)),
            }
        }
        Ok(Self { clock, formats, rings, records: Vec::new(), lost: 0 })
    }

    /// Waits until there are records, at most this long; true when there are some.
    ///
    /// # Errors
    /// When polling fails; a signal counts as the end of the wait.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let mut fds: Vec<_> = self.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Descriptors that become readable when there are records.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd).collect()
    }

    /// The records since the last call, of every IPv4 TCP socket of the machine, in order of time.
    pub fn drain(&mut self) -> &[TraceRecord] {
        self.records.clear();
        for ring in &mut self.rings {
            let (formats, clock, records) = (&self.formats, self.clock, &mut self.records);
            self.lost += ring.drain(|monotonic_ns, raw| {
                records.extend(decode(formats, clock.offset_of_monotonic(monotonic_ns), raw));
            });
        }
        // Stable, so that a CPU's own order survives equal stamps.
        self.records.sort_by_key(|record| record.at);
        &self.records
    }

    /// Records missing so far: nobody drained in time, or the kernel counted an event and did not record it. Above zero, the absence of a record proves nothing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost + self.rings.iter().map(PerfRing::unrecorded).sum::<u64>()
    }
}

fn decode(formats: &[(Tracepoint, Format)], at: Offset, raw: &[u8]) -> Option<TraceRecord> {
    let id = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
    let (tracepoint, format) = formats.iter().find(|(_, format)| format.id == id)?;
    if i32::from(format.u16(raw, "family")?) != libc::AF_INET {
        return None;
    }
    // The protocol is 16 bits wide, 8 on old kernels, and implied by tcp:tcp_receive_reset.
    let protocol = format.bytes(raw, "protocol").map(|bytes| bytes.iter().any(|b| i32::from(*b) == libc::IPPROTO_TCP));
    if protocol == Some(false) {
        return None;
    }
    let socket = |address, port| {
        let octets: [u8; 4] = format.bytes(raw, address)?.try_into().ok()?;
        Some(SocketAddrV4::new(Ipv4Addr::from(octets), format.u16(raw, port)?))
    };
    let tuple = Tuple { local: socket("saddr", "sport")?, peer: socket("daddr", "dport")? };
    let what = match tracepoint {
        Tracepoint::SetState => {
            TraceWhat::State { old: format.i32(raw, "oldstate")?, new: format.i32(raw, "newstate")? }
        }
        Tracepoint::ErrorReport => TraceWhat::Error { errno: format.i32(raw, "error")?.abs() },
        Tracepoint::ReceiveReset => TraceWhat::ResetReceived,
    };
    Some(TraceRecord { at, tuple, what })
}

fn read_formats() -> Result<Vec<(Tracepoint, Format)>, Unavailable> {
    let texts = read_texts().map_err(Unavailable::NoTracefs)?;
    let mut formats = Vec::new();
    for (tracepoint, text) in Tracepoint::ALL.into_iter().zip(texts) {
        let name = tracepoint.name();
        let usable = |text: io::Result<String>| -> Result<Format, String> {
            let format = Format::parse(&text.map_err(|e| e.to_string())?)?;
            format.require(&ADDRESSES)?;
            format.require(tracepoint.own_fields())?;
            Ok(format)
        };
        match usable(text) {
            Ok(format) => formats.push((tracepoint, format)),
            // Only a convenience: the end that it explains is seen without it.
            Err(_) if matches!(tracepoint, Tracepoint::ReceiveReset) => {}
            Err(why) => return Err(Unavailable::NoTracepoint { name, why }),
        }
    }
    Ok(formats)
}

/// Where a tracefs is, or where one can be mounted without anything being lost: any directory serves, in a mount
/// namespace that ends with the thread.
const TRACEFS: &str = "/sys/kernel/tracing";
const MOUNT_POINTS: [&str; 3] = [TRACEFS, "/mnt", "/tmp"];

fn read_texts() -> io::Result<[io::Result<String>; 3]> {
    let read = |root: &Path| {
        Tracepoint::ALL.map(|t| std::fs::read_to_string(root.join("events").join(t.name()).join("format")))
    };
    if Path::new(TRACEFS).join("events").is_dir() {
        return Ok(read(Path::new(TRACEFS)));
    }
    let in_a_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        let mut failure = io::Error::from_raw_os_error(libc::ENOENT);
        for point in MOUNT_POINTS {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            match mount(Some("tracefs"), point, Some("tracefs"), flags, None::<&str>) {
                Ok(()) => return Ok(read(Path::new(point))),
                Err(e) => failure = e.into(),
            }
        }
        Err(failure)
    };
    std::thread::scope(|scope| scope.spawn(in_a_namespace).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that reads tracefs panicked")))
}
