//! The kernel's verdict on a connection that was cut, in every client.

use super::*;

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
    if !inside("verdict::the_kernels_verdict_reaches_every_client_with_its_number") {
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
