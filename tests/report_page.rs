//! `report.html`, its pictures and `junit.xml`: what they say, that they can't be broken from outside, and how large
//! they get.

mod common;
#[path = "support/markup.rs"]
mod markup;

use common::mini::{mini_events, mini_plan, mini_run, run_info};
use halfopen::engine::model::{reference_machine, simulate};
use halfopen::events::{Event, Kind, Source};
use halfopen::plan::{Machine, Overrides, build, predict};
use halfopen::report::Report;
use halfopen::scenario::read;
use halfopen::store;
use halfopen::units::Offset;
use std::path::Path;

/// Without the style sheet, which is no statement about the run.
fn body(html: &str) -> &str {
    &html[html.find("<body>").unwrap()..]
}

#[test]
fn the_page_of_a_recorded_run() {
    let (run, events) = mini_run();
    let report = Report::new(&run, &events);
    insta::assert_snapshot!("page", body(&report.html()));
    insta::assert_snapshot!("junit", report.junit());
    let plots = report.plots();
    assert_eq!(
        plots.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["plots/ttd.svg", "plots/stuck.svg", "plots/trials.svg"]
    );
    markup::check_page(&report.html());
    plots.iter().for_each(|(name, svg)| markup::check_xml(name, svg));
}

#[test]
fn the_page_says_the_same_numbers_as_the_markdown() {
    let (run, events) = mini_run();
    for (run, events) in [(run, events), simulated(STALL)] {
        let report = Report::new(&run, &events);
        let (html, markdown) = (report.html(), report.markdown());
        let tables = markup::html_tables(&html);
        assert!(tables.len() >= 4 && tables.iter().any(|t| t.len() > 2), "{tables:?}");
        assert_eq!(tables, markup::markdown_tables(&markdown));
        // The single trials' moments stand in the page only.
        let said: Vec<String> = markup::html_items(&html);
        for item in markup::markdown_items(&markdown) {
            assert!(said.contains(&item), "{item} is not in {said:?}");
        }
    }
}

const EVIL: &str = "</title></svg><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\u{202e}";

#[test]
fn nothing_from_outside_becomes_markup() {
    let mut plan = mini_plan();
    let long = format!("{EVIL}{}", "long-name-".repeat(60));
    plan.scenario.name = EVIL.into();
    plan.scenario.question = EVIL.into();
    plan.scenario.arms[0].name = long.clone();
    plan.scenario.arms[1].name = EVIL.into();
    plan.scenario.faults[0].profile = EVIL.into();
    plan.scenario.gates[0].arm = Some(long);
    let mut events = mini_events(&plan);
    for event in &mut events {
        if let Kind::Notice { cause, .. } | Kind::ConnectFailed { cause, .. } = &mut event.kind {
            cause.text = EVIL.into();
        }
    }
    events.push(Event::of_run(Offset::from_secs(0.2), Source::Harness, Kind::Note { text: EVIL.into() }));
    let mut run = run_info(plan);
    run.scenario.path = EVIL.into();
    run.scenario.text = EVIL.into();
    run.machine.kernel = EVIL.into();
    run.brokers.insert(EVIL.into(), EVIL.into());
    run.sources.push(EVIL.into());
    let report = Report::new(&run, &events);
    let html = report.html();
    markup::check_page(&html);
    assert!(html.matches("alert").count() > 10, "the names are shown");
    for (name, svg) in report.plots() {
        markup::check_xml(&name, &svg);
        assert!(!svg.contains("<script") && !svg.contains("<img"), "{name}");
    }
    markup::check_xml("junit.xml", &report.junit());
}

#[test]
fn a_run_without_trials_has_a_page_and_an_error_in_junit() {
    let (mut run, _) = mini_run();
    run.plan.trials.clear();
    let report = Report::new(&run, &[]);
    let html = report.html();
    markup::check_page(&html);
    assert!(html.contains("Nothing was measured."));
    let junit = report.junit();
    markup::check_xml("junit.xml", &junit);
    assert!(junit.contains("<error message=\"the run has no trial\" type=\"nothing\""), "{junit}");
}

#[test]
fn junit_tells_a_failure_from_trouble() {
    let (mut run, events) = mini_run();
    let cases = |run: &store::RunInfo, events: &[Event]| {
        let junit = Report::new(run, events).junit();
        let xml = roxmltree::Document::parse(&junit).unwrap();
        let kind = |case: roxmltree::Node<'_, '_>| {
            let bad = case.children().find(|c| c.has_tag_name("failure") || c.has_tag_name("error"));
            let what = bad.map_or("success", |b| b.tag_name().name());
            format!("{}: {what}", case.attribute("name").unwrap())
        };
        xml.descendants().filter(|n| n.has_tag_name("testcase")).map(kind).collect::<Vec<_>>()
    };
    assert_eq!(
        cases(&run, &events),
        [
            "the run reached its end: success",
            // One of lapin's three is void.
            "enough trials are measurements: error",
            "p99 of ttd_s ≤ 8.5, arm keepalive: success",
            "p50 of ttd_s ≤ 30, arm never|ever <b>: failure",
            "p100 of ttd_s ≤ 30, arm lapin: error",
            "number of trials with false_alarm = true ≤ 0: success",
        ]
    );
    run.complete = false;
    run.plan.scenario.gates.clear();
    assert_eq!(cases(&run, &events)[0], "the run reached its end: error");
    assert_eq!(cases(&run, &events).len(), 2);
}

/// A stall with a reaper, simulated.
const STALL: &str = r#"# Who ends it?
[scenario]
name = "stall"
horizon = "150s"
trials = 8
[load]
rate = "0.2/s"
[broker]
heartbeat = "none"
[reaper]
rule = "queued-timeout"
timeout = "40s"
interval = "10s"
generation = "airflow-2.10.3"
[fault]
profile = "blackhole"
scope = "host"
[[arm]]
name = "never"
subject = "lapin"
[[arm]]
name = "heartbeat"
subject = "lapin"
heartbeat = "10s"
"#;

fn simulated(text: &str) -> (store::RunInfo, Vec<Event>) {
    let scenario = read("scenario.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let mut plan = build(scenario, &Overrides::default()).unwrap();
    predict(&mut plan, &Machine::default());
    let events = simulate(&plan, &reference_machine()).unwrap();
    let mut run = run_info(plan);
    (run.engine, run.lab, run.scenario.text) = ("model".into(), "model".into(), text.into());
    (run, events)
}

#[test]
fn the_reapers_deadline_and_the_silent_watchers_are_shown() {
    let (run, events) = simulated(STALL);
    let report = Report::new(&run, &events);
    let html = report.html();
    markup::check_page(&html);
    assert!(html.contains("reaper, queued_timeout: 40 to 50 s"));
    let tables = markup::html_tables(&html);
    let matrix = tables.iter().find(|t| t[0].contains(&"amqp_heartbeat".to_string())).unwrap();
    let column = |name: &str| matrix[0].iter().position(|h| h == name).unwrap();
    assert_eq!(matrix[1][column("amqp_heartbeat")], "off");
    assert_eq!(matrix[2][column("amqp_heartbeat")], "fired 8");
}

#[test]
fn ten_thousand_trials_make_a_page_that_opens() {
    let arm = |name: &str| {
        format!(
            "[[arm]]\nname = \"{name}\"\nsubject = \"tcp-reader\"\nkeepalive = {{ idle = \"5s\", interval = \"1s\", probes = 3 }}\n"
        )
    };
    let text = format!(
        "# How large?\n[scenario]\nname = \"large\"\nhorizon = \"12s\"\ntrials = 5000\n\
         [fault]\nprofile = \"blackhole\"\n{}{}",
        arm("one"),
        arm("two")
    );
    let (run, events) = simulated(&text);
    let report = Report::new(&run, &events);
    assert_eq!(report.summary.totals.trials, 10_000);
    let html = report.html();
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    markup::check_page(&html);
    let plots: usize = report.plots().iter().map(|(_, svg)| svg.len()).sum();
    assert!(plots < 500_000, "{plots} bytes");
}

#[test]
fn the_sample_report_is_what_this_version_makes_of_its_run() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/sample");
    let recorded = store::read(&dir).unwrap();
    let report = Report::new(&recorded.run, &recorded.events);
    let files = report.files().unwrap();
    assert!(files.len() >= 9);
    for (name, bytes) in files {
        let path = dir.join(&name);
        if std::env::var_os("HALFOPEN_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let committed = std::fs::read(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(committed == bytes, "{name} differs; HALFOPEN_BLESS=1 writes the sample again");
    }
}
