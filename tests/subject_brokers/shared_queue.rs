//! A Celery worker and our own consumer on one queue on Redis.

use super::*;

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
    if !inside("shared_queue::a_celery_worker_and_ours_do_what_the_other_has_left_in_one_queue_on_redis") {
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
