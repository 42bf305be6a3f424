//! `run.json`: what was run, where, and with which versions. Fields may be added, each with a default for older files.

use crate::events::{EVENTS_VERSION, EffectiveOptions};
use crate::plan::Plan;
use crate::scenario::Settings;
use crate::verdict::gate::Baseline;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The version of the run directory. Raised when a file or field changes its meaning.
pub const RUN_FORMAT: u32 = 1;

/// The whole of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// [`RUN_FORMAT`] of the writer.
    pub format: u32,
    /// [`EVENTS_VERSION`] of the writer.
    pub events_version: u32,
    /// Who wrote it.
    pub tool: Tool,
    /// Start of the run in seconds since 1970, by the wall clock; only for people.
    pub started_unix_s: i64,
    /// `kernel` or `model`.
    pub engine: String,
    /// `netns`, `docker`, `vm` or `model`.
    pub lab: String,
    /// The scenario as it was read.
    pub scenario: ScenarioSource,
    /// Seed of everything drawn, `--seed` applied.
    pub seed: u64,
    /// The machine.
    pub machine: Machine,
    /// Names and versions of the brokers that took part.
    #[serde(default)]
    pub brokers: BTreeMap<String, String>,
    /// Names and versions of the client libraries.
    #[serde(default)]
    pub clients: BTreeMap<String, String>,
    /// Where the observations came from: `sock_diag`, `tracepoint`, `rabbitmq-log`, `redis-client-list` …
    #[serde(default)]
    pub sources: Vec<String>,
    /// Faults whose cut is not in the path (`--allow-distorted`): what they measure is no half-open connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distorted: Vec<String>,
    /// Options asked for and effective, per arm. The effective ones are filled in at the end.
    #[serde(default)]
    pub arms: Vec<ArmOptions>,
    /// How exactly the instants of the cuts are known. Filled in at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brackets: Option<Brackets>,
    /// Peak memory by role. Filled in at the end.
    #[serde(default)]
    pub memory: Vec<MemoryUse>,
    /// Seconds that each phase of the run took. Filled in at the end.
    #[serde(default)]
    pub phases_s: BTreeMap<String, f64>,
    /// The stored run that gates are held to, as it was read at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Whether the run ended by itself; false in the file of a run that is going on or was killed or interrupted.
    #[serde(default)]
    pub complete: bool,
    /// Arms, faults, trials, gates: everything that the verdict needs.
    pub plan: Plan,
}

impl RunInfo {
    /// A run that is about to start, with what the plan says; the caller fills in machine and versions.
    #[must_use]
    pub fn new(plan: Plan, scenario: ScenarioSource, lab: &str, started_unix_s: i64) -> Self {
        let arms = plan.scenario.arms.iter();
        Self {
            format: RUN_FORMAT,
            events_version: EVENTS_VERSION,
            tool: Tool::this(),
            started_unix_s,
            engine: "kernel".to_string(),
            lab: lab.to_string(),
            scenario,
            seed: plan.scenario.seed,
            machine: Machine::default(),
            brokers: BTreeMap::new(),
            clients: BTreeMap::new(),
            sources: Vec::new(),
            distorted: plan
                .scenario
                .faults
                .iter()
                .filter(|fault| !fault.injection.is_faithful())
                .map(|fault| fault.name().to_string())
                .collect(),
            arms: arms
                .map(|arm| ArmOptions { arm: arm.name.clone(), asked: arm.settings.clone(), effective: Vec::new() })
                .collect(),
            brackets: None,
            memory: Vec::new(),
            phases_s: BTreeMap::new(),
            baseline: None,
            complete: false,
            plan,
        }
    }
}

/// The program that wrote the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `halfopen`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Tool {
    /// This program.
    #[must_use]
    pub fn this() -> Self {
        Self { name: "halfopen".to_string(), version: env!("CARGO_PKG_VERSION").to_string() }
    }
}

/// The scenario file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioSource {
    /// Its path as given.
    pub path: String,
    /// Its whole text.
    pub text: String,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: String,
}

impl ScenarioSource {
    /// The text with its hash.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_string(), text: text.to_string(), sha256: sha256_hex(text.as_bytes()) }
    }
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What decides how timers behave here. `None` is "not known".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    #[serde(default)]
    pub arch: String,
    /// The timer frequency, jiffies a second.
    #[serde(default)]
    pub hz: Option<u32>,
    /// Processors that the run could use.
    #[serde(default)]
    pub cpus: Option<u32>,
    /// Memory of the machine, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The distribution, as `/etc/os-release` names it.
    #[serde(default)]
    pub os: String,
    /// Sysctls that the timers depend on, as found in a subject's namespace.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
}

/// Options of one arm: asked for, and as the kernel and the broker say they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmOptions {
    /// The arm.
    pub arm: String,
    /// As in the scenario, defaults filled in.
    pub asked: Settings,
    /// The distinct sets of effective options on the connections under test, with how many had them.
    #[serde(default)]
    pub effective: Vec<EffectiveCount>,
}

/// One set of effective options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveCount {
    /// Connections under test that had it.
    pub n: usize,
    /// The options.
    pub options: EffectiveOptions,
}

/// Widths of the brackets around the cuts, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Brackets {
    /// Cuts.
    pub n: usize,
    /// Median.
    pub median_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// Widest.
    pub max_s: f64,
}

/// Peak memory of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// `engine`, `subject lapin`, `rabbitmq` …
    pub role: String,
    /// Processes of that role.
    pub processes: u32,
    /// Their peak resident memory together, in bytes.
    pub peak_rss_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
