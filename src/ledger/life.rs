//! What the record says of each message.

use crate::events::{Event, Kind};
use crate::units::{Offset, TrialId};
use std::collections::BTreeMap;
use std::fmt;

/// A message's name within a run, written `trial.message` as in the task store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The trial.
    pub trial: TrialId,
    /// Its number within it.
    pub message: u64,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.trial, self.message)
    }
}

/// The number of the connection of a second consumer, which is none of the client's.
const ELSEWHERE: u32 = u32::MAX;

/// Something that happened over one of the client's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// When.
    pub at: Offset,
    /// The connection's number within the trial.
    pub attempt: u32,
}

/// The message reached a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivery {
    /// When and over which connection.
    pub step: Step,
    /// Whether the broker said that it had been delivered before.
    pub redelivered: bool,
}

/// Everything that the record says of one message; each list in order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Life {
    /// Handed to the broker, or by a bare TCP writer to its kernel.
    pub published: Vec<Offset>,
    /// Confirmed by the broker.
    pub confirmed: Vec<Offset>,
    /// It reached a consumer, or a bare TCP writer's peer.
    pub deliveries: Vec<Delivery>,
    /// Its work began.
    pub started: Vec<Step>,
    /// Its work was done: one external effect each.
    pub effects: Vec<Offset>,
    /// One of them was taken back at the provider.
    pub compensated: Vec<Offset>,
    /// A task store was told so and took it.
    pub recorded: Vec<Step>,
    /// The consumer acknowledged it, by its own word.
    pub acked: Vec<Step>,
    /// A reaper failed it, by which rule.
    pub reaped: Vec<(Offset, String)>,
    /// Those of these times after which its own retries were to take over.
    pub spared: Vec<Offset>,
    /// A reaper had it handed to the broker again.
    pub requeued: Vec<Offset>,
    /// Its work failed and its worker handed it to the broker again.
    pub retried: Vec<Offset>,
    /// A consumer rejected it for good.
    pub refused: Vec<Step>,
    /// It reached the queue of dead letters.
    pub dead: Vec<Offset>,
    /// Queues beside the first that were to have a copy of it.
    pub further_copies: usize,
    /// The messages that were published because a user had asked for its work once more.
    pub reissues: Vec<u64>,
}

impl Life {
    /// When it was last handed to the broker.
    #[must_use]
    pub fn handed_over(&self) -> Option<Offset> {
        self.published.iter().chain(&self.requeued).max().copied()
    }

    /// The effects that stand: those that nobody took back.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.effects.len().saturating_sub(self.compensated.len())
    }

    /// The first time that a reaper failed it for good.
    #[must_use]
    pub fn failed(&self) -> Option<&(Offset, String)> {
        self.reaped.iter().find(|(at, _)| !self.spared.contains(at))
    }

    fn tidy(&mut self) {
        fn sort<T: Ord>(list: &mut Vec<T>) {
            list.sort();
            list.dedup();
        }
        sort(&mut self.published);
        sort(&mut self.confirmed);
        sort(&mut self.deliveries);
        sort(&mut self.started);
        sort(&mut self.effects);
        sort(&mut self.compensated);
        sort(&mut self.recorded);
        sort(&mut self.acked);
        sort(&mut self.reaped);
        sort(&mut self.spared);
        sort(&mut self.requeued);
        sort(&mut self.retried);
        sort(&mut self.refused);
        sort(&mut self.dead);
        sort(&mut self.reissues);
    }
}

/// The lives of one trial's messages, and how the trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// By number.
    pub lives: BTreeMap<u64, Life>,
    /// The end of the watch; what follows is the harness tidying up and is not in the lives. The last event, where the
    /// record breaks off.
    pub ended: Offset,
    /// When a process of the consumer's ended, within the watch: the last time, where another one came after it.
    pub exited: Option<Offset>,
}

impl Record {
    /// From a trial's events, in any order and with any of them repeated. Other trials' events must not be among them.
    pub fn new<'e>(events: impl IntoIterator<Item = &'e Event> + Clone) -> Self {
        let over = |e: &&Event| matches!(e.kind, Kind::TrialEnded { .. });
        let ended = events.clone().into_iter().filter(over).map(|e| e.offset).min();
        let last = events.clone().into_iter().map(|e| e.offset).max().unwrap_or_default();
        let ended = ended.unwrap_or(last);
        let mut record = Self { ended, ..Self::default() };
        for event in events.into_iter().filter(|e| e.offset <= ended) {
            record.take(event.offset, &event.kind);
        }
        // Older recordings know of the work's end only from the task store.
        if record.lives.values().all(|life| life.effects.is_empty()) {
            for life in record.lives.values_mut() {
                life.effects = life.recorded.iter().map(|step| step.at).collect();
            }
        }
        record.lives.values_mut().for_each(Life::tidy);
        record
    }

    /// Says how many queues are to have a copy of each message.
    pub fn expect_copies(&mut self, of: impl Fn(u64) -> usize) {
        for (message, life) in &mut self.lives {
            life.further_copies = of(*message).saturating_sub(1);
        }
    }

    fn of(&mut self, message: u64) -> &mut Life {
        self.lives.entry(message).or_default()
    }

    fn take(&mut self, at: Offset, kind: &Kind) {
        match kind {
            Kind::Elsewhere { message, redelivered } => {
                let step = Step { at, attempt: ELSEWHERE };
                let life = self.of(*message);
                life.deliveries.push(Delivery { step, redelivered: *redelivered });
                life.effects.push(at);
                life.acked.push(step);
            }
            Kind::Published { message } | Kind::Sent { message, .. } => self.of(*message).published.push(at),
            Kind::Confirmed { message } => self.of(*message).confirmed.push(at),
            Kind::Delivered { attempt, message, redelivered } => {
                let step = Step { at, attempt: *attempt };
                self.of(*message).deliveries.push(Delivery { step, redelivered: *redelivered });
            }
            // The peer does not say over which connection; its order is that of the stream.
            Kind::PeerReceived { message } => {
                self.of(*message).deliveries.push(Delivery { step: Step { at, attempt: 0 }, redelivered: false });
            }
            Kind::Started { attempt, message } => self.of(*message).started.push(Step { at, attempt: *attempt }),
            Kind::Effect { message } => self.of(*message).effects.push(at),
            Kind::Compensated { message } => self.of(*message).compensated.push(at),
            Kind::Finished { attempt, message } => self.of(*message).recorded.push(Step { at, attempt: *attempt }),
            Kind::Acked { attempt, message } => self.of(*message).acked.push(Step { at, attempt: *attempt }),
            Kind::Reaped { message, rule, retried } => {
                let life = self.of(*message);
                life.reaped.push((at, rule.clone()));
                life.spared.extend(retried.then_some(at));
            }
            Kind::Reissued { message, of } => self.of(*of).reissues.push(*message),
            Kind::Requeued { message } => self.of(*message).requeued.push(at),
            Kind::Retried { message, .. } => self.of(*message).retried.push(at),
            Kind::Refused { attempt, message } => self.of(*message).refused.push(Step { at, attempt: *attempt }),
            Kind::DeadLettered { message } => self.of(*message).dead.push(at),
            Kind::SubjectExited { .. } => self.exited = self.exited.max(Some(at)),
            _ => {}
        }
    }
}
