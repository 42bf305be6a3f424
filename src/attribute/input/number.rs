//! One value: a number with or without a unit, a time of day that passed, or two instants.

use crate::units::{parse_duration, parse_instant};

/// The unit of bare numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    pub name: &'static str,
    seconds: f64,
}

/// Suffixes and words, and what they mean.
const UNITS: [(&str, &str, f64); 20] = [
    ("ns", "nanoseconds", 1e-9),
    ("nanoseconds", "nanoseconds", 1e-9),
    ("us", "microseconds", 1e-6),
    ("microseconds", "microseconds", 1e-6),
    ("ms", "milliseconds", 1e-3),
    ("msec", "milliseconds", 1e-3),
    ("millis", "milliseconds", 1e-3),
    ("milliseconds", "milliseconds", 1e-3),
    ("s", "seconds", 1.0),
    ("sec", "seconds", 1.0),
    ("secs", "seconds", 1.0),
    ("seconds", "seconds", 1.0),
    ("m", "minutes", 60.0),
    ("min", "minutes", 60.0),
    ("mins", "minutes", 60.0),
    ("minutes", "minutes", 60.0),
    ("h", "hours", 3600.0),
    ("hr", "hours", 3600.0),
    ("hrs", "hours", 3600.0),
    ("hours", "hours", 3600.0),
];

impl Unit {
    pub const SECONDS: Self = Self { name: "seconds", seconds: 1.0 };

    /// A unit as it is told.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = UNITS.iter().find(|(word, ..)| *word == text.trim());
        found
            .map(|(_, name, seconds)| Self { name, seconds: *seconds })
            .ok_or_else(|| format!("`{text}` is not a unit; units are ns, us, ms, s, m, h"))
    }

    /// The stem of a name and the unit in it: `stuck_ms`, `Duration (s)`, `elapsed_seconds`; `seconds` is both.
    pub fn of_name(name: &str) -> (String, Option<Self>) {
        let lower = name.trim().to_lowercase();
        let plain: String = lower.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let words: Vec<&str> = plain.split('_').filter(|w| !w.is_empty()).collect();
        let unit = words.last().and_then(|last| Self::parse(last).ok());
        match (words.as_slice(), unit) {
            ([only], Some(unit)) if only.len() > 2 => ("seconds".to_string(), Some(unit)),
            // A column that is called `s` or `m` could be anything.
            ([only], _) => ((*only).to_string(), None),
            ([stem @ .., _], Some(unit)) => (stem.join("_"), Some(unit)),
            (all, None) => (all.join("_"), None),
            ([], Some(_)) => (String::new(), None),
        }
    }
}

/// Whether a cell stands for "nothing here".
pub(super) fn is_empty(text: &str) -> bool {
    matches!(text, "" | "\\N" | "-" | "–")
        || ["null", "none", "nan", "nat", "n/a"].contains(&text.to_lowercase().as_str())
}

/// The seconds of a cell.
pub(super) fn seconds(text: &str, unit: Unit) -> Result<f64, String> {
    if let Ok(number) = text.parse::<f64>() {
        return checked(number * unit.seconds, text);
    }
    // A decimal comma, as spreadsheets write it where the delimiter is another.
    if let Some(number) = text.replacen(',', ".", 1).parse::<f64>().ok().filter(|_| text.matches(',').count() == 1) {
        return checked(number * unit.seconds, text);
    }
    if let Some(seconds) = clock_time(text) {
        return checked(seconds, text);
    }
    match parse_duration(text) {
        Ok(duration) => Ok(duration.as_secs_f64()),
        Err(_) => Err(format!("`{}` is no duration; write a number, 1283.9s, 21m23s or 00:21:23", shown(text))),
    }
}

fn checked(seconds: f64, text: &str) -> Result<f64, String> {
    if !seconds.is_finite() {
        return Err(format!("`{}` is no duration; leave the value empty where a stall has no end", shown(text)));
    }
    if seconds < 0.0 {
        return Err(format!("`{}` is negative; a duration ends after it began: are two columns swapped?", shown(text)));
    }
    Ok(seconds)
}

/// `0:21:23.9`, as intervals are printed.
fn clock_time(text: &str) -> Option<f64> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if ![hours, minutes, seconds].iter().all(|t| digits(t)) {
        return None;
    }
    Some(hours.parse::<f64>().ok()? * 3600.0 + minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

/// The seconds from one instant to another.
pub(super) fn between(start: &str, end: &str) -> Result<f64, String> {
    let instant = |text: &str| {
        parse_instant(text).ok_or_else(|| {
            format!("`{}` is no instant; write 2025-03-01 03:52:21.5+00:00 (without a zone it is UTC)", shown(text))
        })
    };
    let (from, to) = (instant(start)?, instant(end)?);
    checked((to - from) as f64 / 1e6, &format!("{start} to {end}"))
}

/// A cell in an error: short, on one line.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}
