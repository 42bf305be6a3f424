//! Starts and stops the observers' threads, and says which source each observation comes from.

use super::Message;
use super::heard::Pairs;
use super::looks::Told;
use super::owned::Owned;
use super::registry::Registry;
use super::watch::Watch;
use crate::events::{Event, Kind, Tuple};
use crate::host::clock::Clock;
use crate::host::mailbox::{Receiver, Sender, mailbox};
use crate::lab::{Broker, Lab};
use crate::observe::broker_log::LogWatch;
use crate::observe::redis_clients::ClientsWatch;
use crate::observe::{Door, SockDiag, Traces};
use crate::scenario::BrokerKind;
use crate::units::Pace;
use std::io::{self, PipeWriter};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks at Redis' client list, by the time since it last changed.
const CLIENT_LIST: Pace = Pace::new(Duration::from_millis(200), 50);

/// Who is listened to, and who can't be.
pub struct Roles {
    /// What is heard at the broker's door, where there is somebody to hear.
    pub door: Option<(io::Result<Door>, Pairs)>,
    /// Clients whose traffic can't be read: their broker is asked.
    pub unread: Pairs,
}

/// The running observers.
pub struct Observers {
    /// Dropped, it ends the looks at sockets.
    told: Option<Sender<Told>>,
    /// Dropped, they end the trace and what is like it.
    ends: Vec<PipeWriter>,
    threads: Vec<JoinHandle<()>>,
    logs: Vec<LogWatch>,
    clients: Vec<ClientsWatch>,
    sources: Vec<String>,
    /// Clients whose traffic can't be read.
    unread: Pairs,
    /// Tells that one of them has made a connection; dropped, it ends the questions.
    made: Option<Sender<()>>,
}

impl Observers {
    /// Starts everything that this machine allows.
    ///
    /// # Errors
    /// When a thread can't be started; a source that can't be had is no error but named in [`Self::sources`].
    pub fn start(
        clock: Clock,
        registry: &Registry,
        events: &Sender<Message>,
        lab: &Lab,
        sockets: Vec<SockDiag>,
        outside: Owned,
        roles: Roles,
    ) -> io::Result<Self> {
        let (told, news) = mailbox();
        let (end, trace) = std::io::pipe()?;
        let watch = Watch { clock, registry: registry.clone(), events: events.clone() };
        let mut this = Self {
            told: Some(told),
            ends: vec![trace],
            threads: Vec::new(),
            logs: Vec::new(),
            clients: Vec::new(),
            sources: Vec::new(),
            unread: roles.unread,
            made: None,
        };
        let traced = match Traces::open(clock) {
            Ok(traces) => {
                let watch = watch.clone();
                this.thread("tracepoints", move || watch.trace(traces, &end, outside))?;
                this.sources.push("kernel_end: tracepoint".into());
                true
            }
            Err(why) => {
                let how = "sock_diag, at the instant at which a timer is due, and else between two looks that are 20 ms or \
                           2 % of the time since the cut apart; without the kernel's error number";
                this.sources.push(format!("kernel_end: {how} (no tracepoints: {why})"));
                if !outside.is_empty() {
                    let watch = watch.clone();
                    this.thread("outside", move || watch.poll_outside(outside, &end))?;
                    this.sources.push(
                        "clients' sockets: sock_diag every 20 to 250 ms: what an attempt that is refused at once was, and why the \
                         kernel ended a connection, is not known"
                            .into(),
                    );
                }
                false
            }
        };
        if let Some((door, pairs)) = roles.door {
            this.door(&watch, door, pairs)?;
        }
        this.thread("sock_diag", move || watch.sockets(sockets, !traced, &news))?;
        this.brokers(clock, registry, events, lab)?;
        Ok(this)
    }

    /// Listens to the clients from outside at their broker's door.
    fn door(&mut self, watch: &Watch, door: io::Result<Door>, pairs: Pairs) -> io::Result<()> {
        match door {
            Ok(door) => {
                let (end, writer) = std::io::pipe()?;
                self.ends.push(writer);
                let watch = watch.clone();
                self.thread("door", move || watch.listen(door, &pairs, &end))?;
                self.sources.push("role: what each client sends, heard at the broker's door".into());
            }
            // The first connection that is there when a client says that it consumes stands for the consumer's.
            Err(why) => self.sources.push(format!("role: not known (no packet socket: {why})")),
        }
        Ok(())
    }

    fn brokers(&mut self, clock: Clock, registry: &Registry, events: &Sender<Message>, lab: &Lab) -> io::Result<()> {
        let (sender, ends) = mailbox();
        let unread = |kind: BrokerKind| self.unread.values().any(|client| client.broker == kind);
        let (on_rabbitmq, on_redis) = (unread(BrokerKind::Rabbitmq), unread(BrokerKind::Redis));
        if let Some(tables) = lab.broker(BrokerKind::Rabbitmq).and_then(Broker::tables).filter(|_| on_rabbitmq) {
            let (watch, unread) =
                (Watch { clock, registry: registry.clone(), events: events.clone() }, self.unread.clone());
            let (made, news) = mailbox();
            self.made = Some(made);
            self.thread("tables", move || watch.ask_tables(&tables, &unread, &news))?;
            self.sources.push(
                "role where the traffic can't be read: RabbitMQ's consumers, by rabbitmqctl after each new connection"
                    .into(),
            );
        }
        if on_redis {
            self.sources.push("role where the traffic can't be read: Redis' CLIENT LIST, the last command and the kind of each client".into());
        }
        for broker in &lab.brokers {
            match broker.kind {
                BrokerKind::Rabbitmq => {
                    self.logs.push(LogWatch::start(&broker.log, clock, sender.clone())?);
                    self.sources.push("broker_end of rabbitmq: its log".into());
                }
                BrokerKind::Redis => {
                    let (ns, login) = (&lab.producer, &broker.password);
                    let sender = sender.clone();
                    self.clients.push(ClientsWatch::start(ns, broker.admin(), login, CLIENT_LIST, clock, sender)?);
                    self.sources.push(
                        "broker_end of redis: CLIENT LIST every 200 ms, or every 2 % of the time without a change"
                            .into(),
                    );
                }
                BrokerKind::None => {}
            }
        }
        let (registry, events, unread) = (registry.clone(), events.clone(), self.unread.clone());
        self.thread("brokers", move || name_trials(ends, &registry, &unread, &events))
    }

    fn thread(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// Tells what the sockets may show.
    pub fn tell(&self, told: Told) {
        if let Some(sender) = &self.told {
            // The thread ends before its time only by a panic, which `stop` reports.
            let _ = sender.send(told);
        }
    }

    /// A connection was made: one that nobody can read is asked after.
    pub fn made(&self, tuple: Tuple) {
        if let Some(made) =
            self.made.as_ref().filter(|_| self.unread.contains_key(&(*tuple.local.ip(), *tuple.peer.ip())))
        {
            // The thread ends before its time only by a panic, which `stop` reports.
            let _ = made.send(());
        }
    }

    /// Which observation comes from where.
    pub fn sources(&self) -> Vec<String> {
        self.sources.clone()
    }

    /// Tells all threads to end and waits for them.
    ///
    /// # Errors
    /// What could no longer be observed: ends after that moment may be missing.
    pub fn stop(&mut self) -> Vec<io::Error> {
        (self.told, self.made) = (None, None);
        self.ends.clear();
        let mut errors: Vec<io::Error> = self.logs.drain(..).filter_map(|w| w.stop().err()).collect();
        errors.extend(self.clients.drain(..).filter_map(|w| w.stop().err()));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                errors.push(io::Error::other("a thread that observes panicked"));
            }
        }
        errors
    }
}

/// The brokers know connections by name only; the trial is added on the way. What they say of a client that can be read is not
/// needed.
fn name_trials(ends: Receiver<Event>, registry: &Registry, unread: &Pairs, events: &Sender<Message>) {
    for mut event in ends {
        match &mut event.kind {
            Kind::BrokerEnd { tuple, .. } => {
                *tuple = registry.client_of(*tuple);
                event.trial = registry.get(tuple).map(|known| known.trial);
            }
            Kind::Role { tuple, .. } => {
                *tuple = registry.client_of(*tuple);
                event.trial = unread.get(&(*tuple.local.ip(), *tuple.peer.ip())).map(|client| client.trial);
            }
            _ => {}
        }
        // What is not a trial's connection (the producer's, the harness's own) tells nothing about the trials.
        if event.trial.is_some() && events.send(Message::Event(event)).is_err() {
            return;
        }
    }
}
