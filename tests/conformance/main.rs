//! Model against kernel: one lab run of the ordinary engine, its windows fixed before it starts, its misses named, and
//! deliberately wrong models refused on the same recorded run.
//!
//! Needs namespaces (root, or unprivileged user namespaces) and fails without them.

mod compare;
mod settings;

use compare::{Comparison, compare};
use halfopen::plan::{self, Forecast, Machine, Variant, Window};
use halfopen::store::{self, Recorded};
use halfopen::timers::Perturbation;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What the run must reach: the reference simulator, over all phases, agreed with 690 of 695 detections.
const AGREEMENT: f64 = 0.97;
/// Trials for each arm and fault: 64 × 3 × 4.
const TRIALS: u32 = 4;

/// The header of `scenarios/conformance.toml`.
const HEADER: &str = "\
# Does the kernel end connections when the timer model says, idle, sending and with a closed window, whichever way is cut?
#
# The settings of tests/conformance with more trials, for nightly runs. About a third of them is drawn at random from the
# seed. The file is written by the test `the_nightly_scenario_has_the_same_settings`, which says how; kernels before 6.15
# lack two of its sysctls (exit code 3).
";

fn seed() -> u64 {
    match std::env::var("HALFOPEN_CONFORMANCE_SEED") {
        Ok(text) => text.parse().expect("HALFOPEN_CONFORMANCE_SEED is a number"),
        Err(_) => settings::SEED,
    }
}

/// The sysctls that Linux 6.15 brought.
fn newer() -> bool {
    Path::new("/proc/sys/net/ipv4/tcp_rto_max_ms").exists()
}

#[expect(clippy::disallowed_methods, reason = "the test runs the program as a user does")]
fn run(dir: &Path, seed: u64) -> (Recorded, i32, String) {
    let file = dir.join("conformance.toml");
    std::fs::write(&file, settings::scenario("# Does the kernel do what the model says?\n", seed, TRIALS, newer()))
        .unwrap();
    let out = dir.join("run");
    let output = Command::new(env!("CARGO_BIN_EXE_halfopen"))
        .args(["run".as_ref(), file.as_os_str(), "--out".as_ref(), out.as_os_str(), "--json".as_ref()])
        .env("HOME", dir)
        .output()
        .expect("halfopen starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or(-1);
    let recorded = store::read(&out).unwrap_or_else(|e| panic!("no run (exit {code}): {e}\n{errors}"));
    (recorded, code, errors)
}

#[test]
fn the_nightly_scenario_has_the_same_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/conformance.toml");
    let wanted = settings::scenario(HEADER, settings::SEED, 16, true);
    if std::env::var_os("HALFOPEN_WRITE_SCENARIO").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "run HALFOPEN_WRITE_SCENARIO=1 cargo test --test conformance nightly, and look at the difference"
    );
}

#[test]
fn the_kernel_does_what_the_model_says() {
    let seed = seed();
    println!("settings drawn with HALFOPEN_CONFORMANCE_SEED={seed}");
    // Kept where a nightly run wants to look at it afterwards.
    let kept = std::env::var_os("HALFOPEN_CONFORMANCE_DIR").map(std::path::PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let dir = kept.as_deref().unwrap_or(temporary.path());
    let (recorded, code, errors) = run(dir, seed);
    let plan = &recorded.run.plan;
    assert!(plan.scenario.arms.len() >= 60, "{} settings", plan.scenario.arms.len());
    assert!(plan.scenario.arms.iter().filter(|arm| arm.name.contains("drawn")).count() >= 20, "too few are drawn");
    assert!(plan.trials.iter().all(|trial| trial.predicted.is_some()), "every trial has its window: {:?}", plan.doubts);

    let right = compare(&recorded, plan);
    print!("{right}");
    assert!(right.n() >= 600, "{} trials could be compared\n{errors}", right.n());
    for miss in right.misses() {
        assert!(miss.beyond_s <= miss.step_s, "further than a wheel step away: {miss}");
    }
    assert!(right.share() >= AGREEMENT, "{:.2} % agree", right.share() * 100.0);
    assert_eq!(code, 0, "the gate `agreement` holds\n{errors}");
    let watchers = right.watcher_share();
    assert!(watchers >= AGREEMENT, "{:.2} % of the watchers agree", watchers * 100.0);
    wrong_models_are_refused(&recorded);
}

/// The same run is held to what the model says of another machine, and its gate fails.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs the program as a user does")]
fn a_wrong_belief_about_a_sysctl_fails_the_gate() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("writer.toml");
    let text = "# Is it the sysctl that it is believed to be?\n\
        [scenario]\nname = \"writer\"\nhorizon = \"9s\"\ntrials = 3\n[load]\nrate = \"2/s\"\n\
        [fault]\nprofile = \"blackhole\"\n[[arm]]\nname = \"a\"\nsubject = \"tcp-writer\"\nsysctl.tcp_retries2 = 3\n\
        [[gate]]\narm = \"a\"\nmetric = \"agreement\"\nmin = \"97%\"\n";
    std::fs::write(&file, text).unwrap();
    let run = |name: &str, assumed: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
        command.arg("run").arg(&file).arg("--out").arg(dir.path().join(name)).args(assumed).env("HOME", dir.path());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().expect("halfopen starts")
    };
    let (right, wrong) = (run("right", &[]), run("wrong", &["--assume", "sysctl.tcp_retries2=8"]));
    for (child, code, says) in [(right, 0, "held: "), (wrong, 1, "failed: ")] {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(says), "{text}");
    }
    let believed = std::fs::read_to_string(dir.path().join("wrong/summary.json")).unwrap();
    assert!(believed.contains("the model was told to believe tcp_retries2 = 8"), "{believed}");
}

/// Whether two windows differ by more than what a number loses on its way through a file.
fn moved(a: Window, b: Window) -> bool {
    let differs = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() > 1e-6,
        (a, b) => a.is_some() != b.is_some(),
    };
    differs(a.lo_s, b.lo_s) || differs(a.hi_s, b.hi_s)
}

/// A check that can't fail proves nothing.
fn wrong_models_are_refused(recorded: &Recorded) {
    let machine =
        Machine { hz: recorded.run.machine.hz, kernel: recorded.run.machine.kernel.parse().ok(), ..Machine::default() };
    for &wrong in Perturbation::ALL {
        let mut plan = recorded.run.plan.clone();
        let mut touched = Vec::new();
        // Only a closed window's age differs between the trials of a cell.
        let mut known: BTreeMap<(usize, usize, Duration), Forecast> = BTreeMap::new();
        for trial in &mut plan.trials {
            let reads = recorded.run.plan.scenario.arms[trial.arm].settings.peer_reads;
            let key = (trial.arm, trial.fault, if reads { Duration::ZERO } else { trial.phase });
            let forecast = known.entry(key).or_insert_with(|| {
                let variants = plan::variants(&recorded.run.plan.scenario, trial, &machine).expect("was predicted");
                let wrong = |v: Variant| Variant { case: wrong.apply(&v.case), ..v };
                plan::forecast(&variants.into_iter().map(wrong).collect::<Vec<_>>())
            });
            // What the perturbation does not move can't refuse it.
            if trial.predicted.is_some_and(|right| moved(right, forecast.window)) {
                touched.push(trial.id);
            }
            (trial.predicted, trial.predicted_watchers) = (Some(forecast.window), forecast.watchers.clone());
        }
        let comparison: Comparison = compare(recorded, &plan).only(&touched);
        println!("{wrong:?}: {:.1} % of {} affected trials agree", comparison.share() * 100.0, comparison.n());
        assert!(comparison.n() >= 50, "{wrong:?} touches {} trials only", comparison.n());
        assert!(comparison.share() < AGREEMENT, "{wrong:?} would pass: {:.1} % agree", comparison.share() * 100.0);
    }
}
