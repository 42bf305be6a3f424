//! Where the run takes place: which lab is built, and where in it the table for the cuts goes.

use crate::engine::job::Job;
use crate::fault::{FaultError, FaultTable, IptablesTable, Layout, TABLE, Table};
use crate::host::clock::Clock;
use crate::host::iptables::Iptables;
use crate::lab::{Lab, LabError, LabSpec, Patience, docker};
use crate::scenario::Act;
use std::path::PathBuf;

/// A private, writable directory, gone with the run.
pub fn work_dir() -> PathBuf {
    std::env::var_os("HALFOPEN_WORK_DIR").map_or_else(std::env::temp_dir, Into::into)
}

/// Builds the lab that the job names.
///
/// # Errors
/// As the lab has them.
pub fn build(job: &Job, spec: &LabSpec<'_>, patience: &Patience) -> Result<Lab, LabError> {
    match &job.docker {
        None => Lab::build(spec, patience),
        Some(docker) if !docker.aims.is_empty() => docker::attach(&spec.run_id, &spec.work_dir, &docker.aims),
        Some(docker) => docker::build(spec, docker, patience),
    }
}

/// The table for the cuts, where the packets pass.
///
/// # Errors
/// When the kernel refuses it.
pub fn install_table(layout: Layout, job: &Job, lab: &Lab, clock: Clock) -> Result<Table, FaultError> {
    if let Some(kind) = job.firewall {
        let lock = work_dir().join("xtables.lock");
        let tools = Iptables::open(kind, &lab.router, lock).map_err(FaultError::Iptables)?;
        let faults = &job.plan.scenario.faults;
        let leases = faults.iter().any(|f| f.duration.get().is_some() || f.act.is_some_and(Act::forgets));
        return IptablesTable::install(layout, tools, leases, clock).map(Table::Iptables);
    }
    let (family, own_name) = lab.path();
    let name = own_name.as_deref().unwrap_or(TABLE);
    FaultTable::install_in(layout, &lab.router, (family, name), clock).map(Table::Nftables)
}
