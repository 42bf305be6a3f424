//! The numbers of a run. Serialised as it stands this is `summary.json`; the keys are documented in
//! `docs/run-directory.md`.

use super::made::MadeSummary;
use super::silence::WatcherSummary;
use crate::stats::{Interval, Share, Spread};
use crate::store::{ArmOptions, Brackets, Machine, MemoryUse, Tool};
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that a report says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Version of the run directory.
    pub format: u32,
    /// The scenario.
    pub scenario: ScenarioSummary,
    /// Who ran it.
    pub tool: Tool,
    /// `kernel` or `model`.
    pub engine: String,
    /// Where it ran.
    pub lab: String,
    /// Start, in seconds since 1970.
    pub started_unix_s: i64,
    /// The last event, in seconds from the start.
    pub length_s: f64,
    /// Whether the run ended by itself.
    pub complete: bool,
    /// The exit code that gates and certificates ask for.
    pub exit_code: u8,
    /// All trials together.
    pub totals: Counts,
    /// Arm × fault, in the order of the scenario.
    pub cells: Vec<CellSummary>,
    /// Faults whose cut is not in the path, each with the way in which it is made: what they measure is no half-open
    /// connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub distorted: Vec<String>,
    /// Where some are, each way to make the cut beside the faithful one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub distortion: Vec<DistortionLine>,
    /// The many tasks of which the trials are a few; `None` without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskSummary>,
    /// Stuck durations from elsewhere, beside those of the run; `None` without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedSummary>,
    /// Which timer made the stuck durations, by the durations alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attribution: Vec<MadeSummary>,
    /// What published figures say by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published_words: Vec<String>,
    /// What the ledger of all messages comes to; `None` without messages.
    pub ledger: Option<LedgerSummary>,
    /// Why trials are void, the most frequent first.
    pub void_reasons: Vec<VoidCount>,
    /// The gates with their verdicts, in the order of the scenario.
    pub gates: Vec<GateSummary>,
    /// How exactly the instants of the cuts are known.
    pub brackets: Option<Brackets>,
    /// Options asked for and effective.
    pub arms: Vec<ArmOptions>,
    /// What was asked of clients from outside, beside what is set; empty without such clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Peak memory by role.
    pub memory: Vec<MemoryUse>,
    /// The machine.
    pub machine: Machine,
    /// Versions of the brokers.
    pub brokers: BTreeMap<String, String>,
    /// Versions of the clients.
    pub clients: BTreeMap<String, String>,
    /// Where the observations came from.
    pub sources: Vec<String>,
    /// What the harness noted about the run as a whole.
    pub notes: Vec<String>,
}

/// One arm under one way to make a cut, beside the way that is faithful.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DistortionLine {
    /// The arm.
    pub arm: String,
    /// The fault.
    pub fault: String,
    /// How its cut is made, in words.
    pub how: String,
    /// Whether it is called a black hole and is none.
    pub distorted: bool,
    /// Trials, detected and censored together.
    pub n: usize,
    /// The median time to detect, in seconds; `None`: beyond the horizon.
    pub median_s: Option<f64>,
    /// The same of the faithful cut.
    pub faithful_s: Option<f64>,
    /// The first by the second; with `at_least` the horizon by the second.
    pub factor: Option<f64>,
    /// Whether the factor is a lower bound.
    pub at_least: bool,
    /// Who noticed, the most frequent first.
    pub watchers: Vec<String>,
}

/// Many tasks, few of which were trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TaskSummary {
    /// All of them, the same for every arm and fault.
    pub count: u64,
    /// The time over which they were spread, in seconds.
    pub over_s: f64,
    /// Those that met the fault: the trials of each arm under each fault, in a whole plan.
    pub affected: u64,
    /// The others, which were counted and not simulated.
    pub healthy: u64,
    /// The share that was expected to meet it.
    pub half_open: f64,
}

/// A published distribution, and the same numbers of this run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedSummary {
    /// Its mean, in seconds.
    pub mean_s: f64,
    /// Its median.
    pub median_s: f64,
    /// The range that a share is known of.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// At least this share lies in it.
    pub share: f64,
    /// The same of each cell.
    pub here: Vec<StuckBeside>,
}

/// Stuck durations of one cell, as a published distribution gives them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StuckBeside {
    /// The arm.
    pub arm: String,
    /// The fault profile.
    pub fault: String,
    /// Its scope.
    pub scope: String,
    /// Durations that ended.
    pub n: usize,
    /// Their mean; `None` of nothing.
    pub mean_s: Option<f64>,
    /// Their median.
    pub median_s: Option<f64>,
    /// The share in the range.
    pub share: Option<f64>,
    /// Their mean minus the published one, in seconds: an interval of 95 %; `None` of fewer than two.
    pub above_s: Option<Interval>,
    /// Who ended them, the most frequent first.
    pub resolved_by: Vec<NamedCount>,
}

/// The scenario, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioSummary {
    /// Its name.
    pub name: String,
    /// The question.
    pub question: String,
    /// The file.
    pub path: String,
    /// SHA-256 of its text.
    pub sha256: String,
    /// The seed.
    pub seed: u64,
    /// How long each trial was to be watched after its cut.
    pub horizon_s: f64,
}

/// Trials by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// All.
    pub trials: usize,
    /// Detected.
    pub detected: usize,
    /// Censored.
    pub censored: usize,
    /// Survived.
    pub survived: usize,
    /// False alarms.
    pub false_alarm: usize,
    /// Subject exited.
    pub subject_exited: usize,
    /// Void.
    pub void: usize,
}

/// One arm under one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellSummary {
    /// The arm.
    pub arm: String,
    /// The subject.
    pub subject: String,
    /// The broker.
    pub broker: String,
    /// The fault profile.
    pub fault: String,
    /// Its scope.
    pub scope: String,
    /// Whether nothing is cut here.
    pub control: bool,
    /// Trials by outcome.
    pub counts: Counts,
    /// Detected, of detected and censored.
    pub detected_share: Option<Share>,
    /// Time to detect, of detected and censored.
    pub ttd: Spread,
    /// Time to recover, of detected and censored.
    pub ttr: Spread,
    /// Time from the cut to the broker's notice, of detected and censored.
    pub broker_notice: Spread,
    /// Time from the cut until the broker gave somebody else what it had handed to the cut connection, of detected and
    /// censored; `None` where no consumer tells what is given again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<Spread>,
    /// Messages that this was done to, or that waited in vain, in all of these trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghosts: Option<u64>,
    /// Trials in which a client that is a program of somebody else's ended by itself, before or after it had noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_exited: Option<usize>,
    /// From the publication of each message until it was resolved, of detected and censored; `None` without messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Spread>,
    /// How long the oldest message was stuck; `None` without messages.
    pub stuck: Option<Spread>,
    /// Who ended the wait of that message: consumers (`recovery`) or a reaper's rule, the most frequent first.
    pub resolved_by: Vec<NamedCount>,
    /// Who fired, over all trials that are not void, the most frequent first. An empty name is "not known".
    pub watchers: Vec<NamedCount>,
    /// Each watcher that fired or that the model knows something of: how often, and what was predicted of it.
    pub outlooks: Vec<WatcherSummary>,
    /// Censored although the kernel had ended the connection: a timer fired and nobody acted.
    pub kernel_ended_unnoticed: usize,
    /// Certified trials in which nothing was offered towards the broker.
    pub unexercised_to_broker: usize,
    /// Certified trials in which nothing was offered towards the client.
    pub unexercised_to_client: usize,
    /// The predicted window, where there is a model.
    pub predicted: Option<Predicted>,
    /// The ledger; `None` without messages.
    pub messages: Option<MessageCounts>,
    /// Connections and attempts of a trial on average, the one under test included.
    pub attempts_mean: Option<f64>,
    /// What became of them, and what went wrong; `None` without messages.
    pub ledger: Option<LedgerSummary>,
}

/// What the model said about a cell, and how often the measurement agreed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Predicted {
    /// Earliest of all its trials; `None` is never.
    pub lo_s: Option<f64>,
    /// Latest of all its trials; `None` is "perhaps never", or never.
    pub hi_s: Option<f64>,
    /// Trials that agree.
    pub agree: usize,
    /// Trials that could agree or not.
    pub n: usize,
    /// Trials whose watcher is one of those predicted.
    pub watcher_agree: usize,
    /// Trials whose watcher could be compared.
    pub watcher_n: usize,
}

/// A name and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedCount {
    /// The name.
    pub name: String,
    /// How often.
    pub n: usize,
}

/// A reason for void trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VoidCount {
    /// The code.
    pub reason: String,
    /// How many.
    pub n: usize,
    /// The details of the first one.
    pub example: String,
    /// The number of the first one.
    pub first_trial: u32,
}

/// A gate, its numbers and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateSummary {
    /// The gate in words.
    pub text: String,
    /// `held`, `failed` or `inconclusive`.
    pub verdict: String,
    /// What was measured; `None` with `reached` false is "not reached".
    pub value: Option<f64>,
    /// False where a quantile lies beyond the horizon.
    pub reached: bool,
    /// Trials counted.
    pub n: usize,
    /// Trials that could have been anything.
    pub unknown: usize,
    /// Where the gate asks how sure: the interval, of the value or of the difference to what it is held to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Whether it is one of the difference.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_difference: bool,
    /// Its one-sided level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<f64>,
    /// Trials (on each side) that would decide what is inconclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<usize>,
    /// Why it is inconclusive, where the numbers don't say so themselves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What became of messages, and what went wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LedgerSummary {
    /// Handed to the broker: the sum of the following six.
    pub published: usize,
    /// Their work was done.
    pub done: usize,
    /// A reaper failed them and their work was never done.
    pub failed: usize,
    /// Nobody has them, nobody did their work, and nobody was told.
    pub lost: usize,
    /// None of these by the end of the watch.
    pub waiting: usize,
    /// Rejected by their consumers and kept among the dead letters.
    pub refused: usize,
    /// Never confirmed and never seen again.
    pub unconfirmed: usize,
    /// What went wrong, each kind that occurred.
    pub anomalies: Vec<AnomalyCount>,
}

/// Messages with one anomaly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnomalyCount {
    /// Which.
    pub kind: String,
    /// How many messages.
    pub n: usize,
    /// The first of them, as `trial.message`; all of them are in `messages.csv`.
    pub ids: Vec<String>,
    /// The evidence for the first one.
    pub example: String,
}

/// The ledger in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MessageCounts {
    /// Published.
    pub published: usize,
    /// Confirmed by the broker.
    pub confirmed: usize,
    /// Delivered at least once.
    pub delivered: usize,
    /// Delivered more than once.
    pub duplicated: usize,
    /// Published and not resolved when the watch ended.
    pub unresolved: usize,
}
