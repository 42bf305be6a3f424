//! The thread that owns the fault table: it cuts and heals at the planned instants and reads the counters between.
//!
//! A thread of its own, at real-time priority where that is allowed, so that nothing of the dispatcher's work lies
//! between the clock reading before a rule and the one after it.

use super::Message;
use super::actor::{Actor, Proof};
use super::addresses::Addresses;
use super::alarms::Alarms;
use super::distorted::Distorted;
pub use super::request::{LEASE_BEYOND, Request, What};
use crate::events::{Counters, Event, Kind, SocketSnapshot, Source, Tuple};
use crate::fault::{Applied, Cut, Table, TrialReading};
use crate::host::clock::Clock;
use crate::host::conntrack::Conntrack;
use crate::host::mailbox::{Nothing, Receiver, Sender};
use crate::observe::SockDiag;
use crate::scenario::{Act, Directions, Scope};
use crate::units::{Offset, Pace, TrialId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::time::Duration;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Cut(usize),
    HangUp(usize),
    Heal(TrialId),
    Again(TrialId, u32),
    Reset(TrialId, u32),
}

#[derive(Clone, Copy)]
struct Planned {
    trial: TrialId,
    tuple: Tuple,
    what: What,
    client: usize,
    at: Offset,
}

#[path = "hang_up.rs"]
mod hang_up;
#[path = "resets.rs"]
mod resets;

#[path = "forgetful.rs"]
mod forgetful;
use forgetful::Forgetful;

/// The thread's state.
pub struct Cutter {
    clock: Clock,
    table: Table,
    sock_diag: Vec<SockDiag>,
    /// The brokers' ends of the connections.
    far_ends: SockDiag,
    addresses: Addresses,
    events: Sender<Message>,
    due: BinaryHeap<Reverse<(Offset, Due)>>,
    planned: Vec<Planned>,
    /// What each trial is under that has an act on the broker.
    acts: HashMap<TrialId, Act>,
    actor: Actor,
    alarms: Alarms,
    proxies: HashMap<TrialId, u32>,
    /// One a proxy, made at its cut, and one a worker that is a process of its own.
    own_actors: HashMap<TrialId, Actor>,
    /// The middlebox' memory, where there is one.
    middlebox: Option<Forgetful>,
    /// What is done on the clients' own side, where somebody asked for that.
    distorted: Distorted,
    /// Trials whose fault is in force and whose first drop has not been seen, with the time of their cut.
    undropped: BTreeMap<TrialId, Offset>,
    in_force: HashMap<TrialId, bool>,
    finished: HashSet<TrialId>,
    last_look: Option<Offset>,
    /// How long the last look took: nine tenths of the time belong to the cuts.
    look_took: Duration,
}

/// How long a RST may take from the broker's kernel to the router.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Time between two readings of the counters for first drops, by the time since the youngest cut without one: what a
/// drop is bracketed by stays within 10 % of its time. Nothing is judged by it.
const PACE: Pace = Pace::new(Duration::from_millis(200), 10);
/// Time between two looks for the next segment of the broker, by the time waited.
const AWAIT: Pace = Pace::new(Duration::from_millis(20), 20).at_most(Duration::from_millis(500));
/// Up to this many trials are read one by one (0.2 ms each) instead of the sets that drop (2 ms for 1,000 trials).
const FEW: usize = 4;
/// No look is begun so shortly before a cut.
const CUT_FIRST: Duration = Duration::from_millis(20);

/// What is put into the table.
fn cut_of(trial: TrialId, tuple: Tuple, what: What) -> Cut {
    let What { scope, drop, lease, injection, .. } = what;
    Cut { trial, tuple, scope, drop, injection, lease }
}

/// For how long nothing had come from the broker, in seconds.
fn quiet_s(socket: &SocketSnapshot) -> f64 {
    f64::from(socket.last_data_recv_ms.min(socket.last_ack_recv_ms)) / 1e3
}

impl Cutter {
    /// A cutter over an installed table; `sock_diag` has one handle a client namespace, `far_ends` is the brokers'.
    pub fn new(
        clock: Clock,
        table: Table,
        sock_diag: Vec<SockDiag>,
        far_ends: SockDiag,
        addresses: Addresses,
        events: Sender<Message>,
    ) -> Self {
        Self {
            clock,
            table,
            sock_diag,
            far_ends,
            addresses,
            events,
            due: BinaryHeap::new(),
            planned: Vec::new(),
            acts: HashMap::new(),
            actor: Actor::default(),
            alarms: Alarms::default(),
            proxies: HashMap::new(),
            own_actors: HashMap::new(),
            middlebox: None,
            distorted: Distorted::default(),
            undropped: BTreeMap::new(),
            in_force: HashMap::new(),
            finished: HashSet::new(),
            last_look: None,
            look_took: Duration::ZERO,
        }
    }

    /// Over a router that tracks connections.
    pub fn through(mut self, tracked: Option<Conntrack>) -> Self {
        self.middlebox = tracked.map(Forgetful::new);
        self
    }

    /// With clients whose own network can be taken from them.
    pub fn distorting(mut self, distorted: Distorted) -> Self {
        self.distorted = distorted;
        self
    }

    /// Serves requests until their sender is gone; returns the table for an orderly close.
    pub fn serve(mut self, requests: &Receiver<Request>) -> Table {
        loop {
            let next_cut = self.due.peek().map(|Reverse((at, _))| *at);
            let request = match next_cut.into_iter().chain(self.next_look()).min() {
                Some(at) => requests.recv_until(self.clock, at),
                None => requests.recv(),
            };
            match request {
                Ok(request) => self.take(request),
                Err(Nothing::Timeout) => {}
                Err(Nothing::Disconnected) => {
                    // Whoever is stopped can't end when asked. What is left to say was said at each trial's end.
                    let _ = self.actor.release(self.clock);
                    let stopped = |trial: &TrialId| self.acts.get(trial).is_some_and(|act| act.hits_worker());
                    for (_, actor) in self.own_actors.iter_mut().filter(|(trial, _)| stopped(trial)) {
                        let _ = actor.release(self.clock);
                    }
                    return self.table;
                }
            }
            self.serve_due();
            self.look_for_first_drops();
        }
    }

    /// When to look for first drops again; `None` while there is none to come.
    fn next_look(&self) -> Option<Offset> {
        let youngest = *self.undropped.values().max()?;
        let last = self.last_look.unwrap_or(youngest);
        let next = last + PACE.after(last.since(youngest)).max(self.look_took * 10);
        // No look is begun shortly before a cut: it would make the cut late. It follows right after it.
        match self.due.peek() {
            Some(Reverse((cut, _))) if *cut < next + CUT_FIRST => Some(next.max(*cut)),
            _ => Some(next),
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Cut { trial, at, tuple, what, client } => {
                self.planned.push(Planned { trial, tuple, what, client, at });
                // When it falls silent is the connection's own matter: the watch begins at once.
                let first = if what.idle { self.clock.now() } else { at };
                self.due.push(Reverse((first, Due::Cut(self.planned.len() - 1))));
                // What is done to processes drops nothing: the counts have to be in place before it.
                if let Some(act) = what.act.filter(|act| act.hits_processes()) {
                    self.acts.insert(trial, act);
                    if let Err(reason) = self.install(trial, tuple, what) {
                        self.finished.insert(trial);
                        self.say(trial, Kind::FaultFailed { reason });
                    }
                }
            }
            Request::HangUp { trial, at, tuple, what, client } => {
                self.planned.push(Planned { trial, tuple, what, client, at });
                self.due.push(Reverse((at, Due::HangUp(self.planned.len() - 1))));
            }
            Request::Begun { trial, tuple, what, before, after } => {
                self.begun(trial, tuple, what, Applied { before, after })
            }
            Request::Again { trial, at, time } => self.due.push(Reverse((at, Due::Again(trial, time)))),
            Request::Heal { trial, at } => self.due.push(Reverse((at, Due::Heal(trial)))),
            Request::Shared(roots, whose) => self.actor = Actor::new(roots, whose),
            Request::Worker(trial, pid) => {
                self.own_actors.insert(trial, Actor::new(vec![pid], "the worker"));
            }
            Request::StartedAgain { trials, applied, proof } => self.started_again(&trials, applied, &proof),
            Request::Alarms(alarms) => self.alarms = alarms,
            Request::Proxies(all) => self.proxies = all.into_iter().collect(),
            Request::Certify(trial) => self.certify(trial),
            Request::Finish { trial, why, at } => {
                self.certify(trial);
                self.prove_alive(trial);
                self.finished.insert(trial);
                self.undropped.remove(&trial);
                // Of the moment of the order: the client may have closed its connection meanwhile.
                let ended = Event::of_trial(at, Source::Harness, trial, Kind::TrialEnded { why: why.to_string() });
                let _ = self.events.send(Message::Event(ended));
            }
        }
    }

    fn serve_due(&mut self) {
        while let Some(Reverse((at, _))) = self.due.peek() {
            if *at > self.clock.now() {
                return;
            }
            let Some(Reverse((_, due))) = self.due.pop() else { return };
            match due {
                Due::Cut(index) => self.cut(index),
                Due::HangUp(index) => self.hang_up(index),
                Due::Heal(trial) => self.heal(trial),
                Due::Again(trial, time) => self.again(trial, time),
                Due::Reset(trial, time) => self.reset_again(trial, time),
            }
        }
    }

    fn cut(&mut self, index: usize) {
        let Planned { trial, tuple, what, client, at } = self.planned[index];
        if self.finished.contains(&trial) {
            return;
        }
        let socket = self.sock_diag.get_mut(client).and_then(|d| d.get(tuple).ok().flatten());
        if let Some(limit) = what.after_segment {
            let waited = self.clock.now().since(at);
            let heard = socket.as_ref().map(|s| Duration::from_millis(u64::from(s.last_data_recv_ms)));
            if heard.is_none_or(|age| age >= waited) {
                if waited >= limit {
                    let reason = format!("no segment came from the broker within {limit:?} of the phase");
                    self.say(trial, Kind::FaultFailed { reason });
                } else {
                    self.due.push(Reverse((self.clock.now() + AWAIT.after(waited), Due::Cut(index))));
                }
                return;
            }
        }
        if what.idle {
            return self.expire(index);
        }
        let age_at_fault_s = socket.map(|s| quiet_s(&s));
        let applied = match what.act {
            Some(Act::RebootHost | Act::FailOver) => self.lose_the_far_end(trial, tuple, what),
            Some(act) if act.alarms() => self.alarms.raise(self.clock),
            Some(Act::VanishHost) => self.vanish(trial, tuple, what),
            Some(Act::ResetThrice) => self.reset(trial, tuple, what),
            Some(act) if act.in_proxy() => self.change_proxy(trial, act, what.scope),
            Some(act) if act.hits_worker() => {
                let actor = self.own_actors.get_mut(&trial).ok_or_else(|| "the trial has no worker".to_string());
                actor.and_then(|actor| actor.act(self.clock, act))
            }
            Some(Act::ForgetEntry) => self.forget(trial, tuple, what),
            Some(act) => self.actor.act(self.clock, act),
            None if what.injection.is_local() => self.distort(trial, tuple, what, client),
            None => self.install(trial, tuple, what),
        };
        let kind = match applied {
            Ok(applied) => {
                // A control has its instant and its counters like the others; nothing will ever be dropped.
                if !what.drop.is_none() || what.act == Some(Act::ForgetEntry) {
                    self.undropped.insert(trial, applied.after);
                }
                self.in_force.insert(trial, true);
                Kind::FaultApplied { tuple, before: applied.before, after: applied.after, age_at_fault_s }
            }
            Err(reason) => Kind::FaultFailed { reason },
        };
        self.say(trial, kind);
        self.prove(trial);
    }

    /// Nothing is done any more: the connection is counted from here on, and who is silent is looked at.
    fn begun(&mut self, trial: TrialId, tuple: Tuple, what: What, applied: Applied) {
        if self.finished.contains(&trial) {
            return;
        }
        let counted = self.install(trial, tuple, what).map(drop);
        let silent = what.act.map_or(Ok(()), |act| {
            self.acts.insert(trial, act);
            if act.in_proxy() { self.change_proxy(trial, act, Scope::Host).map(drop) } else { Ok(()) }
        });
        match counted.and(silent) {
            Ok(()) => {
                self.in_force.insert(trial, true);
                let Applied { before, after } = applied;
                self.say(trial, Kind::FaultApplied { tuple, before, after, age_at_fault_s: None });
            }
            Err(reason) => self.say(trial, Kind::FaultFailed { reason }),
        }
        self.prove(trial);
    }

    /// The broker's host is gone with its address: nothing of it is heard any more, and nobody is found there.
    fn vanish(&mut self, trial: TrialId, tuple: Tuple, what: What) -> Result<Applied, String> {
        let cut = self.install(trial, tuple, what)?;
        self.addresses.vanish(trial, *tuple.peer.ip())?;
        Ok(Applied { before: cut.before, after: self.clock.now() })
    }

    /// The client's own side first, then the router: from then on it counts whether anything gets there.
    fn distort(&mut self, trial: TrialId, tuple: Tuple, what: What, client: usize) -> Result<Applied, String> {
        let before = self.clock.now();
        self.distorted.act(trial, tuple, what.injection, client)?;
        let cut = self.install(trial, tuple, what)?;
        Ok(Applied { before, after: cut.after })
    }

    /// Makes the broker's host forget a connection, and where another one takes over, gives that the address. The path is
    /// cut for that moment, so that the RST of its kernel is lost, and what says whether all of it was silent is said as a
    /// proof. It stays cut where the other host drops what it does not know.
    fn lose_the_far_end(&mut self, trial: TrialId, tuple: Tuple, what: What) -> Result<Applied, String> {
        let (both, stays) = (Directions { to_broker: true, to_client: true }, !what.drop.is_none());
        let lease = if stays { what.lease } else { Some(LEASE_BEYOND) };
        let cut = self.install(trial, tuple, What { drop: both, lease, ..what })?;
        let destroyed = self.far_ends.destroy(Tuple { local: tuple.peer, peer: tuple.local });
        let lost = |read: &Result<TrialReading, _>| read.as_ref().is_ok_and(|r| r.counters.dropped_to_client > 0);
        let mut counted = self.table.counters_of(trial);
        // A busy kernel may carry the RST a little later.
        while matches!(destroyed, Ok(true)) && !lost(&counted) && self.clock.now().since(cut.before) < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(1));
            counted = self.table.counters_of(trial);
        }
        let moved = match what.act {
            Some(Act::FailOver) => self.addresses.fail_over(trial, *tuple.peer.ip()),
            _ => Ok(()),
        };
        let healed = match stays {
            true => Applied { before: cut.after, after: self.clock.now() },
            false => self.table.heal(trial).map_err(|error| error.to_string())?,
        };
        moved?;
        if !destroyed.map_err(|error| error.to_string())? {
            return Err("the broker's host knew no such connection".to_string());
        }
        let counted = counted.map_err(|error| error.to_string())?;
        let lost = counted.counters.dropped_to_client;
        let told = counted.counters.rst_to_client + counted.counters.fin_to_client + counted.counters.icmp_to_client;
        self.say(
            trial,
            Kind::Proof {
                what: format!("the broker's end is gone; of its last words {lost} were lost and {told} arrived"),
                holds: lost > 0 && told == 0 && counted.intact,
            },
        );
        Ok(Applied { before: cut.before, after: healed.after })
    }

    fn change_proxy(&mut self, trial: TrialId, act: Act, scope: Scope) -> Result<Applied, String> {
        let acceptor = self.proxies.get(&trial).copied().ok_or("the trial has no proxy")?;
        let actor = self.own_actors.entry(trial).or_insert_with(|| Actor::of_proxy(acceptor, scope));
        actor.act(self.clock, act)
    }

    fn actor_of(&mut self, trial: TrialId) -> &mut Actor {
        self.own_actors.get_mut(&trial).unwrap_or(&mut self.actor)
    }

    /// Puts the trial's elements in their sets: those that count, and those that drop.
    fn install(&mut self, trial: TrialId, tuple: Tuple, what: What) -> Result<Applied, String> {
        self.table.cut(cut_of(trial, tuple, what)).map_err(|error| error.to_string())
    }

    /// Says what a look at the broker's processes shows, for a trial whose fault lies there.
    fn prove(&mut self, trial: TrialId) {
        for Proof { what, holds } in self.addresses.proof(trial).into_iter().chain(self.distorted.proof(trial)) {
            self.say(trial, Kind::Proof { what, holds });
        }
        // The name server tells by itself what it was asked.
        let looked_at = |act: &&Act| **act != Act::WithholdAnswer && self.in_force.get(&trial) == Some(&true);
        if let Some(act) = self.acts.get(&trial).filter(looked_at) {
            let Proof { what, holds } = match (act, self.own_actors.get(&trial)) {
                (act, _) if act.alarms() => self.alarms.proof(),
                (act, own) => own.unwrap_or(&self.actor).proof(*act),
            };
            self.say(trial, Kind::Proof { what, holds });
        }
    }

    /// The certificate is read before the rules go: what passes afterwards is no breach.
    fn heal(&mut self, trial: TrialId) {
        if self.finished.contains(&trial) || self.in_force.get(&trial) != Some(&true) {
            return;
        }
        if let Some(act) = self.acts.get(&trial).copied().filter(|act| act.starts_again()) {
            return self.start_again(trial, act);
        }
        let Some(act) = self.acts.get(&trial).copied().filter(|act| act.hits_all()) else {
            return self.heal_one(trial);
        };
        // What is taken back is taken back for all of them: each is certified before the first.
        let mut all: Vec<TrialId> = self.acts.iter().filter(|(_, other)| **other == act).map(|(id, _)| *id).collect();
        all.retain(|id| !self.finished.contains(id) && self.in_force.get(id) == Some(&true));
        all.sort_unstable();
        for id in &all {
            self.certify(*id);
        }
        for id in all {
            self.heal_one(id);
        }
    }

    /// What was killed is started by whoever has started it before, and healed once it answers.
    fn start_again(&mut self, trial: TrialId, act: Act) {
        let all = |id: &TrialId| act.hits_all() || *id == trial;
        let meant = self.acts.iter().filter(|(id, other)| **other == act && all(id)).map(|(id, _)| *id);
        let mut trials: Vec<TrialId> = meant.collect();
        trials.retain(|id| !self.finished.contains(id) && self.in_force.get(id) == Some(&true));
        trials.sort_unstable();
        for id in &trials {
            self.certify(*id);
            // Nobody looks again whether it is dead.
            self.in_force.insert(*id, false);
        }
        let _ = self.events.send(Message::StartAgain(act, trials));
    }

    fn started_again(&mut self, trials: &[TrialId], applied: Applied, proof: &Proof) {
        for trial in trials.iter().filter(|id| !self.finished.contains(id)) {
            self.say(*trial, Kind::Proof { what: proof.what.clone(), holds: proof.holds });
            self.say(*trial, Kind::FaultHealed { before: applied.before, after: applied.after });
        }
    }

    fn heal_one(&mut self, trial: TrialId) {
        let shared = self.acts.get(&trial).is_some_and(|act| act.hits_all());
        if !shared {
            self.certify(trial);
        }
        let clock = self.clock;
        let healed = match self.acts.get(&trial).copied() {
            Some(act) if act.alarms() => self.alarms.clear(clock),
            // It answers by its own clock.
            Some(Act::WithholdAnswer) => Ok(Applied { before: clock.now(), after: clock.now() }),
            Some(act) => self.actor_of(trial).heal(clock, act),
            None => self.table.heal(trial).map_err(|error| error.to_string()),
        };
        match healed {
            Ok(applied) => {
                self.in_force.insert(trial, false);
                self.undropped.remove(&trial);
                self.say(trial, Kind::FaultHealed { before: applied.before, after: applied.after });
            }
            Err(error) => {
                self.say(trial, Kind::FaultFailed { reason: format!("it could not be taken back: {error}") });
            }
        }
    }

    fn again(&mut self, trial: TrialId, time: u32) {
        if self.finished.contains(&trial) || self.in_force.get(&trial) != Some(&false) {
            return;
        }
        let clock = self.clock;
        let again = match self.acts.get(&trial).copied() {
            Some(act) if act.alarms() => self.alarms.raise(clock),
            // One that was stopped and runs is the same process; one that was started again has an actor of its own.
            Some(act) if act.starts_again() || act.heals() => self.actor_of(trial).act(clock, act),
            Some(act) => Err(format!("`{}` comes once", act.name())),
            None => self.table.again(trial).map_err(|error| error.to_string()),
        };
        match again {
            Ok(applied) => {
                self.in_force.insert(trial, true);
                self.say(trial, Kind::FaultRepeated { time, before: applied.before, after: applied.after });
                // What passed until now is no breach of this cut.
                self.certify(trial);
            }
            Err(error) => {
                let reason = format!("it could not come again: {error}");
                self.say(trial, Kind::FaultFailed { reason });
            }
        }
    }

    fn certify(&mut self, trial: TrialId) {
        if self.finished.contains(&trial) || self.in_force.get(&trial) != Some(&true) {
            return;
        }
        self.prove(trial);
        self.prove_forgotten(trial);
        match self.table.counters_of(trial) {
            Ok(read) => self.say(trial, Kind::Certificate { counters: read.counters, intact: read.intact }),
            Err(error) => self.say(trial, Kind::Note { text: format!("the certificate could not be read: {error}") }),
        }
    }

    fn look_for_first_drops(&mut self) {
        let Some(due) = self.next_look() else { return };
        let now = self.clock.now();
        if now < due {
            return;
        }
        let dropped = self.dropped_now();
        let seen = self.clock.now();
        for trial in dropped {
            // A cut since the last look is what the drop came after, not that look.
            let cut = self.undropped.remove(&trial);
            let kind = Kind::FirstDrop { not_before: self.last_look.max(cut) };
            let _ = self.events.send(Message::Event(Event::of_trial(seen, Source::Harness, trial, kind)));
        }
        self.last_look = Some(now);
        self.look_took = seen.since(now);
    }

    /// Those that have seen a packet dropped. A reading that fails is repeated at the next look.
    fn dropped_now(&mut self) -> Vec<TrialId> {
        let any = |c: &Counters| c.dropped_to_broker + c.dropped_to_client > 0;
        let waiting: Vec<TrialId> = self.undropped.keys().copied().collect();
        if waiting.len() <= FEW {
            return waiting
                .into_iter()
                .filter(|t| self.table.counters_of(*t).is_ok_and(|r| any(&r.counters)))
                .collect();
        }
        let dropping = self.table.dropping().unwrap_or_default();
        waiting.into_iter().filter(|t| dropping.contains(t)).collect()
    }

    fn say(&self, trial: TrialId, kind: Kind) {
        let offset = match &kind {
            Kind::FaultApplied { after, .. } | Kind::FaultHealed { after, .. } | Kind::FaultRepeated { after, .. } => {
                *after
            }
            _ => self.clock.now(),
        };
        let _ = self.events.send(Message::Event(Event::of_trial(offset, Source::Harness, trial, kind)));
    }
}
