//! Snapshots of two plans, and what a plan says that it will do.

use halfopen::plan::{Machine, Overrides, Plan, PlanError, build, describe, predict};
use halfopen::scenario::{Scenario, read};
use halfopen::units::print_duration;
use std::fmt::Write as _;

fn scenario(name: &str) -> Scenario {
    let path = format!("{}/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    read(&path, &std::fs::read_to_string(&path).expect("is there")).expect("is read")
}

fn table(plan: &Plan) -> String {
    let mut text = String::new();
    for trial in &plan.trials {
        let arm = &plan.scenario.arms[trial.arm].name;
        let fault = &plan.scenario.faults[trial.fault].profile;
        let phase = print_duration(trial.phase);
        let _ = writeln!(text, "{:>3} {arm} {fault} +{phase} {} -> {}", trial.id, trial.client, trial.server);
    }
    let _ = write!(text, "settle {}, estimate {}", print_duration(plan.scenario.settle), print_duration(plan.estimate));
    text
}

#[test]
fn first_look_with_two_trials() {
    let plan =
        build(scenario("first-look"), &Overrides { trials: Some(2), ..Overrides::default() }).expect("is planned");
    insta::assert_snapshot!("first-look", format!("{}\n\n{}", table(&plan), describe(&plan)));
}

#[test]
fn one_way_with_two_trials() {
    let overrides = Overrides { trials: Some(2), seed: Some(7), partition: None };
    let plan = build(scenario("one-way"), &overrides).expect("is planned");
    insta::assert_snapshot!("one-way", format!("{}\n\n{}", table(&plan), describe(&plan)));
}

#[test]
fn what_cannot_be_planned_is_said() {
    let says = |overrides: Overrides| build(scenario("first-look"), &overrides).expect_err("is wrong").to_string();
    let trials = |trials| says(Overrides { trials: Some(trials), ..Overrides::default() });
    let partition = |trials, i, n| says(Overrides { trials: Some(trials), partition: Some((i, n)), seed: None });
    assert_eq!(trials(0), "--trials 0 leaves nothing to run; write at least 1");
    assert_eq!(trials(30_001), "30001 trials for arm `lapin-10` over all faults are too many; the most is 30000");
    assert_eq!(partition(1, 3, 2), "--partition 3/2 is no part; write I/N with I from 1 to N");
    assert_eq!(partition(1, 0, 0), "--partition 0/0 is no part; write I/N with I from 1 to N");
    assert_eq!(
        partition(1, 7, 7),
        "--partition 7/7 has no trials, the whole plan has 5; use fewer parts or more trials"
    );
    let mut one_arm = scenario("first-look");
    one_arm.arms.truncate(1);
    let most = build(one_arm, &Overrides { trials: Some(30_000), ..Overrides::default() });
    assert_eq!(most.map(|plan| plan.trials.len()), Ok::<_, PlanError>(30_000));
    // A part of it may be small enough for one certificate.
    let mut encrypted = scenario("first-look");
    encrypted.arms.truncate(1);
    encrypted.arms[0].settings.tls = true;
    let many =
        |partition| build(encrypted.clone(), &Overrides { trials: Some(8_001), partition, ..Overrides::default() });
    assert_eq!(
        many(None).expect_err("is wrong").to_string(),
        "8001 trials with `tls = true` are too many: one certificate names the address of each, and a handshake has room \
         for 8000; lower --trials, or give --partition"
    );
    assert_eq!(many(Some((1, 2))).map(|plan| plan.trials.len()), Ok::<_, PlanError>(4_001));
}

/// Each wave is a plan of its own with its share of every arm and fault, and together they are the whole plan.
#[test]
fn waves_share_the_plan_among_them() {
    let plan = build(scenario("clients-matrix"), &Overrides::default()).expect("is planned");
    let waves = plan.waves();
    assert_eq!(waves.iter().map(|wave| wave.trials.len()).collect::<Vec<_>>(), [100, 100, 100]);
    let joined: Vec<_> = waves.iter().flat_map(|wave| wave.trials.clone()).collect();
    assert_eq!(joined, plan.trials);
    assert_eq!(waves[0].estimate * 3, plan.estimate);
    for wave in &waves {
        let cells: std::collections::BTreeSet<(usize, usize)> = wave.trials.iter().map(|t| (t.arm, t.fault)).collect();
        assert_eq!(cells.len(), 60, "every arm under every fault");
    }
    let one =
        build(scenario("clients-matrix"), &Overrides { trials: Some(1), ..Overrides::default() }).expect("is planned");
    assert_eq!((one.waves().len(), &one.waves()[0]), (1, &one));
    // A part is what somebody wants at once, and takes as long.
    let part = build(scenario("clients-matrix"), &Overrides { partition: Some((1, 2)), ..Overrides::default() });
    assert!(part.expect("is planned").estimate < plan.estimate / 2);
}

/// The windows of every committed scenario, on the machine that the model was measured on.
#[test]
fn predicted_windows() {
    let dir = format!("{}/scenarios", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("is there")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".toml").map(str::to_string))
        .collect();
    names.sort();
    let machine = Machine { hz: Some(250), kernel: "6.18".parse().ok(), ..Machine::default() };
    let mut text = String::new();
    for name in names {
        let scenario = scenario(&name);
        // Where tasks are drawn they decide the number of trials.
        let trials = scenario.tasks.is_none().then_some(1);
        let mut plan = build(scenario, &Overrides { trials, ..Overrides::default() }).expect("is planned");
        predict(&mut plan, &machine);
        let _ = writeln!(text, "{name}");
        for line in describe(&plan).predictions {
            let _ = writeln!(text, "  {line}");
        }
    }
    insta::assert_snapshot!("predicted", text);
}
