//! The composed model: who notices which fault, and laws that hold for any settings.

use halfopen::timers::application::reapers::Airflow;
use halfopen::timers::{
    BrokerKind, Case, Conditions, Environment, Fault, FaultKind, FaultScope, HeartbeatThread, Keepalive, Phases, Row,
    Settings, State, Subject, Traffic, Watcher, WatcherState, predict, step,
};
use halfopen::units::Setting;
use proptest::prelude::*;
use std::time::Duration;

fn secs(seconds: u64) -> Setting {
    Setting::After(Duration::from_secs(seconds))
}

fn env(retries2: u32) -> Environment {
    Environment { tcp_retries2: retries2, ..Environment::default() }
}

fn keepalive_5_1_3() -> Settings {
    Settings { keepalive: Some(Keepalive::from_secs(5, 1, 3)), ..Settings::default() }
}

fn window(case: &Case) -> (Option<Watcher>, f64, f64) {
    let d = predict(case).detection;
    (d.watcher, d.lo_s.unwrap_or(f64::INFINITY), d.hi_s.unwrap_or(f64::INFINITY))
}

/// The settings of the stall of 1283.9 s: Celery over RabbitMQ, heartbeat 120 on both sides, keepalive of 1185 s,
/// no user timeout, and Airflow's queued timeout of 1200 s.
fn stall(row: Row) -> (Settings, Conditions) {
    let mut s = Settings::stock(Subject::Celery, BrokerKind::RabbitMq);
    s.heartbeat = Some(secs(120));
    s.broker_heartbeat = secs(120);
    s.tcp_user_timeout = Setting::None;
    s.keepalive = Some(Keepalive::from_secs(600, 65, 9));
    s.peer.consumer_timeout = Setting::None;
    s.reaper.airflow = Some(Airflow { queued_timeout: Duration::from_secs(1200), ..Airflow::default() });
    (s, Conditions { row: Some(row), ..Conditions::default() })
}

#[test]
fn the_stall_a_frozen_peer_and_a_synchronous_call_leave_the_scheduler_alone() {
    let (s, c) = stall(Row::Queued);
    let c = Conditions { synchronous_call: true, ..c };
    let p = predict(&Case::new(s, env(15), Fault::of(FaultKind::FrozenPeer), c));
    assert_eq!(p.detection.watcher, None, "{p:#?}");
    assert_eq!((p.resolution.watcher, p.resolution.lo_s), (Some(Watcher::QueuedTimeout), Some(1200.0)));
    assert_eq!(p.resolution.hi_s, Some(1320.0));
    let state = |w| p.watcher(w).unwrap().state;
    assert_eq!(state(Watcher::AmqpHeartbeat), WatcherState::Defeated);
    assert_eq!(state(Watcher::Keepalive), WatcherState::NeverTriggered);
    assert_eq!(state(Watcher::ReadTimeout), WatcherState::NeverArmed);
}

#[test]
fn the_stall_a_read_timeout_ends_the_synchronous_call() {
    let (mut s, c) = stall(Row::Queued);
    s.read_timeout = secs(60);
    let c = Conditions { synchronous_call: true, ..c };
    let (who, lo, hi) = window(&Case::new(s, env(15), Fault::of(FaultKind::FrozenPeer), c));
    assert!(who == Some(Watcher::ReadTimeout) && lo >= 60.0 && hi < 62.2, "{who:?} {lo} {hi}");
}

#[test]
fn the_stall_cut_while_idle_is_noticed_by_the_heartbeat_and_an_idle_reader_without_one_by_nobody() {
    let (mut s, c) = stall(Row::Queued);
    let case = Case::new(s.clone(), env(15), Fault::of(FaultKind::Both), c);
    let (who, lo, hi) = window(&case);
    assert!(who == Some(Watcher::AmqpHeartbeat) && lo == 180.0 && hi == 320.0, "{who:?} {lo} {hi}");
    s.heartbeat = Some(Setting::None);
    s.keepalive = None;
    let p = predict(&Case::new(s, env(15), Fault::of(FaultKind::Both), c));
    assert_eq!(p.detection.watcher, None);
    assert_eq!(p.resolution.watcher, Some(Watcher::QueuedTimeout));
}

#[test]
fn the_stall_cut_with_a_heartbeat_in_flight_is_retransmissions_where_nothing_checks() {
    let (s, c) = stall(Row::Running);
    let c = Conditions { state: State::InFlight, synchronous_call: true, ..c };
    let p = predict(&Case::new(s, env(15), Fault::of(FaultKind::Both), c));
    assert_eq!(p.detection.watcher, Some(Watcher::Retransmit), "{p:#?}");
    assert_eq!(p.watcher(Watcher::QueuedTimeout).unwrap().state, WatcherState::NeverTriggered);
    assert_eq!(p.watcher(Watcher::Keepalive).unwrap().state, WatcherState::Suspended);
}

#[test]
fn one_direction_is_not_two() {
    let beats = Traffic { broker_messages: Some(Duration::from_secs(2)), ..Traffic::default() };
    let c = Conditions { traffic: beats, ..Conditions::default() };
    let of = |kind| window(&Case::new(keepalive_5_1_3(), env(5), Fault::of(kind), c));
    // Measured: 6.4–8.0 s when broker → client is cut, 15.1–16.7 s when only client → broker is.
    let (who, lo, hi) = of(FaultKind::ToClient);
    assert!(who == Some(Watcher::Keepalive) && lo <= 6.4 && (8.0..8.4).contains(&hi), "{who:?} {lo} {hi}");
    let (who, lo, hi) = of(FaultKind::ToBroker);
    assert!(
        who == Some(Watcher::Keepalive) && (14.0..=15.1).contains(&lo) && (16.7..17.5).contains(&hi),
        "{who:?} {lo} {hi}"
    );
    // A pure reader without keepalive never notices.
    let p = predict(&Case::new(Settings::default(), env(5), Fault::of(FaultKind::ToBroker), c));
    assert_eq!(p.detection.watcher, None);
}

#[test]
fn a_heartbeat_among_the_probes_moves_the_client_to_retransmission() {
    let traffic = Traffic { client_messages: Some(Duration::from_secs(20)), ..Traffic::default() };
    let p = predict(&Case::new(
        keepalive_5_1_3(),
        env(5),
        Fault::of(FaultKind::Both),
        Conditions { traffic, ..Conditions::default() },
    ));
    assert_eq!(p.contenders.len(), 2, "{p:#?}");
    assert!(p.watcher(Watcher::Keepalive).unwrap().hi_s.is_none());
    assert!(p.detection.hi_s.is_some_and(|hi| hi < 34.0), "one of the two certainly fires: {p:#?}");
}

#[test]
fn py_amqps_defaults_idle_and_busy() {
    let mut s = Settings::stock(Subject::Celery, BrokerKind::RabbitMq);
    s.heartbeat = Some(Setting::None);
    let idle = Case::new(s.clone(), env(15), Fault::of(FaultKind::Both), Conditions::default());
    let (who, _, hi) = window(&idle);
    assert!(who == Some(Watcher::Keepalive) && (71.4..72.5).contains(&hi), "{who:?} {hi}");
    let busy = Conditions { state: State::InFlight, ..Conditions::default() };
    let (who, lo, hi) = window(&Case::new(s, env(15), Fault::of(FaultKind::Both), busy));
    assert!(who == Some(Watcher::UserTimeout) && lo > 1.4 && hi < 1.5, "{who:?} {lo} {hi}");
}

#[test]
fn a_transient_that_ends_before_the_last_copy_is_survived() {
    let mut case = Case::new(
        Settings::default(),
        env(5),
        Fault::of(FaultKind::Both),
        Conditions { state: State::InFlight, ..Conditions::default() },
    );
    let price = predict(&case).false_alarm;
    let survives = price.survives_s.unwrap();
    assert!((6.5..7.0).contains(&survives) && price.killer == Some(Watcher::Retransmit), "{price:?}");
    case.fault.duration = Some(Duration::from_secs_f64(survives - 0.01));
    assert_eq!(predict(&case).detection.watcher, None);
    case.fault.duration = Some(Duration::from_secs(8));
    assert_eq!(predict(&case).detection.watcher, Some(Watcher::Retransmit));
}

#[test]
fn a_middlebox_and_a_lost_probe_are_priced() {
    let s = Settings { keepalive: Some(Keepalive::from_secs(600, 10, 1)), ..Settings::default() };
    let c = Conditions { nat_idle: Some(Duration::from_secs(350)), ..Conditions::default() };
    let price = predict(&Case::new(s, env(15), Fault::of(FaultKind::Both), c)).false_alarm;
    assert!(price.nat_kills_idle_link && price.one_lost_probe_kills);
}

#[test]
fn shortening_the_interval_below_the_idle_time_can_lengthen_keepalive() {
    // The documented exception: with an interval longer than the idle time, silence is measured by the interval, so
    // shortening the *idle* time changes nothing at all.
    let of = |idle| {
        let s = Settings { keepalive: Some(Keepalive::from_secs(idle, 30, 2)), ..Settings::default() };
        window(&Case::new(
            s,
            env(15),
            Fault::of(FaultKind::Both),
            Conditions { age_at_fault: Some(Duration::ZERO), ..Conditions::default() },
        ))
    };
    assert_eq!(of(5), of(20));
}

fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![Just(Setting::None), (1u64..200_000).prop_map(|ms| Setting::After(Duration::from_millis(ms)))]
}

prop_compose! {
    fn settings()(
        subject in prop::sample::select(Subject::ALL),
        broker in prop::sample::select(BrokerKind::ALL),
        keepalive in prop::option::of((1u64..400, 1u64..200, 1u32..12)),
        read_timeout in setting(),
        send_timeout in setting(),
        tcp_user_timeout in setting(),
        heartbeat in prop::option::of((0u64..120).prop_map(|s| if s == 0 { Setting::None } else { secs(s) })),
        health in setting(),
    ) -> Settings {
        Settings {
            keepalive: keepalive.map(|(i, n, p)| Keepalive::from_secs(i, n, p)),
            read_timeout, send_timeout, tcp_user_timeout, heartbeat, health_check_interval: health,
            ..Settings::stock(subject, broker)
        }
    }
}

prop_compose! {
    fn conditions()(
        state in prop::sample::select(&[State::Idle, State::InFlight, State::ZeroWindow][..]),
        client in prop::option::of(1u64..60),
        broker in prop::option::of(1u64..60),
        client_acks: bool,
        synchronous_call: bool,
        unacked_delivery: bool,
    ) -> Conditions {
        Conditions {
            state, synchronous_call, unacked_delivery,
            traffic: Traffic {
                client_messages: client.map(Duration::from_secs),
                broker_messages: broker.map(Duration::from_secs),
                client_acks,
                ..Traffic::default()
            },
            ..Conditions::default()
        }
    }
}

prop_compose! {
    fn cases()(
        settings in settings(),
        conditions in conditions(),
        kind in prop::sample::select(&[
            FaultKind::Both, FaultKind::ToBroker, FaultKind::ToClient, FaultKind::FrozenPeer, FaultKind::FrozenProxy,
            FaultKind::None,
        ][..]),
        scope in prop::sample::select(&[FaultScope::Flow, FaultScope::Pair, FaultScope::Host][..]),
        duration in prop::option::of(1u64..300),
        retries2 in 1u32..16,
        rtt_ms in 0u64..400,
        hz in prop::sample::select(&[100u32, 250, 300, 1000][..]),
    ) -> Case {
        let env = Environment { hz, tcp_retries2: retries2, rtt: Duration::from_millis(rtt_ms), ..Environment::default() };
        let duration = duration.map(Duration::from_secs);
        Case::new(settings, env, Fault { kind, scope, duration }, conditions)
    }
}

fn phases(seed: &[u32]) -> Phases {
    let mut numbers = seed.iter().map(|&n| f64::from(n) / 4_294_967_296.0);
    Phases::from_uniform(|| numbers.next().unwrap_or(0.5))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_window_is_never_empty_negative_or_without_a_reason(case in cases()) {
        let p = predict(&case);
        prop_assert_eq!(p.watchers.len(), Watcher::ALL.len() - 1);
        for w in &p.watchers {
            prop_assert!(!w.why.is_empty());
            let fires = matches!(w.state, WatcherState::Fires | WatcherState::Later);
            prop_assert_eq!(fires, w.lo_s.is_some(), "{:?}", w);
            prop_assert!(w.lo_s.is_none_or(|lo| lo >= 0.0 && lo.is_finite()));
            prop_assert!(w.hi_s.is_none_or(|hi| hi >= w.lo_s.unwrap_or(f64::INFINITY)), "{:?}", w);
        }
        prop_assert_eq!(p.detection.watcher.is_some(), p.detection.lo_s.is_some());
        prop_assert!(p.detection.hi_s.is_none_or(|hi| hi >= p.detection.lo_s.unwrap_or(f64::INFINITY)));
    }

    #[test]
    fn every_drawn_instant_lies_in_the_window(case in cases(), seed in prop::collection::vec(any::<u32>(), 11)) {
        let p = predict(&case);
        let trace = step(&case, &phases(&seed));
        for instant in &trace.fires {
            let line = p.watcher(instant.watcher).unwrap();
            let lo = line.lo_s.unwrap_or(f64::INFINITY);
            prop_assert!(instant.at_s >= lo - 0.02, "{:?} before {:?}", instant, line);
            prop_assert!(line.hi_s.is_none_or(|hi| instant.at_s <= hi + 0.02), "{:?} after {:?}", instant, line);
        }
        match trace.detection {
            Some(d) => {
                prop_assert!(p.detection.lo_s.is_some_and(|lo| d.at_s >= lo - 0.02), "{:?} {:?}", d, p.detection);
                prop_assert!(p.detection.hi_s.is_none_or(|hi| d.at_s <= hi + 0.02), "{:?} {:?}", d, p.detection);
                prop_assert!(p.contenders.contains(&d.watcher), "{:?} {:?}", d, p.contenders);
            }
            None => prop_assert!(p.detection.hi_s.is_none(), "nobody, against {:?}", p.detection),
        }
    }

    #[test]
    fn a_shorter_timeout_never_lengthens_the_detection(
        case in cases(), which in 0usize..4, share in 0.2f64..1.0,
    ) {
        // One moment for both: an unknown age of the closed window would itself range up to the timeout.
        let mut case = case;
        case.conditions.window_closed_for = Some(Duration::ZERO);
        let mut shorter = case.clone();
        let scale = |s: Setting| s.get().map_or(s, |d| Setting::After(d.mul_f64(share).max(Duration::from_millis(1))));
        match which {
            0 => shorter.settings.read_timeout = scale(case.settings.read_timeout),
            1 => shorter.settings.send_timeout = scale(case.settings.send_timeout),
            2 => shorter.settings.tcp_user_timeout = scale(case.settings.tcp_user_timeout),
            _ => shorter.settings.health_check_interval = scale(case.settings.health_check_interval),
        }
        let (before, after) = (predict(&case).detection, predict(&shorter).detection);
        // The documented exception: rounding, at most the step of the longer timeout and a jiffy for each of the two.
        let longer = [
            case.settings.read_timeout, case.settings.send_timeout, case.settings.tcp_user_timeout,
            case.settings.health_check_interval,
        ][which];
        let wheel = case.client.wheel();
        let jiffies = wheel.jiffies(longer.get().unwrap_or_default());
        let step_s = wheel.seconds(wheel.granularity(jiffies) + 2);
        if let (Some(b), Some(a)) = (before.lo_s, after.lo_s) {
            prop_assert!(a <= b + step_s, "{} for {}, step {}", a, b, step_s);
        }
        prop_assert!(before.watcher.is_none() || after.watcher.is_some());
    }
}

/// A consumer that blocks in `recv`, heartbeat 10 s, one message a second that it answers.
fn blocking(thread: HeartbeatThread, conditions: Conditions) -> (Settings, Conditions) {
    let mut s = Settings::stock(Subject::AmqpBlocking, BrokerKind::RabbitMq);
    s.heartbeat = Some(secs(10));
    s.heartbeat_thread = thread;
    let traffic = Traffic { broker_messages: Some(Duration::from_secs(1)), client_acks: true, ..Traffic::default() };
    (s, Conditions { traffic, ..conditions })
}

#[test]
fn the_thread_that_waits_defeats_its_own_heartbeat_and_no_other() {
    for kind in [FaultKind::Both, FaultKind::ToClient, FaultKind::FrozenPeer, FaultKind::FrozenProxy] {
        for call in [false, true] {
            let conditions = Conditions { synchronous_call: call, ..Conditions::default() };
            let (s, c) = blocking(HeartbeatThread::Same, conditions);
            let p = predict(&Case::new(s, env(15), Fault::of(kind), c));
            let line = p.watcher(Watcher::AmqpHeartbeat).unwrap();
            assert_eq!(line.state, WatcherState::Defeated, "{kind:?} {call}");
            assert!(line.why.contains(if call { "thread that waits" } else { "waits in a read" }), "{}", line.why);
            let (s, c) = blocking(HeartbeatThread::Own, conditions);
            let (who, lo, hi) = window(&Case::new(s, env(15), Fault::of(kind), c));
            assert_eq!(who, Some(Watcher::AmqpHeartbeat), "{kind:?} {call}");
            assert!((19.0..=20.0).contains(&lo) && (26.6..26.7).contains(&hi), "{kind:?} {call}: {lo} {hi}");
        }
    }
}

#[test]
fn a_thread_that_waits_on_an_idle_queue_loses_a_healthy_connection_and_messages_save_it() {
    let healthy = |thread, messages: Option<u64>| {
        let (s, mut c) = blocking(thread, Conditions::default());
        c.traffic.broker_messages = messages.map(Duration::from_secs);
        c.traffic.client_acks = messages.is_some();
        predict(&Case::new(s, env(15), Fault::of(FaultKind::None), c))
    };
    let idle = healthy(HeartbeatThread::Same, None);
    assert_eq!(idle.false_alarm.fires_when_healthy, Some((Watcher::BrokerHeartbeat, 30.0)));
    assert_eq!(idle.watcher(Watcher::BrokerHeartbeat).unwrap().state, WatcherState::Fires);
    for (thread, messages) in [(HeartbeatThread::Same, Some(1)), (HeartbeatThread::Own, None)] {
        let p = healthy(thread, messages);
        assert_eq!(p.false_alarm.fires_when_healthy, None, "{thread} {messages:?}");
        assert_eq!(p.watcher(Watcher::BrokerHeartbeat).unwrap().state, WatcherState::NeverTriggered, "{thread}");
    }
}
