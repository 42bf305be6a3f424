//! A bare TCP connection that only writes: numbered lines on a schedule of its own, and in between it sleeps in `poll`,
//! which wakes as soon as the kernel gives the connection up.
//!
//! The socket is non-blocking: a full send buffer delays messages, it never blocks the thread.
//!
//! With a peer that does not read there are no messages: from the harness' word on, empty lines fill the peer's window and
//! then the send buffer, so that bytes wait behind a closed window for as long as the connection lives.

use super::attempts::{End, Trial};
use super::schedule::Schedule;
use super::stop::{Gate, Place};
use super::{causes, socket};
use crate::events::{Cause, How, Kind};
use crate::units::Offset;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use socket2::{SockRef, Socket};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// What is written at a time to a peer that does not read.
const FILLER_BYTES: usize = 16 * 1024;
/// The send buffer behind it; the kernel doubles it for its own needs.
const SEND_BUFFER_BYTES: usize = 96 * 1024;

/// The message number and the schedule, which outlive a connection.
struct Load {
    next: u64,
    schedule: Option<Schedule>,
}

/// Lives until the trial is closed.
pub(super) fn run(trial: &Trial, gate: &Gate) {
    let schedule = trial.load_interval.map(|every| Schedule::staggered(trial.reporter.now(), every, trial.id));
    let mut load = Load { next: 0, schedule };
    trial.run_blocking(gate, |attempt, place| attempt_once(trial, attempt, place, &mut load));
}

fn attempt_once(trial: &Trial, attempt: u32, place: &mut Option<Place<'_>>, load: &mut Load) -> End {
    let failed =
        |error: io::Error| End::Failed { at: trial.reporter.now(), cause: causes::of_io(&error, How::ConnectTimeout) };
    let started = trial.reporter.now();
    let mut stream = match socket::connect(trial.target.server, &trial.settings) {
        Ok(stream) => stream,
        Err(error) => return failed(error),
    };
    if let Err(error) = greet(trial, attempt, &mut stream, started) {
        return failed(error);
    }
    place.take();
    trial.event(Kind::Ready { attempt });
    if !trial.settings.peer_reads {
        trial.stop.wait_to_fill();
    }
    let (at, cause) = write_until_it_ends(trial, attempt, &mut stream, load);
    End::Noticed { at, cause }
}

fn greet(trial: &Trial, attempt: u32, stream: &mut Socket, started: Offset) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    trial.connected(trial.reporter.now(), attempt, socket::tuple_of(SockRef::from(&*stream))?);
    trial.event(Kind::Options { attempt, effective: socket::effective(SockRef::from(&*stream)) });
    if !trial.settings.peer_reads {
        // Larger than the window that a peer offers at first, so that it is filled without waiting for acknowledgements in
        // between; fixed, so that it does not grow to megabytes.
        stream.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    }
    let role = if trial.settings.peer_reads { 'W' } else { 'Z' };
    stream.write_all(format!("{role} {}\n", trial.id).as_bytes())?;
    let mut answer = [0; 3];
    let mut have = 0;
    while have < answer.len() {
        let left = match trial.settings.connect_timeout.get() {
            Some(limit) => {
                let left = limit.checked_sub(trial.reporter.now().since(started));
                Some(left.filter(|left| !left.is_zero()).ok_or(io::ErrorKind::TimedOut)?)
            }
            None => None,
        };
        wait(stream, left, false)?;
        match stream.read(&mut answer[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => have += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if &answer == b"ok\n" { Ok(()) } else { Err(io::Error::other("the peer did not answer the greeting")) }
}

/// Sleeps until the socket has something to say, or for `at_most`.
fn wait(stream: &Socket, at_most: Option<Duration>, writable: bool) -> io::Result<PollFlags> {
    let mut flags = PollFlags::POLLIN;
    flags.set(PollFlags::POLLOUT, writable);
    let mut fds = [PollFd::new(stream.as_fd(), flags)];
    match ppoll(&mut fds, at_most.map(Into::into), None) {
        Ok(_) => Ok(fds[0].revents().unwrap_or(PollFlags::empty())),
        Err(Errno::EINTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno.into()),
    }
}

fn write_until_it_ends(trial: &Trial, attempt: u32, stream: &mut Socket, load: &mut Load) -> (Offset, Cause) {
    let notice = |error: &io::Error| (trial.reporter.now(), causes::of_io(error, How::Other));
    // What a full send buffer has not taken yet.
    let mut rest: Vec<u8> = Vec::new();
    if let Some(schedule) = &mut load.schedule {
        schedule.skip_missed(trial.reporter.now());
    }
    loop {
        let now = trial.reporter.now();
        let left = load.schedule.map(|schedule| schedule.wait(now)).filter(|_| rest.is_empty());
        match wait(stream, left, !rest.is_empty() || !trial.settings.peer_reads) {
            Ok(flags) if flags.intersects(PollFlags::POLLIN | PollFlags::POLLERR | PollFlags::POLLHUP) => {
                if let Some(end) = what_happened(trial, stream) {
                    return end;
                }
            }
            Ok(_) => {}
            Err(error) => return notice(&error),
        }
        let now = trial.reporter.now();
        if let Some(schedule) = load.schedule.as_mut().filter(|schedule| rest.is_empty() && schedule.is_due(now)) {
            rest = format!("{}\n", load.next).into_bytes();
            schedule.skip_missed(now);
            if schedule.is_due(now) {
                schedule.advance();
            }
        }
        if !trial.settings.peer_reads {
            match stream.write(&[b'\n'; FILLER_BYTES]) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return notice(&error),
            }
            continue;
        }
        if rest.is_empty() {
            continue;
        }
        // Before the call: the segment leaves during it.
        let at = trial.reporter.now();
        match stream.write(&rest) {
            Ok(length) => {
                rest.drain(..length);
                if rest.is_empty() {
                    trial.event_at(at, Kind::Sent { attempt, message: load.next });
                    load.next += 1;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return notice(&error),
        }
    }
}

/// The error, the end of file, or nothing (the peer said something, which a writer has no use for).
fn what_happened(trial: &Trial, stream: &mut Socket) -> Option<(Offset, Cause)> {
    let mut buffer = [0; 512];
    let result = stream.read(&mut buffer);
    let at = trial.reporter.now();
    match result {
        Ok(0) => Some((at, causes::eof())),
        Ok(_) => None,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
        Err(error) => Some((at, causes::of_io(&error, How::Other))),
    }
}
