//! What holds for every text, seed and partition.

use halfopen::plan::{Overrides, Plan, build};
use halfopen::scenario::{Scenario, from_sets, read, read_bytes};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

fn scenario() -> Scenario {
    let text = include_str!("../../scenarios/one-way.toml");
    read("one-way.toml", text).expect("is read")
}

fn plan(seed: u64, trials: u32, partition: Option<(u32, u32)>) -> Option<Plan> {
    build(scenario(), &Overrides { seed: Some(seed), trials: Some(trials), partition }).ok()
}

/// The phases of an arm and fault, in the order of its trials.
fn phases(plan: &Plan) -> HashMap<(usize, usize), Vec<Duration>> {
    let mut all: HashMap<_, Vec<_>> = HashMap::new();
    for trial in &plan.trials {
        all.entry((trial.arm, trial.fault)).or_default().push(trial.phase);
    }
    all
}

/// A file that is right but for one piece put in somewhere.
fn nearly_right() -> impl Strategy<Value = String> {
    let base = include_str!("../../scenarios/first-look.toml");
    let pieces = prop_oneof![
        Just("\u{0}".to_string()),
        Just("[".to_string()),
        Just("\"".to_string()),
        Just("é = 1\n".to_string()),
        Just("a.b.c = 1\n".to_string()),
        Just("keepalive = 5\n".to_string()),
        Just("\n[[arm]]\n[arm.keepalive]\nidle.x = 5\n".to_string()),
        "\\PC{0,8}",
    ];
    (0..base.len(), 0..20usize, pieces).prop_map(move |(at, cut, piece)| {
        let floor = |mut i: usize| {
            while !base.is_char_boundary(i) {
                i -= 1;
            }
            i
        };
        let (from, to) = (floor(at), floor((at + cut).min(base.len())));
        format!("{}{piece}{}", &base[..from], &base[to..])
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        prop_assert!(read("x", &text).is_err_and(|errors| !errors.0.is_empty()));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_bytes("x", &bytes).is_err_and(|errors| !errors.0.is_empty()));
    }

    #[test]
    fn nearly_right_text_is_read_or_refused_in_file_order(text in nearly_right()) {
        match read("x", &text) {
            Ok(scenario) => prop_assert!(build(scenario, &Overrides::default()).is_ok()),
            Err(errors) => {
                let places: Vec<(usize, usize)> = errors.0.iter().filter_map(|error| match error.place {
                    halfopen::scenario::Place::File { line, column, .. } => Some((line, column)),
                    halfopen::scenario::Place::Set(_) => None,
                }).collect();
                prop_assert!(!places.is_empty() && places.is_sorted());
                prop_assert!(errors.0.iter().all(|error| !error.to_string().contains('\n')));
            }
        }
    }

    #[test]
    fn any_overrides_are_read_or_refused(sets in proptest::collection::vec(("[a-z_.]{0,12}", "\\PC{0,8}"), 0..5)) {
        prop_assert!(from_sets(&sets).is_err_and(|errors| !errors.0.is_empty()));
    }

    #[test]
    fn the_same_seed_gives_the_same_plan(seed in any::<u64>(), trials in 1u32..12) {
        prop_assert_eq!(plan(seed, trials, None), plan(seed, trials, None));
        prop_assert_ne!(phases(&plan(seed, trials, None).unwrap()), phases(&plan(seed ^ 1, trials, None).unwrap()));
    }

    #[test]
    fn parts_are_disjoint_and_together_the_whole(seed in any::<u64>(), trials in 1u32..12, parts in 1u32..6) {
        let whole = plan(seed, trials, None).unwrap();
        let mut joined: Vec<_> =
            (1..=parts).filter_map(|part| plan(seed, trials, Some((part, parts)))).flat_map(|plan| plan.trials).collect();
        joined.sort_by_key(|trial| trial.id);
        prop_assert_eq!(joined, whole.trials);
    }

    #[test]
    fn more_trials_leave_the_phases_of_the_first_ones(seed in any::<u64>(), few in 1u32..8, more in 0u32..8) {
        let (few, more) = (phases(&plan(seed, few, None).unwrap()), phases(&plan(seed, few + more, None).unwrap()));
        for (of, first) in few {
            prop_assert_eq!(&more[&of][..first.len()], &first[..]);
        }
    }

    #[test]
    fn arms_run_side_by_side(trials in 1u32..12) {
        let plan = plan(1, trials, None).unwrap();
        let each = plan.scenario.arms.len() * plan.scenario.faults.len();
        for round in plan.trials.chunks(each) {
            let mut of: Vec<_> = round.iter().map(|trial| (trial.arm, trial.fault)).collect();
            of.sort_unstable();
            of.dedup();
            prop_assert_eq!(of.len(), each);
        }
    }
}
