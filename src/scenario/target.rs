//! A service of an existing compose project as the subject: `target = { compose = "…", service = "…" }`.
//!
//! Nothing is started and nothing published: the containers' own connections to their own broker are the trials. So a
//! scenario with a target has no messages, no reaper, one fault, and one that cuts a path. What is left out: which
//! containers there are, which only the Docker engine knows.

use super::command::{CommandLine, ReadyWhen};
use super::error::Findings;
use super::fault::Fault;
use super::keys::{Key, Kind};
use super::model::SubjectKind;
use super::settings::Options;
use super::table::{optional, required};
use super::walk::Fields;
use crate::units::{Setting, print_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A service of a compose project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComposeTarget {
    /// The project, as `docker compose -p` has it.
    pub project: String,
    /// The service.
    pub service: String,
}

/// The keys of the table.
pub(super) const TARGET: &[Key] = &[
    required("compose", Kind::Name, "compose = \"demo\"", "The compose project (`docker compose ls`)."),
    required("service", Kind::Name, "service = \"worker\"", "The service whose connections are cut."),
    optional(
        "broker",
        Kind::Choice(&["rabbitmq", "redis"]),
        "`rabbitmq`",
        "broker = \"redis\"",
        "What it speaks to: its connections to port 5672, or to 6379.",
        &["kind"],
    ),
    optional(
        "lost",
        Kind::Text,
        "none",
        "lost = \"connection lost\"",
        "A line of its log with this text says that it gave a connection up; it goes into the report in its own words.",
        &[],
    ),
];

/// Which kind of subject it is.
pub(super) fn kind(fields: &Fields) -> SubjectKind {
    match fields.text("broker") {
        Some("redis") => SubjectKind::CommandRedis,
        _ => SubjectKind::Command,
    }
}

/// The target as a command line that is never started: it runs already, and its connection is there.
pub(super) fn read(fields: &Fields) -> CommandLine {
    let text = |key: &str| fields.text(key).unwrap_or_default().to_string();
    CommandLine {
        argv: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
        ready: ReadyWhen::Connections(1),
        lost: fields.text("lost").map(str::to_string),
        done: None,
        body: "{message}".to_string(),
        task: None,
        queue: None,
        declare: false,
        image: None,
        target: Some(ComposeTarget { project: text("compose"), service: text("service") }),
    }
}

/// What a scenario with a target must not have.
pub(super) struct Around<'a> {
    pub(super) arms: &'a [Fields],
    pub(super) defaults: &'a Fields,
    pub(super) faults: &'a [(&'a Fields, &'a Fault)],
    pub(super) broker: &'a Fields,
    pub(super) load: &'a Fields,
    pub(super) reaper: Option<&'a Fields>,
}

impl Around<'_> {
    fn options<'a>(&'a self, own: &'a Fields) -> Options<'a> {
        Options { own, defaults: self.defaults }
    }

    /// Says what does not go together with a target.
    pub(super) fn check(&self, findings: &mut Findings) {
        let targets = self.arms.iter().filter(|own| self.options(own).target().is_some()).count();
        for own in self.arms.iter().filter(|own| own.has("target") && own.has("subject")) {
            let problem = "the service is the subject; remove one of `subject` and `target`";
            findings.error(own.at("target"), own.name("target"), problem);
        }
        if targets == 0 {
            return;
        }
        for own in self.arms.iter().filter(|own| self.options(own).target().is_none()) {
            let problem =
                "the other arms are services of a compose project with a broker of its own; make two scenarios";
            findings.error(own.at, own.label.trim_end(), problem);
        }
        for own in self.arms {
            for key in ["link", "sysctl", "client"] {
                for fields in [own, self.defaults].into_iter().filter(|fields| fields.has(key)) {
                    let problem = "the containers of a compose project are left as they are; remove it";
                    findings.error(fields.at(key), fields.name(key), problem);
                }
            }
        }
        for fields in [Some(self.load), self.reaper].into_iter().flatten().filter(|fields| fields.at > 0) {
            let problem = "nothing is published to somebody else's broker; remove the section";
            findings.error(fields.at, fields.label.trim_end(), problem);
        }
        for key in ["image", "heartbeat", "consumer_timeout", "kind"] {
            if self.broker.has(key) {
                let problem = "the broker is the compose project's own; remove it";
                findings.error(self.broker.at(key), self.broker.name(key), problem);
            }
        }
        if let Some((second, _)) = self.faults.get(1) {
            let problem = "a service has one path to cut; make a scenario for each fault";
            findings.error(second.at, second.label.trim_end(), problem);
        }
        for (fields, fault) in self.faults {
            let what = match (fault.act, fault.middlebox.is_some(), fault.idle.is_some()) {
                (Some(act), _, _) => act.words(),
                (None, true, _) | (None, _, true) => "a middlebox stands in the path",
                (None, false, false) => continue,
            };
            let problem = format!(
                "{what}: of a compose project only the path is cut; write `blackhole`, `to-broker` or `to-client`"
            );
            findings.error(fields.at("profile"), fields.name("profile"), problem);
        }
    }
}

/// For how long a target is cut altogether: to the end of the trial where the fault has no duration.
#[must_use]
pub fn time_cut(fault: &Fault, horizon: Duration) -> Duration {
    match (fault.duration, fault.repeat) {
        (Setting::None, _) => horizon,
        (Setting::After(time), None) => time,
        (Setting::After(time), Some(repeat)) => time.saturating_mul(repeat.times),
    }
}

/// The refusal of a cut that is longer than allowed, with the mend.
#[must_use]
pub fn too_long(fault: &Fault, horizon: Duration, ceiling: Duration) -> Option<String> {
    let cut = time_cut(fault, horizon);
    (cut > ceiling).then(|| {
        format!(
            "[[fault]] {}: the service would be cut for {}, and {} is the most; write a shorter `duration`, or allow it with \
             --target-max {}",
            fault.name(),
            print_duration(cut),
            print_duration(ceiling),
            print_duration(cut)
        )
    })
}
