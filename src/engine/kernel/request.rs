//! What the dispatcher asks of the thread that cuts.

use super::actor::Proof;
use super::alarms::Alarms;
use crate::events::Tuple;
use crate::fault::Applied;
use crate::scenario::{Act, Directions, Fault, Injection, Scope, Trigger};
use crate::units::{Offset, TrialId};
use std::time::Duration;
/// What is done to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What {
    /// How much is cut with it.
    pub scope: Scope,
    /// Which packets; nothing for a control.
    pub drop: Directions,
    /// What is done beyond the path.
    pub act: Option<Act>,
    /// After this time the kernel heals by itself.
    pub lease: Option<Duration>,
    /// Wait for a segment from the broker first, for so long at the most.
    pub after_segment: Option<Duration>,
    /// Wait until a middlebox has forgotten the connection by itself.
    pub idle: bool,
    /// What is forgotten stays forgotten.
    pub strict: bool,
    /// Where and how it is dropped.
    pub injection: Injection,
}

impl What {
    /// What a fault of a scenario does, on trials that are watched for `horizon`.
    #[must_use]
    pub fn of(fault: &Fault, horizon: Duration) -> Self {
        Self {
            scope: fault.scope,
            drop: fault.drop,
            act: fault.act,
            lease: fault.duration.get().filter(|_| fault.act.is_none()).map(|time| time + LEASE_BEYOND),
            after_segment: (fault.trigger == Some(Trigger::AfterHeartbeat)).then_some(horizon),
            idle: fault.idle.is_some(),
            strict: fault.middlebox.is_some_and(|middlebox| !middlebox.loose),
            injection: fault.injection,
        }
    }
}

/// How long after its planned heal the kernel heals a cut by itself, should the harness hang.
pub const LEASE_BEYOND: Duration = Duration::from_secs(2);

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
        /// What is done to it.
        what: What,
        /// Index of the client namespace whose `sock_diag` knows the connection.
        client: usize,
    },
    /// End the connection at the broker's end, with a RST, at an instant; in a scope that cuts reconnects too, cut them before
    /// the client can make one.
    HangUp {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// The connection.
        tuple: Tuple,
        /// What is done to it.
        what: What,
        /// Index of the client namespace.
        client: usize,
    },
    /// A connection has begun whose fault was in force before it.
    Begun {
        /// The trial.
        trial: TrialId,
        /// The connection under test.
        tuple: Tuple,
        /// What it has met.
        what: What,
        /// When the client began to connect.
        before: Offset,
        /// From when on it has waited in vain.
        after: Offset,
    },
    /// Cut once more, after a heal, at an instant.
    Again {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
        /// Which time it is, from 2.
        time: u32,
    },
    /// Heal at an instant.
    Heal {
        /// The trial.
        trial: TrialId,
        /// When.
        at: Offset,
    },
    /// The processes that an act hits which concerns everybody, with their descendants, and whose they are.
    Shared(Vec<u32>, &'static str),
    /// The process of a trial's worker: another one each time that it was started.
    Worker(TrialId, u32),
    /// What was killed has been started again, for these trials.
    StartedAgain {
        /// The trials.
        trials: Vec<TrialId>,
        /// From the start to the first answer.
        applied: Applied,
        /// What a look at the new processes showed.
        proof: Proof,
    },
    /// The alarms that the fault is about, of the brokers that have one.
    Alarms(Alarms),
    /// The process that accepts connections before the broker, for each trial that has one.
    Proxies(Vec<(TrialId, u32)>),
    /// Read and report one trial's counters.
    Certify(TrialId),
    /// Read and report one trial's counters for the last time, and forget what is still planned for it.
    Finish {
        /// The trial.
        trial: TrialId,
        /// Why it ended.
        why: &'static str,
        /// When: what its client does from then on it was told to do.
        at: Offset,
    },
}
