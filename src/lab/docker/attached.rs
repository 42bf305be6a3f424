//! Containers that are there already as a lab: looked at, entered by nobody, left as they are.

use super::api::{Api, cannot};
use super::targets::{Aim, Ends, Seen, ends_of, follow};
use crate::host::netns::NetNs;
use crate::host::nft::Family;
use crate::lab::{Lab, LabError, Place, links};
use crate::units::TrialId;
use std::path::{Path, PathBuf};

/// The containers of other people's services.
#[derive(Debug)]
pub struct Attached {
    api: Api,
    run_id: String,
    aims: Vec<Aim>,
    work_dir: PathBuf,
}

fn namespace(of: &Seen) -> Result<NetNs, LabError> {
    let path = format!("/proc/{}/ns/net", of.pid);
    NetNs::open(Path::new(&path), &of.name)
        .ok()
        .filter(|ns| !ns.is_current())
        .ok_or_else(|| cannot(format!("{} ended meanwhile, or has no network of its own", of.name)))
}

/// A lab of what is there: a client namespace for each aim, in their order, and their broker's.
///
/// # Errors
/// When a container has ended meanwhile.
pub fn attach(run_id: &str, work_dir: &Path, aims: &[Aim]) -> Result<Lab, LabError> {
    let api = Api::usable()?;
    let first = aims.first().ok_or_else(|| cannot("there is nothing to cut"))?;
    let here = || NetNs::current("the machine").map_err(LabError::Network);
    Ok(Lab {
        certificates: None,
        router: here()?,
        server: namespace(&first.broker)?,
        producer: here()?,
        proxy: None,
        standby: None,
        standby_brokers: Vec::new(),
        clients: aims.iter().map(|aim| namespace(&aim.container)).collect::<Result<_, _>>()?,
        brokers: Vec::new(),
        database: None,
        links: links::Links::default(),
        place: Place::Attached(Attached {
            api,
            run_id: run_id.to_string(),
            aims: aims.to_vec(),
            work_dir: work_dir.into(),
        }),
    })
}

impl Drop for Attached {
    fn drop(&mut self) {
        // All that the run made on this machine. Where it stays, `halfopen clean` finds it.
        let _ = std::fs::remove_dir_all(&self.work_dir);
    }
}

impl Attached {
    /// Which packets the cut minds: whatever bridges of this machine carry. The addresses are Docker's own, which it gives
    /// to no second network.
    pub(in crate::lab) fn path(&self) -> (Family, Option<String>) {
        (Family::Bridge { to: None }, Some(format!("halfopen-{}", self.run_id)))
    }

    fn aim(&self, trial: TrialId) -> Option<&Aim> {
        self.aims.iter().find(|aim| aim.trial == trial)
    }

    /// The connections of a trial's container to its broker that are there now; none where it has ended.
    pub(in crate::lab) fn connections(&self, trial: TrialId) -> Vec<Ends> {
        let Some(aim) = self.aim(trial) else { return Vec::new() };
        let all = ends_of(aim.container.pid, aim.server.port()).unwrap_or_default();
        all.into_iter().filter(|(near, far)| *near.ip() == aim.client && *far == aim.server).collect()
    }

    /// The main process of a trial's container.
    pub(in crate::lab) fn pid(&self, trial: TrialId) -> Option<u32> {
        self.aim(trial).map(|aim| aim.container.pid)
    }

    /// Hands over what a trial's container writes from now on.
    pub(in crate::lab) fn follow(&self, trial: TrialId, each: impl FnMut(&[u8]) + Send + 'static) {
        if let Some(aim) = self.aim(trial) {
            follow(&self.api, &aim.container.id, each);
        }
    }
}
