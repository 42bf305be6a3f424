//! `halfopen attribute` as its users meet it.

#![expect(clippy::disallowed_methods, reason = "a test starts the program under test")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Code, standard output, standard error.
fn attribute(args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.arg("attribute").args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Who refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn stuck() -> String {
    let mut text = String::from("task,stuck_s\n");
    for i in 0..90 {
        text.push_str(&format!("{i},{}\n", 1200.0 + 168.0 * (f64::from(i) + 0.5) / 90.0));
    }
    text + "90,333\n91,1777\n92,\n"
}

#[test]
fn a_sample_is_answered_in_words_and_as_json() {
    let (code, said, _) = attribute(&["-"], &stuck());
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "column `stuck_s`, a guess, in seconds (by its name)",
        "1 row without a value left out",
        "Fired: airflow-queued-1200.",
        "24 s above the 1260 s",
        "NOT as set: 120 s",
        "Unexplained: 2 of 92",
        "a row stayed queued until the scheduler gave up on it",
    ] {
        assert!(said.contains(words), "`{words}` is not in:\n{said}");
    }
    let (code, said, _) = attribute(&["-", "--json"], &stuck());
    let value: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, value["verdict"].as_str()), (Some(0), Some("named")));
    assert_eq!(value["named"][0]["timer"]["id"], "airflow-queued-1200");
    assert_eq!(value["named"][0]["share"]["n"], 92);
    assert!(value["silent"].as_array().unwrap().iter().any(|s| s["timer"]["id"] == "retries2-8"));
    assert!(value["read"][0].as_str().unwrap().contains("stuck_s"));
}

#[test]
fn an_own_timer_and_those_of_a_scenario_are_looked_at() {
    let values: String = (0..40).map(|i| format!("{}\n", 8.05 + 0.2 * f64::from(i) / 40.0)).collect();
    let (code, said, _) = attribute(&["-", "--timer", "mine=8s..9s layer=kernel", "--only"], &values);
    assert!(code == Some(0) && said.contains("Fired: mine."), "{said}");
    let (code, said, _) = attribute(&["-", "--scenario", "scenarios/one-way.toml", "--only", "--json"], &values);
    let value: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, Some(0));
    assert!(value.to_string().contains("by the model"), "{value}");
}

#[test]
fn figures_and_restarts_by_hand_name_nobody() {
    let figures = ["--published", "mean=1283.9s,median=1288.4s,share=80%@1100s..1400s"];
    let (code, said, _) = attribute(&figures, "");
    assert!(code == Some(0) && said.contains("23.9 s above") && said.contains("can't name one"), "{said}");
    let (code, said, _) = attribute(&["-"], "225.7\n270\n897\n");
    assert!(code == Some(0) && said.contains("Unexplained: no timer"), "{said}");
    let (code, said, _) = attribute(&["--timers"], "");
    assert!(code == Some(0) && said.contains("retries2-15") && said.contains("ipvsadm(8)"), "{said}");
}

#[test]
fn what_is_wrong_is_one_line_with_the_mend() {
    let cases: [(&[&str], &str, &[&str]); 8] = [
        (&[], "", &["<DURATIONS>"]),
        (&["nowhere.csv"], "", &["can't read nowhere.csv"]),
        (&["-"], "a,b\n1,2\n", &["which column", "--column NAME", "a, b"]),
        (&["-"], "1\n-3\n", &["line 2", "negative"]),
        (&["-", "--timer", "mine"], "1\n", &["`mine` is no timer", "check=120s"]),
        (&["-", "--only"], "1\n", &["--only leaves no timer"]),
        (&["-", "--arm", "x"], "1\n", &["--arm and --metric choose from a run directory"]),
        (&["src"], "", &["src is not a run of halfopen"]),
    ];
    for (args, input, words) in cases {
        let (code, out, said) = attribute(args, input);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in words {
            assert!(said.contains(word), "`{word}` is not in: {said}");
        }
    }
}

#[test]
fn the_durations_of_a_run_directory_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let place = out.to_str().unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    run.args(["run", "scenarios/one-way.toml", "--engine", "model", "--out", place]);
    assert!(run.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap().status.code().is_some());
    let (code, said, error) = attribute(&[place, "--metric", "ttd", "--json"], "");
    let value: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {error}"));
    assert_eq!(code, Some(0));
    assert!(
        value["sample"]["n"].as_u64().unwrap() > 0 && value["read"][0].as_str().unwrap().contains("the time to detect")
    );
    let (code, _, error) = attribute(&[place, "--arm", "nobody"], "");
    assert!(code == Some(2) && error.contains("has no arm `nobody`; it has "), "{error}");
}
