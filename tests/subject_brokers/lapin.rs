//! lapin on RabbitMQ.

use super::*;

#[test]
fn lapin_on_rabbitmq() {
    if !inside("lapin::lapin_on_rabbitmq") {
        return;
    }
    let broker = Broker::rabbitmq();
    let mut subject = Child::start("__subject", &[]);
    let mut producer = Child::start("__producer", &[]);
    heartbeats_are_negotiated(&mut subject);
    messages_come_and_are_acknowledged(&mut subject, &mut producer);
    four_hundred_in_one_process();
    what_a_consumer_leaves_goes_to_the_second_one(&mut subject, &mut producer);
    a_frozen_broker_is_noticed_by_the_heartbeat(&mut subject, &broker);
    a_closed_connection_is_noticed_and_opened_again(&mut subject, &mut producer, &broker);
}

fn heartbeats_are_negotiated(subject: &mut Child) {
    for (trial, asked, agreed) in [(0, None, 60), (1, Some(some(10.0)), 10), (2, Some(Setting::None), 60)] {
        let mut wanted = settings(SubjectKind::Lapin);
        wanted.heartbeat = asked;
        wanted.prefetch = Some(4);
        wanted.tcp_user_timeout = some(20.0);
        subject.tell(&open(amqp(), trial, wanted, None));
        let options = subject.options(trial);
        assert_eq!(options.heartbeat_s, Some(agreed), "asked for {asked:?}");
        assert_eq!((options.frame_max, options.prefetch), (Some(4096), Some(4)));
        assert_eq!((options.nonblocking, options.keepalive), (Some(true), Some(false)));
        assert_eq!((options.so_rcvtimeo_ms, options.tcp_user_timeout_ms), (Some(0), Some(20_000)));
        subject.ready(trial, 0);
        subject.tell(&Command::Close { trial });
    }
}

fn messages_come_and_are_acknowledged(subject: &mut Child, producer: &mut Child) {
    for (trial, ack) in [(10, Ack::Early), (11, Ack::Late)] {
        let mut wanted = settings(SubjectKind::Lapin);
        (wanted.ack, wanted.prefetch) = (Some(ack), Some(4));
        subject.tell(&open(amqp(), trial, wanted, None));
        subject.ready(trial, 0);
        producer.tell(&publish(trial, BrokerKind::Rabbitmq, 100));
        for number in 0..5 {
            let want = |kind: &Kind| matches!(kind, Kind::Published { message } if *message == number).then_some(());
            let (published, ()) = producer.event(trial, "publication", want);
            let want = |kind: &Kind| matches!(kind, Kind::Confirmed { message } if *message == number).then_some(());
            let (confirmed, ()) = producer.event(trial, "confirmation", want);
            let delivered = subject.delivered(trial, number);
            let want = |kind: &Kind| matches!(kind, Kind::Acked { message, .. } if *message == number).then_some(());
            let (acked, ()) = subject.event(trial, "acknowledgement", want);
            assert!(published <= confirmed && published <= delivered && delivered <= acked);
            assert!(ack == Ack::Early || acked.since(delivered) >= Duration::from_millis(50));
        }
    }
}

/// The price of one process for many connections, said aloud: `lapin` has a thread and buffers for each.
fn four_hundred_in_one_process() {
    const CONNECTIONS: TrialId = 400;
    let mut subject = Child::start("__subject", &[]);
    let before_kb = resident_kb(subject.pid());
    let clock = Clock::start();
    for trial in 0..CONNECTIONS {
        subject.tell(&open(amqp(), 1000 + trial, settings(SubjectKind::Lapin), None));
    }
    for trial in 0..CONNECTIONS {
        subject.ready(1000 + trial, 0);
    }
    let (took_s, grown_kb) = (clock.now().as_secs(), resident_kb(subject.pid()) - before_kb);
    println!("{CONNECTIONS} lapin connections: {took_s:.2} s to open, {grown_kb} kB resident more");
    assert!(took_s < 60.0, "{took_s} s");
    assert!(grown_kb < 600_000, "{grown_kb} kB");
    subject.finish();
}

fn a_frozen_broker_is_noticed_by_the_heartbeat(subject: &mut Child, broker: &Broker) {
    let mut wanted = settings(SubjectKind::Lapin);
    (wanted.heartbeat, wanted.connect_timeout) = (Some(some(1.0)), some(1.0));
    subject.tell(&open(amqp(), 20, wanted, None));
    let ready = subject.ready(20, 0);
    broker.freeze();
    let (at, attempt, how, errno, _) = subject.notice(20);
    assert_eq!((attempt, how, errno), (0, How::AmqpHeartbeat, None));
    // lapin closes once more than two heartbeats have passed without a byte, checked each half heartbeat.
    assert!(at.since(ready) > Duration::from_secs(2), "ready at {ready}, noticed at {at}");
    let (_, attempt, how, _) = subject.connect_failed(20);
    assert_eq!((attempt, how), (1, How::ConnectTimeout));
    broker.thaw();
    let want = |kind: &Kind| matches!(kind, Kind::Ready { attempt: 2.. }).then_some(());
    subject.event(20, "recovery", want);
}

fn a_closed_connection_is_noticed_and_opened_again(subject: &mut Child, producer: &mut Child, broker: &Broker) {
    subject.tell(&open(amqp(), 30, settings(SubjectKind::Lapin), None));
    producer.tell(&publish(30, BrokerKind::Rabbitmq, 200));
    subject.delivered(30, 0);
    let mut ctl = rabbitmq_tool(RABBITMQCTL);
    ctl.env("HOME", broker.home.path()).args(["close_all_connections", "bye"]).stdout(Stdio::null());
    assert!(ctl.status().unwrap().success());
    let (_, attempt, how, _, text) = subject.notice(30);
    assert_eq!((attempt, how, text.as_str()), (0, How::ClosedByPeer, "320 CONNECTION_FORCED - bye"));
    subject.ready(30, 1);
    // The producer was closed too, and is back with the numbers that follow.
    let again = |kind: &Kind| matches!(kind, Kind::Delivered { attempt: 1, .. }).then_some(());
    subject.event(30, "delivery after the reconnect", again);
}

/// Two take turns; a consumer that ends with a message in its hands leaves it, marked, to the other.
fn what_a_consumer_leaves_goes_to_the_second_one(subject: &mut Child, producer: &mut Child) {
    let trial = 12;
    let mut wanted = settings(SubjectKind::Lapin);
    (wanted.ack, wanted.prefetch, wanted.work) = (Some(Ack::Late), Some(1), some(600.0).get());
    subject.tell(&open(amqp(), trial, wanted, None));
    subject.ready(trial, 0);
    let Command::Publish { broker, target, interval, task, routing, .. } = publish(trial, BrokerKind::Rabbitmq, 50)
    else {
        unreachable!()
    };
    producer.tell(&Command::Publish {
        trial,
        broker,
        target,
        interval,
        task,
        routing,
        second_consumer: true,
        second_from: None,
        untracked: false,
    });
    let fresh = |kind: &Kind| matches!(kind, Kind::Elsewhere { redelivered: false, .. }).then_some(());
    producer.event(trial, "a message of the second consumer's own", fresh);
    let delivered = |kind: &Kind| match kind {
        Kind::Delivered { message, redelivered: false, .. } => Some(*message),
        _ => None,
    };
    let (_, held) = subject.event(trial, "a message in the first one's hands", delivered);
    subject.tell(&Command::Close { trial });
    let left =
        |kind: &Kind| matches!(kind, Kind::Elsewhere { message, redelivered: true } if *message == held).then_some(());
    producer.event(trial, "what the first one left", left);
    producer.tell(&Command::Close { trial });
}
