//! JSON lines: an object a line.

use super::number::{self, Unit};
use super::{Hints, InputError, Read, by_name, plural, unit_of};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

pub(super) fn read(label: &str, text: &str, hints: &Hints, unit: Option<Unit>) -> Result<Read, InputError> {
    let at = |line: usize, why: String| InputError::Line { label: label.to_string(), line: line as u64 + 1, why };
    let mut objects: Vec<(usize, Map<String, Value>)> = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(Value::Object(object)) => objects.push((i, object)),
            Ok(_) => return Err(at(i, "is JSON, but no object; write {\"duration_s\": 1283.9}".to_string())),
            Err(error) => return Err(at(i, format!("is not JSON ({error}); write one object a line"))),
        }
    }
    let all: BTreeSet<&String> = objects.iter().flat_map(|(_, object)| object.keys()).collect();
    let names: Vec<String> = all.into_iter().cloned().collect();
    let whole = |why: String| InputError::Text { label: label.to_string(), why };
    let missing = |name: &str| whole(format!("no line has the key `{name}`; keys are {}", names.join(", ")));
    let known = |name: &String| names.contains(name);
    let (mut seconds, mut empty) = (Vec::new(), 0);
    let how;
    if let Some((start, end)) = &hints.between {
        for name in [start, end] {
            if !known(name) {
                return Err(missing(name));
            }
        }
        how = format!("from `{start}` to `{end}`");
        for (i, object) in &objects {
            match (text_of(object.get(start)), text_of(object.get(end))) {
                (Some(from), Some(to)) => seconds.push(number::between(&from, &to).map_err(|why| at(*i, why))?),
                _ => empty += 1,
            }
        }
    } else {
        let key = match &hints.column {
            Some(name) if known(name) => name.clone(),
            Some(name) => return Err(missing(name)),
            None => guess(&names).ok_or_else(|| {
                whole(format!("which key has the durations? --column NAME, one of {}", names.join(", ")))
            })?,
        };
        let (unit, why_unit) = unit_of(&key, unit);
        let guessed = if hints.column.is_some() { "" } else { ", a guess" };
        how = format!("key `{key}`{guessed}, in {} ({why_unit})", unit.name);
        for (i, object) in &objects {
            match text_of(object.get(&key)) {
                Some(value) => seconds.push(number::seconds(&value, unit).map_err(|why| at(*i, why))?),
                None => empty += 1,
            }
        }
    }
    let mut told = vec![format!("{label}: {} of {how}.", plural(seconds.len(), "duration"))];
    if empty > 0 {
        told.push(format!("{label}: {} without a value left out: no end, or never begun.", plural(empty, "line")));
    }
    Ok(Read { seconds, told })
}

fn guess(names: &[String]) -> Option<String> {
    match (names, by_name(names).first()) {
        ([only], _) => Some(only.clone()),
        (_, found) => found.map(|i| names[*i].clone()),
    }
}

/// A value as a cell; nothing for what stands for nothing.
fn text_of(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::Null => return None,
        Value::String(text) => text.trim().to_string(),
        other => other.to_string(),
    };
    (!number::is_empty(&text)).then_some(text)
}
