//! The real clients on real brokers, in a PID and network namespace of the test's own, which takes everything with it.
//!
//! Needs `rabbitmq-server` and `redis-server` (`scripts/setup` installs them) and the right to create namespaces; the
//! tests fail without them, they never skip.

#[path = "support/child.rs"]
#[expect(dead_code, reason = "each test binary uses its own part")]
mod child;

use child::{Child, open, settings, some, target};
use halfopen::clients::{self, Message, Program, Where, adapter_of};
use halfopen::events::{How, Kind};
use halfopen::host::clock::Clock;
use halfopen::host::procfs::{self, Identity, RunState};
use halfopen::scenario::{Ack, BrokerKind, HeartbeatThread, Keepalive, Settings, SubjectKind, SyncCall};
use halfopen::subject::protocol::{Command, Report, Routing, Task};
use halfopen::units::{Setting, TrialId};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

const INSIDE: &str = "HALFOPEN_TEST_INSIDE";
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const RABBITMQCTL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

#[expect(clippy::disallowed_methods, reason = "the test starts what it needs and ends it")]
fn command(program: &str) -> process::Command {
    process::Command::new(program)
}

/// Runs the test of this name again, as the body, inside new namespaces. True inside.
fn inside(test: &str) -> bool {
    if let Some(arrived) = std::env::var_os(INSIDE) {
        std::fs::write(arrived, test).unwrap();
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let home = tempfile::tempdir().unwrap();
    let arrived = home.path().join("arrived");
    let mut unshare = command("unshare");
    if !nix::unistd::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--net", "--mount", "--mount-proc", "--fork", "--kill-child", "--", "sh", "-c"]);
    unshare.args(["ip link set lo up && exec \"$0\" --exact \"$1\" --nocapture"]).arg(own).arg(test);
    let status = unshare.env(INSIDE, &arrived).status().unwrap();
    assert!(status.success(), "{test} failed inside its namespaces");
    // A name that matches no test would succeed without running anything.
    assert_eq!(std::fs::read_to_string(&arrived).unwrap(), test);
    false
}

/// A broker with a directory of its own; its process group ends with it.
struct Broker {
    process: process::Child,
    home: tempfile::TempDir,
}

impl Broker {
    fn start(mut command: process::Command, home: tempfile::TempDir, ready: &str) -> Self {
        let mut process = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.by_ref().any(|line| line.contains(ready)), "the broker never said {ready:?}");
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, home }
    }

    fn redis() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut redis = command("redis-server");
        redis.args(["--port", "6379", "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(home.path());
        Self::start(redis, home, "Ready to accept connections")
    }

    fn rabbitmq() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut rabbitmq = rabbitmq_tool(RABBITMQ);
        rabbitmq
            .env("HOME", home.path())
            .env("RABBITMQ_MNESIA_BASE", home.path())
            .env("RABBITMQ_LOG_BASE", home.path());
        rabbitmq.env("RABBITMQ_LOGS", "-").env("RABBITMQ_ENABLED_PLUGINS_FILE", home.path().join("plugins"));
        std::fs::write(home.path().join(".erlang.cookie"), "halfopen").unwrap();
        std::fs::set_permissions(home.path().join(".erlang.cookie"), std::fs::Permissions::from_mode(0o400)).unwrap();
        Self::start(rabbitmq, home, "completed with")
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    fn freeze(&self) {
        killpg(self.group(), Signal::SIGSTOP).unwrap();
        // A signal takes effect when a thread next runs: until then it may still answer what comes.
        let of_group = |p: &Identity| getpgid(Some(Pid::from_raw(p.pid.cast_signed()))) == Ok(self.group());
        let stopped = |p: Identity| procfs::run_state(p) == RunState::Stopped;
        while !procfs::tree(self.process.id()).into_iter().filter(of_group).all(stopped) {
            std::thread::yield_now();
        }
    }

    fn thaw(&self) {
        killpg(self.group(), Signal::SIGCONT).unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

fn rabbitmq_tool(program: &str) -> process::Command {
    let mut tool = command(program);
    tool.env("RABBITMQ_NODENAME", "halfopen@localhost").env("RABBITMQ_NODE_PORT", "5672");
    tool
}

fn amqp() -> SocketAddrV4 {
    "127.0.0.1:5672".parse().unwrap()
}

fn redis() -> SocketAddrV4 {
    "127.0.0.1:6379".parse().unwrap()
}

fn publish(trial: TrialId, broker: BrokerKind, interval_ms: u64) -> Command {
    let server = if broker == BrokerKind::Redis { redis() } else { amqp() };
    Command::Publish {
        trial,
        broker,
        target: target(server, trial),
        interval: Duration::from_millis(interval_ms),
        task: None,
        routing: Box::default(),
        second_consumer: false,
        second_from: None,
        untracked: false,
    }
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

fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn lapin_on_rabbitmq() {
    if !inside("lapin_on_rabbitmq") {
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

#[test]
fn amqp_blocking_on_rabbitmq() {
    if !inside("amqp_blocking_on_rabbitmq") {
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

#[test]
fn redis_blocking_on_redis() {
    if !inside("redis_blocking_on_redis") {
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

/// Drops every segment of the three servers behind the senders' backs, as `INPUT` does: for what the clients hear that
/// is as good as a cut in the middle of the path.
fn cut() {
    let rules = "add table ip t; add chain ip t i { type filter hook input priority 0; }; \
                 add rule ip t i tcp dport { 5672, 6379, 7000 } drop; add rule ip t i tcp sport { 5672, 6379, 7000 } drop";
    assert!(command("nft").arg(rules).status().unwrap().success());
}

/// Waits until the `BRPOP` is outstanding and acknowledged. The server delays that acknowledgement by up to 40 ms, and a
/// cut before it finds data in flight, which suspends keepalive: that connection would die by retransmission instead.
fn brpop_is_idle() {
    let mut own = redis::Client::open("redis://127.0.0.1").unwrap().get_connection().unwrap();
    let is_blocked = |own: &mut redis::Connection| {
        let info: String = redis::cmd("INFO").arg("clients").query(own).unwrap();
        info.contains("blocked_clients:1")
    };
    // Rows of /proc/net/tcp: remote port 6379 is 18EB, state 01 is ESTABLISHED, then the bytes not yet acknowledged.
    let in_flight = || {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        sockets.lines().filter(|row| row.contains(":18EB 01 ")).any(|row| !row.contains(":18EB 01 00000000:"))
    };
    let clock = Clock::start();
    while !is_blocked(&mut own) || in_flight() {
        assert!(clock.now().as_secs() < 20.0, "the subject never waited in BRPOP");
        std::thread::yield_now();
    }
}

#[test]
fn the_kernels_verdict_reaches_every_client_with_its_number() {
    if !inside("the_kernels_verdict_reaches_every_client_with_its_number") {
        return;
    }
    let _brokers = (Broker::rabbitmq(), Broker::redis());
    let _peer = Child::start("__peer", &[]);
    let mut subject = Child::start("__subject", &[]);
    let second = Duration::from_secs(1);
    for (trial, kind) in SubjectKind::ALL.into_iter().filter(|kind| !kind.is_command()).enumerate() {
        let mut wanted = settings(kind);
        wanted.connect_timeout = some(0.5);
        // Data in flight suspends keepalive: the writer has TCP_USER_TIMEOUT instead.
        if kind == SubjectKind::TcpWriter {
            wanted.tcp_user_timeout = some(1.0);
        } else {
            wanted.keepalive = Some(Keepalive { idle: second, interval: second, probes: 1 });
        }
        let server = format!("127.0.0.1:{}", kind.broker().port()).parse().unwrap();
        let load = (kind == SubjectKind::TcpWriter).then(|| Duration::from_millis(100));
        subject.tell(&open(server, trial as TrialId, wanted, load));
        subject.ready(trial as TrialId, 0);
    }
    brpop_is_idle();
    cut();
    let cut_at = Clock::from_zero(0).now();
    for (trial, kind) in SubjectKind::ALL.into_iter().filter(|kind| !kind.is_command()).enumerate() {
        let (at, attempt, how, errno, text) = subject.notice(trial as TrialId);
        assert_eq!((attempt, how, errno), (0, How::Errno, Some(libc::ETIMEDOUT)), "{kind}: {text}");
        let waited_s = at.since(cut_at).as_secs_f64();
        println!("{kind}: ETIMEDOUT {waited_s:.3} s after the cut");
        // One idle second and one probe's (the writer: 0.41 + 1 s), less the age of the last segment at the cut.
        assert!((0.5..3.0).contains(&waited_s), "{kind}: {waited_s} s");
        // The reconnect runs into the cut as well.
        let (_, attempt, how, _) = subject.connect_failed(trial as TrialId);
        assert_eq!((attempt, how), (1, How::ConnectTimeout), "{kind}");
    }
}

/// A Celery worker in the place of the environment, on `queue` of the Redis here.
fn celery(environment: &Path, home: &Path, queue: &str) -> Program {
    let adapter = adapter_of(SubjectKind::CeleryRedis).unwrap();
    let mut settings = settings(SubjectKind::CeleryRedis);
    settings.ack = Some(Ack::Late);
    let options = serde_json::json!({ "broker_transport_options": { "visibility_timeout": 0 } });
    settings.client = options.as_object().unwrap().clone();
    let place = Where {
        environment: Some(environment.to_path_buf()),
        started_in: home.to_path_buf(),
        trial: 2,
        broker: BrokerKind::Redis,
        broker_host: "127.0.0.1".into(),
        broker_port: 6379,
        vhost: "/".into(),
        db: 0,
        queue: queue.into(),
        user: String::new(),
        password: String::new(),
        effects: home.join("effects"),
        ca_file: None,
        log: home.join("celery.log"),
    };
    adapter.program(&settings, &place)
}

fn effect(child: &mut Child, trial: TrialId, number: u64) {
    let want = |kind: &Kind| matches!(kind, Kind::Effect { message } if *message == number).then_some(());
    child.event(trial, "effect", want);
}

#[test]
fn a_celery_worker_and_ours_do_what_the_other_has_left_in_one_queue_on_redis() {
    // Outside, where there is a network to install it from.
    let adapter = adapter_of(SubjectKind::CeleryRedis).unwrap();
    let environment = clients::ensure(&adapter, &mut |_| {}).unwrap();
    if !inside("a_celery_worker_and_ours_do_what_the_other_has_left_in_one_queue_on_redis") {
        return;
    }
    let _redis = Broker::redis();
    let home = tempfile::tempdir().unwrap();
    let task = |first_due| Some(Task { message: Message::Celery("halfopen.effect".into()), declare: false, first_due });
    let one = |trial, first_due| Command::Publish {
        trial,
        broker: BrokerKind::Redis,
        target: target(redis(), 1),
        interval: Duration::from_millis(1),
        task: task(first_due),
        routing: Box::new(Routing { count: Some(1), ..Routing::default() }),
        second_consumer: false,
        second_from: None,
        untracked: false,
    };
    let mut ours = settings(SubjectKind::RedisBlocking);
    ours.ack = Some(Ack::Late);
    ours.work = Some(Duration::from_secs(3_600));
    let mut producer = Child::start("__producer", &[]);

    // Ours dies in the middle of its work.
    let mut dies = Child::start("__subject", &[]);
    dies.tell(&open(redis(), 1, ours.clone(), None));
    dies.ready(1, 0);
    producer.tell(&one(1, None));
    dies.event(1, "start", |kind| matches!(kind, Kind::Started { message: 0, .. }).then_some(()));
    drop(dies);

    // Celery, which looks as it starts and then every hundred seconds, finds it unacknowledged and does it. Its own timeout is
    // none at all: on a quick machine it starts in less than any whole second.
    let mut celery_host = Child::start("__subject", &[]);
    let mut program_of = open(redis(), 2, settings(SubjectKind::CeleryRedis), None);
    if let Command::Open { program, .. } = &mut program_of {
        *program = Some(Box::new(celery(&environment, home.path(), "trial-1")));
    }
    celery_host.tell(&program_of);
    effect(&mut celery_host, 2, 0);

    // Celery holds a task that is due in an hour; ours gives it back after its own second and does it.
    let due = Clock::from_zero(0).now() + Duration::from_secs(3_600);
    producer.tell(&one(3, Some(due)));
    let log = home.path().join("celery.log");
    let received = |log: &Path| std::fs::read_to_string(log).unwrap_or_default().matches("received").count();
    while received(&log) < 2 {
        std::thread::yield_now();
    }
    let mut heir = Child::start("__subject", &[]);
    ours.work = Some(Duration::from_millis(1));
    ours.delivery.visibility_timeout = Some(Duration::from_secs(1));
    heir.tell(&open(redis(), 1, ours, None));
    let again = |kind: &Kind| match kind {
        Kind::Delivered { message: 0, redelivered, .. } => Some(*redelivered),
        _ => None,
    };
    assert!(heir.event(1, "delivery", again).1, "a message that was given back says so");
    effect(&mut heir, 1, 0);
    celery_host.tell(&Command::Close { trial: 2 });
    celery_host.finish();
    heir.finish();
    producer.finish();
}
