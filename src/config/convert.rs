//! Raw values to typed ones: units, what 0 means, and what the client would choke on.

use super::literal::Literal;
use super::model::{OptionName, Value};
use crate::units::Setting;
use std::time::Duration;

/// A value, or the sentence that says why it is none.
pub(crate) type Converted = Result<Value, String>;

/// What an option's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// A number without unit.
    Count,
    /// On or off.
    Flag,
}

/// The unit in which clients and servers take an option.
pub(crate) fn unit(option: &OptionName) -> Unit {
    match option {
        OptionName::ConsumerTimeout | OptionName::BrokerHandshakeTimeout | OptionName::TcpUserTimeout => Unit::Millis,
        OptionName::Keepalive | OptionName::BrokerKeepalive | OptionName::ResultsKeepalive => Unit::Flag,
        OptionName::KeepaliveProbes
        | OptionName::SynRetries
        | OptionName::HeartbeatCheckrate
        | OptionName::Prefetch
        | OptionName::PrefetchMultiplier
        | OptionName::Concurrency
        | OptionName::VisibilityThrottle
        | OptionName::Sysctl(_) => Unit::Count,
        _ => Unit::Seconds,
    }
}

/// Whether 0 turns the option off. It does not for timeouts that reach Python's `settimeout`: 0 there means
/// "non-blocking", and every call fails at once.
fn zero_is_off(option: &OptionName) -> bool {
    matches!(
        option,
        OptionName::Heartbeat
            | OptionName::BrokerHeartbeat
            | OptionName::HealthCheckInterval
            | OptionName::ResultsHealthCheckInterval
            | OptionName::TcpUserTimeout
            | OptionName::BrokerIdleTimeout
            | OptionName::BrokerKeepaliveIdle
            | OptionName::WriteTimeout
            | OptionName::TaskTimeLimit
    )
}

/// Converts the value of an option. `settimeout` says that the value reaches Python's `settimeout`.
///
/// # Errors
/// A sentence without subject ("is not a number of seconds"), never with the value's text.
pub(crate) fn convert(option: &OptionName, raw: &Literal, settimeout: bool) -> Converted {
    let unit = unit(option);
    if raw.is_none() {
        return match unit {
            Unit::Flag => Ok(Value::Flag(false)),
            Unit::Count => Err("is empty".to_string()),
            _ => Ok(Value::Time(Setting::None)),
        };
    }
    if unit == Unit::Flag {
        return raw.flag().map(Value::Flag).ok_or_else(|| "is neither on nor off".to_string());
    }
    let names = match unit {
        Unit::Seconds => "a number of seconds",
        Unit::Millis => "a number of milliseconds",
        _ => "a whole number",
    };
    let number = match raw {
        Literal::Bool(_) => None,
        other => other.number(),
    };
    let Some(number) = number else { return Err(format!("is not {names}")) };
    if number < 0.0 {
        return Err(format!("is negative, not {names}"));
    }
    if unit == Unit::Count {
        let whole = number.fract() == 0.0 && number < 9e15;
        return if whole { Ok(Value::Count(number as i64)) } else { Err(format!("is not {names}")) };
    }
    let seconds = if unit == Unit::Millis { number / 1e3 } else { number };
    if number == 0.0 && (zero_is_off(option) || (*option == OptionName::ReadTimeout && !settimeout)) {
        return Ok(Value::Time(Setting::None));
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| format!("is out of range for {names}"))?;
    // Whole nanoseconds of a binary fraction are noise; microseconds are finer than any timer here.
    let micros =
        u64::try_from((duration.as_nanos() + 500) / 1_000).map_err(|_| format!("is out of range for {names}"))?;
    Ok(Value::Time(Setting::After(Duration::from_micros(micros))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_zero_follow_the_option() {
        let time = |s: u64| Ok(Value::Time(Setting::After(Duration::from_secs(s))));
        assert_eq!(convert(&OptionName::Heartbeat, &Literal::Int(60), false), time(60));
        assert_eq!(convert(&OptionName::ConsumerTimeout, &Literal::word("1800000"), false), time(1800));
        assert_eq!(convert(&OptionName::Heartbeat, &Literal::Int(0), false), Ok(Value::Time(Setting::None)));
        assert_eq!(convert(&OptionName::ReadTimeout, &Literal::Int(0), false), Ok(Value::Time(Setting::None)));
        assert_eq!(convert(&OptionName::ReadTimeout, &Literal::Int(0), true), time(0));
        assert_eq!(convert(&OptionName::ReadTimeout, &Literal::Float(0.2), true).unwrap().to_string(), "200ms");
    }

    #[test]
    fn wrong_values_are_named_without_their_text() {
        assert_eq!(
            convert(&OptionName::Heartbeat, &Literal::word("s3cret"), false),
            Err("is not a number of seconds".into())
        );
        assert!(convert(&OptionName::Heartbeat, &Literal::Int(-1), false).is_err());
        assert!(convert(&OptionName::KeepaliveProbes, &Literal::Float(1.5), false).is_err());
        assert!(convert(&OptionName::Heartbeat, &Literal::Float(1e300), false).is_err());
    }
}
