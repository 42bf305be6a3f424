//! Clients that are watched from outside: their connections, told from what the kernel says of their sockets. Pure.
//!
//! Each trial has an address pair of its own, so every connection between the two is the trial's. Which of them is the
//! consumer is known once the client consumes: until then what happened is kept, and then told with its own instants,
//! the consumer's connection as attempt 0. The notice is the first moment at which the client can be seen to act: it
//! closes the consumer's connection, or, where nothing says which one that is or the kernel has ended it already, it
//! begins another one. What is left out: what the kernel's timers did, which is in the same records.

use crate::clients;
use crate::events::{Cause, Event, How, Kind, Source, Tuple};
use crate::observe::tcp_state::{CLOSE, CLOSE_WAIT, ESTABLISHED, FIN_WAIT1, SYN_SENT};
use crate::plan::Plan;
use crate::scenario::{Act, ReadyWhen};
use crate::units::{Offset, TrialId};
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

/// How long before it closes a connection a client may have said why.
const SAID_BEFORE_NS: i64 = 5_000_000_000;

/// How long before the line in its log a client may have begun its next connection: it is written about then.
const BEGAN_BEFORE_NS: i64 = 500_000_000;

/// The role of a connection on which messages come.
const CONSUMER: &str = "consumer";

/// A socket of a trial's client changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketChange {
    /// When.
    pub at: Offset,
    /// The connection, as the client names it. Before the handshake the port is not known: 0.
    pub tuple: Tuple,
    /// From.
    pub old: i32,
    /// To.
    pub new: i32,
    /// The error that the kernel reported with it; 0 is none, `None` is not known: a timer of the kernel's was running.
    pub errno: Option<i32>,
    /// The look before, where it comes from looks and not from the kernel's own word.
    pub not_before: Option<Offset>,
}

impl SocketChange {
    /// Whether it was a handshake that is done.
    #[must_use]
    pub fn begins(&self) -> bool {
        (self.old, self.new) == (SYN_SENT, ESTABLISHED)
    }
}

#[derive(Debug, Default)]
struct Connection {
    /// Known once it is established, or before where somebody looked.
    tuple: Option<Tuple>,
    /// When the client began it.
    began: Option<Offset>,
    /// Whether the handshake is still going on.
    opening: bool,
    /// Whether it is there.
    open: bool,
    /// What was heard of it.
    role: Option<String>,
    /// Its number in events, once that is decided.
    attempt: Option<u32>,
}

impl Connection {
    fn is(&self, role: &str) -> bool {
        self.role.as_deref() == Some(role)
    }
}

#[derive(Debug, Default)]
struct Client {
    /// What the connection under test is for.
    target: String,
    ready_when: ReadyWhen,
    /// Whether a connection counts as the consumer's only when its traffic says so.
    needs_role: bool,
    /// Whether messages flow, so that consuming again can be proven by one.
    loaded: bool,
    connections: Vec<Connection>,
    /// What was heard of connections; of one that is not known yet, too.
    roles: HashMap<Tuple, String>,
    /// When that was heard.
    heard: HashMap<Tuple, Offset>,
    /// What happened before it consumed: by connection.
    kept: Vec<(Offset, usize, What)>,
    next_attempt: u32,
    ready: bool,
    /// Its word that it consumes, while no connection can be named that does.
    waiting: Option<Event>,
    cut: Option<Offset>,
    noticed: Option<Offset>,
    recovered: bool,
    ended: bool,
    said: Option<(Offset, How, String)>,
    published: BTreeMap<u64, Offset>,
    /// Messages that are done, until one of them proves that it consumes again.
    done: BTreeMap<u64, Offset>,
}

/// What is told of a connection.
#[derive(Debug, Clone)]
enum What {
    Connecting,
    Connected(Tuple),
    Failed(Cause),
    KernelEnd(Tuple, Option<i32>, Option<Offset>),
    Notice(Cause),
}

/// All such clients of a run, by their addresses.
#[derive(Debug, Default)]
pub struct Outside {
    by_pair: HashMap<(Ipv4Addr, Ipv4Addr), TrialId>,
    arms: HashMap<TrialId, usize>,
    clients: HashMap<TrialId, Client>,
}

impl Outside {
    /// The clients of a plan that are programs of somebody else's; `told`: somebody reads at the broker's door what they send,
    /// or asks the broker, so that nobody has to guess which connection is the consumer's. A proxy reads what goes through it.
    #[must_use]
    pub fn of(plan: &Plan, told: bool) -> Self {
        let mut this = Self::default();
        let command = |arm: usize| plan.scenario.arms.get(arm).is_some_and(|arm| arm.settings.subject.is_command());
        for trial in plan.trials.iter().filter(|trial| command(trial.arm)) {
            this.arms.insert(trial.id, trial.arm);
            this.by_pair.insert((trial.client, trial.server), trial.id);
            let arm = &plan.scenario.arms[trial.arm];
            let adapter = clients::adapter(&arm.settings);
            let ready_when = adapter.map(|adapter| adapter.ready).unwrap_or_default();
            let loaded = plan.scenario.load_of(arm).is_some();
            let fault = plan.scenario.faults.get(trial.fault);
            let told = told || fault.is_some_and(|fault| fault.act.is_some_and(Act::in_proxy));
            let needs_role = told && !matches!(ready_when, ReadyWhen::Connections(_));
            let target = fault.and_then(|fault| fault.connection.clone()).unwrap_or_else(|| CONSUMER.to_string());
            // It will never consume: its connections are told of from the first on, in their order.
            let ready = fault.is_some_and(|fault| fault.in_handshake());
            let needs_role = needs_role && !ready;
            let client = Client { target, ready_when, needs_role, loaded, ready, ..Client::default() };
            this.clients.insert(trial.id, client);
        }
        this
    }

    /// The clients' address pairs with their trials.
    #[must_use]
    pub fn trials(&self) -> Vec<((Ipv4Addr, Ipv4Addr), TrialId)> {
        self.by_pair.iter().map(|(pair, trial)| (*pair, *trial)).collect()
    }

    /// The address pairs whose sockets are to be told of, each with the place of the namespace that they are in.
    #[must_use]
    pub fn pairs(&self) -> Vec<((Ipv4Addr, Ipv4Addr), usize)> {
        self.by_pair.iter().map(|(pair, trial)| (*pair, self.arms.get(trial).copied().unwrap_or(0))).collect()
    }

    /// A trial's sockets are in this namespace, which is no arm's.
    pub fn place(&mut self, trial: TrialId, namespace: usize) {
        self.arms.insert(trial, namespace);
    }

    /// A client that was there before the run, with these connections: the first is the one under test, and with the last it
    /// consumes, as far as anybody can say.
    pub fn attach(&mut self, trial: TrialId, at: Offset, there: &[Tuple]) -> Vec<Event> {
        let Some(client) = self.clients.get_mut(&trial) else { return Vec::new() };
        let count = u32::try_from(there.len()).unwrap_or(u32::MAX);
        client.ready_when = ReadyWhen::Connections(count);
        if let Some(first) = there.first() {
            client.roles.insert(*first, client.target.clone());
        }
        let mut events = Vec::new();
        for tuple in there {
            events.extend(client.begin(trial, at, Some(*tuple)));
            events.extend(client.connected(trial, at, *tuple));
            events.extend(client.consumes(trial));
        }
        events
    }

    /// The connections of a trial that are there, with their numbers.
    #[must_use]
    pub fn open(&self, trial: TrialId) -> Vec<(u32, Tuple)> {
        let Some(client) = self.clients.get(&trial) else { return Vec::new() };
        client.connections.iter().filter(|c| c.open).filter_map(|c| Some((c.attempt?, c.tuple?))).collect()
    }

    /// The trial is over: what the sockets do from now on is the harness tidying up.
    pub fn end(&mut self, trial: TrialId) {
        if let Some(client) = self.clients.get_mut(&trial) {
            client.ended = true;
        }
    }

    /// Takes an event in; returns it with what follows from it, or nothing while it is kept back.
    pub fn on_event(&mut self, event: Event) -> Vec<Event> {
        let Some(trial) = event.trial.filter(|id| self.clients.contains_key(id)) else { return vec![event] };
        let Some(client) = self.clients.get_mut(&trial) else { return vec![event] };
        let at = event.offset;
        match &event.kind {
            Kind::Ready { attempt: 0 } if event.source == Source::Subject && !client.ready => {
                client.waiting = Some(event);
                return client.consumes(trial);
            }
            Kind::Role { tuple, role, .. } => {
                let (tuple, role) = (*tuple, role.clone());
                let mut events = vec![event];
                events.extend(client.heard(trial, at, tuple, role));
                return events;
            }
            Kind::Said { how, text } => {
                client.said = Some((at, *how, text.clone()));
                let mut events = vec![event];
                events.extend(client.notice_by_word(trial));
                return events;
            }
            Kind::FaultApplied { after, .. } => client.cut = Some(*after),
            Kind::Published { message } => {
                client.published.entry(*message).or_insert(at);
                return std::iter::once(event).chain(client.recovery(trial)).collect();
            }
            Kind::Effect { message } => {
                client.done.entry(*message).or_insert(at);
                if let Some(ready) = client.recovery(trial) {
                    return vec![event, ready];
                }
                if client.ready_when == ReadyWhen::Message {
                    let mut events = vec![event];
                    client.say_ready(trial, at);
                    events.extend(client.consumes(trial));
                    return events;
                }
            }
            _ => {}
        }
        vec![event]
    }

    /// Takes a change of a socket in.
    pub fn on_socket(&mut self, change: SocketChange) -> Vec<Event> {
        let SocketChange { at, tuple, old, new, errno, not_before } = change;
        let Some(trial) = self.by_pair.get(&(*tuple.local.ip(), *tuple.peer.ip())).copied() else { return Vec::new() };
        let Some(client) = self.clients.get_mut(&trial).filter(|client| !client.ended) else { return Vec::new() };
        let mut events = match (old, new) {
            (_, SYN_SENT) => client.begin(trial, at, Some(tuple).filter(|tuple| tuple.local.port() != 0)),
            (SYN_SENT, ESTABLISHED) => {
                let mut events = client.connected(trial, at, tuple);
                events.extend(client.consumes(trial));
                events
            }
            (SYN_SENT, CLOSE) => client.failed(trial, at, tuple, errno),
            (ESTABLISHED, _) => client.left(trial, at, tuple, new, errno, not_before),
            (CLOSE_WAIT, _) => client.closed(trial, at, tuple, How::Eof, "the peer had closed its end"),
            _ => Vec::new(),
        };
        events.extend(client.recovery(trial));
        events.extend(client.subscribed(trial));
        events
    }
}

impl Client {
    fn tell(&mut self, trial: TrialId, at: Offset, index: usize, what: What) -> Option<Event> {
        let Some(attempt) = self.connections[index].attempt else {
            self.kept.push((at, index, what));
            return None;
        };
        let kind = match what {
            What::Connecting => Kind::Connecting { attempt },
            What::Connected(tuple) => Kind::Connected { attempt, tuple },
            What::Failed(cause) => Kind::ConnectFailed { attempt, cause },
            What::KernelEnd(tuple, errno, not_before) => match not_before {
                None => Kind::KernelEnd { tuple, errno, not_before, by: "tracepoint".to_string() },
                Some(_) => Kind::KernelEnd { tuple, errno: None, not_before, by: "sock_diag".to_string() },
            },
            What::Notice(cause) => Kind::Notice { attempt, cause },
        };
        if attempt == 0 && matches!(kind, Kind::Notice { .. }) {
            self.noticed = Some(at);
        }
        Some(Event::of_trial(at, Source::Kernel, trial, kind))
    }

    /// It said that it consumes: tells so as soon as the connection can be named on which it does.
    fn consumes(&mut self, trial: TrialId) -> Vec<Event> {
        let known = self.connections.iter().any(|c| c.open && (c.is(&self.target) || !self.needs_role));
        let Some(word) = self.waiting.take_if(|_| known) else { return Vec::new() };
        let mut events = self.number(trial);
        self.ready = true;
        events.push(word);
        events
    }

    /// It consumes, by what was seen of it and not by its own word.
    fn say_ready(&mut self, trial: TrialId, at: Offset) {
        if !self.ready && self.waiting.is_none() {
            self.waiting = Some(Event::of_trial(at, Source::Broker, trial, Kind::Ready { attempt: 0 }));
        }
    }

    /// What a connection is for was heard.
    fn heard(&mut self, trial: TrialId, at: Offset, tuple: Tuple, role: String) -> Vec<Event> {
        let consumer = role == CONSUMER;
        self.roles.insert(tuple, role.clone());
        self.heard.insert(tuple, at);
        if let Some(open) = self.connections.iter_mut().find(|c| c.open && c.tuple == Some(tuple)) {
            open.role = Some(role);
        }
        if consumer && self.ready_when == ReadyWhen::Consumes {
            self.say_ready(trial, at);
        }
        let mut events = self.consumes(trial);
        events.extend(self.subscribed(trial));
        events
    }

    /// Without messages a new subscription of a client that has noticed is all that can be known of consuming again. What it
    /// sends, its sockets and the notice are heard of through separate doors: each asks anew.
    fn subscribed(&mut self, trial: TrialId) -> Option<Event> {
        if self.noticed.is_none() || self.loaded || self.recovered {
            return None;
        }
        let again = |c: &&Connection| c.open && c.is(CONSUMER) && c.attempt.is_some_and(|attempt| attempt > 0);
        let again = self.connections.iter().find(again)?;
        let (attempt, at) = (again.attempt?, *self.heard.get(&again.tuple?)?);
        self.recovered = true;
        Some(Event::of_trial(at, Source::Broker, trial, Kind::Ready { attempt }))
    }

    /// Decides who is attempt 0: the open consumer, or else the first connection that is there; then tells what was kept.
    fn number(&mut self, trial: TrialId) -> Vec<Event> {
        let named = self.connections.iter().position(|c| c.open && c.is(&self.target));
        let Some(first) = named.or_else(|| self.connections.iter().position(|c| c.open)) else { return Vec::new() };
        self.connections[first].attempt = Some(0);
        self.next_attempt = 1;
        for index in 0..self.connections.len() {
            self.give_number(index);
        }
        let kept = std::mem::take(&mut self.kept);
        kept.into_iter().filter_map(|(at, index, what)| self.tell(trial, at, index, what)).collect()
    }

    fn give_number(&mut self, index: usize) {
        if self.connections[index].attempt.is_none() {
            self.connections[index].attempt = Some(self.next_attempt);
            self.next_attempt += 1;
        }
    }

    /// The attempt with this name, or else the first that has none yet.
    fn opening(&self, tuple: Tuple) -> Option<usize> {
        let named = self.connections.iter().position(|c| c.opening && c.tuple == Some(tuple));
        named.or_else(|| self.connections.iter().position(|c| c.opening && c.tuple.is_none()))
    }

    fn begin(&mut self, trial: TrialId, at: Offset, tuple: Option<Tuple>) -> Vec<Event> {
        self.connections.push(Connection { opening: true, tuple, began: Some(at), ..Connection::default() });
        let index = self.connections.len() - 1;
        if self.ready {
            self.give_number(index);
        }
        let mut events: Vec<Event> = self.tell(trial, at, index, What::Connecting).into_iter().collect();
        let notice = self.notice_by_syn(trial, at).or_else(|| self.notice_by_word(trial));
        events.extend(notice);
        events
    }

    /// A new connection after the cut is a notice where nothing better will come: the consumer's is not known, or gone.
    fn notice_by_syn(&mut self, trial: TrialId, at: Offset) -> Option<Event> {
        self.cut.filter(|cut| at > *cut)?;
        if self.noticed.is_some() {
            return None;
        }
        let index = self.connections.iter().position(|c| c.attempt == Some(0))?;
        let under_test = &self.connections[index];
        if under_test.is(&self.target) && under_test.open {
            return None;
        }
        let cause = self.cause(at, How::Other, "it began another connection");
        self.tell(trial, at, index, What::Notice(cause))
    }

    /// Its log says that it gave a connection up, and about then it began another one: that was its notice, although nobody saw
    /// how the connection under test ended. The kernel's record of that may be missing, and some clients never close it.
    fn notice_by_word(&mut self, trial: TrialId) -> Option<Event> {
        let cut = self.cut.filter(|_| self.noticed.is_none() && self.target == CONSUMER)?;
        let said = self.said.as_ref().map(|(said, ..)| *said).filter(|said| *said > cut)?;
        let index = self.connections.iter().position(|c| c.attempt == Some(0) && c.open)?;
        let about = |began: &Offset| (-BEGAN_BEFORE_NS..=SAID_BEFORE_NS).contains(&(began.0 - said.0)) && *began > cut;
        let began = self.connections.iter().filter_map(|c| c.began.filter(about)).min()?;
        let cause = self.cause(began, How::Other, "it began another connection");
        self.tell(trial, began, index, What::Notice(cause))
    }

    /// The kernel's word of an end waits for its error, and the client may have begun another connection meanwhile: that
    /// was its notice.
    fn late_notice(&mut self, trial: TrialId, ended: Offset, index: usize) -> Option<Event> {
        self.cut.filter(|cut| ended > *cut && self.noticed.is_none())?;
        self.connections[index].attempt.filter(|attempt| *attempt == 0)?;
        let began = self.connections.iter().filter_map(|c| c.began.filter(|began| *began > ended)).min()?;
        let cause = self.cause(began, How::Other, "it began another connection");
        self.tell(trial, began, index, What::Notice(cause))
    }

    fn connected(&mut self, trial: TrialId, at: Offset, tuple: Tuple) -> Vec<Event> {
        let index = match self.opening(tuple) {
            Some(index) => index,
            None => {
                self.connections.push(Connection::default());
                self.connections.len() - 1
            }
        };
        if self.ready {
            self.give_number(index);
        }
        let connection = &mut self.connections[index];
        (connection.tuple, connection.opening, connection.open) = (Some(tuple), false, true);
        // Its first bytes may have been heard before the kernel's word of it came.
        connection.role = self.roles.get(&tuple).cloned();
        let events: Vec<Event> = self.tell(trial, at, index, What::Connected(tuple)).into_iter().collect();
        let open = self.connections.iter().filter(|c| c.open).count();
        if matches!(self.ready_when, ReadyWhen::Connections(count) if open >= count as usize) {
            self.say_ready(trial, at);
        }
        events
    }

    fn failed(&mut self, trial: TrialId, at: Offset, tuple: Tuple, errno: Option<i32>) -> Vec<Event> {
        let Some(index) = self.opening(tuple) else { return Vec::new() };
        self.connections[index].opening = false;
        let cause = match errno {
            Some(0) => Cause { how: How::Other, errno: None, text: "it gave the handshake up".to_string() },
            Some(errno) => Cause { how: How::Errno, errno: Some(errno), text: String::new() },
            None => Cause { how: How::Other, errno: None, text: "refused, or given up".to_string() },
        };
        self.tell(trial, at, index, What::Failed(cause)).into_iter().collect()
    }

    /// A connection left ESTABLISHED: the client closed it, its peer did, or the kernel gave it up.
    fn left(
        &mut self,
        trial: TrialId,
        at: Offset,
        tuple: Tuple,
        new: i32,
        errno: Option<i32>,
        not_before: Option<Offset>,
    ) -> Vec<Event> {
        let Some(index) = self.connections.iter().position(|c| c.open && c.tuple == Some(tuple)) else {
            return Vec::new();
        };
        let end = What::KernelEnd(tuple, errno, not_before);
        let mut events: Vec<Event> = self.tell(trial, at, index, end).into_iter().collect();
        match (new, errno) {
            // With unread data the kernel sends a RST instead of a FIN, and the socket is gone at once.
            (FIN_WAIT1, _) | (CLOSE, Some(0)) => {
                events.extend(self.closed(trial, at, tuple, How::Other, "it closed its end"));
            }
            (CLOSE, _) => {
                self.connections[index].open = false;
                self.roles.remove(&tuple);
                events.extend(self.late_notice(trial, at, index));
            }
            _ => {}
        }
        events
    }

    /// The client closed a connection.
    fn closed(&mut self, trial: TrialId, at: Offset, tuple: Tuple, how: How, what: &str) -> Vec<Event> {
        let Some(index) = self.connections.iter().position(|c| c.open && c.tuple == Some(tuple)) else {
            return Vec::new();
        };
        self.connections[index].open = false;
        self.roles.remove(&tuple);
        let cause = self.cause(at, how, what);
        self.tell(trial, at, index, What::Notice(cause)).into_iter().collect()
    }

    /// Why, by the client's own words where it has just said some.
    fn cause(&mut self, at: Offset, how: How, what: &str) -> Cause {
        let said = self.said.take().filter(|(said, ..)| at.0 - said.0 <= SAID_BEFORE_NS);
        match said {
            Some((_, said, text)) => {
                let how = if said == How::Other { how } else { said };
                Cause { how, errno: None, text: format!("{what}; it said: {text}") }
            }
            None => Cause { how, errno: None, text: what.to_string() },
        }
    }

    /// A message that was published after the notice and is done: the client consumes again. Producer, client and kernel are
    /// heard through separate doors, so a message's end may be heard of before its publication or before the notice: each
    /// of the three asks anew, and the first such message counts.
    fn recovery(&mut self, trial: TrialId) -> Option<Event> {
        let noticed = self.noticed.filter(|_| !self.recovered)?;
        let later = |message: &u64| self.published.get(message).is_some_and(|published| *published > noticed);
        let at = self.done.iter().filter(|(message, _)| later(message)).map(|(_, at)| *at).min()?;
        let open = |c: &&Connection| c.open && c.attempt.is_some_and(|attempt| attempt > 0);
        let again = self.connections.iter().rev().filter(open).max_by_key(|c| c.is(CONSUMER))?;
        let attempt = again.attempt?;
        self.recovered = true;
        self.done.clear();
        Some(Event::of_trial(at, Source::Kernel, trial, Kind::Ready { attempt }))
    }
}

#[cfg(test)]
#[path = "outside_tests.rs"]
mod tests;
