use super::*;
use crate::plan::{Overrides, build};
use crate::scenario::read;
use std::net::SocketAddrV4;

const SECOND: i64 = 1_000_000_000;

fn plan(profile: &str, subject: &str, fault: &str) -> Plan {
    let text = format!(
        "# Who notices?\n[scenario]\nname = \"t\"\nhorizon = \"200s\"\ntrials = 1\nsettle = \"1s\"\n\
         [[arm]]\nname = \"a\"\nexpect = \"censored\"\n{subject}\n[fault]\nprofile = \"{profile}\"\nat = \"1s\"\n{fault}\n"
    );
    build(read("t.toml", &text).unwrap(), &Overrides::default()).unwrap()
}

struct Story {
    outside: Outside,
    client: Ipv4Addr,
    server: Ipv4Addr,
    told: Vec<Event>,
}

fn at(seconds: i64) -> Offset {
    Offset(seconds * SECOND)
}

impl Story {
    fn of(profile: &str) -> Self {
        Self::told(profile, "subject = \"celery\"", "", false)
    }

    fn with(profile: &str, subject: &str, fault: &str) -> Self {
        Self::told(profile, subject, fault, true)
    }

    fn told(profile: &str, subject: &str, fault: &str, roles_are_told: bool) -> Self {
        let plan = plan(profile, subject, fault);
        let trial = &plan.trials[0];
        Self {
            outside: Outside::of(&plan, roles_are_told),
            client: trial.client,
            server: trial.server,
            told: Vec::new(),
        }
    }

    fn tuple(&self, port: u16) -> Tuple {
        Tuple { local: SocketAddrV4::new(self.client, port), peer: SocketAddrV4::new(self.server, 5672) }
    }

    fn socket(&mut self, seconds: i64, port: u16, (old, new): (i32, i32), errno: i32) {
        let change =
            SocketChange { at: at(seconds), tuple: self.tuple(port), old, new, errno: Some(errno), not_before: None };
        self.told.extend(self.outside.on_socket(change));
    }

    fn connect(&mut self, seconds: i64, port: u16) {
        self.socket(seconds, 0, (7, SYN_SENT), 0);
        self.socket(seconds, port, (SYN_SENT, ESTABLISHED), 0);
    }

    fn event(&mut self, seconds: i64, source: Source, kind: Kind) {
        self.told.extend(self.outside.on_event(Event::of_trial(at(seconds), source, 0, kind)));
    }

    fn consumer(&mut self, seconds: i64, port: u16) {
        let tuple = self.tuple(port);
        self.event(seconds, Source::Peer, Kind::Role { tuple, role: "consumer".into(), from: String::new() });
    }

    fn ready(&mut self, seconds: i64) {
        self.event(seconds, Source::Subject, Kind::Ready { attempt: 0 });
    }

    fn cut(&mut self, seconds: i64, port: u16) {
        let (tuple, after) = (self.tuple(port), at(seconds));
        let kind = Kind::FaultApplied { tuple, before: after, after, age_at_fault_s: None };
        self.event(seconds, Source::Harness, kind);
    }

    /// Seconds and attempt of the notices, with how.
    fn notices(&self) -> Vec<(i64, u32, How)> {
        let of = |e: &Event| match &e.kind {
            Kind::Notice { attempt, cause } => Some((e.offset.0 / SECOND, *attempt, cause.how)),
            _ => None,
        };
        self.told.iter().filter_map(of).collect()
    }

    fn ports_by_attempt(&self) -> Vec<(u32, u16)> {
        let of = |e: &Event| match &e.kind {
            Kind::Connected { attempt, tuple } => Some((*attempt, tuple.local.port())),
            _ => None,
        };
        self.told.iter().filter_map(of).collect()
    }
}

#[test]
fn the_consumer_is_attempt_0_whatever_came_before_it_and_keeps_its_instant() {
    let mut story = Story::of("frozen-proxy");
    story.connect(1, 1001);
    story.connect(2, 1002);
    story.consumer(3, 1002);
    assert!(story.ports_by_attempt().is_empty(), "nothing is numbered before it consumes");
    story.ready(4);
    story.connect(5, 1003);
    assert_eq!(story.ports_by_attempt(), [(1, 1001), (0, 1002), (2, 1003)]);
    let ready = story.told.iter().filter(|e| matches!(e.kind, Kind::Ready { attempt: 0 })).count();
    assert_eq!(ready, 1);
    assert_eq!(story.outside.open(0).len(), 3);
}

#[test]
fn with_a_proxy_the_word_waits_for_the_subscription_and_without_one_it_does_not() {
    let mut story = Story::of("frozen-proxy");
    story.connect(1, 1001);
    story.ready(2);
    assert!(story.told.is_empty());
    story.consumer(3, 1001);
    assert_eq!(story.ports_by_attempt(), [(0, 1001)]);
    let mut story = Story::of("blackhole");
    story.ready(1);
    story.connect(2, 1001);
    assert_eq!(story.ports_by_attempt(), [(0, 1001)], "the word came first, the connection is under test all the same");
}

#[test]
fn closing_the_consumers_connection_is_the_notice_and_a_new_connection_of_something_else_is_not() {
    let mut story = Story::of("frozen-proxy");
    story.connect(1, 1001);
    story.connect(1, 1002);
    story.consumer(2, 1001);
    story.ready(3);
    story.cut(10, 1001);
    story.connect(15, 1003);
    story.socket(16, 1002, (ESTABLISHED, FIN_WAIT1), 0);
    assert_eq!(story.notices(), [(16, 1, How::Other)]);
    let text = "Connection to broker lost (TimeoutError())".to_string();
    story.event(80, Source::Subject, Kind::Said { how: How::ReadTimeout, text });
    story.socket(80, 1001, (ESTABLISHED, CLOSE), 0);
    assert_eq!(story.notices()[1..], [(80, 0, How::ReadTimeout)]);
}

#[test]
fn its_word_and_a_new_connection_are_a_notice_where_the_end_of_the_old_one_was_not_seen() {
    for word_first in [true, false] {
        let mut story = Story::of("frozen-proxy");
        story.connect(1, 1001);
        story.consumer(2, 1001);
        story.ready(3);
        story.cut(10, 1001);
        let text = "Connection to broker lost".to_string();
        let said = Kind::Said { how: How::AmqpHeartbeat, text };
        if word_first {
            story.event(30, Source::Subject, said);
            assert!(story.notices().is_empty(), "a word alone is none");
            story.connect(30, 1002);
        } else {
            story.connect(30, 1002);
            assert!(story.notices().is_empty(), "a new connection alone is none");
            story.event(30, Source::Subject, said);
        }
        assert_eq!(story.notices(), [(30, 0, How::AmqpHeartbeat)]);
    }
}

#[test]
fn a_close_by_the_peer_is_noticed_when_the_client_answers_it() {
    let mut story = Story::of("frozen-proxy");
    story.connect(1, 1001);
    story.consumer(1, 1001);
    story.ready(2);
    story.socket(50, 1001, (ESTABLISHED, CLOSE_WAIT), 0);
    assert!(story.notices().is_empty());
    story.socket(52, 1001, (CLOSE_WAIT, 9), 0);
    assert_eq!(story.notices(), [(52, 0, How::Eof)]);
}

#[test]
fn what_the_kernel_ended_is_noticed_with_the_next_handshake() {
    let mut story = Story::of("blackhole");
    story.connect(1, 1001);
    story.ready(2);
    story.cut(10, 1001);
    story.socket(20, 1001, (ESTABLISHED, CLOSE), 110);
    assert!(story.notices().is_empty());
    story.socket(33, 0, (7, SYN_SENT), 0);
    assert_eq!(story.notices(), [(33, 0, How::Other)]);
    story.socket(40, 1002, (SYN_SENT, CLOSE), 110);
    let failed = story
        .told
        .iter()
        .any(|e| matches!(&e.kind, Kind::ConnectFailed { attempt: 1, cause } if cause.errno == Some(110)));
    assert!(failed, "{:?}", story.told);
}

#[test]
fn an_end_that_is_told_after_the_next_handshake_was_noticed_with_it_all_the_same() {
    let mut story = Story::of("blackhole");
    story.connect(1, 1001);
    story.ready(2);
    story.consumer(2, 1001);
    story.cut(10, 1001);
    story.socket(21, 0, (7, SYN_SENT), 0);
    assert!(story.notices().is_empty(), "the consumer's connection seems to be there");
    story.socket(20, 1001, (ESTABLISHED, CLOSE), 110);
    assert_eq!(story.notices(), [(21, 0, How::Other)]);
}

#[test]
fn a_subscription_is_readiness_where_nothing_else_is_asked_for() {
    let mut story = Story::with("blackhole", "subject = \"redis-py\"", "");
    story.connect(1, 1001);
    story.connect(1, 1002);
    story.consumer(3, 1002);
    assert_eq!(story.ports_by_attempt(), [(1, 1001), (0, 1002)]);
    assert_eq!(story.told.iter().filter(|e| matches!(e.kind, Kind::Ready { attempt: 0 })).count(), 1);
    // Without messages the next subscription is "consuming again".
    story.cut(10, 1002);
    story.socket(20, 1002, (ESTABLISHED, FIN_WAIT1), 0);
    // What it sends is heard before the kernel's word of the connection comes.
    story.connect(21, 1003);
    story.consumer(22, 1003);
    assert!(story.told.iter().any(|e| matches!(e.kind, Kind::Ready { attempt: 2 })), "{:?}", story.told);
}

#[test]
fn another_connection_than_the_consumers_can_be_the_one_under_test() {
    let mut story = Story::with("blackhole", "subject = \"celery-redis\"", "connection = \"control\"");
    story.connect(1, 1001);
    story.connect(1, 1002);
    story.consumer(2, 1001);
    story.ready(2);
    assert!(story.told.iter().all(|e| !matches!(e.kind, Kind::Ready { .. })));
    let tuple = story.tuple(1002);
    story.event(3, Source::Broker, Kind::Role { tuple, role: "control".into(), from: String::new() });
    assert_eq!(story.ports_by_attempt(), [(1, 1001), (0, 1002)]);
}

#[test]
fn a_number_of_connections_is_enough_where_that_is_asked_for() {
    let mut story = Story::with("blackhole", "subject = { command = [\"x\"], ready = \"connections: 2\" }", "");
    story.connect(1, 1001);
    assert!(story.told.is_empty());
    story.connect(2, 1002);
    assert_eq!(story.ports_by_attempt(), [(0, 1001), (1, 1002)]);
}

#[test]
fn consuming_again_is_a_message_from_after_the_notice_that_is_done() {
    let mut story = Story::of("frozen-proxy");
    story.connect(1, 1001);
    story.consumer(1, 1001);
    story.ready(2);
    story.cut(10, 1001);
    story.event(11, Source::Producer, Kind::Published { message: 1 });
    story.socket(20, 1001, (ESTABLISHED, FIN_WAIT1), 0);
    story.connect(21, 1002);
    story.event(22, Source::Producer, Kind::Published { message: 2 });
    story.event(23, Source::Subject, Kind::Effect { message: 1 });
    let readies = |story: &Story| story.told.iter().filter(|e| matches!(e.kind, Kind::Ready { attempt: 1 })).count();
    assert_eq!(readies(&story), 0, "that one was published before");
    story.event(24, Source::Subject, Kind::Effect { message: 2 });
    story.event(25, Source::Subject, Kind::Effect { message: 2 });
    assert_eq!(readies(&story), 1);
}

#[test]
fn a_message_proves_it_whichever_of_its_ends_is_heard_of_first() {
    let published = |story: &mut Story| story.event(22, Source::Producer, Kind::Published { message: 2 });
    let done = |story: &mut Story| story.event(23, Source::Subject, Kind::Effect { message: 2 });
    let noticed = |story: &mut Story| {
        story.socket(20, 1001, (ESTABLISHED, FIN_WAIT1), 0);
        story.connect(21, 1002);
    };
    type Step<'a> = &'a dyn Fn(&mut Story);
    let orders: [[Step; 3]; 4] = [
        [&noticed, &published, &done],
        [&noticed, &done, &published],
        [&published, &done, &noticed],
        [&done, &noticed, &published],
    ];
    for order in orders {
        let mut story = Story::of("frozen-proxy");
        story.connect(1, 1001);
        story.consumer(1, 1001);
        story.ready(2);
        story.cut(10, 1001);
        order.iter().for_each(|step| step(&mut story));
        // One that comes later changes nothing.
        story.event(25, Source::Producer, Kind::Published { message: 3 });
        story.event(26, Source::Subject, Kind::Effect { message: 3 });
        let readies: Vec<_> = story.told.iter().filter(|e| matches!(e.kind, Kind::Ready { attempt: 1 })).collect();
        assert_eq!(readies.iter().map(|e| e.offset).collect::<Vec<_>>(), [at(23)]);
    }
}

#[test]
fn what_follows_the_end_of_the_trial_is_not_told() {
    let mut story = Story::of("frozen-proxy");
    story.connect(1, 1001);
    story.consumer(1, 1001);
    story.ready(2);
    story.outside.end(0);
    story.socket(9, 1001, (ESTABLISHED, CLOSE), 0);
    assert!(story.notices().is_empty());
}

#[test]
fn one_that_was_there_before_has_its_oldest_connection_under_test_and_consumes_again_with_a_subscription() {
    let target = "target = { compose = \"demo\", service = \"worker\" }";
    let mut story = Story::told("blackhole", target, "", true);
    let there = [story.tuple(1001), story.tuple(1002)];
    let told = story.outside.attach(0, at(1), &there);
    story.told.extend(told);
    assert_eq!(story.ports_by_attempt(), [(0, 1001), (1, 1002)]);
    assert!(story.told.iter().any(|e| matches!(e.kind, Kind::Ready { attempt: 0 })));
    story.cut(3, 1001);
    // Another connection of the same client is no notice while the one under test is there.
    story.connect(4, 1003);
    assert_eq!(story.notices(), []);
    // The subscription is heard before the kernel's word of the connection, and both before the notice.
    story.consumer(6, 1004);
    story.connect(6, 1004);
    story.socket(7, 1001, (ESTABLISHED, FIN_WAIT1), 0);
    assert_eq!(story.notices(), [(7, 0, How::Other)]);
    let again: Vec<i64> = story
        .told
        .iter()
        .filter(|e| matches!(e.kind, Kind::Ready { attempt: 3 }))
        .map(|e| e.offset.0 / SECOND)
        .collect();
    assert_eq!(again, [6]);
}
