//! A timer as a sample is compared with it, and how people write their own.

use super::law::Law;
use crate::units::parse_duration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// Where a timer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The client and its library.
    Application,
    /// The client's kernel.
    Kernel,
    /// What stands between: load balancers, NAT, firewalls.
    Middlebox,
    /// The broker and its kernel.
    Broker,
    /// Schedulers and reapers: they judge by a store, not by the connection.
    Scheduler,
    /// One's own, of a layer that was not told.
    Own,
}

impl Layer {
    /// In the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Application, Self::Kernel, Self::Middlebox, Self::Broker, Self::Scheduler, Self::Own];

    /// Its name, as in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Kernel => "kernel",
            Self::Middlebox => "middlebox",
            Self::Broker => "broker",
            Self::Scheduler => "scheduler",
            Self::Own => "own",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that ends a stall after a known time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// A short name.
    pub id: String,
    /// Where it lives.
    pub layer: Layer,
    /// Its name as a watcher (docs/timers.md); empty for what is none.
    pub watcher: String,
    /// The earliest end of the timer itself, in seconds.
    pub lo_s: f64,
    /// The latest; above `lo_s` where settings, kernel or phase decide.
    pub hi_s: f64,
    /// The period of the look that finds it expired, in seconds; zero where it acts by itself.
    pub check_s: f64,
    /// What it is, in words.
    pub name: String,
    /// What it says of the layers when it was this one.
    pub says: String,
    /// Where its values come from.
    pub source: String,
    /// Somebody named it for this very question, rather than the library.
    #[serde(default)]
    pub own: bool,
}

/// A window that is wider than this comes from a phase; a narrower one may come from settings and kernels, so that a
/// sample can lie in any part of it.
const PHASE: f64 = 1.2;

impl Timer {
    /// What its durations look like.
    pub(super) fn law(&self) -> Law {
        Law { lo_s: self.lo_s, hi_s: self.hi_s, check_s: self.check_s }
    }

    /// Whether the distribution within its window is known, so that a sample can be held to it: a look at a fixed period
    /// comes at any phase. How a kernel's or a heartbeat's durations spread depends on the traffic.
    pub(super) fn has_shape(&self) -> bool {
        self.check_s > 0.0
    }

    /// Whether a sample in a corner of its window speaks against it.
    pub(super) fn spreads(&self) -> bool {
        self.has_shape() || self.hi_s > self.lo_s * PHASE
    }

    /// Its window in words: `1200 to 1320 s`.
    #[must_use]
    pub fn window(&self) -> String {
        format!("{} to {} s", short(self.lo_s), short(self.hi_s + self.check_s))
    }
}

/// A number of seconds, without digits that nobody reads.
pub(super) fn short(seconds: f64) -> String {
    let text = if seconds.abs() >= 100.0 { format!("{seconds:.1}") } else { format!("{seconds:.2}") };
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Why a text names no timer. Each ends with the mend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TimerError {
    /// Not NAME=DURATION.
    #[error("`{0}` is no timer; write for example --timer \"queued_timeout=1200s check=120s\"")]
    Shape(String),
    /// A duration that can't be read.
    #[error("--timer `{text}`: {why}")]
    Duration {
        /// The whole text.
        text: String,
        /// What is wrong with the duration.
        why: String,
    },
    /// A word that means nothing here.
    #[error("--timer `{text}`: `{key}` is not known; after NAME=DURATION come check=DURATION and layer={layers}", layers = layers())]
    Key {
        /// The whole text.
        text: String,
        /// The word.
        key: String,
    },
    /// The window is empty, or starts at nothing.
    #[error("--timer `{0}`: the timer must be longer than nothing, and FROM..TO must rise")]
    Empty(String),
}

fn layers() -> String {
    Layer::ALL.iter().filter(|l| **l != Layer::Own).map(|l| l.name()).collect::<Vec<_>>().join("|")
}

/// Reads `NAME=1200s`, `NAME=925s..1045s`, each with `check=120s` and `layer=kernel` behind it where that is known.
///
/// A single duration without a check ends up to 2 % (at least a second) late: no timer of a system under load is exact.
///
/// # Errors
/// [`TimerError`] with the text and the mend.
pub fn parse_timer(text: &str) -> Result<Timer, TimerError> {
    let mut words = text.split_whitespace();
    let shape = || TimerError::Shape(text.to_string());
    let (name, value) = words.next().and_then(|word| word.split_once('=')).ok_or_else(shape)?;
    if name.is_empty() || value.is_empty() {
        return Err(shape());
    }
    let duration = |value: &str| -> Result<f64, TimerError> {
        let read: Result<Duration, _> = parse_duration(value);
        read.map(|d| d.as_secs_f64()).map_err(|e| TimerError::Duration { text: text.into(), why: e.to_string() })
    };
    let (mut lo_s, mut hi_s) = match value.split_once("..") {
        Some((lo, hi)) => (duration(lo)?, duration(hi)?),
        None => (duration(value)?, f64::NAN),
    };
    let (mut check_s, mut layer) = (0.0, None);
    for word in words {
        match word.split_once('=') {
            Some(("check", value)) => check_s = duration(value)?,
            Some(("layer", value)) => {
                layer = Some(Layer::ALL.into_iter().find(|l| l.name() == value));
                if layer == Some(None) {
                    return Err(TimerError::Key { text: text.into(), key: value.into() });
                }
            }
            _ => return Err(TimerError::Key { text: text.into(), key: word.into() }),
        }
    }
    if hi_s.is_nan() {
        hi_s = if check_s > 0.0 { lo_s } else { lo_s + (lo_s * 0.02).max(1.0) };
    } else if hi_s == lo_s && check_s == 0.0 {
        (lo_s, hi_s) = (lo_s, lo_s + (lo_s * 0.02).max(1.0));
    }
    if lo_s <= 0.0 || hi_s < lo_s {
        return Err(TimerError::Empty(text.to_string()));
    }
    let watcher = name.parse::<crate::timers::Watcher>().map_or(String::new(), |w| w.name().to_string());
    let told = layer.flatten().or_else(|| of_watcher(&watcher));
    let mut what = format!("your {name} {value}");
    if check_s > 0.0 {
        what.push_str(&format!(", looked at every {} s", short(check_s)));
    }
    Ok(Timer {
        id: name.to_string(),
        layer: told.unwrap_or(Layer::Own),
        watcher,
        lo_s,
        hi_s,
        check_s,
        name: what,
        says: "the timer that you named ended these stalls".to_string(),
        source: "--timer".to_string(),
        own: true,
    })
}

/// The layer of a watcher that has a name of its own.
pub(super) fn of_watcher(name: &str) -> Option<Layer> {
    use crate::timers::{Side, Watcher};
    let watcher: Watcher = name.parse().ok()?;
    Some(match watcher.side() {
        Side::Broker => Layer::Broker,
        Side::Reaper => Layer::Scheduler,
        Side::Subject => match watcher {
            Watcher::ReadTimeout
            | Watcher::SendTimeout
            | Watcher::ConnectTimeout
            | Watcher::AmqpHeartbeat
            | Watcher::HealthCheck => Layer::Application,
            _ => Layer::Kernel,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_read_as_people_write_it() {
        let timer = parse_timer("queued_timeout=1200s check=120s").unwrap();
        assert_eq!((timer.lo_s, timer.hi_s, timer.check_s), (1200.0, 1200.0, 120.0));
        assert_eq!((timer.id.as_str(), timer.layer, timer.own), ("queued_timeout", Layer::Scheduler, true));
        let timer = parse_timer("lb=5m50s layer=middlebox").unwrap();
        assert_eq!((timer.lo_s, timer.hi_s, timer.layer), (350.0, 357.0, Layer::Middlebox));
        let timer = parse_timer("mine=10s..12s check=1s").unwrap();
        assert_eq!((timer.lo_s, timer.hi_s, timer.check_s, timer.layer), (10.0, 12.0, 1.0, Layer::Own));
        assert_eq!(timer.window(), "10 to 13 s");
    }

    #[test]
    fn what_is_no_timer_is_refused_with_the_mend() {
        for (text, words) in [
            ("1200s", "queued_timeout=1200s check=120s"),
            ("a=", "is no timer"),
            ("a=1200", "write `1200s`"),
            ("a=1s every=2s", "`every=2s` is not known"),
            ("a=1s layer=moon", "`moon` is not known"),
            ("a=0s", "longer than nothing"),
            ("a=9s..3s", "must rise"),
        ] {
            let said = parse_timer(text).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
