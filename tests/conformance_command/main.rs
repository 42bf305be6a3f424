//! `halfopen conformance`: what it shows of recorded runs, and one small comparison of real ones.

#![expect(clippy::disallowed_methods, reason = "a test starts the program under test")]

use std::path::Path;
use std::process::{Command, Output};

fn conformance(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.arg("conformance").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A guest with Linux 6.1 and a machine with 6.18, recorded once from `small.toml` and `syn.toml`.
const RECORDED: &str = "tests/conformance_command/recorded";

#[test]
fn recorded_runs_are_compared_again_offline() {
    let output = conformance(&["--from", RECORDED]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!("table", text(&output.stdout));
    let output = conformance(&["--from", RECORDED, "--json"]);
    insta::assert_snapshot!("json", text(&output.stdout));
    // Without the model, the labs are compared with each other alone.
    let output = conformance(&["--from", RECORDED, "--json", "--labs", "vm,netns"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["pairs"].as_array().unwrap().len(), 1);
}

/// The same runs with one lab's detections moved by a second: no pair with that lab agrees any more.
#[test]
fn a_lab_that_is_late_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    for lab in ["vm", "netns"] {
        let (from, to) = (Path::new(RECORDED).join(lab).join("small"), dir.path().join(lab).join("small"));
        std::fs::create_dir_all(&to).unwrap();
        for file in ["run.json", "events.jsonl"] {
            let bytes = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&from).join(file)).unwrap();
            let late = |line: &str| {
                let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
                if lab == "vm" && event.to_string().contains("\"notice\"") {
                    event["offset"] = (event["offset"].as_i64().unwrap() + 1_000_000_000).into();
                }
                event.to_string() + "\n"
            };
            let bytes = if file == "run.json" { bytes } else { bytes.lines().map(late).collect() };
            std::fs::write(to.join(file), bytes).unwrap();
        }
    }
    let output = conformance(&["--from", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let holds: Vec<bool> = value["pairs"].as_array().unwrap().iter().map(|p| p["holds"].as_bool().unwrap()).collect();
    assert_eq!(holds, [false, true, false], "model × vm, model × netns, vm × netns: {value:#}");
    assert!(!value["pairs"][0]["misses"].as_array().unwrap().is_empty());
}

#[test]
fn wrong_usage_is_refused() {
    let said = |args: &[&str], code: i32| {
        let output = conformance(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(said(&["--full-size", "--labs", "model,netns"], 2).contains("two and a half hours"));
    assert!(said(&["--labs", "model"], 2).contains("no lab to run in"));
    assert!(said(&["--labs", "podman"], 2).contains("vm, netns"));
    assert!(said(&["--from", "nowhere"], 2).contains("no run of `halfopen conformance`"));
    assert!(said(&["nowhere.toml"], 2).contains("can't read the scenario"));
    // A lab that was asked for and can't run here: a cache without a kernel.
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.args(["conformance", "--labs", "vm", "--out", out.to_str().unwrap()]).env("XDG_CACHE_HOME", dir.path());
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("HALFOPEN_VM_KERNEL").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("vm build"), "{}", text(&output.stderr));
}

/// Needs the virtual-time kernel and namespaces, and fails without.
#[test]
fn a_few_settings_agree_in_all_labs() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = conformance(&[
        "tests/conformance_command/small.toml",
        "--labs",
        "model,vm,netns",
        "--json",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stderr), text(&output.stdout));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pairs = value["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    assert!(pairs.iter().all(|p| p["n"].as_u64().unwrap() >= 6), "{value:#}");
    for run in ["vm/small/trials.csv", "netns/small/trials.csv", "conformance.json"] {
        assert!(out.join(run).exists(), "{run}");
    }
}
