//! The same harness as an ordinary user: the same results as root's, nothing survives a SIGKILL, all files are the user's.

use crate::common::require_root;
use crate::kill::{LIGHT, Reached, Run, STEPS, reach};
use crate::place::{NOBODY, Place};
use std::collections::BTreeMap;

/// Each arm has its watcher by name.
const TCP: &str = r#"# The same without root?
[scenario]
name = "tcp"
horizon = "5s"
trials = 10
seed = 1
settle = "500ms"

[load]
rate = "1/s"

[[arm]]
name = "keepalive"
subject = "tcp-reader"
keepalive = { idle = "1s", interval = "1s", probes = 1 }

[[arm]]
name = "read_timeout"
subject = "tcp-reader"
read_timeout = "2s"

[[arm]]
name = "user_timeout"
subject = "tcp-writer"
tcp_user_timeout = "2s"

[[arm]]
name = "none"
subject = "tcp-reader"
expect = "censored"

[fault]
profile = "blackhole"
phase_window = "1s"
"#;

const BROKERS: &str = r#"# The same with brokers?
[scenario]
name = "brokers"
horizon = "5s"
trials = 5
seed = 1
settle = "500ms"

[[arm]]
name = "amqp_heartbeat"
subject = "lapin"
heartbeat = "1s"

[[arm]]
name = "read_timeout"
subject = "redis-blocking"
read_timeout = "1s"

[fault]
profile = "blackhole"
phase_window = "1s"
"#;

/// Runs it to its end; every trial must be certified, seen as its arm is called, and inside its window.
fn complete(scenario: &str, trials: usize) -> Run {
    require_root();
    let mut run = Run::start_in(Place::of_nobody(), scenario, &[]);
    let code = run.ended();
    let csv = run.read("out/trials.csv");
    assert_eq!(code, Some(0), "{}\n{csv}", run.read("stderr"));
    let mut n = 0;
    for row in csv::Reader::from_reader(csv.as_bytes()).deserialize::<BTreeMap<String, String>>() {
        let cell = row.unwrap();
        let arm = cell["arm"].as_str();
        let expected = if arm == "none" { "censored" } else { "detected" };
        let found = (cell["outcome"].as_str(), cell["watcher"].as_str(), cell["agrees"].as_str());
        assert_eq!(found, (expected, arm, "true"), "{cell:?}");
        n += 1;
    }
    assert_eq!(n, trials);
    let info: serde_json::Value = serde_json::from_str(&run.read("out/run.json")).unwrap();
    let sources = info["sources"].to_string();
    for word in [format!("a user namespace of user {NOBODY}"), "sock_diag".into(), "no tracepoints".into()] {
        assert!(sources.contains(&word), "`{word}` is not in {sources}");
    }
    assert_eq!(run.place().strangers(), Vec::<std::path::PathBuf>::new());
    assert_eq!(std::fs::read_dir(run.place().path("state")).unwrap().count(), 0, "the journal is struck");
    run
}

#[test]
fn an_ordinary_user_s_bare_tcp_is_certified_and_inside_its_windows() {
    complete(TCP, 40);
}

#[test]
fn an_ordinary_user_s_brokers_are_certified_and_inside_their_windows() {
    let run = complete(BROKERS, 10);
    let info: serde_json::Value = serde_json::from_str(&run.read("out/run.json")).unwrap();
    assert!(info["brokers"]["rabbitmq"].is_string() && info["brokers"]["redis"].is_string(), "{}", info["brokers"]);
}

#[test]
fn killed_as_an_ordinary_user_nothing_survives() {
    require_root();
    let chosen = ["started", "engine", "redis", "opening", "cut", "noticed"];
    let steps: Vec<&(&str, Reached)> = STEPS.iter().filter(|(step, _)| chosen.contains(step)).collect();
    std::thread::scope(|scope| {
        for steps in steps.chunks(2) {
            scope.spawn(move || {
                for (step, reached) in steps {
                    let run = Run::start_in(Place::of_nobody(), LIGHT, &[]);
                    reach(&run, step, *reached);
                    run.kill_and_check(step);
                }
            });
        }
    });
}

#[test]
fn doctor_tells_an_ordinary_user_which_way_it_goes() {
    require_root();
    let output = Place::of_nobody().halfopen().args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let doctor: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&doctor["able"], &doctor["labs"][0]["way"]), (&true.into(), &"user_namespace".into()), "{doctor}");
    let lines = doctor["lines"].as_array().unwrap();
    let ok = |name: &str| lines.iter().find(|line| line["name"] == name).map(|line| line["ok"] == true);
    assert_eq!((ok("nftables"), ok("veth"), ok("sock_diag")), (Some(true), Some(true), Some(true)), "{doctor}");
    assert_eq!(ok("tracepoints"), Some(false), "an ordinary user has none: {doctor}");
}
