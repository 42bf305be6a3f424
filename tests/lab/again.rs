//! What is to come several times does: of processes, of an alarm, of a proxy. On the path itself `healed` says it.

use crate::common::require_root;
use crate::written::start;
use halfopen::events::Kind;

#[test]
fn a_fault_comes_as_often_as_it_says() {
    require_root();
    // Three runs side by side, without the gates of the scenarios, which are of faults that come once.
    let again = |name: &'static str, from: &'static str, to: &'static str| {
        start(name, move |text| {
            assert!(text.contains(from), "{name} has no `{from}`");
            let text = text.replacen(from, to, 1).replacen("horizon = \"20s\"", "horizon = \"60s\"", 1);
            text.split("[[gate]]").next().unwrap().to_string()
        })
    };
    // Each change of the alarm is a command of the broker's own, which takes seconds.
    let twice = "duration = \"1500ms\"\nrepeat = 2\npause = \"2s\"\n";
    let runs = [
        again(
            "frozen-broker",
            "at = \"1s\"\n",
            concat!("at = \"1s\"\n", "duration = \"1500ms\"\nrepeat = 3\npause = \"2s\"\n"),
        ),
        again("disk-alarm", "duration = \"8s\"\n", twice),
        again(
            "swallowing-proxy",
            "profile = \"swallowing-proxy\"\n",
            concat!("profile = \"frozen-proxy\"\n", "duration = \"1500ms\"\nrepeat = 3\npause = \"2s\"\n"),
        ),
    ];
    for (run, times) in runs.into_iter().zip([3, 2, 3]) {
        let (recorded, judged) = run.ends_with(0);
        for trial in &recorded.run.plan.trials {
            let fault = &recorded.run.plan.scenario.faults[trial.fault];
            if fault.repeat.is_none() {
                continue;
            }
            let of = |meant: fn(&Kind) -> bool| {
                recorded.events.iter().filter(|e| e.trial == Some(trial.id) && meant(&e.kind)).count()
            };
            let came = of(|kind| matches!(kind, Kind::FaultApplied { .. } | Kind::FaultRepeated { .. }));
            let ended = of(|kind| matches!(kind, Kind::FaultHealed { .. }));
            // Whose connection was given up meanwhile is watched no longer.
            let row = judged.trials.iter().find(|row| row.trial == trial.id).unwrap();
            let name = &recorded.run.plan.scenario.name;
            if row.ttd_s.is_none() {
                assert_eq!((came, ended), (times, times), "{name}: {row:?}");
            }
        }
        assert!(judged.trials.iter().any(|row| row.ttd_s.is_none()), "{}", recorded.run.plan.scenario.name);
    }
}
