//! The lab: real brokers, reached from client namespaces with the address that the plan says.

use crate::common::{processes_with, require_root, run_id, within};
use halfopen::host::clock::Clock;
use halfopen::host::netlink::read_sysctl;
use halfopen::host::netns::NetNs;
use halfopen::lab::{ArmNet, Lab, LabError, LabSpec, PRODUCER, RouterNs};
use halfopen::scenario::{BrokerKind, BrokerSettings};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn arm(k: u8, trials: u16) -> ArmNet {
    let address = |net: u8, j: u16| Ipv4Addr::new(10, net, 128 + (j / 250) as u8, 1 + (j % 250) as u8);
    ArmNet {
        name: format!("arm-{k}"),
        pairs: (0..trials).map(|j| (address(64 + k, j), address(128 + k, j))).collect(),
        ..ArmNet::default()
    }
}

fn spec<'a>(name: &str, dir: &std::path::Path, arms: Vec<ArmNet>, brokers: &'a BrokerSettings) -> LabSpec<'a> {
    LabSpec { run_id: run_id(name), work_dir: dir.to_path_buf(), arms, brokers, nofile: 8_192, router: RouterNs::New }
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
    let dir = tempfile::tempdir().unwrap();
    let settings = BrokerSettings { kinds: vec![BrokerKind::Rabbitmq, BrokerKind::Redis], ..BrokerSettings::default() };
    let arms = vec![arm(0, 3), arm(1, 3)];
    let pairs: Vec<_> = arms.iter().map(|a| a.pairs.clone()).collect();
    let spec = spec("lab", dir.path(), arms, &settings);
    let lab = Lab::build(&spec, Clock::start()).unwrap();
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
    drop(open);

    lab.close().unwrap();
    let gone = within(Duration::from_secs(2), || processes_with(&spec.run_id).is_empty());
    assert!(gone, "{:?}", processes_with(&spec.run_id));
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "no files left");
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
    let lab = Lab::build(&spec, Clock::start()).unwrap();
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
    let error = Lab::build(&spec("sysctl", dir.path(), vec![bad], &settings), Clock::start()).unwrap_err();
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
        peer_ns: peer,
    };
    halfopen::host::netlink::apply(&busy, &[veth]).unwrap();
    let mut spec = spec("busy", dir.path(), vec![arm(0, 1)], &settings);
    spec.router = RouterNs::Current;
    let error = busy.run(|| Ok(Lab::build(&spec, Clock::start()).unwrap_err())).unwrap();
    assert!(matches!(&error, LabError::NotEmpty { links } if links == "x0"), "{error}");
}
