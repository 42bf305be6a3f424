//! Where the run takes place: which lab is built, and where in it the table for the cuts goes.

use crate::engine::job::Job;
use crate::fault::{FaultError, FaultTable, Layout, TABLE};
use crate::host::clock::Clock;
use crate::lab::{Lab, LabError, LabSpec, Patience, docker};

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
pub fn install_table(layout: Layout, lab: &Lab, clock: Clock) -> Result<FaultTable, FaultError> {
    let (family, own_name) = lab.path();
    let name = own_name.as_deref().unwrap_or(TABLE);
    FaultTable::install_in(layout, &lab.router, (family, name), clock)
}
