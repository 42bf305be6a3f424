//! What the tracker orders, handed on to those who do it.

use super::super::cutter::{LEASE_BEYOND, Request, What};
use super::super::tracker::Order;
use super::Run;
use crate::clients;
use crate::lab::ADMIN;
use crate::scenario::BrokerKind;
use crate::subject::protocol::{Command, Routing, Task};
use crate::units::{Offset, TrialId};

impl Run<'_> {
    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::StartLoad { trial, first_due } => self.start_load(trial, first_due),
            Order::Fill(trial) => self.tell_host(trial, &Command::Fill { trial }),
            Order::Call(trial) => self.tell_host(trial, &Command::Call { trial }),
            Order::HaltAt(trial, point, from) => self.tell_host(trial, &Command::HaltAt { trial, point, from }),
            Order::GoOn(trial) => self.tell_host(trial, &Command::GoOn { trial }),
            Order::Cut { trial, at, tuple } => {
                let Some(planned) = self.plan.trial(trial) else { return };
                let scenario = &self.plan.scenario;
                let mut what = What::of(&scenario.faults[planned.fault], scenario.horizon);
                if self.lab.attached_pid(trial).is_some() {
                    // Somebody else's path is never cut for longer than was said, whatever becomes of the harness.
                    what.lease = what.lease.or(Some(scenario.horizon + LEASE_BEYOND));
                }
                self.ask(Request::Cut { trial, at, tuple, what, client: self.place_of(trial) });
            }
            Order::HangUp { trial, at, tuple } => {
                let Some(planned) = self.plan.trial(trial) else { return };
                let scenario = &self.plan.scenario;
                let what = What::of(&scenario.faults[planned.fault], scenario.horizon);
                self.ask(Request::HangUp { trial, at, tuple, what, client: planned.arm });
            }
            Order::Begun { trial, tuple, before, after } => {
                let Some(planned) = self.plan.trial(trial) else { return };
                let what = What::of(&self.plan.scenario.faults[planned.fault], self.plan.scenario.horizon);
                self.ask(Request::Begun { trial, tuple, what, before, after });
            }
            Order::Again { trial, at, time } => self.ask(Request::Again { trial, at, time }),
            Order::Heal { trial, at } => self.ask(Request::Heal { trial, at }),
            Order::Certify(trial) => self.ask(Request::Certify(trial)),
            Order::End { trial, why } => {
                let at = self.clock.now();
                self.ask(Request::Finish { trial, why, at });
                self.outside.end(trial);
                self.tell_host(trial, &Command::Close { trial });
                self.tell_what_the_store_knows(trial);
                if let Some(producer) = self.producer {
                    self.children[producer].send(&Command::Close { trial });
                }
            }
        }
    }

    /// Has the producer publish for a trial.
    fn start_load(&mut self, trial: TrialId, first_due: Option<Offset>) {
        let scenario = &self.plan.scenario;
        let arm = &scenario.arms[self.arm_of(trial)];
        let (Some(producer), Some(interval)) = (self.producer, scenario.load_of(arm)) else { return };
        let untracked = scenario.sweeps_of(arm).is_some();
        let settings = &arm.settings;
        let kind = settings.subject.broker();
        let target = self.target(trial, ADMIN, kind);
        let task = match clients::adapter(settings) {
            Some(adapter) => Some(Task { message: adapter.message, declare: adapter.declare, first_due }),
            // Our own consumer in kombu's layout takes what a Celery worker would.
            None if kind == BrokerKind::Redis && settings.ack.is_some() => {
                let message = clients::Message::Celery("halfopen.effect".to_string());
                Some(Task { message, declare: false, first_due })
            }
            None => None,
        };
        let (jobs, mut delivery) = (self.plan.scenario.jobs.clone(), settings.delivery.clone());
        // A second consumer goes by what the client under test was told.
        delivery.visibility_timeout = settings.visibility_timeout();
        let routing = Box::new(Routing { jobs, delivery, count: self.plan.scenario.load_count });
        self.children[producer].send(&Command::Publish {
            trial,
            broker: kind,
            target,
            interval,
            task,
            routing,
            second_consumer: self.plan.scenario.second_consumer,
            // The task that is due after the cut is for the client under test: by the cut it has it.
            second_from: first_due.zip(self.plan.scenario.eta).map(|(due, eta)| due - eta),
            untracked,
        });
    }
}
