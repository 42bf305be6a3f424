//! A consumer that blocks in `recv` on a real RabbitMQ, cut side by side with its twins, twice with the same seed.

use crate::common::{binary, require_root};
use halfopen::store::{self, Recorded};
use halfopen::verdict::{Outcome, TrialRow, judge};
use std::path::Path;
use std::process::{Command, Stdio};

const SCENARIO: &str = r#"# Which of its timers wakes a consumer that blocks in recv?
[scenario]
name = "blocking"
horizon = "15s"
trials = 2
seed = 11
settle = "3s"
[load]
rate = "1/s"
[defaults]
subject = "amqp-blocking"
heartbeat = "4s"
[[fault]]
profile = "blackhole"
scope = "host"
phase_window = "3s"
[[fault]]
profile = "to-broker"
phase_window = "3s"
[[arm]]
name = "same"
expect = "censored"
[[arm]]
name = "own"
heartbeat_thread = "own"
[[arm]]
name = "read"
read_timeout = "3s"
[[arm]]
name = "call"
sync_call = "basic.qos"
read_timeout = "3s"
[[gate]]
metric = "agreement"
min = "97%"
"#;

/// Arm, fault, phase, outcome and watcher of each trial.
fn decided(recorded: &Recorded) -> Vec<(String, String, String, Outcome, String)> {
    let of = |row: &TrialRow| {
        (row.arm.clone(), row.fault.clone(), row.phase_s.to_string(), row.outcome, row.watcher.clone())
    };
    judge(&recorded.run.plan, &recorded.events).trials.iter().map(of).collect()
}

#[test]
fn two_runs_with_one_seed_give_the_same_phases_and_outcomes() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("blocking.toml");
    std::fs::write(&file, SCENARIO).unwrap();
    let start = |name: &str| {
        let mut command = Command::new(binary());
        command.arg("run").arg(&file).arg("--out").arg(dir.path().join(name)).env("HOME", dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let runs = ["first", "second"].map(|name| (name, start(name)));
    let [first, second] = runs.map(|(name, child)| {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{text}");
        store::read(Path::new(&dir.path().join(name))).unwrap()
    });
    // Where two watchers may be the first, which of them it is is not the seed's to decide.
    let seeded = |recorded: &Recorded| {
        let of =
            |(arm, fault, phase, outcome, _): (String, String, String, Outcome, String)| (arm, fault, phase, outcome);
        decided(recorded).into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(seeded(&first), seeded(&second));
    for (arm, fault, phase, outcome, watcher) in decided(&first) {
        let named = match (arm.as_str(), fault.as_str()) {
            // Its check is on the thread that waits: defeated. Only the broker's reset can tell it.
            ("same", "blackhole") => vec!["none"],
            ("same", _) => vec!["reset"],
            ("own", "blackhole") => vec!["amqp_heartbeat"],
            ("own", _) => vec!["amqp_heartbeat", "reset"],
            _ => vec!["read_timeout"],
        };
        assert!(named.contains(&watcher.as_str()), "{arm} under {fault}, cut at {phase} s: {watcher}");
        let wanted = if watcher == "none" { Outcome::Censored } else { Outcome::Detected };
        assert_eq!(outcome, wanted, "{arm} under {fault}");
    }
    for row in judge(&first.run.plan, &first.events).trials.iter().filter(|row| row.arm == "call") {
        assert!(row.agrees == Some(true) && row.watcher_agrees == Some(true), "{row:?}");
    }
}

#[test]
fn the_prediction_says_that_the_heartbeat_of_a_waiting_thread_is_defeated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("blocking.toml");
    std::fs::write(&file, SCENARIO).unwrap();
    let output = Command::new(binary()).args(["predict", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let state = |arm: &str| {
        let of_arm =
            answer["predictions"].as_array().unwrap().iter().find(|p| p["arm"] == arm && p["fault"] == "blackhole");
        let lines = of_arm.unwrap()["watchers"].as_array().unwrap().clone();
        let line = lines.iter().find(|line| line["watcher"] == "amqp_heartbeat").unwrap().clone();
        (line["state"].as_str().unwrap().to_string(), line["why"].as_str().unwrap().to_string())
    };
    for (arm, words) in [("same", "waits in a read"), ("read", "waits in a read"), ("call", "the thread that waits")] {
        let (state, why) = state(arm);
        assert!(state == "defeated" && why.contains(words), "{arm}: {state}, {why}");
    }
    assert_eq!(state("own").0, "fires");
}
