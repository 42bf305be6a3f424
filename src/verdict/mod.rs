//! From what happened to what it means: events and plan in, one row a trial, a connection and a message out.
//!
//! Pure, and indifferent to the order of the events and to duplicates: a recorded run is judged again offline and gives
//! the same rows. The rules are in `docs/run-directory.md`; the hard ones are that a trial is counted only with the
//! router's certificate that its fault was silent and complete, and that what was not detected within the horizon is
//! *censored*, never averaged. What is left out: statistics over rows (`stats`), and why a watcher fired when it did
//! (`timers`).

mod assurance;
mod certificate;
mod connections;
mod distorted;
pub mod gate;
mod gate_sample;
mod messages;
pub mod metric;
mod middlebox;
mod outcome;
mod pulse;
mod rows;
pub mod sample;
mod terms;
mod timeline;
mod trial;
pub mod watcher;

pub use outcome::{Outcome, VoidReason};
pub use rows::{Cell, ConnectionRow, MessageRow, Span, TrialRow};

use crate::events::Event;
use crate::ledger::{self, Account};
use crate::plan::Plan;
use std::collections::BTreeMap;
use timeline::Timeline;

/// A run, judged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judged {
    /// One row a trial of the plan, in plan order, also for trials that left no event.
    pub trials: Vec<TrialRow>,
    /// One row a connection or connection attempt, by trial and attempt.
    pub connections: Vec<ConnectionRow>,
    /// One row a numbered message, by trial and message.
    pub messages: Vec<MessageRow>,
    /// What the ledger of all trials comes to.
    pub account: Account,
}

impl Judged {
    /// The same rows with the column `lab` filled in, which no event tells.
    #[must_use]
    pub fn in_lab(mut self, lab: &str) -> Self {
        for row in &mut self.trials {
            row.lab = lab.to_string();
        }
        self
    }
}

/// Judges every trial of the plan by its events. Events of unknown trials are ignored; events without a trial but with
/// a 4-tuple belong to the trial whose client address that is.
#[must_use]
pub fn judge(plan: &Plan, events: &[Event]) -> Judged {
    let mut judged = Judged::default();
    let mut arrivals = Vec::new();
    for (trial, own) in plan.trials.iter().zip(timeline::by_trial(plan, events)) {
        let (Some(arm), Some(fault)) = (plan.scenario.arms.get(trial.arm), plan.scenario.faults.get(trial.fault))
        else {
            continue;
        };
        let case = trial::Case { scenario: &plan.scenario, trial, arm, fault };
        let timeline = Timeline::new(&own);
        let mut messages = messages::ledger(&case, &own, &timeline);
        let mut row = trial::judge_trial(&case, &timeline, &messages);
        messages::waits(&case, &mut row, &messages);
        arrivals.push(messages::arrivals(&own));
        let mut record = ledger::Record::new(own.iter().copied());
        let copies = |message| plan.scenario.job_of(message).map(|job| arm.settings.delivery.destinations(job).len());
        record.expect_copies(|message| copies(message).unwrap_or(1));
        let mut account = ledger::check(trial.id, &record, &terms::terms(&case));
        account.anomalies.extend(messages::misrouted(&case, &own));
        messages::enter(&account, &mut messages);
        pulse::enter(&mut row, &own, &timeline);
        if !messages.is_empty() || plan.scenario.load_of(arm).is_some() {
            messages::tally(&account, &mut row);
        }
        judged.trials.push(row);
        judged.account.fates.extend(account.fates);
        judged.account.anomalies.extend(account.anomalies);
        judged.connections.extend(connections::rows(&case, &timeline));
        judged.messages.extend(messages);
    }
    let mut groups: BTreeMap<(usize, usize), Vec<_>> = BTreeMap::new();
    for (row, own) in judged.trials.iter_mut().zip(arrivals) {
        let planned = plan.trial(row.trial).map_or((0, 0), |trial| (trial.arm, trial.fault));
        groups.entry(planned).or_default().push((row, own));
    }
    groups.into_values().for_each(messages::peaks);
    judged.account.anomalies.sort();
    judged
}
