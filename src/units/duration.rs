//! Durations as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Why a text is not a duration. The message ends with the mend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DurationError {
    /// A bare number, whose unit would have to be guessed.
    #[error("`{0}` has no unit; write `{0}s` or `{0}ms`")]
    NoUnit(String),
    /// A unit that this tool does not know.
    #[error("`{text}` has the unknown unit `{unit}`; units are us, ms, s, m, h, d")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The unit that was not recognised.
        unit: String,
    },
    /// Not a number at all, negative, or out of range.
    #[error("`{0}` is not a duration; write for example `250ms`, `10s`, `30m` or `1h`")]
    NotANumber(String),
}

const UNITS: [(&str, u64); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Parses `250ms`, `1.5s`, `30m`, `1h` or sums of them (`1m30s`). Exact to the nanosecond.
///
/// # Errors
/// [`DurationError`] when the unit is missing or unknown, or the number is not a number.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let trimmed = text.trim();
    let not_a_number = || DurationError::NotANumber(trimmed.to_string());
    if trimmed.is_empty() {
        return Err(not_a_number());
    }
    let mut rest = trimmed;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(rest.len());
        let number = rest[..digits].replace('_', "");
        let after = &rest[digits..];
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let unit = after[..letters].trim();
        if number.is_empty() {
            return Err(not_a_number());
        }
        if unit.is_empty() {
            return Err(DurationError::NoUnit(number));
        }
        let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit { text: trimmed.to_string(), unit: unit.to_string() });
        };
        total = total.checked_add(scale(&number, *nanos).ok_or_else(not_a_number)?).ok_or_else(not_a_number)?;
        rest = after[letters..].trim_start();
    }
    Ok(total)
}

/// `number` (decimal text) times `nanos`, exactly: no float on the way.
fn scale(number: &str, nanos: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(u128::from(nanos))?;
    let mut unit = u128::from(nanos);
    for digit in fraction.chars() {
        unit /= 10;
        total += u128::from(digit.to_digit(10)?) * unit;
    }
    Some(Duration::from_nanos(u64::try_from(total).ok()?))
}

/// Prints a duration in the largest unit that keeps it exact and short: `250ms`, `1.5s`, `30m`, `2h`.
#[must_use]
pub fn print_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_string();
    }
    for (name, unit) in UNITS.iter().rev().filter(|(name, _)| *name != "d") {
        let unit = u128::from(*unit);
        if nanos >= unit && nanos.is_multiple_of(unit) {
            return format!("{}{name}", nanos / unit);
        }
        if nanos >= unit && matches!(*name, "s" | "ms" | "us") {
            let fraction = format!("{:09}", nanos % unit * 1_000_000_000 / unit);
            return format!("{}.{}{name}", nanos / unit, fraction.trim_end_matches('0'));
        }
    }
    format!("{:.3}us", nanos as f64 / 1e3)
}

/// Seconds as a float, for tables and statistics.
#[must_use]
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Parses a rate such as `1/s`, `10/s`, `1/10s` into the interval between two events.
///
/// # Errors
/// A sentence that says what a rate looks like.
pub fn parse_rate(text: &str) -> Result<Duration, String> {
    let shape = || format!("`{text}` is not a rate; write for example `1/s`, `10/s` or `1/30s`");
    let (count, per) = text.split_once('/').ok_or_else(shape)?;
    let count: f64 = count.trim().parse().map_err(|_| shape())?;
    let per = per.trim();
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_string() } else { format!("1{per}") };
    let per = parse_duration(&per).map_err(|e| e.to_string())?;
    if !count.is_finite() || count <= 0.0 || per.is_zero() {
        return Err(shape());
    }
    Ok(per.div_f64(count))
}

/// A timeout that can be turned off: `"none"` or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Setting {
    /// The watcher does not exist: nothing will fire, ever.
    #[default]
    None,
    /// The watcher fires after this long.
    After(Duration),
}

impl Setting {
    /// The duration, where there is one.
    #[must_use]
    pub fn get(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::After(d) => Some(d),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::After(d) => f.write_str(&print_duration(*d)),
        }
    }
}

impl FromStr for Setting {
    type Err = DurationError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "none" { Ok(Self::None) } else { parse_duration(text).map(Self::After) }
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_parse_with_units_only() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("60"), Err(DurationError::NoUnit("60".into())));
        assert!(matches!(parse_duration("10sec"), Err(DurationError::UnknownUnit { .. })));
        assert!(matches!(parse_duration("-1s"), Err(DurationError::NotANumber(_))));
        assert!(matches!(parse_duration("1.2.3s"), Err(DurationError::NotANumber(_))));
        assert!(parse_duration("99999999999999999999h").is_err());
    }

    #[test]
    fn rates_become_intervals() {
        assert_eq!(parse_rate("1/s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_rate("10/s"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_rate("1/30s"), Ok(Duration::from_secs(30)));
        assert!(parse_rate("0/s").is_err());
        assert!(parse_rate("fast").is_err());
    }

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(micros in 0u64..10_000_000_000_000) {
            let d = Duration::from_micros(micros);
            prop_assert_eq!(parse_duration(&print_duration(d)).unwrap(), d);
        }
        #[test]
        fn any_text_is_parsed_or_refused_without_panic(text in "\\PC{0,20}") {
            let _ = parse_duration(&text);
            let _ = parse_rate(&text);
        }
    }
}
