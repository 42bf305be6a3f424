//! Whether two runs may be compared at all, and what differs between them beside the settings under test.

use crate::report::plain;
use crate::scenario::{Arm, Fault, Scenario};
use crate::store::RunHead;
use crate::units::print_duration;
use serde::Serialize;
use std::fmt;

/// A kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// What is done to the path.
    Fault,
    /// Where a cut is made: in the path, or where the subject's kernel notices.
    Distortion,
    /// How long each trial is watched.
    Horizon,
    /// The messages that flow, and what cleans up behind them.
    Load,
    /// Real sockets or the model; namespaces, docker networks or virtual time.
    Lab,
    /// How a guest's clock moves.
    Mode,
    /// The kernel.
    Kernel,
    /// Brokers, clients and the harness itself.
    Versions,
    /// Architecture, timer frequency, processors, memory.
    Machine,
}

impl What {
    /// All, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::Fault,
        Self::Distortion,
        Self::Horizon,
        Self::Load,
        Self::Lab,
        Self::Mode,
        Self::Kernel,
        Self::Versions,
        Self::Machine,
    ];

    /// The name in `--allow` and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Distortion => "distortion",
            Self::Horizon => "horizon",
            Self::Load => "load",
            Self::Lab => "lab",
            Self::Mode => "mode",
            Self::Kernel => "kernel",
            Self::Versions => "versions",
            Self::Machine => "machine",
        }
    }

    /// Whether the two answer different questions, so that no number of one stands beside one of the other. The rest only
    /// takes the power to decide away: a difference could be its doing.
    #[must_use]
    pub fn forbids(self) -> bool {
        matches!(self, Self::Fault | Self::Distortion | Self::Horizon | Self::Load | Self::Lab | Self::Mode)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A difference, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Of which kind.
    pub what: What,
    /// On the first side.
    pub a: String,
    /// On the second.
    pub b: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} against {}", self.what, plain(&self.a), plain(&self.b))
    }
}

/// What differs between two runs, beside their arms' settings.
#[must_use]
pub fn between(a: &RunHead, b: &RunHead) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |what: What, a: String, b: String| {
        if a != b {
            found.push(Difference { what, a, b });
        }
    };
    let (sa, sb) = (&a.plan.scenario, &b.plan.scenario);
    faults(sa, sb, &mut differ);
    differ(What::Horizon, print_duration(sa.horizon), print_duration(sb.horizon));
    differ(What::Load, load(sa), load(sb));
    differ(What::Load, reaper(sa), reaper(sb));
    differ(What::Lab, lab(a), lab(b));
    differ(What::Mode, mode(a), mode(b));
    differ(What::Kernel, known(&a.machine.kernel), known(&b.machine.kernel));
    let list = |of: &std::collections::BTreeMap<String, String>| {
        let each: Vec<String> = of.iter().map(|(name, version)| format!("{name} {version}")).collect();
        if each.is_empty() { "none".to_string() } else { each.join(", ") }
    };
    differ(What::Versions, list(&a.brokers), list(&b.brokers));
    differ(What::Versions, list(&a.clients), list(&b.clients));
    differ(What::Versions, format!("halfopen {}", a.tool.version), format!("halfopen {}", b.tool.version));
    differ(What::Machine, machine(a), machine(b));
    found
}

fn known(text: &str) -> String {
    if text.is_empty() { "not known".to_string() } else { text.to_string() }
}

/// Faults of one name and scope must be one; a fault that only one side has is simply not compared.
fn faults(a: &Scenario, b: &Scenario, differ: &mut impl FnMut(What, String, String)) {
    let mut common = false;
    for fault in &a.faults {
        let same = |other: &&Fault| other.name() == fault.name();
        let alike = |other: &&Fault| same(other) && other.scope == fault.scope;
        let made = |fault: &Fault| format!("{} {}", fault.name(), fault.injection.words());
        // Whatever else they have in common, one of them is no half-open connection.
        if let Some(other) = b.faults.iter().find(|o| same(o) && o.injection != fault.injection) {
            common = true;
            differ(What::Distortion, made(fault), made(other));
            continue;
        }
        let Some(other) = b.faults.iter().find(alike) else { continue };
        common = true;
        if fault != other {
            let told = |fault: &Fault| format!("{} with {}", fault.name(), details(fault));
            differ(What::Fault, told(fault), told(other));
        }
    }
    if !common {
        let names = |s: &Scenario| {
            let each: Vec<String> = s.faults.iter().map(|f| format!("{} ({})", f.name(), f.scope.name())).collect();
            each.join(", ")
        };
        differ(What::Fault, names(a), names(b));
    }
}

/// A fault as its plan has it; long, but it says what differs.
fn details(fault: &Fault) -> String {
    serde_json::to_string(fault).unwrap_or_default()
}

fn load(s: &Scenario) -> String {
    let every = s.load_interval.map_or("no messages".to_string(), |i| format!("a message every {}", print_duration(i)));
    let eta = s.eta.map(|eta| format!(", the first due after {}", print_duration(eta))).unwrap_or_default();
    let tasks = s.tasks.as_ref().map(|t| format!(", {} tasks", t.count)).unwrap_or_default();
    let second = if s.second_consumer { ", a second consumer" } else { "" };
    format!("{every}{eta}{tasks}{second}")
}

fn reaper(s: &Scenario) -> String {
    s.reaper.as_ref().map_or("no reaper".to_string(), |r| {
        format!("a reaper at {} every {}", print_duration(r.timeout), print_duration(r.interval))
    })
}

fn lab(run: &RunHead) -> String {
    if run.engine == run.lab { run.lab.clone() } else { format!("{} in {}", run.engine, run.lab) }
}

/// How a guest's clock moves; empty for real time.
fn mode(run: &RunHead) -> String {
    run.sources.iter().find_map(|s| s.strip_prefix("clock: ")).unwrap_or("real time").to_string()
}

/// What decides how timers behave and how late user space is.
fn machine(run: &RunHead) -> String {
    let m = &run.machine;
    let hz = m.hz.map_or("HZ not known".to_string(), |hz| format!("HZ {hz}"));
    let cpus = m.cpus.map(|n| format!(", {n} processors")).unwrap_or_default();
    // A tenth of a gigabyte more or less is the same machine.
    let memory = m.memory_bytes.map(|n| format!(", {:.0} GB", n as f64 / 1e9)).unwrap_or_default();
    let sysctls: Vec<String> = m.sysctls.iter().map(|(name, value)| format!(", {name} {value}")).collect();
    format!(
        "{}{hz}{cpus}{memory}{}",
        if m.arch.is_empty() { String::new() } else { format!("{}, ", m.arch) },
        sysctls.concat()
    )
}

/// What two arms were asked differently, one line an option.
#[must_use]
pub fn settings(a: &Arm, b: &Arm) -> Vec<String> {
    let value = |arm: &Arm| serde_json::to_value(&arm.settings).unwrap_or_default();
    let (a, b) = (value(a), value(b));
    let mut lines = Vec::new();
    let empty = serde_json::Map::new();
    let (of_a, of_b) = (a.as_object().unwrap_or(&empty), b.as_object().unwrap_or(&empty));
    let mut keys: Vec<&String> = of_a.keys().chain(of_b.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (one, two) = (of_a.get(key), of_b.get(key));
        if one != two {
            lines.push(format!("{key}: {} → {}", option(one), option(two)));
        }
    }
    lines
}

/// An option as a person would write it.
fn option(value: Option<&serde_json::Value>) -> String {
    use serde_json::Value;
    match value {
        None | Some(Value::Null) => "off".to_string(),
        Some(Value::String(text)) => plain(text),
        Some(value) => match duration(value) {
            Some(text) => text,
            None => {
                let fields = value.as_object().map(|map| {
                    let each = map.iter().map(|(k, v)| format!("{k} {}", option(Some(v))));
                    each.collect::<Vec<_>>().join(", ")
                });
                plain(&fields.unwrap_or_else(|| value.to_string()))
            }
        },
    }
}

/// A duration as serde writes it, or one within a setting.
fn duration(value: &serde_json::Value) -> Option<String> {
    let (secs, nanos) = (value.get("secs")?.as_u64()?, value.get("nanos")?.as_u64()?);
    Some(print_duration(std::time::Duration::new(secs, u32::try_from(nanos).ok()?)))
}
