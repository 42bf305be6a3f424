//! What only shows when several keys are seen together: impossible combinations, and runs that could show nothing.

use super::error::Findings;
use super::fault::Fault;
use super::model::{Arm, BrokerKind, BrokerSettings, HeartbeatThread, SubjectKind};
use super::settings::Options;
use super::table::{MAX_TLS_TRIALS, MAX_TRIALS};
use super::timing::{first_timer, heartbeat_in_force, in_seconds};
use super::walk::Fields;
use std::time::Duration;

/// Reports name arms by their names alone.
pub(super) fn unique_names(arms: &[Fields], findings: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for fields in arms {
        let Some(name) = fields.text("name") else { continue };
        if seen.contains(&name) {
            findings.error(
                fields.at("name"),
                fields.name("name"),
                format!("`{name}` is taken by an arm above; rename it"),
            );
        }
        seen.push(name);
    }
}

/// A subject whose behaviour needs messages, or needs none.
pub(super) fn load(
    options: Options<'_>,
    arm: &Arm,
    every: Option<Duration>,
    broker: &BrokerSettings,
    findings: &mut Findings,
) {
    let (own, settings) = (options.own, &arm.settings);
    if settings.subject == SubjectKind::TcpWriter && settings.peer_reads && every.is_none() {
        let at = if own.has("subject") { own.at("subject") } else { own.at };
        let problem =
            "a tcp-writer writes at the rate of [load], and there is none; write `[load]` with `rate = \"1/s\"`";
        findings.error(at, own.name("subject"), problem);
    }
    if settings.ping.is_some() && every.is_some() {
        let problem = "the subject then takes no messages, and those of [load] would stay in the queue; write `load = \"off\"` in the arm";
        let source = options.source("ping").unwrap_or(own);
        findings.error(source.at("ping"), source.name("ping"), problem);
    }
    let heartbeat = heartbeat_in_force(settings, broker);
    let blocks = settings.subject == SubjectKind::AmqpBlocking && settings.sync_call.is_none();
    if let Some(heartbeat) = heartbeat.filter(|_| blocks && settings.heartbeat_thread == Some(HeartbeatThread::Same))
        && every.is_none_or(|every| every >= heartbeat)
    {
        let source = options.source("heartbeat").unwrap_or(own);
        let heartbeat = in_seconds(heartbeat);
        let problem = format!(
            "the broker would end a healthy connection: the thread that consumes sends nothing while it waits, and too few \
             messages let it run; write `[load]` with a rate above `1/{heartbeat}`, or `heartbeat_thread = \"own\"`"
        );
        findings.error(source.at("heartbeat"), source.name("heartbeat"), problem);
    }
    let heard = match settings.subject {
        SubjectKind::TcpReader => every,
        // An idle RabbitMQ sends every half of a heartbeat, and one that sends messages at least every heartbeat.
        SubjectKind::AmqpBlocking if blocks => match (heartbeat, every) {
            (Some(heartbeat), Some(every)) if every > heartbeat / 2 => Some(heartbeat),
            (Some(heartbeat), None) => Some(heartbeat / 2),
            (_, every) => every,
        },
        _ => return,
    };
    let behind_tls = settings.tls && settings.subject == SubjectKind::AmqpBlocking;
    // Whoever writes a connect timeout has the bound that there is.
    let unaware = behind_tls && settings.read_timeout.get().is_some() && options.source("connect_timeout").is_none();
    if let Some(source) = options.source("read_timeout").filter(|_| unaware) {
        let text = "does nothing behind TLS: Python's ssl reads on through SO_RCVTIMEO; there py-amqp's `connect_timeout` bounds each read";
        findings.warn(source.at("read_timeout"), source.name("read_timeout"), text);
    }
    let (Some(timeout), every) = (settings.read_bound().get(), heard) else { return };
    if every.is_none_or(|every| every >= timeout) {
        let key = if behind_tls { "connect_timeout" } else { "read_timeout" };
        let source = options.source(key).unwrap_or(own);
        let heard = every.map_or("nothing".to_string(), |every| format!("one message in {}", in_seconds(every)));
        let timeout = in_seconds(timeout);
        let problem = format!(
            "`{timeout}` would run out on a healthy connection, which hears {heard}; write `[load]` with a rate above `1/{timeout}`"
        );
        findings.error(source.at(key), source.name(key), problem);
    }
}

/// A task with an ETA is Celery's, and falls due at a known distance from the cut.
pub(super) fn eta(
    load: &Fields,
    eta: Option<Duration>,
    arms: &[(&Fields, &Arm)],
    faults: &[Fault],
    findings: &mut Findings,
) {
    if eta.is_none() {
        return;
    }
    let mut say = |problem: &str| findings.error(load.at("eta"), load.name("eta"), problem);
    if arms.iter().any(|(_, arm)| !arm.settings.subject.is_celery()) {
        say("only a Celery worker knows tasks with an ETA; remove it, or write `subject = \"celery\"`");
    } else if faults.iter().any(|fault| fault.at.is_none()) {
        say("counts from the cut, whose phase is drawn; write `at = \"10s\"` in the fault");
    }
}

/// What was not acknowledged is given to somebody else by RabbitMQ, and on Redis by kombu's rules; a task store knows one worker
/// a task.
pub(super) fn second_consumer(
    load: &Fields,
    arms: &[(&Fields, &Arm)],
    stored: bool,
    routed: bool,
    findings: &mut Findings,
) {
    let mut say = |problem: &str| findings.error(load.at("second_consumer"), load.name("second_consumer"), problem);
    let gives_back = |arm: &Arm| match arm.settings.subject.broker() {
        BrokerKind::Rabbitmq => true,
        // By kombu's rules.
        BrokerKind::Redis => arm.settings.subject.is_celery() || arm.settings.ack.is_some(),
        BrokerKind::None => false,
    };
    if let Some((_, arm)) = arms.iter().find(|(_, arm)| !gives_back(arm)) {
        say(&format!(
            "needs somebody who gives what was not acknowledged to another consumer: RabbitMQ, or on Redis Celery, or \
             `redis-blocking` with `ack`; arm `{}` is a `{}`: remove the one or the other",
            arm.name, arm.settings.subject
        ));
    } else if stored {
        say(
            "writes nothing into a task store, which would take its tasks for stuck; remove it, or `[reaper]` and `[tasks]`",
        );
    } else if routed {
        say("is on one queue of each trial, and `[[job]]` may lead to several; remove the one or the other");
    }
}

/// Every trial of an arm needs an address of its own.
pub(super) fn trials(own: &Fields, scenario: &Fields, trials: u32, faults: usize, findings: &mut Findings) {
    let all = u64::from(trials) * faults as u64;
    if faults > 1 && all > u64::from(MAX_TRIALS) {
        let source = if own.has("trials") { own } else { scenario };
        let problem =
            format!("{trials} trials for each of {faults} faults are {all} for an arm; the most is {MAX_TRIALS}");
        findings.error(source.at("trials"), source.name("trials"), problem);
    }
}

/// All encrypted trials of a run meet one certificate, which names the address of each.
pub(super) fn encrypted(arms: &[(&Fields, &Arm)], scenario: &Fields, faults: usize, findings: &mut Findings) {
    let encrypted = || arms.iter().filter(|(_, arm)| arm.settings.tls);
    let all: u64 = encrypted().map(|(_, arm)| u64::from(arm.trials) * faults as u64).sum();
    if all <= u64::from(MAX_TLS_TRIALS) {
        return;
    }
    // Where most of them come from.
    let Some((own, _)) = encrypted().max_by_key(|(_, arm)| arm.trials) else { return };
    let source = if own.has("trials") || !scenario.has("trials") { own } else { scenario };
    let (at, name) = match source.has("trials") {
        true => (source.at("trials"), source.name("trials")),
        false => (own.at, own.name("trials")),
    };
    let problem = format!(
        "{all} trials with `tls = true` are too many: one certificate names the address of each, and a handshake has room for \
         {MAX_TLS_TRIALS}; lower it, or make two scenarios"
    );
    findings.error(at, name, problem);
}

/// A horizon that ends before the first timer could fire shows nothing, unless that is the point.
pub(super) fn horizon(
    scenario: &Fields,
    arms: &[(&Fields, &Arm)],
    broker: &BrokerSettings,
    faults: &[Fault],
    findings: &mut Findings,
) {
    let Some(horizon) = scenario.time("horizon") else { return };
    // What follows from a key that is wrong elsewhere would only hide that error.
    let arms = arms.iter().filter(|(own, _)| !own.has("expect") && !own.flawed);
    let mut worst: Option<(Duration, String)> = None;
    for (own, arm) in arms {
        match first_timer(&arm.settings, broker) {
            Some((time, words)) if time > horizon && worst.as_ref().is_none_or(|(longest, _)| time > *longest) => {
                worst = Some((time, format!("the first timer of arm `{}`: {words}", arm.name)));
            }
            // Of a command line of the user's own nothing is known.
            None if arm.settings.subject.is_own_command() => {}
            None if faults.iter().any(|fault| !fault.is_control()) => {
                let text = format!(
                    "arm `{}` has no timer that could notice; write `expect = \"censored\"` if that is meant",
                    arm.name
                );
                findings.warn(own.at, own.label.trim_end(), text);
            }
            _ => {}
        }
    }
    if let Some((time, words)) = worst {
        let problem = format!(
            "`{}` is shorter than {words}; raise it above `{}`, or write `expect = \"censored\"` in the arm",
            in_seconds(horizon),
            in_seconds(time)
        );
        findings.error(scenario.at("horizon"), scenario.name("horizon"), problem);
    }
}
