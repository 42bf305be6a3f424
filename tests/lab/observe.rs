//! What the kernel tells: `sock_diag` and tracepoints, against connections whose fate is known.

use crate::support::{Connection, Lab};
use halfopen::fault::{Cut, FaultTable};
use halfopen::host::clock::Clock;
use halfopen::observe::{
    KernelEnd, KernelEnds, PolledEnd, PolledEnds, SockDiag, States, TraceWhat, Tracepoints, Unavailable,
};
use halfopen::scenario::{Directions, Injection, Scope};
use halfopen::units::Offset;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Trials of the tests with tracepoints. Those see the whole machine and no namespaces: tests that run beside them use
/// other addresses.
const TRACED: [u32; 2] = [2002, 2003];
/// Trials of the connections that die by keepalive, with tracepoints too.
const DYING: Range<u32> = 2010..2018;
const ESTABLISHED: u8 = 1;
const CLOSE: i32 = 7;
const CLOSE_WAIT: i32 = 8;
const BOTH: Directions = Directions { to_broker: true, to_client: true };

fn tracepoints(clock: Clock) -> Tracepoints {
    Tracepoints::open(clock).unwrap_or_else(|e| {
        panic!("lab tests need tracepoints and failed, they were not skipped; run them as root of the machine: {e}")
    })
}

fn echo(connection: &mut Connection) {
    let mut buffer = [0; 4];
    connection.near.write_all(b"ping").expect("write to the server");
    connection.far.read_exact(&mut buffer).expect("the server hears the client");
    connection.far.write_all(b"pong").expect("write to the client");
    connection.near.read_exact(&mut buffer).expect("the client hears the server");
}

/// What both sources said of a connection.
#[derive(Debug)]
struct Seen {
    connection: Connection,
    age_s: f64,
    cut: Offset,
    traced: Option<KernelEnd>,
    polled: Option<PolledEnd>,
    /// When the look that no longer saw it was over: the end may fall within it.
    looked: Offset,
}

/// Watches connections by both sources until both have seen every end, or the time is over.
fn watch(lab: &Lab, all: &mut [Seen], trace: &mut Tracepoints, diag: &mut SockDiag, at_most_s: i64) {
    let (mut ends, mut polls) = (KernelEnds::default(), PolledEnds::default());
    let deadline = Offset(lab.clock.now().0 + at_most_s * 1_000_000_000);
    while all.iter().any(|one| one.traced.is_none() || one.polled.is_none()) && lab.clock.now() < deadline {
        trace.wait(Duration::from_millis(5)).expect("poll");
        let now = lab.clock.now();
        trace.drain().iter().for_each(|record| ends.push(record));
        let traced = ends.take(now);
        let before = lab.clock.now();
        let seen = diag.dump(States::CONNECTIONS).expect("a dump");
        let after = lab.clock.now();
        let polled = polls.look(before, seen.into_iter().map(|(tuple, socket)| (tuple, socket.state)));
        for one in &mut *all {
            let tuple = one.connection.tuple;
            one.traced = one.traced.or_else(|| traced.iter().find(|end| end.tuple == tuple).copied());
            if let Some(end) = polled.iter().find(|end| end.tuple == tuple) {
                (one.polled, one.looked) = (Some(*end), after);
            }
        }
    }
}

/// Keeps every CPU out of its idle task, at the cost of nobody: the threads run where nothing else would.
///
/// Linux 6.18 was seen to count, and not to record, what a timer does on an idle CPU, in every second death or so; on busy
/// CPUs never. `Tracepoints::lost` tells of it, and a run says so; here the two sources are compared, not that.
struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |cpu: usize| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu).expect("a CPU");
                sched_setaffinity(Pid::from_raw(0), &only).expect("a thread of its own CPU");
                let parameters = libc::sched_param { sched_priority: 0 };
                // SAFETY: the parameters are initialised, and 0 is this thread.
                assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }, 0);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the CPUs");
        let cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        let threads = cpus.map(spin).collect();
        Self { stop, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[test]
fn both_sources_agree_on_the_death_by_keepalive() {
    let _awake = Awake::start();
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut trace = tracepoints(lab.clock);
    let mut diag = SockDiag::open(&lab.client).expect("sock_diag");
    let mut all: Vec<_> = DYING
        .map(|j| {
            let mut connection = lab.connect(j).expect("connect");
            connection.keepalive(1, 1, 1);
            echo(&mut connection);
            let snapshot = diag.get(connection.tuple).expect("a look").expect("the socket");
            let cut = Cut {
                trial: j - DYING.start,
                tuple: connection.tuple,
                scope: Scope::Flow,
                drop: BOTH,
                injection: Injection::Router,
                lease: None,
            };
            let cut = table.cut(cut).expect("the cut").after;
            let age_s = f64::from(snapshot.last_data_recv_ms.min(snapshot.last_ack_recv_ms)) / 1e3;
            assert!(snapshot.timer == 2 && snapshot.state == ESTABLISHED, "a keepalive timer runs: {snapshot:?}");
            Seen { connection, age_s, cut, traced: None, polled: None, looked: cut }
        })
        .collect();
    watch(&lab, &mut all, &mut trace, &mut diag, 10);
    for one in &all {
        let polled = one.polled.as_ref().unwrap_or_else(|| panic!("sock_diag sees each end: {one:?}"));
        let Some(end) = one.traced else { continue };
        let ttd_s = (end.at.0 - one.cut.0) as f64 / 1e9;
        println!("keepalive 1/1/1: {ttd_s:.3} s after the cut, last segment {:.3} s before it", one.age_s);
        println!("polled between {:?} and {:?}, traced at {:?}", polled.not_before, polled.at, end.at);
        assert_eq!((end.state, end.errno), (CLOSE, libc::ETIMEDOUT), "{one:?}");
        // Two ticks of a second, each late by up to 32 ms of the timer wheel, and a busy machine.
        assert!((2.0..2.3).contains(&(ttd_s + one.age_s)), "{ttd_s} + {}", one.age_s);
        assert!(polled.not_before < end.at, "still there at the look before");
        assert!(end.at <= one.looked, "polled at {:?}, traced at {:?}", polled.at, end.at);
        assert!(diag.get(one.connection.tuple).expect("a look").is_none_or(|s| s.state != ESTABLISHED));
    }
    // What no tracepoint told is missing by the kernel's own count: silence is never taken for an answer. `lost` knows of an
    // unrecorded event one drain late.
    let missing = all.iter().filter(|one| one.traced.is_none()).count() as u64;
    trace.drain();
    println!("{missing} ends untold, {} records lost", trace.lost());
    assert!(trace.lost() >= missing, "{missing} ends without a record, {} records counted as lost", trace.lost());
    assert!(missing < all.len() as u64, "no end at all was recorded, {} records lost", trace.lost());
}

#[test]
fn a_reset_and_a_fin_are_told_apart() {
    let lab = Lab::build();
    let mut trace = tracepoints(lab.clock);
    let mut diag = SockDiag::open(&lab.client).expect("sock_diag");
    let reset = lab.connect(TRACED[0]).expect("connect");
    socket2::SockRef::from(&reset.far).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    drop(reset.far);
    let mut records = Vec::new();
    let mut ends = KernelEnds::default();
    let deadline = Offset(lab.clock.now().0 + 5_000_000_000);
    while records.len() < 3 && lab.clock.now() < deadline {
        trace.wait(Duration::from_millis(100)).expect("poll");
        records.extend(trace.drain().iter().filter(|r| r.tuple == reset.tuple && r.what != established()));
    }
    records.iter().for_each(|r| ends.push(r));
    let end = ends.take(Offset(deadline.0 + 1_000_000_000))[0];
    assert_eq!((end.state, end.errno), (CLOSE, libc::ECONNRESET), "{records:?}");
    assert!(records.iter().any(|r| r.what == TraceWhat::ResetReceived), "{records:?}");

    let fin = lab.connect(TRACED[1]).expect("connect");
    diag.dump(States::CONNECTIONS).expect("a dump");
    let tuple = fin.tuple;
    drop(fin.far);
    assert_eq!((&fin.near).read(&mut [0; 4]).expect("end of file"), 0);
    let mut ends = KernelEnds::default();
    trace.drain().iter().filter(|r| r.tuple == tuple).for_each(|r| ends.push(r));
    let end = ends.take(Offset(lab.clock.now().0 + 1_000_000_000))[0];
    assert_eq!((end.state, end.errno), (CLOSE_WAIT, 0));
    let snapshot = diag.get(tuple).expect("a look").expect("half closed, still there");
    assert_eq!(i32::from(snapshot.state), CLOSE_WAIT);
}

fn established() -> TraceWhat {
    TraceWhat::State { old: 2, new: 1 }
}

#[test]
fn unsent_and_unread_bytes_are_seen() {
    let lab = Lab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut diag = SockDiag::open(&lab.client).expect("sock_diag");
    let mut connection = lab.connect(0).expect("connect");
    echo(&mut connection);
    connection.far.write_all(b"unread").expect("write");
    // The server's kernel knows once the client's has it.
    let mut far = SockDiag::open(&lab.server).expect("sock_diag");
    let deadline = Offset(lab.clock.now().0 + 5_000_000_000);
    while far.get(connection.tuple.reversed()).expect("a look").expect("the far end").unacked > 0 {
        assert!(lab.clock.now() < deadline, "the client's kernel never acknowledged");
    }
    table
        .cut(Cut {
            trial: 0,
            tuple: connection.tuple,
            scope: Scope::Flow,
            drop: BOTH,
            injection: Injection::Router,
            lease: None,
        })
        .expect("the cut");
    connection.near.write_all(b"lost bytes").expect("the kernel takes it");
    let snapshot = diag.get(connection.tuple).expect("a look").expect("the socket");
    assert_eq!((snapshot.rqueue, snapshot.wqueue, snapshot.unacked), (6, 10, 1), "{snapshot:?}");
    assert_eq!((snapshot.state, snapshot.timer), (ESTABLISHED, 1), "{snapshot:?}");
    assert!(snapshot.rtt_us > 0 && snapshot.rto_us >= 200_000 && snapshot.expires_ms > 0, "{snapshot:?}");
    let mut wrong = connection.tuple;
    wrong.local.set_port(wrong.local.port() ^ 1);
    assert_eq!(diag.get(wrong).expect("a look"), None);
}

#[test]
fn a_thousand_sockets_are_read_quickly() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("RLIMIT_NOFILE");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("RLIMIT_NOFILE");
    let lab = Lab::build();
    let connections: Vec<_> = (0..1000).map(|j| lab.connect(j).expect("connect")).collect();
    let mut diag = SockDiag::open(&lab.client).expect("sock_diag");
    let time_ms = |from: Offset| (lab.clock.now().0 - from.0) as f64 / 1e6;
    let before = lab.clock.now();
    let seen = diag.dump(States::ESTABLISHED).expect("a dump");
    let dump_ms = time_ms(before);
    let mut gets_ms: Vec<_> = connections
        .iter()
        .map(|connection| {
            let before = lab.clock.now();
            assert!(diag.get(connection.tuple).expect("a look").is_some());
            time_ms(before)
        })
        .collect();
    gets_ms.sort_by(f64::total_cmp);
    println!("1,000 sockets: dump {dump_ms:.3} ms; one: median {:.3} ms, p99 {:.3} ms", gets_ms[500], gets_ms[990]);
    assert_eq!(seen.len(), 1000);
    assert!(connections.iter().all(|c| seen.iter().any(|(tuple, _)| *tuple == c.tuple)));
    assert!(dump_ms < 100.0, "{dump_ms} ms");
    assert!(gets_ms[500] < 0.2, "{} ms", gets_ms[500]);
}

#[test]
fn without_privileges_the_reason_is_told() {
    // By the system call itself: it changes this one thread, the C library's function would change all of them.
    let refused = std::thread::spawn(|| {
        let nobody: libc::c_long = 65_534;
        // Refused where this user is not mapped, which is inside a user namespace and without privileges anyway.
        // SAFETY: three plain numbers; the thread does nothing afterwards that needs what it gives up.
        unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
        Tracepoints::open(Clock::start()).map(drop)
    });
    let reason = refused.join().expect("the thread").expect_err("an ordinary user has no tracepoints");
    assert!(matches!(reason, Unavailable::NoTracefs(_) | Unavailable::NotPermitted(_)), "{reason:?}");
    println!("not available because {reason}");
}
