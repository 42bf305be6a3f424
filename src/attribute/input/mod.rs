//! Durations as people have them: CSV, JSON lines, plain numbers; with everything that was guessed said.

mod csv_text;
mod json_lines;
mod number;
mod plain;

use number::Unit;
use thiserror::Error;

/// What was told of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// The column (CSV) or key (JSON lines).
    pub column: Option<String>,
    /// The unit of bare numbers: `ns`, `us`, `ms`, `s`, `m`, `h`.
    pub unit: Option<String>,
    /// The columns of two instants whose difference is the duration.
    pub between: Option<(String, String)>,
}

/// Durations, and how they were read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Read {
    /// In seconds.
    pub seconds: Vec<f64>,
    /// What was taken for what, in sentences.
    pub told: Vec<String>,
}

/// Why a text has no durations. Each ends with the mend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InputError {
    /// A value that is none.
    #[error("{label}, line {line}: {why}")]
    Line {
        /// The file.
        label: String,
        /// From 1.
        line: u64,
        /// What and how to mend it.
        why: String,
    },
    /// The text as a whole.
    #[error("{label}: {why}")]
    Text {
        /// The file.
        label: String,
        /// What and how to mend it.
        why: String,
    },
}

/// Names that say "duration", in the order in which they are taken; units are cut off before.
const NAMES: [&str; 10] =
    ["stuck", "stuck_for", "duration", "elapsed", "age", "latency", "ttd", "seconds", "time", "value"];

/// Reads the durations of a text.
///
/// # Errors
/// [`InputError`] with file, line and the mend.
pub fn read(label: &str, text: &str, hints: &Hints) -> Result<Read, InputError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    let whole = |why: &str| InputError::Text { label: label.to_string(), why: why.to_string() };
    let unit = hints.unit.as_deref().map(Unit::parse).transpose().map_err(|why| whole(&why))?;
    if first.is_empty() {
        return Err(whole("holds no durations; give one a line, CSV with a header, or JSON lines"));
    }
    let read = match first.chars().next() {
        Some('{') => json_lines::read(label, text, hints, unit)?,
        Some('[') => return Err(whole("is one JSON array; write one value a line, for example with jq -c '.[]'")),
        _ if plain::is_plain(first) => plain::read(label, text, hints, unit)?,
        _ => csv_text::read(label, text, hints, unit)?,
    };
    if read.seconds.is_empty() {
        return Err(whole("has no finished durations; every value is empty"));
    }
    Ok(read)
}

/// `1 row`, `2 rows`.
fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The columns (or keys) whose names say "duration", the most telling first.
fn by_name(names: &[String]) -> Vec<usize> {
    let mut found: Vec<(usize, usize)> = names
        .iter()
        .enumerate()
        .filter_map(|(i, name)| {
            let (stem, unit) = Unit::of_name(name);
            let rank = NAMES.iter().position(|n| *n == stem);
            // A unit in the name of an unknown thing is a duration too, if a less certain one.
            rank.or(unit.map(|_| NAMES.len())).map(|rank| (rank, i))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, i)| i).collect()
}

/// How the unit of a column came about.
fn unit_of(name: &str, told: Option<Unit>) -> (Unit, &'static str) {
    match (told, Unit::of_name(name).1) {
        (Some(unit), _) => (unit, "as told"),
        (None, Some(unit)) => (unit, "by its name"),
        (None, None) => (Unit::SECONDS, "a guess; --unit says otherwise"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ok(text: &str, hints: &Hints) -> Read {
        read("x", text, hints).unwrap_or_else(|e| panic!("{e}"))
    }

    fn refused(text: &str, hints: &Hints, words: &[&str]) {
        let said = read("x", text, hints).unwrap_err().to_string();
        for word in words {
            assert!(said.contains(word), "`{word}` is not in: {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    fn column(name: &str) -> Hints {
        Hints { column: Some(name.into()), ..Hints::default() }
    }

    #[test]
    fn plain_numbers_with_and_without_units() {
        let found = ok("# stuck tasks\n1283.9\n\n1200s\n21m23.9s\n0:21:23.9\n", &Hints::default());
        assert_eq!(found.seconds, [1283.9, 1200.0, 1283.9, 1283.9]);
        assert!(found.told[0].contains("seconds (a guess"), "{:?}", found.told);
        let told = Hints { unit: Some("ms".into()), ..Hints::default() };
        assert_eq!(ok("1500\n2s\n", &told).seconds, [1.5, 2.0]);
    }

    #[test]
    fn a_column_is_found_by_its_name_and_said() {
        let found = ok("id,stuck_ms,state\n1,1500,x\n2,,y\n3,2500,z\n", &Hints::default());
        assert_eq!(found.seconds, [1.5, 2.5]);
        assert!(found.told[0].contains("`stuck_ms`") && found.told[0].contains("milliseconds (by its name)"));
        assert!(found.told[1].contains("1 row without a value"), "{:?}", found.told);
        assert_eq!(ok("id;Duration (s)\n1;1,5\n", &Hints::default()).seconds, [1.5]);
        assert_eq!(ok("a\tb_s\n1\t2\n", &column("a")).seconds, [1.0]);
        // The trials of a run: what was stuck, or where no messages flowed, the time to detect.
        assert_eq!(ok("trial,ttd_s,stuck_s\n0,3.5,\n1,4.5,\n", &Hints::default()).seconds, [3.5, 4.5]);
        assert_eq!(ok("n\n5\n6\n", &Hints::default()).seconds, [5.0, 6.0]);
    }

    #[test]
    fn two_instants_make_a_duration() {
        let text = "task,queued_dttm,end_date\na,2025-03-01 03:52:21.5+00:00,2025-03-01 04:14:34+00\nb,2025-03-01T03:00:00Z,\n";
        let hints = Hints { between: Some(("queued_dttm".into(), "end_date".into())), ..Hints::default() };
        assert_eq!(ok(text, &hints).seconds, [1332.5]);
        let wrong = Hints { between: Some(("queued".into(), "end_date".into())), ..Hints::default() };
        refused(text, &wrong, &["`queued`", "task, queued_dttm, end_date"]);
        refused(
            "a,b\nx,y\n",
            &Hints { between: Some(("a".into(), "b".into())), ..Hints::default() },
            &["line 2", "`x`", "2025-03-01"],
        );
    }

    #[test]
    fn json_lines_have_a_key_or_none() {
        assert_eq!(
            ok("{\"id\": 1, \"duration\": 12.5}\n{\"id\":2,\"duration\":\"20s\"}\n", &Hints::default()).seconds,
            [12.5, 20.0]
        );
        assert_eq!(ok("{\"a\": 3}\n{\"a\": null}\n{}\n", &column("a")).seconds, [3.0]);
        refused("{\"a\": 1, \"b\": 2}\n", &Hints::default(), &["which key", "a, b", "--column"]);
        refused("{\"a\": 1}\n{\"a\": }\n", &column("a"), &["line 2", "not JSON"]);
        refused("{\"a\": 1}\n", &column("c"), &["`c`", "a"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_mend() {
        refused("", &Hints::default(), &["no durations"]);
        refused("[1, 2]", &Hints::default(), &["jq -c '.[]'"]);
        refused("1\n-5\n", &Hints::default(), &["line 2", "`-5`", "negative"]);
        refused("1\nabc\n", &Hints::default(), &["line 2", "`abc`"]);
        refused("1\n", &Hints { unit: Some("weeks".into()), ..Hints::default() }, &["`weeks`", "ms"]);
        refused("a,b\n1,2\n", &Hints::default(), &["which column", "a, b", "--column"]);
        refused("a,b\n1,2\n", &column("c"), &["`c`", "a, b"]);
        refused("1,2\n3,4\n", &Hints::default(), &["no header"]);
        refused("a,duration\n1,2\n3,x\n", &Hints::default(), &["line 3", "`x`"]);
        refused("a,duration\n1,\n", &Hints::default(), &["every value is empty"]);
        refused("1\ninf\n", &Hints::default(), &["line 2", "`inf`"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\PC\n,;{}\"0-9.]{0,80}") {
            if let Ok(found) = read("x", &text, &Hints::default()) {
                prop_assert!(found.seconds.iter().all(|s| s.is_finite() && *s >= 0.0));
            }
        }
    }
}
