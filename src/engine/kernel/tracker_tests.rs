use super::*;
use crate::events::{Cause, How};
use crate::plan::{Overrides, build};
use crate::scenario::read;
use std::net::{Ipv4Addr, SocketAddrV4};

const SECOND: i64 = 1_000_000_000;

fn plan(fault: &str, extra: &str) -> Plan {
    let text = format!(
        "# Who notices?\n[scenario]\nname = \"t\"\nhorizon = \"20s\"\nseed = 1\ntrials = 2\nsettle = \"1s\"\n\
         [defaults]\nsubject = \"tcp-reader\"\nkeepalive = {{ idle = \"1s\", interval = \"1s\", probes = 1 }}\n\
         [[arm]]\nname = \"a\"\n{extra}\n{fault}\n"
    );
    build(read("t.toml", &text).unwrap(), &Overrides::default()).unwrap()
}

fn blackhole() -> Plan {
    plan("[fault]\nprofile = \"blackhole\"\nscope = \"flow\"", "")
}

fn at(seconds: i64) -> Offset {
    Offset(seconds * SECOND)
}

fn tuple(port: u16) -> Tuple {
    let end = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    Tuple { local: end(port), peer: end(7000) }
}

fn event(seconds: i64, trial: TrialId, kind: Kind) -> Event {
    Event::of_trial(at(seconds), Source::Subject, trial, kind)
}

fn open(tracker: &mut Tracker<'_>, trial: TrialId, seconds: i64) {
    tracker.on_event(&event(seconds, trial, Kind::Connected { attempt: 0, tuple: tuple(trial as u16) }));
    tracker.on_event(&event(seconds, trial, Kind::Ready { attempt: 0 }));
}

fn notice(attempt: u32) -> Kind {
    Kind::Notice { attempt, cause: Cause { how: How::Errno, errno: Some(110), text: String::new() } }
}

fn applied(trial: TrialId, seconds: i64) -> Event {
    let (before, after) = (at(seconds), at(seconds));
    event(seconds, trial, Kind::FaultApplied { tuple: tuple(trial as u16), before, after, age_at_fault_s: None })
}

#[test]
fn cuts_wait_for_the_slowest_and_keep_their_phases() {
    let plan = blackhole();
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    assert_eq!(tracker.tick(at(2)), []);
    open(&mut tracker, 1, 5);
    let orders = tracker.tick(at(5));
    let due: Vec<Offset> =
        orders.iter().map(|o| if let Order::Cut { at, .. } = o { *at } else { panic!("{o:?}") }).collect();
    let expected: Vec<Offset> = plan.trials.iter().map(|t| at(6) + t.phase).collect();
    assert_eq!(due, expected);
}

#[test]
fn a_connection_that_never_opens_ends_its_trial_and_holds_nobody_up_for_ever() {
    let plan = blackhole();
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    assert_eq!(tracker.tick(at(29)), []);
    assert_eq!(tracker.next_deadline(), Some(at(30)));
    let orders = tracker.tick(at(30));
    assert!(
        matches!(orders[..], [Order::Cut { trial: 0, .. }, Order::End { trial: 1, why: "complete" }]),
        "{orders:?}"
    );
}

#[test]
fn a_trial_goes_on_until_its_horizon_unless_nothing_more_can_be_learnt() {
    let plan = blackhole();
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    open(&mut tracker, 1, 1);
    tracker.tick(at(1));
    tracker.on_event(&applied(0, 3));
    tracker.on_event(&applied(1, 3));
    assert_eq!(tracker.on_event(&event(5, 0, notice(0))), [Order::Certify(0)]);
    assert_eq!(tracker.tick(at(6)), [], "not yet recovered");
    tracker.on_event(&event(6, 0, Kind::Ready { attempt: 1 }));
    let end = Kind::KernelEnd { tuple: tuple(0), errno: Some(110), not_before: None, by: "tracepoint".into() };
    let ended = tracker.on_event(&Event::of_trial(at(5), Source::Kernel, 0, end));
    assert_eq!(ended, [Order::End { trial: 0, why: "complete" }]);
    assert_eq!(tracker.tick(at(7)), []);
    assert_eq!(tracker.tick(at(22)), []);
    assert_eq!(tracker.next_deadline(), Some(at(23)));
    assert_eq!(tracker.tick(at(23)), [Order::End { trial: 1, why: "horizon" }]);
    assert!(tracker.finished());
}

#[test]
fn a_control_is_watched_as_long_as_the_others() {
    let plan = plan("[fault]\nprofile = \"none\"", "");
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    open(&mut tracker, 1, 1);
    // It is cut of nothing at the instant that the others are cut, and dated from there.
    for order in tracker.tick(at(1)) {
        let Order::Cut { trial, at, tuple } = order else { panic!("{order:?}") };
        let kind = Kind::FaultApplied { tuple, before: at, after: at, age_at_fault_s: None };
        tracker.on_event(&Event::of_trial(at, Source::Harness, trial, kind));
    }
    let end = |trial: usize| at(2) + plan.trials[trial].phase + plan.scenario.horizon;
    let (first, last) = if plan.trials[0].phase < plan.trials[1].phase { (0, 1) } else { (1, 0) };
    assert_eq!(tracker.next_deadline(), Some(end(first)));
    assert_eq!(tracker.tick(end(first)), [Order::End { trial: first as u32, why: "horizon" }]);
    assert_eq!(tracker.tick(end(last)), [Order::End { trial: last as u32, why: "horizon" }]);
}

#[test]
fn a_false_alarm_before_the_cut_ends_the_trial_at_once() {
    let plan = blackhole();
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    assert_eq!(tracker.on_event(&event(2, 0, notice(0))), [Order::End { trial: 0, why: "complete" }]);
    assert_eq!(tracker.on_event(&event(2, 0, notice(0))), []);
}

#[test]
fn a_fault_with_a_duration_is_healed_on_time() {
    let plan = plan("[fault]\nprofile = \"blackhole\"\nscope = \"host\"\nduration = \"5s\"", "");
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    open(&mut tracker, 1, 1);
    tracker.tick(at(1));
    assert_eq!(tracker.next_deadline(), None, "nothing is cut yet");
    assert_eq!(tracker.on_event(&applied(0, 3)), [Order::Heal { trial: 0, at: at(8) }]);
}

#[test]
fn an_interrupt_ends_what_has_not_ended() {
    let plan = blackhole();
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    tracker.on_event(&event(2, 0, notice(0)));
    assert_eq!(tracker.interrupt(), [Order::End { trial: 1, why: "interrupted" }]);
    assert!(tracker.finished());
}

#[test]
fn with_messages_a_bare_connection_is_watched_until_one_gets_through_again() {
    let plan = plan("[fault]\nprofile = \"blackhole\"\nscope = \"flow\"", "[load]\nrate = \"1/s\"");
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    open(&mut tracker, 1, 1);
    tracker.tick(at(1));
    tracker.on_event(&applied(0, 3));
    let end = Kind::KernelEnd { tuple: tuple(0), errno: Some(110), not_before: None, by: "tracepoint".into() };
    let delivered = |attempt| Kind::Delivered { attempt, message: 9, redelivered: false };
    assert_eq!(tracker.on_event(&event(4, 0, delivered(0))), []);
    tracker.on_event(&event(5, 0, notice(0)));
    tracker.on_event(&Event::of_trial(at(5), Source::Kernel, 0, end));
    assert_eq!(tracker.on_event(&event(6, 0, Kind::Ready { attempt: 1 })), []);
    let ended = tracker.on_event(&event(7, 0, delivered(1)));
    assert_eq!(ended, [Order::End { trial: 0, why: "complete" }]);
}

#[test]
fn a_fault_comes_again_as_often_as_it_should_and_heals_each_time() {
    let fault = "[fault]\nprofile = \"blackhole\"\nscope = \"host\"\nduration = \"2s\"\nrepeat = 3\npause = \"1s\"";
    let plan = plan(fault, "");
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    open(&mut tracker, 1, 1);
    tracker.tick(at(1));
    assert_eq!(tracker.on_event(&applied(0, 3)), [Order::Heal { trial: 0, at: at(5) }]);
    for (time, from) in [(2, 5), (3, 8)] {
        let healed = Kind::FaultHealed { before: at(from), after: at(from) };
        let orders = tracker.on_event(&event(from, 0, healed));
        assert_eq!(orders, [Order::Again { trial: 0, at: at(from + 1), time }]);
        let again = Kind::FaultRepeated { time, before: at(from + 1), after: at(from + 1) };
        assert_eq!(tracker.on_event(&event(from + 1, 0, again)), [Order::Heal { trial: 0, at: at(from + 3) }]);
    }
    let healed = Kind::FaultHealed { before: at(11), after: at(11) };
    assert_eq!(tracker.on_event(&event(11, 0, healed)), [], "three times are enough");
}

#[test]
fn a_cut_in_flight_waits_for_the_next_delivery_after_its_phase() {
    let fault = "[fault]\nprofile = \"blackhole\"\nat = \"in-flight\"\nphase_window = \"1s\"";
    let plan = plan(fault, "[load]\nrate = \"1/s\"");
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    open(&mut tracker, 0, 1);
    open(&mut tracker, 1, 1);
    assert_eq!(tracker.tick(at(1)), []);
    let delivered = Kind::Delivered { attempt: 0, message: 1, redelivered: false };
    assert_eq!(tracker.on_event(&event(1, 0, delivered.clone())), [], "before its phase");
    let orders = tracker.on_event(&event(4, 0, delivered.clone()));
    assert_eq!(orders, [Order::Cut { trial: 0, at: at(4), tuple: tuple(0) }]);
    assert_eq!(tracker.on_event(&event(5, 0, delivered)), [], "it is cut once");
    // Nothing was ever delivered to the other: it is given up a horizon after its phase, not waited for for ever.
    assert_eq!(tracker.tick(at(24)), [Order::End { trial: 1, why: "horizon" }]);
}

#[test]
fn a_synchronous_call_is_made_when_the_cut_is_in_force() {
    let call = "[[arm]]\nname = \"b\"\nsubject = \"amqp-blocking\"\nsync_call = \"basic.qos\"\nheartbeat = \"2s\"";
    let plan = plan("[fault]\nprofile = \"blackhole\"", call);
    let mut tracker = Tracker::new(&plan, at(0), Duration::from_secs(30));
    (0..4).for_each(|trial| open(&mut tracker, trial, 1));
    tracker.tick(at(1));
    // Of the arm that makes calls, and of no other.
    for trial in &plan.trials {
        let wanted: Vec<Order> = (trial.arm == 1).then_some(Order::Call(trial.id)).into_iter().collect();
        assert_eq!(tracker.on_event(&applied(trial.id, 3)), wanted);
    }
}
