//! Who is acknowledged by a kernel and heard by nobody: proxies, a closed window, a broker that reads nothing more.

use crate::common::{binary, require_root};
use crate::written::{Running, start};
use halfopen::events::{Event, Kind};
use halfopen::store;
use halfopen::verdict::{TrialRow, judge};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn who_is_acknowledged_and_not_heard_is_told_apart_from_a_black_hole() {
    require_root();
    let as_written = |name| start(name, |text| text);
    let good = ["swallowing-proxy", "withheld-reply", "full-send-buffer"].map(as_written);
    // Without the beginning of a reply nothing defeats the read timeout.
    let swallowed =
        start("withheld-reply", |text| text.replace("profile = \"withheld-reply\"", "profile = \"swallowing-proxy\""));
    let reset =
        start("full-send-buffer", |text| text.replace("profile = \"blackhole\"", "profile = \"rebooted-host\""));
    let [swallowing, withheld, _] = good.map(|run: Running| run.ends(0));
    swallowed.ends(1);
    reset.ends(1);

    let cells = |rows: &[TrialRow], arm: &str, fault: &str| -> Vec<TrialRow> {
        rows.iter().filter(|row| row.arm == arm && row.fault == fault).cloned().collect()
    };
    // Side by side: docs/timers.md has keepalive after 4 s of silence, and nothing behind a proxy that swallows.
    let cut = cells(&swallowing.trials, "redis-keepalive-2-1-2", "blackhole");
    let swallowed = cells(&swallowing.trials, "redis-keepalive-2-1-2", "swallowing-proxy");
    assert!(cut.len() == 6 && cut.iter().all(|row| row.watcher == "keepalive" && row.agrees == Some(true)), "{cut:?}");
    assert!(swallowed.len() == 6 && swallowed.iter().all(|row| row.watcher == "none"), "{swallowed:?}");
    // The broker of a swallowed client finds its heartbeats missing; that of one with half a reply keeps it.
    let lapin = cells(&swallowing.trials, "lapin-heartbeat-4", "swallowing-proxy");
    assert!(lapin.iter().all(|row| row.watcher == "amqp_heartbeat"), "{lapin:?}");
    let kept = cells(&withheld.trials, "blocking-read-timeout-4", "withheld-reply");
    assert!(kept.iter().all(|row| row.broker_notice_s.is_none()), "{kept:?}");
}

/// While an alarm is on the publishers wait, and nothing reaches a consumer but what RabbitMQ had read before.
#[test]
fn an_alarm_stops_who_publishes_and_is_vouched_for_by_its_own_word() {
    require_root();
    // Side by side: each broker is short of one thing alone.
    let runs = [("broker-alarm", "memory", "disk"), ("disk-alarm", "disk", "memory")]
        .map(|(name, resource, other)| (start(name, |text| text), resource, other));
    let (read_before, lasts) = (Duration::from_secs(2), Duration::from_secs(8));
    for (run, resource, other) in runs {
        let (recorded, alarmed) = run.ends_like_no_other();
        let proofs = |resource: &str| {
            let words = format!("the broker's log has its {resource} alarm set");
            let holds = |kind: &Kind| matches!(kind, Kind::Proof { what, holds: true } if *what == words);
            recorded.events.iter().filter(|event| holds(&event.kind)).count()
        };
        assert!(proofs(resource) >= alarmed.trials.len() && proofs(other) == 0, "{resource}: {}", proofs(resource));
        for row in &alarmed.trials {
            let Some(set) = row.fault_applied_s else { panic!("{row:?}") };
            // The heal is known by its end, and messages flow as soon as it begins: seconds earlier on a busy machine.
            let over = set + lasts;
            let of_trial = || alarmed.messages.iter().filter(|m| m.trial == row.trial).filter_map(|m| m.resolved_s);
            assert_eq!(of_trial().filter(|at| *at > set + read_before && *at < over).count(), 0, "{row:?}");
            assert!(of_trial().any(|at| at < set), "messages flowed before: {row:?}");
        }
    }
}

const IN_WAVES: &str = r#"# Do a frozen proxy and a black hole fit into one run, two trials at a time?
[scenario]
name = "in-waves"
horizon = "6s"
trials = 2
settle = "1s"
at_once = 2
[[fault]]
profile = "blackhole"
phase_window = "1s"
[[fault]]
profile = "frozen-proxy"
phase_window = "1s"
[[arm]]
name = "redis"
subject = "redis-blocking"
read_timeout = "2s"
"#;

#[test]
fn a_proxy_stands_before_its_own_trials_alone_and_waves_are_one_run_in_the_end() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("in-waves.toml"), dir.path().join("out"));
    std::fs::write(&file, IN_WAVES).unwrap();
    let status = Command::new(binary())
        .args(["run".as_ref(), file.as_os_str(), "--out".as_ref(), out.as_os_str()])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let recorded = store::read(&out).unwrap();
    let judged = judge(&recorded.run.plan, &recorded.events);
    let outcomes: Vec<_> = judged.trials.iter().map(|row| (row.trial, row.watcher.as_str())).collect();
    assert_eq!(outcomes, [(0, "read_timeout"), (1, "read_timeout"), (2, "read_timeout"), (3, "read_timeout")]);
    let of =
        |fault: &str| judged.trials.iter().filter(|row| row.fault == fault).map(|row| row.trial).collect::<Vec<_>>();
    let relayed = |event: &Event| matches!(event.kind, Kind::Relayed { .. }).then_some(event.trial).flatten();
    let mut behind: Vec<_> = recorded.events.iter().filter_map(relayed).collect();
    behind.sort_unstable();
    behind.dedup();
    assert_eq!(behind, of("frozen-proxy"));
    assert!(recorded.run.complete);
    let waves = |source: &String| source.starts_with("waves: 2, one after the other, of at most 2 trials at once");
    assert!(recorded.run.sources.iter().any(waves), "{:?}", recorded.run.sources);
    assert!(!out.join("wave-1").exists() && !out.join("wave-2").exists());
}
