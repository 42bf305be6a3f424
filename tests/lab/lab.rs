//! The lab: real brokers, reached from client namespaces with the address that the plan says.

use crate::common::{below, binary, processes_with, require_root, run_id, within};
use crate::supervisor::Run;
use halfopen::events::{Kind, Tuple};
use halfopen::host::clock::Clock;
use halfopen::host::init::WORK_DIR_VARIABLE;
use halfopen::host::journal::clean;
use halfopen::host::mailbox::mailbox;
use halfopen::host::netlink::read_sysctl;
use halfopen::host::netns::NetNs;
use halfopen::host::procfs::{Identity, command_line, identity, is_running};
use halfopen::lab::{ArmNet, Lab, LabError, LabSpec, PRODUCER, Patience, RouterNs};
use halfopen::observe::broker_log::LogWatch;
use halfopen::observe::redis_clients::ClientsWatch;
use halfopen::scenario::{BrokerKind, BrokerSettings};
use halfopen::units::Pace;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn arm(k: u8, trials: u16) -> ArmNet {
    let address = |net: u8, j: u16| Ipv4Addr::new(10, net, 128 + (j / 250) as u8, 1 + (j % 250) as u8);
    ArmNet {
        name: format!("arm-{k}"),
        pairs: (0..trials).map(|j| (address(64 + k, j), address(128 + k, j))).collect(),
        ..ArmNet::default()
    }
}

/// Where this test process may build: inside a supervised run that run's own namespace and directory, else a new
/// namespace and a temporary directory.
fn place() -> (tempfile::TempDir, RouterNs) {
    match std::env::var_os(WORK_DIR_VARIABLE) {
        Some(work) => (tempfile::tempdir_in(work).unwrap(), RouterNs::Current),
        None => (tempfile::tempdir().unwrap(), RouterNs::New),
    }
}

fn spec<'a>(name: &str, dir: &std::path::Path, arms: Vec<ArmNet>, brokers: &'a BrokerSettings) -> LabSpec<'a> {
    LabSpec {
        run_id: run_id(name),
        work_dir: dir.to_path_buf(),
        arms,
        brokers,
        nofile: 8_192,
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
    }
}

fn connect(ns: &NetNs, to: Ipv4Addr, port: u16) -> TcpStream {
    let stream = ns.run(|| TcpStream::connect(SocketAddrV4::new(to, port))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn redis(stream: &mut TcpStream, command: &str) -> String {
    write!(stream, "{command}\r\n").unwrap();
    let mut buffer = [0; 65_536];
    let n = stream.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

#[test]
fn both_brokers_are_reached_from_each_arm_with_the_trials_own_address() {
    require_root();
    let (dir, router) = place();
    let settings = BrokerSettings { kinds: vec![BrokerKind::Rabbitmq, BrokerKind::Redis], ..BrokerSettings::default() };
    let arms = vec![arm(0, 3), arm(1, 3)];
    let pairs: Vec<_> = arms.iter().map(|a| a.pairs.clone()).collect();
    let spec = LabSpec { router, ..spec("lab", dir.path(), arms, &settings) };
    let lab = Lab::build(&spec, &Patience::new(Clock::start())).unwrap();
    assert!(!processes_with(&spec.run_id).is_empty());
    for broker in &lab.brokers {
        println!("{} {:?} up in {:?}, {:?}", broker.kind, broker.version, broker.startup, broker.usage());
        assert!(broker.version.is_some());
        assert!(broker.usage().peak_rss_kib > 1_000);
    }
    let redis_broker = lab.broker(BrokerKind::Redis).unwrap();
    let rabbit = lab.broker(BrokerKind::Rabbitmq).unwrap();
    let mut open = Vec::new();
    for (ns, pairs) in lab.clients.iter().zip(&pairs) {
        for (client, server) in pairs {
            let mut stream = connect(ns, *server, redis_broker.port);
            assert_eq!(stream.local_addr().unwrap().ip(), *client);
            assert_eq!(redis(&mut stream, &format!("AUTH {}", redis_broker.password)), "+OK\r\n");
            let info = redis(&mut stream, "CLIENT INFO");
            let address = stream.local_addr().unwrap();
            assert!(info.contains(&format!("addr={address} laddr={server}:6379")), "{info}");

            let mut amqp = connect(ns, *server, rabbit.port);
            amqp.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
            let mut start = [0; 11];
            amqp.read_exact(&mut start).unwrap();
            assert_eq!(start[7..], [0, 10, 0, 10], "connection.start");
            let line = format!("({} -> {server}:5672)", amqp.local_addr().unwrap());
            let seen =
                within(Duration::from_secs(10), || std::fs::read_to_string(&rabbit.log).unwrap().contains(&line));
            assert!(seen, "{line} is not in RabbitMQ's log");
            open.push((stream, amqp));
        }
    }
    let mut producer = connect(&lab.producer, *redis_broker.admin().ip(), redis_broker.port);
    assert_eq!(producer.local_addr().unwrap().ip(), PRODUCER);
    assert!(redis(&mut producer, "PING").starts_with("-NOAUTH"));
    // Both brokers tell, each in its way, when a connection is over.
    let (sender, events) = mailbox();
    let clock = Clock::start();
    let log = LogWatch::start(&rabbit.log, clock, sender.clone()).unwrap();
    let every = Pace::new(Duration::from_millis(20), 50);
    let (ns, at, password) = (&lab.producer, redis_broker.admin(), &redis_broker.password);
    let table = ClientsWatch::start(ns, at, password, every, clock, sender).unwrap();
    let tuple = |s: &TcpStream| match (s.local_addr().unwrap(), s.peer_addr().unwrap()) {
        (SocketAddr::V4(local), SocketAddr::V4(peer)) => Tuple { local, peer },
        other => panic!("{other:?}"),
    };
    let mut expected: BTreeMap<Tuple, &str> = BTreeMap::new();
    for (redis, amqp) in &open {
        expected.insert(tuple(redis), "gone");
        expected.insert(tuple(amqp), "closed_abruptly");
    }
    let before = clock.now();
    drop(open);
    while !expected.is_empty() {
        let event = events.recv_until(clock, clock.now() + Duration::from_secs(10)).unwrap();
        let Kind::BrokerEnd { tuple, reason, .. } = event.kind else { panic!("{event:?}") };
        // The log begins with the lab's own logins, which are no trial's.
        if let Some(wanted) = expected.remove(&tuple) {
            assert_eq!(reason, wanted);
            assert!(
                event.offset > before - Duration::from_millis(5) && event.offset <= clock.now(),
                "{}",
                event.offset
            );
        }
    }
    log.stop().unwrap();
    table.stop().unwrap();

    lab.close().unwrap();
    let gone = within(Duration::from_secs(2), || processes_with(&spec.run_id).is_empty());
    assert!(gone, "{:?}", processes_with(&spec.run_id));
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "no files left");
}

/// The test above, once more inside the supervisor: with the run's own namespace as the router.
fn supervised(run: &Run, program: &Path, user: Option<u32>) -> Command {
    let test = "lab::both_brokers_are_reached_from_each_arm_with_the_trials_own_address";
    let mut command = match user {
        None => Command::new(program.join("halfopen")),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
            command.arg(program.join("halfopen"));
            command
        }
    };
    command.arg("__supervise").arg(&run.id).arg(run.out()).arg("--").arg(program.join("tests"));
    command.args([test, "--exact", "--nocapture"]).env("HALFOPEN_STATE_DIR", run.state()).stdin(Stdio::null());
    command
}

/// Copies of the two binaries where every user can run them, and directories that the user can write.
fn prepare(run: &Run, user: u32) -> PathBuf {
    let place = run.out().parent().unwrap().to_path_buf();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(binary(), place.join("halfopen")).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), place.join("tests")).unwrap();
    std::fs::create_dir(run.state()).unwrap();
    for dir in [run.state(), run.out()] {
        std::os::unix::fs::chown(dir, Some(user), Some(user)).unwrap();
    }
    place
}

#[test]
fn an_ordinary_user_gets_the_whole_lab_inside_the_supervisor() {
    require_root();
    let run = Run::new("lab-nobody");
    let place = prepare(&run, 65_534);
    let output = supervised(&run, &place, Some(65_534)).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    run.assert_nothing_left("after the lab's end");
}

#[test]
fn killed_while_brokers_start_and_when_they_are_up_nothing_survives() {
    require_root();
    // `/proc/PID/net/tcp` shows the namespace of that process: local port 5672 (0x1628) in state LISTEN (0A).
    let listens = |pid: u32| {
        let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
        let listener = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|local| local.ends_with(":1628")) && fields.get(3) == Some(&"0A")
        };
        sockets.lines().any(listener)
    };
    for (when, up) in [("starting", false), ("up", true)] {
        let run = Run::new(when);
        let place = prepare(&run, 0);
        let mut child = supervised(&run, &place, None).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The brokers carry the inner test's own id, so they are found by their place below this run.
        let named = |name: &str| below(child.id()).into_iter().find(|pid| command_line(*pid).join(" ").contains(name));
        let reached = within(Duration::from_secs(120), || {
            named("redis-server").is_some()
                && named("epmd").is_some()
                && named("beam.smp").is_some_and(|b| !up || listens(b))
        });
        assert!(reached, "{when}: {:?}", processes_with(&run.id));
        let all: Vec<Identity> = below(child.id()).into_iter().filter_map(identity).collect();
        assert!(all.len() >= 5, "{all:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(within(Duration::from_secs(1), || !all.iter().any(|p| is_running(*p))), "{when}: survivors of {all:?}");
        run.assert_nothing_left(when);
        assert!(clean(&run.state(), false, &|_, _| Ok(Vec::new())).errors.is_empty() && run.journal_is_empty());
    }
}

#[test]
fn a_thousand_trials_an_arm_are_wired_quickly_and_reach_the_server() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let settings = BrokerSettings { kinds: vec![BrokerKind::None], ..BrokerSettings::default() };
    let mut arms = vec![arm(0, 1_000), arm(1, 1_000)];
    arms[1].sysctl.insert("tcp_retries2".into(), 5);
    let (client, server) = arms[1].pairs[999];
    let spec = spec("wide", dir.path(), arms, &settings);
    let start = Instant::now();
    let lab = Lab::build(&spec, &Patience::new(Clock::start())).unwrap();
    let took = start.elapsed();
    println!("2 arms, 2,000 routes: {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");

    assert_eq!(read_sysctl(&lab.clients[0], "ipv4.tcp_retries2").unwrap(), 15);
    assert_eq!(read_sysctl(&lab.clients[1], "ipv4.tcp_retries2").unwrap(), 5);
    assert_eq!(read_sysctl(&lab.router, "ipv4.ip_forward").unwrap(), 1);
    let listener = lab.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, BrokerKind::None.port()))).unwrap();
    let stream = connect(&lab.clients[1], server, BrokerKind::None.port());
    let (accepted, peer) = listener.accept().unwrap();
    assert_eq!(peer, stream.local_addr().unwrap());
    assert_eq!(peer.ip(), client);
    assert_eq!(accepted.local_addr().unwrap(), SocketAddr::from((server, BrokerKind::None.port())));
    // Every hop is a permanent entry: nothing was asked by ARP.
    let neighbours = lab.router.run(|| std::fs::read_to_string("/proc/thread-self/net/arp")).unwrap();
    let flags: Vec<&str> = neighbours.lines().skip(1).filter_map(|l| l.split_whitespace().nth(2)).collect();
    assert_eq!(flags, ["0x6"; 4], "{neighbours}");
    lab.close().unwrap();
}

#[test]
fn an_unknown_sysctl_is_named_with_its_arm() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let settings = BrokerSettings::default();
    let mut bad = arm(0, 1);
    bad.sysctl.insert("tcp_no_such_thing".into(), 1);
    let error =
        Lab::build(&spec("sysctl", dir.path(), vec![bad], &settings), &Patience::new(Clock::start())).unwrap_err();
    assert!(matches!(error, LabError::Sysctl { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("arm-0") && text.contains("tcp_no_such_thing"), "{text}");
}

#[test]
fn a_namespace_in_use_never_becomes_the_router() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let settings = BrokerSettings::default();
    let busy = NetNs::create("busy").unwrap();
    let peer = NetNs::create("peer").unwrap();
    let veth = halfopen::host::netlink::Op::Veth {
        name: "x0".into(),
        mac: [2, 0, 0, 0, 0, 1],
        peer: "x1".into(),
        peer_mac: [2, 0, 0, 0, 0, 2],
        // The kernel removes a pair with either of its namespaces, so this one has to outlive the check.
        peer_ns: peer.clone(),
    };
    halfopen::host::netlink::apply(&busy, &[veth]).unwrap();
    let mut spec = spec("busy", dir.path(), vec![arm(0, 1)], &settings);
    spec.router = RouterNs::Current;
    let error = busy.run(|| Ok(Lab::build(&spec, &Patience::new(Clock::start())).unwrap_err())).unwrap();
    assert!(matches!(&error, LabError::NotEmpty { links } if links == "x0"), "{error}");
    drop(peer);
}
