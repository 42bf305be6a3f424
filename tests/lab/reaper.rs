//! The fallback reaper on real brokers, and the model's word for the same scenario.

use crate::common::{binary, require_root};
use crate::docker::has_engine;
use crate::place::Place;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A row of a CSV file by its columns.
type Row = BTreeMap<String, String>;

fn csv(path: &Path) -> Vec<Row> {
    csv::Reader::from_path(path).unwrap().deserialize().map(|row| row.unwrap()).collect()
}

/// A number of a row; `None` for an empty cell.
fn number(row: &Row, column: &str) -> Option<f64> {
    let cell = &row[column];
    (!cell.is_empty()).then(|| cell.parse().unwrap())
}

fn run(scenario: &str, out: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["run", scenario, "--out"]).arg(out).args(args);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Stuck durations and who ended them, by arm and fault.
fn stuck(rows: &[Row]) -> BTreeMap<(String, String), Vec<(f64, String)>> {
    let mut cells: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows {
        let cell = cells.entry((row["arm"].clone(), row["fault"].clone())).or_default();
        cell.push((number(row, "stuck_s").unwrap_or(f64::INFINITY), row["resolved_by"].clone()));
    }
    cells
}

#[test]
fn the_reaper_ends_what_nobody_else_does_and_the_model_says_the_same() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let (real, model) = (dir.path().join("real"), dir.path().join("model"));
    // A third of the file's trials: the gates have to hold on a machine that does other things too.
    let trials = ["--trials", "20"];
    let (code, text) = run("scenarios/reaper-fallback.toml", &real, &trials);
    assert_eq!(code, Some(0), "{text}");
    let simulated = [trials.as_slice(), &["--engine", "model"]].concat();
    assert_eq!(run("scenarios/reaper-fallback.toml", &model, &simulated).0, Some(0));

    let (measured, simulated) = (stuck(&csv(&real.join("trials.csv"))), stuck(&csv(&model.join("trials.csv"))));
    assert_eq!(measured.keys().collect::<Vec<_>>(), simulated.keys().collect::<Vec<_>>());
    assert_eq!(measured.len(), 12);
    for (cell, real) in &measured {
        let model = &simulated[cell];
        assert_eq!((real.len(), model.len()), (20, 20), "{cell:?}");
        let by = &model[0].1;
        assert!(model.iter().all(|(_, other)| other == by), "{cell:?}: {model:?}");
        // Who ends the stall is the same, but for a cut that falls between a delivery and the next request, which no
        // model of whole seconds knows.
        let same: Vec<f64> = real.iter().filter(|(_, other)| other == by).map(|(s, _)| *s).collect();
        assert!(same.len() >= 18, "{cell:?}: {real:?}, the model says {by}");
        // And when: in the reaper's window, or in the model's range give or take what a busy machine adds.
        let range =
            |of: &mut dyn Iterator<Item = f64>| of.fold((f64::INFINITY, 0.0_f64), |(lo, hi), s| (lo.min(s), hi.max(s)));
        let ((lo, hi), (model_lo, model_hi)) =
            (range(&mut same.iter().copied()), range(&mut model.iter().map(|(s, _)| *s)));
        let reaped = by == "queued_timeout";
        let (window_lo, window_hi) = if reaped { (10.0, 12.0) } else { (model_lo - 1.0, model_hi + 1.0) };
        assert!(lo >= window_lo && hi <= window_hi + 0.5, "{cell:?}: {lo} to {hi}, the model {model_lo} to {model_hi}");
        assert!(!reaped || (model_lo >= 10.0 && model_hi <= 12.0), "{cell:?}: {model_lo} to {model_hi}");
    }
    the_ledger_is_the_stores(&csv(&real.join("messages.csv")));
}

/// What the rows of a task can't say together.
fn the_ledger_is_the_stores(messages: &[Row]) {
    let mut reaped = 0;
    for message in messages {
        let at = |column: &str| number(message, column);
        if let Some(failed) = at("reaped_s") {
            reaped += 1;
            let age = failed - at("published_s").unwrap();
            assert!((10.0..12.5).contains(&age), "{message:?}");
            // Failed while queued: nobody had begun it, and nobody works on it afterwards.
            assert_eq!((at("started_s"), at("finished_s"), at("effects")), (None, None, Some(0.0)), "{message:?}");
            assert_eq!(at("resolved_s"), Some(failed), "{message:?}");
            assert_eq!(message["reaped_by"], "queued_timeout");
        } else if let Some(done) = at("finished_s") {
            assert!(at("started_s").unwrap() <= done, "{message:?}");
            assert_eq!((at("effects"), at("resolved_s")), (Some(1.0), Some(done)), "one task, one effect: {message:?}");
        }
    }
    assert!(reaped >= 100, "{reaped} tasks were reaped");
}

/// The ledger's columns of a run, summed over its trials.
fn sum(rows: &[Row], column: &str) -> f64 {
    rows.iter().filter_map(|row| number(row, column)).sum()
}

#[test]
fn a_key_takes_a_living_worker_for_dead_and_a_row_beside_the_tasks_does_not() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let trials = ["--trials", "4"];
    for (name, killed) in [("reaper-redis-ttl", 4.0), ("reaper-postgres", 0.0)] {
        let out = dir.path().join(name);
        let (code, text) = run(&format!("scenarios/{name}.toml"), &out, &trials);
        assert_eq!(code, Some(0), "{name}: {text}");
        let rows = csv(&out.join("trials.csv"));
        assert_eq!(
            (rows.len(), sum(&rows, "falsely_killed_n"), sum(&rows, "zombies_n")),
            (4, killed, killed),
            "{name}: {text}"
        );
        for message in csv(&out.join("messages.csv")).iter().filter(|m| !m["reaped_s"].is_empty()) {
            assert_eq!(
                (message["reaped_by"].as_str(), message["effects"].as_str()),
                ("liveness_ttl", "1"),
                "{message:?}"
            );
        }
    }
}

#[test]
fn two_reapers_on_a_real_database_fail_each_task_once() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = run("scenarios/two-reapers.toml", &dir.path().join("out"), &["--trials", "4"]);
    assert_eq!(code, Some(0), "{text}");
    let messages = csv(&dir.path().join("out/messages.csv"));
    assert!(messages.iter().filter(|m| !m["reaped_s"].is_empty()).count() >= 4, "{text}");
    assert!(messages.iter().all(|m| m["anomalies"].is_empty()), "{text}");
}

/// Redis alone, up in a tenth of a second.
const TWICE: &str = "# Is it queued again?
[scenario]
name = \"again\"
horizon = \"9s\"
trials = 4
seed = 3
settle = \"200ms\"
[load]
rate = \"2/s\"
[reaper]
rule = \"queued-timeout\"
timeout = \"1500ms\"
interval = \"500ms\"
generation = \"airflow-2.10.4\"
[fault]
profile = \"blackhole\"
scope = \"flow\"
[[arm]]
name = \"never-back\"
subject = \"redis-blocking\"
expect = \"censored\"
[[arm]]
name = \"back\"
subject = \"redis-blocking\"
read_timeout = \"2s\"
";

#[test]
fn the_later_generation_hands_a_task_to_the_broker_again() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("again.toml"), dir.path().join("out"));
    std::fs::write(&file, TWICE).unwrap();
    let (code, text) = run(file.to_str().unwrap(), &out, &[]);
    assert_eq!(code, Some(0), "{text}");
    let messages = csv(&out.join("messages.csv"));
    for row in csv(&out.join("trials.csv")) {
        let oldest =
            messages.iter().find(|m| m["trial"] == row["trial"] && m["published_s"] == row["queued_s"]).unwrap();
        let stuck = number(&row, "stuck_s").unwrap();
        if row["arm"] == "never-back" {
            // Three times timeout and up to an interval.
            assert_eq!(
                (row["resolved_by"].as_str(), oldest["requeued_n"].as_str()),
                ("queued_timeout", "2"),
                "{row:?}"
            );
            assert!((4.5..6.5).contains(&stuck), "{row:?}");
        } else {
            // Popped for the dead connection and lost; the copy that the first sweep queued is taken by the client, which
            // is back by then.
            assert_eq!((row["resolved_by"].as_str(), oldest["requeued_n"].as_str()), ("recovery", "1"), "{row:?}");
            assert!((1.5..3.0).contains(&stuck), "{row:?}");
            assert_eq!(oldest["effects"], "1", "{oldest:?}");
        }
    }
}

/// A database in a container, whose socket file the containers of the workers and the reaper on the machine share.
#[test]
fn a_docker_network_keeps_its_tasks_in_postgres_too() {
    if !has_engine() {
        return;
    }
    let place = Place::of_root();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/reaper-postgres.toml");
    let mut command = place.halfopen();
    command.arg("run").arg(file).args(["--trials", "3", "--lab", "docker", "--out"]).arg(place.path("docker"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("docker").join("run.json")).unwrap()).unwrap();
    let version = run["brokers"]["postgres"].as_str().unwrap();
    assert!(version.starts_with("15.") && version.ends_with(" (halfopen/postgres:bookworm)"), "{version}");
}
