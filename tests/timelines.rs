//! Recorded timelines with the row that each must give: `tests/timelines/*.jsonl` beside `*.json`.

mod common;

use common::{Setup, events};
use halfopen::events::{Event, Kind, Source};
use halfopen::ledger::{AnomalyKind, Fate};
use halfopen::scenario::{Exchange, Job};
use halfopen::units::Offset;
use halfopen::verdict::{ConnectionRow, Judged, MessageRow, Outcome, TrialRow, VoidReason, judge, watcher};
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// What the case is about.
    why: String,
    #[serde(default)]
    setup: Setup,
    /// Columns of the trial's row.
    trial: BTreeMap<String, String>,
    #[serde(default)]
    connections: Vec<BTreeMap<String, String>>,
    #[serde(default)]
    messages: Vec<BTreeMap<String, String>>,
}

struct Case {
    name: String,
    expected: Expected,
    events: Vec<Event>,
}

impl Case {
    fn judge(&self, events: &[Event]) -> Judged {
        judge(&self.expected.setup.plan(), events)
    }
}

fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/timelines");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "json") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let expected = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let recorded = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
            cases.push(Case { name, expected, events: events(&recorded) });
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn compare(
    differences: &mut Vec<String>,
    of: &str,
    want: &BTreeMap<String, String>,
    cell: impl Fn(&str) -> Option<String>,
) {
    for (column, want) in want {
        match cell(column) {
            None => differences.push(format!("{of}: no column `{column}`")),
            Some(got) if got != *want => differences.push(format!("{of}: {column} is `{got}`, expected `{want}`")),
            Some(_) => {}
        }
    }
}

#[test]
fn every_recorded_timeline_gives_its_row() {
    let mut differences = Vec::new();
    for case in cases() {
        let judged = case.judge(&case.events);
        let name = format!("{} ({})", case.name, case.expected.why);
        assert_eq!(judged.trials.len(), 1);
        compare(&mut differences, &name, &case.expected.trial, |c| judged.trials[0].cell(c));
        if !case.expected.connections.is_empty() {
            assert_eq!(judged.connections.len(), case.expected.connections.len(), "{name}");
        }
        for (want, got) in case.expected.connections.iter().zip(&judged.connections) {
            compare(&mut differences, &format!("{name}, {}", got.conn_id), want, |c| got.cell(c));
        }
        if !case.expected.messages.is_empty() {
            assert_eq!(judged.messages.len(), case.expected.messages.len(), "{name}");
        }
        for (want, got) in case.expected.messages.iter().zip(&judged.messages) {
            compare(&mut differences, &format!("{name}, message {}", got.id), want, |c| got.cell(c));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn every_outcome_void_reason_and_watcher_class_has_a_timeline() {
    let cases = cases();
    let seen = |column: &str| -> BTreeSet<String> {
        cases.iter().filter_map(|c| c.expected.trial.get(column).cloned()).collect()
    };
    let outcomes = seen("outcome");
    for outcome in Outcome::ALL {
        assert!(outcomes.contains(outcome.name()), "no timeline is {outcome}");
    }
    let reasons = seen("void_reason");
    for code in VoidReason::CODES {
        let has = |reason: &String| reason == code || reason.starts_with(&format!("{code}: "));
        assert!(reasons.iter().any(has), "no timeline is void because of {code}");
    }
    let mut watchers = seen("watcher");
    watchers.extend(cases.iter().flat_map(|c| &c.expected.connections).filter_map(|c| c.get("watcher").cloned()));
    for name in [
        watcher::READ_TIMEOUT,
        watcher::SEND_TIMEOUT,
        watcher::CONNECT_TIMEOUT,
        watcher::SYN_RETRIES,
        watcher::AMQP_HEARTBEAT,
        watcher::KEEPALIVE,
        watcher::USER_TIMEOUT,
        watcher::RETRANSMIT,
        watcher::PERSIST,
        watcher::RESET,
        watcher::FIN,
        watcher::UNREACHABLE,
        watcher::BROKER_HEARTBEAT,
        watcher::CONSUMER_TIMEOUT,
        watcher::HEALTH_CHECK,
        watcher::NONE,
        watcher::UNKNOWN,
    ] {
        assert!(watchers.contains(name), "no timeline has the watcher `{name}`");
    }
}

#[test]
fn a_time_to_detect_belongs_to_a_detection_and_a_reason_to_a_void_trial() {
    for case in cases() {
        check_consistency(&case.name, &case.judge(&case.events));
    }
}

fn check_consistency(name: &str, judged: &Judged) {
    for row in &judged.trials {
        assert_eq!(row.ttd_s.is_some(), row.outcome == Outcome::Detected, "{name}");
        assert_eq!(row.detected_s.is_some(), row.outcome == Outcome::Detected, "{name}");
        assert_eq!(row.void_reason.is_some(), row.outcome == Outcome::Void, "{name}");
        assert_eq!(row.false_alarm, row.outcome == Outcome::FalseAlarm, "{name}");
        assert!(row.ttd_s.is_none_or(|ttd| ttd.0 >= 0 && ttd <= row.horizon_s), "{name}");
        assert_eq!(row.cells().len(), TrialRow::COLUMNS.len());
    }
    assert!(judged.connections.iter().all(|c| c.cells().len() == ConnectionRow::COLUMNS.len()));
    assert!(judged.messages.iter().all(|m| m.cells().len() == MessageRow::COLUMNS.len()));
}

/// A cheap generator, so that a permutation is one number.
fn shuffled(events: &[Event], mut seed: u64) -> Vec<Event> {
    let mut events = events.to_vec();
    for i in (1..events.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        events.swap(i, (seed >> 33) as usize % (i + 1));
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn order_and_duplicates_change_nothing(seed in any::<u64>(), twice in any::<u64>()) {
        for case in cases() {
            let mut events = case.events.clone();
            events.extend(case.events.iter().enumerate().filter(|(i, _)| twice >> (i % 64) & 1 == 1).map(|(_, e)| e.clone()));
            prop_assert_eq!(case.judge(&shuffled(&events, seed)), case.judge(&case.events), "{}", case.name);
        }
    }

    #[test]
    fn any_part_of_any_timeline_is_judged_without_panic(keep in any::<u64>(), seed in any::<u64>(), shift in -100_000_000_000i64..100_000_000_000) {
        let cases = cases();
        // Parts of one timeline in the setup of another, with some of the events moved in time.
        for (case, other) in cases.iter().zip(cases.iter().cycle().skip(seed as usize % cases.len())) {
            let mut part: Vec<Event> =
                case.events.iter().enumerate().filter(|(i, _)| keep >> (i % 64) & 1 == 1).map(|(_, e)| e.clone()).collect();
            check_consistency(&case.name, &case.judge(&part));
            for event in part.iter_mut().step_by(2) {
                event.offset.0 += shift;
            }
            check_consistency(&other.name, &other.judge(&part));
        }
    }
}

#[test]
fn what_comes_out_of_another_queue_than_its_routes_say_is_misrouted_and_lacks_its_copy() {
    let mut setup = Setup { subject: "lapin".into(), fault: "none".into(), ..Setup::default() };
    setup.keepalive = false;
    let mut plan = setup.plan();
    plan.scenario.jobs = ["feed.import", "mail.send"].map(|name| Job { name: name.into(), ..Job::default() }).into();
    plan.scenario.arms[0].settings.delivery.routes = vec![("feed.*".into(), "feeds".into())];
    let say = |ms: i64, kind| Event::of_trial(Offset(ms * 1_000_000), Source::Subject, 0, kind);
    let mut events = vec![say(60_000, Kind::TrialEnded { why: "horizon".into() })];
    for (message, queue) in [(0, "feeds"), (1, ""), (2, ""), (3, "feeds")] {
        let at = 1_000 + 100 * i64::try_from(message).unwrap();
        events.push(say(at, Kind::Published { message }));
        events.push(say(at + 1, Kind::Routed { message, queue: queue.into() }));
        events.push(say(at + 1, Kind::Delivered { attempt: 0, message, redelivered: false }));
        events.push(say(at + 2, Kind::Started { attempt: 0, message }));
        events.push(say(at + 40, Kind::Effect { message }));
    }
    let judged = judge(&plan, &events);
    let wrong: Vec<u64> = judged.account.of(AnomalyKind::Misrouted).map(|id| id.message).collect();
    assert_eq!(wrong, [2, 3]);
    assert_eq!(judged.trials[0].misrouted_n, Some(2));
    assert_eq!(judged.trials[0].wait_max_s, Some(Offset(2_000_000)));

    plan.scenario.arms[0].settings.delivery.exchange = Exchange::Fanout;
    plan.scenario.arms[0].settings.delivery.routes.push(("b".into(), "second".into()));
    let judged = judge(&plan, &events);
    let waiting = judged.account.fates.values().filter(|fate| **fate == Fate::Waiting).count();
    assert_eq!(waiting, 4, "each lacks the copy of one queue");
}
