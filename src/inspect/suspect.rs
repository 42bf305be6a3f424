//! What makes a connection look half-open now, and how sure that is. Pure.
//!
//! One look sees counters, two see whether they move. Nothing here is a verdict: a lossy path backs off too, and a peer
//! that reads slowly closes its window. What is left out: the future, which is the judge's.

use super::facts::Heartbeat;
use super::look::{Connection, Wait};
use serde::Serialize;

/// How sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sure {
    /// Ordinary trouble looks the same.
    Possible,
    /// Ordinary trouble hardly ever looks like that.
    Likely,
    /// Nothing else looks like that.
    AlmostCertain,
}

impl Sure {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::AlmostCertain => "almost certain",
        }
    }
}

/// What is suspicious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// Data is sent again and again, and not acknowledged.
    BackOff,
    /// Keepalive probes are out, and not answered.
    ProbesOut,
    /// The peer's window is closed.
    ZeroWindow,
    /// Bytes arrived, and nobody reads them.
    Unread,
    /// The peer has closed, and nobody has looked.
    CloseWait,
    /// The peer's heartbeats are overdue.
    HeartbeatOverdue,
    /// The process is stopped by a signal.
    Stopped,
    /// The broker has no such connection.
    UnknownToBroker,
}

impl Sign {
    /// Its contract name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BackOff => "back_off",
            Self::ProbesOut => "probes_out",
            Self::ZeroWindow => "zero_window",
            Self::Unread => "unread",
            Self::CloseWait => "close_wait",
            Self::HeartbeatOverdue => "heartbeat_overdue",
            Self::Stopped => "stopped",
            Self::UnknownToBroker => "unknown_to_broker",
        }
    }
}

/// One suspicion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suspicion {
    /// What.
    pub sign: Sign,
    /// How sure.
    pub sure: Sure,
    /// Why, in one sentence.
    pub why: String,
}

/// How a connection looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Looks {
    /// The peer's kernel was heard lately. Whether anybody is above it can't be seen from this end.
    Alive,
    /// Nothing was heard and nothing asked for a while: a half-open connection would look the same.
    Untested,
    /// There is a suspicion.
    Suspicious,
    /// There is one that nothing else explains.
    HalfOpen,
}

impl Looks {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Untested => "untested",
            Self::Suspicious => "suspicious",
            Self::HalfOpen => "half-open",
        }
    }
}

/// Kernel numbers.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
const TIMER_RETRANSMIT: u8 = 1;
const TIMER_KEEPALIVE: u8 = 2;
const TIMER_PROBE: u8 = 4;
/// An answer that takes longer than this, or four round trips, is missing.
const ANSWERED_WITHIN_S: f64 = 1.0;
/// Heard within this is alive.
const LATELY_S: f64 = 10.0;

/// An earlier look at the same connection, and how long before.
#[derive(Debug, Clone, Copy)]
pub struct Before<'a> {
    /// The connection as it was.
    pub connection: &'a Connection,
    /// Seconds between the two looks.
    pub ago_s: f64,
}

/// Everything suspicious about a connection. `at_broker`: whether the broker's table has it, where one was given.
#[must_use]
pub fn suspicions(
    now: &Connection,
    before: Option<Before<'_>>,
    heartbeat: Heartbeat,
    at_broker: Option<bool>,
) -> Vec<Suspicion> {
    let found = [
        back_off(now, before),
        probes_out(now, before),
        zero_window(now),
        unread(now, before),
        close_wait(now, before),
        heartbeat_overdue(now, heartbeat),
        stopped(now),
        unknown_to_broker(now, at_broker),
    ];
    let mut all: Vec<Suspicion> = found.into_iter().flatten().collect();
    all.sort_by_key(|suspicion| std::cmp::Reverse(suspicion.sure));
    all
}

/// How a connection with these suspicions looks.
#[must_use]
pub fn looks(now: &Connection, suspicions: &[Suspicion]) -> Looks {
    let about_the_path = |s: &&Suspicion| matches!(s.sign, Sign::BackOff | Sign::ProbesOut);
    if suspicions.iter().filter(about_the_path).any(|s| s.sure == Sure::AlmostCertain) {
        return Looks::HalfOpen;
    }
    // Behind a proxy every healthy connection is unknown to the broker.
    if suspicions.iter().any(|s| s.sign != Sign::UnknownToBroker) {
        return Looks::Suspicious;
    }
    let probed_every = now.options.as_ref().ok().filter(|o| o.keepalive).map(|o| {
        // One step of the wheel late, and the answer.
        f64::from(o.keepalive_idle_s.max(o.keepalive_interval_s)) * 1.15 + ANSWERED_WITHIN_S
    });
    if heard_s(now) <= probed_every.unwrap_or(0.0).max(LATELY_S) { Looks::Alive } else { Looks::Untested }
}

/// Seconds since the peer's kernel was last heard.
#[must_use]
pub fn heard_s(now: &Connection) -> f64 {
    let snapshot = &now.socket.snapshot;
    f64::from(snapshot.last_data_recv_ms.min(snapshot.last_ack_recv_ms)) / 1000.0
}

fn answer_limit_s(now: &Connection) -> f64 {
    (4.0 * f64::from(now.socket.snapshot.rtt_us) / 1e6).max(ANSWERED_WITHIN_S)
}

fn back_off(now: &Connection, before: Option<Before<'_>>) -> Option<Suspicion> {
    let snapshot = &now.socket.snapshot;
    if snapshot.timer != TIMER_RETRANSMIT || snapshot.unacked == 0 || snapshot.backoff == 0 {
        return None;
    }
    let times = snapshot.backoff;
    let moved = before.is_some_and(|b| {
        let earlier = &b.connection.socket.snapshot;
        // Data was out all the time between the two looks, and nothing at all was heard.
        earlier.unacked > 0 && heard_s(now) >= b.ago_s && times >= 2
    });
    let sure = match times {
        _ if moved => Sure::AlmostCertain,
        5.. => Sure::AlmostCertain,
        2.. => Sure::Likely,
        _ => Sure::Possible,
    };
    let why = format!(
        "{} bytes are not acknowledged after {times} doublings of the timeout; the peer was last heard {:.1} s ago",
        snapshot.wqueue,
        heard_s(now)
    );
    Some(Suspicion { sign: Sign::BackOff, sure, why })
}

fn probes_out(now: &Connection, before: Option<Before<'_>>) -> Option<Suspicion> {
    let snapshot = &now.socket.snapshot;
    if snapshot.timer != TIMER_KEEPALIVE || snapshot.probes == 0 {
        return None;
    }
    // The next probe follows an interval after the last one.
    let waited_s = now.options.as_ref().ok().map(|o| {
        f64::from(o.keepalive_interval_s) * f64::from(snapshot.probes) - f64::from(snapshot.expires_ms) / 1000.0
    });
    let long = waited_s.is_some_and(|waited| waited > answer_limit_s(now));
    let unanswered = before.is_some_and(|b| b.connection.socket.snapshot.probes > 0 && heard_s(now) >= b.ago_s);
    let sure = match snapshot.probes {
        3.. => Sure::AlmostCertain,
        2 if long || unanswered => Sure::AlmostCertain,
        _ if unanswered && long => Sure::AlmostCertain,
        2 => Sure::Likely,
        _ if long => Sure::Likely,
        _ => Sure::Possible,
    };
    let probes = if snapshot.probes == 1 {
        "1 keepalive probe is".into()
    } else {
        format!("{} keepalive probes are", snapshot.probes)
    };
    let why = format!("{probes} out and not answered; the peer was last heard {:.1} s ago", heard_s(now));
    Some(Suspicion { sign: Sign::ProbesOut, sure, why })
}

fn zero_window(now: &Connection) -> Option<Suspicion> {
    let snapshot = &now.socket.snapshot;
    if snapshot.timer != TIMER_PROBE {
        return None;
    }
    let (sure, what) = match snapshot.probes {
        0 => (Sure::Possible, "its kernel answers the probes, so somebody there does not read".to_string()),
        1 => (Sure::Possible, "a probe is out".to_string()),
        n => (Sure::Likely, format!("{n} probes were not answered: the path may be gone as well")),
    };
    let why = format!("the peer's window is closed with {} bytes waiting; {what}", snapshot.wqueue);
    Some(Suspicion { sign: Sign::ZeroWindow, sure, why })
}

fn unread(now: &Connection, before: Option<Before<'_>>) -> Option<Suspicion> {
    let bytes = now.socket.snapshot.rqueue;
    if bytes == 0 || now.socket.snapshot.state != ESTABLISHED {
        return None;
    }
    let b = before?;
    let earlier = b.connection.socket.snapshot.rqueue;
    // Read by nobody between the two looks: everything that was there still is.
    let untouched = earlier > 0
        && u64::from(bytes) >= u64::from(earlier)
        && u64::from(bytes - earlier) == now.socket.bytes_received.saturating_sub(b.connection.socket.bytes_received);
    let sure = if now.wait == Wait::Nobody { Sure::Likely } else { Sure::Possible };
    untouched.then(|| Suspicion {
        sign: Sign::Unread,
        sure,
        why: format!("{bytes} bytes have arrived and nobody has read any of them for {:.1} s", b.ago_s),
    })
}

fn close_wait(now: &Connection, before: Option<Before<'_>>) -> Option<Suspicion> {
    if now.socket.snapshot.state != CLOSE_WAIT {
        return None;
    }
    let still = before.is_some_and(|b| b.connection.socket.snapshot.state == CLOSE_WAIT);
    let heard = heard_s(now);
    let sure = if still || heard > 60.0 { Sure::Likely } else { Sure::Possible };
    let why = format!("the peer has closed, {heard:.1} s ago or before, and the application has not looked");
    Some(Suspicion { sign: Sign::CloseWait, sure, why })
}

fn heartbeat_overdue(now: &Connection, heartbeat: Heartbeat) -> Option<Suspicion> {
    let Heartbeat::Known(seconds @ 1..) = heartbeat else { return None };
    if now.socket.snapshot.state != ESTABLISHED {
        return None;
    }
    let quiet = f64::from(now.socket.snapshot.last_data_recv_ms) / 1000.0;
    let heartbeats = quiet / f64::from(seconds);
    // A healthy broker is never quiet for longer than one; another half is for a slow machine.
    let sure = match heartbeats {
        h if h > 3.0 => Sure::AlmostCertain,
        h if h > 2.0 => Sure::Likely,
        h if h > 1.5 => Sure::Possible,
        _ => return None,
    };
    let acked = f64::from(now.socket.snapshot.last_ack_recv_ms) / 1000.0;
    let kernel = if acked + 1.0 < quiet {
        format!("; its kernel acknowledged {acked:.1} s ago, so what stands still is above TCP, or a proxy between")
    } else {
        String::new()
    };
    let why = format!("no data for {quiet:.1} s, which is {heartbeats:.1} heartbeats of {seconds} s{kernel}");
    Some(Suspicion { sign: Sign::HeartbeatOverdue, sure, why })
}

fn stopped(now: &Connection) -> Option<Suspicion> {
    let owner = now.owner.as_ref().filter(|owner| owner.stopped)?;
    Some(Suspicion {
        sign: Sign::Stopped,
        sure: Sure::Likely,
        why: format!("process {} is stopped by a signal: whatever its kernel notices, it does not act", owner.pid),
    })
}

fn unknown_to_broker(now: &Connection, at_broker: Option<bool>) -> Option<Suspicion> {
    if at_broker != Some(false) || now.socket.snapshot.state != ESTABLISHED {
        return None;
    }
    Some(Suspicion {
        sign: Sign::UnknownToBroker,
        sure: Sure::Possible,
        why:
            "the broker's table has no connection from this address: it has given it up, or a proxy or NAT is between, \
              behind which this end can't see"
                .to_string(),
    })
}

#[cfg(test)]
#[path = "suspect_tests.rs"]
mod tests;
