//! CSV with a header; the delimiter is the one that the header has most of.

use super::number::{self, Unit};
use super::{Hints, InputError, Read, by_name, plural, unit_of};
use csv::{ByteRecord, Reader, ReaderBuilder};

const DELIMITERS: [u8; 4] = *b",;\t|";

pub(super) fn read(label: &str, text: &str, hints: &Hints, unit: Option<Unit>) -> Result<Read, InputError> {
    let whole = |why: String| InputError::Text { label: label.to_string(), why };
    let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let count = |d: &u8| header.bytes().filter(|b| b == d).count();
    let delimiter = DELIMITERS.into_iter().rev().max_by_key(count).unwrap_or(b',');
    let reader = || -> Reader<&[u8]> {
        ReaderBuilder::new().delimiter(delimiter).flexible(true).comment(Some(b'#')).from_reader(text.as_bytes())
    };
    let mut csv = reader();
    let names: Vec<String> = match csv.headers() {
        Ok(record) => record.iter().map(|name| name.trim().to_string()).collect(),
        Err(error) => return Err(whole(format!("is no CSV: {error}"))),
    };
    if names.iter().all(|name| name.parse::<f64>().is_ok()) {
        return Err(whole("has no header; name the columns in a first line, or give one column alone".to_string()));
    }
    let place = |name: &str| {
        let found =
            names.iter().position(|n| n == name).or_else(|| names.iter().position(|n| n.eq_ignore_ascii_case(name)));
        found.ok_or_else(|| whole(format!("has no column `{name}`; it has {}", listed(&names))))
    };
    if let Some((start, end)) = &hints.between {
        let (from, to) = (place(start)?, place(end)?);
        let value = |record: &ByteRecord| {
            let (a, b) = (cell(record, from), cell(record, to));
            if number::is_empty(a) || number::is_empty(b) { Ok(None) } else { number::between(a, b).map(Some) }
        };
        return collect(label, csv, value, format!("from `{start}` to `{end}`"));
    }
    let column = match &hints.column {
        Some(name) => place(name)?,
        None => guess(&names, reader).ok_or_else(|| {
            whole(format!("which column has the durations? --column NAME, one of {}", listed(&names)))
        })?,
    };
    let (unit, how) = unit_of(&names[column], unit);
    let value = |record: &ByteRecord| {
        let text = cell(record, column);
        if number::is_empty(text) { Ok(None) } else { number::seconds(text, unit).map(Some) }
    };
    let guessed = if hints.column.is_some() { "" } else { ", a guess" };
    collect(label, csv, value, format!("column `{}`{guessed}, in {} ({how})", shown(&names[column]), unit.name))
}

fn cell(record: &ByteRecord, column: usize) -> &str {
    // The whole text is UTF-8, and cells end at ASCII.
    record.get(column).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default().trim()
}

/// The first column that says "duration" and has a value, or the only one there is.
fn guess<'t>(names: &[String], reader: impl Fn() -> Reader<&'t [u8]>) -> Option<usize> {
    if names.len() == 1 {
        return Some(0);
    }
    let candidates = by_name(names);
    let has_value = |column: &usize| {
        let mut rows = reader();
        let mut record = ByteRecord::new();
        while matches!(rows.read_byte_record(&mut record), Ok(true)) {
            if !number::is_empty(cell(&record, *column)) {
                return true;
            }
        }
        false
    };
    candidates.iter().copied().find(has_value).or(candidates.first().copied())
}

fn collect(
    label: &str,
    mut csv: Reader<&[u8]>,
    value: impl Fn(&ByteRecord) -> Result<Option<f64>, String>,
    how: String,
) -> Result<Read, InputError> {
    let (mut seconds, mut empty) = (Vec::new(), 0);
    let mut record = ByteRecord::new();
    loop {
        match csv.read_byte_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => {
                return Err(InputError::Text { label: label.to_string(), why: format!("is no CSV: {error}") });
            }
        }
        match value(&record) {
            Ok(Some(s)) => seconds.push(s),
            Ok(None) => empty += 1,
            Err(why) => {
                let line = record.position().map_or(0, csv::Position::line);
                return Err(InputError::Line { label: label.to_string(), line, why });
            }
        }
    }
    let mut told = vec![format!("{label}: {} of {how}.", plural(seconds.len(), "duration"))];
    if empty > 0 {
        told.push(format!("{label}: {} without a value left out: no end, or never begun.", plural(empty, "row")));
    }
    Ok(Read { seconds, told })
}

fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

fn listed(names: &[String]) -> String {
    const MOST: usize = 20;
    let mut list = names.iter().take(MOST).map(|n| shown(n)).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        list.push_str(&format!(" and {} more", names.len() - MOST));
    }
    list
}
