//! The kernel's own word on sockets, from wherever it can be had here.

use super::trace_pipe::TracePipe;
use super::tracepoint::{TraceRecord, Tracepoints, Unavailable};
use crate::host::clock::Clock;
use crate::host::guest::in_user_mode_linux;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Trace records of the ends of sockets.
#[derive(Debug)]
#[must_use = "recording ends when the value is dropped"]
pub enum Traces {
    /// Perf events of the whole machine.
    Perf(Tracepoints),
    /// The text of the guest's own tracefs.
    Guest(TracePipe),
}

impl Traces {
    /// Starts recording: perf events, or inside the virtual-time guest its tracefs.
    ///
    /// # Errors
    /// [`Unavailable`] says why not here.
    pub fn open(clock: Clock) -> Result<Self, Unavailable> {
        if in_user_mode_linux() {
            return TracePipe::open(clock).map(Self::Guest).map_err(Unavailable::NoTrace);
        }
        Tracepoints::open(clock).map(Self::Perf)
    }

    /// The records since the last call, of every IPv4 TCP socket of the machine, in order of time.
    pub fn drain(&mut self) -> &[TraceRecord] {
        match self {
            Self::Perf(rings) => rings.drain(),
            Self::Guest(pipe) => pipe.drain(),
        }
    }

    /// Waits until there are records, until `end` is readable or closed, or at most this long.
    ///
    /// # Errors
    /// When polling fails; a signal counts as the end of the wait.
    pub fn wait(&self, at_most: Option<Duration>, end: BorrowedFd<'_>) -> io::Result<()> {
        let mut fds = match self {
            Self::Perf(rings) => rings.fds(),
            Self::Guest(pipe) => vec![pipe.as_fd()],
        };
        fds.push(end);
        let mut fds: Vec<_> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = at_most.map_or(PollTimeout::NONE, |d| PollTimeout::try_from(d).unwrap_or(PollTimeout::MAX));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Records missing so far. Above zero, the absence of a record proves nothing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match self {
            Self::Perf(rings) => rings.lost(),
            Self::Guest(pipe) => pipe.lost(),
        }
    }
}
