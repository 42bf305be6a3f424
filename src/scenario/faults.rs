//! Reading the faults of a scenario: one by one, and what only shows when all are seen.

use super::aftermath::{ReaperSettings, TaskStoreKind};
use super::error::Findings;
use super::fault::{Act, Fault, Repeat, Scope, Trigger};
use super::injection::Injection;
use super::model::{Arm, BrokerKind, SubjectKind};
use super::value::Val;
use super::walk::Fields;
use super::{injection, middlebox, profile};
use crate::units::{Setting, print_duration};
use std::time::Duration;

/// Reads one fault; `None` when its profile is not known, which has been said.
pub(super) fn fault(fields: &Fields, findings: &mut Findings) -> Option<Fault> {
    let profile = fields.text("profile")?.to_string();
    let known = profile::builtin(&profile)?;
    let (at, trigger) = match fields.get("at").map(|found| &found.val) {
        Some(Val::Phase(at)) => (*at, None),
        Some(Val::Trigger(trigger)) => (None, Some(*trigger)),
        _ => (None, None),
    };
    let duration = fields.setting("duration").unwrap_or(Setting::None);
    let injection = fields.text("injection").and_then(Injection::named).unwrap_or_default();
    let fault = Fault {
        name: fields.text("name").unwrap_or(&profile).to_string(),
        profile,
        drop: known.drop,
        act: known.act,
        middlebox: known.middlebox,
        idle: fields.time("idle"),
        injection,
        scope: match (known.act, injection::scope(injection)) {
            // It is the broker's host: what the client hears of others, the router's ICMP among it, is not concerned. And before
            // a name server's answer there is nothing of a connection but the two addresses.
            (Some(Act::VanishHost | Act::WithholdAnswer), _) => Scope::Pair,
            (_, Some(own)) => own,
            _ => fields.text("scope").and_then(Scope::named).unwrap_or(Scope::Flow),
        },
        duration,
        repeat: if known.act.is_some_and(|act| (!act.heals() && !act.starts_again()) || act.in_handshake()) {
            once_only(fields, findings);
            None
        } else {
            repeat(fields, duration, findings)
        },
        phase_window: fields.time("phase_window"),
        // In force before the client connects: nothing is drawn.
        at: if known.act.is_some_and(Act::in_handshake) { Some(Duration::ZERO) } else { at },
        trigger,
        connection: fields.text("connection").filter(|role| *role != "consumer").map(str::to_string),
    };
    check_phase(fields, &fault, findings);
    check_healing(fields, &fault, findings);
    middlebox::check(fields, &fault, findings);
    injection::check(fields, &fault, findings);
    Some(fault)
}

fn repeat(fields: &Fields, duration: Setting, findings: &mut Findings) -> Option<Repeat> {
    let place = |key: &str| fields.get(key).map_or(fields.at, |found| found.key_at);
    let times = fields.int("repeat").and_then(|n| u32::try_from(n).ok());
    match (times, fields.time("pause")) {
        (Some(_), _) if duration == Setting::None => {
            let problem = "comes again only after it was healed; write `duration = \"30s\"`";
            findings.error(place("repeat"), fields.name("repeat"), problem);
            None
        }
        (Some(times), Some(pause)) => Some(Repeat { times, pause }),
        (Some(_), None) => {
            let problem = "needs the healthy time between two cuts; write `pause = \"10s\"`";
            findings.error(place("repeat"), fields.name("repeat"), problem);
            None
        }
        (None, Some(_)) if !fields.has("repeat") => {
            let problem = "without `repeat` the fault comes once; write `repeat = 2` or remove it";
            findings.error(place("pause"), fields.name("pause"), problem);
            None
        }
        (None, _) => None,
    }
}

/// What can't be healed can't come again either.
fn once_only(fields: &Fields, findings: &mut Findings) {
    for key in ["repeat", "pause"] {
        if let Some(found) = fields.get(key) {
            findings.error(found.key_at, fields.name(key), "it can't be taken back, so it comes once; remove it");
        }
    }
}

/// What an act that hits all is done to.
fn whom(act: Option<Act>) -> &'static str {
    match act {
        Some(Act::KillReaper) => "the reaper",
        Some(Act::KillStore) => "the task store",
        _ => "the broker",
    }
}

/// Whom an act reaches that hits all.
fn everybody(act: Option<Act>) -> String {
    let with = if act.is_some_and(Act::beside_the_connection) { "trial" } else { "connection" };
    format!("{} and with it every {with} at once", whom(act))
}

fn check_phase(fields: &Fields, fault: &Fault, findings: &mut Findings) {
    let place = |key: &str| fields.get(key).map_or(fields.at, |found| found.key_at);
    if fault.in_handshake() {
        for key in ["at", "phase_window", "scope", "connection"].into_iter().filter(|key| fields.has(key)) {
            let problem =
                format!("`{}` is there before the client connects, for every connection; remove it", fault.profile);
            findings.error(place(key), fields.name(key), problem);
        }
        return;
    }
    if let (Some(at), true) = (fault.at, fields.has("phase_window")) {
        let problem =
            format!("the phase is fixed at {} and nothing is drawn; remove one of the two", print_duration(at));
        findings.error(place("phase_window"), fields.name("phase_window"), problem);
    }
    let written = fields.text("scope");
    let misplaced = match fault.act {
        Some(Act::VanishHost) if written.is_some_and(|scope| scope == "flow") => {
            Some("takes its address with it: reconnects are cut too")
        }
        Some(Act::SwallowProxy | Act::WithholdReply) if written.is_some_and(|scope| scope != "flow") => {
            Some("concerns the connections that are there: a new one gets through")
        }
        Some(act) if act.hits_worker() && written.is_some() => Some("is done to a process and cuts nothing"),
        Some(Act::FailOver) if written.is_some_and(|scope| scope != "flow") => {
            Some("leaves the address to another host: reconnects reach it")
        }
        _ => None,
    };
    if let Some(why) = misplaced {
        findings.error(place("scope"), fields.name("scope"), format!("`{}` {why}; remove it", fault.profile));
    }
    if !fault.act.is_some_and(Act::hits_all) {
        return;
    }
    if fields.has("scope") {
        let problem = format!("`{}` hits {}; remove it", fault.profile, everybody(fault.act));
        findings.error(place("scope"), fields.name("scope"), problem);
    }
    if fault.at.is_some() {
        return;
    }
    let problem = format!(
        "`{}` hits {}, so its phase can't be drawn for each; write `at = \"1s\"`",
        fault.profile,
        everybody(fault.act)
    );
    let (at, name) = if fields.has("at") { (place("at"), fields.name("at")) } else { (fields.at, fields.name("at")) };
    findings.error(at, name, problem);
}

fn check_healing(fields: &Fields, fault: &Fault, findings: &mut Findings) {
    if fault.duration == Setting::None {
        return;
    }
    let problem = match fault.act {
        None if fault.is_control() => "a control has nothing to heal; remove it",
        Some(Act::ForgetEntry) => "what was forgotten can't be healed; remove it",
        Some(act) if act.forgets() => "what was forgotten can't be healed; remove it",
        Some(Act::VanishHost) => {
            "what has vanished does not come back; for a path that heals write `profile = \"blackhole\"`"
        }
        Some(Act::SwallowProxy | Act::WithholdReply) => {
            "what was kept back is lost, and no stream goes on without it; remove it"
        }
        Some(Act::StaySilent) => "who is silent stays silent; remove it",
        Some(act) if !act.heals() && !act.starts_again() => "what is killed can't be healed; remove it",
        _ => return,
    };
    let at = fields.get("duration").map_or(fields.at, |found| found.key_at);
    findings.error(at, fields.name("duration"), problem);
}

/// Faults that reports could not tell apart, and one that leaves no room for others.
pub(super) fn together(faults: &[Fields], findings: &mut Findings) {
    let name = |fields: &Fields| fields.text("name").or(fields.text("profile")).map(str::to_string);
    let shape = |fields: &Fields| (name(fields), fields.text("scope").unwrap_or("flow").to_string());
    for (i, fields) in faults.iter().enumerate() {
        let Some(own) = name(fields) else { continue };
        if faults[..i].iter().any(|other| shape(other) == shape(fields)) {
            let problem = if fields.has("name") {
                format!("`{own}` is taken by a fault above; rename it")
            } else {
                "a fault of this profile and scope stands above, and reports could not tell them apart; give each a \
                 name, such as `name = \"short-cut\"`"
                    .to_string()
            };
            let at = if fields.has("name") { fields.at("name") } else { fields.at };
            let label = if fields.has("name") { fields.name("name") } else { fields.label.trim_end().to_string() };
            findings.error(at, label, problem);
        }
        let acts = |profile: &&str| profile::builtin(profile).is_some_and(|known| known.act.is_some_and(Act::hits_all));
        if let Some(profile) = fields.text("profile").filter(acts).filter(|_| faults.len() > 1) {
            let problem = format!(
                "`{profile}` hits {}, and with it the connections of every other fault; run it in a scenario of its own",
                whom(profile::builtin(profile).and_then(|known| known.act))
            );
            findings.error(fields.at("profile"), fields.name("profile"), problem);
        }
    }
}

/// Cuts that would only come when the trials are over.
pub(super) fn within(horizon: Option<Duration>, faults: &[Fields], findings: &mut Findings) {
    for fields in faults {
        let apart = fields.setting("duration").and_then(Setting::get).zip(fields.time("pause"));
        let again = fields.int("repeat").and_then(|n| u32::try_from(n).ok()).and_then(|n| n.checked_sub(1));
        let (Some(horizon), Some((duration, pause)), Some(again)) = (horizon, apart, again) else { continue };
        let last = duration.saturating_add(pause).saturating_mul(again);
        if last >= horizon {
            let (last, horizon) = (print_duration(last), print_duration(horizon));
            let problem = format!(
                "the last cut would come {last} after the first, and a trial ends {horizon} after it; raise `horizon` above \
                 `{last}`, or let it come less often"
            );
            findings.error(fields.at("repeat"), fields.name("repeat"), problem);
        }
    }
}

/// Whoever takes an address away takes it from the broker's host, and a proxy would hold it instead.
pub(super) fn apart(faults: &[Fields], findings: &mut Findings) {
    let act = |fields: &Fields| fields.text("profile").and_then(profile::builtin).and_then(|known| known.act);
    if !faults.iter().any(|fields| act(fields).is_some_and(Act::in_proxy)) {
        return;
    }
    for fields in faults.iter().filter(|fields| act(fields).is_some_and(Act::moves_the_address)) {
        let problem =
            "with a proxy before the broker the address is the proxy's; run the two in scenarios of their own";
        findings.error(fields.at("profile"), fields.name("profile"), problem);
    }
}

/// RabbitMQ's alarms concern whoever publishes to it.
pub(super) fn alarmed(faults: &[Fields], arms: &[(&Fields, &Arm)], load: Option<Duration>, findings: &mut Findings) {
    let other = arms.iter().find(|(_, arm)| arm.settings.subject.broker() != BrokerKind::Rabbitmq);
    let problem = match (other, load) {
        (Some((_, arm)), _) => {
            format!("is RabbitMQ's, and arm `{}` speaks to another; remove one of the two", arm.name)
        }
        (None, None) => "blocks whoever publishes, and nobody does; write `[load]` with `rate = \"1/s\"`".to_string(),
        (None, Some(_)) => return,
    };
    for fields in faults {
        let act = fields.text("profile").and_then(profile::builtin).and_then(|known| known.act);
        if act.is_some_and(Act::alarms) {
            let alarm = if act == Some(Act::AlarmDisk) { "a disk alarm" } else { "a memory alarm" };
            findings.error(fields.at("profile"), fields.name("profile"), format!("{alarm} {problem}"));
        }
    }
}

/// A cut that waits for a delivery needs one on every connection.
pub(super) fn deliveries(faults: &[Fields], arms: &[(&Fields, &Arm)], load: Option<Duration>, findings: &mut Findings) {
    let idle = arms.iter().find_map(|(_, arm)| match (load, arm.settings.subject) {
        (None, _) => Some("no messages flow; write `[load]` with `rate = \"1/s\"`".to_string()),
        (_, SubjectKind::TcpWriter) => Some(format!("arm `{}` only sends; remove it or the fault", arm.name)),
        _ if !arm.load => Some(format!("arm `{}` has `load = \"off\"`; remove that", arm.name)),
        _ => None,
    });
    let Some(why) = idle else { return };
    for fields in faults {
        if let Some(Val::Trigger(trigger)) = fields.get("at").map(|found| &found.val)
            && !matches!(trigger, Trigger::AfterHeartbeat | Trigger::Reconnect)
        {
            let problem = format!("`{}` waits for a delivery, and {why}", trigger.name());
            findings.error(fields.at("at"), fields.name("at"), problem);
        }
    }
}

/// What is done to processes of the run's own: a worker that is this harness' own client, a reaper, a database.
pub(super) fn processes(
    faults: &[Fields],
    arms: &[(&Fields, &Arm)],
    reaper: Option<&ReaperSettings>,
    findings: &mut Findings,
) {
    let works =
        |kind: SubjectKind| matches!(kind, SubjectKind::Lapin | SubjectKind::AmqpBlocking | SubjectKind::RedisBlocking);
    let other = arms.iter().find(|(_, arm)| !works(arm.settings.subject)).map(|(_, arm)| arm);
    for fields in faults {
        let act = fields.text("profile").and_then(profile::builtin).and_then(|known| known.act);
        let problem = match (act, other) {
            (Some(act), Some(arm)) if act.hits_worker() => Some(format!(
                "a worker is one of this harness' own with a broker, and arm `{}` is a {}; remove one of the two",
                arm.name, arm.settings.subject
            )),
            (Some(Act::KillReaper), _) if reaper.is_none_or(|reaper| reaper.inside_the_worker || reaper.runs_in.is_some()) => Some(
                "there is no reaper with a process of its own; write `[reaper]`, without `home = \"worker\"` and `runs_in`"
                    .to_string(),
            ),
            (Some(Act::KillStore), _) if reaper.is_none_or(|reaper| reaper.store != TaskStoreKind::Postgres) => {
                Some("a file has no process; write `store = \"postgres\"` under `[reaper]`".to_string())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            findings.error(fields.at("profile"), fields.name("profile"), problem);
        }
        let halts = match fields.get("at").map(|found| &found.val) {
            Some(Val::Trigger(trigger)) => Some(*trigger).filter(|trigger| trigger.halts()),
            _ => None,
        };
        if let (Some(trigger), Some(arm)) = (halts, other) {
            let problem = format!(
                "`{}` is a point of the work of this harness' own clients with a broker, and arm `{}` is a {}; remove one of \
                 the two",
                trigger.name(),
                arm.name,
                arm.settings.subject
            );
            findings.error(fields.at("at"), fields.name("at"), problem);
        }
    }
}

/// A cut of a reconnect needs a client whose attempts are told, and nothing beside the cut.
pub(super) fn reconnecting(faults: &[(&Fields, &Fault)], arms: &[(&Fields, &Arm)], findings: &mut Findings) {
    let outside = arms.iter().find(|(_, arm)| arm.settings.subject.is_command());
    for (fields, fault) in faults.iter().filter(|(_, fault)| fault.trigger == Some(Trigger::Reconnect)) {
        let problem = if fault.profile != "blackhole" || !fault.injection.is_faithful() {
            "`reconnect` is a phase of `blackhole` alone; write another phase".to_string()
        } else if fault.duration != Setting::None {
            "`reconnect` stands to the end of the trial; remove `duration`".to_string()
        } else if let Some((_, arm)) = outside {
            format!(
                "`reconnect` needs a subject that tells its attempts, and that of arm `{}` is watched from outside; remove it",
                arm.name
            )
        } else {
            continue;
        };
        findings.error(fields.at("at"), fields.name("at"), problem);
    }
}

/// A proxy stands before a real broker; the embedded peer knows its clients by their own addresses.
pub(super) fn proxied(faults: &[Fields], bare: bool, findings: &mut Findings) {
    let frozen = |fields: &&Fields| {
        let act = fields.text("profile").and_then(profile::builtin).and_then(|known| known.act);
        act.is_some_and(Act::in_proxy)
    };
    for fields in faults.iter().filter(frozen).filter(|_| bare) {
        let problem = "the proxy stands before a real broker, and an arm is bare TCP; remove the arm or the fault";
        findings.error(fields.at("profile"), fields.name("profile"), problem);
    }
}

/// What connections are for is heard at the broker's door, and behind TLS asked of the broker: Redis knows of no queues.
pub(super) fn heard(faults: &[Fields], arms: &[(&Fields, &Arm)], findings: &mut Findings) {
    let silent = |arm: &Arm| arm.settings.tls && arm.settings.subject.broker() == BrokerKind::Redis;
    let Some((_, arm)) = arms.iter().find(|(_, arm)| silent(arm)) else { return };
    for fields in faults.iter().filter(|fields| fields.text("connection").is_some_and(|role| role != "consumer")) {
        let problem = format!(
            "nobody hears what a connection to Redis is for where it is encrypted, and arm `{}` has `tls = true`; remove one of the two",
            arm.name
        );
        findings.error(fields.at("connection"), fields.name("connection"), problem);
    }
}

/// A server of TLS that stays silent is one to clients that wait for TLS, and what they give up is their handshake.
pub(super) fn handshakes(faults: &[Fields], arms: &[(&Fields, &Arm)], findings: &mut Findings) {
    let (plain, outside) = (
        arms.iter().find(|(_, arm)| !arm.settings.tls),
        arms.iter()
            .find(|(_, arm)| arm.settings.subject.is_command() || arm.settings.subject.broker() == BrokerKind::None),
    );
    for fields in faults {
        let act = fields.text("profile").and_then(profile::builtin).and_then(|known| known.act);
        let problem = match (act, plain, outside) {
            (Some(Act::StaySilent), Some((_, arm)), _) => {
                format!("arm `{}` shakes no hands of TLS; write `tls = true` in the arm", arm.name)
            }
            (Some(Act::WithholdAnswer), _, Some((_, arm))) => format!(
                "arm `{}`: {} looks no name up that the harness would hear it give up; remove the arm or the fault",
                arm.name, arm.settings.subject
            ),
            _ => continue,
        };
        findings.error(fields.at("profile"), fields.name("profile"), problem);
    }
}

/// A client of our own has one connection; what another's are for is heard.
pub(super) fn of_a_role(faults: &[Fields], all_from_outside: bool, findings: &mut Findings) {
    for fields in faults.iter().filter(|fields| !all_from_outside && fields.has("connection")) {
        let problem = "an arm's subject has one connection alone, which consumes; remove it";
        findings.error(fields.at("connection"), fields.name("connection"), problem);
    }
}
