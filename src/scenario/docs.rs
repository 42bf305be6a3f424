//! `docs/scenario.md` from the table of keys, so that it can't say anything else than what is read.

use super::command::COMMAND;
use super::keys::{Key, Kind, Limits, Section, profile_names};
use super::matrix::{Applies, OptionName, applies};
use super::model::SubjectKind;
use super::table::SECTIONS;
use super::target::TARGET;
use super::{columns, sysctl};
use crate::units::print_duration;
use std::fmt::Write as _;

const INTRO: &str = "\
# The scenario file

One file asks one question, in TOML. The question is the header comment, and it is required: it is what
`halfopen list` and the report show. Every duration carries its unit (`250ms`, `10s`, `1m30s`, `1h`); a timer that is
switched off is `\"none\"`, keepalive that is switched off is `\"off\"`. An unknown key, a wrong unit or an impossible
combination is an error with file, line, column and the nearest valid key, and exit code 2:

```text
scenarios/x.toml:12:1: [[arm]] heartbeet: unknown key; did you mean `heartbeat`?
```

Option names are the same in `[defaults]`, in `[[arm]]`, in `--set key=value` and in reports. `halfopen schema` prints
a JSON schema for editors.

This page is made from the table that the reader uses (`src/scenario/table.rs`), and a test holds it to that table.
";

/// The reference of the scenario file as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(INTRO);
    for section in SECTIONS {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## `{}`\n{}\n", section.header(), section.doc);
        match section.refused {
            Some(reason) => {
                let _ = writeln!(page, "\nIt is known and refused: {reason}.");
            }
            None if section.keys.is_empty() => page.push_str("\nIt takes the options of an arm, below.\n"),
            None => {
                page.push('\n');
                keys(&mut page, section);
            }
        }
    }
    page.push_str("\n## Options of an arm\nIn `[defaults]`, `[[arm]]` and `--set`.\n\n");
    rows(&mut page, super::table::OPTIONS, "");
    page.push_str("\n### Which option does anything for which subject\n\n");
    matrix(&mut page);
    page.push_str("\n### Sysctls\nWithout `net.ipv4.`; each arm has a network namespace of its own.\n\n| sysctl | range |\n|---|---|\n");
    for (name, min, max) in sysctl::SYSCTLS {
        let _ = writeln!(page, "| `{name}` | {min} – {max} |");
    }
    let columns: Vec<String> = columns::names().map(|name| format!("`{name}`")).collect();
    let _ = write!(
        page,
        "\n## Metrics of a gate\nThe columns of `trials.csv`, `agreement` and `detected_before_reaper`: {}.\n",
        columns.join(", ")
    );
    page
}

fn keys(page: &mut String, section: &Section) {
    rows(page, section.keys, "");
    if section.options {
        page.push_str("\nAnd the options of an arm, below.\n");
    }
}

fn rows(page: &mut String, keys: &[Key], prefix: &str) {
    if prefix.is_empty() {
        page.push_str("| key | takes | default | what | example | since |\n|---|---|---|---|---|---|\n");
    }
    for key in keys {
        let default = if key.required { "required" } else { key.default };
        let _ = writeln!(
            page,
            "| `{prefix}{}` | {} | {default} | {} | `{}` | {} |",
            key.name,
            takes(key.kind),
            key.doc,
            key.example,
            key.since
        );
        match key.kind {
            Kind::OffOr(inner) => rows(page, inner, &format!("{}.", key.name)),
            Kind::Subject => rows(page, COMMAND, &format!("{}.", key.name)),
            Kind::Target => rows(page, TARGET, &format!("{}.", key.name)),
            _ => {}
        }
    }
}

fn takes(kind: Kind) -> String {
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let limits = |limits: &Limits| format!("{} – {}", print_duration(limits.min), print_duration(limits.max));
    match kind {
        Kind::Name => "a name".into(),
        Kind::Text => "a text".into(),
        Kind::Flag => "true or false".into(),
        Kind::Integer { min, max: i64::MAX } => format!("a whole number, {min} or more"),
        Kind::Integer { min, max } => format!("a whole number, {min} – {max}"),
        Kind::Time(range) => format!("a duration, {}", limits(&range)),
        Kind::Setting(range) => format!("`none` or a duration, {}", limits(&range)),
        Kind::Choice(choice) => words(choice),
        Kind::Choices(choice) => format!("one or a list of {}", words(choice)),
        Kind::Image => "the name of an image".into(),
        Kind::Images => "the name of an image, or a list of names".into(),
        Kind::Subject => {
            let named: Vec<&str> =
                SubjectKind::ALL.into_iter().filter(|kind| !kind.is_own_command()).map(SubjectKind::name).collect();
            format!("{}, or a table with a command line", words(&named))
        }
        Kind::Target => "a table".into(),
        Kind::Texts => "a list of texts".into(),
        Kind::Ready => "`consumes`, `message`, `log: TEXT` or `connections: N`".into(),
        Kind::Rate => "a rate: `1/s`, `10/s`, `1/30s`".into(),
        Kind::Phase => format!("{} or a duration", super::value::phase_words()),
        Kind::Profile => words(&profile_names()),
        Kind::OffOr(_) => "`off` or a table".into(),
        Kind::Sysctls => "a table of whole numbers".into(),
        Kind::Native => "a table".into(),
        Kind::Column => "a column of `trials.csv`".into(),
        Kind::Percent => "a percentage, or a number 0 – 1".into(),
        Kind::BitRate => "a rate: `500kbit`, `1mbit`".into(),
        Kind::Quantile | Kind::Share => "a number above 0, at most 1".into(),
        Kind::TextOrTrue => "a text, or true".into(),
        Kind::Range => "two durations: `10s to 12s`".into(),
        Kind::Bound => "a number, a percentage, a duration or a rate".into(),
    }
}

fn matrix(page: &mut String) {
    let subjects = SubjectKind::ALL;
    let heads: Vec<String> = subjects.iter().map(|subject| format!("`{subject}`")).collect();
    let _ = writeln!(page, "| option | {} |\n|---|{}", heads.join(" | "), "---|".repeat(subjects.len()));
    for option in OptionName::ALL {
        let cells: Vec<&str> = subjects
            .iter()
            .map(|subject| match applies(*subject, option) {
                Applies::Yes => "yes",
                Applies::No { why } => why,
            })
            .collect();
        let _ = writeln!(page, "| `{option}` | {} |", cells.join(" | "));
    }
}
