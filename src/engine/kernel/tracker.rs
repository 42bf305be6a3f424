//! The course of each trial: opened, consuming, settled, cut, noticed, recovered, ended.
//!
//! Pure: events and the time go in, orders come out; the dispatcher carries them out. What is left out: any verdict.
//! The tracker only decides what to do next and when a trial can't tell anything new.

use crate::events::{Event, Kind, Source, Tuple};
use crate::plan::{self, Plan};
use crate::scenario::{Act, BrokerKind, Fault, Trigger};
use crate::units::{Offset, TrialId};
use std::net::SocketAddrV4;
use std::time::Duration;

/// What the dispatcher has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Start this trial's numbered messages on the real broker.
    StartLoad {
        /// The trial.
        trial: TrialId,
        /// When the first one is due, where it is a task with an ETA.
        first_due: Option<Offset>,
    },
    /// Let this trial's writer fill the window of its peer, which does not read.
    Fill(TrialId),
    /// Let this trial's client make its synchronous call: the cut is in force.
    Call(TrialId),
    /// Let this trial's worker stand still at that point of the next task that it begins from then on.
    HaltAt(TrialId, Trigger, Offset),
    /// Let it go on: the fault is in force.
    GoOn(TrialId),
    /// Put the fault in force at the given time.
    Cut {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// The connection under test.
        tuple: Tuple,
    },
    /// End the connection at the broker's end, with a RST, so that the client reconnects into the fault.
    HangUp {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// The connection.
        tuple: Tuple,
    },
    /// The connection has begun whose fault was in force before it.
    Begun {
        /// The trial.
        trial: TrialId,
        /// The connection under test.
        tuple: Tuple,
        /// When the client began to connect.
        before: Offset,
        /// From when on it has waited in vain.
        after: Offset,
    },
    /// Put the healed fault in force again at the given time.
    Again {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// Which time it is, from 2.
        time: u32,
    },
    /// Take the fault back at the given time.
    Heal {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
    },
    /// Read the trial's certificate now, because its subject noticed.
    Certify(TrialId),
    /// End the trial: last certificate, close its connection, stop its load.
    End {
        /// The trial.
        trial: TrialId,
        /// `horizon`, `complete` or `interrupted`.
        why: &'static str,
    },
}

/// How long before a late answer its trial's packets are counted for the last time.
const BEFORE_THE_ANSWER: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default)]
struct State {
    tuple: Option<Tuple>,
    connecting: Option<Offset>,
    ready: bool,
    failed: bool,
    /// It has met a fault that was in force before it.
    begun: bool,
    applied: Option<Offset>,
    /// From when on a cut was ordered that tells the client by itself, perhaps before the harness hears that it was done.
    told_from: Option<Offset>,
    /// From when on the next delivery brings the cut, or the next task that comes to a point of its work.
    awaits: Option<Offset>,
    /// From when on the client's reconnect brings the cut.
    reconnects: Option<Offset>,
    /// When the connection should have been silent for long enough to be forgotten, if it carries nothing.
    idle_at: Option<Offset>,
    /// How often the fault has been in force.
    times: u32,
    noticed: bool,
    recovered: bool,
    /// A message got through after the recovery.
    through: bool,
    kernel_end: bool,
    broker_end: bool,
    ended: bool,
}

/// Follows all trials of a plan.
#[derive(Debug)]
pub struct Tracker<'a> {
    plan: &'a Plan,
    states: Vec<State>,
    /// Trials that have neither become ready nor failed.
    opening: usize,
    open_deadline: Offset,
    started: bool,
    active: usize,
    /// The earliest end of a horizon among the trials that are cut and have not ended; may be too early, never too late.
    next_horizon: Option<Offset>,
}

impl<'a> Tracker<'a> {
    /// A tracker for trials that are being opened at `now`; those not consuming after `patience` are given up.
    #[must_use]
    pub fn new(plan: &'a Plan, now: Offset, patience: Duration) -> Self {
        let n = plan.trials.len();
        Self {
            plan,
            states: vec![State::default(); n],
            opening: n,
            open_deadline: now + patience,
            started: false,
            active: n,
            next_horizon: None,
        }
    }

    /// When [`Self::tick`] has something to do although nothing happens until then; `None` when only events can change
    /// anything.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Offset> {
        let opening = (!self.started).then_some(self.open_deadline);
        self.next_horizon.into_iter().chain(opening).min()
    }

    /// Whether every trial has ended.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.active == 0
    }

    /// Trials that consume, those that are cut, those that have noticed and those that have ended, for the progress.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let count = |f: fn(&State) -> bool| self.states.iter().filter(|s| f(s)).count();
        (count(|s| s.ready), count(|s| s.applied.is_some()), count(|s| s.noticed), count(|s| s.ended))
    }

    /// Takes an event in.
    pub fn on_event(&mut self, event: &Event) -> Vec<Order> {
        let Some(index) = event.trial.and_then(|id| self.plan.position(id)) else { return Vec::new() };
        let trial = &self.plan.trials[index];
        let (id, state) = (trial.id, &mut self.states[index]);
        let mut orders = Vec::new();
        match &event.kind {
            Kind::Connecting { attempt: 0 } => {
                state.connecting = Some(event.offset);
                let fault = &self.plan.scenario.faults[trial.fault];
                if fault.act == Some(Act::WithholdAnswer) && !state.begun && !state.failed {
                    state.begun = true;
                    self.opening -= 1;
                    // There is no connection yet: its client's port is not known.
                    let port = self.plan.scenario.arms[trial.arm].settings.port();
                    let local = SocketAddrV4::new(trial.client, 0);
                    let tuple = Tuple { local, peer: SocketAddrV4::new(trial.server, port) };
                    let (before, after) = (event.offset, event.offset);
                    orders.push(Order::Begun { trial: id, tuple, before, after });
                }
            }
            Kind::Connected { attempt: 0, tuple } => {
                state.tuple = Some(*tuple);
                let fault = &self.plan.scenario.faults[trial.fault];
                if fault.in_handshake() && !state.begun && !state.failed {
                    state.begun = true;
                    self.opening -= 1;
                    let before = state.connecting.unwrap_or(event.offset).min(event.offset);
                    orders.push(Order::Begun { trial: id, tuple: *tuple, before, after: event.offset });
                }
            }
            Kind::Connected { attempt: 1, tuple } if state.reconnects.is_some() && state.applied.is_none() => {
                let fault = &self.plan.scenario.faults[trial.fault];
                // Of a wider scope the cut was there before the SYN.
                if fault.scope.lets_reconnect() {
                    state.tuple = Some(*tuple);
                    orders.push(Order::Cut { trial: id, at: event.offset, tuple: *tuple });
                }
            }
            Kind::ConnectFailed { attempt: 0, .. } if state.begun && !state.noticed => {
                state.noticed = true;
                orders.push(Order::Certify(id));
            }
            Kind::Ready { attempt: 0 } if !state.ready && !state.failed => {
                state.ready = true;
                self.opening -= usize::from(!state.begun);
                let arm = &self.plan.scenario.arms[trial.arm];
                let loaded = self.plan.scenario.load_of(arm).is_some();
                // A task with an ETA counts from the cut, which has its place only when all are ready.
                let flows = arm.settings.is_ready_by_message();
                if loaded
                    && !flows
                    && self.plan.scenario.eta.is_none()
                    && arm.settings.subject.broker() != BrokerKind::None
                {
                    orders.push(Order::StartLoad { trial: id, first_due: None });
                }
            }
            Kind::Ready { .. } if state.noticed => state.recovered = true,
            Kind::Delivered { attempt: 0, .. } | Kind::Halted { attempt: 0, .. }
                if awaited(event, self.plan.scenario.faults[trial.fault].trigger)
                    && state.awaits.is_some_and(|from| event.offset >= from) =>
            {
                state.awaits = None;
                if let Some(tuple) = state.tuple {
                    state.told_from = told_from(&self.plan.scenario.faults[trial.fault], event.offset);
                    orders.push(Order::Cut { trial: id, at: event.offset, tuple });
                }
            }
            Kind::Delivered { .. } | Kind::PeerReceived { .. } if state.recovered => state.through = true,
            // The harness' own doing.
            Kind::Notice { attempt: 0, .. } if state.reconnects.is_some() => {}
            Kind::ConnectFailed { attempt: 1, .. } | Kind::Notice { attempt: 1, .. }
                if state.reconnects.is_some() && !state.noticed =>
            {
                state.noticed = true;
                if state.applied.is_some() {
                    orders.push(Order::Certify(id));
                } else {
                    orders.extend(self.end(index, "complete"));
                }
            }
            Kind::Notice { attempt: 0, .. } if !state.noticed => {
                state.noticed = true;
                if state.applied.is_some() {
                    orders.push(Order::Certify(id));
                } else if state.told_from.is_none_or(|from| event.offset < from) {
                    orders.extend(self.end(index, "complete"));
                }
            }
            Kind::FaultApplied { after, .. } => {
                state.applied = Some(*after);
                state.times = 1;
                if state.noticed {
                    orders.push(Order::Certify(id));
                }
                let ends = *after + self.plan.scenario.horizon;
                self.next_horizon = Some(self.next_horizon.map_or(ends, |next| next.min(ends)));
                if self.plan.scenario.arms[trial.arm].settings.sync_call.is_some() {
                    orders.push(Order::Call(id));
                }
                let fault = &self.plan.scenario.faults[trial.fault];
                if fault.trigger.is_some_and(Trigger::halts) {
                    orders.push(Order::GoOn(id));
                }
                if let Some(duration) = fault.duration.get() {
                    // The name server answers by its own clock: what is counted ends shortly before.
                    let early = if fault.act == Some(Act::WithholdAnswer) { BEFORE_THE_ANSWER } else { Duration::ZERO };
                    orders.push(Order::Heal { trial: id, at: *after + duration.saturating_sub(early) });
                }
            }
            Kind::FaultHealed { after, .. } => {
                let repeat = self.plan.scenario.faults[trial.fault].repeat;
                let act = self.plan.scenario.faults[trial.fault].act;
                if let Some(repeat) = repeat.filter(|repeat| state.times < repeat.times) {
                    let time = state.times + 1;
                    // What concerns everybody comes at one moment for all.
                    let whose = act.is_none_or(|act| !act.hits_all()).then_some(id);
                    let pause = match act {
                        Some(act) if act.starts_again() => {
                            plan::lives_for(self.plan.scenario.seed, whose, time, repeat.pause)
                        }
                        _ => repeat.pause,
                    };
                    orders.push(Order::Again { trial: id, at: *after + pause, time });
                }
            }
            Kind::FaultRepeated { after, .. } => {
                state.times += 1;
                if let Some(duration) = self.plan.scenario.faults[trial.fault].duration.get() {
                    orders.push(Order::Heal { trial: id, at: *after + duration });
                }
            }
            // It was killed: what becomes of its work is still to be seen.
            Kind::SubjectExited { .. }
                if self.plan.scenario.faults[trial.fault].act == Some(Act::KillWorker)
                    && state.told_from.is_some_and(|from| event.offset >= from) => {}
            Kind::FaultFailed { .. } | Kind::SubjectExited { .. } => orders.extend(self.end(index, "complete")),
            Kind::KernelEnd { tuple, .. } if Some(*tuple) == state.tuple => state.kernel_end = true,
            Kind::BrokerEnd { tuple, .. } if Some(*tuple) == state.tuple && event.source == Source::Broker => {
                state.broker_end = true;
            }
            _ => {}
        }
        if self.complete(index) {
            orders.extend(self.end(index, "complete"));
        }
        orders
    }

    /// What is due at `now`. Call it after each event and at [`Self::next_deadline`].
    pub fn tick(&mut self, now: Offset) -> Vec<Order> {
        let mut orders = Vec::new();
        if !self.started && (self.opening == 0 || now >= self.open_deadline) {
            self.started = true;
            orders.extend(self.start(now));
        }
        if self.next_horizon.is_some_and(|next| now >= next) {
            for index in 0..self.states.len() {
                if self.horizon_of(index).is_some_and(|end| now >= end) {
                    orders.extend(self.end(index, "horizon"));
                }
            }
            self.next_horizon = (0..self.states.len()).filter_map(|index| self.horizon_of(index)).min();
        }
        orders
    }

    /// Ends everything that has not ended.
    pub fn interrupt(&mut self) -> Vec<Order> {
        (0..self.states.len()).filter_map(|i| self.end(i, "interrupted")).collect()
    }

    /// All that could become ready has: the cuts are placed from here on.
    fn start(&mut self, now: Offset) -> Vec<Order> {
        let mut orders = Vec::new();
        for (index, trial) in self.plan.trials.iter().enumerate() {
            let state = &mut self.states[index];
            if state.ended || state.begun {
                continue;
            }
            let (true, Some(tuple)) = (state.ready, state.tuple) else {
                state.failed = true;
                orders.extend(self.end(index, "complete"));
                continue;
            };
            let fault = &self.plan.scenario.faults[trial.fault];
            let at = now + self.plan.scenario.settle + trial.phase;
            if let Some(eta) = self.plan.scenario.eta {
                orders.push(Order::StartLoad { trial: trial.id, first_due: Some(at + eta) });
            }
            if !self.plan.scenario.arms[trial.arm].settings.peer_reads {
                orders.push(Order::Fill(trial.id));
            }
            state.idle_at = fault.idle.map(|idle| at + idle);
            if fault.trigger == Some(Trigger::InFlight) {
                state.awaits = Some(at);
            } else if let Some(point) = fault.trigger.filter(|trigger| trigger.halts()) {
                state.awaits = Some(at);
                orders.push(Order::HaltAt(trial.id, point, at));
            } else if fault.trigger == Some(Trigger::Reconnect) {
                state.reconnects = Some(at);
                orders.push(Order::HangUp { trial: trial.id, at, tuple });
            } else {
                state.told_from = told_from(fault, at);
                orders.push(Order::Cut { trial: trial.id, at, tuple });
            }
        }
        self.next_horizon = (0..self.states.len()).filter_map(|index| self.horizon_of(index)).min();
        orders
    }

    /// When a trial that has not ended ends at the latest, once that is known.
    fn horizon_of(&self, index: usize) -> Option<Offset> {
        let state = &self.states[index];
        // One that still waits for its delivery, or to fall idle, is given up after a horizon, too.
        state
            .applied
            .or(state.awaits)
            .or(state.reconnects)
            .or(state.idle_at)
            .filter(|_| !state.ended)
            .map(|zero| zero + self.plan.scenario.horizon)
    }

    /// Whether everything that could be learnt before the horizon has been.
    fn complete(&self, index: usize) -> bool {
        let state = &self.states[index];
        let trial = &self.plan.trials[index];
        let fault = &self.plan.scenario.faults[trial.fault];
        let arm = &self.plan.scenario.arms[trial.arm];
        let broker = arm.settings.subject.broker();
        let can_recover = fault.scope.lets_reconnect() || fault.duration.get().is_some();
        // A real broker may still redeliver; what a bare connection lost is lost.
        let messages_tell_more =
            self.plan.scenario.load_of(arm).is_some() && (broker != BrokerKind::None || !can_recover || !state.through);
        // A broker that comes back is killed again.
        if fault.in_handshake() {
            let over = state.recovered || fault.duration.get().is_none();
            return state.applied.is_some() && ((state.noticed && over) || state.ready);
        }
        let over = !matches!(fault.act, Some(Act::RestartBroker | Act::ResetThrice));
        over && !messages_tell_more
            && state.applied.is_some()
            && state.noticed
            && state.kernel_end
            && (state.recovered || !can_recover)
            && (state.broker_end || broker != BrokerKind::Rabbitmq)
    }

    fn end(&mut self, index: usize, why: &'static str) -> Option<Order> {
        let state = &mut self.states[index];
        if state.ended {
            return None;
        }
        state.ended = true;
        self.active -= 1;
        if !state.ready && !state.failed && !state.begun {
            state.failed = true;
            self.opening -= 1;
        }
        Some(Order::End { trial: self.plan.trials[index].id, why })
    }
}

/// Whether it is what the cut waits for.
fn awaited(event: &Event, trigger: Option<Trigger>) -> bool {
    match &event.kind {
        Kind::Halted { .. } => trigger.is_some_and(Trigger::halts),
        _ => trigger == Some(Trigger::InFlight),
    }
}

/// From when on a client may tell of its end, or come to it, because of a cut that was ordered for then.
fn told_from(fault: &Fault, at: Offset) -> Option<Offset> {
    let tells = |act: Act| act.tells_at_once() || act == Act::KillWorker;
    fault.act.is_some_and(tells).then_some(at)
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
