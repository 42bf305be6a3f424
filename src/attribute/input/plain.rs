//! One duration a line.

use super::number::{self, Unit};
use super::{Hints, InputError, Read, plural};

/// Whether a text whose first line is this has one value a line and no header.
pub(super) fn is_plain(first: &str) -> bool {
    let value = first.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') || number::is_empty(first);
    value && !first.contains([',', ';', '\t'])
}

pub(super) fn read(label: &str, text: &str, hints: &Hints, unit: Option<Unit>) -> Result<Read, InputError> {
    if hints.column.is_some() || hints.between.is_some() {
        let why = "has one value a line and no columns; leave the column out".to_string();
        return Err(InputError::Text { label: label.to_string(), why });
    }
    let (mut seconds, mut empty) = (Vec::new(), 0);
    let (unit, how) =
        (unit.unwrap_or(Unit::SECONDS), if unit.is_some() { "as told" } else { "a guess; --unit says otherwise" });
    let mut bare = 0;
    for (i, line) in text.lines().enumerate() {
        let value = line.trim();
        if value.is_empty() || value.starts_with('#') {
            continue;
        }
        if number::is_empty(value) {
            empty += 1;
            continue;
        }
        bare += usize::from(value.ends_with(|c: char| c.is_ascii_digit()) && !value.contains(':'));
        let found = number::seconds(value, unit);
        seconds.push(found.map_err(|why| InputError::Line { label: label.to_string(), line: i as u64 + 1, why })?);
    }
    let mut told = vec![match bare {
        0 => format!("{label}: {}, one a line.", plural(seconds.len(), "duration")),
        _ => format!(
            "{label}: {}, one a line; bare numbers are {} ({how}).",
            plural(seconds.len(), "duration"),
            unit.name
        ),
    }];
    if empty > 0 {
        told.push(format!("{label}: {} without a value is left out.", plural(empty, "line")));
    }
    Ok(Read { seconds, told })
}
