//! What a run is going to do, decided before it starts.

use super::build::waves;
use crate::scenario::Scenario;
use crate::timers::{Watcher, WatcherState};
use crate::units::TrialId;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;

/// One trial: one connection, cut once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its number in plan order.
    pub id: TrialId,
    /// Index into the scenario's arms.
    pub arm: usize,
    /// Index into the scenario's faults.
    pub fault: usize,
    /// The drawn part of the time between "settled" and the cut.
    pub phase: Duration,
    /// The client's own address.
    pub client: Ipv4Addr,
    /// The address at which this client finds the broker.
    pub server: Ipv4Addr,
    /// The window of the time to detect that the model gave beforehand, in seconds; `None` without a model.
    pub predicted: Option<Window>,
    /// Who the model said may be the first to notice, the likeliest first; `none` is nobody. Empty without a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predicted_watchers: Vec<Watcher>,
}

/// A predicted window of the time to detect, in seconds from the cut.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Earliest; `None` with `hi_s` `None` is "never".
    pub lo_s: Option<f64>,
    /// Latest; `None` is "perhaps never".
    pub hi_s: Option<f64>,
}

/// What the model said beforehand about one watcher under one arm and fault, over all trials of the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// Who.
    pub watcher: Watcher,
    /// What becomes of it.
    pub state: WatcherState,
    /// The earliest second from the cut at which it fires; `None` where it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lo_s: Option<f64>,
    /// The latest; `None` is "perhaps never", or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hi_s: Option<f64>,
    /// Why, in one sentence.
    pub why: String,
}

/// The watchers of one arm under one fault. Those that are simply off are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outlooks {
    /// Index into the scenario's arms.
    pub arm: usize,
    /// Index into the scenario's faults.
    pub fault: usize,
    /// In the order of [`Watcher::ALL`].
    pub watchers: Vec<Outlook>,
}

/// The whole plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario as read.
    pub scenario: Scenario,
    /// The trials, in order of their ids.
    pub trials: Vec<Trial>,
    /// An estimate of the run's length: start-up, settling, phases, horizon, teardown.
    pub estimate: Duration,
    /// What the model does not know about this plan, one line an arm and fault that have no prediction, and what it had
    /// to assume about the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Who could fire and why the others stay silent, by the model; an arm and fault without a prediction is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outlooks: Vec<Outlooks>,
    /// The window of a connection attempt into the cut by the model, for each arm; empty where no fault meets one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Option<Window>>,
    /// Arms of the file that this plan has not, because the kernel could not carry them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// An arm that a plan leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub arm: String,
    /// Why, in words.
    pub why: String,
}

impl Plan {
    /// The position of a trial in [`Plan::trials`]: its number is that of the whole plan, of which this may be a part.
    #[must_use]
    pub fn position(&self, id: TrialId) -> Option<usize> {
        self.trials.binary_search_by_key(&id, |t| t.id).ok()
    }

    /// The plan in waves of no more trials than may run at once, each a plan of its own with its share of every arm and fault;
    /// the plan itself where one is enough.
    #[must_use]
    pub fn waves(&self) -> Vec<Self> {
        let count = waves(&self.scenario, self.trials.len());
        let share = self.trials.len().div_ceil(count).max(1);
        // Trials of all arms and faults take turns.
        let wave = |trials: &[Trial]| Self {
            trials: trials.to_vec(),
            estimate: self.estimate / u32::try_from(count).unwrap_or(u32::MAX),
            ..self.clone()
        };
        self.trials.chunks(share).map(wave).collect()
    }

    /// A trial by its number.
    #[must_use]
    pub fn trial(&self, id: TrialId) -> Option<&Trial> {
        self.position(id).map(|i| &self.trials[i])
    }
}
