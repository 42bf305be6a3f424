//! What `inspect` finds on real clients with their defaults, and behind a proxy that stands still.

use crate::common::{binary, require_root, run_id, within};
use crate::inspect::{inspect, window};
use halfopen::clients::{Adapter, adapter_of, ensure};
use halfopen::host::clock::Clock;
use halfopen::host::netns::NetNs;
use halfopen::host::process::{Launch, Process, Stream};
use halfopen::lab::{ArmNet, Lab, LabSpec, Patience, RouterNs};
use halfopen::scenario::{BrokerKind, BrokerSettings, SubjectKind};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A BRPOP without any deadline: redis-py 8 would set some by itself.
const BRPOP: &str = "\
import redis, sys
client = redis.Redis(host=sys.argv[1], password=sys.argv[2], socket_timeout=None, socket_keepalive=False)
client.brpop('nothing', 0)
";

/// A proxy that acknowledges for as long as its kernel lives.
const RELAY: &str = "\
import socket, sys, threading
listener = socket.create_server(('127.0.0.1', 5672))
def pump(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
while True:
    near, _ = listener.accept()
    far = socket.create_connection((sys.argv[1], 5672))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
";

struct Clients {
    environment: PathBuf,
    dir: PathBuf,
    ns: NetNs,
}

impl Clients {
    fn python(&self, name: &str, args: &[&str], env: &[(&str, String)]) -> Process {
        let mut launch = Launch::new(self.environment.join("bin/python")).args(args.iter().copied());
        launch.env = env.iter().map(|(name, value)| ((*name).to_string(), value.into())).collect();
        launch.env.push(("HOME".to_string(), self.dir.clone().into()));
        launch.netns = Some(self.ns.clone());
        launch.cwd = Some(self.dir.clone());
        (launch.stdout, launch.stderr) = (Stream::File(self.log(name)), Stream::File(self.log(name)));
        launch.spawn().unwrap()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    /// `celery worker` as it is released, with nothing configured but its broker.
    fn celery(&self, name: &str, broker: &str) -> Process {
        let host = format!("{name}@halfopen");
        let args =
            ["-m", "celery", "-A", "app", "worker", "--loglevel", "INFO", "--concurrency", "1", "--hostname", &host];
        let scripts = self.environment.join("scripts").display().to_string();
        let env = [
            ("HALFOPEN_BROKER_URL", broker.to_string()),
            ("HALFOPEN_CLIENT_CONF", "{}".to_string()),
            ("HALFOPEN_EFFECTS", String::new()),
            ("PYTHONPATH", scripts),
        ];
        self.python(name, &args, &env)
    }

    fn ready(&self, name: &str) {
        let log = self.log(name);
        let text = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(within(Duration::from_secs(60), || text().contains(" ready.")), "{name}: {}", text());
    }
}

fn environment() -> PathBuf {
    let celery = adapter_of(SubjectKind::Celery).unwrap();
    let lock = include_str!("inspect-requirements.lock");
    ensure(&Adapter { name: "inspect".into(), lock, ..celery }, &mut |text| println!("{text}")).unwrap()
}

fn rows<'a>(answer: &'a Value, protocol: &str) -> Vec<&'a Value> {
    answer["rows"].as_array().unwrap().iter().filter(|row| row["protocol"] == protocol).collect()
}

fn advice(row: &Value) -> String {
    row["advice"].to_string()
}

#[test]
fn defaults_of_real_clients_are_found_and_a_frozen_proxy_looks_alive() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let pairs: Vec<_> = (1..=2).map(|j| (Ipv4Addr::new(10, 64, 128, j), Ipv4Addr::new(10, 128, 128, j))).collect();
    let settings = BrokerSettings { kinds: vec![BrokerKind::Rabbitmq, BrokerKind::Redis], ..BrokerSettings::default() };
    let spec = LabSpec {
        run_id: run_id("inspect"),
        work_dir: dir.path().to_path_buf(),
        arms: vec![ArmNet { name: "clients".into(), pairs, ..ArmNet::default() }],
        brokers: &settings,
        nofile: 4096,
        router: RouterNs::New,
        proxied: Vec::new(),
        standby: false,
        routed: false,
        middlebox: None,
        vhosts: Vec::new(),
        databases: 0,
        database: false,
        database_clients: 0,
        tls: Vec::new(),
        names: false,
    };
    let lab = Lab::build(&spec, &Patience::new(Clock::start())).unwrap();
    let clients = Clients { environment: environment(), dir: dir.path().to_path_buf(), ns: lab.clients[0].clone() };
    let (rabbit, redis) = (lab.broker(BrokerKind::Rabbitmq).unwrap(), lab.broker(BrokerKind::Redis).unwrap());
    let (user, password) = (&rabbit.user, &rabbit.password);
    let mut relay = clients.python("relay", &["-c", RELAY, "10.128.128.2"], &[]);
    let mut on_redis = clients.celery("redis", &format!("redis://:{}@10.128.128.1:6379/0", redis.password));
    let mut on_rabbit = clients.celery("rabbit", &format!("amqp://{user}:{password}@10.128.128.1:5672//"));
    let mut brpop = clients.python("brpop", &["-c", BRPOP, "10.128.128.1", &redis.password], &[]);
    ["redis", "rabbit"].iter().for_each(|name| clients.ready(name));
    let mut behind = clients.celery("behind", &format!("amqp://{user}:{password}@127.0.0.1:5672//"));
    clients.ready("behind");
    let of = |process: &Process, extra: &[&str]| {
        let pid = process.pid().to_string();
        inspect(&[&["--pid", pid.as_str()], extra].concat())
    };

    // Celery on Redis: nobody ever, when the connection is idle.
    let answer = of(&on_redis, &[]);
    let found = rows(&answer, "redis");
    assert!(!found.is_empty(), "{answer}");
    for row in found {
        let (lo, hi, _) = window(row, "idle");
        assert_eq!((lo, hi, row["client"].as_str(), row["risk"].as_str()), (None, None, Some("celery"), Some("open")));
        assert!(advice(row).contains("socket_keepalive"), "{}", advice(row));
    }

    // Celery on RabbitMQ: py-amqp's own keepalive and user timeout.
    let answer = of(&on_rabbit, &[]);
    let found = rows(&answer, "amqp");
    assert!(!found.is_empty(), "{answer}");
    for row in &found {
        let (_, hi, knowledge) = window(row, "idle");
        assert!(hi.is_some_and(|hi| (70.5..75.0).contains(&hi)) && knowledge == "at_most", "{row}");
        assert_eq!(
            (&row["options"]["user_timeout_ms"], &row["options"]["keepalive_idle_s"]),
            (&1000.into(), &60.into())
        );
        assert_eq!(window(row, "frozen").1, None);
    }
    // BRPOP without a deadline: never, and that is certain.
    let waits = within(Duration::from_secs(20), || {
        rows(&of(&brpop, &[]), "redis").first().is_some_and(|row| row["wait"]["how"] == "read")
    });
    assert!(waits);
    let answer = of(&brpop, &[]);
    let found = rows(&answer, "redis");
    assert_eq!(window(found[0], "idle"), (None, None, "exact".into()));
    let pid = brpop.pid().to_string();
    let check = Command::new(binary()).args(["inspect", "--pid", &pid, "--fail-over", "60s"]).output().unwrap();
    assert_eq!(check.status.code(), Some(1));

    // The proxy stands still; its kernel goes on acknowledging, so the worker's connections look alive.
    relay.signal(Signal::SIGSTOP).unwrap();
    let sent = |answer: &Value| -> u64 {
        rows(answer, "amqp").iter().map(|row| row["sent_bytes"].as_u64().unwrap_or(0)).sum()
    };
    let first = sent(&of(&behind, &[]));
    // Celery's own events: they leave, and are acknowledged by nobody but a kernel.
    assert!(within(Duration::from_secs(20), || sent(&of(&behind, &[])) > first + 100));
    let answer = of(&behind, &["--looks", "2"]);
    let found: Vec<&Value> = rows(&answer, "amqp").into_iter().filter(|row| row["server_side"] == false).collect();
    assert!(!found.is_empty());
    assert!(found.iter().any(|row| row["looks"] == "alive"), "{answer}");
    for row in &found {
        let missing = row["missing"].to_string();
        assert!(missing.contains("the negotiated heartbeat: only the broker knows it"), "{missing}");
        assert_eq!(window(row, "frozen").1, None);
    }
    for process in [&mut behind, &mut on_redis, &mut on_rabbit, &mut brpop, &mut relay] {
        process.kill().unwrap();
    }
    lab.close().unwrap();
}
