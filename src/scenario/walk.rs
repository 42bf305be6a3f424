//! A section against its keys: types, ranges, unknown and missing keys.

use super::command::COMMAND;
use super::error::Findings;
use super::keys::{Key, Kind, Section, mend, nearest};
use super::table::SECTIONS;
use super::target::TARGET;
use super::tree::{Entry, Node, Value};
use super::value::{Bound, Val, in_range, read};
use super::{sysctl, table};
use crate::units::Setting;
use std::collections::BTreeMap;
use std::time::Duration;

/// A key that was written, with its positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) key_at: usize,
    pub(super) at: usize,
    pub(super) val: Val,
}

/// What a section holds; keys whose value was wrong are absent, and listed apart.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Fields {
    /// The section as errors name it, with a trailing space; empty for `--set`.
    pub(super) label: String,
    /// Where its header stands.
    pub(super) at: usize,
    map: BTreeMap<&'static str, Found>,
    /// Whether anything in it was wrong, so that what it lacks proves nothing.
    pub(super) flawed: bool,
    /// Keys that were written with a wrong value: known to be there, not to be missed.
    broken: Vec<&'static str>,
}

impl Fields {
    /// An absent section.
    pub(super) fn absent(label: &str) -> Self {
        Self { label: format!("{label} "), ..Self::default() }
    }

    /// The key as errors name it.
    pub(super) fn name(&self, key: &str) -> String {
        format!("{}{key}", self.label)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Found> {
        self.map.get(key)
    }

    /// Whether the key was written, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key) || self.broken.contains(&key)
    }

    /// The keys that were written right.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Found)> {
        self.map.iter().map(|(key, found)| (*key, found))
    }

    /// Where the key's value stands, or else the header.
    pub(super) fn at(&self, key: &str) -> usize {
        self.get(key).map_or(self.at, |found| found.at)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn int(&self, key: &str) -> Option<i64> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Int(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn time(&self, key: &str) -> Option<Duration> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Time(time) | Val::Interval(time)) => Some(*time),
            _ => None,
        }
    }

    pub(super) fn setting(&self, key: &str) -> Option<Setting> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Setting(setting)) => Some(*setting),
            _ => None,
        }
    }

    pub(super) fn bound(&self, key: &str) -> Option<&Bound> {
        match self.get(key).map(|found| &found.val) {
            Some(Val::Bound(bound)) => Some(bound),
            _ => None,
        }
    }
}

/// Reads a section's entries. `label` is the section as errors name it, empty for `--set`.
pub(super) fn section(section: &Section, label: &str, at: usize, entries: &[Entry], findings: &mut Findings) -> Fields {
    let keys: Vec<&'static Key> = section.all_keys().collect();
    let label = if label.is_empty() { String::new() } else { format!("{label} ") };
    let mut fields = Fields { label, at, ..Fields::default() };
    let before = findings.count();
    read_keys(&keys, "", entries, &mut fields, findings);
    fields.flawed = findings.count() > before;
    for key in keys.iter().filter(|key| key.required && !fields.has(key.name)) {
        findings.error(at, fields.name(key.name), format!("missing; write `{}`", key.example));
    }
    fields
}

/// Reads entries against keys into `fields`; `prefix` is the path of an inner table.
fn read_keys(keys: &[&'static Key], prefix: &str, entries: &[Entry], fields: &mut Fields, findings: &mut Findings) {
    for entry in entries {
        let shown = fields.name(&format!("{prefix}{}", entry.key));
        let Some(key) = keys.iter().find(|key| key.name == entry.key) else {
            findings.error(entry.at, shown, unknown(&entry.key, keys, prefix));
            continue;
        };
        let problem = match (&key.kind, &entry.value.node) {
            (Kind::OffOr(inner), Node::Table(entries)) => {
                let inner: Vec<&'static Key> = inner.iter().collect();
                let mut within = Fields { label: fields.label.clone(), at: entry.at, ..Fields::default() };
                read_keys(&inner, &format!("{}.", entry.key), entries, &mut within, findings);
                fields.add(key.name, entry, Val::Fields(within));
                continue;
            }
            (Kind::Subject | Kind::Target, Node::Table(entries)) => {
                let table = if matches!(key.kind, Kind::Target) { TARGET } else { COMMAND };
                let inner: Vec<&'static Key> = table.iter().collect();
                let mut within = Fields { label: fields.label.clone(), at: entry.at, ..Fields::default() };
                let before = findings.count();
                read_keys(&inner, &format!("{}.", entry.key), entries, &mut within, findings);
                within.flawed = findings.count() > before;
                let lacks: Vec<&Key> = table.iter().filter(|key| key.required && !within.has(key.name)).collect();
                for key in lacks {
                    findings.error(
                        entry.at,
                        format!("{shown}.{}", key.name),
                        format!("missing; write `{}`", key.example),
                    );
                    within.flawed = true;
                }
                fields.add(key.name, entry, Val::Fields(within));
                continue;
            }
            (Kind::Sysctls, Node::Table(entries)) => {
                let sysctls = read_sysctls(entries, &shown, findings);
                fields.add(key.name, entry, Val::Sysctls(sysctls));
                continue;
            }
            _ => read(key, &entry.value),
        };
        match problem {
            Ok((val, warning)) => {
                if let Some(text) = warning {
                    findings.warn(entry.value.at, shown, text);
                }
                fields.add(key.name, entry, val);
            }
            Err((at, problem)) => {
                findings.error(at, shown, problem);
                fields.broken.push(key.name);
            }
        }
    }
}

impl Fields {
    fn add(&mut self, name: &'static str, entry: &Entry, val: Val) {
        self.map.insert(name, Found { key_at: entry.at, at: entry.value.at, val });
    }
}

fn read_sysctls(entries: &[Entry], shown: &str, findings: &mut Findings) -> Vec<(usize, String, i64)> {
    let mut read = Vec::new();
    for Entry { key, at, value } in entries {
        let shown = format!("{shown}.{key}");
        let Some((min, max)) = sysctl::range(key) else {
            let hint = mend(key, "sysctl", sysctl::names());
            findings.error(*at, shown, format!("not a sysctl that an arm can set; {hint}"));
            continue;
        };
        match &value.node {
            Node::Int(number) => match in_range(*number, min, max) {
                Ok(()) => read.push((*at, key.clone(), *number)),
                Err(problem) => findings.error(value.at, shown, problem),
            },
            other => {
                let problem =
                    format!("expected a whole number, found {}; write {min} to {max} without quotes", other.what());
                findings.error(value.at, shown, problem);
            }
        }
    }
    read
}

/// Why a key is unknown here and which one is meant: by another name, in another section, or nearly the same.
fn unknown(word: &str, keys: &[&'static Key], prefix: &str) -> String {
    let alias = keys.iter().find(|key| key.aliases.contains(&word));
    if let Some(key) = alias {
        return format!("unknown key; did you mean `{}`?", key.name);
    }
    let takes_sysctls = keys.iter().any(|key| matches!(key.kind, Kind::Sysctls));
    if takes_sysctls && sysctl::range(word).is_some() {
        return format!("unknown key; did you mean `sysctl.{word}`?");
    }
    if takes_sysctls && let Some(key) = table::KEEPALIVE.iter().find(|key| key.name == word) {
        return format!("unknown key; did you mean `keepalive.{}`?", key.name);
    }
    let names = keys.iter().map(|key| key.name);
    if nearest(word, names.clone()).is_none() && prefix.is_empty() {
        let elsewhere: Vec<String> = SECTIONS
            .iter()
            .filter(|section| section.all_keys().any(|key| key.name == word))
            .map(|section| format!("`{}`", section.header()))
            .collect();
        if !elsewhere.is_empty() {
            return format!("unknown key here; it belongs in {}", elsewhere.join(" or "));
        }
    }
    format!("unknown key; {}", mend(word, "key", names))
}

/// The tables of a section: one, or several; `None` when its form is wrong.
pub(super) fn tables<'a>(
    section: &Section,
    entry: &'a Entry,
    findings: &mut Findings,
) -> Option<Vec<(String, usize, &'a [Entry])>> {
    use super::keys::Repeat;
    let name = section.name;
    let one = |value: &'a Value| match &value.node {
        Node::Table(entries) => Some((value.at, entries.as_slice())),
        _ => None,
    };
    match (&entry.value.node, section.repeat) {
        (Node::Table(_), Repeat::Once | Repeat::OnceOrMany) => {
            let (at, entries) = one(&entry.value)?;
            Some(vec![(format!("[{name}]"), at, entries)])
        }
        (Node::List(values), Repeat::Many | Repeat::OnceOrMany) if values.iter().all(|value| one(value).is_some()) => {
            let tables = values.iter().filter_map(one);
            Some(tables.map(|(at, entries)| (format!("[[{name}]]"), at, entries)).collect())
        }
        (Node::Table(_), Repeat::Many) => {
            findings.error(entry.value.at, format!("[{name}]"), format!("there can be several; write `[[{name}]]`"));
            None
        }
        (Node::List(_), Repeat::Once) => {
            findings.error(entry.at, format!("[[{name}]]"), format!("there is only one; write `[{name}]`"));
            None
        }
        (other, _) => {
            let problem = format!("expected a section, found {}; write `{}`", other.what(), section.header());
            findings.error(entry.value.at, name, problem);
            None
        }
    }
}
