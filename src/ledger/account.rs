//! What a ledger comes to.

use super::MessageId;
use std::collections::BTreeMap;
use std::fmt;

/// What became of a published message. Each has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Its work was done (where no work is known of: it was acknowledged, or reached its consumer).
    Done,
    /// A reaper failed it and its work was never done.
    Failed,
    /// Nobody has it any more, nobody did its work, and nobody was told.
    Lost,
    /// None of these by the end of the watch: with the broker, on its way, or in a worker's hands.
    Waiting,
    /// Its consumers rejected it, and it is kept among the dead letters.
    Refused,
    /// Never confirmed and never seen again: nobody had promised anything.
    Unconfirmed,
}

impl Fate {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 6] = [Self::Done, Self::Failed, Self::Lost, Self::Waiting, Self::Refused, Self::Unconfirmed];

    /// The word in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// A kind of thing that went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnomalyKind {
    /// Nobody has the message any more and its work was never done.
    Lost,
    /// It reached consumers more than once.
    DuplicatedDelivery,
    /// Its work was done more than once.
    DuplicatedEffect,
    /// A reaper failed it while a worker was at it that went on to finish.
    FalselyKilled,
    /// Its work was done, and somebody who should know does not: the broker, the task store, or whoever was told that it
    /// had failed.
    Zombie,
    /// It reached a consumer after one that was published later, where order is promised.
    OutOfOrder,
    /// Reapers failed it more than once.
    ReapedTwice,
    /// It came out of a queue that its routes do not lead to.
    Misrouted,
    /// Its user asked for it once more while it was well, and both were done.
    SecondTask,
    /// The record contradicts itself.
    Contradiction,
}

impl AnomalyKind {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Lost,
        Self::DuplicatedDelivery,
        Self::DuplicatedEffect,
        Self::FalselyKilled,
        Self::Zombie,
        Self::OutOfOrder,
        Self::ReapedTwice,
        Self::Misrouted,
        Self::SecondTask,
        Self::Contradiction,
    ];

    /// The word in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::DuplicatedDelivery => "duplicated_delivery",
            Self::DuplicatedEffect => "duplicated_effect",
            Self::FalselyKilled => "falsely_killed",
            Self::Zombie => "zombie",
            Self::OutOfOrder => "out_of_order",
            Self::ReapedTwice => "reaped_twice",
            Self::Misrouted => "misrouted",
            Self::SecondTask => "second_task",
            Self::Contradiction => "contradiction",
        }
    }
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that went wrong, with the message and the evidence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Anomaly {
    /// What.
    pub kind: AnomalyKind,
    /// With which message.
    pub id: MessageId,
    /// By what evidence, in words.
    pub why: String,
}

/// What a ledger comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// The fate of each published message.
    pub fates: BTreeMap<MessageId, Fate>,
    /// What went wrong, by kind and message.
    pub anomalies: Vec<Anomaly>,
}

impl Account {
    /// How many messages have this fate.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.fates.values().filter(|f| **f == fate).count()
    }

    /// The messages with this anomaly, in order.
    pub fn of(&self, kind: AnomalyKind) -> impl Iterator<Item = MessageId> + '_ {
        self.anomalies.iter().filter(move |a| a.kind == kind).map(|a| a.id)
    }

    /// Takes another trial's account in.
    pub fn merge(&mut self, other: Self) {
        self.fates.extend(other.fates);
        self.anomalies.extend(other.anomalies);
        self.anomalies.sort();
    }
}
