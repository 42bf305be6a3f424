//! Model against kernel: one lab run of the ordinary engine, its windows fixed before it starts, its misses named, and
//! deliberately wrong models refused on the same recorded run.
//!
//! Needs namespaces (root, or unprivileged user namespaces) and fails without them.

mod compare;
mod settings;

use compare::{Comparison, compare};
use halfopen::plan::{self, Machine};
use halfopen::store::{self, Recorded};
use halfopen::timers::Perturbation;
use std::path::Path;
use std::process::Command;

/// What the run must reach: the reference simulator, over all phases, agreed with 690 of 695 detections.
const AGREEMENT: f64 = 0.97;
/// Trials for each arm and fault: 64 × 3 × 4.
const TRIALS: u32 = 4;

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

/// A check that can't fail proves nothing.
fn wrong_models_are_refused(recorded: &Recorded) {
    let machine =
        Machine { hz: recorded.run.machine.hz, kernel: recorded.run.machine.kernel.parse().ok(), ..Machine::default() };
    for &wrong in Perturbation::ALL {
        let mut plan = recorded.run.plan.clone();
        let mut touched = Vec::new();
        for index in 0..plan.trials.len() {
            let trial = &plan.trials[index];
            let right = plan::variants(&plan.scenario, trial, &machine).expect("was predicted");
            let mut changed = right.clone();
            changed.iter_mut().for_each(|variant| variant.case = wrong.apply(&variant.case));
            let forecast = plan::forecast(&changed);
            // What the perturbation does not move can't refuse it.
            if forecast.window != plan::forecast(&right).window {
                touched.push(trial.id);
            }
            let trial = &mut plan.trials[index];
            (trial.predicted, trial.predicted_watchers) = (Some(forecast.window), forecast.watchers);
        }
        let comparison: Comparison = compare(recorded, &plan).only(&touched);
        println!("{wrong:?}: {:.1} % of {} affected trials agree", comparison.share() * 100.0, comparison.n());
        assert!(comparison.n() >= 50, "{wrong:?} touches {} trials only", comparison.n());
        assert!(comparison.share() < AGREEMENT, "{wrong:?} would pass: {:.1} % agree", comparison.share() * 100.0);
    }
}
