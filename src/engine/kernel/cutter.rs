//! The thread that owns the fault table: it cuts and heals at the planned instants and reads the counters between.
//!
//! A thread of its own, at real-time priority where that is allowed, so that nothing of the dispatcher's work lies
//! between the clock reading before a rule and the one after it.

use super::Message;
use crate::events::{Counters, Event, Kind, Source, Tuple};
use crate::fault::{Cut, FaultTable};
use crate::host::clock::Clock;
use crate::observe::SockDiag;
use crate::scenario::{Directions, Scope};
use crate::units::{Offset, Pace, TrialId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// What the dispatcher asks for.
#[derive(Debug)]
pub enum Request {
    /// Cut at an instant.
    Cut {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// The connection under test.
        tuple: Tuple,
        /// How much is cut with it.
        scope: Scope,
        /// Which packets.
        drop: Directions,
        /// Index of the client namespace whose `sock_diag` knows the connection.
        client: usize,
    },
    /// Heal at an instant.
    Heal {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
    },
    /// Read and report one trial's counters.
    Certify(TrialId),
    /// Read and report one trial's counters for the last time, and forget what is still planned for it.
    Finish {
        /// The trial.
        trial: TrialId,
        /// Why it ended.
        why: &'static str,
    },
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Cut(usize),
    Heal(TrialId),
}

#[derive(Clone, Copy)]
struct Planned {
    trial: TrialId,
    tuple: Tuple,
    scope: Scope,
    drop: Directions,
    client: usize,
}

/// The thread's state.
pub struct Cutter {
    clock: Clock,
    table: FaultTable,
    sock_diag: Vec<SockDiag>,
    events: Sender<Message>,
    due: BinaryHeap<Reverse<(Offset, Due)>>,
    planned: Vec<Planned>,
    /// Trials whose fault is in force and whose first drop has not been seen, with the time of their cut.
    undropped: BTreeMap<TrialId, Offset>,
    in_force: HashMap<TrialId, bool>,
    finished: HashSet<TrialId>,
    last_look: Option<Offset>,
    /// How long the last look took: nine tenths of the time belong to the cuts.
    look_took: Duration,
}

/// Time between two readings of the counters for first drops, by the time since the youngest cut without one: what a
/// drop is bracketed by stays within 2 % of its time.
const PACE: Pace = Pace::new(Duration::from_millis(50), 50);
/// Up to this many trials are read one by one (0.2 ms each) instead of the sets that drop (2 ms for 1,000 trials).
const FEW: usize = 4;
/// No look is begun so shortly before a cut.
const CUT_FIRST: Duration = Duration::from_millis(20);

impl Cutter {
    /// A cutter over an installed table; `sock_diag` has one handle a client namespace.
    pub fn new(clock: Clock, table: FaultTable, sock_diag: Vec<SockDiag>, events: Sender<Message>) -> Self {
        Self {
            clock,
            table,
            sock_diag,
            events,
            due: BinaryHeap::new(),
            planned: Vec::new(),
            undropped: BTreeMap::new(),
            in_force: HashMap::new(),
            finished: HashSet::new(),
            last_look: None,
            look_took: Duration::ZERO,
        }
    }

    /// Serves requests until their sender is gone; returns the table for an orderly close.
    pub fn serve(mut self, requests: &Receiver<Request>) -> FaultTable {
        loop {
            let next_cut = self.due.peek().map(|Reverse((at, _))| *at);
            let request = match next_cut.into_iter().chain(self.next_look()).min() {
                Some(at) => requests.recv_timeout(at.since(self.clock.now())),
                None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match request {
                Ok(request) => self.take(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.table,
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
            Request::Cut { trial, at, tuple, scope, drop, client } => {
                self.planned.push(Planned { trial, tuple, scope, drop, client });
                self.due.push(Reverse((at, Due::Cut(self.planned.len() - 1))));
            }
            Request::Heal { trial, at } => self.due.push(Reverse((at, Due::Heal(trial)))),
            Request::Certify(trial) => self.certify(trial),
            Request::Finish { trial, why } => {
                self.certify(trial);
                self.finished.insert(trial);
                self.undropped.remove(&trial);
                self.say(trial, Kind::TrialEnded { why: why.to_string() });
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
                Due::Heal(trial) => self.heal(trial),
            }
        }
    }

    fn cut(&mut self, index: usize) {
        let Planned { trial, tuple, scope, drop, client } = self.planned[index];
        if self.finished.contains(&trial) {
            return;
        }
        let socket = self.sock_diag.get_mut(client).and_then(|d| d.get(tuple).ok().flatten());
        let age_at_fault_s = socket.map(|s| f64::from(s.last_data_recv_ms.min(s.last_ack_recv_ms)) / 1e3);
        let kind = match self.table.cut(Cut { trial, tuple, scope, drop }) {
            Ok(applied) => {
                // A control has its instant and its counters like the others; nothing will ever be dropped.
                if !drop.is_none() {
                    self.undropped.insert(trial, applied.after);
                }
                self.in_force.insert(trial, true);
                Kind::FaultApplied { tuple, before: applied.before, after: applied.after, age_at_fault_s }
            }
            Err(error) => Kind::FaultFailed { reason: error.to_string() },
        };
        self.say(trial, kind);
    }

    /// The certificate is read before the rules go: what passes afterwards is no breach.
    fn heal(&mut self, trial: TrialId) {
        if self.finished.contains(&trial) || self.in_force.get(&trial) != Some(&true) {
            return;
        }
        self.certify(trial);
        match self.table.heal(trial) {
            Ok(applied) => {
                self.in_force.insert(trial, false);
                self.undropped.remove(&trial);
                self.say(trial, Kind::FaultHealed { before: applied.before, after: applied.after });
            }
            Err(error) => self.say(trial, Kind::Note { text: format!("the fault could not be taken back: {error}") }),
        }
    }

    fn certify(&mut self, trial: TrialId) {
        if self.finished.contains(&trial) || self.in_force.get(&trial) != Some(&true) {
            return;
        }
        match self.table.counters_of(trial) {
            Ok(read) => self.say(trial, Kind::Certificate { counters: read.counters, intact: read.intact }),
            Err(error) => self.say(trial, Kind::Note { text: format!("the certificate could not be read: {error}") }),
        }
    }

    fn look_for_first_drops(&mut self) {
        let now = self.clock.now();
        if self.next_look().is_none_or(|at| now < at) {
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
            Kind::FaultApplied { after, .. } | Kind::FaultHealed { after, .. } => *after,
            _ => self.clock.now(),
        };
        let _ = self.events.send(Message::Event(Event::of_trial(offset, Source::Harness, trial, kind)));
    }
}
