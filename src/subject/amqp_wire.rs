//! A blocking AMQP connection as py-amqp reads and writes it.
//!
//! A read returns with a whole message or a method; heartbeats and parts of messages only count as received, so that
//! whoever waits here does not get to run for them (`drain_events` in py-amqp's `connection.py`). `SO_RCVTIMEO` ends a
//! read that has got less than a frame's header; after the header py-amqp reads on for as long as it takes (`_read` in
//! `transport.py`).
//!
//! Behind TLS py-amqp reads otherwise. Its socket keeps the connect timeout, which was meant for the handshake, as a timeout of
//! its own (`SSLTransport._setup_transport`): it is non-blocking from then on, each read and each write waits in `poll` for so
//! long and no longer, in the middle of a frame too, and `SO_RCVTIMEO` does nothing. Without a connect timeout Python's `ssl`
//! reads on through every `EAGAIN`, and nothing bounds it. Left out: what the arrivals mean, which is the consumer's.

use super::amqp_frames::{Decoder, Malformed, encode};
use super::causes;
use super::report::Reporter;
use super::tls::Records;
use crate::events::{Cause, How};
use crate::units::Offset;
use amq_protocol::frame::AMQPFrame;
use amq_protocol::protocol::{AMQPClass, basic, channel, connection};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use socket2::Socket;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// The one channel.
pub(super) const CHANNEL: u16 = 1;

/// How the connection, or a call on it, came to an end.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// The socket's own error; `EAGAIN` is a timeout.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Bytes that are no frames.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// The broker closed connection, channel or consumer, in its words.
    #[error("{0}")]
    Closed(String),
    /// A frame that nobody waits for.
    #[error("unexpected: {0}")]
    Unexpected(String),
}

impl Failure {
    /// The evidence. `eagain` says what an `EAGAIN` means where it happened.
    pub fn cause(&self, eagain: How) -> Cause {
        match self {
            Self::Io(error) => causes::of_io(error, eagain),
            Self::Closed(text) => causes::cause(How::ClosedByPeer, None, text.clone()),
            Self::Malformed(_) | Self::Unexpected(_) => causes::cause(How::Other, None, self.to_string()),
        }
    }
}

/// The sending half and the counts, which a heartbeat thread shares.
#[derive(Debug)]
pub(super) struct Line {
    socket: Mutex<Socket>,
    sent: AtomicU64,
    received: AtomicU64,
    /// Where the connection is encrypted.
    tls: Option<Records>,
    /// How long each read and write waits, where the socket has a timeout of its own.
    waits: OnceLock<Duration>,
}

impl Line {
    /// Frames sent and received so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Acquire), self.received.load(Ordering::Acquire))
    }

    /// Sends a frame, waiting for room where the send buffer is full.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&self, frame: &AMQPFrame) -> Result<(), Failure> {
        let bytes = encode(frame).map_err(Failure::Unexpected)?;
        self.write(&bytes)?;
        self.sent.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Writes bytes, in records where there are such, and what the records' own protocol has to say.
    fn write(&self, plain: &[u8]) -> io::Result<()> {
        // Held from the sealing on: records have an order.
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let sealed;
        let mut rest = match &self.tls {
            None => plain,
            Some(tls) => {
                sealed = tls.seal(plain)?;
                &sealed
            }
        };
        let Some(limit) = self.waits.get() else { return socket.write_all(rest) };
        while !rest.is_empty() {
            match socket.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&*socket, PollFlags::POLLOUT, *limit)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits until the socket is ready.
///
/// # Errors
/// `EAGAIN` when the time is over.
fn wait(socket: &impl AsFd, what: PollFlags, limit: Duration) -> io::Result<()> {
    match ppoll(&mut [PollFd::new(socket.as_fd(), what)], Some(limit.into()), None) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What a read returns with.
#[derive(Debug, PartialEq)]
pub(super) enum Arrival {
    /// A whole message.
    Message {
        /// To acknowledge it by.
        tag: u64,
        /// Whether the broker marked it as delivered before.
        redelivered: bool,
        /// Its payload.
        body: Vec<u8>,
    },
    /// A method that is no delivery.
    Method(AMQPClass),
}

/// A delivery of which not everything has arrived.
#[derive(Debug)]
struct Partial {
    deliver: basic::Deliver,
    /// Bytes that are missing; none before the content header.
    missing: Option<u64>,
    body: Vec<u8>,
}

/// The receiving half.
pub(super) struct Wire {
    socket: Socket,
    line: Arc<Line>,
    decoder: Decoder,
    partial: Option<Partial>,
    reporter: Reporter,
    /// Until the handshake is done: when it has to be.
    deadline: Option<Offset>,
    /// The broker has said in the records' own protocol that nothing more comes.
    over: bool,
}

impl Wire {
    /// Over a connected blocking socket. `deadline` bounds all reads until [`Wire::read_for_ever`].
    ///
    /// # Errors
    /// When the socket can't be duplicated.
    pub fn new(
        socket: Socket,
        frame_max: u32,
        reporter: Reporter,
        deadline: Option<Offset>,
        tls: Option<Records>,
    ) -> io::Result<Self> {
        let line = Line {
            socket: Mutex::new(socket.try_clone()?),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            tls,
            waits: OnceLock::new(),
        };
        let decoder = Decoder::new(frame_max);
        Ok(Self { socket, line: Arc::new(line), decoder, partial: None, reporter, deadline, over: false })
    }

    /// The handshake of TLS, where the connection is encrypted.
    ///
    /// # Errors
    /// The socket's, or what is wrong with the broker's certificate.
    pub fn encrypt(&mut self) -> Result<(), Failure> {
        while self.line.tls.as_ref().is_some_and(Records::shakes_hands) {
            self.line.write(&[])?;
            self.receive()?;
        }
        // The last word of the handshake is the client's.
        if self.line.tls.is_some() { Ok(self.line.write(&[])?) } else { Ok(()) }
    }

    /// The sending half.
    pub fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// The socket, to look at.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The frame size that was agreed on.
    pub fn limit(&mut self, frame_max: u32) {
        self.decoder.limit(frame_max);
    }

    /// The handshake is done: from here on `SO_RCVTIMEO` bounds the reads, or nothing; behind TLS the connect timeout does.
    ///
    /// # Errors
    /// The kernel's, for a value out of its range.
    pub fn read_for_ever(
        &mut self,
        read_timeout: Option<Duration>,
        connect_timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.deadline = None;
        self.socket.set_read_timeout(read_timeout)?;
        if let Some(limit) = connect_timeout.filter(|_| self.line.tls.is_some()) {
            self.socket.set_nonblocking(true)?;
            // Set once, here.
            let _ = self.line.waits.set(limit);
        }
        Ok(())
    }

    /// Sends a method on the channel (0 for those of the connection).
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&self, method: AMQPClass) -> Result<(), Failure> {
        let id = if matches!(method, AMQPClass::Connection(_)) { 0 } else { CHANNEL };
        self.line.send(&AMQPFrame::Method(id, method))
    }

    /// Waits for a message or a method.
    ///
    /// # Errors
    /// The end of the connection; `EAGAIN` when `SO_RCVTIMEO` ran out.
    pub fn next(&mut self) -> Result<Arrival, Failure> {
        loop {
            if let Some(arrival) = self.buffered()? {
                return Ok(arrival);
            }
            self.receive()?;
        }
    }

    /// A message or method that is here already.
    ///
    /// # Errors
    /// What the bytes say about the end of the connection.
    pub fn buffered(&mut self) -> Result<Option<Arrival>, Failure> {
        while let Some(frame) = self.decoder.next()? {
            self.line.received.fetch_add(1, Ordering::Release);
            if let Some(arrival) = self.take(frame)? {
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    /// One `recv`, as long as it takes.
    ///
    /// # Errors
    /// The socket's; the end of the stream is `UnexpectedEof`.
    pub fn receive(&mut self) -> Result<(), Failure> {
        if let Some(deadline) = self.deadline {
            let left = deadline.since(self.reporter.now());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            self.socket.set_read_timeout(Some(left))?;
        }
        if self.over {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some(limit) = self.line.waits.get() {
            wait(&self.socket, PollFlags::POLLIN, *limit)?;
        }
        let mut buffer = [0; 8192];
        match self.socket.read(&mut buffer) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(length) => self.take_in(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && self.reads_on() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a read that timed out is simply begun again.
    fn reads_on(&self) -> bool {
        self.deadline.is_none() && (self.line.tls.is_some() || self.decoder.inside_a_frame())
    }

    /// What came over the wire.
    fn take_in(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let line = self.line.clone();
        let Some(tls) = &line.tls else {
            self.decoder.feed(bytes);
            return Ok(());
        };
        let opened = tls.open(bytes);
        // An alert, or an answer to the broker's records; whatever was wrong is told all the same.
        let answered = line.write(&[]);
        let (plain, over) = opened?;
        answered?;
        self.decoder.feed(&plain);
        self.over = over;
        if over && plain.is_empty() { self.receive() } else { Ok(()) }
    }

    fn take(&mut self, frame: AMQPFrame) -> Result<Option<Arrival>, Failure> {
        match (frame, self.partial.take()) {
            (AMQPFrame::Heartbeat | AMQPFrame::InvalidHeartbeat(_), partial) => {
                self.partial = partial;
                Ok(None)
            }
            (AMQPFrame::Method(_, AMQPClass::Basic(basic::AMQPMethod::Deliver(deliver))), None) => {
                self.partial = Some(Partial { deliver, missing: None, body: Vec::new() });
                Ok(None)
            }
            (AMQPFrame::Method(_, method), None) => self.method(method).map(Some),
            (AMQPFrame::Header(_, header), Some(partial @ Partial { missing: None, .. })) => {
                Ok(self.complete(Partial { missing: Some(header.body_size), ..partial }))
            }
            (AMQPFrame::Body(_, bytes), Some(Partial { deliver, missing: Some(missing), mut body })) => {
                let missing = u64::try_from(bytes.len()).ok().and_then(|length| missing.checked_sub(length));
                let Some(missing) = missing else {
                    return Err(Failure::Unexpected("a message longer than its header says".into()));
                };
                body.extend_from_slice(&bytes);
                Ok(self.complete(Partial { deliver, missing: Some(missing), body }))
            }
            (frame, _) => Err(Failure::Unexpected(frame.to_string())),
        }
    }

    /// The message, when nothing is missing any more.
    fn complete(&mut self, partial: Partial) -> Option<Arrival> {
        if partial.missing != Some(0) {
            self.partial = Some(partial);
            return None;
        }
        let Partial { deliver, body, .. } = partial;
        Some(Arrival::Message { tag: deliver.delivery_tag, redelivered: deliver.redelivered, body })
    }

    /// The broker's own good-byes are errors here, answered as the protocol asks.
    fn method(&self, method: AMQPClass) -> Result<Arrival, Failure> {
        let closed = |code: u16, text: &dyn std::fmt::Display| Failure::Closed(format!("{code} {text}"));
        match method {
            AMQPClass::Connection(connection::AMQPMethod::Close(close)) => {
                let answer = connection::AMQPMethod::CloseOk(connection::CloseOk {});
                // The broker may be gone already; its word is what counts.
                let _ = self.send(AMQPClass::Connection(answer));
                Err(closed(close.reply_code, &close.reply_text))
            }
            AMQPClass::Channel(channel::AMQPMethod::Close(close)) => {
                let _ = self.send(AMQPClass::Channel(channel::AMQPMethod::CloseOk(channel::CloseOk {})));
                Err(closed(close.reply_code, &close.reply_text))
            }
            AMQPClass::Basic(basic::AMQPMethod::Cancel(_)) => {
                Err(Failure::Closed("the consumer was cancelled".to_string()))
            }
            method => Ok(Arrival::Method(method)),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
#[path = "amqp_wire_tests.rs"]
mod tests;
