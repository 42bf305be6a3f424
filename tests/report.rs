//! A recorded mini-run, told in every form; and the run directory that it lives in.

mod common;

use common::mini::mini_run;
use halfopen::events::{Event, Kind, Source};
use halfopen::host::clock::Clock;
use halfopen::report::Report;
use halfopen::store::{RunDir, StoreError, read};
use halfopen::units::Offset;
use std::fs;
use std::path::Path;

#[test]
fn the_report_of_a_recorded_run() {
    let (run, events) = mini_run();
    let report = Report::new(&run, &events);
    insta::assert_snapshot!("markdown", report.markdown());
    insta::assert_snapshot!("terminal", report.terminal(Some(120)));
    insta::assert_snapshot!("json", report.json());
    insta::assert_snapshot!("trials", String::from_utf8(halfopen::report::trials_csv(&report.judged.trials)).unwrap());
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn rendered_again_from_its_directory_a_run_gives_the_same_bytes() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("run");
    let (mut run, mut events) = mini_run();
    let dir = RunDir::create(&path).unwrap();
    dir.write_run(&run).unwrap();
    let mut log = dir.event_log(Clock::start()).unwrap();
    events.iter().for_each(|e| log.append(e).unwrap());
    log.flush().unwrap();
    let first = Report::new(&run, &events);
    first.complete(&mut run);
    dir.write_run(&run).unwrap();
    dir.write_all(&first.files().unwrap()).unwrap();

    let recorded = read(&path).unwrap();
    assert_eq!((recorded.events.len(), recorded.unknown_events, recorded.truncated), (events.len(), 0, false));
    assert_eq!(recorded.run, run);
    let again = Report::new(&recorded.run, &recorded.events).files().unwrap();
    assert_eq!(again.len(), 12);
    for (name, bytes) in &again {
        assert!(fs::read(path.join(name)).unwrap() == *bytes, "{name} differs");
    }
    // Nor does the order in which the sources were heard make a difference.
    events.reverse();
    assert_eq!(Report::new(&recorded.run, &events).files().unwrap(), again);
}

#[test]
fn a_run_without_a_single_trial_has_a_report_and_proves_nothing() {
    let (mut run, _) = mini_run();
    run.plan.trials.clear();
    let report = Report::new(&run, &[]);
    assert_eq!(report.files().unwrap().len(), 8);
    assert!(report.terminal(Some(80)).contains("0 trials: nothing to count"));
    assert_eq!(report.exit_code(), 4);
}

#[test]
fn a_killed_run_can_still_be_judged() {
    let tmp = tempfile::tempdir().unwrap();
    let (mut run, events) = mini_run();
    run.complete = false;
    let dir = RunDir::create(tmp.path()).unwrap();
    dir.write_run(&run).unwrap();
    // Killed before the first event.
    let nothing = read(tmp.path()).unwrap();
    let report = Report::new(&nothing.run, &nothing.events);
    assert_eq!((report.summary.totals.void, report.exit_code()), (16, 4));
    assert!(report.markdown().contains("The run did not reach its end"));
    // Killed in the middle of a line.
    let mut log = dir.event_log(Clock::start()).unwrap();
    events.iter().for_each(|e| log.append(e).unwrap());
    drop(log);
    let file = tmp.path().join("events.jsonl");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    let recorded = read(tmp.path()).unwrap();
    assert_eq!((recorded.events.len(), recorded.truncated), (events.len() - 1, true));
    assert!(Report::new(&recorded.run, &recorded.events).summary.totals.detected > 0);
}

#[test]
fn a_login_that_a_client_quotes_is_blotted_out() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = RunDir::create(tmp.path()).unwrap();
    let mut log = dir.event_log(Clock::start()).unwrap();
    log.hide("s3\"cret");
    log.hide("");
    let text = "refused for user:s3\"cret@10.0.0.1".to_string();
    log.append(&Event::of_run(Offset(1), Source::Harness, Kind::Note { text })).unwrap();
    log.flush().unwrap();
    let written = fs::read_to_string(tmp.path().join("events.jsonl")).unwrap();
    assert!(written.contains("user:***@10.0.0.1") && !written.contains("cret"), "{written}");
}

#[test]
fn foreign_directories_are_refused_and_earlier_runs_cleared() {
    let tmp = tempfile::tempdir().unwrap();
    let foreign = tmp.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("trials.csv"), "mine").unwrap();
    let error = RunDir::create(&foreign).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert_eq!(fs::read_to_string(foreign.join("trials.csv")).unwrap(), "mine");
    assert!(matches!(RunDir::create(&foreign.join("trials.csv")), Err(StoreError::Io { .. })));

    let own = tmp.path().join("deep/er/run");
    let dir = RunDir::create(&own).unwrap();
    dir.write("trials.csv", b"old").unwrap();
    dir.write("plots/ttd.svg", b"old").unwrap();
    fs::write(own.join("notes.txt"), "a person's").unwrap();
    drop(dir);
    RunDir::create(&own).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&own).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [".halfopen-run", "notes.txt"]);
}

#[test]
fn later_formats_and_broken_files_give_one_clear_error() {
    let tmp = tempfile::tempdir().unwrap();
    let message = |path: &Path| read(path).unwrap_err().to_string();
    assert!(message(tmp.path()).ends_with("is not a run of halfopen: it has no run.json"));
    let (run, _) = mini_run();
    let write = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::to_value(&run).unwrap();
        change(&mut value);
        fs::write(tmp.path().join("run.json"), value.to_string()).unwrap();
    };
    write(&|v| v["format"] = 2.into());
    assert!(message(tmp.path()).ends_with("run.json has format 2, this version reads up to 1; use a newer halfopen"));
    write(&|v| v["events_version"] = 9.into());
    assert!(message(tmp.path()).contains("events_version 9, this version reads up to 1"));
    write(&|v| v["format"] = "one".into());
    assert!(message(tmp.path()).contains("`format` is missing or not a version"));
    write(&|v| _ = v.as_object_mut().unwrap().remove("plan"));
    assert!(message(tmp.path()).contains("missing field `plan`"));
    write(&|v| v["mood"] = "fine".into());
    assert!(read(tmp.path()).is_ok(), "an added field is no obstacle");
}
