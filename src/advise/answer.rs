//! The one structure that the table and the JSON are both made of.

use super::arm::Arm;
use super::fact_list;
use super::situations::{Role, Situation};
use super::words::Verdict;
use crate::config::{Ignored, Lint, NotUnderstood, Origin, Overridden, Severity, SourceKind};
use crate::timers::{
    Case, Detection, FalseAlarm, FaultScope, Prediction, Row, State, Watcher, WatcherPrediction, predict,
};
use serde::Serialize;

/// Everything that `predict` found out.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// The shape of this JSON; grows when something is renamed or removed, which is not planned.
    pub format: u32,
    /// One line an arm.
    pub verdicts: Vec<Verdict>,
    /// One entry an arm and fault, in the order of the table.
    pub predictions: Vec<Predicted>,
    /// What there is no prediction for, and why.
    pub not_predicted: Vec<NotPredicted>,
    /// The arms with the settings in effect.
    pub arms: Vec<ArmLine>,
    /// Findings about the settings, the worst first.
    pub lints: Vec<LintLine>,
    /// Written, and read by nobody.
    pub ignored: Vec<Ignored>,
    /// Written, and outranked.
    pub overridden: Vec<Overridden>,
    /// Seen and not guessed at.
    pub not_understood: Vec<NotUnderstood>,
    /// What each source was taken for.
    pub sources: Vec<Source>,
    /// What was assumed, and what the model does not know.
    pub assumed: Vec<String>,
}

/// An arm, or an arm under one fault, of which the model knows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotPredicted {
    /// The arm.
    pub arm: String,
    /// The fault, by its name in the file; none: under every fault.
    pub fault: Option<String>,
    /// Why, and who knows.
    pub why: String,
}

/// A source and what it was taken for.
#[derive(Debug, Clone, Serialize)]
pub struct Source {
    /// The caller's label.
    pub label: String,
    /// What it was taken for.
    pub kind: SourceKind,
}

/// One prediction: an arm under a fault.
#[derive(Debug, Clone, Serialize)]
pub struct Predicted {
    /// The arm.
    pub arm: String,
    /// The fault, by its profile's name.
    pub fault: String,
    /// The fault and the conditions in words.
    pub situation: String,
    /// `flow`, `pair` or `host`.
    pub scope: &'static str,
    /// When the fault heals; none: never.
    pub duration_s: Option<f64>,
    /// `idle`, `in-flight` or `zero-window`.
    pub state: &'static str,
    /// The client waits for the reply to a synchronous call.
    pub synchronous_call: bool,
    /// What the scheduler's store says about the work, where one is asked.
    pub row: Option<&'static str>,
    /// How long a scenario watches; a detection after it is censored there.
    pub horizon_s: Option<f64>,
    /// The earliest watcher on the subject's side, in seconds from the fault: what the time to detect measures.
    pub detection: Detection,
    /// The earliest of all sides: what frees the work.
    pub resolution: Detection,
    /// The watchers that can be the first, by phase.
    pub contenders: Vec<Watcher>,
    /// Every watcher.
    pub watchers: Vec<WatcherPrediction>,
    /// The price of these settings.
    pub false_alarm: FalseAlarm,
    #[serde(skip)]
    pub(super) role: Role,
}

/// An arm with what is in effect.
#[derive(Debug, Clone, Serialize)]
pub struct ArmLine {
    /// Its name.
    pub name: String,
    /// Who consumes.
    pub subject: &'static str,
    /// What stands at the other end.
    pub broker: &'static str,
    /// The AMQP heartbeat that both sides agree on.
    pub heartbeat_in_force_s: Option<f64>,
    /// The client's kernel.
    pub kernel: String,
    /// Its HZ.
    pub hz: u32,
    /// Its `tcp_retries2`.
    pub tcp_retries2: u32,
    /// Options with their values and places.
    pub settings: Vec<SettingLine>,
}

/// An option in effect.
#[derive(Debug, Clone, Serialize)]
pub struct SettingLine {
    /// Its contract name.
    pub option: String,
    /// Its value with its unit.
    pub value: String,
    /// Written or a default.
    pub origin: Origin,
    /// Where.
    pub place: String,
}

/// A finding, and the arms that have it.
#[derive(Debug, Clone, Serialize)]
pub struct LintLine {
    /// The finding.
    #[serde(flatten)]
    pub lint: Lint,
    /// The arms.
    pub arms: Vec<String>,
}

impl Answer {
    /// Whether a finding is worse than a note: what `--strict` fails on.
    #[must_use]
    pub fn has_warnings(&self) -> bool {
        self.lints.iter().any(|l| l.lint.severity > Severity::Note)
    }
}

/// Predicts one situation of an arm; also returns what the model does not know.
pub(super) fn predicted(arm: &Arm, situation: Situation) -> (Predicted, Vec<String>) {
    let case = Case {
        settings: arm.settings.clone(),
        client: arm.client.clone(),
        broker: arm.broker.clone(),
        fault: situation.fault,
        conditions: situation.conditions,
    };
    let Prediction { detection, resolution, contenders, watchers, false_alarm, notes } = predict(&case);
    let predicted = Predicted {
        arm: arm.name.clone(),
        fault: situation.name.to_string(),
        situation: situation.title,
        scope: match situation.fault.scope {
            FaultScope::Flow => "flow",
            FaultScope::Pair => "pair",
            FaultScope::Host => "host",
        },
        duration_s: situation.fault.duration.map(|d| d.as_secs_f64()),
        state: match situation.conditions.state {
            State::Idle => "idle",
            State::InFlight => "in-flight",
            State::ZeroWindow => "zero-window",
        },
        synchronous_call: situation.conditions.synchronous_call,
        row: situation.conditions.row.map(|row| match row {
            Row::Queued => "queued",
            Row::Running => "running",
            Row::Pending => "pending",
            Row::Processing => "processing",
        }),
        horizon_s: situation.horizon.map(|d| d.as_secs_f64()),
        detection,
        resolution,
        contenders,
        watchers,
        false_alarm,
        role: situation.role,
    };
    (predicted, notes)
}

pub(super) fn arm_line(arm: &Arm) -> ArmLine {
    let settings = fact_list::facts(arm)
        .into_iter()
        .map(|fact| SettingLine {
            option: fact.option.to_string(),
            value: fact.value.to_string(),
            origin: fact.origin,
            place: fact.place.to_string().trim_end().to_string(),
        })
        .collect();
    ArmLine {
        name: arm.name.clone(),
        subject: arm.settings.subject.name(),
        broker: arm.settings.broker.name(),
        heartbeat_in_force_s: arm.settings.negotiated_heartbeat().map(|d| d.as_secs_f64()),
        kernel: arm.client.kernel.to_string(),
        hz: arm.client.hz,
        tcp_retries2: arm.client.tcp_retries2,
        settings,
    }
}
