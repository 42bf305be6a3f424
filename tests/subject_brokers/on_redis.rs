//! The blocking Redis client on Redis.

use super::*;

#[test]
fn redis_blocking_on_redis() {
    if !inside("on_redis::redis_blocking_on_redis") {
        return;
    }
    let broker = Broker::redis();
    let mut subject = Child::start("__subject", &[]);
    let mut producer = Child::start("__producer", &[]);
    let mut patient = settings(SubjectKind::RedisBlocking);
    patient.tcp_user_timeout = some(30.0);
    let mut limited = patient.clone();
    limited.read_timeout = some(1.0);
    subject.tell(&open(redis(), 0, patient, None));
    subject.tell(&open(redis(), 1, limited, None));
    for (trial, limit_ms) in [(0, 0), (1, 1000)] {
        let options = subject.options(trial);
        assert_eq!((options.so_rcvtimeo_ms, options.nonblocking), (Some(limit_ms), Some(false)));
        assert_eq!(options.tcp_user_timeout_ms, Some(30_000));
        subject.ready(trial, 0);
        // Three read timeouts between two messages: a healthy idle link must not run into one.
        producer.tell(&publish(trial, BrokerKind::Redis, 3000));
    }
    for trial in [0, 1] {
        let want = |kind: &Kind| matches!(kind, Kind::Confirmed { message: 1 }).then_some(());
        producer.event(trial, "confirmation", want);
        let want = |kind: &Kind| match kind {
            Kind::Delivered { message: 1, attempt, .. } => Some(*attempt),
            _ => None,
        };
        assert_eq!(subject.event(trial, "delivery", want).1, 0);
    }
    what_a_dead_worker_has_kept_goes_to_the_second_one(&mut producer);
    let frozen = Clock::from_zero(0).now();
    kill(broker.group(), Signal::SIGSTOP).unwrap();
    let (at, attempt, how, errno, _) = subject.notice(1);
    assert_eq!((attempt, how, errno), (0, How::ReadTimeout, Some(libc::EAGAIN)));
    // The read under way began at most half a limit before; the wheel is late by at most an eighth.
    let waited_s = at.since(frozen).as_secs_f64();
    assert!((0.45..1.0 * 1.125 + 0.25).contains(&waited_s), "{waited_s} s");
    broker.thaw();
    let want = |kind: &Kind| matches!(kind, Kind::Ready { attempt: 1.. }).then_some(());
    subject.event(1, "recovery", want);
    drop(broker);
    let (_, attempt, how, _, _) = subject.notice(0);
    assert_eq!(attempt, 0, "without a limit it sat through the freeze");
    assert!(matches!(how, How::Eof | How::Errno));
}

/// In kombu's layout: the second consumer looks for what was not acknowledged in time, and gets it, marked, out of its list.
fn what_a_dead_worker_has_kept_goes_to_the_second_one(producer: &mut Child) {
    let trial = 12;
    let mut wanted = settings(SubjectKind::RedisBlocking);
    (wanted.ack, wanted.work) = (Some(Ack::Late), some(600.0).get());
    wanted.delivery.visibility_timeout = Some(Duration::from_secs(2));
    let mut dies = Child::start("__subject", &[]);
    dies.tell(&open(redis(), trial, wanted.clone(), None));
    dies.ready(trial, 0);
    let routing = Routing { delivery: wanted.delivery, ..Routing::default() };
    producer.tell(&Command::Publish {
        trial,
        broker: BrokerKind::Redis,
        target: target(redis(), trial),
        interval: Duration::from_millis(100),
        task: Some(Task { message: Message::Celery("t".into()), declare: false, first_due: None }),
        routing: Box::new(routing),
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
    let (taken, held) = dies.event(trial, "a message in the first one's hands", delivered);
    drop(dies);
    let left =
        |kind: &Kind| matches!(kind, Kind::Elsewhere { message, redelivered: true } if *message == held).then_some(());
    let (given, ()) = producer.event(trial, "what the first one left", left);
    // The task with an ETA waits for no schedule.
    let (ahead, hour) = (13, Duration::from_secs(3_600));
    producer.tell(&Command::Publish {
        trial: ahead,
        broker: BrokerKind::Redis,
        target: target(redis(), ahead),
        interval: hour,
        task: Some(Task {
            message: Message::Celery("t".into()),
            declare: false,
            first_due: Some(Clock::from_zero(0).now() + hour),
        }),
        routing: Box::default(),
        second_consumer: false,
        second_from: None,
        untracked: false,
    });
    let first = |kind: &Kind| matches!(kind, Kind::Confirmed { message: 0 }).then_some(());
    producer.event(ahead, "the task that is due later", first);
    producer.tell(&Command::Close { trial: ahead });
    // Looked for every tenth of the timeout; the clock of the hash is the wall's.
    let waited_s = given.since(taken).as_secs_f64();
    assert!((1.9..3.5).contains(&waited_s), "{waited_s} s");
    producer.tell(&Command::Close { trial });
}
