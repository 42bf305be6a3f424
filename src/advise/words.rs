//! Windows, watchers and verdicts in words.

use super::answer::Predicted;
use super::situations::Role;
use crate::timers::{Detection, Side, Watcher, WatcherState};
use serde::Serialize;

/// What a sentence calls a watcher.
#[must_use]
pub(super) fn spoken(watcher: Watcher) -> &'static str {
    match watcher {
        Watcher::ReadTimeout => "read timeout",
        Watcher::SendTimeout => "send timeout",
        Watcher::ConnectTimeout => "connect timeout",
        Watcher::SynRetries => "SYN retries",
        Watcher::AmqpHeartbeat => "AMQP heartbeat",
        Watcher::Keepalive => "keepalive",
        Watcher::UserTimeout => "TCP_USER_TIMEOUT",
        Watcher::Retransmit => "retransmission",
        Watcher::Persist => "window probes",
        Watcher::Reset => "the broker's reset",
        Watcher::Fin => "the broker's FIN",
        Watcher::Unreachable => "ICMP",
        Watcher::BrokerHeartbeat => "broker's heartbeat",
        Watcher::ConsumerTimeout => "consumer_timeout",
        Watcher::VisibilityTimeout => "visibility timeout",
        Watcher::HealthCheck => "health check",
        Watcher::LivenessTtl => "liveness key",
        Watcher::PendingTimeout => "pending timeout",
        Watcher::ProcessingTimeout => "processing timeout",
        Watcher::QueuedTimeout => "queued timeout",
        Watcher::TaskHeartbeat => "task heartbeat timeout",
        Watcher::Progress => "progress check",
        Watcher::None => "nobody",
    }
}

/// The lower bound to what a person reads: tenths below 100 s, whole seconds above; never later than it is.
fn low(seconds: f64) -> f64 {
    if seconds >= 100.0 { (seconds + 1e-6).floor() } else { ((seconds + 1e-7) * 10.0).floor() / 10.0 }
}

/// The upper bound; never earlier than it is.
fn high(seconds: f64) -> f64 {
    if seconds >= 100.0 { (seconds - 1e-6).ceil() } else { ((seconds - 1e-7) * 10.0).ceil() / 10.0 }
}

fn number(seconds: f64) -> String {
    // Adding zero turns a negative zero into a plain one.
    let seconds = seconds.max(0.0) + 0.0;
    if seconds.fract() == 0.0 { format!("{seconds:.0}") } else { format!("{seconds:.1}") }
}

/// A window in seconds: `938–940 s`, `60 s`, `from 13 s, perhaps never`, `never`.
#[must_use]
pub fn window(lo_s: Option<f64>, hi_s: Option<f64>) -> String {
    match (lo_s, hi_s) {
        (None, _) => "never".to_string(),
        (Some(lo), None) => format!("from {} s, perhaps never", number(low(lo))),
        (Some(lo), Some(hi)) => {
            let (lo, hi) = (number(low(lo)), number(high(hi)));
            if lo == hi { format!("{lo} s") } else { format!("{lo}–{hi} s") }
        }
    }
}

/// The contenders of a detection, by contract name: `keepalive or retransmit`.
pub(super) fn contenders(p: &Predicted) -> Vec<Watcher> {
    if p.contenders.is_empty() { p.detection.watcher.into_iter().collect() } else { p.contenders.clone() }
}

/// `nobody, ever` or `keepalive after 70.5–72.3 s`.
fn who_and_when(who: &[Watcher], d: &Detection) -> String {
    if who.is_empty() {
        return "nobody, ever".to_string();
    }
    let names: Vec<&str> = who.iter().map(|w| spoken(*w)).collect();
    let joined = match names.split_last() {
        Some((last, front)) if !front.is_empty() => format!("{} or {last}", front.join(", ")),
        _ => names.join(""),
    };
    match (d.lo_s, d.hi_s) {
        (Some(_), None) => format!("{joined} {}", window(d.lo_s, d.hi_s)),
        _ => format!("{joined} after {}", window(d.lo_s, d.hi_s)),
    }
}

/// One part of a verdict's line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerdictPart {
    /// When: `idle`, `busy` …
    pub when: String,
    /// Who notices: none is nobody.
    pub watcher: Option<Watcher>,
    /// The earliest second from the fault.
    pub lo_s: Option<f64>,
    /// The latest; none: perhaps never.
    pub hi_s: Option<f64>,
    /// In words.
    pub text: String,
}

/// The verdict on one arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The arm.
    pub arm: String,
    /// The whole line.
    pub text: String,
    /// Its parts.
    pub parts: Vec<VerdictPart>,
}

fn part(when: &str, who: &[Watcher], d: &Detection) -> VerdictPart {
    let text = who_and_when(who, d);
    VerdictPart { when: when.to_string(), watcher: d.watcher, lo_s: d.lo_s, hi_s: d.hi_s, text }
}

/// The line on one arm from its predictions.
pub(super) fn verdict(arm: &str, predicted: &[Predicted]) -> Verdict {
    let by = |role: Role| predicted.iter().find(|p| p.role == role);
    let told = |when: &str, p: &Predicted| part(when, &contenders(p), &p.detection);
    let mut parts: Vec<VerdictPart> = Vec::new();
    let standard = [Role::Idle, Role::Busy, Role::Frozen].iter().any(|r| by(*r).is_some());
    if standard {
        let same = |a: &Predicted, b: &Predicted| a.detection == b.detection;
        parts.extend(by(Role::Idle).map(|p| told("idle", p)));
        parts.extend(by(Role::Busy).map(|p| told("busy", p)));
        if let (Some(call), Some(busy)) = (by(Role::Call), by(Role::Busy)) {
            parts.extend((!same(call, busy)).then(|| told("busy in a call", call)));
        }
        parts.extend(by(Role::Frozen).map(|p| told("frozen peer", p)));
        if let (Some(call), Some(frozen)) = (by(Role::FrozenCall), by(Role::Frozen)) {
            parts.extend((!same(call, frozen)).then(|| told("frozen in a call", call)));
        }
    } else {
        parts.extend(predicted.iter().map(|p| told(&p.situation, p)));
    }
    let reaper = predicted.first().and_then(|p| {
        let fires = p.watchers.iter().filter(|w| w.side == Side::Reaper && w.state == WatcherState::Fires);
        fires.filter(|w| w.lo_s.is_some()).min_by(|a, b| a.lo_s.unwrap_or(0.0).total_cmp(&b.lo_s.unwrap_or(0.0)))
    });
    if let Some(w) = reaper {
        let text = window(w.lo_s, w.hi_s);
        parts.push(VerdictPart {
            when: "reaper".to_string(),
            watcher: Some(w.watcher),
            lo_s: w.lo_s,
            hi_s: w.hi_s,
            text,
        });
    }
    let text = parts.iter().map(|p| format!("{}: {}", p.when, p.text)).collect::<Vec<_>>().join("; ");
    Verdict { arm: arm.to_string(), text, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_rounded_outwards() {
        assert_eq!(window(Some(938.1), Some(939.5)), "938–940 s");
        assert_eq!(window(Some(70.53), Some(72.31)), "70.5–72.4 s");
        assert_eq!(window(Some(1200.0), Some(1320.0)), "1200–1320 s");
        assert_eq!(window(Some(1_200.000_000_1), Some(1_319.999_999_9)), "1200–1320 s");
        assert_eq!(window(Some(60.0), Some(60.0)), "60 s");
        assert_eq!(window(Some(13.28), None), "from 13.2 s, perhaps never");
        assert_eq!(window(None, None), "never");
    }
}
