//! The checker: a record and its terms in, an account out.

use super::life::{Life, Record, Step};
use super::{Account, Anomaly, AnomalyKind, Fate, MessageId};
use crate::units::{Offset, TrialId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the transport and the consumer of a trial promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Terms {
    /// The broker keeps a message until it is acknowledged (AMQP; kombu's layout on Redis). Else it is gone with its
    /// delivery (`BRPOP`, bare TCP).
    pub kept: bool,
    /// The broker confirms what it was handed. Else handing over is all the promise that there is.
    pub confirmed: bool,
    /// The consumer acknowledges, and says so.
    pub acknowledged: bool,
    /// A task store is told of the end of the work.
    pub recorded: bool,
    /// Messages reach a connection in the order of their publication, repeated ones excepted.
    pub ordered: bool,
    /// Deliveries are seen. Of a program that is watched from outside only its effects are.
    pub inside: bool,
    /// How long honest work may take, in milliseconds: nothing that happened closer to the end proves an omission.
    pub grace_ms: u64,
}

impl Default for Terms {
    /// AMQP with late acknowledgement and no task store.
    fn default() -> Self {
        Self {
            kept: true,
            confirmed: true,
            acknowledged: true,
            recorded: false,
            ordered: true,
            inside: true,
            grace_ms: 2_000,
        }
    }
}

/// Judges the messages of one trial.
#[must_use]
pub fn check(trial: TrialId, record: &Record, terms: &Terms) -> Account {
    let checker = Checker {
        trial,
        record,
        terms,
        works: record.lives.values().any(|l| !l.started.is_empty() || !l.effects.is_empty()),
        taken: last_taken(record),
    };
    let mut account = Account::default();
    for (message, life) in &record.lives {
        checker.one(*message, life, &mut account);
    }
    if terms.ordered {
        checker.order(&mut account);
    }
    account.anomalies.sort();
    account
}

/// Of the messages that were handed over once, the latest that reached a consumer: when it was handed over.
fn last_taken(record: &Record) -> Option<(Offset, u64)> {
    let once = record.lives.iter().filter(|(_, l)| l.requeued.is_empty() && !l.deliveries.is_empty());
    once.filter_map(|(message, l)| Some((l.published.first().copied()?, *message))).max()
}

struct Checker<'r> {
    trial: TrialId,
    record: &'r Record,
    terms: &'r Terms,
    /// Whether anything is known of the work that messages stand for.
    works: bool,
    taken: Option<(Offset, u64)>,
}

impl Checker<'_> {
    fn id(&self, message: u64) -> MessageId {
        MessageId { trial: self.trial, message }
    }

    /// Whether what began at `at` would be over by the end of the record, or its process is gone.
    fn is_over(&self, at: Offset) -> bool {
        let grace = Duration::from_millis(self.terms.grace_ms);
        self.record.exited.is_some_and(|exited| exited >= at) || self.record.ended.since(at) > grace
    }

    fn one(&self, message: u64, life: &Life, account: &mut Account) {
        let id = self.id(message);
        let mut say = |kind, why: String| account.anomalies.push(Anomaly { kind, id, why });
        for what in self.contradictions(life) {
            say(AnomalyKind::Contradiction, what.to_string());
        }
        let lost = self.lost(message, life);
        if let Some(why) = lost {
            let told = if life.reaped.is_empty() { "" } else { "; a reaper failed its task" };
            say(AnomalyKind::Lost, format!("{why}{told}"));
        }
        if life.deliveries.len() > 1 + life.further_copies + life.retried.len() {
            say(AnomalyKind::DuplicatedDelivery, format!("{} deliveries", life.deliveries.len()));
        }
        if life.standing() > 1 + life.further_copies {
            let back = match life.compensated.len() {
                0 => String::new(),
                back => format!(", {back} taken back"),
            };
            say(AnomalyKind::DuplicatedEffect, format!("{} effects{back}", life.effects.len()));
        }
        if let Some((reaped, rule)) = falsely_killed(life) {
            say(
                AnomalyKind::FalselyKilled,
                format!("{rule} at {reaped} while its worker was at it and went on to finish"),
            );
        }
        if let Some(why) = self.zombie(life) {
            say(AnomalyKind::Zombie, why);
        }
        // Each try may be failed once; what had it queued again in between began another.
        let twice =
            life.reaped.windows(2).any(|pair| !life.requeued.iter().any(|at| *at >= pair[0].0 && *at <= pair[1].0));
        if twice {
            say(AnomalyKind::ReapedTwice, format!("failed {} times", life.reaped.len()));
        }
        if let Some(second) = self.second(life) {
            let why = format!("its user asked for it once more; it and {} were both done", self.id(second));
            say(AnomalyKind::SecondTask, why);
        }
        if !life.published.is_empty() {
            account.fates.insert(id, self.fate(life, lost.is_some()));
        }
    }

    fn contradictions(&self, life: &Life) -> Vec<&'static str> {
        let never = |list: bool| !list;
        let reached = !life.deliveries.is_empty();
        let mut found = Vec::new();
        if life.published.is_empty() {
            found.push("never published");
        }
        if self.terms.inside && never(reached) {
            if !life.acked.is_empty() {
                found.push("acknowledged and never delivered");
            }
            if !life.started.is_empty() || !life.effects.is_empty() {
                found.push("worked on and never delivered");
            }
        }
        if !life.recorded.is_empty() && life.failed().is_some() {
            found.push("both done and failed in the task store");
        }
        found
    }

    /// Why nobody has the message any more; `None` where that is not proven.
    fn lost(&self, message: u64, life: &Life) -> Option<&'static str> {
        if life.standing() > 0 || life.published.is_empty() {
            return None;
        }
        let last = |steps: &[Step]| steps.last().map(|step| step.at);
        if let Some(refused) = last(&life.refused).filter(|_| life.acked.len() <= life.retried.len()) {
            let gone = life.dead.is_empty() && self.is_over(refused);
            return gone.then_some("rejected by its consumer, and kept by nobody");
        }
        // Each retry hands it to the broker anew and acknowledges what was before: the last of them is still with somebody.
        if life.acked.len() <= life.retried.len() && !life.retried.is_empty() {
            return None;
        }
        if let Some(acked) = last(&life.acked) {
            // A worker that the task store refuses takes the message out of the queue: its task was failed before.
            let refused = !life.reaped.is_empty() && life.started.is_empty();
            let last_sign = last(&life.started).map_or(acked, |started| started.max(acked));
            let gone = self.works && !refused && self.is_over(last_sign);
            return gone.then_some("acknowledged, and its work was never done");
        }
        if self.terms.kept {
            return None;
        }
        if let Some(delivery) = life.deliveries.last() {
            let refused = !life.reaped.is_empty() && life.started.is_empty();
            let last_sign = last(&life.started).map_or(delivery.step.at, |started| started.max(delivery.step.at));
            let gone = self.works && !refused && self.is_over(last_sign);
            return gone.then_some("delivered once and for all, and its work was never done");
        }
        // A queue gives out in order: what was handed over before one that reached a consumer was taken before it.
        let promised = !self.terms.confirmed || !life.confirmed.is_empty();
        let overtaken =
            life.handed_over().zip(self.taken).is_some_and(|(own, (taken, by))| (own, message) < (taken, by));
        (self.terms.inside && promised && overtaken).then_some("taken out of its queue and never delivered")
    }

    /// The message that was done beside this one because a user had asked for its work once more.
    fn second(&self, life: &Life) -> Option<u64> {
        let done = |message: &&u64| self.record.lives.get(*message).is_some_and(|life| life.standing() > 0);
        life.reissues.iter().find(done).copied().filter(|_| life.standing() > 0)
    }

    /// Who should know of the work that was done and does not.
    fn zombie(&self, life: &Life) -> Option<String> {
        let effect = *life.effects.first().filter(|_| life.standing() > 0)?;
        if let Some((reaped, rule)) = life.failed() {
            return Some(format!("its work was done, and {rule} had it failed at {reaped}"));
        }
        let over = life.effects.last().is_some_and(|at| self.is_over(*at));
        let mut who = Vec::new();
        if over && self.terms.recorded && life.recorded.is_empty() {
            who.push("the task store");
        }
        if over && self.terms.acknowledged && self.terms.inside && life.acked.is_empty() {
            who.push("the broker");
        }
        (!who.is_empty()).then(|| format!("its work was done at {effect}, and {} was not told", who.join(" and ")))
    }

    fn fate(&self, life: &Life, lost: bool) -> Fate {
        let resolved = if self.works {
            life.standing() > life.further_copies
        } else if !life.reaped.is_empty() {
            // A worker that is refused acknowledges too.
            false
        } else if self.terms.acknowledged {
            !life.acked.is_empty()
        } else {
            !life.deliveries.is_empty()
        };
        let seen = !life.deliveries.is_empty() || !life.started.is_empty() || !life.acked.is_empty();
        let promised = !self.terms.confirmed || !life.confirmed.is_empty();
        match () {
            () if resolved => Fate::Done,
            () if life.failed().is_some() => Fate::Failed,
            () if lost => Fate::Lost,
            () if !life.dead.is_empty() => Fate::Refused,
            // What was handed over shortly before the end may have been confirmed shortly after it.
            () if !seen && !promised && life.published.last().is_some_and(|at| self.is_over(*at)) => Fate::Unconfirmed,
            () => Fate::Waiting,
        }
    }

    /// Deliveries of each connection against the order of publication. What the broker repeats, and what was handed over
    /// again, may come late; of two at one instant the record does not tell the order. Nor does it where a user asked for more
    /// besides: that is handed over beside the others, and only what was confirmed before was there before.
    fn order(&self, account: &mut Account) {
        let mut by_attempt: BTreeMap<u32, Vec<Arrival>> = BTreeMap::new();
        let beside = self.record.lives.values().any(|life| !life.reissues.is_empty());
        let settled = |message: u64| self.record.lives.get(&message).and_then(|life| life.confirmed.first().copied());
        for (message, life) in self.record.lives.iter().filter(|(_, l)| l.requeued.is_empty() && l.retried.is_empty()) {
            let Some(published) = life.published.first() else { continue };
            for delivery in life.deliveries.iter().filter(|d| !d.redelivered) {
                let list = by_attempt.entry(delivery.step.attempt).or_default();
                list.push((delivery.step.at, (*published, *message)));
            }
        }
        for list in by_attempt.values_mut() {
            list.sort_unstable();
            let mut latest: Option<(Offset, u64)> = None;
            for together in list.chunk_by(|a, b| a.0 == b.0) {
                for (_, key) in together {
                    let before = |latest: &(Offset, u64)| match beside {
                        true => settled(key.1).is_some_and(|at| at < latest.0),
                        false => key < latest,
                    };
                    if let Some((_, by)) = latest.filter(before) {
                        let why = format!("delivered after {}, which was published later", self.id(by));
                        account.anomalies.push(Anomaly { kind: AnomalyKind::OutOfOrder, id: self.id(key.1), why });
                    }
                }
                latest = together.iter().map(|(_, key)| *key).chain(latest).max();
            }
        }
    }
}

/// When a message came, and its place in the order of publication.
type Arrival = (Offset, (Offset, u64));

/// The first failing by a reaper that fell between the beginning of a work and its end. Of works that began again after it
/// each may have an end of its own: only what is beyond these was going on when it fell.
fn falsely_killed(life: &Life) -> Option<&(Offset, String)> {
    life.reaped.iter().find(|(reaped, _)| {
        let after = life.started.iter().filter(|step| step.at > *reaped).count();
        life.started.iter().any(|step| step.at <= *reaped)
            && life.effects.iter().filter(|effect| *effect >= reaped).count() > after
    })
}
