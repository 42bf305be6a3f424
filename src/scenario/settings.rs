//! An arm's options: its own, those of `[defaults]` that its subject has, and the built-in ones.

use super::command;
use super::delivery;
use super::error::Findings;
use super::matrix::{Applies, OptionName, applies};
use super::model::{Ack, HeartbeatThread, Keepalive, Settings, SubjectKind, SyncCall};
use super::target;
use super::value::Val;
use super::walk::{Fields, Found};
use super::worker::{Begins, Effects, WorkerId};
use crate::units::Setting;
use std::collections::BTreeMap;
use std::time::Duration;

/// `broker_connection_timeout` and `broker_heartbeat` of a Celery that nobody configured (`celery/app/defaults.py`).
const CELERY_CONNECT: Duration = Duration::from_secs(4);
const CELERY_HEARTBEAT: Duration = Duration::from_secs(120);

/// An arm's own options over the defaults.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    pub(super) own: &'a Fields,
    pub(super) defaults: &'a Fields,
}

/// The subject of this name; reading has checked the name.
pub(super) fn subject_named(name: &str) -> Option<SubjectKind> {
    SubjectKind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// Whether a value asks for something: `none` and `off` ask for nothing, and fit every subject.
fn asks(val: &Val) -> bool {
    match val {
        Val::Setting(Setting::None) | Val::Off => false,
        Val::Text(text) => text != "none",
        _ => true,
    }
}

/// The options that a section writes and that ask for something.
fn written(fields: &Fields) -> impl Iterator<Item = (&'static str, OptionName, &Found)> {
    let plain = |(key, found): &(&'static str, &Found)| *key == "tls" && found.val == Val::Flag(false);
    fields.iter().filter(move |pair| asks(&pair.1.val) && !plain(pair)).filter_map(|(key, found)| {
        let option = OptionName::of_key(key)?;
        Some((key, option, found))
    })
}

impl<'a> Options<'a> {
    /// The arm's subject.
    pub(super) fn subject(&self) -> Option<SubjectKind> {
        if let Some(table) = self.target() {
            return Some(target::kind(table));
        }
        let source = self.source("subject")?;
        match source.get("subject").map(|found| &found.val) {
            Some(Val::Fields(table)) => Some(command::kind(table)),
            _ => source.text("subject").and_then(subject_named),
        }
    }

    /// The table of the arm's target, where it has one: the arm's own word on its subject stands over the defaults'.
    pub(super) fn target(&self) -> Option<&'a Fields> {
        let source =
            [self.own, self.defaults].into_iter().find(|fields| fields.has("target") || fields.has("subject"))?;
        match source.get("target").map(|found| &found.val) {
            Some(Val::Fields(table)) => Some(table),
            _ => None,
        }
    }

    /// The table of the arm's command line, where its subject is one.
    pub(super) fn command(&self) -> Option<&'a Fields> {
        if self.target().is_some() {
            return None;
        }
        match self.source("subject")?.get("subject").map(|found| &found.val) {
            Some(Val::Fields(table)) => Some(table),
            _ => None,
        }
    }

    /// What is wrong with the arm's command line as a whole. One of `[defaults]` is told of where it stands.
    pub(super) fn check_command(&self, load: bool, findings: &mut Findings) {
        let Some(table) = self.command().filter(|table| !table.flawed) else { return };
        let braces: Vec<String> = self.native().keys().cloned().collect();
        for (at, key, problem) in command::problems(table, load, &braces) {
            findings.error(at, table.name(&format!("subject.{key}")), problem);
        }
    }

    /// The section that an option comes from.
    pub(super) fn source(&self, key: &str) -> Option<&'a Fields> {
        [self.own, self.defaults].into_iter().find(|fields| fields.has(key))
    }

    /// An option that the arm itself asks for and its subject can't have is an error.
    pub(super) fn refuse_impossible(&self, subject: SubjectKind, findings: &mut Findings) {
        for (key, option, found) in written(self.own) {
            if let Applies::No { why } = applies(subject, option) {
                findings.error(found.key_at, self.own.name(key), format!("does not apply to {subject}: {why}"));
            }
        }
    }

    /// All options of the arm. Defaults that its subject does not have are left out.
    pub(super) fn settings(&self, subject: SubjectKind) -> Settings {
        let has = |option| applies(subject, option).is_yes();
        let fields = |key: &str, option| self.source(key).filter(|_| has(option));
        let setting =
            |key: &str, option, default| fields(key, option).and_then(|fields| fields.setting(key)).unwrap_or(default);
        let sysctl = self.sysctls();
        let connect = match (subject.is_celery(), subject.is_command()) {
            (true, _) => Setting::After(CELERY_CONNECT),
            // The client's own.
            (false, true) => Setting::None,
            (false, false) => Setting::After(Duration::from_secs(10)),
        };
        let heartbeat = if subject.is_celery() { Setting::After(CELERY_HEARTBEAT) } else { Setting::None };
        // Not written: the client's own, and not 0.
        let own_heartbeat = subject.is_command() && !subject.is_celery() && self.source("heartbeat").is_none();
        Settings {
            subject,
            connect_timeout: setting("connect_timeout", OptionName::ConnectTimeout, connect),
            read_timeout: setting("read_timeout", OptionName::ReadTimeout, Setting::None),
            keepalive: if has(OptionName::Keepalive) { self.keepalive(&sysctl) } else { None },
            tcp_user_timeout: setting("tcp_user_timeout", OptionName::TcpUserTimeout, Setting::None),
            heartbeat: (has(OptionName::Heartbeat) && !own_heartbeat)
                .then(|| setting("heartbeat", OptionName::Heartbeat, heartbeat)),
            prefetch: has(OptionName::Prefetch).then(|| {
                let number = fields("prefetch", OptionName::Prefetch).and_then(|fields| fields.int("prefetch"));
                number.and_then(|number| u16::try_from(number).ok()).unwrap_or(4)
            }),
            ack: has(OptionName::Ack)
                .then(|| match fields("ack", OptionName::Ack).and_then(|f| f.text("ack")) {
                    Some("early") => Ack::Early,
                    None if subject.is_celery() => Ack::Early,
                    _ => Ack::Late,
                })
                // Without a word a BRPOP gives messages away for good.
                .filter(|_| subject != SubjectKind::RedisBlocking || self.source("ack").is_some()),
            work: fields("work", OptionName::Work).and_then(|fields| fields.time("work")),
            worker_id: fields("worker_id", OptionName::WorkerId).and_then(|f| f.text("worker_id")).map(
                |word| match word {
                    "fresh" => WorkerId::Fresh,
                    _ => WorkerId::Same,
                },
            ),
            begins: fields("begins", OptionName::Begins).and_then(|f| f.text("begins")).map(|word| match word {
                "any" => Begins::Any,
                "unfinished" => Begins::Unfinished,
                _ => Begins::Pending,
            }),
            effects: fields("effects", OptionName::Effects).and_then(|f| f.text("effects")).map(|word| match word {
                "key" => Effects::Key,
                "lookup" => Effects::Lookup,
                "compensate" => Effects::Compensate,
                _ => Effects::Blind,
            }),
            frame_max: has(OptionName::FrameMax).then(|| {
                let number = fields("frame_max", OptionName::FrameMax).and_then(|fields| fields.int("frame_max"));
                number.and_then(|number| u32::try_from(number).ok()).unwrap_or(4_096)
            }),
            peer_reads: fields("peer_reads", OptionName::PeerReads)
                .and_then(|fields| fields.flag("peer_reads"))
                .unwrap_or(true),
            tls: fields("tls", OptionName::Tls).and_then(|fields| fields.flag("tls")).unwrap_or(false),
            link: super::link::read(*self),
            heartbeat_thread: has(OptionName::HeartbeatThread).then(|| {
                match fields("heartbeat_thread", OptionName::HeartbeatThread).and_then(|f| f.text("heartbeat_thread")) {
                    Some("own") => HeartbeatThread::Own,
                    _ => HeartbeatThread::Same,
                }
            }),
            sync_call: fields("sync_call", OptionName::SyncCall)
                .and_then(|f| f.text("sync_call"))
                .filter(|call| *call == "basic.qos")
                .map(|_| SyncCall::BasicQos),
            ping: fields("ping", OptionName::Ping).and_then(|f| f.setting("ping")).and_then(Setting::get),
            sysctl,
            client: self.native(),
            command: match (self.target(), self.command()) {
                (Some(table), _) => Some(Box::new(target::read(table))),
                (None, command) => command.map(|table| Box::new(command::read(table))),
            },
            delivery: delivery::read(*self, subject),
        }
    }

    /// The client's own options, those of the defaults under the arm's; tables within tables are not merged.
    fn native(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut all = serde_json::Map::new();
        for fields in [self.defaults, self.own] {
            if let Some(Val::Native(read)) = fields.get("client").map(|found| &found.val) {
                all.extend(read.clone());
            }
        }
        all
    }

    /// The arm's sysctls over those of the defaults, one by one.
    fn sysctls(&self) -> BTreeMap<String, i64> {
        let mut all = BTreeMap::new();
        for fields in [self.defaults, self.own] {
            if let Some(Val::Sysctls(read)) = fields.get("sysctl").map(|found| &found.val) {
                all.extend(read.iter().map(|(_, name, number)| (name.clone(), *number)));
            }
        }
        all
    }

    /// Keepalive, field by field: the arm's, the defaults', the namespace's sysctl, the kernel's.
    fn keepalive(&self, sysctl: &BTreeMap<String, i64>) -> Option<Keepalive> {
        let table = |fields: &'a Fields| match fields.get("keepalive").map(|found| &found.val) {
            Some(Val::Fields(inner)) => Some(inner),
            _ => None,
        };
        // The nearer section decides whether keepalive is on at all.
        table(self.source("keepalive")?)?;
        let layers: Vec<&Fields> = [self.own, self.defaults].into_iter().filter_map(table).collect();
        let kernel = |name: &str, default: u64| {
            sysctl.get(name).and_then(|number| u64::try_from(*number).ok()).unwrap_or(default)
        };
        let time = |key: &str, name: &str, default: u64| {
            layers
                .iter()
                .find_map(|fields| fields.time(key))
                .unwrap_or_else(|| Duration::from_secs(kernel(name, default)))
        };
        let probes =
            layers.iter().find_map(|fields| fields.int("probes")).and_then(|number| u32::try_from(number).ok());
        Some(Keepalive {
            idle: time("idle", "tcp_keepalive_time", 7_200),
            interval: time("interval", "tcp_keepalive_intvl", 75),
            probes: probes.unwrap_or_else(|| u32::try_from(kernel("tcp_keepalive_probes", 9)).unwrap_or(9)),
        })
    }
}

/// A default that reaches no arm does nothing, and somebody believes that it does: an error.
pub(super) fn refuse_idle_defaults(
    defaults: &Fields,
    arms: &[(&Fields, Option<SubjectKind>)],
    findings: &mut Findings,
) {
    // With a broken subject somewhere, who gets what is not known yet.
    if arms.is_empty() || arms.iter().any(|(_, subject)| subject.is_none()) {
        return;
    }
    let mut check = |key: &str, at: usize, reasons: &dyn Fn(SubjectKind) -> Option<&'static str>| {
        let mut why: Vec<String> = Vec::new();
        for (own, subject) in arms {
            let Some(subject) = subject else { return };
            match reasons(*subject) {
                Some(reason) if !why.iter().any(|known| known.starts_with(subject.name())) => {
                    why.push(format!("{subject}: {reason}"));
                }
                Some(_) => {}
                // Tables are merged field by field, so a written one never hides the default as a whole.
                None if own.has(key) && !matches!(key, "keepalive" | "link" | "sysctl" | "client") => {}
                None => return,
            }
        }
        let problem = if why.is_empty() {
            "reaches no arm, every arm writes its own; remove it".to_string()
        } else {
            format!("applies to no arm; remove it ({})", why.join("; "))
        };
        findings.error(at, defaults.name(key), problem);
    };
    if let Some(found) = defaults.get("subject") {
        check("subject", found.key_at, &|_| None);
    }
    for (key, option, found) in written(defaults) {
        check(key, found.key_at, &|subject| match applies(subject, option) {
            Applies::Yes => None,
            Applies::No { why } => Some(why),
        });
    }
}
