//! What a prediction depends on, drawn from a look: one small value, equal for connections that fare equally. Pure.

use super::client::Protocol;
use super::look::{Connection, Wait};
use super::options::Options;
use crate::timers::Subject;

/// The AMQP heartbeat that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Heartbeat {
    /// Not AMQP.
    NotSpoken,
    /// AMQP, and nobody said what was negotiated.
    Unknown,
    /// Seconds, by RabbitMQ's own table; 0 is off.
    Known(u32),
}

/// What bounds a wait for the peer's next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadDeadline {
    /// Nothing does: the thread that waits has no deadline.
    None,
    /// `SO_RCVTIMEO`, and a thread waits in a read.
    Blocking(u64),
    /// A `poll` on this socket alone, in milliseconds, of a client that gives up when it ends.
    Poll(u64),
    /// It can't be seen: an event loop, or nobody waits at the moment.
    Unseen,
}

/// What RabbitMQ says of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BrokerSide {
    /// Some channel of it has deliveries that are not acknowledged.
    pub unacked: bool,
    /// `consumer_timeout` in milliseconds; `None`: not known, or none.
    pub consumer_timeout_ms: Option<u64>,
    /// The prefetch of its consumers.
    pub prefetch: Option<u32>,
}

/// Everything that a prediction depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Index into the look's namespaces, for the sysctls.
    pub namespace: usize,
    /// What is spoken.
    pub protocol: Protocol,
    /// The client, where that is certain.
    pub client: Option<Subject>,
    /// The heartbeat.
    pub heartbeat: Heartbeat,
    /// The options; `None`: they could not be read.
    pub options: Option<Options>,
    /// The kernel runs the keepalive timer. Seen without any right, where nothing is in flight.
    pub keepalive_runs: Option<bool>,
    /// What bounds a read.
    pub read: ReadDeadline,
    /// A thread waits in a read on it although its client has an event loop: a synchronous call.
    pub in_call: bool,
    /// The peer's window is closed.
    pub window_closed: bool,
    /// The broker's side.
    pub broker: BrokerSide,
    /// The smoothed round-trip time in microseconds, rounded up to a power of two of milliseconds: thousands of
    /// connections then are few different ones.
    pub srtt_us: u32,
    /// The retransmission timeout without its back-off, in microseconds, where it does not follow from the round trip; 0:
    /// it does, or is not known.
    pub rto_us: u32,
}

/// The running timer's kernel number: keepalive.
const TIMER_KEEPALIVE: u8 = 2;
/// Window probes.
const TIMER_PROBE: u8 = 4;

/// Draws the facts of a connection.
#[must_use]
pub fn facts(
    connection: &Connection,
    protocol: Protocol,
    client: Option<Subject>,
    heartbeat: Heartbeat,
    broker: BrokerSide,
) -> Facts {
    let snapshot = &connection.socket.snapshot;
    let options = connection.options.as_ref().ok().copied();
    let in_flight = snapshot.unacked > 0 || snapshot.wqueue > 0;
    let looped = matches!(client, Some(Subject::Celery | Subject::Pika | Subject::AioPika | Subject::Lapin));
    Facts {
        namespace: connection.namespace,
        protocol,
        client,
        heartbeat,
        keepalive_runs: (options.is_none() && !in_flight && snapshot.state == 1)
            .then_some(snapshot.timer == TIMER_KEEPALIVE),
        read: options.map_or(ReadDeadline::Unseen, |options| deadline(options, &connection.wait, client)),
        options,
        in_call: looped && connection.wait == Wait::Read,
        window_closed: snapshot.timer == TIMER_PROBE
            || (connection.socket.peer_window == Some(0) && connection.socket.not_sent > 0),
        broker,
        srtt_us: snapshot.rtt_us.div_ceil(1000).next_power_of_two() * 1000,
        // Each expiry doubles it; what is wanted is the one that the next loss starts from.
        rto_us: unusual(snapshot.rto_us >> u32::from(snapshot.backoff).min(31), snapshot.rtt_us),
    }
}

/// A retransmission timeout that the spread of round trips does not cover anyway (see `judge`), rounded outwards.
fn unusual(rto_us: u32, srtt_us: u32) -> u32 {
    const LEAST: u32 = 200_000;
    const STEP: u32 = 32_000;
    let usual = LEAST..=LEAST.saturating_add(srtt_us.saturating_mul(2)).saturating_add(52_000);
    match rto_us {
        usual_one if usual.contains(&usual_one) => 0,
        short if short < LEAST => short,
        long => long.div_ceil(STEP).saturating_mul(STEP),
    }
}

fn deadline(options: Options, wait: &Wait, client: Option<Subject>) -> ReadDeadline {
    match wait {
        // A non-blocking socket never lets a thread wait in a read.
        Wait::Read if options.rcvtimeo_ms > 0 => ReadDeadline::Blocking(options.rcvtimeo_ms),
        Wait::Read => ReadDeadline::None,
        Wait::Poll { alone: true, deadline_ms: None } => ReadDeadline::None,
        // Whether a program gives up when its poll ends, or just looks whether there is anything else to do, only its
        // library tells.
        Wait::Poll { alone: true, deadline_ms: Some(ms) } if client == Some(Subject::RedisPy) => {
            ReadDeadline::Poll(*ms)
        }
        _ => ReadDeadline::Unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options {
        nonblocking: false,
        rcvtimeo_ms: 60_000,
        sndtimeo_ms: 0,
        keepalive: false,
        keepalive_idle_s: 7200,
        keepalive_interval_s: 75,
        keepalive_probes: 9,
        user_timeout_ms: 0,
        syn_count: 6,
        rto_max_ms: None,
    };

    #[test]
    fn only_an_unusual_timeout_is_kept() {
        assert_eq!([unusual(204_000, 90), unusual(208_000, 4_000), unusual(0, 0)], [0, 0, 0]);
        // A route with a smaller least one; a path that varies much.
        assert_eq!([unusual(52_000, 90), unusual(400_000, 1_000)], [52_000, 416_000]);
    }

    #[test]
    fn a_deadline_counts_only_where_a_thread_waits_in_it() {
        let of = |options, wait: Wait| deadline(options, &wait, Some(Subject::RedisPy));
        assert_eq!(of(OPTIONS, Wait::Read), ReadDeadline::Blocking(60_000));
        assert_eq!(of(Options { rcvtimeo_ms: 0, ..OPTIONS }, Wait::Read), ReadDeadline::None);
        assert_eq!(of(OPTIONS, Wait::Epoll { deadline_ms: Some(1) }), ReadDeadline::Unseen);
        assert_eq!(of(OPTIONS, Wait::Nobody), ReadDeadline::Unseen);
        let poll = |deadline_ms, alone| of(OPTIONS, Wait::Poll { deadline_ms, alone });
        assert_eq!(poll(Some(5000), true), ReadDeadline::Poll(5000));
        assert_eq!(poll(None, true), ReadDeadline::None);
        assert_eq!(poll(Some(5000), false), ReadDeadline::Unseen);
        // A program that nobody knows may poll only to do something else every five seconds.
        let unknown = deadline(OPTIONS, &Wait::Poll { deadline_ms: Some(5000), alone: true }, None);
        assert_eq!(unknown, ReadDeadline::Unseen);
    }
}
