//! What a prediction says: who notices, in which window, and why each of the others stays silent.

use super::watcher::{Side, Watcher};
use serde::{Deserialize, Serialize};

/// What becomes of one watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatcherState {
    /// It fires within the window, and may be the first.
    Fires,
    /// It would fire, but somebody else is certainly earlier.
    Later,
    /// The option is off, or does not exist on this transport.
    NeverArmed,
    /// Its condition is not met.
    NeverTriggered,
    /// Another state of the connection keeps it from looking.
    Suspended,
    /// Something keeps it alive, or keeps it from running.
    Defeated,
    /// It fires, and the application does not look.
    FiredNotActedOn,
}

/// The earliest detection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Who; none: nobody, ever.
    pub watcher: Option<Watcher>,
    /// The earliest second from the fault.
    pub lo_s: Option<f64>,
    /// The latest; none: perhaps never (both none: never).
    pub hi_s: Option<f64>,
}

impl Detection {
    /// Nobody, ever.
    pub const NEVER: Self = Self { watcher: None, lo_s: None, hi_s: None };
}

/// One watcher's line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatcherPrediction {
    /// Who.
    pub watcher: Watcher,
    /// Who is able to act when it fires.
    pub side: Side,
    /// What becomes of it.
    pub state: WatcherState,
    /// The earliest second from the fault.
    pub lo_s: Option<f64>,
    /// The latest; none: perhaps never.
    pub hi_s: Option<f64>,
    /// Why, in one sentence.
    pub why: String,
}

/// The price: what the same settings do to a healthy connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FalseAlarm {
    /// The longest transient of this kind of fault that is survived for certain; none: any.
    pub survives_s: Option<f64>,
    /// The watcher that ends a transient which is longer.
    pub killer: Option<Watcher>,
    /// The longest silence that the client's side of a healthy idle link can have; none: unbounded.
    pub longest_silence_s: Option<f64>,
    /// A middlebox forgets the flow before anything refreshes it.
    pub nat_kills_idle_link: bool,
    /// A single lost probe ends a healthy idle connection.
    pub one_lost_probe_kills: bool,
    /// A watcher that fires on a healthy but quiet link, and after how long at the latest.
    pub fires_when_healthy: Option<(Watcher, f64)>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The earliest watcher on the subject's side: what the time to detect measures.
    pub detection: Detection,
    /// The earliest of all sides: what ends the stall of the work at the latest.
    pub resolution: Detection,
    /// The subject-side watchers that can be the first, by phase.
    pub contenders: Vec<Watcher>,
    /// Every watcher, in the order of [`Watcher::ALL`].
    pub watchers: Vec<WatcherPrediction>,
    /// The price of these settings.
    pub false_alarm: FalseAlarm,
    /// What the model does not know, and what the settings do not do.
    pub notes: Vec<String>,
}

impl Prediction {
    /// The line of one watcher.
    #[must_use]
    pub fn watcher(&self, watcher: Watcher) -> Option<&WatcherPrediction> {
        self.watchers.iter().find(|w| w.watcher == watcher)
    }
}

/// One stepped outcome, for one drawn set of phases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instant {
    /// Who.
    pub watcher: Watcher,
    /// Seconds from the fault.
    pub at_s: f64,
}

/// What one trial does with its drawn phases.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// The first watcher on the subject's side; none: nobody.
    pub detection: Option<Instant>,
    /// Every watcher that fires if nothing ends the connection before, earliest first.
    pub fires: Vec<Instant>,
}
