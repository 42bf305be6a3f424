//! What the outer process hands to the engine, and what the engine hands back beside its events.

use crate::host::iptables::Kind;
use crate::lab::docker::DockerSpec;
use crate::plan::Plan;
use crate::scenario::SubjectKind;
use crate::store::MemoryUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One run, to be carried out inside the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The run's id: part of every name that it makes.
    pub run_id: String,
    /// What to do.
    pub plan: Plan,
    /// The run directory, which exists.
    pub out: PathBuf,
    /// Where the environments of the clients from outside are.
    #[serde(default)]
    pub environments: BTreeMap<SubjectKind, PathBuf>,
    /// What the docker lab needs; `None` where the lab is made of namespaces.
    #[serde(default)]
    pub docker: Option<DockerSpec>,
    /// Cuts by iptables of this kind, and not by nftables.
    #[serde(default)]
    pub firewall: Option<Kind>,
    /// Where the run was started: relative paths of a command line count from here.
    #[serde(default)]
    pub started_in: PathBuf,
    /// Whether to draw progress on standard error.
    pub progress: bool,
}

/// What the engine found out about the run as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// `CLOCK_MONOTONIC` at the run's zero, in nanoseconds.
    pub zero_ns: i64,
    /// Names and versions of the brokers.
    pub brokers: BTreeMap<String, String>,
    /// Names and versions of the client libraries.
    pub clients: BTreeMap<String, String>,
    /// Peak resident memory by role.
    pub memory: Vec<MemoryUse>,
    /// Where each observation came from, or why it could not be had: `kernel_end: tracepoint`.
    pub sources: Vec<String>,
    /// Seconds that each phase of the run took.
    pub phases_s: BTreeMap<String, f64>,
}

/// Name of the job file inside the run directory; removed at the end.
pub const JOB_FILE: &str = ".job.json";
/// Name of the facts file inside the run directory; folded into `run.json` and removed at the end.
pub const FACTS_FILE: &str = ".facts.json";
