//! `docs/run-directory.md` names every kind of event, every column, every void reason and every key.

mod common;

use common::Setup;
use halfopen::events::Event;
use halfopen::report::Report;
use halfopen::store::{RunInfo, ScenarioSource};
use halfopen::verdict::{ConnectionRow, MessageRow, Outcome, TrialRow, VoidReason};
use std::collections::BTreeSet;

fn doc() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/run-directory.md")).unwrap()
}

/// The part below a heading, up to the next of its level.
fn section<'d>(doc: &'d str, heading: &str) -> &'d str {
    let start = doc.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}")) + 1;
    let rest = &doc[start + 3..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

fn missing<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    names.into_iter().filter(|name| !text.contains(&format!("`{name}`"))).collect()
}

/// The kinds as serde knows them, from its complaint about one that it does not.
fn kinds() -> Vec<String> {
    let error = serde_json::from_str::<Event>(r#"{"offset":0,"source":"harness","kind":"?"}"#).unwrap_err().to_string();
    let list = error.split("expected one of ").nth(1).unwrap_or_else(|| panic!("{error}"));
    let names: Vec<String> = list.split('`').skip(1).step_by(2).map(String::from).collect();
    assert!(names.len() > 20 && names.contains(&"trial_ended".to_string()), "{names:?}");
    names
}

#[test]
fn every_kind_of_event_is_explained() {
    let doc = doc();
    let kinds = kinds();
    let none: Vec<&str> = Vec::new();
    assert_eq!(missing(section(&doc, "`events.jsonl`"), kinds.iter().map(String::as_str)), none);
}

#[test]
fn every_column_is_explained() {
    let doc = doc();
    let none: Vec<&str> = Vec::new();
    let files = [
        ("`trials.csv`", TrialRow::COLUMNS),
        ("`connections.csv`", ConnectionRow::COLUMNS),
        ("`messages.csv`", MessageRow::COLUMNS),
    ];
    for (file, columns) in files {
        assert_eq!(missing(section(&doc, file), columns.iter().copied()), none, "{file}");
    }
}

#[test]
fn every_outcome_and_void_reason_is_explained() {
    let doc = doc();
    let rules = section(&doc, "How a trial is judged");
    let none: Vec<&str> = Vec::new();
    assert_eq!(missing(rules, Outcome::ALL.map(Outcome::name)), none);
    assert_eq!(missing(rules, VoidReason::CODES), none);
}

/// All keys of a document but those of options, plan and names, which are not this document's to explain.
fn keys(value: &serde_json::Value, into: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                into.insert(key.clone());
                if !["asked", "options", "plan", "phases_s"].contains(&key.as_str()) {
                    keys(value, into);
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|v| keys(v, into)),
        _ => {}
    }
}

#[test]
fn every_key_is_explained() {
    let doc = doc();
    let none: Vec<&str> = Vec::new();
    let run = RunInfo::new(Setup::default().plan(), ScenarioSource::new("a.toml", ""), "netns", 0);
    let mut in_run = BTreeSet::new();
    keys(&serde_json::to_value(&run).unwrap(), &mut in_run);
    assert_eq!(missing(section(&doc, "`run.json`"), in_run.iter().map(String::as_str)), none);

    let timeline = |name: &str| {
        let path = format!("{}/tests/timelines/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        common::events(&std::fs::read_to_string(path).unwrap())
    };
    let mut in_summary = BTreeSet::new();
    for name in ["stuck-lapin", "void-rst", "detected-predicted"] {
        let setup = Setup { predicted: Some((Some(8.0), Some(9.0))), ..Setup::default() };
        let report = Report::new(&RunInfo { plan: setup.plan(), ..run.clone() }, &timeline(name));
        keys(&serde_json::from_str(&report.json()).unwrap(), &mut in_summary);
    }
    let known = format!("{}{}", section(&doc, "`summary.json`"), section(&doc, "`run.json`"));
    assert_eq!(missing(&known, in_summary.iter().map(String::as_str)), none);
    assert!(in_summary.contains("first_trial") && in_summary.contains("duplicated") && in_summary.contains("agree"));
}
