//! A bare TCP connection that only reads: one thread, truly blocking `recv`, so that `SO_RCVTIMEO` is what bounds it.

use super::attempts::{End, Trial};
use super::stop::{Gate, Place};
use super::{causes, socket};
use crate::events::{Cause, How, Kind};
use crate::units::Offset;
use socket2::{SockRef, Socket};
use std::io::{self, Read, Write};

/// Lives until the trial is closed.
pub(super) fn run(trial: &Trial, gate: &Gate) {
    trial.run_blocking(gate, |attempt, place| attempt_once(trial, attempt, place));
}

fn attempt_once(trial: &Trial, attempt: u32, place: &mut Option<Place<'_>>) -> End {
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
    let (at, cause) = read_until_it_ends(trial, attempt, &mut stream);
    End::Noticed { at, cause }
}

/// The greeting under what is left of the connect timeout, then the arm's own read timeout.
fn greet(trial: &Trial, attempt: u32, stream: &mut Socket, started: Offset) -> io::Result<()> {
    let now = trial.reporter.now();
    trial.connected(now, attempt, socket::tuple_of(SockRef::from(&*stream))?);
    if let Some(limit) = trial.settings.connect_timeout.get() {
        let left = limit.checked_sub(now.since(started)).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
    }
    let interval_us = trial.load_interval.map_or(0, |interval| interval.as_micros());
    stream.write_all(format!("R {} {interval_us}\n", trial.id).as_bytes())?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    if &answer != b"ok\n" {
        return Err(io::Error::other("the peer did not answer the greeting"));
    }
    stream.set_read_timeout(trial.settings.read_timeout.get())?;
    trial.event(Kind::Options { attempt, effective: socket::effective(SockRef::from(&*stream)) });
    Ok(())
}

fn read_until_it_ends(trial: &Trial, attempt: u32, stream: &mut Socket) -> (Offset, Cause) {
    let mut buffer = [0; 4096];
    let mut number = Lines::default();
    loop {
        let result = stream.read(&mut buffer);
        let at = trial.reporter.now();
        match result {
            Ok(0) => return (at, causes::eof()),
            Ok(length) => number.feed(&buffer[..length], |message| {
                trial.event_at(at, Kind::Delivered { attempt, message, redelivered: false });
            }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (at, causes::of_io(&error, How::ReadTimeout)),
        }
    }
}

/// Decimal numbers, one a line, however the segments cut them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    part: Option<u64>,
}

impl Lines {
    /// Takes bytes as they come and hands out each number at the end of its line. Other bytes are skipped.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(u64)) {
        for byte in bytes {
            match byte {
                b'0'..=b'9' => {
                    let digit = u64::from(byte - b'0');
                    self.part = Some(self.part.unwrap_or(0).wrapping_mul(10).wrapping_add(digit));
                }
                b'\n' => {
                    if let Some(number) = self.part.take() {
                        take(number);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_being_cut_into_segments() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for segment in ["0\n1", "2\n", "", "\n3", "4", "\n5"] {
            lines.feed(segment.as_bytes(), |number| seen.push(number));
        }
        assert_eq!(seen, [0, 12, 34]);
    }
}
