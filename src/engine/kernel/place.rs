//! Where the run takes place: which lab is built, and where in it the table for the cuts goes.

use crate::engine::job::Job;
use crate::fault::{FaultError, FaultTable};
use crate::host::clock::Clock;
use crate::lab::{Lab, LabError, LabSpec, Patience, docker};

/// Builds the lab that the job names.
///
/// # Errors
/// As the lab has them.
pub fn build(job: &Job, spec: &LabSpec<'_>, patience: &Patience) -> Result<Lab, LabError> {
    match &job.docker {
        None => Lab::build(spec, patience),
        Some(docker) => docker::build(spec, docker, patience),
    }
}

/// The table for the cuts, where the packets pass.
///
/// # Errors
/// When the kernel refuses it.
pub fn install_table(lab: &Lab, clock: Clock) -> Result<FaultTable, FaultError> {
    match lab.path() {
        (_, None) => FaultTable::install(&lab.router, clock),
        (family, Some(name)) => FaultTable::install_as(&lab.router, family, &name, clock),
    }
}
