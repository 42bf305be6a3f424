//! A row for each connection and each attempt at one.

use super::ConnectionRow;
use super::timeline::{Attempt, Timeline};
use super::trial::Case;
use super::watcher;
use crate::scenario::{Act, Scope};
use crate::units::Offset;

pub(super) fn rows(case: &Case<'_>, t: &Timeline) -> Vec<ConnectionRow> {
    t.attempts.iter().map(|(n, attempt)| row(case, t, *n, attempt)).collect()
}

fn row(case: &Case<'_>, t: &Timeline, number: u32, attempt: &Attempt) -> ConnectionRow {
    let end = attempt.notice.as_ref().or(attempt.failed.as_ref());
    ConnectionRow {
        trial: case.trial.id,
        conn_id: format!("{}.{number}", case.trial.id),
        role: role(case, attempt),
        role_from: attempt.role_from.to_string(),
        local: attempt.connected.map(|(_, tuple)| tuple.local),
        peer: attempt.connected.map(|(_, tuple)| tuple.peer),
        cut: is_cut(case, t, attempt),
        opened_s: attempt.connected.map(|(at, _)| at),
        kernel_end_s: attempt.kernel_end.as_ref().map(|end| end.at),
        app_end_s: end.map(|(at, _)| *at),
        broker_end_s: attempt.far_end.as_ref().map(|(at, _)| *at),
        watcher: watcher_of(case, t, attempt).to_string(),
        arm: case.arm.name.clone(),
        connecting_s: attempt.connecting,
        ready_s: attempt.ready,
        error: end.map(|(_, cause)| watcher::error_text(cause)).unwrap_or_default(),
    }
}

/// A client of our own has one connection, which consumes; of another's, only its traffic and its broker tell, and an empty
/// role is not known.
fn role(case: &Case<'_>, attempt: &Attempt) -> String {
    match &attempt.role {
        Some(role) => role.clone(),
        None if case.arm.settings.subject.is_command() => String::new(),
        None => "consumer".to_string(),
    }
}

/// Whether the fault lay on this connection or attempt. In the scopes `pair` and `host` it lies on whatever goes between the
/// two addresses, or to and from the client's, also on a handshake that never got through.
fn is_cut(case: &Case<'_>, t: &Timeline, attempt: &Attempt) -> bool {
    let Some(applied) = t.applied.filter(|_| !case.fault.is_control()) else { return false };
    // A proxy is frozen with all connections that go through it.
    if case.fault.act.is_some_and(Act::in_proxy) && case.fault.scope == Scope::Flow {
        let there = attempt.connected.is_some_and(|(at, _)| at <= applied.after);
        return there && attempt.local_end().is_none_or(|end| end >= applied.before);
    }
    let named = match (case.fault.scope, attempt.connected) {
        (Scope::Flow, connected) => connected.is_some_and(|(_, tuple)| tuple == applied.tuple),
        (Scope::Pair, Some((_, tuple))) => {
            tuple.local.ip() == applied.tuple.local.ip() && tuple.peer.ip() == applied.tuple.peer.ip()
        }
        (Scope::Host, Some((_, tuple))) => tuple.local.ip() == applied.tuple.local.ip(),
        (Scope::Pair | Scope::Host, None) => attempt.connecting.is_some(),
    };
    let began = attempt.connecting.or(attempt.connected.map(|(at, _)| at));
    let ended = attempt.local_end().or(attempt.failed.as_ref().map(|(at, _)| *at));
    let healed_before = t.healed.is_some_and(|(_, after)| began.is_some_and(|at| at > after));
    let ended_before = ended.is_some_and(|at| at < applied.before);
    named && !healed_before && !ended_before
}

/// The earliest evidence wins: the subject's notice, the kernel's end, the broker's.
fn watcher_of(case: &Case<'_>, t: &Timeline, attempt: &Attempt) -> &'static str {
    let settings = &case.arm.settings;
    let since = t.applied.filter(|_| attempt.local_end() >= t.applied.map(|a| a.after)).map(|a| a.before);
    let mut evidence: Vec<(Offset, &'static str)> = Vec::new();
    if let Some((at, cause)) = &attempt.notice {
        evidence.push((*at, watcher::of_notice(cause, attempt, settings, since)));
    }
    if let Some((at, cause)) = &attempt.failed {
        evidence.push((*at, watcher::of_failed_attempt(cause, settings)));
    }
    if let Some(end) = &attempt.kernel_end
        && let Some(errno) = end.errno.filter(|errno| *errno != 0)
    {
        evidence.push((end.at, watcher::of_errno(errno, attempt, settings, since)));
    }
    if let Some((at, far)) = &attempt.far_end {
        evidence.push((*at, watcher::of_far_end(far)));
    }
    evidence.retain(|(_, name)| !name.is_empty());
    evidence.sort_by_key(|(at, _)| *at);
    evidence.first().map_or(watcher::UNKNOWN, |(_, name)| name)
}
