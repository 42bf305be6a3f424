//! A connection whose broker is the other end of a socket pair.

use super::super::amqp_handshake::{Agreed, Wishes, shake_hands};
use super::super::amqp_heartbeat::Heartbeat;
use super::super::amqp_ticker::Ticker;
use super::*;
use crate::events::Source;
use crate::host::clock::Clock;
use amq_protocol::frame::AMQPContentHeader;
use amq_protocol::protocol::basic::AMQPProperties;
use amq_protocol::protocol::queue;
use socket2::{Domain, Type};
use std::thread;
use std::time::Duration;

fn reporter() -> Reporter {
    Reporter::start(Clock::from_zero(0), Source::Subject, io::sink()).0
}

fn pair() -> (Wire, Socket) {
    let (own, broker) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
    (Wire::new(own, 4096, reporter(), None, None).unwrap(), broker)
}

fn deliver() -> AMQPFrame {
    let deliver = basic::Deliver { delivery_tag: 9, redelivered: true, ..basic::Deliver::default() };
    AMQPFrame::Method(CHANNEL, AMQPClass::Basic(basic::AMQPMethod::Deliver(deliver)))
}

fn header(body_size: u64) -> AMQPFrame {
    AMQPFrame::Header(CHANNEL, AMQPContentHeader { class_id: 60, body_size, properties: AMQPProperties::default() })
}

fn body(bytes: &[u8]) -> AMQPFrame {
    AMQPFrame::Body(CHANNEL, bytes.to_vec())
}

fn say(broker: &mut Socket, frames: &[AMQPFrame]) {
    for frame in frames {
        broker.write_all(&encode(frame).unwrap()).unwrap();
    }
}

fn failure(frames: &[AMQPFrame]) -> Failure {
    let (mut wire, mut broker) = pair();
    say(&mut broker, frames);
    wire.next().unwrap_err()
}

#[test]
fn a_message_is_whole_or_not_there_and_heartbeats_only_count() {
    let (mut wire, mut broker) = pair();
    say(&mut broker, &[AMQPFrame::Heartbeat, deliver(), header(4), body(b"12"), AMQPFrame::Heartbeat]);
    wire.receive().unwrap();
    assert_eq!(wire.buffered().unwrap(), None);
    assert_eq!(wire.line().counts(), (0, 5));
    say(&mut broker, &[body(b"34"), deliver(), header(0)]);
    let message = |body: &[u8]| Arrival::Message { tag: 9, redelivered: true, body: body.to_vec() };
    assert_eq!(wire.next().unwrap(), message(b"1234"));
    assert_eq!(wire.next().unwrap(), message(b""));
}

#[test]
fn a_read_timeout_ends_a_read_that_has_no_header_and_no_other() {
    let (mut wire, mut broker) = pair();
    wire.read_for_ever(Some(Duration::from_millis(20)), None).unwrap();
    let is_timeout = |failure: Failure| failure.cause(How::ReadTimeout).how == How::ReadTimeout;
    assert!(is_timeout(wire.receive().unwrap_err()));
    let bytes = encode(&deliver()).unwrap();
    // Six bytes are no header.
    broker.write_all(&bytes[..6]).unwrap();
    wire.receive().unwrap();
    assert!(is_timeout(wire.receive().unwrap_err()));
    // With the seventh py-amqp reads on.
    broker.write_all(&bytes[6..7]).unwrap();
    wire.receive().unwrap();
    wire.receive().unwrap();
    broker.write_all(&bytes[7..]).unwrap();
    wire.receive().unwrap();
    assert_eq!(wire.buffered().unwrap(), None);
    assert!(is_timeout(wire.receive().unwrap_err()));
    assert_eq!(wire.line().counts(), (0, 1));
}

#[test]
fn what_nobody_waits_for_ends_the_connection() {
    for frames in [
        vec![header(1)],
        vec![body(b"1")],
        vec![deliver(), body(b"1")],
        vec![deliver(), header(1), header(1)],
        vec![deliver(), deliver()],
        vec![deliver(), header(1), body(b"22")],
    ] {
        let failure = failure(&frames);
        assert!(matches!(failure, Failure::Unexpected(_)), "{frames:?}: {failure}");
        assert_eq!(failure.cause(How::ReadTimeout).how, How::Other);
    }
}

#[test]
fn bytes_that_are_no_frame_are_said_and_not_mistaken_for_the_peers_end() {
    let (mut wire, mut broker) = pair();
    broker.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    let cause = wire.next().unwrap_err().cause(How::ReadTimeout);
    assert_eq!((cause.how, cause.text.as_str()), (How::Other, "malformed: a frame of unknown type 72"));
}

#[test]
fn the_brokers_own_words_are_kept_and_answered() {
    let (mut wire, mut broker) = pair();
    let close =
        connection::Close { reply_code: 320, reply_text: "CONNECTION_FORCED - bye".into(), ..Default::default() };
    say(&mut broker, &[AMQPFrame::Method(0, AMQPClass::Connection(connection::AMQPMethod::Close(close)))]);
    let cause = wire.next().unwrap_err().cause(How::ReadTimeout);
    assert_eq!((cause.how, cause.text.as_str()), (How::ClosedByPeer, "320 CONNECTION_FORCED - bye"));
    let mut answer = [0; 64];
    let length = broker.read(&mut answer).unwrap();
    let close_ok = AMQPClass::Connection(connection::AMQPMethod::CloseOk(connection::CloseOk {}));
    assert_eq!(answer[..length], encode(&AMQPFrame::Method(0, close_ok)).unwrap());

    let cancel = AMQPFrame::Method(CHANNEL, AMQPClass::Basic(basic::AMQPMethod::Cancel(basic::Cancel::default())));
    assert_eq!(failure(&[cancel]).to_string(), "the consumer was cancelled");
    let (mut wire, broker) = pair();
    drop(broker);
    assert_eq!(wire.next().unwrap_err().cause(How::ReadTimeout).how, How::Eof);
}

/// The broker's half of the handshake, one frame for each of the client's.
fn broker_says(frame_max: u32, heartbeat: u16) -> Vec<AMQPFrame> {
    use connection::AMQPMethod as C;
    let connection = |method| AMQPFrame::Method(0, AMQPClass::Connection(method));
    let on_channel = |method| AMQPFrame::Method(CHANNEL, method);
    vec![
        connection(C::Start(connection::Start { mechanisms: "PLAIN".to_string().into(), ..Default::default() })),
        connection(C::Tune(connection::Tune { channel_max: 2047, frame_max, heartbeat })),
        connection(C::OpenOk(connection::OpenOk {})),
        on_channel(AMQPClass::Channel(channel::AMQPMethod::OpenOk(channel::OpenOk {}))),
        on_channel(AMQPClass::Basic(basic::AMQPMethod::QosOk(basic::QosOk {}))),
        on_channel(AMQPClass::Queue(queue::AMQPMethod::DeclareOk(queue::DeclareOk::default()))),
        on_channel(AMQPClass::Basic(basic::AMQPMethod::ConsumeOk(basic::ConsumeOk::default()))),
    ]
}

fn wishes(heartbeat_s: u16) -> Wishes<'static> {
    Wishes {
        user: "",
        password: "",
        name: "test".into(),
        heartbeat_s,
        frame_max: 4096,
        queue: "q",
        durable: false,
        tag: "t".into(),
        prefetch: Some(4),
    }
}

#[test]
fn the_handshake_negotiates_as_py_amqp_does() {
    for (asked, offered, heartbeat_s, frame_max) in [(10, 60, 10, 4096), (0, 60, 0, 4096), (10, 0, 10, 4096)] {
        let (mut wire, mut broker) = pair();
        let mut frames = broker_says(131_072, offered);
        frames.insert(2, AMQPFrame::Heartbeat);
        say(&mut broker, &frames);
        assert_eq!(shake_hands(&mut wire, &wishes(asked)).unwrap(), Agreed { heartbeat_s, frame_max });
        drop(wire);
        let mut said = Vec::new();
        broker.read_to_end(&mut said).unwrap();
        assert!(said.starts_with(b"AMQP\0\0\x09\x01"));
        let tune_ok = connection::TuneOk { channel_max: 2047, frame_max, heartbeat: heartbeat_s };
        let tune_ok = AMQPFrame::Method(0, AMQPClass::Connection(connection::AMQPMethod::TuneOk(tune_ok)));
        let tune_ok = encode(&tune_ok).unwrap();
        assert!(said.windows(tune_ok.len()).any(|bytes| bytes == tune_ok), "no tune-ok in {said:?}");
    }
    let (mut wire, mut broker) = pair();
    say(&mut broker, &broker_says(0, 0)[2..]);
    let refused = shake_hands(&mut wire, &wishes(0)).unwrap_err();
    assert!(matches!(refused, Failure::Unexpected(_)), "{refused}");
}

#[test]
fn a_thread_of_its_own_sends_heartbeats_and_ends_a_silent_connection() {
    let (mut wire, mut broker) = pair();
    let reporter = reporter();
    let heartbeat = Heartbeat::start(1, reporter.now()).unwrap();
    let ticker = Ticker::start(heartbeat, wire.line().clone(), wire.socket(), reporter.clone()).unwrap();
    let started = reporter.now();
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        broker.read_to_end(&mut said).unwrap();
        said
    });
    // Blocked in a read without a limit, until the other thread shuts the socket down.
    let cause = wire.next().unwrap_err().cause(How::ReadTimeout);
    assert_eq!(cause.how, How::Eof);
    let (at, cause) = ticker.verdict().unwrap();
    assert_eq!((cause.how, cause.text.as_str()), (How::AmqpHeartbeat, "Too many heartbeats missed"));
    // The first tick, after a third of a heartbeat, notes what came before it.
    assert!(at.since(started) > Duration::from_millis(2333), "{at} {started}");
    let said = reader.join().unwrap();
    let beat = encode(&AMQPFrame::Heartbeat).unwrap();
    assert!(said.len() >= 2 * beat.len() && said.chunks(beat.len()).all(|frame| frame == beat), "{said:?}");
}

#[test]
fn the_end_of_the_reader_ends_its_ticker_at_once() {
    let (wire, _broker) = pair();
    let reporter = reporter();
    let heartbeat = Heartbeat::start(60_000, reporter.now()).unwrap();
    let ticker = Ticker::start(heartbeat, wire.line().clone(), wire.socket(), reporter).unwrap();
    // Joins its thread; a test that hangs fails.
    drop(ticker);
}
