//! Starts and stops the observers' threads, and says which source each observation comes from.

use super::Message;
use super::heard::Pairs;
use super::looks::Told;
use super::owned::Owned;
use super::registry::Registry;
use super::watch::Watch;
use crate::events::Event;
use crate::host::clock::Clock;
use crate::host::mailbox::{Receiver, Sender, mailbox};
use crate::lab::Lab;
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
        ear: Option<(io::Result<Door>, Pairs)>,
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
        if let Some((door, pairs)) = ear {
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
        let (registry, events) = (registry.clone(), events.clone());
        self.thread("brokers", move || name_trials(ends, &registry, &events))
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

    /// Which observation comes from where.
    pub fn sources(&self) -> Vec<String> {
        self.sources.clone()
    }

    /// Tells all threads to end and waits for them.
    ///
    /// # Errors
    /// What could no longer be observed: ends after that moment may be missing.
    pub fn stop(&mut self) -> Vec<io::Error> {
        self.told = None;
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

/// The brokers know connections by name only; the trial is added on the way.
fn name_trials(ends: Receiver<Event>, registry: &Registry, events: &Sender<Message>) {
    for mut event in ends {
        if let crate::events::Kind::BrokerEnd { tuple, .. } = &mut event.kind {
            *tuple = registry.client_of(*tuple);
            event.trial = registry.get(tuple).map(|known| known.trial);
        }
        // What is not a trial's connection (the producer's, the harness's own) tells nothing about the trials.
        if event.trial.is_some() && events.send(Message::Event(event)).is_err() {
            return;
        }
    }
}
