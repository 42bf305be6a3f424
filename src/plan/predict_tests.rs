//! The mapping from a scenario to the model's cases.

use super::*;
use crate::plan::{Overrides, build};
use crate::scenario::read;

/// The plan of one arm under one fault.
fn plan(head: &str, arm: &str, fault: &str) -> Plan {
    let text = format!(
        "# Who?\n[scenario]\nname = \"x\"\nhorizon = \"1h\"\ntrials = 2\nsettle = \"4s\"\n{head}\n\
         [[fault]]\n{fault}\n[[arm]]\nname = \"a\"\n{arm}\n"
    );
    let scenario = read("x.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    build(scenario, &Overrides::default()).expect("is planned")
}

fn reference() -> Machine {
    Machine { hz: Some(250), kernel: "6.18".parse().ok(), ..Machine::default() }
}

fn predicted(head: &str, arm: &str, fault: &str) -> (Option<f64>, Option<f64>, Vec<&'static str>) {
    let mut plan = plan(head, arm, fault);
    predict(&mut plan, &reference());
    assert!(plan.doubts.is_empty(), "{:?}", plan.doubts);
    let trial = &plan.trials[0];
    let window = trial.predicted.expect("a window");
    (window.lo_s, window.hi_s, trial.predicted_watchers.iter().map(|watcher| watcher.name()).collect())
}

fn holds(answer: &(Option<f64>, Option<f64>, Vec<&'static str>), measured: &[f64], watcher: &str) {
    let (Some(lo), Some(hi)) = (answer.0, answer.1) else { panic!("no window: {answer:?}") };
    assert!(measured.iter().all(|s| (lo..=hi).contains(s)), "{measured:?} in {answer:?}");
    assert_eq!(answer.2[0], watcher);
}

const BOTH: &str = "profile = \"blackhole\"\nphase_window = \"1s\"";
const LOAD: &str = "[load]\nrate = \"1/s\"";

#[test]
fn what_was_measured_lies_in_the_windows() {
    let keepalive = "subject = \"tcp-reader\"\nkeepalive = { idle = \"5s\", interval = \"1s\", probes = 3 }";
    holds(&predicted(LOAD, keepalive, BOTH), &[7.17, 8.17], "keepalive");
    holds(&predicted(LOAD, "subject = \"tcp-writer\"\ntcp_user_timeout = \"5s\"", BOTH), &[5.52, 6.21], "user_timeout");
    let retries = "subject = \"tcp-writer\"\nsysctl.tcp_retries2 = 3";
    holds(&predicted(LOAD, retries, BOTH), &[3.48, 3.69, 6.93, 7.56], "retransmit");
    holds(&predicted(LOAD, "subject = \"tcp-reader\"\nread_timeout = \"10s\"", BOTH), &[9.2, 9.9], "read_timeout");
    let lapin = "subject = \"lapin\"\nheartbeat = \"10s\"";
    holds(&predicted("", lapin, BOTH), &[15.5, 21.2], "amqp_heartbeat");
    let lapin = "subject = \"lapin\"
heartbeat = \"5s\"";
    holds(&predicted(LOAD, lapin, BOTH), &[9.02, 10.05], "amqp_heartbeat");
}

#[test]
fn an_idle_brpop_is_answered_after_half_of_its_timeout() {
    let redis = "subject = \"redis-blocking\"\nread_timeout = \"10s\"";
    let (lo, hi, watchers) = predicted("", redis, BOTH);
    assert!((4.8..5.0).contains(&lo.unwrap()) && (10.06..10.4).contains(&hi.unwrap()), "{lo:?} {hi:?}");
    assert_eq!(watchers, ["read_timeout"]);
    // Without one it waits for ever.
    assert_eq!(predicted("", "subject = \"redis-blocking\"", BOTH), (None, None, vec!["none"]));
}

#[test]
fn a_request_whose_acknowledgement_is_delayed_may_be_in_flight() {
    let redis = "subject = \"redis-blocking\"\nkeepalive = { idle = \"5s\", interval = \"1s\", probes = 3 }";
    let (lo, hi, watchers) = predicted(LOAD, redis, BOTH);
    assert!(lo.unwrap() > 6.9 && hi.unwrap() > 900.0, "{lo:?} {hi:?}");
    assert_eq!(watchers, ["keepalive", "retransmit"]);
}

#[test]
fn the_direction_decides_who_keeps_whom_alive() {
    let reader = "subject = \"tcp-reader\"\nread_timeout = \"5s\"";
    let one_way = |profile| predicted(LOAD, reader, &format!("profile = \"{profile}\"\nphase_window = \"1s\""));
    holds(&one_way("to-client"), &[4.1, 5.2], "read_timeout");
    // The message after the cut still arrives.
    holds(&one_way("to-broker"), &[5.1, 6.2], "read_timeout");
    // The broker's copies come further apart than the idle time, so keepalive runs on its interval from then on.
    let keepalive = "subject = \"tcp-reader\"\nkeepalive = { idle = \"1s\", interval = \"3s\", probes = 1 }\n\
        tcp_user_timeout = \"2441ms\"";
    let fault = "profile = \"to-broker\"\nphase_window = \"1s\"";
    holds(&predicted("[load]\nrate = \"2/s\"", keepalive, fault), &[11.9758, 12.1219, 12.3657, 12.4693], "keepalive");
}

/// An `amqp-blocking` arm with messages, under each fault.
fn blocking(arm: &str, profile: &str) -> (Option<f64>, Option<f64>, Vec<&'static str>) {
    let arm = format!("subject = \"amqp-blocking\"\n{arm}");
    predicted(LOAD, &arm, &format!("profile = \"{profile}\"\nphase_window = \"1s\""))
}

#[test]
fn a_heartbeat_on_the_thread_that_waits_is_never_the_first() {
    let (same, own) = ("heartbeat = \"4s\"", "heartbeat = \"4s\"\nheartbeat_thread = \"own\"");
    for profile in ["blackhole", "to-client"] {
        // What may have been in flight dies of retransmissions; nothing else ever ends it.
        let (lo, hi, watchers) = blocking(same, profile);
        assert!(lo.is_some_and(|lo| lo > 900.0) && hi.is_none_or(|hi| hi > 900.0), "{lo:?} {hi:?}");
        assert!(!watchers.contains(&"amqp_heartbeat") && watchers.contains(&"retransmit"), "{watchers:?}");
        let (lo, hi, watchers) = blocking(own, profile);
        // The last message is up to a second old; ticks are a third of a heartbeat apart.
        assert!((6.9..=7.0).contains(&lo.unwrap()) && (10.66..10.8).contains(&hi.unwrap()), "{lo:?} {hi:?}");
        assert_eq!(watchers, ["amqp_heartbeat"]);
    }
    // Where the broker is heard it tells the thread that waits.
    let (lo, hi, watchers) = blocking(same, "to-broker");
    assert!((6.5..7.1).contains(&lo.unwrap()) && (12.0..12.2).contains(&hi.unwrap()), "{lo:?} {hi:?}");
    assert_eq!(watchers, ["reset"]);
    let (_, _, watchers) = blocking(own, "to-broker");
    assert!(watchers.contains(&"amqp_heartbeat") && watchers.contains(&"reset"), "{watchers:?}");
    // A client's 0 is none, whatever the broker proposes.
    assert_eq!(blocking("heartbeat = \"none\"\nheartbeat_thread = \"own\"", "to-broker").2, ["retransmit"]);
}

#[test]
fn the_reaper_of_the_scenario_is_among_the_watchers() {
    let queued = |generation: &str| {
        let head = format!(
            "[load]\nrate = \"1/s\"\n[reaper]\nrule = \"queued-timeout\"\ntimeout = \"20s\"\ninterval = \"2s\"\n{generation}"
        );
        let mut plan = plan(&head, "subject = \"amqp-blocking\"\nheartbeat = \"none\"", BOTH);
        predict(&mut plan, &reference());
        // It looks at queued rows only: nothing is said of running ones.
        assert!(plan.outlooks[0].watchers.iter().all(|o| o.watcher != Watcher::TaskHeartbeat));
        // And it does not tell the client anything.
        assert!(!plan.trials[0].predicted_watchers.contains(&Watcher::QueuedTimeout));
        let found = plan.outlooks[0].watchers.iter().find(|o| o.watcher == Watcher::QueuedTimeout).cloned();
        found.map(|o| (o.state, o.lo_s, o.hi_s))
    };
    use crate::timers::WatcherState::Fires;
    assert_eq!(queued(""), Some((Fires, Some(20.0), Some(22.0))));
    assert_eq!(queued("generation = \"airflow-2.10.4\""), Some((Fires, Some(60.0), Some(66.0))));
    let mut without = plan(LOAD, "subject = \"amqp-blocking\"\nheartbeat = \"none\"", BOTH);
    predict(&mut without, &reference());
    let off = |o: &crate::plan::Outlook| o.watcher != Watcher::QueuedTimeout || o.state != Fires;
    assert!(without.outlooks[0].watchers.iter().all(off));
}

#[test]
fn a_read_timeout_counts_from_the_last_message_or_from_the_call() {
    holds(&blocking("read_timeout = \"5s\"", "blackhole"), &[4.01, 5.3], "read_timeout");
    holds(&blocking("read_timeout = \"5s\"", "to-broker"), &[5.02, 6.3], "read_timeout");
    let call = "read_timeout = \"5s\"\nsync_call = \"basic.qos\"\nheartbeat = \"10s\"";
    let (lo, hi, watchers) = blocking(call, "blackhole");
    assert!((4.9..5.01).contains(&lo.unwrap()) && (5.3..5.7).contains(&hi.unwrap()), "{lo:?} {hi:?}");
    assert_eq!(watchers, ["read_timeout"]);
    // Messages that still arrive let the wait begin again.
    let (_, hi, _) = blocking(call, "to-broker");
    assert!((6.2..6.7).contains(&hi.unwrap()), "{hi:?}");
}

#[test]
fn a_closed_window_counts_from_the_harness_word() {
    let closed = |options: &str| format!("subject = \"tcp-writer\"\npeer_reads = false\n{options}");
    let at = "profile = \"blackhole\"\nat = \"1s\"";
    // Closed for 4.7 to 5 s at the cut, the first probe 0.2 s after the closing.
    holds(&predicted("", &closed("tcp_user_timeout = \"8s\""), at), &[3.3, 3.5], "user_timeout");
    assert_eq!(predicted("", &closed("sysctl.tcp_retries2 = 3"), at).2, ["persist"]);
}

#[test]
fn what_the_model_does_not_know_is_said_and_left_empty() {
    let doubt = |head: &str, arm: &str, fault: &str| {
        let mut plan = plan(head, arm, fault);
        predict(&mut plan, &reference());
        assert!(plan.trials.iter().all(|trial| trial.predicted.is_none() && trial.predicted_watchers.is_empty()));
        plan.doubts.join("\n")
    };
    let writer = "subject = \"tcp-writer\"\ntcp_user_timeout = \"2s\"";
    assert!(doubt(LOAD, writer, "profile = \"blackhole\"\nduration = \"1s\"").contains("heals"));
    assert!(doubt(LOAD, &format!("{writer}\nsysctl.tcp_thin_linear_timeouts = 1"), BOTH).contains("thin_linear"));
    let closed = format!("{writer}\npeer_reads = false");
    assert!(doubt("", &closed, BOTH).contains("user_timeout ends a connection whose window stays closed"));
    let closed = "subject = \"tcp-writer\"\npeer_reads = false\nsysctl.tcp_retries2 = 1";
    assert!(doubt("", closed, BOTH).contains("persist ends"));
    // A control needs no words.
    assert_eq!(doubt(LOAD, writer, "profile = \"none\""), "");
}

#[test]
fn the_arms_sysctls_are_over_the_machines_and_assumptions_over_both() {
    let mut machine = reference();
    machine.sysctls.insert("tcp_retries2".into(), 8);
    let retries =
        |machine: &Machine, own: &BTreeMap<String, i64>| machine.environment(own, Duration::ZERO).tcp_retries2;
    let own = BTreeMap::from([("tcp_retries2".to_string(), 3)]);
    assert_eq!((retries(&machine, &BTreeMap::new()), retries(&machine, &own)), (8, 3));
    machine.assume("sysctl.tcp_retries2=5").unwrap();
    assert_eq!(retries(&machine, &own), 5);
    machine.assume("hz=1000").unwrap();
    machine.assume("kernel=6.1").unwrap();
    let env = machine.environment(&own, Duration::ZERO);
    assert_eq!((env.hz, env.kernel.to_string()), (1000, "6.1".to_string()));
    assert!(machine.doubts().iter().any(|doubt| doubt.contains("told to believe tcp_retries2 = 5")));
    for wrong in ["tcp_retries2=5", "sysctl.tcp_retries=5", "hz=0", "hz", "kernel=linux", "sysctl.tcp_retries2=x"] {
        assert!(machine.assume(wrong).is_err(), "{wrong}");
    }
    let refused = |text: &str| reference().assume(text).unwrap_err();
    assert!(refused("hz=7").contains("100, 250, 300, 1000"), "{}", refused("hz=7"));
    assert!(refused("kernel=0.0").contains("from 2.6 on"), "{}", refused("kernel=0.0"));
}

#[test]
fn an_unknown_machine_is_assumed_and_said() {
    let mut plan = plan(LOAD, "subject = \"tcp-reader\"\nread_timeout = \"2s\"", BOTH);
    predict(&mut plan, &Machine::default());
    assert_eq!(plan.doubts.len(), 2);
    assert!(plan.trials[0].predicted.is_some());
}

#[test]
fn windows_are_whole_and_a_longer_timeout_is_never_earlier() {
    let mut last = 0.0;
    for seconds in 2..40 {
        let arm = format!("subject = \"tcp-reader\"\nread_timeout = \"{seconds}s\"");
        let (lo, hi, _) = predicted(LOAD, &arm, BOTH);
        let (lo, hi) = (lo.unwrap(), hi.unwrap());
        assert!(0.0 <= lo && lo <= hi && hi >= last, "{seconds}: {lo} to {hi} after {last}");
        last = hi;
    }
}

#[test]
fn a_reconnect_into_the_cut_begins_as_soon_as_its_client_wakes_up_and_pauses_no_longer_than_it_does() {
    let fault = "profile = \"blackhole\"\nscope = \"pair\"\nat = \"reconnect\"\nphase_window = \"1s\"";
    let window = |settle: &str, more: &str| {
        let arm = format!("subject = \"tcp-reader\"\nconnect_timeout = \"2s\"\n{more}");
        let mut plan = plan("", &arm, fault);
        plan.scenario.settle = crate::units::parse_duration(settle).unwrap();
        predict(&mut plan, &reference());
        let window = plan.trials[0].predicted.expect("a window");
        (window.lo_s.unwrap(), window.hi_s.unwrap())
    };
    let near = |window: (f64, f64), lo: f64, hi: f64| {
        assert!((window.0 - lo).abs() < 1e-6 && (window.1 - hi).abs() < 1e-6, "{window:?}, not {lo}..{hi}");
    };
    // Two seconds and what a poll may be late by; it wakes up twice, at the RST and at the end.
    near(window("4s", ""), 1.999, 2.003 + 0.02);
    // No two attempts begin within a second.
    near(window("400ms", ""), 1.999, 2.003 + 0.02 + 0.6);
    near(window("4s", "reconnect = { base = \"500ms\", jitter = \"none\" }"), 2.499, 2.503 + 0.02);
    near(window("4s", "reconnect = { base = \"500ms\", jitter = \"full\" }"), 1.999, 2.503 + 0.02);
}
