//! Who fired: the names of the watchers, and the evidence from which each is told.
//!
//! `ETIMEDOUT` alone does not say which of the kernel's timers ran out; the last look at the socket before its end
//! does. Without one the answer is taken from what was in flight, and left empty where that does not decide: "not
//! known" is a better answer than a guess.

use super::timeline::{Attempt, FarEnd};
use crate::events::{Cause, How, SocketSnapshot};
use crate::scenario::{Settings, SubjectKind};
use crate::units::{Offset, Setting};

/// `SO_RCVTIMEO` ran out.
pub const READ_TIMEOUT: &str = "read_timeout";
/// `SO_SNDTIMEO` ran out.
pub const SEND_TIMEOUT: &str = "send_timeout";
/// The client's connect timeout ran out.
pub const CONNECT_TIMEOUT: &str = "connect_timeout";
/// The system's resolver gave the broker's name up.
pub const RESOLVER_TIMEOUT: &str = "resolver_timeout";
/// The kernel gave up on the handshake.
pub const SYN_RETRIES: &str = "syn_retries";
/// The client's AMQP heartbeat check.
pub const AMQP_HEARTBEAT: &str = "amqp_heartbeat";
/// TCP keepalive.
pub const KEEPALIVE: &str = "keepalive";
/// `TCP_USER_TIMEOUT`.
pub const USER_TIMEOUT: &str = "user_timeout";
/// The retransmission timer (`tcp_retries2`).
pub const RETRANSMIT: &str = "retransmit";
/// The zero-window timer.
pub const PERSIST: &str = "persist";
/// A RST arrived.
pub const RESET: &str = "reset";
/// A FIN arrived, or the peer closed in its protocol.
pub const FIN: &str = "fin";
/// An ICMP error or a missing route.
pub const UNREACHABLE: &str = "unreachable";
/// The broker's AMQP heartbeat check.
pub const BROKER_HEARTBEAT: &str = "broker_heartbeat";
/// RabbitMQ's `consumer_timeout`.
pub const CONSUMER_TIMEOUT: &str = "consumer_timeout";
/// An application-level health check.
pub const HEALTH_CHECK: &str = "health_check";
/// Nobody fired.
pub const NONE: &str = "none";
/// Somebody fired, but the evidence does not say who.
pub const UNKNOWN: &str = "";

/// Linux error numbers (`asm-generic/errno*.h`), with their names. Kept here because this room has no effects and runs
/// on recorded files.
const ERRNOS: [(i32, &str); 13] = [
    (4, "EINTR"),
    (9, "EBADF"),
    (11, "EAGAIN"),
    (32, "EPIPE"),
    (99, "EADDRNOTAVAIL"),
    (100, "ENETDOWN"),
    (101, "ENETUNREACH"),
    (103, "ECONNABORTED"),
    (104, "ECONNRESET"),
    (107, "ENOTCONN"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (113, "EHOSTUNREACH"),
];

/// The name of an error number: `ETIMEDOUT`; 0 is `none`, an unlisted one `errno 5`.
#[must_use]
pub fn errno_name(errno: i32) -> String {
    if errno == 0 {
        return NONE.to_string();
    }
    let known = ERRNOS.iter().find(|(n, _)| *n == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_string())
}

/// The words of a cause, for the column `error`.
#[must_use]
pub fn error_text(cause: &Cause) -> String {
    match (cause.errno, cause.text.is_empty()) {
        (Some(errno), true) => errno_name(errno),
        (Some(errno), false) => format!("{}: {}", errno_name(errno), cause.text),
        (None, _) => cause.text.clone(),
    }
}

/// Who told the subject, by its own evidence and the kernel's.
pub(super) fn of_notice(cause: &Cause, attempt: &Attempt, settings: &Settings, since: Option<Offset>) -> &'static str {
    match (cause.how, cause.errno) {
        (How::ReadTimeout, _) => READ_TIMEOUT,
        (How::SendTimeout, _) => SEND_TIMEOUT,
        (How::ConnectTimeout, _) => CONNECT_TIMEOUT,
        (How::Resolver, _) => RESOLVER_TIMEOUT,
        (How::AmqpHeartbeat, _) => AMQP_HEARTBEAT,
        (How::HealthCheck, _) => HEALTH_CHECK,
        (How::Eof, _) => FIN,
        (How::ClosedByPeer, _) => of_close(&cause.text),
        (How::Errno, Some(errno)) => of_errno(errno, attempt, settings, since),
        (How::Errno, None) | (How::Other, _) => UNKNOWN,
    }
}

/// Which of the kernel's timers had ended a connection before its owner acted.
pub(super) fn of_kernel_end(
    attempt: &Attempt,
    noticed: Offset,
    settings: &Settings,
    since: Option<Offset>,
) -> &'static str {
    let end = attempt.kernel_end.as_ref().filter(|end| end.at <= noticed);
    match end.and_then(|end| end.errno).filter(|errno| *errno != 0) {
        Some(errno) => of_errno(errno, attempt, settings, since),
        None => UNKNOWN,
    }
}

/// Who ended an attempt that never became a connection.
pub(super) fn of_failed_attempt(cause: &Cause, settings: &Settings) -> &'static str {
    match (cause.how, cause.errno) {
        (How::ConnectTimeout, _) => CONNECT_TIMEOUT,
        (How::Resolver, _) => RESOLVER_TIMEOUT,
        (How::ReadTimeout, _) => READ_TIMEOUT,
        (How::Errno, Some(110)) if settings.tcp_user_timeout != Setting::None => USER_TIMEOUT,
        (How::Errno, Some(110)) => SYN_RETRIES,
        (How::Errno, Some(errno)) => without_timer(errno),
        (How::Eof, _) => FIN,
        (How::ClosedByPeer, _) => of_close(&cause.text),
        _ => UNKNOWN,
    }
}

/// Who ended the connection at the other end.
pub(super) fn of_far_end(end: &FarEnd) -> &'static str {
    match end {
        FarEnd::Broker { reason, text } => match reason.as_str() {
            "missed_heartbeats" => BROKER_HEARTBEAT,
            "consumer_timeout" => CONSUMER_TIMEOUT,
            "closed" => of_close(text),
            _ => UNKNOWN,
        },
        FarEnd::Peer(cause) => match (cause.how, cause.errno) {
            (How::Eof, _) => FIN,
            (How::ReadTimeout, _) => READ_TIMEOUT,
            (How::Errno, Some(errno)) => without_timer(errno),
            _ => UNKNOWN,
        },
    }
}

/// An error of the kernel, where the connection's socket says which timer it was.
pub(super) fn of_errno(errno: i32, attempt: &Attempt, settings: &Settings, since: Option<Offset>) -> &'static str {
    if errno == 110 { of_timeout(attempt, settings, since) } else { without_timer(errno) }
}

fn without_timer(errno: i32) -> &'static str {
    match errno {
        104 | 32 => RESET,
        101 | 113 => UNREACHABLE,
        _ => UNKNOWN,
    }
}

/// The peer's own reason, as its protocol words it.
fn of_close(text: &str) -> &'static str {
    let text = text.to_lowercase();
    if text.contains("heartbeat") {
        BROKER_HEARTBEAT
    } else if text.contains("consumer timeout")
        || text.contains("consumer_timeout")
        || text.contains("delivery acknowledgement on channel")
    {
        CONSUMER_TIMEOUT
    } else {
        FIN
    }
}

/// Which of the kernel's timers ran out.
fn of_timeout(attempt: &Attempt, settings: &Settings, since: Option<Offset>) -> &'static str {
    let end = attempt.local_end().unwrap_or(Offset(i64::MAX));
    let since = since.unwrap_or(Offset(i64::MIN));
    let options = attempt.options.as_ref();
    let asked = || settings.tcp_user_timeout.get().is_some();
    let user_timeout = options.and_then(|o| o.tcp_user_timeout_ms).map_or_else(asked, |ms| ms > 0);
    let keepalive = options.and_then(|o| o.keepalive).unwrap_or(settings.keepalive.is_some());
    let sending = if user_timeout { USER_TIMEOUT } else { RETRANSMIT };
    let look = attempt.snapshots.iter().rev().find(|(at, s)| *at <= end && *at >= since && s.state == 1);
    match look {
        Some((_, socket)) => match running(socket) {
            Running::Keepalive => KEEPALIVE,
            Running::Retransmission => sending,
            Running::Persist => {
                if user_timeout {
                    USER_TIMEOUT
                } else {
                    PERSIST
                }
            }
            Running::Nothing => {
                if keepalive {
                    KEEPALIVE
                } else {
                    UNKNOWN
                }
            }
        },
        None if attempt.wrote.iter().any(|at| *at >= since && *at <= end) => sending,
        None if keepalive && stays_silent(settings) => KEEPALIVE,
        None => UNKNOWN,
    }
}

enum Running {
    Keepalive,
    Retransmission,
    Persist,
    Nothing,
}

/// `idiag_timer`: 1 retransmission (and tail loss probe), 2 keepalive, 4 zero-window probe.
fn running(socket: &SocketSnapshot) -> Running {
    match socket.timer {
        2 => Running::Keepalive,
        4 => Running::Persist,
        1 => Running::Retransmission,
        _ if socket.unacked > 0 => Running::Retransmission,
        _ => Running::Nothing,
    }
}

/// Whether the subject sends nothing of its own while it waits.
fn stays_silent(settings: &Settings) -> bool {
    matches!(settings.subject, SubjectKind::TcpReader | SubjectKind::RedisBlocking)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_reason_is_taken_from_its_words() {
        assert_eq!(of_close("missed heartbeats from client, timeout: 10s"), BROKER_HEARTBEAT);
        assert_eq!(
            of_close("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out."),
            CONSUMER_TIMEOUT
        );
        assert_eq!(of_close("CONNECTION_FORCED - broker forced connection closure"), FIN);
    }

    #[test]
    fn errors_have_names() {
        assert_eq!(errno_name(110), "ETIMEDOUT");
        assert_eq!(errno_name(0), "none");
        assert_eq!(errno_name(5), "errno 5");
        let cause = Cause { how: How::Errno, errno: Some(104), text: "peer said no".into() };
        assert_eq!(error_text(&cause), "ECONNRESET: peer said no");
    }
}
