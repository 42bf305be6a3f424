//! Faults: what is cut is cut, what is not is not, and the counters prove it.

use crate::support::{Connection, Lab, PORT};
use halfopen::events::{Counters, TrialId};
use halfopen::fault::{Cut, FaultError, FaultTable, Layout, TrialReading, render_bridge, render_text};
use halfopen::host::clock::Clock;
use halfopen::host::netns::NetNs;
use halfopen::host::nft::Family;
use halfopen::scenario::{Directions, Injection, Scope, profile};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const BOTH: Directions = Directions { to_broker: true, to_client: true };
const TO_BROKER: Directions = Directions { to_broker: true, to_client: false };
const TO_CLIENT: Directions = Directions { to_broker: false, to_client: true };
const NOTHING: Directions = Directions { to_broker: false, to_client: false };

fn cut(trial: TrialId, connection: &Connection, scope: Scope, drop: Directions) -> Cut {
    Cut { trial, tuple: connection.tuple, scope, drop, injection: Injection::Router, lease: None }
}

fn echo(connection: &mut Connection) {
    let mut buffer = [0; 4];
    connection.near.write_all(b"ping").expect("write to the server");
    connection.far.read_exact(&mut buffer).expect("the server hears the client");
    connection.far.write_all(b"pong").expect("write to the client");
    connection.near.read_exact(&mut buffer).expect("the client hears the server");
}

/// True when nothing arrives within the read timeout.
fn is_silent(stream: &mut std::net::TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("SO_RCVTIMEO");
    let silent = matches!(stream.read(&mut [0; 16]), Err(e) if e.kind() == ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("SO_RCVTIMEO");
    silent
}

fn counters(table: &mut FaultTable, trial: TrialId) -> Counters {
    let one = table.counters_of(trial).expect("the trial's counters");
    let all = table.counters().expect("all counters");
    assert!(one.intact && all[&trial].intact, "rules and elements are in place");
    // Read later, so never smaller.
    assert!(all[&trial].counters.offered_to_broker >= one.counters.offered_to_broker);
    one.counters
}

fn ruleset(namespace: &NetNs) -> String {
    let output = namespace.run(|| Command::new("nft").args(["list", "ruleset"]).output()).expect("the nft tool");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    // The comment names the process that asks, not the table.
    text.lines().map(|l| l.split(" # progname").next().unwrap_or(l).to_string() + "\n").collect()
}

#[test]
fn nft_prints_the_rules_as_rendered() {
    let lab = Lab::build();
    // An address of its own for each: the end of the connection before must not be counted here.
    let mut trial = 0..;
    for name in profile::names() {
        let profile = profile::builtin(name).expect("a built-in profile");
        let drop = profile.drop;
        for scope in Scope::ALL {
            let layout = Layout { middlebox: profile.middlebox, hosts: scope == Scope::Host, ..Layout::default() };
            let mut table = FaultTable::install_as(layout, &lab.router, lab.clock).expect("the table");
            let connection = lab.connect(trial.next().expect("endless")).expect("a connection");
            let cut = cut(0, &connection, scope, drop);
            table.cut(cut).expect("the cut");
            let expected = render_text(layout, &cut);
            let found = ruleset(&lab.router);
            assert!(found == expected, "nft prints\n{found}\nand not\n{expected}");
            table.close().expect("the table goes");
            assert_eq!(ruleset(&lab.router), "");
        }
    }
}

#[test]
fn nft_prints_the_rules_of_a_bridge_and_of_answers_as_rendered() {
    let lab = Lab::build();
    let connection = lab.connect(0).expect("a connection");
    let to = [0x06, 1, 2, 3];
    for scope in Scope::ALL {
        let layout = Layout { hosts: scope == Scope::Host, ..Layout::default() };
        let place = (Family::Bridge { to: Some(to) }, "halfopen");
        let mut table = FaultTable::install_in(layout, &lab.router, place, lab.clock).expect("the table");
        let cut = cut(0, &connection, scope, BOTH);
        table.cut(cut).expect("the cut");
        let (found, expected) = (ruleset(&lab.router), render_bridge(layout, &cut, to));
        assert!(found == expected, "nft prints\n{found}\nand not\n{expected}");
        table.close().expect("the table goes");
    }
    let layout = Layout { answers: true, ..Layout::default() };
    for injection in [Injection::RejectIcmp, Injection::RejectReset] {
        let mut table = FaultTable::install_as(layout, &lab.router, lab.clock).expect("the table");
        let cut = Cut { injection, ..cut(0, &connection, Scope::Flow, BOTH) };
        table.cut(cut).expect("the cut");
        let (found, expected) = (ruleset(&lab.router), render_text(layout, &cut));
        assert!(found == expected, "nft prints\n{found}\nand not\n{expected}");
        table.close().expect("the table goes");
    }
}

/// A connection from the client address of trial 0 to the broker's of trial 1.
fn to_another_broker(lab: &Lab) -> std::io::Result<TcpStream> {
    let (client, _) = Lab::addresses(0);
    let (_, server) = Lab::addresses(1);
    lab.client.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddrV4::new(client, 0).into())?;
        socket.connect_timeout(&std::net::SocketAddrV4::new(server, PORT).into(), Duration::from_millis(300))?;
        Ok(socket.into())
    })
}

#[test]
fn a_pair_leaves_the_client_to_others_and_a_host_does_not() {
    for (scope, others) in [(Scope::Flow, true), (Scope::Pair, true), (Scope::Host, false)] {
        let lab = Lab::build();
        let layout = Layout { hosts: true, ..Layout::default() };
        let mut table = FaultTable::install_as(layout, &lab.router, lab.clock).expect("the table");
        let mut victim = lab.connect(0).expect("connect");
        table.cut(cut(0, &victim, scope, BOTH)).expect("the cut");
        victim.near.write_all(b"lost").expect("the kernel takes it");
        assert!(is_silent(&mut victim.far));
        assert_eq!(to_another_broker(&lab).is_ok(), others, "{scope:?}");
        // Whoever else there is.
        assert!(lab.connect(1).is_ok(), "{scope:?}");
        let counted = counters(&mut table, 0);
        assert!(counted.dropped_to_broker >= 1, "{counted:?}");
        assert_eq!((counted.passed_to_broker, counted.passed_to_client), (0, 0), "{counted:?}");
    }
}

#[test]
fn a_cut_that_becomes_wider_goes_on_counting() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut victim = lab.connect(0).expect("connect");
    table.cut(cut(0, &victim, Scope::Pair, TO_BROKER)).expect("the cut");
    victim.near.write_all(b"lost").expect("the kernel takes it");
    victim.far.write_all(b"here").expect("the kernel takes it");
    victim.near.read_exact(&mut [0; 4]).expect("the other way is open");
    let before = counters(&mut table, 0);
    table.widen(0, BOTH).expect("both ways");
    victim.far.write_all(b"gone").expect("the kernel takes it");
    assert!(is_silent(&mut victim.near));
    let after = counters(&mut table, 0);
    assert!(after.dropped_to_client >= 1 && after.dropped_to_broker >= before.dropped_to_broker, "{after:?}");
    assert_eq!(after.passed_to_client, before.passed_to_client, "{after:?}");
    table.close().expect("the table goes");
}

#[test]
fn a_blackhole_is_silent_both_ways_and_harms_nobody_else() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let (mut victim, mut neighbour) = (lab.connect(0).expect("connect"), lab.connect(0).expect("connect"));
    let mut other = lab.connect(1).expect("connect");
    echo(&mut victim);
    let applied = table.cut(cut(0, &victim, Scope::Flow, BOTH)).expect("the cut");
    assert!(applied.before < applied.after);
    victim.near.write_all(b"lost").expect("the kernel takes it");
    victim.far.write_all(b"lost").expect("the kernel takes it");
    assert!(is_silent(&mut victim.near) && is_silent(&mut victim.far));
    echo(&mut neighbour);
    echo(&mut other);
    let counted = counters(&mut table, 0);
    assert!(counted.dropped_to_broker >= 1 && counted.dropped_to_client >= 1, "{counted:?}");
    assert_eq!((counted.passed_to_broker, counted.passed_to_client), (0, 0), "{counted:?}");
    assert_eq!((counted.rst_to_client, counted.fin_to_client, counted.icmp_to_client), (0, 0, 0), "{counted:?}");
    // A reconnect is another flow and gets through.
    echo(&mut lab.connect(0).expect("a reconnect"));
    table.close().expect("the table goes");
}

#[test]
fn one_way_cuts_let_the_other_way_pass() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let (mut deaf, mut mute) = (lab.connect(0).expect("connect"), lab.connect(1).expect("connect"));
    table.cut(cut(0, &deaf, Scope::Flow, TO_CLIENT)).expect("the cut");
    table.cut(cut(1, &mute, Scope::Flow, TO_BROKER)).expect("the cut");
    let mut buffer = [0; 4];
    deaf.near.write_all(b"ping").expect("write");
    deaf.far.read_exact(&mut buffer).expect("the server hears the client");
    deaf.far.write_all(b"pong").expect("write");
    assert!(is_silent(&mut deaf.near));
    mute.far.write_all(b"pong").expect("write");
    mute.near.read_exact(&mut buffer).expect("the client hears the server");
    mute.near.write_all(b"ping").expect("write");
    assert!(is_silent(&mut mute.far));
    let of_deaf = counters(&mut table, 0);
    assert!(of_deaf.dropped_to_client >= 1 && of_deaf.passed_to_broker >= 1, "{of_deaf:?}");
    assert_eq!((of_deaf.dropped_to_broker, of_deaf.passed_to_client), (0, 0), "{of_deaf:?}");
    let of_mute = counters(&mut table, 1);
    assert!(of_mute.dropped_to_broker >= 1 && of_mute.passed_to_client >= 1, "{of_mute:?}");
    assert_eq!((of_mute.dropped_to_client, of_mute.passed_to_broker), (0, 0), "{of_mute:?}");
}

#[test]
fn a_pair_cut_stops_reconnects_too() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut victim = lab.connect(0).expect("connect");
    table.cut(cut(0, &victim, Scope::Pair, BOTH)).expect("the cut");
    victim.near.write_all(b"lost").expect("the kernel takes it");
    assert!(is_silent(&mut victim.far));
    let reconnect = lab.client.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddrV4::new(*victim.tuple.local.ip(), 0).into())?;
        socket.connect_timeout(&victim.tuple.peer.into(), Duration::from_millis(300))
    });
    assert_eq!(reconnect.expect_err("the SYN is dropped").kind(), ErrorKind::TimedOut);
    echo(&mut lab.connect(1).expect("another client connects"));
    let counted = counters(&mut table, 0);
    assert!(counted.dropped_to_broker >= 2 && counted.offered_to_broker >= 2, "{counted:?}");
    assert_eq!((counted.passed_to_broker, counted.passed_to_client), (0, 0), "{counted:?}");
}

#[test]
fn healing_lets_the_lost_data_through_and_keeps_the_counts() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut victim = lab.connect(0).expect("connect");
    table.cut(cut(0, &victim, Scope::Flow, BOTH)).expect("the cut");
    victim.near.write_all(b"late").expect("the kernel takes it");
    assert!(is_silent(&mut victim.far));
    table.heal(0).expect("the heal");
    let dropped = counters(&mut table, 0).dropped_to_broker;
    let mut buffer = [0; 4];
    victim.far.read_exact(&mut buffer).expect("retransmitted after the heal");
    assert_eq!(&buffer, b"late");
    echo(&mut victim);
    let counted = counters(&mut table, 0);
    assert!(dropped >= 1);
    assert_eq!(counted.dropped_to_broker, dropped, "the count stands still once healed");
    assert!(counted.passed_to_broker >= 1 && counted.passed_to_client >= 1, "{counted:?}");
    assert!(matches!(table.heal(0), Err(FaultError::AlreadyHealed(0))));
    table.forget(0).expect("forgotten");
    assert!(matches!(table.counters_of(0), Err(FaultError::NotCut(0))));
    table.cut(cut(0, &victim, Scope::Flow, BOTH)).expect("cut again after forgetting");
    assert_eq!(counters(&mut table, 0), Counters::default());
}

#[test]
fn a_control_counts_and_drops_nothing() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut control = lab.connect(0).expect("connect");
    table.cut(cut(0, &control, Scope::Flow, NOTHING)).expect("the control");
    echo(&mut control);
    let counted = counters(&mut table, 0);
    assert!(counted.offered_to_broker >= 2 && counted.offered_to_client >= 2, "{counted:?}");
    assert_eq!(counted.offered_to_broker, counted.passed_to_broker, "{counted:?}");
    assert_eq!((counted.dropped_to_broker, counted.dropped_to_client), (0, 0), "{counted:?}");
    table.heal(0).expect("healing a control changes nothing");
    echo(&mut control);
    assert!(counters(&mut table, 0).offered_to_broker > counted.offered_to_broker);
}

#[test]
fn a_reset_a_fin_and_an_icmp_that_reach_the_client_are_counted() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let (mut reset, fin, mut beyond) = (lab.connect(0), lab.connect(1), lab.connect(2));
    for (trial, connection) in (0..).zip([&mut reset, &mut beyond]) {
        table.cut(cut(trial, connection.as_ref().expect("connect"), Scope::Flow, TO_BROKER)).expect("the cut");
    }
    let fin = fin.expect("connect");
    // Uncut, so that the FIN is acknowledged and comes once.
    table.cut(cut(2, &fin, Scope::Pair, NOTHING)).expect("the cut");
    // Closing with lingering off is a RST, closing in peace is a FIN.
    let mut reset = reset.expect("connect");
    socket2::SockRef::from(&reset.far).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    drop(reset.far);
    let heard = reset.near.read(&mut [0; 4]).expect_err("a reset");
    assert_eq!(heard.kind(), ErrorKind::ConnectionReset);
    drop(fin.far);
    assert_eq!((&fin.near).read(&mut [0; 4]).expect("end of file"), 0);
    // Nobody listens there: the router answers with an ICMP of its own, which leaves for the client.
    let beyond = beyond.expect("connect");
    let client = *beyond.tuple.local.ip();
    let refused = lab.client.run(|| {
        let probe = std::net::UdpSocket::bind((client, 0))?;
        probe.connect((std::net::Ipv4Addr::new(10, 0, 1, 1), 9))?;
        probe.set_read_timeout(Some(Duration::from_secs(5)))?;
        probe.send(b"x")?;
        probe.recv(&mut [0; 4])
    });
    assert_eq!(refused.expect_err("port unreachable").kind(), ErrorKind::ConnectionRefused);
    let of = |table: &mut FaultTable, trial| {
        let c = counters(table, trial);
        (c.rst_to_client, c.fin_to_client, c.icmp_to_client)
    };
    assert_eq!(of(&mut table, 0), (1, 0, 0));
    assert_eq!(of(&mut table, 2), (0, 1, 0));
    assert_eq!(of(&mut table, 1), (0, 0, 1));
}

#[test]
fn a_wrong_tuple_drops_nothing() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut connection = lab.connect(0).expect("connect");
    let mut wrong = cut(0, &connection, Scope::Flow, BOTH);
    wrong.tuple.local.set_port(connection.tuple.local.port() ^ 1);
    table.cut(wrong).expect("the cut");
    echo(&mut connection);
    assert_eq!(counters(&mut table, 0), Counters::default());
}

#[test]
fn a_clash_names_the_element_and_changes_nothing() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut connection = lab.connect(0).expect("connect");
    table.cut(cut(0, &connection, Scope::Flow, NOTHING)).expect("the control");
    assert!(matches!(table.cut(cut(0, &connection, Scope::Flow, BOTH)), Err(FaultError::AlreadyCut(0))));
    let error = table.cut(cut(1, &connection, Scope::Flow, BOTH)).expect_err("the elements exist").to_string();
    let tuple = connection.tuple;
    let key = format!("{} . {} . {} . {}", tuple.local.ip(), tuple.local.port(), tuple.peer.ip(), tuple.peer.port());
    assert!(
        error.contains(&format!(
            "cut trial 1: nftables in network namespace `router`: add element offered_flow {{ {key} }}: File exists"
        )),
        "{error}"
    );
    echo(&mut connection);
    assert_eq!(counters(&mut table, 0).dropped_to_broker, 0, "nothing of the refused batch is in force");
}

#[test]
fn foreign_changes_are_told_from_harmless_ones() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let connection = lab.connect(0).expect("connect");
    table.cut(cut(0, &connection, Scope::Flow, BOTH)).expect("the cut");
    let nft = |arguments: &str| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        lab.router.run(|| Command::new("nft").args(arguments).output()).expect("the nft tool")
    };
    assert!(nft("add table ip elsewhere").status.success());
    let TrialReading { intact, .. } = table.counters_of(0).expect("counters");
    assert!(intact, "a table elsewhere changes nothing here");
    assert!(!nft("flush chain ip halfopen cut").status.success(), "the table is owned");
    assert!(!nft("delete table ip halfopen").status.success(), "the table is owned");
    assert!(table.counters_of(0).expect("counters").intact);
    assert!(nft("flush ruleset").status.success());
    assert!(table.counters_of(0).expect("counters").intact, "the table survives a flush of the ruleset");
    assert!(!table.counters().expect("counters").is_empty());
}

#[test]
fn the_table_dies_with_its_owner() {
    let lab = Lab::build();
    let table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    assert!(FaultTable::install(&lab.router, lab.clock).is_err(), "there is one table");
    drop(table);
    assert_eq!(ruleset(&lab.router), "");
}

/// Set in a process that only owns a table, until it is killed.
const OWNER: &str = "HALFOPEN_TEST_OWNER";

#[test]
fn the_table_dies_with_a_killed_process() {
    if std::env::var_os(OWNER).is_some() {
        let here = NetNs::current("router").expect("the namespace");
        let _table = FaultTable::install(&here, Clock::start()).expect("the table");
        println!("\nowned");
        // Blocks until the parent kills this process or ends.
        let _ = std::io::stdin().read(&mut [0; 1]);
        return;
    }
    let lab = Lab::build();
    let test = std::env::current_exe().expect("this test");
    let mut owner = lab
        .router
        .run(|| {
            Command::new(test)
                .args(["--exact", "fault::the_table_dies_with_a_killed_process", "--nocapture"])
                .env(OWNER, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        })
        .expect("this test again");
    let mut lines = BufReader::new(owner.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("text") == "owned"), "the other process says that it owns the table");
    assert!(ruleset(&lab.router).starts_with("table ip halfopen {\n\tflags owner\n"));
    owner.kill().expect("SIGKILL");
    owner.wait().expect("its end");
    assert_eq!(ruleset(&lab.router), "");
}

/// As the engine does it: other work on the machine must not delay a cut.
fn on_a_real_time_thread(work: impl FnOnce() + Send) {
    let run = || {
        let priority = libc::sched_param { sched_priority: 10 };
        // SAFETY: this thread's own scheduling, from a struct that lives through the call.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
        if set != 0 {
            println!("measured without real-time scheduling: {}", std::io::Error::last_os_error());
        }
        work();
    };
    std::thread::scope(|scope| scope.spawn(run).join()).expect("the real-time thread");
}

#[test]
fn a_thousand_cuts_are_quick() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let tuple = lab.connect(0).expect("connect").tuple;
    on_a_real_time_thread(|| {
        let now_ms = || lab.clock.now().0 as f64 / 1e6;
        let cut = |trial: TrialId| {
            let (client, server) = Lab::addresses(trial);
            let mut tuple = tuple;
            tuple.local.set_ip(client);
            tuple.peer.set_ip(server);
            let applied = table
                .cut(Cut { trial, tuple, scope: Scope::Flow, drop: BOTH, injection: Injection::Router, lease: None })
                .expect("the cut");
            (applied.after.0 - applied.before.0) as f64 / 1e6
        };
        let mut brackets_ms: Vec<f64> = (0..1000).map(cut).collect();
        brackets_ms.sort_by(f64::total_cmp);
        let before = now_ms();
        let read = table.counters().expect("counters");
        let all_ms = now_ms() - before;
        let before = now_ms();
        table.counters_of(999).expect("counters");
        let one_ms = now_ms() - before;
        let (median, p99) = (brackets_ms[500], brackets_ms[990]);
        println!("cut: median {median:.3} ms, p99 {p99:.3} ms, most {:.3} ms", brackets_ms[999]);
        println!("counters: all 1,000 trials {all_ms:.3} ms, one trial {one_ms:.3} ms");
        assert!(read.len() == 1000 && read.values().all(|r| r.intact && r.counters == Counters::default()));
        assert!(median <= 0.5, "median {median} ms");
        assert!(p99 <= 5.0, "p99 {p99} ms");
    });
}
