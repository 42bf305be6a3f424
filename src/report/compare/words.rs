//! How the numbers of a comparison stand in words; one place, so that every form says the same.

use crate::report::seconds;
use crate::stats::Interval;
use crate::verdict::metric::{Metric, Unit};

/// What stands where a quantile or an end of an interval is not reached.
pub(super) const NOT_REACHED: &str = "not reached";

/// A p-value: three decimals at most, and never zero.
#[must_use]
pub(super) fn p_value(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_string()
    } else if p < 0.0995 {
        format!("{p:.3}")
    } else {
        format!("{p:.2}")
    }
}

/// A ratio: `0.18 to 0.80 times`, `up to 2.42 times`.
#[must_use]
pub(super) fn interval_times(interval: Interval) -> String {
    let n = |value: f64| if value.is_finite() { format!("{value:.2}") } else { "any number of".to_string() };
    if interval.lo <= 0.0 {
        format!("up to {} times", n(interval.hi))
    } else {
        format!("{} to {} times", n(interval.lo), n(interval.hi))
    }
}

/// A value in its unit.
#[must_use]
pub(super) fn value(metric: Metric, value: f64) -> String {
    if !value.is_finite() {
        return NOT_REACHED.to_string();
    }
    match metric.unit() {
        Unit::Seconds => format!("{} s", seconds(value)),
        Unit::Share => format!("{} %", points(value)),
        Unit::PerHour if value == 0.0 => "0/h".to_string(),
        Unit::PerHour => format!("{}/h", seconds(value)),
        Unit::Number => seconds(value),
    }
}

fn points(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() >= 99.995 || percent == 0.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

/// A margin: a share's is in points.
#[must_use]
pub(super) fn margin(metric: Metric, margin: f64) -> String {
    if metric.unit() == Unit::Share { format!("{} points", points(margin)) } else { value(metric, margin) }
}

/// A difference with its sign.
#[must_use]
pub(super) fn signed(metric: Metric, value: f64) -> String {
    if !value.is_finite() {
        return NOT_REACHED.to_string();
    }
    let sign = if value > 0.0 { "+" } else { "" };
    match metric.unit() {
        Unit::Seconds => format!("{sign}{} s", seconds(value)),
        Unit::Share => format!("{sign}{} points", points(value)),
        Unit::PerHour => format!("{sign}{}/h", seconds(value)),
        Unit::Number => format!("{sign}{}", seconds(value)),
    }
}

/// An interval of a difference: `−57.1 to −53.0 s`.
#[must_use]
pub(super) fn span(metric: Metric, interval: Interval) -> String {
    let end = |value: f64| if value.is_finite() { signed(metric, value) } else { "open".to_string() };
    format!("{} to {}", end(interval.lo), end(interval.hi))
}
