//! The course of each trial: opened, consuming, settled, cut, noticed, recovered, ended.
//!
//! Pure: events and the time go in, orders come out; the dispatcher carries them out. What is left out: any verdict.
//! The tracker only decides what to do next and when a trial can't tell anything new.

use crate::events::{Event, Kind, Source, Tuple};
use crate::plan::Plan;
use crate::scenario::{Act, BrokerKind, Scope, Trigger};
use crate::units::{Offset, TrialId};
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
    /// Put the fault in force at the given time.
    Cut {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// The connection under test.
        tuple: Tuple,
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

#[derive(Debug, Clone, Default)]
struct State {
    tuple: Option<Tuple>,
    ready: bool,
    failed: bool,
    applied: Option<Offset>,
    /// From when on a cut was ordered that tells the client by itself, perhaps before the harness hears that it was done.
    told_from: Option<Offset>,
    /// From when on the next delivery brings the cut.
    awaits: Option<Offset>,
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
        if self.started { self.next_horizon } else { Some(self.open_deadline) }
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
            Kind::Connected { attempt: 0, tuple } => state.tuple = Some(*tuple),
            Kind::Ready { attempt: 0 } if !state.ready && !state.failed => {
                state.ready = true;
                self.opening -= 1;
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
            Kind::Delivered { attempt: 0, .. } if state.awaits.is_some_and(|from| event.offset >= from) => {
                state.awaits = None;
                if let Some(tuple) = state.tuple {
                    orders.push(Order::Cut { trial: id, at: event.offset, tuple });
                }
            }
            Kind::Delivered { .. } | Kind::PeerReceived { .. } if state.recovered => state.through = true,
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
                if let Some(duration) = fault.duration.get() {
                    orders.push(Order::Heal { trial: id, at: *after + duration });
                }
            }
            Kind::FaultHealed { after, .. } => {
                let repeat = self.plan.scenario.faults[trial.fault].repeat;
                if let Some(repeat) = repeat.filter(|repeat| state.times < repeat.times) {
                    orders.push(Order::Again { trial: id, at: *after + repeat.pause, time: state.times + 1 });
                }
            }
            Kind::FaultRepeated { after, .. } => {
                state.times += 1;
                if let Some(duration) = self.plan.scenario.faults[trial.fault].duration.get() {
                    orders.push(Order::Heal { trial: id, at: *after + duration });
                }
            }
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
            if state.ended {
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
            } else {
                state.told_from = fault.act.is_some_and(Act::tells_at_once).then_some(at);
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
        let can_recover = fault.scope == Scope::Flow || fault.duration.get().is_some();
        // A real broker may still redeliver; what a bare connection lost is lost.
        let messages_tell_more =
            self.plan.scenario.load_of(arm).is_some() && (broker != BrokerKind::None || !can_recover || !state.through);
        // A broker that comes back is killed again.
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
        if !state.ready && !state.failed {
            state.failed = true;
            self.opening -= 1;
        }
        Some(Order::End { trial: self.plan.trials[index].id, why })
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
