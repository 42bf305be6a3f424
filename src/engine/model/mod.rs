//! The model engine: the same plan, simulated. The same events come out as from real sockets, so verdict, statistics and
//! report are the same code.
//!
//! Each trial is stepped by the timer model from phases that its own generator draws; what is known about messages,
//! reconnects and the broker's own detection is carried out beside it. No root, no child processes, no clock in what is
//! written: the same seed gives the same bytes. What the model does not know is listed in [`UNKNOWN`] and in
//! `docs/model-engine.md`, and said in every run.

mod case;
mod course;
mod draw;
mod messages;
mod path;
mod trial;

pub use case::{case, environment};

use super::job::Facts;
use crate::events::{Event, Kind, Source};
use crate::host::clock::Clock;
use crate::plan::Plan;
use crate::store::{Machine, RunDir, StoreError};
use crate::timers::Case;
use crate::units::Offset;
use course::Course;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// More messages than this would fill memory and disk with what a smaller run shows as well.
const MOST_MESSAGES: f64 = 5e6;

/// What the model does not know, one line each.
pub const UNKNOWN: [&str; 5] = [
    "the time that user space, the broker and the network take: handshakes, deliveries and closes are instantaneous",
    "packets: a certificate says what the model sends, at the least; nothing was counted",
    "more than one segment in flight: after a one-way cut the first message still arrives, the next ones wait",
    "keepalive probes that a healed path answers with a reset, and the wheel's rounding of repeated SYNs",
    "a fault whose healing falls between two answers of the model counts as healed in time",
];

/// Why a run could not be simulated.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The plan is too large.
    #[error(
        "the plan has about {0:.0} messages, and the model engine writes down at most {MOST_MESSAGES:.0}; lower the rate of [load], the horizon or --trials"
    )]
    TooManyMessages(f64),
    /// The run directory.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The machine that the model is told of when nobody says another: the reference machine of `docs/timers.md`.
#[must_use]
pub fn reference_machine() -> Machine {
    Machine { kernel: "6.18".to_string(), hz: Some(250), ..Machine::default() }
}

/// Simulates all trials of a plan; events in order of time.
///
/// # Errors
/// [`ModelError::TooManyMessages`].
pub fn simulate(plan: &Plan, machine: &Machine) -> Result<Vec<Event>, ModelError> {
    check_size(plan)?;
    let env = environment(machine);
    let faults = plan.scenario.faults.len();
    let cases: Vec<Case> = (0..plan.scenario.arms.len())
        .flat_map(|arm| (0..faults).map(move |fault| (arm, fault)))
        .map(|(arm, fault)| case(plan, arm, fault, &env))
        .collect();
    let mut events: Vec<Event> = notes(plan, machine, &env.doubts())
        .into_iter()
        .map(|text| Event::of_run(Offset::ZERO, Source::Model, Kind::Note { text }))
        .collect();
    for trial in &plan.trials {
        let course = Course::new(plan, trial, &cases[trial.arm * faults + trial.fault]);
        events.extend(trial::events(&course));
    }
    // Stable: of one instant in plan order.
    events.sort_by_key(|event| event.offset);
    Ok(events)
}

/// Simulates a plan into its run directory, which exists.
///
/// # Errors
/// [`ModelError`]; nothing is written when the plan is too large.
pub fn run(plan: &Plan, machine: &Machine, out: &Path) -> Result<Facts, ModelError> {
    let clock = Clock::start();
    let events = simulate(plan, machine)?;
    let mut log = RunDir::existing(out).event_log(clock)?;
    for event in &events {
        log.append(event)?;
    }
    log.flush()?;
    let mut facts = Facts { sources: sources(), ..Facts::default() };
    facts.phases_s.insert("total".into(), clock.now().as_secs());
    Ok(facts)
}

/// Where the observations came from.
fn sources() -> Vec<String> {
    vec!["every event: timer model, nothing was measured".to_string()]
}

fn notes(plan: &Plan, machine: &Machine, doubts: &[String]) -> Vec<String> {
    let hz = machine.hz.map_or(String::new(), |hz| format!(", HZ {hz}"));
    let mut notes = vec![format!("Simulated for kernel {}{hz}; round-trip time zero.", machine.kernel)];
    notes.extend(UNKNOWN.iter().map(|what| format!("Not modelled: {what}.")));
    notes.extend(doubts.iter().map(|doubt| format!("In doubt: {doubt}.")));
    if let Some(tasks) = &plan.scenario.tasks {
        notes.push(format!(
            "Of {} tasks those that meet the fault are simulated, the others are healthy and counted.",
            tasks.count
        ));
    }
    notes
}

fn check_size(plan: &Plan) -> Result<(), ModelError> {
    let Some(every) = plan.scenario.load_interval else { return Ok(()) };
    let watched = |phase: Duration| (plan.scenario.settle + phase + plan.scenario.horizon).as_secs_f64();
    let messages: f64 = plan.trials.iter().map(|trial| watched(trial.phase) / every.as_secs_f64()).sum();
    if messages > MOST_MESSAGES { Err(ModelError::TooManyMessages(messages)) } else { Ok(()) }
}
