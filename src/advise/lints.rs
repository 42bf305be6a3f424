//! Findings about an arm: those of `config` on its facts, and those that only the client or the model can tell.

use super::answer::{LintLine, Predicted};
use super::arm::Arm;
use super::fact_list;
use super::situations::Role;
use super::words::window;
use crate::config::{Findings, Lint, Origin, Place, Severity, lint_facts};
use crate::timers::{BrokerKind, KernelVersion, ReadTimeoutKind, Subject, Watcher};
use crate::units::Setting;

/// The findings that need no prediction. `overridden`: `--set` has changed what the sources say.
pub(super) fn of_arm(arm: &Arm, sources: Option<&Findings>, overridden: bool) -> Vec<Lint> {
    let facts = fact_list::facts(arm);
    let mut lints = match sources {
        None => lint_facts(facts),
        Some(findings) if overridden => {
            // What the facts alone tell is told anew, what only the sources tell stays.
            let of_facts = lint_facts(findings.facts.clone());
            let mut kept: Vec<Lint> = findings.lints.iter().filter(|l| !of_facts.contains(l)).cloned().collect();
            kept.extend(lint_facts(facts));
            kept
        }
        Some(findings) => findings.lints.clone(),
    };
    lints.retain(|lint| !refuted(arm, lint));
    read_timeout(arm, &mut lints);
    foreign(arm, &mut lints);
    rto_max(arm, &mut lints);
    lints
}

/// `config` knows Celery's rules; other clients negotiate by rules of their own.
fn refuted(arm: &Arm, lint: &Lint) -> bool {
    let agreed = arm.settings.negotiated_heartbeat();
    match lint.code {
        // A client whose 0 adopts the broker's value.
        "heartbeat-off" => agreed.is_some(),
        // A client that insists on its own.
        "heartbeat-negotiated-down" => agreed == arm.settings.heartbeat.and_then(Setting::get) && agreed.is_some(),
        _ => false,
    }
}

fn written(arm: &Arm, option: &str) -> Option<Place> {
    arm.places.get(option).filter(|(origin, _)| *origin == Origin::Written).map(|(_, place)| place.clone())
}

fn read_timeout(arm: &Arm, lints: &mut Vec<Lint>) {
    let Some(place) = written(arm, "read_timeout") else { return };
    let s = &arm.settings;
    let Some(timeout) = s.read_timeout.get() else { return };
    match s.subject.read_timeout_kind(s.broker) {
        ReadTimeoutKind::Ignored => lints.push(Lint {
            code: "read-timeout-non-blocking",
            severity: Severity::Warning,
            text: format!("SO_RCVTIMEO does nothing on the non-blocking socket of {}", s.subject),
            place,
            mend: "set a heartbeat or keepalive, or bound each call in the client".to_string(),
        }),
        ReadTimeoutKind::SynchronousCallsOnly => lints.push(Lint {
            code: "read-timeout-in-calls-only",
            severity: Severity::Note,
            text: format!(
                "a read timeout of {} bounds synchronous calls; the event loop that waits for messages polls and never meets it",
                Setting::After(timeout)
            ),
            place,
            mend: "rely on the heartbeat for an idle consumer".to_string(),
        }),
        _ => {}
    }
}

/// Options of another client or broker.
fn foreign(arm: &Arm, lints: &mut Vec<Lint>) {
    let s = &arm.settings;
    let amqp = arm.amqp().is_some();
    let rabbit = s.broker == BrokerKind::RabbitMq;
    let celery_on_redis = s.subject == Subject::Celery && s.broker == BrokerKind::Redis;
    let wrong = [
        ("heartbeat", amqp || s.broker == BrokerKind::Redis && s.heartbeat.is_none(), "an option of AMQP"),
        ("broker_heartbeat", amqp, "an option of AMQP"),
        ("heartbeat_thread", s.subject == Subject::AmqpBlocking, "an option of `amqp-blocking`"),
        ("consumer_timeout", rabbit, "an option of RabbitMQ"),
        ("broker.version", rabbit, "an option of RabbitMQ"),
        ("health_check_interval", s.broker == BrokerKind::Redis, "an option of Redis clients"),
        ("visibility_timeout", celery_on_redis, "an option of Celery on Redis"),
    ];
    for (option, belongs, whose) in wrong {
        let Some(place) = written(arm, option).filter(|_| !belongs) else { continue };
        // A scenario's reader refuses such options itself; its places only mark what may have been written.
        if place.label != "--set" {
            continue;
        }
        lints.push(Lint {
            code: "option-of-another-client",
            severity: Severity::Warning,
            text: format!("`{option}` has no effect: it is {whose}, and {} on {} has none", s.subject, s.broker),
            place,
            mend: "remove it, or it will be believed to protect".to_string(),
        });
    }
}

fn rto_max(arm: &Arm, lints: &mut Vec<Lint>) {
    if arm.client.kernel >= (KernelVersion { major: 6, minor: 15 }) {
        return;
    }
    for option in ["tcp_rto_max", "sysctl.tcp_rto_max", "sysctl.tcp_rto_max_ms"] {
        if let Some(place) = written(arm, option) {
            lints.push(Lint {
                code: "rto-max-before-6.15",
                severity: Severity::Warning,
                text: format!("kernel {} has no such limit and ignores it", arm.client.kernel),
                place,
                mend: "use tcp_user_timeout, or Linux 6.15".to_string(),
            });
        }
    }
}

/// Adds an arm's findings, and those that its predictions show, to the others.
pub(super) fn collect(all: &mut Vec<LintLine>, arm: &Arm, mut found: Vec<Lint>, predicted: &[Predicted]) {
    found.extend(healthy(arm, predicted));
    found.extend(unwatched(arm, predicted));
    for lint in found {
        match all.iter_mut().find(|l| l.lint == lint) {
            Some(line) => line.arms.push(arm.name.clone()),
            None => all.push(LintLine { lint, arms: vec![arm.name.clone()] }),
        }
    }
}

fn place_of(arm: &Arm, option: &str) -> Place {
    arm.places.get(option).map_or_else(
        || Place { label: format!("stock {}", arm.settings.subject), line: None, key: option.to_string() },
        |(_, place)| place.clone(),
    )
}

/// What the settings do to a healthy link.
fn healthy(arm: &Arm, predicted: &[Predicted]) -> Vec<Lint> {
    let mut lints = Vec::new();
    let Some(price) = predicted.iter().find(|p| p.role == Role::Idle).or(predicted.first()).map(|p| &p.false_alarm)
    else {
        return lints;
    };
    if let Some((Watcher::BrokerHeartbeat, after)) = price.fires_when_healthy {
        lints.push(Lint {
            code: "fires-on-a-healthy-link",
            severity: Severity::Warning,
            text: format!(
                "the broker misses heartbeats and ends a healthy connection after {}: the thread that should send them waits for a message",
                window(Some(after), Some(after))
            ),
            place: place_of(arm, "heartbeat_thread"),
            mend: "tick the heartbeat on a thread of its own (heartbeat_thread=own)".to_string(),
        });
    } else if let Some((watcher, after)) = price.fires_when_healthy {
        let silence = price.longest_silence_s.map_or("for any time".to_string(), |s| format!("up to {s:.0} s"));
        lints.push(Lint {
            code: "fires-on-a-healthy-link",
            severity: Severity::Warning,
            text: format!(
                "{watcher} ends a healthy connection after {} of quiet, and this one may be quiet {silence}",
                window(Some(after), Some(after))
            ),
            place: place_of(arm, "read_timeout"),
            mend: "make it longer than the quiet, or have the broker send heartbeats".to_string(),
        });
    }
    if price.nat_kills_idle_link {
        lints.push(Lint {
            code: "forgotten-by-a-middlebox",
            severity: Severity::Warning,
            text: "nothing crosses the idle link before the middlebox forgets it".to_string(),
            place: place_of(arm, "nat_idle"),
            mend: "write keepalive.idle or a heartbeat below nat_idle".to_string(),
        });
    }
    if price.one_lost_probe_kills && arm.places.get("keepalive.idle").is_none_or(|(o, _)| *o == Origin::Written) {
        lints.push(Lint {
            code: "one-lost-probe",
            severity: Severity::Note,
            text: "a single lost keepalive probe ends a healthy idle connection".to_string(),
            place: place_of(arm, "keepalive.probes"),
            mend: "allow more probes, and a tcp_user_timeout above idle + interval".to_string(),
        });
    }
    lints
}

/// Situations of the standard set in which nobody on the connection notices.
fn unwatched(arm: &Arm, predicted: &[Predicted]) -> Vec<Lint> {
    let open: Vec<&str> = predicted
        .iter()
        .filter(|p| p.fault != "none" && p.role != Role::Asked && p.detection.watcher.is_none())
        .map(|p| p.situation.as_str())
        .collect();
    if open.is_empty() {
        return Vec::new();
    }
    let frozen_only = predicted
        .iter()
        .filter(|p| p.role != Role::Asked && p.detection.watcher.is_none())
        .all(|p| p.fault.starts_with("frozen"));
    let s = &arm.settings;
    let mend = match s.subject.read_timeout_kind(s.broker) {
        ReadTimeoutKind::SynchronousCallsOnly if s.read_timeout == Setting::None => {
            "write read_timeout = 60 (seconds) in broker_transport_options"
        }
        ReadTimeoutKind::Poll if s.subject == Subject::Celery && s.read_timeout == Setting::None => {
            "write socket_timeout = 60 (seconds) in broker_transport_options; only a read timeout sees a frozen peer"
        }
        ReadTimeoutKind::Blocking | ReadTimeoutKind::Poll if frozen_only && s.read_timeout == Setting::None => {
            "only a read timeout sees a frozen peer: set one, longer than the longest healthy quiet"
        }
        ReadTimeoutKind::Blocking | ReadTimeoutKind::Poll => "set a read timeout, or keepalive (60s, 10s, 6 probes)",
        _ if arm.amqp().is_some() && s.negotiated_heartbeat().is_none() => "set a heartbeat of 10 to 60 s",
        _ => "set keepalive (60s, 10s, 6 probes); only an answer that is asked for shows a frozen peer",
    };
    vec![Lint {
        code: "nobody-notices",
        severity: Severity::Warning,
        text: format!("nobody on the connection ever notices: {}", open.join("; ")),
        place: Place { label: format!("arm {}", arm.name), line: None, key: String::new() },
        mend: mend.to_string(),
    }]
}
