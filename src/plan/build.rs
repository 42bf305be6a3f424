//! Arms × faults × trials, in order, with addresses and phases.

use super::address;
use super::model::{Plan, Trial};
use super::phase::{self, Phases};
use super::tasks;
use crate::scenario::{BrokerKind, Fault, MAX_TLS_TRIALS, Scenario};
use crate::units::TrialId;
use std::time::Duration;
use thiserror::Error;

/// What the command line changes of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Another seed.
    pub seed: Option<u64>,
    /// As many trials for every arm and fault.
    pub trials: Option<u32>,
    /// Only the part `i` of `n`, from 1: the parts are disjoint and together the whole plan, with the same ids.
    pub partition: Option<(u32, u32)>,
}

/// Why a scenario can't be planned. The message ends with the mend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// `--trials 0`.
    #[error("--trials 0 leaves nothing to run; write at least 1")]
    NoTrials,
    /// `--trials` where the number of trials is drawn.
    #[error("--trials can't be given with [tasks]: a trial is a task that meets the fault; change half_open or count")]
    TasksDecide,
    /// More trials than addresses.
    #[error("{trials} trials for arm `{arm}` over all faults are too many; the most is {most}", most = address::MAX_TRIALS)]
    TooManyTrials {
        /// The arm.
        arm: String,
        /// Its trials over all faults.
        trials: u64,
    },
    /// More encrypted trials than addresses in a certificate.
    #[error(
        "{0} trials with `tls = true` are too many: one certificate names the address of each, and a handshake has room for \
         {MAX_TLS_TRIALS}; lower --trials, or give --partition"
    )]
    TooManyEncrypted(usize),
    /// More arms than networks.
    #[error("{0} arms are too many; the most is {most}", most = address::MAX_ARMS)]
    TooManyArms(usize),
    /// `--partition` that names no part.
    #[error("--partition {0}/{1} is no part; write I/N with I from 1 to N")]
    NoSuchPart(u32, u32),
    /// A part of a plan that is too small for it.
    #[error("--partition {0}/{1} has no trials, the whole plan has {2}; use fewer parts or more trials")]
    EmptyPart(u32, u32, usize),
}

/// Plans a scenario. The same scenario and overrides give the same plan.
///
/// Trials of all arms and faults are interleaved, so that what is compared runs side by side; an arm with fewer trials
/// is spread over the whole. The plan's scenario has the overrides in it.
///
/// # Errors
/// [`PlanError`] when the overrides leave nothing, or ask for more than the address plan has room for.
pub fn build(mut scenario: Scenario, overrides: &Overrides) -> Result<Plan, PlanError> {
    if let Some(seed) = overrides.seed {
        scenario.seed = seed;
    }
    // With tasks, a trial is one that meets the fault: how many there are is drawn, not chosen.
    let handed_over = scenario.tasks.as_ref().map(|t| tasks::affected(scenario.seed, t));
    if let Some(times) = &handed_over {
        if overrides.trials.is_some() {
            return Err(PlanError::TasksDecide);
        }
        let drawn = u32::try_from(times.len()).unwrap_or(u32::MAX);
        scenario.arms.iter_mut().for_each(|arm| arm.trials = drawn);
    } else if let Some(trials) = overrides.trials {
        scenario.arms.iter_mut().for_each(|arm| arm.trials = trials);
    }
    check(&scenario, overrides)?;
    let mut slots = slots(&scenario);
    let whole = slots.len();
    if let Some((part, parts)) = overrides.partition {
        slots.retain(|(_, slot)| slot.part(parts) + 1 == part);
        if slots.is_empty() && whole > 0 {
            return Err(PlanError::EmptyPart(part, parts, whole));
        }
    }
    let encrypted = slots.iter().filter(|(_, slot)| scenario.arms[slot.arm].settings.tls).count();
    if encrypted > MAX_TLS_TRIALS as usize {
        return Err(PlanError::TooManyEncrypted(encrypted));
    }
    let draws: Vec<Vec<Draw>> =
        (0..scenario.arms.len()).map(|arm| draws(&scenario, arm, handed_over.as_deref())).collect();
    let trials: Vec<Trial> = slots.into_iter().filter_map(|(id, slot)| trial(id, slot, &draws[slot.arm])).collect();
    // A part is what somebody wants at once.
    let waves = if overrides.partition.is_some() { 1 } else { waves(&scenario, trials.len()) };
    let estimate = estimate(&scenario, &trials, waves);
    Ok(Plan {
        scenario,
        trials,
        estimate,
        doubts: Vec::new(),
        outlooks: Vec::new(),
        unanswered: Vec::new(),
        left_out: Vec::new(),
    })
}

fn check(scenario: &Scenario, overrides: &Overrides) -> Result<(), PlanError> {
    if scenario.arms.len() > address::MAX_ARMS {
        return Err(PlanError::TooManyArms(scenario.arms.len()));
    }
    for arm in &scenario.arms {
        if arm.trials == 0 && scenario.tasks.is_none() {
            return Err(PlanError::NoTrials);
        }
        let trials = u64::from(arm.trials) * scenario.faults.len() as u64;
        if trials > u64::from(address::MAX_TRIALS) {
            return Err(PlanError::TooManyTrials { arm: arm.name.clone(), trials });
        }
    }
    match overrides.partition {
        Some((part, parts)) if part == 0 || part > parts => Err(PlanError::NoSuchPart(part, parts)),
        _ => Ok(()),
    }
}

/// A trial by its coordinates.
#[derive(Debug, Clone, Copy)]
struct Slot {
    arm: usize,
    fault: usize,
    /// Its number among the trials of the same arm and fault.
    number: u32,
}

impl Slot {
    /// The part of a partition that it belongs to, from 0. Shifted by arm and fault, so that every part has its share
    /// of each as soon as there are enough trials, and something as soon as there are any.
    fn part(self, parts: u32) -> u32 {
        let shift = u32::try_from((self.arm + self.fault) % parts as usize).unwrap_or(0);
        (self.number % parts + shift) % parts
    }
}

/// All trials in plan order, with their ids.
fn slots(scenario: &Scenario) -> Vec<(TrialId, Slot)> {
    let mut slots: Vec<(u64, Slot)> = Vec::new();
    for (arm, settings) in scenario.arms.iter().enumerate() {
        for fault in 0..scenario.faults.len() {
            for number in 0..settings.trials {
                // The middle of its share of the whole, in 2^-32: equal counts are taken in turns.
                let position = ((2 * u64::from(number) + 1) << 31) / u64::from(settings.trials);
                slots.push((position, Slot { arm, fault, number }));
            }
        }
    }
    slots.sort_by_key(|(position, slot)| (*position, slot.fault, slot.arm));
    // At most 64 × 30,000 trials.
    slots.into_iter().enumerate().map(|(id, (_, slot))| (u32::try_from(id).unwrap_or(u32::MAX), slot)).collect()
}

/// How the phases of an arm under one fault come about.
enum Draw<'t> {
    Fixed(Duration),
    /// The task of each number, by its time.
    Tasks(&'t [Duration]),
    Uniform(Box<Phases>, Duration),
}

/// For each fault.
fn draws<'t>(scenario: &Scenario, arm: usize, handed_over: Option<&'t [Duration]>) -> Vec<Draw<'t>> {
    let arm = &scenario.arms[arm];
    let of = |(index, fault): (usize, &Fault)| match (handed_over, fault.at) {
        (Some(times), _) => Draw::Tasks(times),
        (None, Some(at)) => Draw::Fixed(at),
        (None, None) => {
            Draw::Uniform(Box::new(Phases::new(scenario.seed, &arm.name, index)), phase::window(scenario, arm, fault))
        }
    };
    scenario.faults.iter().enumerate().map(of).collect()
}

fn trial(id: TrialId, slot: Slot, draws: &[Draw<'_>]) -> Option<Trial> {
    let Slot { arm, fault, number } = slot;
    let phase = match &draws[fault] {
        Draw::Fixed(at) => *at,
        Draw::Tasks(times) => *times.get(number as usize)?,
        Draw::Uniform(phases, window) => phases.draw(number, *window),
    };
    // Over all faults of the arm, and the same whatever the number of trials; `check` has bounded it.
    let index = number * u32::try_from(draws.len()).ok()? + u32::try_from(fault).ok()?;
    let (client, server) = (address::client(arm, index)?, address::server(arm, index)?);
    Some(Trial { id, arm, fault, phase, client, server, predicted: None, predicted_watchers: Vec::new() })
}

/// In how many waves so many trials are done.
pub(super) fn waves(scenario: &Scenario, trials: usize) -> usize {
    scenario.at_once.map_or(1, |most| trials.div_ceil(most as usize)).max(1)
}

/// How long the run takes: everything of one wave runs at the same time.
fn estimate(scenario: &Scenario, trials: &[Trial], waves: usize) -> Duration {
    if scenario.tasks.is_some() {
        // Simulated only; a month is no time.
        return Duration::from_secs(1);
    }
    let kinds = &scenario.broker.kinds;
    let start = if kinds.contains(&BrokerKind::Rabbitmq) {
        Duration::from_secs(10)
    } else if kinds.contains(&BrokerKind::Redis) {
        Duration::from_secs(1)
    } else {
        Duration::ZERO
    };
    // 1,000 lapin connections open in 3.2 s on two cores.
    let opening = Duration::from_secs(1)
        + Duration::from_millis(4).saturating_mul(u32::try_from(trials.len() / waves).unwrap_or(u32::MAX));
    let phase = trials.iter().map(|trial| trial.phase).max().unwrap_or_default();
    let idle = scenario.faults.iter().filter_map(|fault| fault.idle).max().unwrap_or_default();
    let teardown = Duration::from_secs(2);
    let one: Duration = [start, opening, scenario.settle, phase, idle, scenario.horizon, teardown].into_iter().sum();
    one.saturating_mul(u32::try_from(waves).unwrap_or(u32::MAX))
}
