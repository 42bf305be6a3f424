use super::*;
use crate::events::SocketSnapshot;
use crate::inspect::{Options, Owner};
use crate::observe::TcpSocket;

fn connection(snapshot: SocketSnapshot) -> Connection {
    Connection {
        namespace: 0,
        socket: TcpSocket {
            local: "10.0.0.1:40000".parse().unwrap(),
            peer: "10.0.0.2:5672".parse().unwrap(),
            inode: 1,
            uid: 0,
            cookie: 1,
            snapshot: SocketSnapshot { state: if snapshot.state == 0 { 1 } else { snapshot.state }, ..snapshot },
            last_data_sent_ms: 0,
            bytes_sent: 0,
            bytes_received: 100,
            peer_window: Some(64_000),
            not_sent: 0,
        },
        owner: Some(Owner { pid: 1, name: "x".into(), command: Vec::new(), fd: 3, shared_with: 0, stopped: false }),
        options: Ok(Options {
            nonblocking: false,
            rcvtimeo_ms: 0,
            sndtimeo_ms: 0,
            keepalive: true,
            keepalive_idle_s: 60,
            keepalive_interval_s: 10,
            keepalive_probes: 9,
            user_timeout_ms: 0,
            syn_count: 6,
            rto_max_ms: None,
        }),
        wait: Wait::Nobody,
        wait_channel: None,
    }
}

fn told(now: &Connection, before: Option<&Connection>, heartbeat: Heartbeat) -> Vec<(Sign, Sure)> {
    let before = before.map(|connection| Before { connection, ago_s: 2.0 });
    suspicions(now, before, heartbeat, None).into_iter().map(|s| (s.sign, s.sure)).collect()
}

#[test]
fn a_healthy_connection_is_alive_or_untested_and_never_suspicious() {
    let quiet = |ms| {
        connection(SocketSnapshot {
            timer: 2,
            last_ack_recv_ms: ms,
            last_data_recv_ms: ms,
            ..SocketSnapshot::default()
        })
    };
    assert_eq!(told(&quiet(59_000), Some(&quiet(57_000)), Heartbeat::NotSpoken), []);
    // Keepalive asks once a minute: until then silence says nothing.
    assert_eq!(looks(&quiet(59_000), &[]), Looks::Alive);
    assert_eq!(looks(&quiet(300_000), &[]), Looks::Untested);
    // A single loss.
    let loss = SocketSnapshot { timer: 1, unacked: 1, backoff: 1, last_ack_recv_ms: 300, ..SocketSnapshot::default() };
    assert_eq!(told(&connection(loss), None, Heartbeat::NotSpoken), [(Sign::BackOff, Sure::Possible)]);
}

#[test]
fn a_back_off_that_goes_on_between_two_looks_is_almost_certain() {
    let at = |backoff, ms| {
        connection(SocketSnapshot {
            timer: 1,
            unacked: 1,
            wqueue: 8,
            backoff,
            rto_us: 200_000 << backoff,
            last_ack_recv_ms: ms,
            last_data_recv_ms: ms,
            ..SocketSnapshot::default()
        })
    };
    assert_eq!(told(&at(2, 1_300), None, Heartbeat::NotSpoken), [(Sign::BackOff, Sure::Likely)]);
    let (before, now) = (at(2, 1_300), at(4, 3_300));
    assert_eq!(told(&now, Some(&before), Heartbeat::NotSpoken), [(Sign::BackOff, Sure::AlmostCertain)]);
    let seen = suspicions(&now, Some(Before { connection: &before, ago_s: 2.0 }), Heartbeat::NotSpoken, None);
    assert_eq!(looks(&now, &seen), Looks::HalfOpen);
    // Something was heard meanwhile: a lossy path.
    assert_eq!(told(&at(2, 300), Some(&at(2, 1_300)), Heartbeat::NotSpoken), [(Sign::BackOff, Sure::Likely)]);
}

#[test]
fn probes_without_an_answer_grow_in_certainty() {
    let probes = |probes, expires_ms, ms| {
        connection(SocketSnapshot {
            timer: 2,
            probes,
            expires_ms,
            last_ack_recv_ms: ms,
            last_data_recv_ms: ms,
            ..SocketSnapshot::default()
        })
    };
    // Sent this very moment: the answer may be under way.
    assert_eq!(told(&probes(1, 9_990, 60_000), None, Heartbeat::NotSpoken), [(Sign::ProbesOut, Sure::Possible)]);
    assert_eq!(told(&probes(1, 5_000, 65_000), None, Heartbeat::NotSpoken), [(Sign::ProbesOut, Sure::Likely)]);
    let (before, now) = (probes(1, 7_000, 63_000), probes(1, 5_000, 65_000));
    assert_eq!(told(&now, Some(&before), Heartbeat::NotSpoken), [(Sign::ProbesOut, Sure::AlmostCertain)]);
}

#[test]
fn an_overdue_heartbeat_names_what_stands_still() {
    let quiet = |data_ms, ack_ms| {
        connection(SocketSnapshot { last_data_recv_ms: data_ms, last_ack_recv_ms: ack_ms, ..SocketSnapshot::default() })
    };
    assert_eq!(told(&quiet(80_000, 80_000), None, Heartbeat::Known(60)), []);
    assert_eq!(told(&quiet(130_000, 4_000), None, Heartbeat::Known(60)), [(Sign::HeartbeatOverdue, Sure::Likely)]);
    let frozen = suspicions(&quiet(200_000, 4_000), None, Heartbeat::Known(60), None);
    assert_eq!(frozen[0].sure, Sure::AlmostCertain);
    assert!(frozen[0].why.contains("above TCP, or a proxy"), "{}", frozen[0].why);
    // Its kernel answers: that is not a half-open connection.
    assert_eq!(looks(&quiet(200_000, 4_000), &frozen), Looks::Suspicious);
    assert_eq!(told(&quiet(200_000, 4_000), None, Heartbeat::Known(0)), []);
}

#[test]
fn unread_bytes_need_two_looks_and_a_close_one() {
    let holding = |rqueue, received| {
        let mut connection = connection(SocketSnapshot { rqueue, ..SocketSnapshot::default() });
        connection.socket.bytes_received = received;
        connection
    };
    assert_eq!(told(&holding(50, 100), None, Heartbeat::NotSpoken), []);
    assert_eq!(told(&holding(60, 110), Some(&holding(50, 100)), Heartbeat::NotSpoken), [(Sign::Unread, Sure::Likely)]);
    // More arrived than is there: somebody reads.
    assert_eq!(told(&holding(60, 300), Some(&holding(50, 100)), Heartbeat::NotSpoken), []);
    let closed = connection(SocketSnapshot { state: 8, ..SocketSnapshot::default() });
    assert_eq!(told(&closed, None, Heartbeat::NotSpoken), [(Sign::CloseWait, Sure::Possible)]);
    assert_eq!(told(&closed, Some(&closed), Heartbeat::NotSpoken), [(Sign::CloseWait, Sure::Likely)]);
}

#[test]
fn a_stopped_process_and_a_broker_that_does_not_know_it_are_named() {
    let mut now = connection(SocketSnapshot::default());
    now.owner.as_mut().unwrap().stopped = true;
    let found = suspicions(&now, None, Heartbeat::Known(60), Some(false));
    let signs: Vec<Sign> = found.iter().map(|s| s.sign).collect();
    assert_eq!(signs, [Sign::Stopped, Sign::UnknownToBroker]);
    assert_eq!(suspicions(&now, None, Heartbeat::Known(60), Some(true)).len(), 1);
}
