//! `halfopen run --engine model` through the built binary: no root, no lab, the same bytes for the same seed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[expect(clippy::disallowed_methods, reason = "the binary under test")]
fn halfopen(args: &[&str], out: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.current_dir(root()).args(args);
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    command.output().unwrap()
}

fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn json(dir: &Path, name: &str) -> serde_json::Value {
    serde_json::from_str(&text(dir, name)).unwrap()
}

#[test]
fn the_gates_of_the_repositorys_scenarios_hold() {
    let tmp = tempfile::tempdir().unwrap();
    for name in [
        "first-look",
        "kernel-timers",
        "one-way",
        "control",
        "airflow-1283-model",
        "reaper-fallback",
        "reaper-fallback-1200",
    ] {
        let out = tmp.path().join(name);
        let run = halfopen(&["run", &format!("scenarios/{name}.toml"), "--engine", "model"], Some(&out));
        assert_eq!(run.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&run.stdout));
        let info = json(&out, "run.json");
        assert_eq!(
            (&info["engine"], &info["lab"], &info["complete"]),
            (&"model".into(), &"model".into(), &true.into())
        );
        assert_eq!((&info["machine"]["kernel"], &info["machine"]["hz"]), (&"6.18".into(), &250.into()));
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let tmp = tempfile::tempdir().unwrap();
    let run = |name: &str, seed: &str| {
        let out = tmp.path().join(name);
        let args = ["run", "scenarios/kernel-timers.toml", "--engine", "model", "--seed", seed];
        assert!(halfopen(&args, Some(&out)).status.code().is_some_and(|code| code < 2));
        (text(&out, "events.jsonl"), text(&out, "trials.csv"))
    };
    let (first, again, other) = (run("a", "7"), run("b", "7"), run("c", "8"));
    assert!(first == again, "the same seed gave other bytes");
    assert!(first.0 != other.0 && first.1 != other.1);
}

#[test]
fn the_stall_stands_beside_the_published_one() {
    let tmp = tempfile::tempdir().unwrap();
    let args = ["run", "scenarios/airflow-1283-model.toml", "--engine", "model"];
    assert_eq!(halfopen(&args, Some(tmp.path())).status.code(), Some(0));
    let summary = json(tmp.path(), "summary.json");
    let tasks = &summary["tasks"];
    let (count, affected, healthy) = (tasks["count"].as_u64(), tasks["affected"].as_u64(), tasks["healthy"].as_u64());
    assert_eq!((count, affected.zip(healthy).map(|(a, h)| a + h)), (Some(200_000), Some(200_000)));
    assert_eq!(summary["published"]["mean_s"], 1283.9);
    let here = summary["published"]["here"].as_array().unwrap();
    let host = here.iter().find(|c| c["arm"] == "current" && c["scope"] == "host").unwrap();
    assert_eq!((host["n"].as_u64(), &host["share"]), (affected, &1.0.into()));
    assert_eq!(host["resolved_by"][0]["name"], "queued_timeout");
    let report = text(tmp.path(), "report.md");
    for words in ["counted, not simulated", "published: mean 1283.9 s, median 1288.4 s", "below the published one"] {
        assert!(report.contains(words), "{words} in {report}");
    }
    assert!(tmp.path().join("stuck.hlog").exists());
}

#[test]
fn the_kernel_engine_refuses_what_only_the_model_has() {
    let tmp = tempfile::tempdir().unwrap();
    let out = tmp.path().join("run");
    let run = halfopen(&["run", "scenarios/airflow-1283-model.toml"], Some(&out));
    let says = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(3));
    assert_eq!(
        says,
        "halfopen: scenarios/airflow-1283-model.toml: [tasks] runs with --engine model: nobody waits for its months; \
         with real sockets, write [load] with a rate\n"
    );
    assert!(!out.exists(), "nothing is left behind");
}

#[test]
fn a_dry_run_creates_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let out = tmp.path().join("run");
    let run = halfopen(&["run", "scenarios/first-look.toml", "--engine", "model", "--dry-run"], Some(&out));
    assert_eq!(run.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&run.stdout).contains("125 trials are simulated"));
    assert!(!out.exists());
}
