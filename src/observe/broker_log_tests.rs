use super::*;
use std::io::Write;

/// Recorded from RabbitMQ 3.10.8 on Debian 12; the client's name was added to be awkward.
const RECORDED: &str = "\
2026-11-30 12:53:13.872121+00:00 [info] <0.671.0> started TCP listener on 0.0.0.0:5672
2026-11-30 12:53:14.374957+00:00 [info] <0.680.0> accepting AMQP connection <0.680.0> (127.0.0.1:40632 -> 127.0.0.1:5672)
2026-11-30 12:53:14.375957+00:00 [info] <0.680.0> connection <0.680.0> (127.0.0.1:40632 -> 127.0.0.1:5672) has a client-provided name: my name
2026-11-30 12:53:14.376598+00:00 [info] <0.680.0> connection <0.680.0> (127.0.0.1:40632 -> 127.0.0.1:5672 - my name): user 'u' authenticated and granted access to vhost '/'
2026-11-30 12:53:14.378793+00:00 [warning] <0.688.0> closing AMQP connection <0.688.0> (127.0.0.1:40636 -> 127.0.0.1:5672, vhost: '/', user: 'u'):
2026-11-30 12:53:14.378793+00:00 [warning] <0.688.0> client unexpectedly closed TCP connection
2026-11-30 12:53:14.381052+00:00 [info] <0.698.0> closing AMQP connection <0.698.0> (127.0.0.1:40648 -> 127.0.0.1:5672, vhost: '/', user: 'u')
2026-11-30 12:53:14.382350+00:00 [error] <0.713.0> closing AMQP connection <0.713.0> (127.0.0.1:40666 -> 127.0.0.1:5672):
2026-11-30 12:53:14.382350+00:00 [error] <0.713.0> {bad_header,<<\"HTTP/1.1\">>}
2026-11-30 12:53:14.383737+00:00 [error] <0.718.0> Error on AMQP connection <0.718.0> (127.0.0.1:40682 -> 127.0.0.1:5672, state: starting):
2026-11-30 12:53:14.383737+00:00 [error] <0.718.0> PLAIN login refused: user 'u' - invalid credentials
2026-11-30 12:53:29.382220+00:00 [error] <0.680.0> closing AMQP connection <0.680.0> (127.0.0.1:40632 -> 127.0.0.1:5672 - my name):
2026-11-30 12:53:29.382220+00:00 [error] <0.680.0> missed heartbeats from client, timeout: 5s
2026-11-30 13:04:01.443166+00:00 [error] <0.728.0> closing AMQP connection <0.728.0> (127.0.0.1:42120 -> 127.0.0.1:5672):
2026-11-30 13:04:01.443166+00:00 [error] <0.728.0> {handshake_timeout,frame_header}
2026-11-30 13:04:51.446282+00:00 [warning] <0.741.0> Consumer 1 on channel 1 has timed out waiting for delivery acknowledgement. Timeout used: 30000 ms. This timeout value can be configured, see consumers doc guide to learn more
2026-11-30 13:04:51.446878+00:00 [error] <0.741.0> Channel error on connection <0.734.0> (127.0.0.1:42126 -> 127.0.0.1:5672, vhost: '/', user: 'u'), channel 1:
2026-11-30 13:04:51.446878+00:00 [error] <0.741.0> operation none caused a channel exception precondition_failed: delivery acknowledgement on channel 1 timed out. Timeout value used: 30000 ms. This timeout value can be configured, see consumers doc guide to learn more
";

#[test]
fn the_recorded_log_is_read() {
    let mut reader = LogReader::default();
    let entries: Vec<Entry> = RECORDED.lines().filter_map(|l| reader.line(l)).collect();
    let brief: Vec<(u16, Said)> = entries.iter().map(|e| (e.tuple.local.port(), e.said.clone())).collect();
    let ended = |reason| Said::Ended { reason };
    assert_eq!(
        brief,
        [
            (40632, Said::Accepted),
            (40632, Said::Authenticated),
            (40636, ended("closed_abruptly")),
            (40648, ended("closed")),
            (40666, ended("error")),
            (40632, ended("missed_heartbeats")),
            (42120, ended("handshake_timeout")),
            (42126, ended("consumer_timeout")),
        ]
    );
    assert!(entries.iter().all(|e| e.tuple.peer.to_string() == "127.0.0.1:5672"));
    assert!(entries[5].text.ends_with("missed heartbeats from client, timeout: 5s"));
    // `date -u -d '2026-11-30 12:53:29.382220' +%s%N`
    assert_eq!(entries[5].unix_ns, 1_796_043_209_382_220_000);
    assert!(reader.headers.is_empty());
}

#[test]
fn ends_of_two_connections_may_interleave() {
    let mut reader = LogReader::default();
    let mut ends = Vec::new();
    for line in [
        "2026-01-01 00:00:00.000001+00:00 [error] <0.1.0> closing AMQP connection <0.1.0> (10.64.128.1:1001 -> 10.128.128.1:5672):",
        "2026-01-01 00:00:00.000002+00:00 [error] <0.2.0> closing AMQP connection <0.2.0> (10.64.128.2:1002 -> 10.128.128.2:5672):",
        "2026-01-01 00:00:00.000001+00:00 [error] <0.1.0> missed heartbeats from client, timeout: 60s",
        "2026-01-01 00:00:00.000002+00:00 [error] <0.2.0> {inet_error,etimedout}",
    ] {
        ends.extend(reader.line(line).map(|e| (e.tuple.local.port(), e.said)));
    }
    let expected = [(1001, Said::Ended { reason: "missed_heartbeats" }), (1002, Said::Ended { reason: "timeout" })];
    assert_eq!(ends, expected);
}

#[test]
fn times_of_other_zones_and_garbage_are_not_read() {
    assert_eq!(unix_ns("1970-01-01", "00:00:00.000001+00:00"), Some(1_000));
    assert_eq!(unix_ns("2024-02-29", "12:00:00Z"), Some(1_709_208_000_000_000_000));
    assert_eq!(unix_ns("2024-02-29", "12:00:00+01:00"), None);
    for garbage in ["", "no date at all", "2026-99-01 00:00:00.0+00:00 [info] <0.1.0> x", "2026-01-01 1:2 [x] <0> y"] {
        assert_eq!(LogReader::default().line(garbage), None, "{garbage}");
    }
}

#[test]
fn the_watch_sends_the_ends_and_stops_after_the_last_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let (sender, events) = crate::host::mailbox::mailbox();
    let watch = LogWatch::start(&path, Clock::start(), sender).unwrap();
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(RECORDED.as_bytes()).unwrap();
    watch.stop().unwrap();
    let reasons: Vec<String> = events
        .into_iter()
        .map(|event| match event.kind {
            Kind::BrokerEnd { reason, .. } => reason,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        reasons,
        ["closed_abruptly", "closed", "error", "missed_heartbeats", "handshake_timeout", "consumer_timeout"]
    );
}

proptest::proptest! {
    #[test]
    fn any_line_is_read_or_passed_over_without_panic(line in "\\PC{0,80}", date in "[0-9-]{8,12}", time in "[0-9:.+Z]{0,20}") {
        let mut reader = LogReader::default();
        let _ = reader.line(&line);
        let _ = reader.line(&format!("{date} {time} [info] <0.1.0> closing AMQP connection <0.1.0> ({line}:"));
        let _ = unix_ns(&date, &time);
    }
}
