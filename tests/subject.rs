//! The child processes on loopback: embedded peer, bare TCP subjects, and what every subject does with silence.

#[path = "support/child.rs"]
#[expect(dead_code, reason = "each test binary uses its own part")]
mod child;

use child::{Child, open, settings, some};
use halfopen::events::{How, Kind, Tuple};
use halfopen::scenario::{Keepalive, SubjectKind};
use halfopen::subject::protocol::{Command, Report};
use halfopen::units::TrialId;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

fn peer() -> (Child, SocketAddrV4) {
    let mut peer = Child::start("__peer", &["--listen", "127.0.0.1:0"]);
    let address = peer.wait("address", |report| match report {
        Report::Event { event } => match &event.kind {
            Kind::Note { text } => text.strip_prefix("listening on ").map(|address| address.parse().unwrap()),
            _ => None,
        },
        _ => None,
    });
    (peer, address)
}

fn listener() -> (TcpListener, SocketAddrV4) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("not IPv4") };
    (listener, address)
}

fn greeted(listener: &TcpListener) -> (BufReader<TcpStream>, String) {
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let mut greeting = String::new();
    stream.read_line(&mut greeting).unwrap();
    stream.get_mut().write_all(b"ok\n").unwrap();
    (stream, greeting)
}

fn connected(child: &mut Child, trial: TrialId) -> Tuple {
    let want = |kind: &Kind| match kind {
        Kind::Connected { tuple, .. } => Some(*tuple),
        _ => None,
    };
    child.event(trial, "connection", want).1
}

#[test]
fn a_silent_link_ends_a_reader_by_its_read_timeout_and_it_reconnects_at_once() {
    let (_peer, address) = peer();
    let mut subject = Child::start("__subject", &[]);
    let mut wanted = settings(SubjectKind::TcpReader);
    wanted.read_timeout = some(2.0);
    wanted.keepalive = Some(Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 9 });
    wanted.tcp_user_timeout = some(30.0);
    subject.tell(&open(address, 1, wanted, None));

    let options = subject.options(1);
    assert_eq!((options.so_rcvtimeo_ms, options.nonblocking), (Some(2000), Some(false)));
    assert_eq!(options.keepalive, Some(true));
    assert_eq!(
        (options.keepalive_idle_s, options.keepalive_interval_s, options.keepalive_probes),
        (Some(60), Some(10), Some(9))
    );
    assert_eq!(options.tcp_user_timeout_ms, Some(30_000));
    let ready = subject.ready(1, 0);
    let (at, attempt, how, errno, _) = subject.notice(1);
    assert_eq!((attempt, how, errno), (0, How::ReadTimeout, Some(libc::EAGAIN)));
    let waited_s = at.since(ready).as_secs_f64();
    // A wheel timer is late by at most an eighth, never early; the rest is a busy machine's.
    assert!((2.0..2.0 * 1.125 + 0.25).contains(&waited_s), "{waited_s} s");
    let again = subject.connecting(1, 1);
    assert!(again.since(at) < Duration::from_millis(500));
    subject.ready(1, 1);
}

#[test]
fn a_reader_counts_the_messages_of_its_peer_and_notices_its_end() {
    let (mut peer, address) = peer();
    let mut subject = Child::start("__subject", &[]);
    subject.tell(&open(address, 3, settings(SubjectKind::TcpReader), Some(Duration::from_millis(50))));
    let tuple = connected(&mut subject, 3);
    let deliveries: Vec<_> = (0..5).map(|number| subject.delivered(3, number)).collect();
    assert!(deliveries.is_sorted());
    let (published, ()) =
        peer.event(3, "publication", |kind| matches!(kind, Kind::Published { message: 4 }).then_some(()));
    assert!(published <= deliveries[4], "published at {published}, delivered at {}", deliveries[4]);

    peer.tell(&Command::Close { trial: 3 });
    let (_, attempt, how, errno, _) = subject.notice(3);
    assert_eq!((attempt, how, errno), (0, How::Eof, None));
    assert_ne!(connected(&mut subject, 3).local, tuple.local);
    subject.ready(3, 1);
    subject.delivered(3, 0);
}

#[test]
fn a_writer_sends_on_its_schedule_and_close_is_quiet() {
    let (mut peer, address) = peer();
    let mut subject = Child::start("__subject", &[]);
    let every = Duration::from_millis(100);
    subject.tell(&open(address, 9, settings(SubjectKind::TcpWriter), Some(every)));
    let tuple = connected(&mut subject, 9);
    let sent: Vec<_> = (0..6)
        .map(|number| {
            let want = |kind: &Kind| matches!(kind, Kind::Sent { message, .. } if *message == number).then_some(());
            let (sent, ()) = subject.event(9, "sending", want);
            let want = |kind: &Kind| matches!(kind, Kind::PeerReceived { message } if *message == number).then_some(());
            let (received, ()) = peer.event(9, "receipt", want);
            assert!(sent <= received);
            sent
        })
        .collect();
    // Never early: each deadline is absolute, so five intervals take no less than five minus one's own lateness.
    assert!(sent[5].since(sent[0]) > every * 4, "{sent:?}");

    subject.tell(&Command::Close { trial: 9 });
    let (_, (ended, how)) = peer.event(9, "end", |kind| match kind {
        Kind::PeerEnded { tuple, cause } => Some((*tuple, cause.how)),
        _ => None,
    });
    assert_eq!((ended, how), (tuple, How::Eof));
    let rest = subject.finish();
    let notices = rest.iter().filter(|report| match report {
        Report::Event { event } => matches!(event.kind, Kind::Notice { .. } | Kind::Connecting { attempt: 1.. }),
        _ => false,
    });
    assert_eq!(notices.count(), 0);
}

#[test]
fn a_writer_notices_a_reset_between_two_messages() {
    let (listener, address) = listener();
    let mut subject = Child::start("__subject", &[]);
    // The next message would be an hour away: only the poll in between can notice.
    subject.tell(&open(address, 2, settings(SubjectKind::TcpWriter), Some(Duration::from_secs(3600))));
    let (stream, greeting) = greeted(&listener);
    assert_eq!(greeting, "W 2\n");
    let ready = subject.ready(2, 0);
    socket2::SockRef::from(stream.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let (at, _, how, errno, _) = subject.notice(2);
    assert_eq!((how, errno), (How::Errno, Some(libc::ECONNRESET)));
    assert!(at.since(ready) < Duration::from_secs(30));
    let (_again, greeting) = greeted(&listener);
    assert_eq!(greeting, "W 2\n");
    subject.ready(2, 1);
}

#[test]
fn every_subject_gives_up_a_handshake_that_stays_unanswered() {
    let (listener, address) = listener();
    let mut subject = Child::start("__subject", &[]);
    for (trial, kind) in SubjectKind::ALL.into_iter().filter(|kind| !kind.is_command()).enumerate() {
        let trial = trial as TrialId;
        let mut wanted = settings(kind);
        wanted.connect_timeout = some(0.5);
        subject.tell(&open(address, trial, wanted, Some(Duration::from_secs(1))));
        let started = subject.connecting(trial, 0);
        let (mut stream, _) = listener.accept().unwrap();
        let (at, attempt, how, _) = subject.connect_failed(trial);
        assert_eq!((attempt, how), (0, How::ConnectTimeout), "{kind}");
        let waited_s = at.since(started).as_secs_f64();
        // The redis crate reads the answer to each of its two set-up commands under the whole limit.
        let answers = if kind == SubjectKind::RedisBlocking { 2.0 } else { 1.0 };
        assert!((0.5 * answers..0.5 * answers + 0.5).contains(&waited_s), "{kind}: {waited_s} s");
        // The half-finished connection is closed, not leaked: its greeting, then the end.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let again = subject.connecting(trial, 1);
        assert!((1.0..1.5).contains(&again.since(at).as_secs_f64()), "{kind}");
        subject.tell(&Command::Close { trial });
        drop(listener.accept().unwrap());
    }
}

#[test]
fn every_subject_reports_a_refusal_with_its_number() {
    let (listener, address) = listener();
    drop(listener);
    let mut subject = Child::start("__subject", &[]);
    for (trial, kind) in SubjectKind::ALL.into_iter().filter(|kind| !kind.is_command()).enumerate() {
        let trial = trial as TrialId;
        subject.tell(&open(address, trial, settings(kind), Some(Duration::from_secs(1))));
        let (_, attempt, how, errno) = subject.connect_failed(trial);
        assert_eq!((attempt, how, errno), (0, How::Errno, Some(libc::ECONNREFUSED)), "{kind}");
    }
}

#[test]
fn one_process_hosts_two_thousand_readers() {
    const READERS: TrialId = 2000;
    let (mut peer, address) = peer();
    let mut subject = Child::start("__subject", &[]);
    for trial in 0..READERS {
        subject.tell(&open(address, trial, settings(SubjectKind::TcpReader), None));
    }
    for trial in 0..READERS {
        subject.ready(trial, 0);
    }
    peer.tell(&Command::Close { trial: 1234 });
    assert_eq!(subject.notice(1234).2, How::Eof);
    subject.finish();
}

#[test]
fn the_versions_of_the_libraries_are_said_first() {
    let subject = Child::start("__subject", &[]);
    assert!(["halfopen", "amq-protocol", "lapin", "redis"].iter().all(|name| subject.versions.contains_key(*name)));
}
