//! A consumer that blocks in `recv`, as py-amqp does, on RabbitMQ.
//!
//! One thread a connection: it waits for a message, works on it, acknowledges it and waits again. Heartbeats are ticked
//! by a thread of their own, or by the same thread, which gets to run only when a message or a method arrives. With a
//! synchronous call the thread polls until the harness' word, as Celery's event loop does, then calls `basic.qos` and
//! blocks until its reply.

use super::amqp::{FRAME_MAX, whole_seconds};
use super::amqp_handshake::{Agreed, Wishes, is_qos_ok, qos, shake_hands};
use super::amqp_heartbeat::Heartbeat;
use super::amqp_ticker::{Ticker, missed};
use super::amqp_wire::{Arrival, Failure, Wire};
use super::attempts::{End, Trial};
use super::stop::{Gate, Place};
use super::{socket, tls};
use crate::events::{Cause, EffectiveOptions, How, Kind};
use crate::scenario::{Ack, HeartbeatThread, SyncCall};
use crate::units::Offset;
use amq_protocol::frame::AMQPFrame;
use amq_protocol::protocol::{AMQPClass, basic};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use socket2::SockRef;
use std::os::fd::AsFd;

/// Lives until the trial is closed.
pub(super) fn run(trial: &Trial, gate: &Gate) {
    trial.run_blocking(gate, |attempt, place| attempt_once(trial, attempt, place));
}

fn attempt_once(trial: &Trial, attempt: u32, place: &mut Option<Place<'_>>) -> End {
    let opened = open(trial, attempt);
    let mut consumer = match opened {
        Ok(consumer) => consumer,
        Err(failure) => return End::Failed { at: trial.reporter.now(), cause: failure.cause(How::ConnectTimeout) },
    };
    place.take();
    trial.event(Kind::Ready { attempt });
    let (at, cause) = consumer.consume();
    End::Noticed { at, cause }
}

/// TCP and AMQP handshake, both under the connect timeout, then the arm's own read timeout.
fn open(trial: &Trial, attempt: u32) -> Result<Consumer<'_>, Failure> {
    let settings = &trial.settings;
    // py-amqp's connect timeout begins after the name has been looked up.
    let server = trial.target.look_up()?;
    let started = trial.reporter.now();
    let socket = socket::connect(server, settings)?;
    trial.connected(trial.reporter.now(), attempt, socket::tuple_of(SockRef::from(&socket))?);
    let frame_max = settings.frame_max.unwrap_or(FRAME_MAX);
    let deadline = settings.connect_timeout.get().map(|limit| started + limit);
    let encrypted = trial.target.ca_file.as_deref();
    let records = encrypted.map(|ca| tls::Records::new(ca, tls::name_of(&trial.target)?)).transpose()?;
    let mut wire = Wire::new(socket, frame_max, trial.reporter.clone(), deadline, records)?;
    wire.encrypt()?;
    let wishes = Wishes {
        user: &trial.target.user,
        password: &trial.target.password,
        name: format!("halfopen trial {} attempt {attempt}", trial.id),
        heartbeat_s: settings.heartbeat.and_then(crate::units::Setting::get).map_or(0, whole_seconds),
        frame_max,
        queue: &trial.target.queue,
        durable: trial.target.durable,
        tag: format!("trial-{}", trial.id),
        prefetch: settings.prefetch,
    };
    let Agreed { heartbeat_s, frame_max } = shake_hands(&mut wire, &wishes)?;
    wire.read_for_ever(settings.read_timeout.get(), settings.connect_timeout.get())?;
    let effective = EffectiveOptions {
        heartbeat_s: Some(heartbeat_s.into()),
        frame_max: Some(frame_max),
        prefetch: settings.prefetch,
        ..socket::effective(SockRef::from(wire.socket()))
    };
    trial.event(Kind::Options { attempt, effective });
    let mut heartbeat = Heartbeat::start(heartbeat_s, trial.reporter.now());
    let mut ticker = None;
    if settings.heartbeat_thread == Some(HeartbeatThread::Own)
        && let Some(heartbeat) = heartbeat.take()
    {
        ticker = Some(Ticker::start(heartbeat, wire.line().clone(), wire.socket(), trial.reporter.clone())?);
    }
    // The call is made on the connection under test; a reconnect only consumes.
    let call = settings.sync_call.filter(|_| attempt == 0);
    if call.is_some() {
        trial.stop.listen_for_call()?;
    }
    Ok(Consumer { trial, attempt, wire, heartbeat, ticker, polls: settings.sync_call.is_some(), call })
}

/// A subscribed connection.
struct Consumer<'t> {
    trial: &'t Trial,
    attempt: u32,
    wire: Wire,
    /// Ticked by this thread.
    heartbeat: Option<Heartbeat>,
    /// Ticked by another one.
    ticker: Option<Ticker>,
    /// Waits in `poll`, as an event loop does; only a synchronous call blocks in a read.
    polls: bool,
    /// The synchronous call that is still to be made.
    call: Option<SyncCall>,
}

/// Why the loop ended: the connection did, or this thread's own tick gave it up.
enum Over {
    Failed(Failure),
    Missed(Offset),
}

impl From<Failure> for Over {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Consumer<'_> {
    fn consume(&mut self) -> (Offset, Cause) {
        let over = loop {
            let turn = if self.polls { self.turn_of_the_event_loop() } else { self.turn() };
            if let Err(over) = turn {
                break over;
            }
        };
        let at = self.trial.reporter.now();
        let failure = match over {
            Over::Missed(at) => return (at, missed()),
            Over::Failed(failure) => failure,
        };
        let cause = failure.cause(How::ReadTimeout);
        // The heartbeat's thread shuts the socket down, or reads the socket's error before this one can.
        let told = self.ticker.as_ref().and_then(Ticker::verdict).filter(|_| cause.how == How::Eof);
        told.unwrap_or((at, cause))
    }

    /// Blocks until something arrives, deals with it, and ticks.
    fn turn(&mut self) -> Result<(), Over> {
        let arrival = self.wire.next()?;
        self.deal_with(arrival)?;
        self.tick()
    }

    /// As Celery's event loop: sleeps in `poll` until something arrives, a tick is due or the call is to be made.
    fn turn_of_the_event_loop(&mut self) -> Result<(), Over> {
        while let Some(arrival) = self.wire.buffered()? {
            self.deal_with(arrival)?;
        }
        let now = self.trial.reporter.now();
        let due = self.heartbeat.as_ref().map(|heartbeat| heartbeat.due().since(now));
        let word = self.call.and_then(|_| self.trial.stop.on_call());
        let mut fds = vec![PollFd::new(self.wire.as_fd(), PollFlags::POLLIN)];
        fds.extend(word.map(|word| PollFd::new(word, PollFlags::POLLIN)));
        match ppoll(&mut fds, due.map(Into::into), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Failure::Io(errno.into()).into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if ready.first() == Some(&true) {
            self.wire.receive()?;
        }
        let due = self.heartbeat.as_ref().is_some_and(|heartbeat| self.trial.reporter.now() >= heartbeat.due());
        if due {
            self.tick()?;
        }
        match self.call.filter(|_| ready.get(1) == Some(&true)) {
            Some(SyncCall::BasicQos) => self.call_qos(),
            None => Ok(()),
        }
    }

    /// `basic.qos`, whose reply is waited for in `recv`. Messages that come first are dealt with, as py-amqp does.
    fn call_qos(&mut self) -> Result<(), Over> {
        self.call = None;
        // Before the call: the segment leaves during it.
        self.trial.event(Kind::Called { attempt: self.attempt, method: "basic.qos".to_string() });
        self.wire.send(qos(self.trial.settings.prefetch.unwrap_or(0)))?;
        loop {
            match self.wire.next()? {
                Arrival::Method(method) if is_qos_ok(&method).is_some() => return self.tick(),
                arrival => self.deal_with(arrival)?,
            }
        }
    }

    fn tick(&mut self) -> Result<(), Over> {
        let Some(heartbeat) = &mut self.heartbeat else { return Ok(()) };
        let now = self.trial.reporter.now();
        let (sent, received) = self.wire.line().counts();
        let tick = heartbeat.tick(now, sent, received);
        if tick.send {
            self.wire.line().send(&AMQPFrame::Heartbeat)?;
        }
        if tick.expired { Err(Over::Missed(now)) } else { Ok(()) }
    }

    /// Reports a message, works on it and acknowledges it, one after the other: nothing else happens meanwhile.
    fn deal_with(&mut self, arrival: Arrival) -> Result<(), Failure> {
        let at = self.trial.reporter.now();
        // Methods that nobody asked for (`connection.blocked`) change nothing here.
        let Arrival::Message { tag, redelivered, body } = arrival else { return Ok(()) };
        let Some(message) = std::str::from_utf8(&body).ok().and_then(|text| text.parse().ok()) else {
            self.trial.reporter.note(format!("trial {}: a payload that is no number", self.trial.id));
            return Ok(());
        };
        let attempt = self.attempt;
        self.trial.event_at(at, Kind::Delivered { attempt, message, redelivered });
        let late = self.trial.settings.ack.unwrap_or(Ack::Late) == Ack::Late;
        let (before, after) = self.trial.work(message);
        if !late {
            self.acknowledge(tag, message)?;
        }
        // A task that its reaper has failed meanwhile is not worked on, only taken out of the queue.
        if self.trial.begin_work(attempt, message) {
            if self.trial.stop.wait(before) || !self.trial.make_effect(attempt, message) || self.trial.stop.wait(after)
            {
                return Ok(());
            }
            self.trial.finish_work(attempt, message);
        }
        if late { self.acknowledge(tag, message) } else { Ok(()) }
    }

    fn acknowledge(&mut self, tag: u64, message: u64) -> Result<(), Failure> {
        let ack = basic::Ack { delivery_tag: tag, multiple: false };
        self.wire.send(AMQPClass::Basic(basic::AMQPMethod::Ack(ack)))?;
        self.trial.event(Kind::Acked { attempt: self.attempt, message });
        Ok(())
    }
}
