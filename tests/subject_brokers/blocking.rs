//! The blocking AMQP client on RabbitMQ.

use super::*;

#[test]
fn amqp_blocking_on_rabbitmq() {
    if !inside("blocking::amqp_blocking_on_rabbitmq") {
        return;
    }
    let broker = Broker::rabbitmq();
    let mut subject = Child::start("__subject", &[]);
    let mut producer = Child::start("__producer", &[]);
    the_smaller_heartbeat_is_in_force_and_a_clients_zero_is_none(&mut subject);
    a_blocking_client_acknowledges_what_it_gets(&mut subject, &mut producer);
    a_call_that_is_answered_goes_on(&mut subject, &mut producer);
    four_hundred_blocking_ones_in_one_process();
    while_the_broker_is_frozen(&mut subject, &mut producer, &broker);
    a_waiting_thread_is_cut_off_by_the_broker(&mut subject);
}

fn blocking(heartbeat_s: f64, thread: HeartbeatThread) -> Settings {
    Settings {
        heartbeat: Some(if heartbeat_s > 0.0 { some(heartbeat_s) } else { Setting::None }),
        heartbeat_thread: Some(thread),
        prefetch: Some(4),
        ack: Some(Ack::Late),
        ..settings(SubjectKind::AmqpBlocking)
    }
}

fn the_smaller_heartbeat_is_in_force_and_a_clients_zero_is_none(subject: &mut Child) {
    for (trial, asked, agreed) in [(0, 0.0, 0), (1, 10.0, 10), (2, 120.0, 60)] {
        let mut wanted = blocking(asked, HeartbeatThread::Own);
        wanted.read_timeout = some(45.0);
        wanted.tcp_user_timeout = some(20.0);
        subject.tell(&open(amqp(), trial, wanted, None));
        let options = subject.options(trial);
        assert_eq!(options.heartbeat_s, Some(agreed), "asked for {asked}");
        assert_eq!((options.frame_max, options.prefetch), (Some(4096), Some(4)));
        assert_eq!((options.nonblocking, options.so_rcvtimeo_ms), (Some(false), Some(45_000)));
        assert_eq!(options.tcp_user_timeout_ms, Some(20_000));
        subject.ready(trial, 0);
        subject.tell(&Command::Close { trial });
    }
}

fn a_blocking_client_acknowledges_what_it_gets(subject: &mut Child, producer: &mut Child) {
    for (trial, ack) in [(10, Ack::Early), (11, Ack::Late)] {
        let wanted = Settings { ack: Some(ack), ..blocking(0.0, HeartbeatThread::Same) };
        subject.tell(&open(amqp(), trial, wanted, None));
        subject.ready(trial, 0);
        producer.tell(&publish(trial, BrokerKind::Rabbitmq, 100));
        // More than the prefetch: without acknowledgements the fifth would never come.
        for number in 0..7 {
            let delivered = subject.delivered(trial, number);
            let want = |kind: &Kind| matches!(kind, Kind::Acked { message, .. } if *message == number).then_some(());
            let (acked, ()) = subject.event(trial, "acknowledgement", want);
            assert!(ack == Ack::Early || acked.since(delivered) >= Duration::from_millis(50));
        }
        producer.tell(&Command::Close { trial });
        subject.tell(&Command::Close { trial });
    }
}

/// The call waits in a read whose limit is shorter than the time between two messages of the broker's: it is answered, and
/// the client polls again, where the limit means nothing.
fn a_call_that_is_answered_goes_on(subject: &mut Child, producer: &mut Child) {
    let wanted = Settings {
        sync_call: Some(SyncCall::BasicQos),
        read_timeout: some(1.0),
        ..blocking(0.0, HeartbeatThread::Same)
    };
    subject.tell(&open(amqp(), 15, wanted, None));
    subject.ready(15, 0);
    subject.tell(&Command::Call { trial: 15 });
    let want = |kind: &Kind| matches!(kind, Kind::Called { method, .. } if method == "basic.qos").then_some(());
    subject.event(15, "call", want);
    producer.tell(&publish(15, BrokerKind::Rabbitmq, 3000));
    subject.delivered(15, 0);
    subject.delivered(15, 1);
    producer.tell(&Command::Close { trial: 15 });
    subject.tell(&Command::Close { trial: 15 });
}

fn four_hundred_blocking_ones_in_one_process() {
    const CONNECTIONS: TrialId = 400;
    let mut subject = Child::start("__subject", &[]);
    let before_kb = resident_kb(subject.pid());
    let clock = Clock::start();
    for trial in 0..CONNECTIONS {
        subject.tell(&open(amqp(), 1000 + trial, blocking(60.0, HeartbeatThread::Own), None));
    }
    for trial in 0..CONNECTIONS {
        subject.ready(1000 + trial, 0);
    }
    let (took_s, grown_kb) = (clock.now().as_secs(), resident_kb(subject.pid()) - before_kb);
    println!(
        "{CONNECTIONS} blocking connections, two threads each: {took_s:.2} s to open, {grown_kb} kB resident more"
    );
    assert!(took_s < 60.0, "{took_s} s");
    assert!(grown_kb < 200_000, "{grown_kb} kB");
    subject.finish();
}

/// Nothing is lost on the way and nothing arrives: only what looks at a clock of its own notices.
fn while_the_broker_is_frozen(subject: &mut Child, producer: &mut Child, broker: &Broker) {
    let own = blocking(1.0, HeartbeatThread::Own);
    let limited = Settings { read_timeout: some(4.0), ..blocking(0.0, HeartbeatThread::Same) };
    let call = Settings {
        sync_call: Some(SyncCall::BasicQos),
        read_timeout: some(1.0),
        ..blocking(0.0, HeartbeatThread::Same)
    };
    // Its own check would be due after two seconds; the thread that would make it waits.
    let same = blocking(1.0, HeartbeatThread::Same);
    for (trial, mut wanted) in [(20, own), (21, limited), (22, call), (23, same)] {
        wanted.connect_timeout = some(1.0);
        subject.tell(&open(amqp(), trial, wanted, None));
        subject.ready(trial, 0);
        producer.tell(&publish(trial, BrokerKind::Rabbitmq, 500));
        subject.delivered(trial, 0);
    }
    broker.freeze();
    let frozen = Clock::from_zero(0).now();
    subject.tell(&Command::Call { trial: 22 });
    let called = subject.event(22, "call", |kind| matches!(kind, Kind::Called { .. }).then_some(())).0;
    let (at, attempt, how, errno, _) = subject.notice(22);
    assert_eq!((attempt, how, errno), (0, How::ReadTimeout, Some(libc::EAGAIN)));
    assert!((0.95..1.5).contains(&at.since(called).as_secs_f64()), "{called} {at}");
    let (at, attempt, how, ..) = subject.notice(20);
    assert_eq!((attempt, how), (0, How::AmqpHeartbeat));
    // From the last message, half a second old at the most: two heartbeats to two and two thirds.
    let waited_s = at.since(frozen).as_secs_f64();
    assert!((1.4..3.2).contains(&waited_s), "{waited_s} s");
    let (at, attempt, how, errno, _) = subject.notice(21);
    assert_eq!((attempt, how, errno), (0, How::ReadTimeout, Some(libc::EAGAIN)));
    let waited_s = at.since(frozen).as_secs_f64();
    assert!((3.4..5.0).contains(&waited_s), "{waited_s} s");
    broker.thaw();
    for trial in [20, 21, 22] {
        subject.event(trial, "recovery", |kind| matches!(kind, Kind::Ready { attempt: 1.. }).then_some(()));
    }
    // Four heartbeats of silence were not noticed; what the thawed broker does then is its own affair.
    let noticed = subject.unread.iter().any(|report| {
        matches!(report, Report::Event { event } if event.trial == Some(23)
            && matches!(&event.kind, Kind::Notice { cause, .. } if cause.how == How::AmqpHeartbeat))
    });
    assert!(!noticed, "a thread that waits has checked its heartbeat");
    for trial in 20..24 {
        producer.tell(&Command::Close { trial });
        subject.tell(&Command::Close { trial });
    }
}

/// An idle queue, and a heartbeat on the thread that waits: it sends none, and RabbitMQ gives a healthy connection up.
fn a_waiting_thread_is_cut_off_by_the_broker(subject: &mut Child) {
    subject.tell(&open(amqp(), 30, blocking(1.0, HeartbeatThread::Same), None));
    let ready = subject.ready(30, 0);
    let (at, attempt, how, errno, text) = subject.notice(30);
    assert_eq!(attempt, 0);
    assert!(how == How::Eof || errno == Some(libc::ECONNRESET), "{how:?} {errno:?} {text}");
    let waited_s = at.since(ready).as_secs_f64();
    assert!((1.5..4.5).contains(&waited_s), "{waited_s} s");
}
