//! The checker of the ledger: recorded histories with known anomalies, and mutations of clean ones.

mod mutations;

use halfopen::events::Event;
use halfopen::ledger::{Account, AnomalyKind, Fate, Record, Terms, check};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The trial of every history.
const TRIAL: u32 = 7;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    why: String,
    #[serde(default)]
    terms: Terms,
    /// Every published message's.
    fates: BTreeMap<String, String>,
    /// All of them, and no others.
    anomalies: BTreeMap<String, Vec<String>>,
}

struct History {
    name: String,
    expected: Expected,
    events: Vec<Event>,
}

fn histories() -> Vec<History> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger/histories");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "json") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let expected = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let lines = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
            let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}: {line}"));
            let events = lines.lines().map(event).collect();
            all.push(History { name, expected, events });
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn judge(events: &[Event], terms: &Terms) -> Account {
    check(TRIAL, &Record::new(events), terms)
}

/// The account as the expectation writes it.
fn told(account: &Account) -> (BTreeMap<String, String>, BTreeMap<String, Vec<String>>) {
    let fates = account.fates.iter().map(|(id, fate)| (id.to_string(), fate.name().to_string())).collect();
    let mut anomalies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for anomaly in &account.anomalies {
        anomalies.entry(anomaly.kind.name().to_string()).or_default().push(anomaly.id.to_string());
    }
    (fates, anomalies)
}

#[test]
fn every_recorded_history_is_judged_right() {
    let all = histories();
    assert!(all.len() >= 15, "{} histories", all.len());
    let mut differences = Vec::new();
    for History { name, expected, events } in &all {
        let account = judge(events, &expected.terms);
        let (fates, anomalies) = told(&account);
        if (&fates, &anomalies) != (&expected.fates, &expected.anomalies) {
            differences.push(format!("{name} ({}):\n {fates:?} {:?}", expected.why, account.anomalies));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_fate_and_every_anomaly_has_a_history() {
    let all = histories();
    let fates: BTreeSet<&str> = all.iter().flat_map(|h| h.expected.fates.values()).map(String::as_str).collect();
    let anomalies: BTreeSet<&str> = all.iter().flat_map(|h| h.expected.anomalies.keys()).map(String::as_str).collect();
    // Which queue is right the plan says, not the record: the verdict holds deliveries to it (tests/timelines.rs).
    let routed = |kind: &AnomalyKind| *kind != AnomalyKind::Misrouted;
    assert_eq!(fates, Fate::ALL.into_iter().map(Fate::name).collect());
    assert_eq!(anomalies, AnomalyKind::ALL.into_iter().filter(routed).map(AnomalyKind::name).collect());
}

#[test]
fn neither_order_nor_repetition_of_the_events_makes_a_difference() {
    for History { name, expected, events } in histories() {
        let account = judge(&events, &expected.terms);
        let mut other = events.clone();
        other.reverse();
        other.extend(events);
        assert_eq!(judge(&other, &expected.terms), account, "{name}");
    }
}

#[test]
fn evidence_names_what_was_seen() {
    let of = |name: &str| {
        let history = histories().into_iter().find(|h| h.name == name).unwrap();
        let account = judge(&history.events, &history.expected.terms);
        account.anomalies.iter().map(|a| format!("{} {}: {}", a.id, a.kind, a.why)).collect::<Vec<_>>()
    };
    assert_eq!(
        of("brpop-ghost-reaped"),
        ["7.1 lost: taken out of its queue and never delivered; a reaper failed its task"]
    );
    assert_eq!(of("not-recorded"), ["7.0 zombie: its work was done at 1.060000, and the task store was not told"]);
    assert_eq!(of("out-of-order"), ["7.0 out_of_order: delivered after 7.1, which was published later"]);
}
