//! What the readers hand on: keys with raw values, before anyone knows which transport they meet.

use super::address::Address;
use super::celery_names::{self, Name, Style};
use super::literal::{Literal, showable_key};
use super::model::{NotUnderstood, Place, SourceKind};

/// Whose key it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Domain {
    /// A Celery setting, by its new name.
    Celery,
    /// A key of `broker_transport_options`.
    Transport,
    /// A key of Airflow's `[scheduler]` or `[celery]`, as `section.key`.
    Airflow,
    /// A key of `rabbitmq.conf`.
    Rabbitmq,
    /// A key of Redis' own configuration.
    RedisServer,
    /// A sysctl without `net.ipv4.`.
    Sysctl,
}

/// One key with its raw value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) domain: Domain,
    pub(crate) key: String,
    pub(crate) value: Literal,
    pub(crate) place: Place,
    pub(crate) style: Style,
    /// Higher outranks lower: a file 0, an environment file 1, the environment 2; Airflow's `extra_celery_config` 4.
    pub(crate) rank: u8,
}

/// One source, read but not yet interpreted. Its `Debug` shows no texts.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The label that the caller gave.
    pub label: String,
    /// What it was taken for.
    pub kind: SourceKind,
    pub(crate) entries: Vec<Entry>,
    pub(crate) addresses: Vec<(Address, Place, u8)>,
    pub(crate) not_understood: Vec<NotUnderstood>,
    pub(crate) unknown: Vec<(String, Literal, Place, UnknownKey)>,
    /// Versions that a report names, as (`kombu`, `5.7.0`).
    pub(crate) versions: Vec<(&'static str, String, Place)>,
}

/// Why a key outside `broker_transport_options` has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownKey {
    pub(crate) why: String,
    pub(crate) meant: Option<String>,
}

impl Reading {
    pub(crate) fn new(label: &str, kind: SourceKind) -> Self {
        Self {
            label: label.to_string(),
            kind,
            entries: Vec::new(),
            addresses: Vec::new(),
            not_understood: Vec::new(),
            unknown: Vec::new(),
            versions: Vec::new(),
        }
    }

    pub(crate) fn place(&self, line: Option<u32>, key: &str) -> Place {
        let key = if key.split(['[', ']', '"', ':', ' ']).all(|p| p.is_empty() || showable_key(p).is_some()) {
            key
        } else {
            "(a key)"
        };
        Place { label: self.label.clone(), line, key: key.to_string() }
    }

    pub(crate) fn rank(&self) -> u8 {
        match self.kind {
            SourceKind::Environment => 2,
            SourceKind::EnvFile => 1,
            _ => 0,
        }
    }

    pub(crate) fn push(&mut self, domain: Domain, key: &str, value: Literal, line: Option<u32>, written: &str) {
        self.push_ranked(domain, key, value, self.place(line, written), Style::New, self.rank());
    }

    pub(crate) fn push_ranked(
        &mut self,
        domain: Domain,
        key: &str,
        value: Literal,
        place: Place,
        style: Style,
        rank: u8,
    ) {
        if let Literal::Unknown(why) = &value {
            self.not_understood.push(NotUnderstood { place, why: why.clone() });
        } else {
            self.entries.push(Entry { domain, key: key.to_string(), value, place, style, rank });
        }
    }

    pub(crate) fn refuse(&mut self, line: Option<u32>, key: &str, why: impl Into<String>) {
        let place = self.place(line, key);
        self.not_understood.push(NotUnderstood { place, why: why.into() });
    }

    /// Takes a Celery setting in any spelling; `transport options` are taken apart. Returns whether it was one.
    pub(crate) fn celery(&mut self, name: &str, value: &Literal, line: Option<u32>, rank: u8) -> bool {
        match celery_names::look_up(name) {
            Name::Setting("broker_transport_options", style) => self.transport_options(name, value, line, style, rank),
            Name::Setting(setting, style) => {
                let place = self.place(line, name);
                self.push_ranked(Domain::Celery, setting, value.clone(), place, style, rank);
            }
            Name::Other => {}
            Name::Foreign => return false,
        }
        true
    }

    /// The items of `broker_transport_options`.
    pub(crate) fn transport_options(&mut self, name: &str, value: &Literal, line: Option<u32>, style: Style, rank: u8) {
        match value {
            Literal::Dict(items) => {
                for item in items {
                    // In a variable or an ini value all items stand where it stands.
                    let at = line.map(|line| if self.kind.has_inner_lines() { item.line } else { line });
                    match &item.key {
                        Some(key) if key.as_str().is_some() => {
                            let key = key.as_str().unwrap_or_default();
                            let place = self.place(at, &format!("{name}[\"{key}\"]"));
                            self.push_ranked(Domain::Transport, key, item.value.clone(), place, style, rank);
                        }
                        Some(_) => self.refuse(at, name, "a key that is not a text"),
                        None => self.refuse(at, name, "items taken in from elsewhere (`**…`)"),
                    }
                }
            }
            Literal::None => {}
            Literal::Unknown(why) => self.refuse(line, name, why.clone()),
            _ => self.refuse(line, name, "not a mapping"),
        }
    }

    /// A name that no one reads, if it resembles one that somebody would: noted as such.
    pub(crate) fn foreign(&mut self, name: &str, value: &Literal, line: Option<u32>) {
        let place = self.place(line, name);
        let bare = name.to_ascii_lowercase();
        let bare = bare.trim_start_matches("celery_").trim_start_matches("broker_");
        let (why, meant) =
            if super::transport::is_an_option_somewhere(bare) && (bare != name || bare.contains("timeout")) {
                let why = format!("Celery has no setting of this name; `{bare}` is a key of broker_transport_options");
                (why, Some(format!("broker_transport_options[\"{bare}\"]")))
            } else if let Some(meant) = celery_names::nearest(name) {
                ("Celery has no setting of this name".to_string(), Some(meant))
            } else {
                return;
            };
        self.unknown.push((name.to_string(), value.clone(), place, UnknownKey { why, meant }));
    }
}
