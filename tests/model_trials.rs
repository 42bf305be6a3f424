//! Scenarios simulated by the model engine and judged like any other run.

use halfopen::engine::model::{ModelError, case, environment, reference_machine, simulate};
use halfopen::plan::{Overrides, Plan, build};
use halfopen::scenario::{Scenario, read};
use halfopen::timers::predict;
use halfopen::verdict::{Judged, Outcome, TrialRow, judge};
use std::time::Duration;

/// The work that a message stands for.
const WORK: Duration = Duration::from_millis(50);

fn plan(text: &str) -> Plan {
    let scenario = read("x.toml", &format!("# Who?\n{text}")).unwrap_or_else(|errors| panic!("{errors}"));
    build(scenario, &Overrides::default()).unwrap()
}

fn judged(plan: &Plan) -> Judged {
    judge(plan, &simulate(plan, &reference_machine()).unwrap())
}

const HEAD: &str = "[scenario]\nname = \"x\"\ntrials = 20\n";

fn file(name: &str) -> Plan {
    let path = format!("{}/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    build(read(&path, &text).unwrap_or_else(|errors| panic!("{errors}")), &Overrides::default()).unwrap()
}

/// Every time to detect lies in the window of its case, and who is never told is censored.
fn within_windows(plan: &Plan) -> usize {
    let env = environment(&reference_machine());
    let rows = judged(plan).trials;
    let mut detected = 0;
    for (trial, row) in plan.trials.iter().zip(&rows) {
        let window = predict(&case(plan, trial.arm, trial.fault, &env)).detection;
        match row.outcome {
            Outcome::Detected => {
                let ttd = row.ttd_s.unwrap().as_secs();
                let holds =
                    window.lo_s.is_some_and(|lo| ttd >= lo - 1e-5) && window.hi_s.is_none_or(|hi| ttd <= hi + 1e-5);
                assert!(holds, "{} {}: {ttd} in {window:?}", row.arm, row.fault);
                detected += 1;
            }
            Outcome::Censored => {
                let horizon = plan.scenario.horizon.as_secs_f64();
                assert!(window.hi_s.is_none_or(|hi| hi > horizon), "{} {}: {window:?}", row.arm, row.fault);
            }
            other => panic!("{} {}: {other} {:?}", row.arm, row.fault, row.void_reason),
        }
    }
    detected
}

#[test]
fn the_files_of_the_repository_lie_in_the_windows_of_the_model() {
    assert_eq!(within_windows(&file("first-look")), 100);
    assert_eq!(within_windows(&file("kernel-timers")), 110);
    assert!(within_windows(&file("one-way")) > 50);
}

#[test]
fn the_watcher_is_told_from_the_same_evidence() {
    let rows = judged(&file("kernel-timers")).trials;
    let watchers = |arm: &str| {
        rows.iter().filter(|r| r.arm == arm).map(|r| r.watcher.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    for (arm, watcher) in [
        ("keepalive-5-1-3", "keepalive"),
        ("writer-user-timeout-5", "user_timeout"),
        ("writer-retries-5", "retransmit"),
        ("read-timeout-2", "read_timeout"),
        ("reader-without-timers", "none"),
    ] {
        assert_eq!(watchers(arm), [watcher.to_string()].into(), "{arm}");
    }
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_one_others() {
    let plan = file("kernel-timers");
    let events = |plan: &Plan| simulate(plan, &reference_machine()).unwrap();
    assert_eq!(events(&plan), events(&plan));
    let other = Plan { scenario: Scenario { seed: 2, ..plan.scenario.clone() }, ..plan.clone() };
    assert_ne!(events(&plan), events(&other));
}

#[test]
fn more_trials_leave_those_that_were_there_as_they_are() {
    let at = |trials: u32| {
        let text = format!(
            "[scenario]\nname = \"x\"\nhorizon = \"60s\"\ntrials = {trials}\n[fault]\nprofile = \"blackhole\"\n[[arm]]\nname = \"a\"\nsubject = \"lapin\"\nheartbeat = \"10s\"\n"
        );
        let plan = plan(&text);
        judged(&plan).trials.iter().map(|r| (r.local, r.ttd_s)).collect::<Vec<_>>()
    };
    assert_eq!(at(3), at(9)[..3]);
}

fn column<T>(rows: &[TrialRow], of: impl Fn(&TrialRow) -> Option<T>) -> Vec<T> {
    rows.iter().filter_map(of).collect()
}

#[test]
fn messages_of_a_dead_connection_come_back_when_the_broker_gives_it_up() {
    let text = format!(
        "{HEAD}horizon = \"60s\"\n[load]\nrate = \"1/s\"\n[fault]\nprofile = \"blackhole\"\n[[arm]]\nname = \"a\"\nsubject = \"lapin\"\nheartbeat = \"10s\"\nprefetch = 4\n"
    );
    let plan = plan(&text);
    let judged = judged(&plan);
    assert_eq!(judged.trials.len(), 20);
    for row in &judged.trials {
        let (broker, back) = (row.broker_notice_s.unwrap(), row.recovered_s.unwrap());
        let resolved = row.resolved_s.unwrap();
        assert_eq!(resolved, broker.max(back) + WORK, "{row:?}");
        assert_eq!(row.resolved_by, "recovery");
        let again: u64 = judged.messages.iter().filter(|m| m.trial == row.trial).map(|m| m.redelivered_n).sum();
        assert!((4..=5).contains(&again), "{again}");
        assert!(row.dropped_to_client > Some(0) && row.passed_to_client == Some(0));
    }
}

#[test]
fn redis_loses_what_it_pops_for_a_dead_client() {
    let text = format!(
        "{HEAD}horizon = \"30s\"\n[load]\nrate = \"1/s\"\n[fault]\nprofile = \"blackhole\"\n[[arm]]\nname = \"a\"\nsubject = \"redis-blocking\"\nread_timeout = \"10s\"\n"
    );
    let judged = judged(&plan(&text));
    for row in &judged.trials {
        assert_eq!(row.watcher, "read_timeout");
        let lost = judged.messages.iter().filter(|m| m.trial == row.trial && m.delivered_n == 0).count();
        assert_eq!(lost, 1, "trial {}", row.trial);
    }
}

#[test]
fn a_cut_that_heals_in_time_is_survived_and_only_delays() {
    let text = format!(
        "{HEAD}horizon = \"60s\"\n[load]\nrate = \"1/s\"\n[fault]\nprofile = \"blackhole\"\nduration = \"7s\"\n[[arm]]\nname = \"a\"\nsubject = \"tcp-reader\"\nexpect = \"censored\"\n"
    );
    let rows = judged(&plan(&text)).trials;
    assert!(rows.iter().all(|r| r.outcome == Outcome::Survived), "{rows:?}");
    // The copies leave 0.4, 0.8, 1.7, 3.3, 6.7 and 13.4 s after the first message, which waits for the next of them.
    let stuck = column(&rows, |r| r.stuck_s.map(|s| s.as_secs()));
    assert_eq!(stuck.len(), 20);
    assert!(stuck.iter().all(|s| (6.0..14.0).contains(s)), "{stuck:?}");
}

#[test]
fn a_dead_host_fails_to_reconnect_until_it_heals() {
    let text = format!(
        "{HEAD}horizon = \"120s\"\n[fault]\nprofile = \"blackhole\"\nscope = \"host\"\nduration = \"60s\"\n[[arm]]\nname = \"a\"\nsubject = \"lapin\"\nheartbeat = \"10s\"\nconnect_timeout = \"5s\"\n"
    );
    let plan = plan(&text);
    let judged = judged(&plan);
    for row in &judged.trials {
        let healed = row.healed_s.unwrap();
        assert!(row.recovered_s.unwrap() >= healed && row.recovered_s.unwrap() < healed + Duration::from_secs(7));
        let failed =
            judged.connections.iter().filter(|c| c.trial == row.trial && c.watcher == "connect_timeout").count();
        assert!(failed >= 5, "{failed}");
    }
}

#[test]
fn controls_are_quiet() {
    let rows = judged(&file("control")).trials;
    assert!(rows.iter().all(|r| r.outcome == Outcome::Survived), "{rows:?}");
}

/// The tasks of `scenarios/airflow-1283-model.toml`, with more of them affected.
fn stall(generation: &str, horizon: &str) -> Plan {
    plan(&format!(
        "[scenario]\nname = \"x\"\nhorizon = \"{horizon}\"\n[broker]\nheartbeat = \"none\"\n[tasks]\ncount = 200000\nover = \"30d\"\n\
         half_open = 0.001\n[reaper]\nrule = \"queued-timeout\"\ntimeout = \"1200s\"\ninterval = \"120s\"\ngeneration = \"{generation}\"\n\
         [[fault]]\nprofile = \"blackhole\"\n[[fault]]\nprofile = \"blackhole\"\nscope = \"host\"\n[[arm]]\nname = \"a\"\n\
         subject = \"lapin\"\nkeepalive = {{ idle = \"600s\", interval = \"65s\", probes = 9 }}\n"
    ))
}

#[test]
fn the_reaper_ends_what_nobody_recovers_and_nothing_else() {
    let plan = stall("airflow-2.10.3", "1500s");
    let rows = judged(&plan).trials;
    let of = |scope: &str| rows.iter().filter(|r| r.scope == scope).cloned().collect::<Vec<_>>();
    let (flow, host) = (of("flow"), of("host"));
    // 200 expected; 5 standard deviations are 71.
    assert!((129..=271).contains(&host.len()), "{}", host.len());
    let stuck = |rows: &[TrialRow]| column(rows, |r| r.stuck_s.map(|s| s.as_secs()));
    assert!(host.iter().all(|r| r.resolved_by == "queued_timeout"));
    let times = stuck(&host);
    assert!(times.iter().all(|s| (1200.0..=1320.0).contains(s)), "{times:?}");
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    // Uniform over 120 s: the mean of 200 is 1260 with a standard error of 2.5 s.
    assert!((1247.0..=1273.0).contains(&mean), "{mean}");
    // The broker's kernel gives the delivery up; a consumer that is back by then takes it.
    assert!(flow.iter().all(|r| r.resolved_by == "recovery"), "{flow:?}");
    assert!(stuck(&flow).iter().all(|s| (930.0..1201.0).contains(s)));
}

#[test]
fn the_later_generation_queues_twice_again_first() {
    let rows = judged(&stall("airflow-2.10.4", "4200s")).trials;
    let host = column(&rows, |r| (r.scope == "host").then(|| r.stuck_s.map(|s| s.as_secs())).flatten());
    assert!(host.len() > 100 && host.iter().all(|s| (3600.0..=3960.0).contains(s)), "{host:?}");
}

#[test]
fn too_many_messages_are_refused() {
    let mut plan = file("kernel-timers");
    plan.scenario.load_interval = Some(Duration::from_micros(100));
    assert!(matches!(simulate(&plan, &reference_machine()), Err(ModelError::TooManyMessages(_))));
}
