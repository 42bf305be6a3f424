//! Instants as offsets on the one monotonic clock of a run.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the run's zero on `CLOCK_MONOTONIC`; negative before it.
///
/// Stored whole in nanoseconds so that two readings of one clock compare exactly; printed in seconds with
/// microseconds, as the run directory's contract asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl Offset {
    /// The run's zero.
    pub const ZERO: Self = Self(0);

    /// Seconds as a float.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// From seconds; rounds to the nearest nanosecond.
    #[must_use]
    pub fn from_secs(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as i64)
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl Add<Duration> for Offset {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(rhs.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Offset {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(rhs.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Offset {
    /// Seconds with exactly six decimals, rounded half away from zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = (self.0.unsigned_abs() + 500) / 1_000;
        let sign = if self.0 < 0 && micros > 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_print_microseconds() {
        assert_eq!(Offset(1_234_567_890).to_string(), "1.234568");
        assert_eq!(Offset(-500_000_000).to_string(), "-0.500000");
        assert_eq!(Offset(0).to_string(), "0.000000");
        assert_eq!(Offset(i64::MIN).to_string(), "-9223372036.854776");
        assert_eq!(Offset(i64::MAX).to_string(), "9223372036.854776");
    }

    #[test]
    fn since_never_goes_negative() {
        assert_eq!(Offset(5).since(Offset(9)), Duration::ZERO);
        assert_eq!((Offset(5) + Duration::from_nanos(4)).since(Offset(5)), Duration::from_nanos(4));
    }
}
