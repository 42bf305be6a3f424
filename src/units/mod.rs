//! Durations, offsets and percentages: parse and print.
//!
//! Every duration that a person writes carries its unit (`250ms`, `10s`, `30m`, `1h`); a bare number is refused,
//! because "60" is how a timeout of a minute becomes one of 60 ms. What this room leaves out: any clock.

mod calendar;
mod duration;
mod offset;
mod pace;
mod secret;

pub use calendar::{iso_8601, parse_instant, utc_date_time};
pub use duration::{DurationError, Setting, parse_duration, parse_rate, print_duration, seconds};
pub use offset::Offset;
pub use pace::Pace;
pub use secret::hide_secrets;

use std::fmt;

/// Number of a trial within its run, from 0 in plan order.
pub type TrialId = u32;

/// A share between 0 and 1, printed as a percentage with one decimal.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_prints_as_a_percentage() {
        assert_eq!(Percent(0.975).to_string(), "97.5 %");
    }
}
