//! One value against what its key takes.

use super::command::ReadyWhen;
use super::fault::Trigger;
use super::keys::{Key, Kind, Limits, mend, profile_names};
use super::model::SubjectKind;
use super::tree::{Entry, Node, Value};
use crate::units::{DurationError, Setting, parse_duration, parse_rate, print_duration};
use std::time::Duration;

/// A value of the right type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Val {
    Text(String),
    Flag(bool),
    Int(i64),
    Time(Duration),
    Setting(Setting),
    Words(Vec<(usize, String)>),
    Interval(Duration),
    /// A fixed phase, or `None` for uniform.
    Phase(Option<Duration>),
    /// A uniform phase, and then what is waited for.
    Trigger(Trigger),
    Number(f64),
    BitRate(u64),
    Any,
    Bound(Bound),
    Range(Duration, Duration),
    Off,
    Fields(super::walk::Fields),
    Sysctls(Vec<(usize, String, i64)>),
    Native(serde_json::Map<String, serde_json::Value>),
}

/// A gate's bound as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bound {
    Number(f64),
    Percent(f64),
    Time(Duration),
    /// Events an hour.
    Rate(f64),
}

/// A problem at a position.
pub(super) type Problem = (usize, String);

/// Reads a value that is not a table. The warning is for legal values that are usually a mistake.
pub(super) fn read(key: &Key, value: &Value) -> Result<(Val, Option<String>), Problem> {
    let here = |problem: String| (value.at, problem);
    let wrong =
        |expected: &str| here(format!("expected {expected}, found {}; write `{}`", value.node.what(), key.example));
    let plain = |val| Ok((val, None));
    match (key.kind, &value.node) {
        (Kind::Name, Node::Text(text)) => name(text).map(|()| (Val::Text(text.clone()), None)).map_err(here),
        (Kind::Text | Kind::TextOrTrue, Node::Text(text)) if text.is_empty() => {
            Err(here(format!("empty; write `{}`", key.example)))
        }
        (Kind::Text | Kind::TextOrTrue, Node::Text(text)) => plain(Val::Text(text.clone())),
        (Kind::TextOrTrue, Node::Flag(true)) => plain(Val::Any),
        (Kind::Flag, Node::Flag(flag)) => plain(Val::Flag(*flag)),
        (Kind::Integer { min, max }, Node::Int(number)) => {
            in_range(*number, min, max).map(|()| (Val::Int(*number), None)).map_err(here)
        }
        (Kind::Time(limits), Node::Text(_) | Node::Int(_) | Node::Float(_)) => {
            let time = duration(&value.node).map_err(here)?;
            limited(time, &written(&value.node), &limits, false).map_err(here)?;
            Ok((Val::Time(time), unusual(time, &written(&value.node), &limits)))
        }
        (Kind::Setting(_), Node::Text(text)) if text == "none" => plain(Val::Setting(Setting::None)),
        (Kind::Setting(_), Node::Text(text)) if text == "off" => {
            Err(here("`off` is not a duration; write `none`".into()))
        }
        (Kind::Setting(limits), Node::Text(_) | Node::Int(_) | Node::Float(_)) => {
            let time = duration(&value.node).map_err(here)?;
            limited(time, &written(&value.node), &limits, true).map_err(here)?;
            Ok((Val::Setting(Setting::After(time)), unusual(time, &written(&value.node), &limits)))
        }
        (Kind::Choice(words), Node::Text(text)) => {
            word(text, words).map(|()| (Val::Text(text.clone()), None)).map_err(here)
        }
        (Kind::Choices(words), Node::Text(text)) => {
            word(text, words).map(|()| (Val::Words(vec![(value.at, text.clone())]), None)).map_err(here)
        }
        (Kind::Choices(words), Node::List(values)) => choices(values, words, wrong("a text or a list of texts")),
        (Kind::Image, Node::Text(text)) => image(text).map(|()| (Val::Text(text.clone()), None)).map_err(here),
        (Kind::Images, Node::Text(text)) => {
            image(text).map(|()| (Val::Words(vec![(value.at, text.clone())]), None)).map_err(here)
        }
        (Kind::Images, Node::List(values)) => listed(values, image, wrong("a text or a list of texts")),
        (Kind::Subject, Node::Text(text)) => subject(text).map(|()| (Val::Text(text.clone()), None)).map_err(here),
        (Kind::Ready, Node::Text(text)) => {
            ReadyWhen::parse(text).map(|_| (Val::Text(text.clone()), None)).map_err(here)
        }
        (Kind::Texts, Node::List(values)) => texts(values, wrong("a list of texts")),
        (Kind::Rate, Node::Text(text)) => rate(text).map(|every| (Val::Interval(every), None)).map_err(here),
        (Kind::Phase, Node::Text(text)) if text == "uniform" => plain(Val::Phase(None)),
        (Kind::Phase, Node::Text(_) | Node::Int(_) | Node::Float(_)) => match trigger(&value.node) {
            Some(trigger) => plain(Val::Trigger(trigger)),
            None => match duration(&value.node) {
                Ok(time) => plain(Val::Phase(Some(time))),
                Err(problem) => Err(here(format!("{problem}, or {}", phase_words()))),
            },
        },
        (Kind::Profile, Node::Text(text)) => {
            let names = profile_names();
            word(text, &names).map(|()| (Val::Text(text.clone()), None)).map_err(here)
        }
        (Kind::Native, Node::Table(entries)) => native(entries).map(|table| (Val::Native(table), None)),
        (Kind::OffOr(_), Node::Text(text)) if text == "off" => plain(Val::Off),
        (Kind::OffOr(_), Node::Text(text)) => {
            Err(here(format!("`{text}` is neither `off` nor a table; write `off` or `{}`", key.example)))
        }
        (Kind::Column, Node::Text(text)) => match super::columns::find(text) {
            Some(_) => plain(Val::Text(text.clone())),
            None => {
                let hint = mend(text, "column", super::columns::names());
                Err(here(format!("`{text}` is not a column of trials.csv; {hint}")))
            }
        },
        (Kind::Quantile, Node::Int(_) | Node::Float(_)) => {
            let number = number(&value.node);
            if number > 0.0 && number <= 1.0 {
                plain(Val::Number(number))
            } else {
                Err(here(format!("`{number}` is not a quantile; write a number above 0 and at most 1, such as `0.99`")))
            }
        }
        (Kind::Share, Node::Int(_) | Node::Float(_)) => {
            let number = number(&value.node);
            if number > 0.0 && number <= 1.0 {
                plain(Val::Number(number))
            } else {
                Err(here(format!("`{number}` is not a share; write a number above 0 and at most 1, such as `0.8`")))
            }
        }
        (Kind::Percent, Node::Text(_) | Node::Int(_) | Node::Float(_)) => {
            percent(&value.node).map(|share| (Val::Number(share), None)).map_err(here)
        }
        (Kind::BitRate, Node::Text(text)) => bit_rate(text).map(|bits| (Val::BitRate(bits), None)).map_err(here),
        (Kind::Bound, node) => match bound(node) {
            Some(Ok(bound)) => plain(Val::Bound(bound)),
            Some(Err(problem)) => Err(here(problem)),
            None => Err(wrong("a number, a percentage or a duration")),
        },
        (Kind::Range, Node::Text(text)) => {
            range(text).map(|(from, to)| (Val::Range(from, to), None)).map_err(|problem| {
                here(format!("{problem}; write two durations, the shorter first, such as `10s to 12s`"))
            })
        }
        (kind, _) => Err(wrong(expected(kind))),
    }
}

/// Somebody else's options as JSON, which has no dates.
fn native(entries: &[Entry]) -> Result<serde_json::Map<String, serde_json::Value>, Problem> {
    entries.iter().map(|entry| Ok((entry.key.clone(), json(&entry.value)?))).collect()
}

fn json(value: &Value) -> Result<serde_json::Value, Problem> {
    Ok(match &value.node {
        Node::Text(text) => text.as_str().into(),
        Node::Int(number) => (*number).into(),
        Node::Float(number) => (*number).into(),
        Node::Flag(flag) => (*flag).into(),
        Node::Date => return Err((value.at, "a date can't be handed on; write it as a text".to_string())),
        Node::List(values) => values.iter().map(json).collect::<Result<Vec<_>, _>>()?.into(),
        Node::Table(entries) => native(entries)?.into(),
    })
}

/// The words of a phase that is no duration.
pub(super) fn phase_words() -> String {
    let words: Vec<String> = Trigger::ALL.iter().map(|trigger| format!("`{}`", trigger.name())).collect();
    format!("`uniform`, {}", words.join(", "))
}

fn trigger(node: &Node) -> Option<Trigger> {
    let Node::Text(text) = node else { return None };
    Trigger::ALL.into_iter().find(|trigger| trigger.name() == text)
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Flag => "true or false",
        Kind::Integer { .. } => "a whole number",
        Kind::Time(_) | Kind::Setting(_) => "a duration",
        Kind::Quantile | Kind::Share => "a number",
        Kind::Percent => "a percentage",
        Kind::Sysctls | Kind::Native | Kind::Target => "a table",
        Kind::OffOr(_) => "`off` or a table",
        Kind::Choices(_) | Kind::Images => "a text or a list of texts",
        Kind::Subject => "a text, or a table with `command`",
        Kind::Texts => "a list of texts",
        Kind::TextOrTrue => "a text or true",
        _ => "a text",
    }
}

fn number(node: &Node) -> f64 {
    match node {
        Node::Int(number) => *number as f64,
        Node::Float(number) => *number,
        _ => f64::NAN,
    }
}

fn name(text: &str) -> Result<(), String> {
    let fits = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if text.is_empty() || text.starts_with('.') || text.len() > 64 || !fits {
        return Err(format!("`{text}` is not a name; use up to 64 letters, digits, `-`, `_` and `.`"));
    }
    Ok(())
}

pub(super) fn in_range(number: i64, min: i64, max: i64) -> Result<(), String> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    let upper = if max == i64::MAX { "more".to_string() } else { max.to_string() };
    Err(format!("`{number}` is out of range; write {min} to {upper}"))
}

fn duration(node: &Node) -> Result<Duration, String> {
    match node {
        Node::Text(text) => parse_duration(text).map_err(|e| e.to_string()),
        Node::Int(number) if *number >= 0 => Err(DurationError::NoUnit(number.to_string()).to_string()),
        Node::Float(number) if *number >= 0.0 => Err(DurationError::NoUnit(number.to_string()).to_string()),
        other => Err(DurationError::NotANumber(number(other).to_string()).to_string()),
    }
}

/// A value as its author wrote it.
fn written(node: &Node) -> String {
    match node {
        Node::Text(text) => text.trim().to_string(),
        other => number(other).to_string(),
    }
}

fn limited(time: Duration, text: &str, limits: &Limits, may_be_none: bool) -> Result<(), String> {
    if time.is_zero() && may_be_none {
        return Err(format!("`{text}` would not switch it off everywhere; write `none`"));
    }
    let off_step = limits.step.as_nanos() > 0 && !time.as_nanos().is_multiple_of(limits.step.as_nanos());
    if off_step {
        let (unit, below) = if limits.step.as_secs() == 1 {
            ("seconds", Duration::from_secs(time.as_secs()))
        } else {
            ("milliseconds", Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
        };
        let above = print_duration(below + limits.step);
        let choice = if below < limits.min { above } else { format!("{}` or `{above}", print_duration(below)) };
        return Err(format!("`{text}` is not in whole {unit}; write `{choice}`"));
    }
    if time < limits.min {
        return Err(format!("`{text}` is too short; the least is `{}`", print_duration(limits.min)));
    }
    if time > limits.max {
        return Err(format!("`{text}` is too long; the most is `{}`", print_duration(limits.max)));
    }
    Ok(())
}

/// A value that is a unit mistaken for another more often than it is meant.
fn unusual(time: Duration, text: &str, limits: &Limits) -> Option<String> {
    let (low, high) = limits.usual;
    if time < low {
        let millis = time.as_secs_f64() * 1e3;
        return Some(format!("`{text}` is unusually short; was `{millis}s` meant?"));
    }
    (time > high).then(|| {
        let seconds = time.as_secs_f64();
        format!("`{text}` is unusually long; was `{seconds}ms` meant?")
    })
}

fn word(text: &str, words: &[&str]) -> Result<(), String> {
    if words.contains(&text) {
        return Ok(());
    }
    Err(format!("unknown value `{text}`; {}", mend(text, "value", words.iter().copied())))
}

/// An image's name as Docker takes it, as far as a slip would show: no spaces, not an option.
fn image(text: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good) {
        return Ok(());
    }
    Err(format!("`{text}` is no name of an image; write for example `rabbitmq:3.13-management`"))
}

fn choices(values: &[Value], words: &[&str], wrong: Problem) -> Result<(Val, Option<String>), Problem> {
    listed(values, |text| word(text, words), wrong)
}

/// A list of texts, each once.
fn listed(
    values: &[Value],
    good: impl Fn(&str) -> Result<(), String>,
    wrong: Problem,
) -> Result<(Val, Option<String>), Problem> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for value in values {
        let Node::Text(text) = &value.node else { return Err((value.at, wrong.1)) };
        good(text).map_err(|problem| (value.at, problem))?;
        if found.iter().any(|(_, known)| known == text) {
            return Err((value.at, format!("`{text}` is listed twice; write it once")));
        }
        found.push((value.at, text.clone()));
    }
    if found.is_empty() {
        Err((wrong.0, "an empty list; remove the key or name one".into()))
    } else {
        Ok((Val::Words(found), None))
    }
}

fn subject(text: &str) -> Result<(), String> {
    if SubjectKind::ALL.iter().any(|kind| kind.is_own_command() && kind.name() == text) {
        return Err("a command line is a table; write `subject = { command = [\"python3\", \"worker.py\"] }`".into());
    }
    let named: Vec<&str> =
        SubjectKind::ALL.into_iter().filter(|kind| !kind.is_own_command()).map(SubjectKind::name).collect();
    word(text, &named)
}

fn texts(values: &[Value], wrong: Problem) -> Result<(Val, Option<String>), Problem> {
    let mut found = Vec::new();
    for value in values {
        let Node::Text(text) = &value.node else { return Err((value.at, wrong.1)) };
        found.push((value.at, text.clone()));
    }
    if found.first().is_none_or(|(_, program)| program.is_empty()) {
        return Err((wrong.0, "no program; write its name first".into()));
    }
    Ok((Val::Words(found), None))
}

fn rate(text: &str) -> Result<Duration, String> {
    let every = parse_rate(text)?;
    if every < Duration::from_millis(1) || every > Duration::from_secs(86_400) {
        return Err(format!("`{text}` is out of range; write `1000/s` at most, `1/1d` at least"));
    }
    Ok(every)
}

fn range(text: &str) -> Result<(Duration, Duration), String> {
    let (from, to) = text.split_once(" to ").ok_or_else(|| format!("`{text}` is no range"))?;
    let of = |text: &str| parse_duration(text.trim()).map_err(|e| e.to_string());
    let (from, to) = (of(from)?, of(to)?);
    if from < to { Ok((from, to)) } else { Err(format!("`{text}` has no length")) }
}

fn percent(node: &Node) -> Result<f64, String> {
    let share = match node {
        Node::Text(text) => {
            text.trim().strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok()).map(|share| share / 100.0)
        }
        other => Some(number(other)),
    };
    match share {
        Some(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Some(share) if share > 1.0 && share <= 100.0 && !matches!(node, Node::Text(_)) => {
            Err(format!("`{share}` is more than all; write `\"{share}%\"`"))
        }
        _ => Err(format!("`{}` is not a percentage; write for example `\"30%\"`", written(node))),
    }
}

fn bit_rate(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 3] = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    let lower = text.trim().to_ascii_lowercase();
    let bits = UNITS.iter().find_map(|(unit, scale)| {
        let number: f64 = lower.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * scale)
    });
    match bits {
        Some(bits) if (8_000.0..=100e9).contains(&bits) => Ok(bits.round() as u64),
        Some(_) => Err(format!("`{text}` is out of range; write `8kbit` to `100gbit`")),
        None => Err(format!("`{text}` is not a rate of bits; write for example `500kbit` or `1mbit`")),
    }
}

fn bound(node: &Node) -> Option<Result<Bound, String>> {
    match node {
        Node::Int(_) | Node::Float(_) => Some(Ok(Bound::Number(number(node)))),
        Node::Text(text) if text.contains('/') => Some(match parse_rate(text) {
            Ok(every) => Ok(Bound::Rate(3600.0 / every.as_secs_f64())),
            Err(_) => Err(format!("`{text}` is not a rate of events; write for example `1/1000h`")),
        }),
        Node::Text(text) => Some(match text.trim().strip_suffix('%') {
            Some(share) => share
                .trim()
                .parse::<f64>()
                .map(|share| Bound::Percent(share / 100.0))
                .map_err(|_| format!("`{text}` is not a percentage; write for example `95%`")),
            None => parse_duration(text).map(Bound::Time).map_err(|e| e.to_string()),
        }),
        _ => None,
    }
}
